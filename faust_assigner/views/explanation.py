"""Explains the placement of one task: the deciding rule, and the cost of the alternatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from faust_assigner.actives.counts import rates
from faust_assigner.actives.numbers import count_by_member
from faust_assigner.model import NOBODY, Ints
from faust_assigner.standbys.derive import active_load
from faust_assigner.views.placed import RULES, Placed

_TERMS = ("total balance", "group balance", "stickiness", "warmth")
_TIE = "the tie-breaks (whole runs, then the lower id)"
#: Each rule of ``RULES`` as a text that follows the name of the task.
SAID = {
    "kept": "stays with its previous owner",
    "placed": "had no living owner and goes to a member with room in the balance",
    "placed warm": "had no living owner and goes to a member with room and a copy of its state",
    "moved": "moves away from {before}, for the balance",
    "moved warm": "moves away from {before}, for the balance, to a copy of its state",
    "promoted": "lost its owner and goes to a holder of its state, before the balance",
    "follows": "is a changelog and goes to the owner of its source",
    "waits": "stays with its owner until its target member has caught up",
    "returned": "had no living owner and goes back to its owner from before the stop",
}


@dataclass(frozen=True)
class Rejected:
    """A rejected member: its ``term`` of the objective is worse than the chosen member's.

    ``by`` is the difference in this term, 0 if the term has no number.
    """

    member_id: str
    term: str
    by: float

    def __str__(self) -> str:
        return f"{self.member_id} loses by {self.term}" + (f" ({self.by:g})" if self.by else "")


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The reason for a placement: the rule (of ``RULES``), and the rejected members, best first."""

    topic: str
    partition: int
    member_id: str
    previous: str | None
    rule: str
    beaten: tuple[Rejected, ...]
    standbys: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = SAID[self.rule].format(before=self.previous)
        lines = [f"{self.topic}-{self.partition} on {self.member_id}: {said}."]
        lines += [f"  {place}" for place in self.beaten]
        if self.standbys:
            lines.append(f"  standbys: {', '.join(self.standbys)}")
        return "\n".join(lines)


def explain(plan: Placed, topic: str, partition: int, *, most: int = 3) -> Explanation:
    """Return the rule behind a placement and the ``most`` best rejected members.

    Raises ``KeyError`` for a topic without subscribers, and ``IndexError`` for an unknown
    partition.
    """
    g = next((g for g, group in enumerate(plan.groups) if topic in group.topics), None)
    if g is None:
        raise KeyError(f"no member subscribes to topic {topic!r}, or the topic has no partitions")
    count = plan.groups[g].partitions
    if not 0 <= partition < count:
        raise IndexError(f"{topic!r} has partitions 0..{count - 1}, not {partition}")
    rule = RULES[plan.rule[g][partition]]
    before = int(plan.previous_owner[g][partition])
    beaten = _rejected_members(plan, g, partition, rule)
    return Explanation(
        topic=topic,
        partition=partition,
        member_id=plan.member_ids[plan.owner[g][partition]],
        previous=None if before == NOBODY else plan.member_ids[before],
        rule=rule,
        beaten=tuple(beaten[:most]),
        standbys=tuple(
            plan.member_ids[m]
            for m in plan.standby[g][partition].tolist()
            if m != NOBODY and topic in plan.groups[g].changelogs
        ),
    )


def _rejected_members(plan: Placed, g: int, partition: int, rule: str) -> list[Rejected]:
    others = [m for m in plan.groups[g].members.tolist() if m != plan.owner[g][partition]]
    if plan.groups[g].weightless:
        return [Rejected(plan.member_ids[m], "the tie-breaks (it adds no load)", 0) for m in others]
    if rule == "follows":
        return [
            Rejected(plan.member_ids[m], "its source being on another member", 0) for m in others
        ]
    if not plan.groups[g].adds_load:
        return [
            Rejected(plan.member_ids[m], "the even spread of followers without a leader", 0)
            for m in others
        ]
    if rule == "promoted" or (
        rule == "returned" and plan.owner[g][partition] != plan.target[g][partition]
    ):
        return _less_warm_members(plan, g, partition, others)
    if rule == "waits":
        belongs = plan.member_ids[plan.target[g][partition]]
        return [
            Rejected(belongs, "being too far behind", 0),
            *_less_even_members(plan, g, partition, others),
        ]
    return _less_even_members(plan, g, partition, others)


def _marginal_cost(plan: Placed, g: int, owner: Ints, here: int, m: int) -> tuple[float, float]:
    """Return the increase of the sums for total and group balance if a task moved to ``m``.

    The task is of group ``g`` and moves from the member ``here``.
    """
    load, capacity = active_load(plan.layout, owner), plan.layout.capacity
    counts = count_by_member(plan.layout.of(g, owner), load.size)
    rate = rates(capacity)  # capacities as the planner rounds them, as 1 / capacity
    rate = rate / (rate.min() * capacity.max())
    return (
        round(float((2 * load[m] + 1) * rate[m] - (2 * load[here] - 1) * rate[here]), 9),
        float((2 * counts[m] + 1) - (2 * counts[here] - 1)),
    )


def _less_warm_members(plan: Placed, g: int, partition: int, others: list[int]) -> list[Rejected]:
    """Return the reason why each of ``others`` is worse for a promotion, the best member first.

    The criteria in order: the member's part of the state, total balance, group balance, the owner
    before the stop, and the target.
    """
    previous, task = plan.previous, int(plan.layout.start[g]) + partition
    rows = np.flatnonzero(previous.copy_task == task)
    logs = dict(
        zip(previous.copy_member[rows].tolist(), previous.copy_logs[rows].tolist(), strict=True)
    )
    owner, former, target = (
        int(each[task]) for each in (plan.flat_owner, previous.former, plan.flat_target)
    )
    ranked = []
    for m in others:
        costs = (
            float(logs[owner] - logs.get(m, 0)),
            *_marginal_cost(plan, g, plan.flat_owner, owner, m),
            float((owner == former) - (m == former)),
            float((owner == target) - (m == target)),
        )
        ranked.append((costs, m, next((i for i, cost in enumerate(costs) if cost), None)))
    terms = ("less of the state", *_TERMS[:2], "not having owned it before", "its target")
    return [
        Rejected(plan.member_ids[m], _TIE, 0)
        if term is None
        else Rejected(plan.member_ids[m], terms[term], costs[term])
        for costs, m, term in sorted(ranked)
    ]


def _less_even_members(plan: Placed, g: int, partition: int, others: list[int]) -> list[Rejected]:
    """Return the reason why each of ``others`` is worse for this task, the best member first.

    The reason is the first term of the objective that a move of this task alone would change.
    """
    layout, target = plan.layout, plan.flat_target
    here = int(plan.target[g][partition])
    before = int(plan.previous.last_owner[layout.start[g] + partition])
    held = plan.previous.copy_member[plan.previous.copy_task == layout.start[g] + partition]
    warm = np.isin(np.arange(len(layout.member_ids)), held)
    ranked = []
    for m in others:
        if m == here:
            continue
        costs = (
            *_marginal_cost(plan, g, target, here, m),
            float((here == before) - (m == before)),
            float(int(warm[here]) - int(warm[m])),
        )
        term = next((i for i, cost in enumerate(costs) if cost), None)
        ranked.append((costs, m, term))
    return [
        Rejected(plan.member_ids[m], _TIE, 0)
        if term is None
        else Rejected(plan.member_ids[m], _TERMS[term], costs[term])
        for costs, m, term in sorted(ranked, key=lambda row: (row[0], row[1]))
    ]
