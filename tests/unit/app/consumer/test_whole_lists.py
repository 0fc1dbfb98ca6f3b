"""Each of several records, partitions, topics and waits counts, wherever it is in its list."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.structs import TopicPartition
from faust.types import TP

from faust_assigner.app.consumer import back_pressure, whole_records
from faust_assigner.app.consumer.back_pressure import LONGEST_S
from faust_assigner.app.consumer.committed_offsets import committed
from faust_assigner.app.consumer.fetcher import change_assignment
from faust_assigner.app.consumer.fetching import Wanted, _fetch_fairly
from faust_assigner.app.consumer.waits import Waits
from tests.unit.app.consumer import test_stream_take as streams
from tests.unit.app.consumer.test_back_pressure import Held
from tests.unit.app.consumer.test_commits import SOURCE
from tests.unit.app.consumer.test_commits import Consumer as Committing
from tests.unit.app.consumer.test_committed_offsets import Coordinator
from tests.unit.app.consumer.test_fetcher import A, B, C, Turns, corrupt
from tests.unit.app.consumer.test_whole_records import ID, IDS, ORDERS, PAYMENTS, Consumer


async def test_the_time_of_a_commit_is_a_part_of_the_time_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record is held back for a second in all, whatever the commit took."""
    held = Held(monkeypatch, 60.0)
    held.consumer.in_transaction = True

    async def commit() -> None:
        held.now += 0.75

    monkeypatch.setattr(held.consumer, "commit", commit)
    assert await held.deliver() == pytest.approx(LONGEST_S, abs=2 * back_pressure.LOOK_S)


async def test_a_batch_has_the_values_that_the_processors_made() -> None:
    """The value of the event is the record's own."""
    stream = streams.Stream()
    batches = stream.take(1, None)
    stream.current_event = streams.Event("raw")
    assert stream._buffer is not None
    assert await stream._buffer.collect("processed") == "processed"
    assert await streams.next_of(batches) == ["processed"]


async def test_a_commit_may_wait_for_any_record_of_an_unfinished_batch() -> None:
    """The transactions are asked about all of its records."""
    stream, asked = streams.Stream(), list[Any]()
    stream.consumer.transactions.held.waits_for = lambda events: bool(asked.append(list(events)))
    events = [streams.Event(number) for number in range(3)]
    assert stream._is_waited_for(events) is False
    assert asked == [events]


async def test_a_full_batch_of_faust_is_handed_out_by_a_stream_that_stops() -> None:
    """The event was set before the stop, so the wait was not in vain."""
    stream, full = streams.Stream(), asyncio.Event()
    full.set()
    stream.app.in_transaction, stream.should_stop = False, True
    assert await stream.wait_for_stopped(asyncio.Event(), full) is False


@pytest.mark.parametrize("order", [(4, 7, 9), (9, 7, 4), (7, 9, 4)])
def test_the_first_of_many_records_under_way_is_the_bound(order: tuple[int, ...]) -> None:
    """Only records of the partition count, and of the wanted partitions."""
    consumer, other = Committing(), TP("orders", 3)
    consumer._acked = {SOURCE: [3, 5, 8], other: [1]}
    consumer._unacked_messages = [
        SimpleNamespace(tp=tp, offset=offset, acked=False, generation_id=1)
        for offset in order
        for tp in (SOURCE, other)
    ]
    assert consumer._filter_committable_offsets(iter([SOURCE])) == {SOURCE: 4}
    assert {tp: sorted(acked) for tp, acked in consumer._acked.items()} == {
        SOURCE: [3, 5, 8],
        other: [1],
    }


async def test_an_older_broker_is_asked_for_each_topic() -> None:
    """The partitions of a topic are together, and in order."""
    coordinator = Coordinator()
    coordinator.refusals = [errors.IncompatibleBrokerVersion("no version 7")]
    tps = [TopicPartition(*tp) for tp in (("b", 1), ("a", 3), ("c", 0), ("b", 0), ("a", 2))]
    await committed(coordinator, tps)
    assert coordinator.requests[1]._partitions == [("a", [2, 3]), ("b", [0, 1]), ("c", [0])]
    newer = coordinator.requests[0].build(lambda *fields: fields)
    assert newer == ("g", [("a", [2, 3], {}), ("b", [0, 1], {}), ("c", [0], {})], True, {})


