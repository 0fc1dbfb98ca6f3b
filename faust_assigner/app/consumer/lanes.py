"""A stream's queue with one lane (sub-queue) for each partition; the lanes are served in turn.

An agent has one queue. After a rebalance the backlog of new partitions fills the queue at once. With a plain
queue, the kept partitions would wait until the agent has processed this backlog.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faust.app import App
    from mode.utils.queues import FlowControlQueue


class Lanes:
    """The items of an ``asyncio.Queue``, by partition: ``popleft`` serves the partitions in turn.

    Items of one partition stay in order. Items that are not records share one lane. ``append`` and
    ``popleft`` cost O(1).
    """

    def __init__(self, items: Iterable[object] = ()) -> None:
        self._lanes: OrderedDict[object, deque[object]] = OrderedDict()
        self._length = 0
        self.extend(items)

    def append(self, item: object) -> None:
        """Append ``item`` to the lane of its partition."""
        tp = getattr(getattr(item, "message", None), "tp", None)
        lane = self._lanes.get(tp)
        if lane is None:
            lane = self._lanes[tp] = deque()
        lane.append(item)
        self._length += 1

    def popleft(self) -> object:
        """Remove the first item of the next lane. Raises IndexError if there is no item."""
        if not self._length:
            raise IndexError("pop from an empty queue")
        tp, lane = next(iter(self._lanes.items()))
        item = lane.popleft()
        self._length -= 1
        if lane:
            self._lanes.move_to_end(tp)
        else:
            del self._lanes[tp]
        return item

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


def install(app: App) -> None:
    """Make ``app`` create its queues with one lane for each partition from now on."""
    app.FlowControlQueue = partial(_fair, app.FlowControlQueue)


def _fair(
    make: Callable[..., FlowControlQueue], *args: object, **kwargs: object
) -> FlowControlQueue:
    queue = make(*args, **kwargs)
    queue._queue = Lanes(queue._queue)
    return queue
