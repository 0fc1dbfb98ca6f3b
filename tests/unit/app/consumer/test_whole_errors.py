"""Errors of any type, subclasses, and orders: what the other tests of the consumer leave open."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.errors import IllegalStateError
from aiokafka.structs import TopicPartition
from faust.types import TP
from mode.utils.queues import ThrowableQueue

from faust_assigner.app.consumer.committed_offsets import committed, replace_offset_fetch
from faust_assigner.app.consumer.delivery import Delivery
from faust_assigner.app.consumer.fetching import (
    FlowControl,
    fetch_or_put_back,
    put_back,
    seek_committed,
)
from faust_assigner.app.consumer.live_views import Wanted
from faust_assigner.app.consumer.waits import (
    COMMIT,
    Waits,
    committing,
    committing_offsets,
    waits_of,
)
from tests.support.waiting import PATIENCE_S
from tests.unit.app.consumer.test_commits import OTHER, SOURCE
from tests.unit.app.consumer.test_commits import Consumer as Committing
from tests.unit.app.consumer.test_committed_offsets import HERE, Coordinator
from tests.unit.app.consumer.test_delivery import consumer_of
from tests.unit.app.consumer.test_fetcher import A, Turns
from tests.unit.app.consumer.test_fetcher import B as BESIDE
from tests.unit.app.consumer.test_stream_take import B, Event, Stream, made, next_of
from tests.unit.app.consumer.test_waits import app_with
from tests.unit.app.consumer.test_whole_records import Stock
from tests.unit.app.consumer.test_whole_turns import Consumer

__all__ = ["made"]

LOG = TP("log", 0)


# -- committed offsets


async def test_an_error_that_no_version_explains_is_raised_after_one_request() -> None:
    """An older version of the request would get the same error, or none and wrong offsets."""
    for error in (errors.KafkaTimeoutError("silent"), ValueError("a bug"), OSError("no route")):
        coordinator = Coordinator()
        coordinator.refusals = [error]
        replace_offset_fetch(coordinator)  # type: ignore[arg-type]
        with pytest.raises(type(error)) as raised:
            await coordinator._do_fetch_commit_offsets([HERE])  # type: ignore[attr-defined]
        assert raised.value is error
        assert len(coordinator.requests) == 1


@pytest.mark.parametrize("code", [89, 90, -1])
async def test_only_one_code_says_that_a_transaction_is_about_to_commit(code: int) -> None:
    """Any other code is the error of that code, above the code as well."""
    coordinator = Coordinator(code)
    with pytest.raises(errors.for_code(code)) as raised:
        await committed(coordinator, [HERE])  # type: ignore[arg-type]
    assert "transaction" not in str(raised.value)


# -- fetching


class Records(dict[TP, Any]):
    """Records of a fetch, with their partitions in this order."""

    def __init__(self, *batches: tuple[TP, int]) -> None:
        super().__init__({tp: [SimpleNamespace(offset=o) for o in (at, 99)] for tp, at in batches})


def test_a_partition_that_went_keeps_no_later_one_from_being_put_back() -> None:
    """Each is sought by itself; any other error of a seek is the caller's."""
    sought: list[Any] = []

    def seek(tp: TP, offset: int) -> None:
        sought.append((tp, offset))
        if tp == LOG:
            raise IllegalStateError("no longer assigned")
        if offset == 13:
            raise ValueError("a bug")

    put_back(seek, Records((SOURCE, 7), (LOG, 8), (OTHER, 9)))
    assert sought == [(SOURCE, 7), (LOG, 8), (OTHER, 9)]
    with pytest.raises(ValueError, match="a bug"):
        put_back(seek, Records((SOURCE, 13)))


