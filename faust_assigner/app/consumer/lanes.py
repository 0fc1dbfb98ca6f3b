"""A stream's queue with one lane (sub-queue) for each partition; the lanes are served in turn.

An agent has one queue. After a rebalance the backlog of new partitions fills the queue at once. With a plain
queue, the kept partitions would wait until the agent has processed this backlog.

Under ``exactly_once`` a record that a commit waits for comes first. Other records are held back meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.events import EventT
    from mode.utils.queues import FlowControlQueue


class Lanes:
    """The items of an ``asyncio.Queue``, by partition: ``popleft`` serves the partitions in turn.

    Items of one partition stay in order. Items that are not records share one lane. ``append`` and
    ``popleft`` cost O(1). ``urgent`` returns the item to take first of the lanes' first items, if any;
    ``popleft`` then costs O(lanes).
    """

    def __init__(
        self,
        items: Iterable[object] = (),
        urgent: Callable[[Iterable[Any]], object | None] | None = None,
    ) -> None:
        self._urgent = urgent
        self._lanes: OrderedDict[object, deque[object]] = OrderedDict()
        self._length = 0
        self.extend(items)

    def append(self, item: object) -> None:
        """Append ``item`` to the lane of its partition."""
        tp = _lane_of(item)
        lane = self._lanes.get(tp)
        if lane is None:
            lane = self._lanes[tp] = deque()
        lane.append(item)
        self._length += 1

    def popleft(self) -> object:
        """Remove the first item of the next lane. Raises IndexError if there is no item."""
        if not self._length:
            raise IndexError("pop from an empty queue")
        urgent = self._urgent(self.heads()) if self._urgent is not None else None
        tp = next(iter(self._lanes)) if urgent is None else _lane_of(urgent)
        lane = self._lanes[tp]
        item = lane.popleft()
        self._length -= 1
        if lane:
            self._lanes.move_to_end(tp)
        else:
            del self._lanes[tp]
        return item

    def heads(self) -> Iterator[Any]:
        """Iterate over the first item of each lane, in the order of turns."""
        return (lane[0] for lane in self._lanes.values())

    def extend(self, items: Iterable[object]) -> None:
        """Append each item to the lane of its partition."""
        for item in items:
            self.append(item)

    def clear(self) -> None:
        """Remove all items."""
        self._lanes.clear()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[object]:
        return (item for lane in self._lanes.values() for item in lane)


def _lane_of(item: object) -> object:
    """Return the partition of a record; None for an item that is not a record."""
    return getattr(getattr(item, "message", None), "tp", None)


def install(app: App, *, is_exact: bool = False) -> None:
    """Make ``app`` create its queues with one lane for each partition from now on.

    ``is_exact``: the app's setting is ``exactly_once``.
    """
    urgent = partial(_waited_for, app) if is_exact else None
    app.FlowControlQueue = partial(_fair, app.FlowControlQueue, urgent)


def _waited_for(app: App, items: Iterable[EventT[object]]) -> object | None:
    """Return the first of ``items`` that a commit of ``app`` waits for."""
    held = getattr(getattr(app._consumer, "transactions", None), "held", None)
    return None if held is None else held.first_waited_for(items)


def _fair(
    make: Callable[..., FlowControlQueue],
    urgent: Callable[[Iterable[Any]], object | None] | None,
    *args: object,
    **kwargs: object,
) -> FlowControlQueue:
    queue = make(*args, **kwargs)
    queue._queue = Lanes(queue._queue, urgent)
    return queue
