"""A test worker's report of its rounds, as rows, for workers in this process and over a journal.

    {"kind": "assigned", "generation": 4, "actives": [["orders", 0, 1]], "standbys": [...], "cold": [...]}
    {"kind": "ready", "generation": 4}

Each partition is (topic, number, group): topics of a group share one owner per number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from faust.types.app import AppT

#: The suffix of Faust's own topic for the election of its leader.
LEADER = "-__assignor-__leader"


class Part(NamedTuple):
    """A partition; ``group`` is the group of co-partitioned topics."""

    topic: str
    number: int
    group: int


def generation_of(app: AppT) -> int:
    """Return the group's generation; Faust's own number is constant in cooperative rounds."""
    said = getattr(app.assignor, "generation", -1)
    return said if said > 0 else int(app.consumer_generation_id)


def report(app: AppT, tell: Callable[[Mapping[str, object]], None]) -> None:
    """Make ``app`` report its rounds: each assignment, and the end of each restore."""

    def parts(tps: Iterable[Any]) -> list[Part]:
        assignor = app.assignor
        return sorted(
            Part(tp.topic, tp.partition, assignor.group_for_topic(tp.topic))
            for tp in tps
            if not tp.topic.endswith(LEADER)
        )

    async def on_assigned(_app: object, assigned: object, **_: object) -> None:
        changelogs = {table.changelog_topic.get_topic_name() for table in app.tables.values()}
        actives = parts(app.assignor.assigned_actives())
        tell(
            {
                "kind": "assigned",
                "generation": generation_of(app),
                "actives": actives,
                "standbys": parts(app.assignor.assigned_standbys()),
                "changelogs": sorted(changelogs),
                "claimed": _claimed(app.assignor),
                "awaited": _awaited(app.assignor),
            }
        )

    async def on_ready(_app: object, **_: object) -> None:
        tell({"kind": "ready", "generation": generation_of(app)})

    app.on_partitions_assigned.connect(on_assigned, weak=False)
    app.on_rebalance_complete.connect(on_ready, weak=False)


def _awaited(assignor: object) -> int:
    """Return the number of copies awaited by a follow-up round; 0 for stock Faust."""
    awaited = getattr(assignor, "awaited", None)
    return 0 if awaited is None else len(awaited.tps) + awaited.follows


def _claimed(assignor: object) -> list[tuple[str, int]] | None:
    """Return the changelogs with state in memory or on disk at the join; None for stock Faust."""
    joined = getattr(assignor, "joined_with", None)
    if joined is None:
        return None
    books = joined.actives, joined.standbys, joined.on_disk
    return sorted({(topic, n) for book in books for topic in book for n in book[topic]})


@dataclass
class State:
    """A worker's partitions, by its last rows."""

    generation: int = -1
    ready: int = -1
    actives: frozenset[Part] = frozenset()
    standbys: frozenset[Part] = frozenset()
    #: Partitions that move here in a follow-up round, once their state has caught up.
    awaited: int = 0
    #: Changelogs that moved here without state, since :meth:`begin`.
    cold: frozenset[Part] = frozenset()

    def begin(self) -> None:
        """Reset the cold moves."""
        self.cold = frozenset()

    def end(self) -> None:
        """Clear all partitions at the end of the worker's life."""
        self.generation = self.ready = -1
        self.awaited = 0
        self.actives = self.standbys = frozenset()

    def __str__(self) -> str:
        return f"generation {self.generation}, ready {self.ready}, waits for {self.awaited} copies"

    def take(self, row: Mapping[str, Any]) -> None:
        """Apply a row."""
        if row["kind"] == "ready":
            self.ready = row["generation"]
        elif row["kind"] == "assigned":
            actives, standbys = (
                frozenset(Part(*part) for part in row[name]) for name in ("actives", "standbys")
            )
            held = {part[:2] for part in self.actives | self.standbys}
            held |= {(topic, number) for topic, number in row["claimed"] or ()}
            tables = {part for part in actives if part.topic in row["changelogs"]}
            self.cold |= {part for part in tables if part[:2] not in held}
            self.awaited = row["awaited"]
            self.generation, self.actives, self.standbys = row["generation"], actives, standbys