async def test_records_of_sources_come_before_those_of_standbys() -> None:
    """Faust passes partitions on in this order; an error of any type puts the sources back."""
    sought: dict[TP, int] = {}
    answers: list[Any] = [Records((OTHER, 4), (SOURCE, 5)), Records((LOG, 6))]
    noted: dict[TP, int] = {}

    async def fetch(*_: object, **limits: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    tables = SimpleNamespace(changelog_topics={"log"})
    thread: Any = SimpleNamespace(
        app=SimpleNamespace(in_recovery=False, tables=tables),
        consumer=SimpleNamespace(
            flow_active=True, first_read=noted, app=SimpleNamespace(tables=tables)
        ),
    )
    consumer: Any = SimpleNamespace(seek=sought.__setitem__)
    active = {SOURCE, OTHER, LOG}
    found = await fetch_or_put_back(thread, fetch, consumer, active, timeout=1.0)
    assert [*found] == [OTHER, SOURCE, LOG]
    assert noted == {OTHER: 4, SOURCE: 5}
    answers += [Records((OTHER, 4), (SOURCE, 5)), ValueError("not Kafka's")]
    with pytest.raises(ValueError, match="not Kafka's"):
        await fetch_or_put_back(thread, fetch, consumer, active, timeout=1.0)
    assert sought == {OTHER: 4, SOURCE: 5}


def test_a_view_may_change_while_it_is_read() -> None:
    """Faust's thread changes the set of active partitions meanwhile."""
    active = {SOURCE, OTHER, LOG}
    seen = []
    for tp in Wanted(active, but_not={"log"}):
        seen.append(tp)
        active.discard(LOG)
        active.add(TP("orders", len(active) + 7))
    assert sorted(seen) == [SOURCE, OTHER]


async def test_a_partition_fails_by_itself_with_an_error_of_any_type() -> None:
    """A decompression, for example, raises errors that are not aiokafka's."""
    for error in (ValueError("corrupt"), KeyError("codec"), errors.CorruptRecordException()):
        turns = Turns(A, BESIDE)
        turns.fetched(A, 3)
        turns.fetched(BESIDE, 4)

        def fail(*_: object, error: Exception = error) -> Any:
            raise error

        turns.fetcher._records[A].getall = turns.fetcher._records[A].getone = fail
        assert await turns.take() == {}
        assert turns.fetcher.aside.partitions() == [A]
        assert turns.fetcher.counters == {"unreadable_partitions": 1}
        assert await turns.take() == {1: 4}


async def test_a_turn_of_one_record_takes_one() -> None:
    """Half of one record is none, which aiokafka takes for a limit that it refuses."""
    turns = Turns(A, BESIDE)
    await turns.keeps_up(A)
    turns.fetched(BESIDE, 2)
    turns.fetched(A, 2)
    assert sorted([await turns.take(1) for _ in range(4)], key=str) == [{0: 1}] * 2 + [{1: 1}] * 2


# -- delivery, commits and waits


async def test_a_record_of_a_paused_partition_is_delivered_once_it_is_taken() -> None:
    """Faust's delivery checks for the pause itself, record by record."""
    delivery = Delivery(consumer_of({SOURCE}, paused={SOURCE}))

    async def deliver(message: Any) -> object:
        return message.offset

    record: Any = SimpleNamespace(tp=SOURCE, offset=4)
    assert await delivery.hand_out(deliver, record) == 4


@pytest.mark.parametrize("generation", [0, 2, None])
def test_only_records_of_the_current_generation_hold_back_a_commit(generation: Any) -> None:
    """A record without a generation, or of any other, is processed by its owner again."""
    consumer = Committing()
    consumer.under_way.generation_id = generation
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 6}


def test_a_first_record_under_way_that_has_sent_nothing_delays_no_commit() -> None:
    """A source without sends has reached no offset, so offset 0 is after it."""
    consumer: Any = Consumer()
    assert isinstance(consumer, Stock)
    consumer.begin(TP("orders", 0), 0)
    assert consumer.boundaries._is_settled({})
    assert consumer.boundaries._is_settled({TP("orders", 1): 5})
    assert not consumer.boundaries._is_settled({TP("orders", 0): 0})


