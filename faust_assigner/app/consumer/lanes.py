"""Records wait in a stream's queue in one lane for each partition, and are taken from all lanes in turn.

An agent has one queue. After a takeover the backlog of the partitions taken over fills it within moments, and
those that were here all the time would stand still until it has been worked off.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any


class Lanes:
    """What ``asyncio.Queue`` keeps its items in: in order within a partition, in turn between partitions.

    Every call is O(1). What is no record of a partition has a lane of its own.
    """

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._lanes: OrderedDict[Any, deque[Any]] = OrderedDict()
        self._length = 0
        self.extend(items)

    def append(self, item: Any) -> None:
        """Put it behind those of its partition."""
        tp = getattr(getattr(item, "message", None), "tp", None)
        lane = self._lanes.get(tp)
        if lane is None:
            lane = self._lanes[tp] = deque()
        lane.append(item)
        self._length += 1

    def popleft(self) -> Any:
        """Take the first of the lane whose turn it is. Raises IndexError where nothing waits."""
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

    def extend(self, items: Iterable[Any]) -> None:
        """Put each behind those of its partition."""
        for item in items:
            self.append(item)

    def clear(self) -> None:
        """Drop everything."""
        self._lanes.clear()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return (item for lane in self._lanes.values() for item in lane)


def install(app: Any) -> None:
    """Have the queues that ``app`` makes from now on be fair."""
    app.FlowControlQueue = partial(_fair, app.FlowControlQueue)


def _fair(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    queue = make(*args, **kwargs)
    queue._queue = Lanes(queue._queue)
    return queue
