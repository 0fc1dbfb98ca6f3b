"""Live views of the partitions whose records a fetch takes; a set that changes meanwhile counts at once.

aiokafka tests ``if partitions and tp not in partitions``: it takes an empty collection for all partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from typing import Any

from faust.types.tuples import TP


class Wanted(Collection[TP]):
    """The partitions that may be fetched now; an empty view means no partition.

    If Faust empties the set that it has passed during a fetch, aiokafka's fetch takes records of every
    assigned partition.
    """

    def __init__(
        self,
        active: Collection[TP],
        *,
        only: Collection[str] | None = None,
        but_not: Collection[str] = (),
    ) -> None:
        self.active, self.only, self.but_not = active, only, but_not

    def __contains__(self, tp: Any) -> bool:
        return (
            tp in self.active
            and tp.topic not in self.but_not
            and (self.only is None or tp.topic in self.only)
        )

    def __iter__(self) -> Iterator[TP]:
        return (tp for tp in tuple(self.active) if tp in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return True


class Share(Container[TP]):
    """The part of ``partitions`` (None means all): only the ones in ``only``, without ``but_not``."""

    def __init__(
        self,
        partitions: Container[TP] | None,
        *,
        only: Collection[TP] | None = None,
        but_not: Collection[TP] = (),
    ) -> None:
        self.partitions, self.only, self.but_not = partitions, only, but_not

    def __contains__(self, tp: object) -> bool:
        return (
            tp not in self.but_not
            and (self.only is None or tp in self.only)
            and (not self.partitions or tp in self.partitions)
        )
