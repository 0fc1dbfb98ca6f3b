"""The end of a recovery: after the last readable record, in whatever order the events happen."""

from __future__ import annotations

import asyncio
import json
import logging
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import IllegalStateError

from faust_assigner.app.recovery.unreadable import unreadable_of
from tests.support.workers.virtual import Worker, running

pytestmark = pytest.mark.timeout(150)

SLOWEST_S = 1.3


def slow(target: Any, name: str, delay_s: float, *, when: Any = lambda *_: True) -> None:
    """Start ``target.name(...)`` ``delay_s`` late if ``when`` is true of its arguments."""
    original = getattr(target, name)

    async def late(*args: Any, **kwargs: Any) -> Any:
        if when(*args):
            await asyncio.sleep(delay_s)
        return await original(*args, **kwargs)

    setattr(target, name, late)


async def recovered_rows(worker: Worker) -> int:
    """Return the number of rows once the recovery is over."""
    await worker.rebalance([0])
    assert await worker.until(lambda: worker.recovered)
    worker.app.tables.recovery.flush_buffers()
    return len(worker.counts)


@pytest.mark.parametrize(
    ("hand_over_s", "position_s", "take_s"), list(product((0.0, SLOWEST_S), (0.0, 0.6), (0.0, 0.7)))
)
async def test_the_last_readable_record_is_never_passed_over(
    hand_over_s: float, position_s: float, take_s: float
) -> None:
    """Delays occur between aiokafka and the queue, and between the queue and the table."""
    worker = Worker(repaired=True)
    worker.send_changelog(10)
    last = worker.logs.ends[worker.changelog()] - 1
    worker.logs.append_marker(worker.changelog())
    async with running(worker):
        consumer = worker.app.consumer
        slow(consumer, "callback", hand_over_s, when=lambda message: message.offset == last)
        slow(consumer, "position", position_s)
        worker.replay_delay_s = 0.01
        slow(
            worker.counts,
            "on_changelog_event",
            take_s,
            when=lambda event: event.message.offset == last,
        )
        assert await recovered_rows(worker) == 10


@pytest.mark.slow
async def test_a_record_taken_from_the_queue_and_not_yet_applied_is_not_passed_over() -> None:
    """For one turn of the event loop the queue is empty and the offset is one too low."""
    worker = Worker(repaired=True)
    worker.send_changelog(10)
    worker.logs.append_marker(worker.changelog())
    async with running(worker):
        consumer, queue = worker.app.consumer, worker.app.tables.changelog_queue
        slow(consumer, "callback", 1.0, when=lambda message: message.offset == 9)
        slow(worker.counts, "on_changelog_event", 2.5, when=lambda event: event.message.offset == 8)
        # A bare future: the waiting task continues in the very next turn.
        looks, taken = [0], asyncio.get_running_loop().create_future()
        position, take = consumer.position, queue._get

        def taking() -> Any:
            event = take()
            if event.message.offset == 9 and not taken.done():
                taken.set_result(None)
            return event

        async def position_when_taken(tp: Any) -> int | None:
            found: int | None = await position(tp)
            looks[0] += 1
            if looks[0] > 1:
                await taken
            return found

        queue._get, consumer.position = taking, position_when_taken
        asyncio.get_running_loop().call_later(6.0, lambda: taken.done() or taken.set_result(None))
        assert await recovered_rows(worker) == 10


async def test_a_partition_lost_amid_the_look_for_the_end_ends_no_worker() -> None:
    """aiokafka raises an exception if asked for the position of an unassigned partition."""
    worker = Worker(repaired=True)
    worker.send_changelog(10)
    worker.logs.append_marker(worker.changelog())
    async with running(worker):
        asked: list[Any] = []
        position = worker.app.consumer.position

        async def lost(tp: Any) -> int | None:
            asked.append(tp)
            if len(asked) < 3:
                raise IllegalStateError(f"{tp} is not assigned")
            found: int | None = await position(tp)
            return found

        worker.app.consumer.position = lost
        assert await recovered_rows(worker) == 10
        assert worker.app.crash_reason is None
        assert len(asked) >= 3


