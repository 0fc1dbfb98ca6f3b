"""A test worker's report of its rounds, as rows; a worker process writes them to a journal.

    {"kind": "assigned", "generation": 4, "actives": [["orders", 0, 1]], "standbys": [...], "cold": [...]}
    {"kind": "ready", "generation": 4}

Each partition is (topic, number, group). Partitions with the same group and number have one owner.
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
    """A partition; ``group`` is the id of its group of co-partitioned topics."""

    topic: str
    number: int
    group: int


def generation_of(app: AppT) -> int:
    """Return the group's generation.

    Faust's own number is used only for stock Faust, because it does not change in cooperative
    rounds.
    """
    said = getattr(app.assignor, "generation", -1)
    return said if said > 0 else int(app.consumer_generation_id)


def report(app: AppT, tell: Callable[[Mapping[str, object]], None]) -> None:
    """Make ``app`` call ``tell`` with a row for each assignment and for the end of each restore."""

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
                "claimed": _claimed_partitions(app.assignor),
                "awaited": _awaited_copies(app.assignor),
            }
        )

    async def on_ready(_app: object, **_: object) -> None:
        tell({"kind": "ready", "generation": generation_of(app)})

    app.on_partitions_assigned.connect(on_assigned, weak=False)
    app.on_rebalance_complete.connect(on_ready, weak=False)


def _awaited_copies(assignor: object) -> int:
    """Return the number of copies for which a follow-up round waits; 0 for stock Faust."""
    awaited = getattr(assignor, "awaited", None)
    return 0 if awaited is None else len(awaited.tps) + awaited.follows


def _claimed_partitions(assignor: object) -> list[tuple[str, int]] | None:
    """Return the changelog partitions that the member had at its join; None for stock Faust."""
    joined = getattr(assignor, "joined_with", None)
    if joined is None:
        return None
    books = joined.actives, joined.standbys, joined.on_disk
    return sorted({(topic, n) for book in books for topic in book for n in book[topic]})


@dataclass
class State:
    """A worker's partitions and generations, as its last rows report them."""

    generation: int = -1
    ready: int = -1
    actives: frozenset[Part] = frozenset()
    standbys: frozenset[Part] = frozenset()
    #: The number of copies that must catch up before a follow-up round moves tasks to this worker.
    awaited: int = 0
    #: The changelog partitions that moved to this worker without state since :meth:`begin`.
    cold: frozenset[Part] = frozenset()

    def begin(self) -> None:
        """Forget the cold moves, because a new event begins."""
        self.cold = frozenset()

    def end(self) -> None:
        """Clear all partitions, because the worker has ended."""
        self.generation = self.ready = -1
        self.awaited = 0
        self.actives = self.standbys = frozenset()

    def __str__(self) -> str:
        return f"generation {self.generation}, ready {self.ready}, waits for {self.awaited} copies"

    def take(self, row: Mapping[str, Any]) -> None:
        """Update the state by a row of the report."""
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
