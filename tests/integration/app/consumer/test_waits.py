"""Rebalances and commits have deadlines: a worker past its deadline logs the reason and exits."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from faust_assigner.app.consumer.waits import Waits, unsent
from faust_assigner.app.membership import watchdog
from faust_assigner.app.membership.watchdog import CannotGoOn
from faust_assigner.app.retry import SAY_EVERY_S
from faust_assigner.broker import EmbeddedBroker
from tests.support.workers.cooperative import worker_of
from tests.support.workers.virtual import Worker, running
from tests.support.workers.virtual_kafka import VirtualProducer

pytestmark = pytest.mark.timeout(150)

#: Timeouts of the workers here, in seconds.
SHORT = {
    "broker_request_timeout": 0.4,
    "broker_rebalance_timeout": 0.4,
    "broker_session_timeout": 0.3,
    "broker_heartbeat_interval": 0.1,
    "broker_max_poll_interval": 1.0,
    "broker_commit_interval": 0.05,
}


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "LOOK_S", 0.02)


async def never(*_: Any, **__: Any) -> None:
    """Wait for an answer that never comes."""
    await asyncio.Event().wait()


@pytest.fixture
def deliveries(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The state of the producer's flush: it never returns once ``stopped`` is set."""
    state, flush = SimpleNamespace(stopped=False), VirtualProducer.flush

    async def maybe_never(self: VirtualProducer) -> None:
        await (never() if state.stopped else flush(self))

    monkeypatch.setattr(VirtualProducer, "flush", maybe_never)
    return state


async def ends_with(worker: Worker, words: str) -> bool:
    """Return whether the worker ends with an error that contains ``words``."""
    worker.app.consumer.shutdown.budget.left = 0.5  # seconds that a stop waits for the broker
    if not await worker.until(lambda: worker.app.crash_reason is not None):
        return False
    reason = worker.app.crash_reason
    return isinstance(reason, CannotGoOn) and words in str(reason)


async def test_a_commit_whose_records_are_never_delivered_ends_the_worker(
    caplog: pytest.LogCaptureFixture, deliveries: SimpleNamespace
) -> None:
    """This is the timer's commit, outside any rebalance."""
    worker = Worker(repaired=True, **SHORT)
    with caplog.at_level(logging.WARNING):
        async with running(worker):
            await worker.rebalance([0])
            assert await worker.until(lambda: worker.recovered)
            deliveries.stopped = True
            worker.send_orders(5)
            assert await ends_with(worker, "The commit has waited for 1 s for the delivery of")
    assert "The commit has waited for 0 s for the delivery of sent records; this" in caplog.text


async def test_a_commit_that_the_group_never_answers_ends_the_worker() -> None:
    """The group does not answer the commit and still answers heartbeats."""
    worker = Worker(repaired=True, **SHORT)
    async with running(worker):
        await worker.rebalance([0])
        assert await worker.until(lambda: worker.recovered)
        worker.app.consumer._thread.commit = never
        worker.send_orders(5)
        assert await ends_with(worker, "for changes of tables, and the group's answer")


async def test_a_hand_over_that_never_ends_ends_the_worker(deliveries: SimpleNamespace) -> None:
    """The commit is done, and one more record is never delivered."""
    async with worker_of([0, 1], **{**SHORT, "broker_commit_interval": 60.0}) as worker:
        deliveries.stopped = True
        giving = asyncio.create_task(worker.give([0]))
        assert await ends_with(
            worker, "The hand-over of 2 partitions has waited for 0 s for the delivery of"
        )
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)


async def test_a_revocation_has_a_deadline_after_the_worker_has_left_its_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The idle time of its fetches ends the membership before the wait for a slow record ends."""
    worker = Worker(repaired=True, **SHORT)
    worker.delay_s = 60.0
    with caplog.at_level(logging.WARNING):
        async with running(worker):
            await worker.rebalance([0])
            assert await worker.until(lambda: worker.recovered)
            worker.send_orders(1)
            assert await worker.until(lambda: worker.processed)
            consumer = worker.app.consumer
            coordinator = consumer._thread._consumer._coordinator
            coordinator.member_id, coordinator.coordinator_id = "", 1
            consumer._is_watched = True
            consumer.fence.lose()
            revoking = asyncio.create_task(worker.rebalance([0]))
            assert await ends_with(worker, "The revocation of 2 partitions has waited for 1 s for")
            revoking.cancel()
            await asyncio.gather(revoking, return_exceptions=True)
    assert "this worker is no member of its group" in caplog.text


async def test_a_wait_of_the_other_thread_has_a_deadline() -> None:
    """The app never starts its gained partitions."""
    async with worker_of([0], **SHORT) as worker:
        worker.app.agents.on_rebalance = never
        giving = asyncio.create_task(worker.give([0, 1]))
        assert await ends_with(worker, "A rebalance has waited for 1 s for the app's assign()")
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)


def test_a_wait_ends_no_worker_while_the_group_is_silent() -> None:
    """Only the seconds in which the group answers count."""
    waits = Waits()
    with waits.during("The commit", "an answer", 10.0):
        lines = waits.advance(100.0, group_answers=False)
        assert lines == [
            "The commit has waited for 100 s for an answer; the group does not answer, so this "
            "worker keeps waiting"
        ]
        assert waits.problem() is None
        waits.advance(9.0, group_answers=True)
        assert waits.problem() is None
        waits.advance(1.0, group_answers=True)
        assert waits.problem() == "The commit has waited for 10 s for an answer"
    assert waits.problem() is None


def test_a_long_wait_is_logged_after_half_of_its_deadline_and_then_every_minute() -> None:
    """The log line names the current step of the wait."""
    waits = Waits()
    with waits.during("The commit", "a flush", 100.0, lambda: "topic orders") as wait:
        assert waits.advance(49.0, group_answers=True) == []
        assert waits.advance(1.0, group_answers=True) == [
            "The commit has waited for 50 s for a flush (topic orders); this worker ends when the "
            "wait has taken 100 s"
        ]
        assert waits.advance(SAY_EVERY_S - 1.0, group_answers=False) == []
        wait.move_to_step("an answer")
        [line] = waits.advance(1.0, group_answers=True)
        assert "for 110 s for an answer; this" in line
        assert waits.problem() is None, "the group was silent for a minute of it"


def test_a_step_that_a_commit_has_come_to_is_noted_of_commits_alone() -> None:
    """The steps of other waits do not change."""
    waits = Waits()
    with waits.during("The commit", "a flush", 1.0), waits.during("A rebalance", "a join", 9.0):
        waits.move_to_step("The commit", "an answer")
        waits.advance(9.0, group_answers=True)
        assert waits.problem() == "The commit has waited for 1 s for an answer"


async def test_the_log_names_topics_whose_batches_were_not_delivered() -> None:
    """This covers batches that wait for more records and batches without a response."""
    async with EmbeddedBroker() as broker:
        for topic in ("waits", "sent"):
            broker.node.catalogue.create(topic, 1, {})
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=60_000)
        await producer.start()
        app: Any = SimpleNamespace(producer=SimpleNamespace(_producer=producer))
        try:
            assert unsent(app) == ""
            for topic in ("waits", "sent"):
                await producer.send(topic, b"x")
            assert unsent(app) == "not delivered yet: sent, waits"
            batches = producer._message_accumulator
            [pending] = batches._batches.pop(next(tp for tp in batches._batches if tp[0] == "sent"))
            batches._pending_batches.add(pending)
            assert unsent(app) == "not delivered yet: sent, waits"
        finally:
            producer._closed = True
            await producer._sender.close()
            await producer.client.close()
