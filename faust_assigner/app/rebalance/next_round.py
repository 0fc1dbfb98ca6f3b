"""The moves of a possible next round, and the standbys for which they wait. Pure.

A task whose owner died goes to a member with its state (it is promoted), even if the loads become
uneven. A task is off target while its owner is not its target member. The next round, whatever its
cause, restores the balance. This module plans the next round with the planner, to find the moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from faust_assigner.app.rebalance.placement import ByTopic
from faust_assigner.model import NOBODY, Bools, Ints, Member
from faust_assigner.planner import Plan

#: The planner, with all arguments fixed except the members.
Planner: TypeAlias = Callable[[Sequence[Member]], Plan]


def awaited(found: Plan, members: Sequence[Member], plan: Planner) -> dict[str, ByTopic]:
    """Return member -> changelog -> partitions that the next round moves to the member's standbys.

    The result is empty if no task is off target, or if the current owners are balanced as well, so
    that no task would move. Cost: one more plan if a task is off target; else O(tasks).
    """
    following = _plan_next_round(found, members, plan)
    if following is None:
        return {}
    to = _new_owners(found, following)
    return _tasks_by_member(
        found, to, (to != NOBODY) & (found.flat_standby == to[:, None]).any(axis=1)
    )


def with_next_warmups(found: Plan, members: Sequence[Member], plan: Planner) -> Plan:
    """Add the next round's warm-ups to ``found``, a plan that only repeats the last round's target.

    If a task's next owner has no standby of the task, this member gets a warm-up now. Otherwise the
    task would never move to its target. Cost: as :func:`awaited`.
    """
    following = _plan_next_round(found, members, plan)
    if following is None or following.warmup_plan is None:
        return found
    to = _new_owners(found, following)
    to = np.where(to == NOBODY, following.flat_awaited, to)
    stands_by = (found.flat_standby == to[:, None]).any(axis=1)
    warmup = np.where(stands_by, NOBODY, to)
    return replace(found, warmup_plan=replace(following.warmup_plan, warmup=warmup, awaited=to))


def _plan_next_round(found: Plan, members: Sequence[Member], plan: Planner) -> Plan | None:
    """Plan the next round; return None if no stateful task is off target or warming up."""
    off = (found.flat_warmup != NOBODY) | (found.flat_owner != found.flat_target)
    if not bool((_stateful_tasks(found) & off).any()):
        return None
    return plan([_member_after_round(member, found) for member in members])


def _new_owners(found: Plan, following: Plan) -> Ints:
    """Return int64[T]: the new owner of each stateful task that moves, or ``NOBODY``."""
    moves = _stateful_tasks(found) & (following.flat_owner != found.flat_owner)
    return np.where(moves, following.flat_owner, NOBODY)


def _stateful_tasks(found: Plan) -> Bools:
    return found.layout.per_task(lambda group: group.is_stateful)


def _member_after_round(member: Member, found: Plan) -> Member:
    """Return the member with the claims that it will make after this round.

    Its former partitions stay: a member reports them for the whole life of its process.
    """
    return replace(
        member,
        actives=found.actives(member.member_id),
        standbys=found.standbys(member.member_id),
        generation=0,
    )


def _tasks_by_member(found: Plan, who: Ints, tasks: Bools) -> dict[str, ByTopic]:
    by_member: dict[str, ByTopic] = {}
    for group, start, end in zip(
        found.groups, found.layout.start, found.layout.start[1:], strict=False
    ):
        for number in np.flatnonzero(tasks[start:end]).tolist():
            topics = by_member.setdefault(found.member_ids[int(who[start + number])], {})
            for topic in group.changelogs:
                topics.setdefault(topic, []).append(number)
    return by_member
