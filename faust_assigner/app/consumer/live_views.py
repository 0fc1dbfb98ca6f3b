"""Live views of the partitions that a fetch may take: a change of the set also affects a running fetch.

aiokafka tests ``if partitions and tp not in partitions``, so an empty collection means all partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from typing import Any

from faust.types.tuples import TP


class Wanted(Collection[TP]):
    """The partitions that may be fetched now; an empty view means no partition.

    Faust may empty its set of active partitions during a fetch. With the plain set, aiokafka would then
    take records of every assigned partition.
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


class PartitionSubset(Container[TP]):
    """The partitions in both ``partitions`` (None or empty: all) and ``only`` (None: all; empty: none)."""

    def __init__(
        self, partitions: Container[TP] | None, *, only: Collection[TP] | None = None
    ) -> None:
        self.partitions, self.only = partitions, only

    def __contains__(self, tp: object) -> bool:
        return (self.only is None or tp in self.only) and (
            not self.partitions or tp in self.partitions
        )
