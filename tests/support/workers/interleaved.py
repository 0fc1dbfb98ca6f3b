"""Find in journals where two workers processed a partition at the same time. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

#: A journal has the assignment once the app gets it; the first record may be earlier.
TOLD_LATE_S = 1.0


class Done(NamedTuple):
    """A record that a run of a worker began at ``began`` and finished ``at``."""

    at: float
    partition: int
    offset: int
    who: str
    began: float


@dataclass(frozen=True)
class Journals:
    """All records in the order of time, and the assignments of each run of a worker."""

    done: Sequence[Done]
    told: Mapping[str, Sequence[tuple[float, frozenset[int]]]] = field(default_factory=dict)


def read(journals: Mapping[str, Path]) -> Journals:
    """Read the journals by the names of workers; each run counts as a worker of its own."""
    done, told = list[Done](), defaultdict[str, list[tuple[float, frozenset[int]]]](list)
    for name, path in journals.items():
        life = 0
        for line in path.read_text().splitlines():
            row = json.loads(line)
            life += row["kind"] == "start"
            who = f"{name} ({life})"
            if row["kind"] == "order":
                done.append(Done(row["at"], row["partition"], row["offset"], who, row["began"]))
            elif row["kind"] == "assigned":
                told[who].append((row["at"], frozenset(row["actives"])))
    return Journals(sorted(done), told)


def interleaved(journals: Journals) -> list[str]:
    """Return records that a worker began after its last record although another had done them.

    A record is left out if the worker was assigned the partition between the two records: it may
    have lost the partition meanwhile, and continues at the other worker's last commit.
    """
    by_partition: dict[int, list[Done]] = {}
    for one in journals.done:
        by_partition.setdefault(one.partition, []).append(one)
    return [said for records in by_partition.values() for said in _of_one(records, journals.told)]


def _of_one(
    records: Sequence[Done], told: Mapping[str, Sequence[tuple[float, frozenset[int]]]]
) -> list[str]:
    found, last = [], dict[str, Done]()
    for index, one in enumerate(records):
        before = last.get(one.who)
        if before is not None and one.offset == before.offset + 1:
            since = [
                r for r in records[:index] if before.at < r.at <= one.began and r.who != one.who
            ]
            passed = [r for r in since if r.offset >= one.offset]
            if passed and not any(
                passed[-1].at < at < one.began + TOLD_LATE_S and one.partition in owned
                for at, owned in told.get(one.who, ())
            ):
                found.append(
                    f"partition {one.partition}: {one.who} began {one.offset}, after "
                    f"{passed[-1].who} was done with {passed[-1].offset}"
                )
        last[one.who] = one
    return found


def together(journals: Journals, stops: Mapping[str, Iterable[tuple[float, float]]]) -> list[str]:
    """Return pairs of records of a partition that two workers processed at the same time.

    ``stops`` has the times (from, until) at which a worker's process stood still, by its name. The
    worker may finish a record that it had begun before the stop, whatever other workers did; it may
    not begin another.
    """
    by_partition: dict[int, list[Done]] = {}
    for one in journals.done:
        by_partition.setdefault(one.partition, []).append(one)
    return [said for records in by_partition.values() for said in _overlapping(records, stops)]


def _overlapping(
    records: Iterable[Done], stops: Mapping[str, Iterable[tuple[float, float]]]
) -> list[str]:
    found, longest = list[str](), None
    for one in sorted(records, key=lambda one: (one.began, one.at)):
        if _stood_still(one, stops):
            continue
        if longest is not None and one.began < longest.at and one.who != longest.who:
            early_s = longest.at - one.began
            found.append(
                f"partition {one.partition}: {one.who} began {one.offset} {early_s:.3f} s before "
                f"{longest.who} was done with {longest.offset}"
            )
        if longest is None or one.at > longest.at:
            longest = one
    return found


def _stood_still(one: Done, stops: Mapping[str, Iterable[tuple[float, float]]]) -> bool:
    """Return whether the worker was stopped and continued while it processed the record."""
    name = one.who.rpartition(" (")[0]
    return any(one.began <= since and until <= one.at for since, until in stops.get(name, ()))
