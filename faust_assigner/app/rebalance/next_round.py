"""The moves of a possible next round, and the warm copies on which they wait. Pure.

A promoted task goes to a member with its state, even against the balance. Once its owner is alive,
the next round, whatever its cause, restores the balance. The planner itself computes this next
round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from faust_assigner.app.rebalance.placement import ByTopic
from faust_assigner.model import NOBODY, Bools, Ints, Member
from faust_assigner.planner import Plan

#: The planner with all arguments except the members fixed.
Planner: TypeAlias = Callable[[Sequence[Member]], Plan]


def awaited(found: Plan, members: Sequence[Member], plan: Planner) -> dict[str, ByTopic]:
    """Return member -> changelog -> partitions that the next round moves to the member's standbys.

    Empty if no task is off target, or if the current owners are as balanced, so that no task would
    move. Cost: one more plan if a task is off target; else O(tasks).
    """
    following = _following(found, members, plan)
    if following is None:
        return {}
    to = _moves(found, following)
    return _by_member(found, to, (to != NOBODY) & (found.flat_standby == to[:, None]).any(axis=1))


def going_on(found: Plan, members: Sequence[Member], plan: Planner) -> Plan:
    """Add the next round's warm-ups to ``found``, which only reaches the previous round's target.

    If a task's next owner has no standby of the task, this member gets a copy now. Without an
    awaited copy the group would stay off target. Cost: as :func:`awaited`.
    """
    following = _following(found, members, plan)
    if following is None or following.onward is None:
        return found
    to = _moves(found, following)
    to = np.where(to == NOBODY, following.flat_awaited, to)
    stands_by = (found.flat_standby == to[:, None]).any(axis=1)
    warmup = np.where(stands_by, NOBODY, to)
    return replace(found, onward=replace(following.onward, warmup=warmup, awaited=to))


def _following(found: Plan, members: Sequence[Member], plan: Planner) -> Plan | None:
    """Plan the next round; return None if no stateful task is off target or warming up."""
    off = (found.flat_warmup != NOBODY) | (found.flat_owner != found.flat_target)
    if not bool((_stateful(found) & off).any()):
        return None
    return plan([_settled(member, found) for member in members])


def _moves(found: Plan, following: Plan) -> Ints:
    """Return int64[T]: the new owner of each stateful task that moves, or ``NOBODY``."""
    moves = _stateful(found) & (following.flat_owner != found.flat_owner)
    return np.where(moves, following.flat_owner, NOBODY)


def _stateful(found: Plan) -> Bools:
    return found.layout.per_task(lambda group: group.is_stateful)


def _settled(member: Member, found: Plan) -> Member:
    """Return the member with the claims that it makes after this round.

    A member reports its former partitions for its whole life.
    """
    return replace(
        member,
        actives=found.actives(member.member_id),
        standbys=found.standbys(member.member_id),
        generation=0,
    )


def _by_member(found: Plan, who: Ints, tasks: Bools) -> dict[str, ByTopic]:
    by_member: dict[str, ByTopic] = {}
    for group, start, end in zip(
        found.groups, found.layout.start, found.layout.start[1:], strict=False
    ):
        for number in np.flatnonzero(tasks[start:end]).tolist():
            topics = by_member.setdefault(found.member_ids[int(who[start + number])], {})
            for topic in group.changelogs:
                topics.setdefault(topic, []).append(number)
    return by_member
