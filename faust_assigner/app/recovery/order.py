"""What is restored first, and what may flow meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

#: Partitions with so few records to replay are restored together: a batch costs more than its records.
FEW_RECORDS = 2_000


def chunks(left: Mapping[Any, int], alone: Collection[str] = ()) -> Iterator[frozenset[Any]]:
    """Changelog partitions in the order to restore them, those that end together together.

    ``left`` has the records that each lacks. Partitions of one number make up a task: they come together.
    First the tables that every stream may read (their topics are ``alone``), then what lacks nothing, then
    what lacks little, then the others one number at a time, shortest first.
    """
    everybody = frozenset(tp for tp in left if tp.topic in alone)
    if everybody:
        yield everybody
    by_number: dict[int, set[Any]] = {}
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
    sources: Collection[Any], pending: Collection[Any], alone: Collection[str] = ()
) -> set[Any]:
    """Of ``sources``, those whose tables are restored; ``pending`` changelog partitions are not.

    A stream reads the tables of its own number, and any number of those whose changelogs are ``alone``.
    """
    if any(tp.topic in alone for tp in pending):
        return set()
    numbers = {tp.partition for tp in pending}
    return {tp for tp in sources if tp.partition not in numbers}
