"""Records are taken from all partitions in turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.consumer.lanes import Lanes, install


def event(partition: int, offset: int) -> Any:
    """Return an item of a stream's queue."""
    return SimpleNamespace(message=SimpleNamespace(tp=("orders", partition), offset=offset))


def taken(lanes: Lanes) -> list[tuple[int, int]]:
    """Return all items in their order."""
    items = [lanes.popleft() for _ in range(len(lanes))]
    return [(item.message.tp[1], item.message.offset) for item in items]


def test_a_backlog_does_not_queue_ahead_of_others() -> None:
    """The single record of a kept partition comes second, before the rest of the backlog."""
    lanes = Lanes(event(0, offset) for offset in range(100))
    lanes.append(event(1, 7))
    assert taken(lanes)[:3] == [(0, 0), (1, 7), (0, 1)]


def test_within_a_partition_the_order_is_kept() -> None:
    """The order holds while lanes appear and empty."""
    lanes, found = Lanes(), []
    for offset in range(50):
        for partition in (0, 1, 2):
            lanes.append(event(partition, offset))
        if offset % 3:
            found.append(lanes.popleft())
    order = [(item.message.tp[1], item.message.offset) for item in found] + taken(lanes)
    assert len(order) == 150
    for partition in (0, 1, 2):
        assert [offset for p, offset in order if p == partition] == list(range(50))


def test_it_is_what_a_queue_needs() -> None:
    """Lanes support length, truth, iteration and clear; plain values queue as well."""
    lanes = Lanes([event(0, 0), "a value"])
    assert (len(lanes), bool(lanes), len(list(lanes))) == (2, True, 2)
    lanes.clear()
    assert (len(lanes), bool(lanes), list(lanes)) == (0, False, [])
    with pytest.raises(IndexError):
        lanes.popleft()


def test_what_is_no_record_has_a_turn_as_a_partition_has() -> None:
    """Plain values keep their order; the length follows each step; an emptied lane returns last."""
    lanes = Lanes([event(0, 1), event(0, 2), "a", "b", event(1, 3)])
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
    lanes.extend([event(1, 4), "c"])
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
        return SimpleNamespace(_queue=[event(0, 1), event(0, 2), event(1, 3)])

    app = SimpleNamespace(FlowControlQueue=make)
    install(app)
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
    install(app, is_exact=True)
    queue = app.FlowControlQueue()._queue
    queue.extend([event(0, 1), event(0, 2), event(1, 9), event(1, 10)])
    expected = (
        [(0, 1), (1, 9), (0, 2), (1, 10)] if held is None else [(1, 9), (0, 1), (1, 10), (0, 2)]
    )
    assert taken(queue) == expected
