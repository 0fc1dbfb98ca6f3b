"""Why there was a round, and what became of the tasks: for log, metrics, ledger and members."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.model import NOBODY
from faust_assigner.planner import Plan
from faust_assigner.wire.outcome import MOST_NAMED, Outcome

#: A longer URL is cut: the leader's answer counts in the group's record.
_NAME_CHARS = 120


def outcome_of(
    inputs: DecisionInputs, plan: Plan | None, *, at: float, first: Outcome | None = None
) -> Outcome:
    """What members are told of a round that was decided ``at`` (seconds since 1970).

    ``first`` is the outcome of the round that left something to this one: its reason is that of both.
    """
    told = Outcome(
        trigger=inputs.trigger,
        completes="" if first is None else first.completes or first.trigger,
        decided_at=max(0, int(at)),
        members=len(inputs.members),
        joined=_named(inputs.joined) or (() if first is None else first.joined),
        left=_named(inputs.left) or (() if first is None else first.left),
        is_planned=plan is not None,
        leads=True,
    )
    if plan is None:
        return told
    return Outcome(
        **vars(told)
        | {
            "tasks": plan.layout.tasks,
            "moved": moved_tasks(plan),
            "cold": int(np.count_nonzero(plan.flat_cold)),
            "off_target": int(np.count_nonzero(plan.flat_owner != plan.flat_target)),
            "warming": int(np.count_nonzero(plan.flat_warmup != NOBODY)),
        }
    )


def _named(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(url[:_NAME_CHARS] for url in sorted(urls)[:MOST_NAMED])


def moved_tasks(plan: Plan) -> int:
    """How many tasks have another owner than before, those of a dead owner that a copy takes over included.

    Topics that carry no work do not count. The log, the ledger and ``history`` all mean this number.
    """
    works = plan.layout.per_task(lambda group: not group.weightless)
    return int(np.count_nonzero(plan.flat_moved & works))


def trigger(before: DecisionInputs | None, now: DecisionInputs) -> str:
    """What changed since the last decision, the likely cause of the rebalance.

    A leader that made no decision before compares with the last assignment that it was given.
    """
    if before is None:
        if not any(m.actives for m in now.members):
            return "first"
        came_and_went = (("join", now.joined), ("leave", now.left))
        return "+".join(cause for cause, found in came_and_went if found) or "rejoin"
    old = {m.member_id: frozenset(m.topics) for m in before.members}
    new = {m.member_id: frozenset(m.topics) for m in now.members}
    causes = [
        ("join", new.keys() - old.keys()),
        ("leave", old.keys() - new.keys()),
        ("subscription", {m for m in new.keys() & old.keys() if new[m] != old[m]}),
        ("partitions", set(before.partitions.items()) ^ set(now.partitions.items())),
    ]
    return "+".join(cause for cause, found in causes if found) or "rejoin"