def test_a_line_counts_all_seconds_and_the_deadline_those_with_answers() -> None:
    """The log tells how long the wait lasts, the deadline whether this worker is the cause."""
    waits = Waits()
    with waits.during(COMMIT, "delivery", 10.0) as wait:
        assert waits.advance(3.0, group_answers=False) == []
        assert waits.advance(4.0, group_answers=True) == [
            "The commit has waited for 7 s for delivery; this worker ends when the wait has taken 10 s"
        ]
        assert (wait.total_s, wait.counted_s, wait.logged_s) == (7.0, 4.0, 7.0)
        waits.advance(5.5, group_answers=True)
        assert not wait.is_over
        waits.advance(0.5, group_answers=True)
        assert waits.problem() == "The commit has waited for 10 s for delivery"
        assert waits.age_s("The c") == 13.0


# -- batches


async def test_records_are_collected_after_the_stream_s_other_processors(made: Stream) -> None:
    """The batch has the values as the processors leave them, and each take adds none."""
    made.take(2, None)
    made.take(3, None)
    assert made._buffer is not None
    assert made._processors[1:] == ["echo", made._buffer.collect]
    assert (made._buffer.most, made.readers, made.enable_acks) == (3, 1, False)


async def test_a_reader_that_finds_a_batch_full_again_waits_again(made: Stream) -> None:
    """Two readers may wait for the same room; one record of them fits."""
    batches = made.take(1, None)
    await made.read(Event(1))
    assert made._buffer is not None
    readers = []
    for number in (2, 3):
        made.current_event = Event(number)
        readers.append(asyncio.ensure_future(made._buffer.collect(number)))
        await asyncio.sleep(0)
    assert await next_of(batches) == [1]
    async with asyncio.timeout(PATIENCE_S):
        while not any(reader.done() for reader in readers):
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert [reader.done() for reader in readers] == [True, False]
    assert len(made._buffer.filling) == 1
    assert await next_of(batches) == [2]
    await asyncio.wait(readers, timeout=PATIENCE_S)
    assert await next_of(batches) == [3]


class Row(dict[str, Any]):
    """A value of the app's own type."""


async def test_a_timestamp_is_stored_in_every_kind_of_dict(made: Stream) -> None:
    """Other values stay as they are; records without a generation are not of this one."""
    batches = made.take_with_timestamp(4, 0.05, "at")
    unowned = Event({"n": 4}, B)
    unowned.message.generation_id = None
    await made.read(Event(Row(n=1)), Event({"n": 2}), Event("text"), unowned)
    assert await next_of(batches) == [{"n": 1, "at": 42.0}, {"n": 2, "at": 42.0}, "text"]


async def test_a_smaller_batch_takes_over_all_that_was_collected(made: Stream) -> None:
    """An agent that failed may be replaced by one with a different size."""
    made.take(3, None)
    await made.read(Event(1), Event(2))
    smaller = made.take(1, 0.05)
    assert await next_of(smaller) == [1, 2]
    await made.read(Event(3))
    assert await next_of(smaller) == [3]


async def test_a_seek_of_no_partition_seeks_none() -> None:
    """An empty list does not stand for all partitions."""
    sought: list[Any] = []

    async def fetched(tps: list[TP]) -> dict[TP, Any]:
        raise AssertionError(tps)

    consumer: Any = SimpleNamespace(
        assignment=lambda: {SOURCE, OTHER},
        seek=lambda *asked: sought.append(asked),
        _coordinator=SimpleNamespace(fetch_committed_offsets=fetched),
    )
    assert await seek_committed(consumer, {SOURCE: 3}, ()) == {}
    assert sought == []


async def test_an_error_of_the_group_names_the_group() -> None:
    """The operator sees whose offsets are refused."""
    with pytest.raises(errors.GroupAuthorizationFailedError, match=r"\bg\b"):
        await committed(Coordinator(30), [HERE])  # type: ignore[arg-type]


