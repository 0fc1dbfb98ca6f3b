"""One input of the planner, read in plain Python, with the shape of a checked plan and of a violation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from faust_assigner.checks.reading import accepted_owners, last_owners, units_of
from faust_assigner.checks.waiting import Waiting
from faust_assigner.model import Member
from faust_assigner.warmup import WarmupPolicy


class Answer(Protocol):
    """The checked plan, by name. A plan with ``promoted_tasks`` is checked against them."""

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return topic -> owned partitions."""
        ...

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return changelog topic -> replicated partitions."""
        ...


@dataclass(frozen=True, order=True)
class Violation:
    """A broken promise: its number in A1..A8, and the finding."""

    promise: str
    found: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.found}"


class Case:
    """One input of the planner, with the units, owners and copies that its claims tell."""

    def __init__(
        self,
        members: list[Member],
        partitions: Mapping[str, int],
        changelogs: frozenset[str],
        replicas: int,
        weightless: frozenset[str],
        warmups: WarmupPolicy | None = None,
    ) -> None:
        self.members, self.partitions, self.replicas = members, partitions, replicas
        self.ids = [m.member_id for m in members]
        # A member without a rack is a separate rack.
        self.rack = [
            m.rack_id if isinstance(m.rack_id, str) else (i,) for i, m in enumerate(members)
        ]
        self.units = units_of(members, partitions, changelogs, weightless)
        self.unit_of = {topic: u for u, unit in enumerate(self.units) for topic in unit.topics}
        self.before = [accepted_owners(unit, members, "actives") for unit in self.units]
        self.last = [
            last_owners(unit, members, owner)
            for unit, owner in zip(self.units, self.before, strict=True)
        ]
        self.waiting = (
            None if warmups is None else Waiting(self.units, members, self.before, warmups)
        )
