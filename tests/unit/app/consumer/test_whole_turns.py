"""Batches, turns of the fetcher, waits and commits, each compared as a whole."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from faust_assigner.app.consumer import fetching, produced_topics
from faust_assigner.app.consumer.fetching import _committed_while_assigned, seek_committed
from faust_assigner.app.consumer.live_views import PartitionSubset
from faust_assigner.app.consumer.waits import COMMIT, HAND_OVER, REVOCATION, Waits
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from faust_assigner.app.retry import SAY_EVERY_S
from tests.unit.app.consumer.test_fetcher import A as T0
from tests.unit.app.consumer.test_fetcher import B as T1
from tests.unit.app.consumer.test_fetcher import C as T2
from tests.unit.app.consumer.test_fetcher import Seeking, Turns, corrupt
from tests.unit.app.consumer.test_stream_take import A, B, Event, Stream, next_of
from tests.unit.app.consumer.test_whole_records import ID, ORDERS, PAYMENTS, Consumer

C = TP("orders", 2)


async def test_a_full_buffer_passes_the_value_on_when_the_stream_stops() -> None:
    """The processors after ``take`` get the record's value, whether the batch has it or not."""
    stream = Stream()
    stream.take(1, None)
    basket: Any = stream._buffer
    stream.current_event = Event("first")
    assert await basket.collect("first") == "first"
    stream.current_event, stream.should_stop = Event("second"), True
    assert await basket.collect("second") == "second"
    assert [taken.value for taken in basket.filling] == ["first"]


async def test_a_stream_starts_one_reader_and_closes_the_batches_with_itself() -> None:
    """A second ``take`` of an agent uses the same buffer, and the same reader while the reader runs."""
    stream = Stream()
    first = stream.take(3, None)
    second = stream.noack_take(5, None)
    assert (stream.readers, stream._active_agens) == (1, {first, second})
    assert (stream._buffer.most, len(stream._processors)) == (5, 3)  # type: ignore[union-attr]
    assert not stream.enable_acks


async def test_records_of_any_other_generation_are_left_out_of_a_batch() -> None:
    """Records of an earlier and of a later generation are read again by their owner."""
    stream = Stream()
    batches = stream.take(9, 0.01)
    await stream.read(*(Event(g, generation=g) for g in (2, 3, 4)))
    assert await next_of(batches) == [3]


async def test_batches_of_partitions_come_in_the_order_of_their_first_records() -> None:
    """The wait for the commit concerns the first record of the batch that is handed out next."""
    stream = Stream()
    batches = stream.take(6, None)
    events = [Event(1, B), Event(2, A), Event(3, B), Event(4, C), Event(5, A), Event(6, B)]
    await stream.read(*events)
    assert [await next_of(batches) for _ in range(3)] == [[1, 3, 6], [2, 5], [4]]
    assert stream.held == [1, 2, 4]
    assert stream.acked == [1, 3, 6, 2, 5]


async def test_the_time_for_a_batch_may_be_a_timedelta() -> None:
    """Faust's own ``take`` accepts numbers and timedeltas."""
    stream = Stream()
    batches = stream.take(2, timedelta(seconds=0.001))
    await stream.read(Event(1))
    assert await next_of(batches) == [1]


@pytest.mark.parametrize(
    ("unacked", "leaving", "expected"),
    [((A, B), {B}, True), ((A, B), {C}, False), ((), {A}, False), ((B,), {A, B}, True)],
)
async def test_one_unfinished_record_of_a_leaving_partition_ends_the_wait(
    unacked: tuple[TP, ...], leaving: set[TP], expected: bool
) -> None:
    """Unfinished records of kept partitions do not matter."""
    stream = Stream()
    stream.consumer._unacked_messages = [SimpleNamespace(tp=tp, acked=False) for tp in unacked]
    stream.consumer.leaving = frozenset(leaving)
    assert stream._holds_up_a_round() is expected
    for record in stream.consumer._unacked_messages:
        record.acked = True  # Faust forgets it only at the next commit
    assert not stream._holds_up_a_round()


def test_a_subset_of_no_partition_is_empty() -> None:
    """An empty selection is a selection; the first argument's empty set means all, as in aiokafka."""
    assert [number for number in range(5) if number in PartitionSubset({1, 2}, only=())] == []
    assert [number for number in range(5) if number in PartitionSubset(set[int](), only={3})] == [3]


async def test_a_turn_of_two_gives_the_first_to_what_keeps_up_wherever_it_queues() -> None:
    """The queue's order decides among backlogs only."""
    turns = Turns(T0, T1, T2)
    await turns.keeps_up(T0)
    for tp in (T1, T2, T0):
        turns.fetched(tp, 5)
    assert await turns.take(2) == {0: 1, 1: 1}


async def test_a_partition_that_moved_by_one_record_is_put_back_too() -> None:
    """The failed turn returns no record, so each position is that of before the turn."""
    turns = Turns(T0, T1)
    for tp in turns.states:
        turns.states[tp] = Seeking()
    turns.assignment.state_value = turns.states.get
    turns.fetcher._subscriptions.is_assigned = turns.states.get
    turns.fetched(T0, 1)
    corrupt(turns, T1)
    assert await turns.take(None) == {}
    assert [state.position for state in turns.states.values()] == [0, 0]
    assert turns.fetcher.aside.partitions() == [T1]
    assert turns.fetcher.counters == {"unreadable_partitions": 1}