async def test_the_fetcher_is_woken_after_the_check_and_not_within_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka removes the ended fetch one step of the loop later."""
    turns, woken = Turns(A), list[object]()
    turns.fetcher.wake = lambda: woken.append(None)
    turns.fetcher._in_flight = {0}
    turns.asks(monkeypatch)
    assert woken == []
    await asyncio.sleep(0)
    assert woken == [None]


async def test_a_fetch_that_is_cancelled_in_its_pause_returns_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka's fetches never end as cancelled."""
    turns, begun = Turns(A), asyncio.Event()

    async def fetch(*_: Any) -> bool:
        begun.set()
        return False

    monkeypatch.setattr(Fetcher, "_proc_fetch_request", fetch)
    request = SimpleNamespace(topics=[])
    task = asyncio.ensure_future(turns.fetcher._proc_fetch_request(turns.assignment, 1, request))
    await begun.wait()
    await asyncio.sleep(0)
    task.cancel()
    assert await task is False


async def test_a_turn_takes_nothing_before_the_new_assignment_is_there() -> None:
    """The records may be of a partition that goes."""
    turns, acts = Turns(A), list[Any]()
    turns.fetched(A, 3)

    async def wait() -> None:
        acts.append(turns.states[A].position)
        turns.fetcher._records.clear()

    turns.fetcher._subscriptions.reassignment_in_progress = True
    turns.fetcher._subscriptions.wait_for_assignment = wait
    assert await turns.take() == {}
    assert acts == [0]


async def test_only_the_partition_that_failed_is_set_aside_each_time_it_fails() -> None:
    """The first in the queue is not asked for; each failure counts."""
    turns = Turns(A, B, C)
    turns.fetched(A, 3)
    for _ in range(3):
        corrupt(turns, B)
        assert await turns.take(None, {B, C}) == {}
    assert turns.fetcher.aside.partitions() == [B]
    assert turns.fetcher.counters == {"unreadable_partitions": 3}
    assert list(turns.fetcher._records) == [A]


async def test_each_partition_that_goes_loses_its_state_and_its_records() -> None:
    """New partitions get a state of their own; the kept one keeps its state."""
    acts = list[Any]()
    states = {
        tp: SimpleNamespace(_committed_futs=[], resume=lambda tp=tp: acts.append(tp))
        for tp in (A, B, C)
    }
    own: Any = SimpleNamespace(tps=frozenset(states), _tp_state=dict(states))
    fetcher: Any = SimpleNamespace(
        _records=dict.fromkeys(states, "records"), wake=lambda: acts.append("wait")
    )
    subscriptions = SimpleNamespace(_notify_assignment_waiters=lambda: acts.append("waiters"))
    new = TopicPartition("u", 4)
    change_assignment(own, [B, new], subscriptions, fetcher)
    assert sorted(acts[:2]) == [A, C]
    assert acts[2:] == ["waiters", "wait"]
    assert fetcher._records == {B: "records"}
    assert own._topic_partitions == frozenset({B, new})
    assert own._tp_state[B] is states[B]
    assert own._tp_state.keys() == {A, B, C, new}
    assert own._tp_state[A] is not states[A]
    assert own._tp_state[C] is not states[C]


async def test_a_recovery_fetches_by_the_live_view_too() -> None:
    """Faust may empty the set during the fetch; aiokafka takes an empty set for all partitions."""
    active, seen = {TP("log", 0)}, list[Any]()

    async def fetch(wanted: Any, **limits: Any) -> Any:
        active.clear()
        seen.append((type(wanted), bool(wanted), list(wanted), limits))
        return {}

    app = SimpleNamespace(in_recovery=True)
    assert await _fetch_fairly(app, None, fetch, active, 0.5, 7) == {}
    assert seen == [(Wanted, True, [], {"timeout": 0.5, "max_records": 7})]


def test_each_wait_that_is_due_has_its_line() -> None:
    """The lines come in the order in which the waits began."""
    waits = Waits()
    with (
        waits.during("first", "a", 10.0),
        waits.during("second", "b", 90.0),
        waits.during("third", "c", 8.0, lambda: "why"),
    ):
        assert waits.advance(5.0, group_answers=True) == [
            "first has waited for 5 s for a; this worker ends when the wait has taken 10 s",
            "third has waited for 5 s for c (why); this worker ends when the wait has taken 8 s",
        ]


