"""The delivery of fetched records: what is wanted, what is in hand and what is dropped; the lanes of queues.

Records are taken from all partitions in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.consumer.delivery import Delivery, Lanes, drop, install_lanes

A, B, C, D = TP("orders", 0), TP("orders", 1), TP("log", 1), TP("bills", 3)


def consumer_of(
    active: set[TP], *, buffered: Any = (), paused: Any = (), client_only: bool = False
) -> Any:
    """Return a consumer with these sets of partitions."""
    return SimpleNamespace(
        app=SimpleNamespace(client_only=client_only, rebalancing_count=0, rebalancing=False),
        _active_partitions=active,
        _buffered_partitions=set(buffered),
        _paused_partitions=set(paused),
    )


@pytest.mark.parametrize("client_only", [False, True])
def test_a_partition_is_fetched_while_it_is_active_or_buffered_and_not_paused(
    client_only: bool,
) -> None:
    """A client without a group has all partitions; a pause counts there as well."""
    consumer = consumer_of({A}, buffered={B, C}, paused={C, A}, client_only=client_only)
    delivery = Delivery(consumer)
    assert [delivery.is_wanted(tp) for tp in (A, B, C, D)] == [False, True, False, client_only]
    consumer._paused_partitions.clear()
    assert [delivery.is_wanted(tp) for tp in (A, B, C, D)] == [True, True, True, client_only]
    consumer._active_partitions, consumer._buffered_partitions = {D}, set()
    assert delivery.is_wanted(D)
    assert delivery.is_wanted(A) is client_only


def test_only_records_of_flowing_partitions_are_taken_and_can_be_put_down() -> None:
    """A paused partition that is still active keeps its records; the batches are the same lists."""
    delivery = Delivery(consumer_of({A, C}, buffered={B}, paused={C}))
    batches = {A: [1, 2], B: [3], C: [4, 5], D: [6]}
    taken = delivery.take(batches)
    assert taken == {A: [1, 2], B: [3], C: [4, 5]}
    delivery.drop_fetched([A, C, D])
    assert taken == {A: [], B: [3], C: []}
    assert batches == {A: [], B: [3], C: [], D: [6]}
    later = delivery.take({A: [7], D: [8]})
    delivery.drop_fetched({B, D})
    assert (taken[B], later) == ([3], {A: [7]}), "only the last batch is in hand"


async def test_a_record_is_being_handed_out_until_its_stream_has_it() -> None:
    """Whatever the delivery ends with; a record of a partition that went is not delivered."""
    consumer = consumer_of({A, B})
    delivery, seen = Delivery(consumer), list[Any]()
    gate = asyncio.Event()

    async def deliver(message: Any) -> str:
        seen.append((message.offset, delivery.is_handing_out({A}), delivery.is_handing_out([B])))
        await gate.wait()
        if message.offset == 5:
            raise ValueError("a stream's")
        return "delivered"

    def record(tp: TP, offset: int) -> Any:
        return SimpleNamespace(tp=tp, offset=offset)

    assert not delivery.is_handing_out({A, B})
    waiting = asyncio.ensure_future(delivery.hand_out(deliver, record(A, 4)))
    await asyncio.sleep(0)
    assert delivery.is_handing_out({A, C})
    assert not delivery.is_handing_out({B})
    assert not delivery.is_handing_out(())
    gate.set()
    assert await waiting == "delivered"
    assert not delivery.is_handing_out({A, B})
    with pytest.raises(ValueError, match="a stream's"):
        await delivery.hand_out(deliver, record(B, 5))
    assert not delivery.is_handing_out({A, B})
    gate.clear()
    waiting = asyncio.ensure_future(delivery.hand_out(deliver, record(B, 6)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not delivery.is_handing_out({A, B})
    consumer._active_partitions = {A}
    assert await delivery.hand_out(deliver, record(B, 7)) is None
    assert seen == [(4, True, False), (5, False, True), (6, False, True)]


def test_missing_records_are_reported_of_partitions_that_were_wanted_twice() -> None:
    """A pause, and a partition that is new, begin anew; other partitions go on."""
    consumer = consumer_of({A, B})
    delivery, seen = Delivery(consumer), list[Any]()

    def look(now: float, *tps: TP) -> None:
        for tp in tps:
            delivery.verify(lambda *said: seen.append(said), now, tp)

    look(1.0, A, B)
    look(2.0, A)
    delivery.skip_next_check({A, D})
    look(3.0, A, B)
    look(4.0, A)
    consumer._paused_partitions = {B}
    look(5.0, A, B)
    consumer._paused_partitions = set()
    look(6.0, A, B)
    look(7.0, B)
    assert seen == [(2.0, A), (3.0, B), (4.0, A), (5.0, A), (6.0, A), (7.0, B)]


def test_no_missing_records_are_reported_between_the_start_or_end_of_a_round_and_the_next_check() -> (
    None
):
    """Faust's monitor forgets all records then, so a partition with records would be reported."""
    consumer = consumer_of({A})
    delivery, seen = Delivery(consumer), list[float]()
    rounds = [(1, True), (1, True), (1, False), (1, False), (2, True), (2, False), (2, False)]
    for now, (consumer.app.rebalancing_count, consumer.app.rebalancing) in enumerate(rounds):
        delivery.verify(lambda at, _: seen.append(at), float(now), A)
    assert seen == [1.0, 3.0, 6.0]


