"""The order of restores, and the source partitions that may be processed meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faust.types.tuples import TP

#: Tasks with at most this many records are restored together: a batch costs more than its records.
FEW_RECORDS = 2_000


def chunks(left: Mapping[TP, int], alone: Collection[str] = ()) -> Iterator[frozenset[TP]]:
    """Sets of changelog partitions that are restored together, in the order to restore them.

    ``left`` maps each partition to the number of records that its table lacks. Partitions of one
    number make up a task and are restored together. First come the tables that every stream may
    read (their topics are ``alone``), then the complete tasks. Tasks with at most ``FEW_RECORDS``
    records follow, then the rest one task at a time, the fewest records first.
    """
    everybody = frozenset(tp for tp in left if tp.topic in alone)
    if everybody:
        yield everybody
    by_number: dict[int, set[TP]] = {}
    for tp in left.keys() - everybody:
        by_number.setdefault(tp.partition, set()).add(tp)
    lacking = {number: sum(max(0, left[tp]) for tp in tps) for number, tps in by_number.items()}
    ready = [number for number, records in lacking.items() if not records]
    few = [number for number, records in lacking.items() if 0 < records <= FEW_RECORDS]
    many = sorted((records, number) for number, records in lacking.items() if records > FEW_RECORDS)
    for numbers in (ready, few, *([number] for _, number in many)):
        if numbers:
            yield frozenset(tp for number in numbers for tp in by_number[number])


def ready_sources(
    sources: Collection[TP], pending: Collection[TP], alone: Collection[str] = ()
) -> set[TP]:
    """The ``sources`` whose tables are restored; ``pending`` changelog partitions are not restored.

    A stream reads its own partition number of each table, and all numbers of tables whose
    changelogs are ``alone``.
    """
    if any(tp.topic in alone for tp in pending):
        return set()
    numbers = {tp.partition for tp in pending}
    return {tp for tp in sources if tp.partition not in numbers}