def test_the_line_of_a_commit_names_the_topics_without_an_answer() -> None:
    """They belong to its first step only."""
    app: Any = app_with(None, 30.0, 10.0)
    accumulator = SimpleNamespace(_batches={SOURCE: []}, _pending_batches=[])
    app.producer = SimpleNamespace(_producer=SimpleNamespace(_message_accumulator=accumulator))
    with committing(app):
        (line,) = waits_of(app).advance(20.0, group_answers=True)
        assert "for the delivery of sent records (not delivered yet: orders); this" in line
        committing_offsets(app)
        (line,) = waits_of(app).advance(60.0, group_answers=False)
        assert "80 s for changes of tables, and the group's answer; the group" in line
    assert waits_of(app).under_way() == ()


async def test_who_keeps_up_without_records_is_not_counted() -> None:
    """The partition that keeps up takes half, rounded down, whatever its place in the queue."""
    tps = [TopicPartition("t", number) for number in range(4)]
    turns = Turns(*tps)
    await turns.keeps_up(*tps[:3])
    for tp in (tps[3], tps[0]):
        turns.fetched(tp, 100)
    assert await turns.take(9) == {0: 4, 3: 5}


async def test_committed_offsets_are_asked_for_in_our_way_from_the_first_time_on() -> None:
    """aiokafka's own request would take an error for partitions without a commit."""
    asked: list[bool] = []
    coordinator = SimpleNamespace(group_id="g")

    async def fetched(tps: list[TP]) -> dict[TP, Any]:
        asked.append(hasattr(coordinator, "_do_fetch_commit_offsets"))
        return {}

    coordinator.fetch_committed_offsets = fetched
    consumer: Any = SimpleNamespace(
        assignment=lambda: {SOURCE}, seek=lambda *_: None, _coordinator=coordinator
    )
    assert await seek_committed(consumer, {}) == {SOURCE: None}
    assert asked == [True]


def test_a_flow_that_must_stand_still_drops_its_records_when_it_is_resumed() -> None:
    """They were queued while the process may have lost its partitions."""
    flow = FlowControl()
    queue: ThrowableQueue = ThrowableQueue(flow_control=flow, clear_on_resume=True)
    flow.resume()
    assert flow.is_active()
    queue.put_nowait("record")
    flow.resume()
    assert queue.qsize() == 1
    flow.must_skip_records = lambda: True
    flow.resume()
    assert (queue.qsize(), flow.is_active()) == (0, False)


def test_a_record_s_end_asks_for_a_commit_once_all_sources_of_its_id_are_done() -> None:
    """Two topics share the transaction; during a commit none is asked for."""
    consumer: Any = Consumer()
    orders, payments = TP("orders", 0), TP("payments", 0)
    transactions, boundaries = consumer.transactions, consumer.boundaries
    transactions.id_of = lambda tp: "both"
    transactions.settling.add("both")
    transactions.sent["both"] = {orders: 4, payments: 9}
    message = consumer.begin(payments, 9)
    soon: list[Any] = []

    def add_future(commit: Any) -> Any:
        commit.close()
        soon.append("commit")
        return SimpleNamespace(done=lambda: False)

    consumer.add_future = add_future
    boundaries.record_ended(orders)
    assert soon == []
    consumer.end(message)
    boundaries._open = {}
    boundaries.record_ended(payments)
    assert soon == []
    boundaries._open = None
    boundaries.record_ended(payments)
    assert soon == ["commit"]


def test_a_closing_window_commits_what_was_committed_again() -> None:
    """Its record may be far before the committed offset, which never goes back."""
    consumer: Any = Consumer()
    orders = TP("orders", 0)
    consumer._committed_offset[orders] = 9
    assert consumer.boundaries._offsets_of([orders], {orders: 4}) == {orders: 9}
    assert consumer.boundaries._offsets_of([orders], {orders: 9}) == {}
    assert consumer.boundaries._offsets_of([orders], {}) == {}