def test_the_time_without_records_and_commits_begins_at_the_check_that_is_skipped() -> None:
    """Faust reported a partition whose first record after a round took longer than some seconds."""
    consumer = consumer_of({A})
    delivery, records, commits = Delivery(consumer), {A: 1.0, B: 2.0}, dict[TP, float]()
    seen = list[tuple[float, float]]()
    for now, rounds in ((10.0, 0), (20.0, 0), (30.0, 1), (40.0, 1)):
        consumer.app.rebalancing_count = rounds
        delivery.verify(
            lambda *_: seen.append((records[A], commits[A])),
            now,
            A,
            counted_from=(records, commits),
        )
    assert seen == [(10.0, 10.0), (30.0, 30.0)]
    assert (records[B], B in commits) == (2.0, False)


def test_a_commit_in_a_transaction_is_noted_at_the_next_check() -> None:
    """Faust reported healthy partitions as not committed, from five minutes after the start on."""
    consumer: Any = SimpleNamespace(_committed_offset={A: None})
    delivery, committed_at = Delivery(consumer), dict[Any, float]()
    for now, offset in ((1.0, None), (2.0, 5), (3.0, 5), (4.0, 6), (5.0, 6)):
        consumer._committed_offset[A] = offset
        for tp in (A, B):
            delivery.note_commit(now, tp, committed_at)
        assert committed_at == ({} if now < 2 else {A: 2.0 if now < 4 else 4.0})


class Queue(asyncio.Queue[Any]):
    """Stand in for mode's queue; note the ends of its pressure."""

    def __init__(self, maxsize: int) -> None:
        super().__init__(maxsize)
        self.drops: list[int] = []

    def maybe_endorse_pressure_drop(self) -> None:
        """Note the number of items at the call."""
        self.drops.append(self.qsize())


def event(tp: TP, offset: int) -> Any:
    """Return an event of a partition."""
    return SimpleNamespace(message=SimpleNamespace(tp=tp), offset=offset)


async def test_a_queue_loses_the_events_of_some_partitions_and_wakes_who_waits_for_room() -> None:
    """The others stay in order, also items that are no records; each free place wakes a putter."""
    queue = Queue(5)
    signal = SimpleNamespace(message=None)
    kept = [event(B, 1), "a value", signal]
    for item in (event(A, 0), kept[0], event(C, 2), kept[1], kept[2]):
        queue.put_nowait(item)
    assert isinstance(queue._queue, deque)  # type: ignore[attr-defined]
    putters = [asyncio.ensure_future(queue.put(number)) for number in range(3)]
    await asyncio.sleep(0)
    drop(queue, {D, TP("orders", 5)})  # type: ignore[arg-type]
    assert (queue.qsize(), queue.drops) == (5, [])
    drop(queue, [A, C])  # type: ignore[arg-type]
    assert list(queue._queue) == kept  # type: ignore[attr-defined]
    assert queue.drops == [3]
    for _ in range(3):
        await asyncio.sleep(0)
    assert [putter.done() for putter in putters] == [True, True, False]
    assert [queue.get_nowait() for _ in range(5)] == [*kept, 0, 1]
    await asyncio.gather(*putters)
    drop(queue, {A})  # type: ignore[arg-type]
    assert queue.get_nowait() == 2
    drop(queue, {A})  # type: ignore[arg-type]
    assert queue.drops == [3]


