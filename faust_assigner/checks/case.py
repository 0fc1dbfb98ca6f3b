"""The input of the checks (one input of the planner, and a plan), and the form of a violation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from faust_assigner.checks.reading import accepted_owners, last_owners, units_of
from faust_assigner.checks.waiting import WarmupRule
from faust_assigner.model import Member
from faust_assigner.warmup import WarmupPolicy


class Answer(Protocol):
    """The methods that a checked plan must have."""

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return topic -> owned partitions."""
        ...

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return changelog topic -> replicated partitions."""
        ...


@dataclass(frozen=True, order=True)
class Violation:
    """A broken promise: its number (see :mod:`faust_assigner.checks`), and the finding."""

    promise: str
    found: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.found}"


class Case:
    """One input of the planner, with the units, owners and copies that are derived from its claims.

    A unit is a co-partitioned group. ``before`` has the owners by claims; ``last`` has former owners too.
    """

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
        # Each member without a rack counts as a separate rack.
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
            None if warmups is None else WarmupRule(self.units, members, self.before, warmups)
        )
