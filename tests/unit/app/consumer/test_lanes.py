"""Records are taken from all partitions in turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.consumer.lanes import Lanes


def event(partition: int, offset: int) -> Any:
    """What a stream's queue holds."""
    return SimpleNamespace(message=SimpleNamespace(tp=("orders", partition), offset=offset))


def taken(lanes: Lanes) -> list[tuple[int, int]]:
    """Everything, in order."""
    items = [lanes.popleft() for _ in range(len(lanes))]
    return [(item.message.tp[1], item.message.offset) for item in items]


def test_a_backlog_does_not_queue_ahead_of_others() -> None:
    """The one record of a kept partition is second, whatever waits of the one taken over."""
    lanes = Lanes(event(0, offset) for offset in range(100))
    lanes.append(event(1, 7))
    assert taken(lanes)[:3] == [(0, 0), (1, 7), (0, 1)]


def test_within_a_partition_the_order_is_kept() -> None:
    """However lanes come and go."""
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
    """Length, truth, iteration, clearing; what is no record waits, too."""
    lanes = Lanes([event(0, 0), "a value"])
    assert (len(lanes), bool(lanes), len(list(lanes))) == (2, True, 2)
    lanes.clear()
    assert (len(lanes), bool(lanes), list(lanes)) == (0, False, [])
    with pytest.raises(IndexError):
        lanes.popleft()
