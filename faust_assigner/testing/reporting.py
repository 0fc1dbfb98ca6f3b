"""What a worker under test reports of its rounds, as rows: the same in this process and over a journal.

    {"kind": "assigned", "generation": 4, "actives": [["orders", 0, 1]], "standbys": [...], "cold": [...]}
    {"kind": "ready", "generation": 4}

Each partition is (topic, number, group): topics of a group have one owner for each number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

#: By this end of its name a topic is Faust's own, for the election of its leader.
LEADER = "-__assignor-__leader"


class Part(NamedTuple):
    """One partition; ``group`` is that of the topics that travel together."""

    topic: str
    number: int
    group: int


def generation_of(app: Any) -> int:
    """The group's generation; Faust's own number stands still in cooperative rounds."""
    said = getattr(app.assignor, "generation", -1)
    return said if said > 0 else int(app.consumer_generation_id)


def report(app: Any, tell: Callable[[Mapping[str, Any]], None]) -> None:
    """Have ``app`` tell its rounds: each assignment, and when its tables are restored."""

    def parts(tps: Iterable[Any]) -> list[Part]:
        assignor = app.assignor
        return sorted(
            Part(tp.topic, tp.partition, assignor.group_for_topic(tp.topic))
            for tp in tps
            if not tp.topic.endswith(LEADER)
        )

    async def on_assigned(_app: Any, assigned: Any, **_: Any) -> None:
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

    async def on_ready(_app: Any, **_: Any) -> None:
        tell({"kind": "ready", "generation": generation_of(app)})

    app.on_partitions_assigned.connect(on_assigned, weak=False)
    app.on_rebalance_complete.connect(on_ready, weak=False)


def _awaited(assignor: Any) -> int:
    """How many copies of the worker a follow-up round waits for; 0 with stock."""
    awaited = getattr(assignor, "awaited", None)
    return 0 if awaited is None else len(awaited.tps) + awaited.follows


def _claimed(assignor: Any) -> list[tuple[str, int]] | None:
    """The changelogs of which the worker had state, in memory or on disk, as it joined; None with stock."""
    joined = getattr(assignor, "joined_with", None)
    if joined is None:
        return None
    books = joined.actives, joined.standbys, joined.on_disk
    return sorted({(topic, n) for book in books for topic in book for n in book[topic]})


@dataclass
class State:
    """What one worker has, by its last rows."""

    generation: int = -1
    ready: int = -1
    actives: frozenset[Part] = frozenset()
    standbys: frozenset[Part] = frozenset()
    #: Partitions that are to move here in a follow-up round, once their state has caught up.
    awaited: int = 0
    #: Changelogs that became its own without state, since :meth:`begin`.
    cold: frozenset[Part] = frozenset()

    def begin(self) -> None:
        """Forget what was cold before."""
        self.cold = frozenset()

    def end(self) -> None:
        """The worker's life is over: it has nothing any more."""
        self.generation = self.ready = -1
        self.awaited = 0
        self.actives = self.standbys = frozenset()

    def __str__(self) -> str:
        return f"generation {self.generation}, ready {self.ready}, waits for {self.awaited} copies"

    def take(self, row: Mapping[str, Any]) -> None:
        """Take one row."""
        if row["kind"] == "ready":
            self.ready = row["generation"]
        elif row["kind"] == "assigned":
            actives, standbys = (
                frozenset(Part(*part) for part in row[name]) for name in ("actives", "standbys")
            )
            held = {part[:2] for part in self.actives | self.standbys}
            held |= {(topic, number) for topic, number in row["claimed"] or ()}
            gained = {part for part in actives - self.actives if part.topic in row["changelogs"]}
            self.cold |= {part for part in gained if part[:2] not in held}
            self.awaited = row["awaited"]
            self.generation, self.actives, self.standbys = row["generation"], actives, standbys