async def test_the_marker_of_a_transaction_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Under exactly_once every healthy changelog ends with a marker."""
    worker = Worker(repaired=True)
    worker.send_changelog(10)
    worker.logs.append_marker(worker.changelog())
    async with running(worker):
        with caplog.at_level(logging.INFO):
            assert await recovered_rows(worker) == 10
    said = [record for record in caplog.records if "no readable record" in record.message]
    assert [record.levelno for record in said] == [logging.INFO]


async def test_records_that_do_not_decode_are_counted_named_and_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their bytes are kept beside the tables; a record without a key counts, too."""
    worker = Worker(repaired=True, datadir=str(tmp_path))
    changelog = worker.changelog()
    worker.send_changelog(5)
    worker.logs.append(changelog, b'"key"', b"{no json")
    worker.send_changelog(5)
    worker.logs.append(changelog, b"{no json", b"7")
    async with running(worker):
        assert await recovered_rows(worker) == 10
        assert unreadable_of(worker.app).counts[changelog] == 2
        assert any("records did not decode" in record.message for record in caplog.records)
        [kept] = Path(worker.app.conf.tabledir).glob("unreadable/*.jsonl")
        assert [json.loads(line)["offset"] for line in kept.read_text().splitlines()] == [5, 11]


async def test_a_recovery_that_ends_before_anybody_waits_for_its_end_is_over() -> None:
    """Stock clears the event before the next record, and later waiters never wake up."""
    worker = Worker(repaired=True)
    worker.send_changelog(10)
    async with running(worker):
        recovery = worker.app.tables.recovery
        wait = recovery._wait

        async def late(coro: Any, timeout: Any = None) -> None:
            if "Event.wait" in getattr(coro, "__qualname__", ""):
                await asyncio.sleep(1.0)
            await wait(coro, timeout=timeout)

        recovery._wait = late
        assert await recovered_rows(worker) == 10


class Span:
    """A span of a tracer."""

    def __init__(self, name: str) -> None:
        self.name, self.tags, self.finished = name, dict[str, Any](), 0

    def set_tag(self, key: str, value: Any) -> Span:
        """As OpenTracing's."""
        self.tags[key] = value
        return self

    def finish(self) -> None:
        """As OpenTracing's."""
        self.finished += 1

    def __enter__(self) -> Span:
        return self

    def __exit__(self, *error: Any) -> None:
        self.finish()


class Tracer:
    """A tracer that keeps all spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def get_tracer(self, name: str) -> Tracer:
        """As Faust's."""
        return self

    def start_span(self, name: str = "", operation_name: str = "", **_: Any) -> Span:
        """As OpenTracing's."""
        self.spans.append(Span(name or operation_name))
        return self.spans[-1]

    def ends(self) -> dict[str, int]:
        """Return how often the spans of actives and of standbys were finished, by name."""
        of_partitions = ("recovery-actives", "recovery-standbys")
        return {span.name: span.finished for span in self.spans if span.name in of_partitions}

    @property
    def trace_async_func(self) -> Any:
        """As Faust's."""
        return lambda fun, *_, **__: fun


async def test_the_spans_of_actives_and_standbys_are_finished_when_they_are_ready() -> None:
    """Before the fix, standbys never became ready with a tracer, and their span did not end."""
    worker = Worker(partitions=2, repaired=True)
    worker.app.tracer = tracer = Tracer()
    worker.send_changelog(5)
    worker.send_changelog(5, partition=1)
    async with running(worker):
        await worker.rebalance([0], standbys=[1])
        assert await worker.until(lambda: worker.recovered)
        worker.send_changelog(1, partition=1)
        # The flag alone does not suffice: it may be set before the host begins the standbys' span.
        ends = {"recovery-actives": 1, "recovery-standbys": 1}
        await worker.until(lambda: worker.app.tables.standbys_ready and tracer.ends() == ends)
    assert tracer.ends() == ends
    assert [
        span.tags["Actives-Ready"] for span in tracer.spans if span.name == "recovery-actives"
    ] == [True]


async def test_a_fetcher_whose_flow_is_stopped_asks_for_nothing() -> None:
    """The fetcher waits for the flow; a return would seek all sources to committed offsets."""
    worker = Worker(repaired=True)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        consumer = worker.app.consumer
        consumer.stop_flow()
        consumer.pause_partitions(consumer.assignment())
        await asyncio.sleep(0.1)
        waiting = asyncio.ensure_future(consumer._wait_next_records(0.01))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        consumer.resume_flow()
        assert await waiting == ({}, set())