def test_each_source_is_compared_with_its_own_committed_offset() -> None:
    """Only a source that sent again after its commit has no acknowledged record to wait for."""
    made = Consumer()
    made.transactions.sent = {ID: {ORDERS: 5}, "shop-2-0": {PAYMENTS: 3}}  # type: ignore[assignment]
    made._committed_offset.update({ORDERS: 5, PAYMENTS: 4})
    assert made.boundaries._sources_without_acks() == [PAYMENTS]
    made._committed_offset.update({ORDERS: 6, PAYMENTS: None})
    assert made.boundaries._sources_without_acks() == [ORDERS]


async def test_only_records_of_its_own_id_delay_the_commit_that_follows() -> None:
    """A different transaction has its own moment between two records."""
    made = Consumer()
    made.begin(PAYMENTS, 9)
    made.transactions.sent["shop-2-0"][PAYMENTS] = 9
    made.transactions.settling |= {ID, "shop-2-0"}
    made.boundaries.record_ended(PAYMENTS)
    assert made.boundaries._soon is None
    made.boundaries.record_ended(ORDERS)
    await made.boundaries._soon
    assert made.acts == ["waited", "commit soon"]


def test_a_gap_in_the_acks_closes_nothing_and_keeps_all_books() -> None:
    """Held records pass, and the acks of each partition are there for the next commit."""
    made = Consumer()
    made._acked.update({ORDERS: [3], PAYMENTS: [8, 6]})
    made._acked_index.update({ORDERS: {3}, PAYMENTS: {6, 8}})
    made._gap.update({ORDERS: [5], PAYMENTS: [7]})
    made.transactions.sent[ID] = {ORDERS: 7, PAYMENTS: 2}
    made.transactions.settling.add(ID)
    made.boundaries._open, made.boundaries._cut, made.boundaries._late_since = (
        {ID: [ORDERS, PAYMENTS]},
        {},
        {ID: 3.0},
    )
    made.boundaries.close_settled(ORDERS)
    assert (
        made.boundaries._open,
        made.boundaries._cut,
        made.boundaries._late_since,
        made.acts,
    ) == ({}, {}, {}, [])
    assert made.transactions.settling == set()
    assert made._acked == {ORDERS: [3], PAYMENTS: [8, 6]}
    assert made._acked_index == {ORDERS: {3}, PAYMENTS: {6, 8}}
    assert made._gap == {ORDERS: [5], PAYMENTS: [7]}


async def test_a_stream_that_has_stopped_hands_out_no_further_batch() -> None:
    """The next owner reads these records."""
    stream = streams.Stream()
    batches = stream.take(1, None)
    await stream.read(streams.Event(1))
    assert await streams.next_of(batches) == [1]
    assert stream._buffer is not None
    stream.should_stop = True
    stream._buffer.batches.append([])
    with pytest.raises(StopAsyncIteration):
        await streams.next_of(batches)
    assert stream.acked == [1]


async def test_new_records_of_each_id_that_is_late_are_held_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An id that can be closed is closed and not held."""
    monkeypatch.setattr(whole_records, "PATIENCE_S", 0.001)
    made = Consumer()
    for tp, offset in ((ORDERS, 4), (PAYMENTS, 7)):
        made.begin(tp, offset)
        made.transactions.sent[IDS[tp]][tp] = offset
    made.boundaries._open, made.boundaries._cut = {IDS[tp]: [tp] for tp in (ORDERS, PAYMENTS)}, {}
    await made.boundaries._close_all()
    assert made.transactions.settling == set(IDS.values())
    assert (made.boundaries._open, made.boundaries._cut, made.boundaries._late_since.keys()) == (
        None,
        {},
        set(IDS.values()),
    )


async def test_a_server_error_without_a_name_is_not_taken_for_another() -> None:
    """Kafka's code -1 is an unknown error; 1 is an offset out of range."""
    coordinator = Coordinator()
    coordinator.errors = {0: -1}
    with pytest.raises(errors.UnknownError):
        await committed(coordinator, [TopicPartition("orders", 0)])
    assert coordinator.dead == 0
