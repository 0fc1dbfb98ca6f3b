"""Derive in plain Python which tasks must wait for their state, and which warm-ups a plan must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from faust_assigner.checks.reading import Unit
from faust_assigner.claims import claim_on, numbers, offsets_at
from faust_assigner.model import NOBODY, Member
from faust_assigner.warmup import WarmupPolicy

#: (unit, partition number); a unit is a co-partitioned group.
Task = tuple[int, int]
#: The maximum number of records that a log is assumed to grow between its owner's report and a copy's
#: report. If a copy reports a position further beyond the log's end, this position is ignored.
PLAUSIBLE_GROWTH = 100_000


class WarmupRule:
    """The rule that decides which tasks wait for warm-ups; ``before`` are the owners before this round."""

    def __init__(
        self,
        units: Sequence[Unit],
        members: list[Member],
        before: Sequence[Sequence[int]],
        policy: WarmupPolicy,
    ) -> None:
        self.units, self.members, self.before, self.policy = units, members, before, policy

    def is_far(self, u: int, p: int, m: int, owner: int) -> bool:
        """Return whether ``m`` has not caught up; False if ``m`` or the ``owner`` reports no positions."""
        if (
            self.members[m].positions is None
            or owner == NOBODY
            or self.members[owner].positions is None
        ):
            return False
        behind = 0
        for t in self.units[u].changelogs:
            end, at = self._position(owner, t, p), self._position(m, t, p)
            at = 0 if at > end + PLAUSIBLE_GROWTH else at
            behind += max(0, end - at)
            if at == 0 and end > self.policy.acceptable_from_nothing:
                return True
        return behind > self.policy.acceptable_recovery_lag

    def _position(self, m: int, topic: str, p: int) -> int:
        said = self.members[m].positions
        return 0 if said is None else int(offsets_at(claim_on(said, topic), np.array([p]))[0])

    def must_wait(self, u: int, p: int, target: int) -> bool:
        """Return whether the task must stay with its owner in this round."""
        unit, owner = self.units[u], self.before[u][p]
        return (
            bool(unit.changelogs)
            and unit.adds_load
            and owner not in (NOBODY, target)
            and self.is_far(u, p, target, owner)
        )

    def complaints(
        self,
        unit_owner: Sequence[Sequence[int]],
        target: Sequence[Sequence[int]],
        spares: Mapping[Task, Sequence[int]],
        warming: Mapping[Task, Sequence[int]],
    ) -> list[str]:
        """Return the faults in a plan's warm-ups: ``warming`` are its warm-ups, ``spares`` its standbys."""
        found, owed = [], {}
        overdue = {
            (u, p, m)
            for m, member in enumerate(self.members)
            for u, unit in enumerate(self.units)
            for t in unit.changelogs
            for p in numbers(claim_on(member.overdue, t), unit.count).tolist()
        }
        for u, unit in enumerate(self.units):
            for p in range(unit.count if unit.changelogs and unit.adds_load else 0):
                m = target[u][p]
                owner = unit_owner[u][p]
                if (
                    m not in (owner, NOBODY)
                    and m not in spares.get((u, p), ())
                    and (u, p, m) not in overdue
                    and self.is_far(u, p, m, owner)
                ):
                    owed[u, p] = m
        for (u, p), who in warming.items():
            if list(who) != [owed.get((u, p), NOBODY)]:
                found.append(
                    f"{self.units[u].topics[0]}-{p} has warm-ups on {list(who)}, off its target"
                )
        given = Counter(m for who in warming.values() for m in who)
        wanted = Counter(owed.values())
        if (
            sum(given.values()) > self.policy.max_per_group
            or max(given.values(), default=0) > self.policy.max_per_member
        ):
            found.append(f"{sum(given.values())} warm-ups, {max(given.values())} on one member")
        if sum(given.values()) < self.policy.max_per_group:
            found += [
                f"{self.members[m].member_id} has {given[m]} warm-ups, {n} are possible"
                for m, n in wanted.items()
                if given[m] < min(n, self.policy.max_per_member)
            ]
        return found
