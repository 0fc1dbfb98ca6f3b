"""The cause and the result of a round, for the log, the metrics, the ledger and the members."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.model import NOBODY, Bools
from faust_assigner.planner import Plan
from faust_assigner.wire.outcome import MOST_NAMED, Outcome

#: Longer URLs are cut to this number of characters, because Kafka limits the size of a group's
#: answers.
_NAME_CHARS = 120


def outcome_of(
    inputs: DecisionInputs, plan: Plan | None, *, at: float, first: Outcome | None = None
) -> Outcome:
    """Return the outcome, for the answers, of a round decided ``at`` (seconds since 1970).

    ``first`` is the outcome of the round that this round completes. The trigger of that round is
    the cause of both rounds.
    """
    told = Outcome(
        trigger=inputs.trigger,
        completes="" if first is None else first.completes or first.trigger,
        decided_at=max(0, int(at)),
        members=len(inputs.members),
        joined=_shown_names(inputs.joined) or (() if first is None else first.joined),
        left=_shown_names(inputs.left) or (() if first is None else first.left),
        is_planned=plan is not None,
        leads=True,
    )
    if plan is None:
        return told
    return Outcome(
        **vars(told)
        | {
            "tasks": int(np.count_nonzero(loads(plan))),
            "moved": moved_tasks(plan),
            "cold": int(np.count_nonzero(plan.flat_cold)),
            "off_target": int(np.count_nonzero(plan.flat_owner != plan.flat_target)),
            "warming": int(np.count_nonzero(plan.flat_warmup != NOBODY)),
        }
    )


def _shown_names(urls: Iterable[str]) -> tuple[str, ...]:
    return tuple(url[:_NAME_CHARS] for url in sorted(urls)[:MOST_NAMED])


def moved_tasks(plan: Plan) -> int:
    """Return the number of tasks with a new owner, including tasks whose owner died.

    Weightless tasks do not count. The log, the ledger and ``history`` use this number.
    """
    return int(np.count_nonzero(plan.flat_moved & loads(plan)))


def loads(plan: Plan) -> Bools:
    """Return for each task whether it is a load; the task of Faust's leader topic is none."""
    return plan.layout.per_task(lambda group: not group.weightless)


def trigger(before: DecisionInputs | None, now: DecisionInputs) -> str:
    """Return the changes since the last decision, the likely cause of the round: "join+leave".

    A leader without an earlier decision compares with its own last assignment. The result is
    "first" if no member had partitions, and "rejoin" without a change.
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
