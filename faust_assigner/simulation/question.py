"""Call a policy: convert the living workers to members, and the plan to arrays over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from faust_assigner.errors import FaustAssignerError
from faust_assigner.model import NOBODY, Bools, Ints, Member
from faust_assigner.simulation.fleet import Arm, Costs, PlanLike, Policy, Scenario, claims_of
from faust_assigner.simulation.replicas import Replicas
from faust_assigner.warmup import WarmupPolicy

#: Owners int64[T], standbys bool[W, T] and the awaited standbys bool[W, T].
Placed: TypeAlias = tuple[Ints, Bools, Bools]
#: The results of policies in one scenario, by input. Arms with equal input share a result.
Memo: TypeAlias = dict[tuple[str | int | bytes | bool, ...], Placed]


class PolicyError(FaustAssignerError, ValueError):
    """A policy returned an invalid assignment; the message names the scenario, the policy and the task."""


class Question:
    """A caller of a policy with the settings of an arm; it calls the policy once per distinct input."""

    def __init__(
        self, scenario: Scenario, arm: Arm, policy: Policy, costs: Costs, memo: Memo
    ) -> None:
        self.scenario, self.arm, self.policy, self.costs = scenario, arm, policy, costs
        self.memo = memo

    def ask(self, replicas: Replicas, living: Ints, fresh: Bools) -> Placed:
        """Return the policy's placement for the ``living`` workers; ``fresh`` workers own no task yet."""
        asked = (
            self.arm.policy,
            self.arm.replicas,
            self.arm.weighted,
            living.tobytes(),
            fresh.tobytes(),
            replicas.owner.tobytes(),
            np.packbits(replicas.standby).tobytes(),
            np.packbits(replicas.holds & fresh[:, None]).tobytes(),
            self.arm.cooperative and replicas.positions().tobytes() + replicas.awaited.tobytes(),
        )
        if asked not in self.memo:
            self.memo[asked] = self._ask_anew(replicas, living, fresh)
        owner, standby, awaited = self.memo[asked]
        return owner.copy(), standby.copy(), awaited.copy()

    def _ask_anew(self, replicas: Replicas, living: Ints, fresh: Bools) -> Placed:
        positions = replicas.positions()
        members = [
            self._member(replicas, row, bool(fresh[row]), positions[row]) for row in living.tolist()
        ]
        warm: dict[str, object] = {}
        if self.arm.cooperative:
            warm["warmups"] = WarmupPolicy(
                acceptable_recovery_lag=int(self.costs.acceptable_recovery_lag),
                acceptable_from_nothing=int(self.costs.acceptable_from_nothing),
            )
        plan = self.policy(
            members,
            self.scenario.partitions,
            replicas=self.arm.replicas,
            changelogs=self.scenario.changelogs,
            weights=self.scenario.weights if self.arm.weighted else None,
            **warm,
        )
        return self._read(plan, living, members)

    def _member(self, replicas: Replicas, row: int, is_fresh: bool, positions: Ints) -> Member:
        worker, scenario = self.scenario.workers[row], self.scenario
        owned, copies = replicas.owner == row, replicas.standby[row]
        if is_fresh:
            owned, copies = np.zeros_like(owned), replicas.holds[row] & self.arm.claims_files
        return Member(
            worker.member_id,
            tuple(scenario.partitions),
            actives=claims_of(scenario.groups, scenario.offsets, owned),
            standbys=claims_of(scenario.groups, scenario.offsets, copies & scenario.stateful),
            generation=-1 if is_fresh else 1,
            rack_id=worker.rack_id,
            capacity=worker.capacity,
            positions=self._reported_positions(positions) if self.arm.cooperative else None,
            awaited=claims_of(scenario.groups, scenario.offsets, replicas.awaited[row]),
        )

    def _reported_positions(self, positions: Ints) -> dict[str, tuple[Ints, Ints]]:
        """Return changelog -> (partition numbers, positions), as a member reports them."""
        scenario = self.scenario
        return {
            group.changelog: (
                np.arange(group.partitions, dtype=np.int64),
                positions[start : start + group.partitions],
            )
            for group, start in zip(scenario.groups, scenario.offsets.tolist(), strict=False)
            if group.changelog is not None
        }

    def _read(self, plan: PlanLike, living: Ints, members: Sequence[Member]) -> Placed:
        """Convert the plan to arrays over tasks; raise PolicyError unless each task has one owner."""
        scenario = self.scenario
        owner, times = np.full(scenario.tasks, NOBODY), np.zeros(scenario.tasks, int)
        standby, awaited = (
            np.zeros((len(scenario.workers), scenario.tasks), bool) for _ in range(2)
        )
        for row, member in zip(living.tolist(), members, strict=True):
            actives, standbys = plan.actives(member.member_id), plan.standbys(member.member_id)
            waits = plan.awaited(member.member_id) if self.arm.cooperative else {}
            for group, start in zip(scenario.groups, scenario.offsets.tolist(), strict=False):
                mine = np.asarray(actives.get(group.topic, ()), int) + start
                owner[mine] = row
                times[mine] += 1
                if group.changelog is not None:
                    standby[row, np.asarray(standbys.get(group.changelog, ()), int) + start] = True
                    awaited[row, np.asarray(waits.get(group.changelog, ()), int) + start] = True
        if (times != 1).any():
            task = int(np.flatnonzero(times != 1)[0])
            raise PolicyError(
                f"scenario {scenario.scenario_id}, policy {self.arm.label}: "
                f"task {task} has {int(times[task])} owners, expected 1"
            )
        return owner, standby, awaited