async def test_a_look_up_that_ends_leaves_the_others_under_way() -> None:
    """Each state has its own task."""
    turns, gates = Turns(T0, T1), {tp: asyncio.Event() for tp in (T0, T1)}

    async def update(_: Any, node: Any, tps: Any) -> None:
        await gates[tps[0]].wait()
        turns.states[tps[0]].has_valid_position = True

    for state in turns.states.values():
        state.has_valid_position = False
    turns.fetcher._update_fetch_positions = update
    turns.fetcher._look_up(turns.assignment, [T0, T1])
    gates[T0].set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert turns.fetcher._looked_up.keys() == {turns.states[T1]}
    gates[T1].set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert turns.fetcher._looked_up == {}


async def test_offsets_are_fetched_by_our_request_and_never_of_partitions_that_came_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A partition that arrives during the request has a recovery of its own."""
    monkeypatch.setattr(fetching, "ASSIGNED_LOOK_S", 0.001)
    a, b, c = (TP("orders", number) for number in range(3))
    assigned, asked = {a, b}, list[list[TP]]()

    async def committed(tps: list[TP]) -> dict[TP, Any]:
        asked.append(list(tps))
        if b in tps:
            assigned.symmetric_difference_update({b, c})
            await asyncio.sleep(60.0)
        return {tp: SimpleNamespace(offset=5) for tp in tps}

    coordinator = SimpleNamespace(fetch_committed_offsets=committed)
    consumer: Any = SimpleNamespace(
        assignment=lambda: set(assigned), seek=lambda *_: None, _coordinator=coordinator
    )
    assert (await _committed_while_assigned(consumer, [a, b])).keys() == {a}
    assert asked == [[a, b], [a]]
    assert await _committed_while_assigned(consumer, []) == {}
    await seek_committed(consumer, {}, [a])
    assert hasattr(coordinator, "_do_fetch_commit_offsets")


async def test_a_fetch_that_waited_for_partitions_goes_on_with_those_that_came() -> None:
    """Records of resumed partitions are fetched at once, with the same time limit."""

    class Reader(driver.Consumer):  # type: ignore[misc]
        async def _wait_next_records(self, timeout: float) -> Any:
            return timeout, set(self._active_partitions)

        async def wait(self, event: Any, timeout: float | None = None) -> None:
            self._active_partitions = {A}

    class Waiting(RepairedConsumer, Reader):  # type: ignore[misc]
        """The repaired consumer over the stand-in."""

        def __init__(self) -> None:
            self.app: Any = SimpleNamespace(client_only=False)
            self._active_partitions, self.flow_active = set[TP](), True
            self._resumed = asyncio.Event()

    assert await Waiting()._wait_next_records(0.75) == (0.75, {A})


async def test_an_error_that_makes_aiokafka_retry_says_why() -> None:
    """The text and the cause are those of the first error."""
    error = KafkaConnectionError("the connection was lost")

    async def look_up(*whose: object) -> int:
        raise error

    with pytest.raises(NodeNotReadyError, match="the connection was lost") as raised:
        await produced_topics._look_up(look_up, 1, "id")
    assert raised.value.__cause__ is error


def test_lines_of_a_wait_are_a_minute_after_the_last_line_whenever_that_came() -> None:
    """The watchdog may check late; the next line is counted from the line, not from its due time."""
    waits = Waits()
    with waits.during(COMMIT, "an answer", 10.0):
        assert len(waits.advance(9.0, group_answers=False)) == 1
        assert waits.advance(SAY_EVERY_S - 2.0, group_answers=False) == []
        assert waits.advance(1.5, group_answers=False) == []
        assert len(waits.advance(0.5, group_answers=False)) == 1


def test_the_age_is_that_of_the_oldest_wait_of_any_of_the_names() -> None:
    """The second name counts as the first does; a wait of a different name does not."""
    waits = Waits()
    with waits.during("A rebalance", "x", 90.0):
        waits.advance(4.0, group_answers=True)
        with waits.during(f"{REVOCATION} of 2 partitions", "x", 90.0):
            waits.advance(2.0, group_answers=False)
            with waits.during(HAND_OVER, "x", 90.0):
                waits.advance(1.0, group_answers=True)
                assert waits.age_s(HAND_OVER, REVOCATION) == 3.0
                assert waits.age_s(COMMIT, HAND_OVER) == 1.0
                assert waits.age_s(COMMIT) is None
                assert [wait.counted_s for wait in waits.under_way()] == [5.0, 1.0, 1.0]


async def test_the_end_of_a_record_during_a_commit_asks_for_no_further_commit() -> None:
    """The commit under way waits for this id itself."""
    made = Consumer()
    made.transactions.settling.add(ID)
    made.boundaries._open = {"shop-2-0": [PAYMENTS]}
    made.boundaries.record_ended(ORDERS)
    assert made.boundaries._soon is None
    made.boundaries._open = None
    made.boundaries.record_ended(ORDERS)
    await made.boundaries._soon
    assert made.acts == ["waited", "commit soon"]


def test_an_acknowledged_record_delays_no_commit() -> None:
    """Faust removes acknowledged records from its list a little later."""
    made = Consumer()
    first, second = made.begin(ORDERS, 4), made.begin(ORDERS, 6)
    assert not made.boundaries._is_settled({ORDERS: 4})
    first.acked = True
    assert made.boundaries._is_settled({ORDERS: 4, PAYMENTS: 9})
    assert made.boundaries._is_settled({PAYMENTS: 9})
    assert not made.boundaries._is_settled({ORDERS: 6})
    second.acked = True
    assert made.boundaries._is_settled({ORDERS: 6})
