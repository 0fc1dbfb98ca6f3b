"""Made-up groups: looks at them over time, with a given load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from faust_assigner.scaler.case import Recommendation
from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.memory import Memory
from faust_assigner.scaler.recommend import recommend
from faust_assigner.scaler.settings import Settings

#: Seconds between two looks, as in Kubernetes.
EVERY_S = 15.0


@dataclass
class Group:
    """12 tasks on workers that follow each recommendation at once, unless ``follows`` is False.

    ``arrival`` and ``processed`` are records a second of the whole group, evenly over the tasks.
    """

    settings: Settings = field(default_factory=Settings)
    members: int = 4
    tasks: int = 12
    standbys: int | None = 0
    arrival: float = 0.0
    #: None means all arriving records.
    processed: float | None = None
    busy: tuple[str, ...] = ()
    follows: bool = True
    #: Whether each task changes its owner at each look, so no rate is measured.
    restless: bool = False
    now: float = 1000.0
    end: float = 0.0
    committed: float = 0.0
    memory: Memory = field(default_factory=Memory)
    said: list[Recommendation] = field(default_factory=list)

    def look(self) -> Look:
        """Return a look at the group now."""
        each = self.tasks or 1
        owners = max(1, self.members)
        return Look(
            taken_at=self.now,
            members=self.members,
            tasks=self.tasks if self.members else 0,
            standbys=self.standbys,
            sources={
                ("orders", n): Source(
                    owner=f"w{n % owners}{self.now if self.restless else ''}" * bool(self.members),
                    committed=int(self.committed / each),
                    end=int(self.end / each),
                )
                for n in range(each)
            },
            busy=self.busy,
        )

    def ask(self) -> Recommendation:
        """Take a look and return the decision."""
        found, self.memory = recommend(self.look(), self.settings, self.memory)
        self.said.append(found)
        if self.follows:
            self.members = found.size
        return found

    def pass_time(self, seconds: float) -> Recommendation:
        """Look every 15 seconds for ``seconds``; return the last answer."""
        found = self.ask()
        for _ in range(int(seconds / EVERY_S)):
            self.now += EVERY_S
            arrived = self.arrival * EVERY_S
            done = arrived if self.processed is None else self.processed * EVERY_S
            self.end += arrived
            self.committed = min(self.end, self.committed + done)
            found = self.ask()
        return found

    def sizes(self) -> Sequence[int]:
        """Return the recommended sizes, without repeats in a row."""
        return [
            one.size
            for n, one in enumerate(self.said)
            if n == 0 or one.size != self.said[n - 1].size
        ]


def group(**given: Any) -> Group:
    """Return a group; names of settings go to its settings."""
    settings = {k: given.pop(k) for k in list(given) if k in Settings.__dataclass_fields__}
    return Group(settings=Settings(**settings), **given)