def record(partition: int, offset: int) -> Any:
    """Return an item of a stream's queue."""
    return SimpleNamespace(message=SimpleNamespace(tp=("orders", partition), offset=offset))


def taken(lanes: Lanes) -> list[tuple[int, int]]:
    """Return all items in their order."""
    items = [lanes.popleft() for _ in range(len(lanes))]
    return [(item.message.tp[1], item.message.offset) for item in items]


def test_a_backlog_does_not_queue_ahead_of_others() -> None:
    """The single record of a kept partition comes second, before the rest of the backlog."""
    lanes = Lanes(record(0, offset) for offset in range(100))
    lanes.append(record(1, 7))
    assert taken(lanes)[:3] == [(0, 0), (1, 7), (0, 1)]


def test_within_a_partition_the_order_is_kept() -> None:
    """The order holds while lanes appear and empty."""
    lanes, found = Lanes(), []
    for offset in range(50):
        for partition in (0, 1, 2):
            lanes.append(record(partition, offset))
        if offset % 3:
            found.append(lanes.popleft())
    order = [(item.message.tp[1], item.message.offset) for item in found] + taken(lanes)
    assert len(order) == 150
    for partition in (0, 1, 2):
        assert [offset for p, offset in order if p == partition] == list(range(50))


def test_it_is_what_a_queue_needs() -> None:
    """Lanes support length, truth, iteration and clear; plain values queue as well."""
    lanes = Lanes([record(0, 0), "a value"])
    assert (len(lanes), bool(lanes), len(list(lanes))) == (2, True, 2)
    lanes.clear()
    assert (len(lanes), bool(lanes), list(lanes)) == (0, False, [])
    with pytest.raises(IndexError):
        lanes.popleft()


def test_what_is_no_record_has_a_turn_as_a_partition_has() -> None:
    """Plain values keep their order; the length follows each step; an emptied lane returns last."""
    lanes = Lanes([record(0, 1), record(0, 2), "a", "b", record(1, 3)])
    assert [getattr(one, "message", one) for one in lanes] == [
        *(one.message for one in (lanes._lanes[("orders", 0)])),
        "a",
        "b",
        lanes._lanes[("orders", 1)][0].message,
    ]
    found = []
    for length in (4, 3, 2):
        item = lanes.popleft()
        found.append(item if isinstance(item, str) else item.message.offset)
        assert len(lanes) == length
    assert found == [1, "a", 3]
    lanes.extend([record(1, 4), "c"])
    assert len(lanes) == 4
    rest = [lanes.popleft() for _ in range(4)]
    assert [one if isinstance(one, str) else one.message.offset for one in rest] == [2, "b", 4, "c"]
    with pytest.raises(IndexError):
        lanes.popleft()
    assert len(lanes) == 0


def test_queues_that_an_app_makes_have_lanes_and_keep_their_arguments() -> None:
    """Items already in the queue move into lanes."""
    made: list[Any] = []

    def make(*args: Any, **kwargs: Any) -> Any:
        made.append((args, kwargs))
        return SimpleNamespace(_queue=[record(0, 1), record(0, 2), record(1, 3)])

    app = SimpleNamespace(FlowControlQueue=make)
    install_lanes(app)
    queue = app.FlowControlQueue(7, flow_control="flow")
    assert made == [((7,), {"flow_control": "flow"})]
    assert taken(queue._queue) == [(0, 1), (1, 3), (0, 2)]


@pytest.mark.parametrize("held", [None, "commits"])
def test_a_record_that_a_commit_waits_for_is_taken_first(held: str | None) -> None:
    """Without a consumer no commit waits, and the lanes are served in turn."""
    records = SimpleNamespace(
        first_waited_for=lambda items: next((one for one in items if one.message.offset == 9), None)
    )
    consumer = None if held is None else SimpleNamespace(transactions=SimpleNamespace(held=records))
    app = SimpleNamespace(FlowControlQueue=lambda: SimpleNamespace(_queue=[]), _consumer=consumer)
    install_lanes(app, is_exact=True)
    queue = app.FlowControlQueue()._queue
    queue.extend([record(0, 1), record(0, 2), record(1, 9), record(1, 10)])
    expected = (
        [(0, 1), (1, 9), (0, 2), (1, 10)] if held is None else [(1, 9), (0, 1), (1, 10), (0, 2)]
    )
    assert taken(queue) == expected
