"""Whether one more round would move anything, and on which warm copies it waits. Pure.

A promoted task goes where its state lives, even against the balance. Once its owner is alive the next
round, whoever causes it, puts it right. The planner itself tells what that round would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from faust_assigner.app.rebalance.placement import ByTopic
from faust_assigner.model import NOBODY, Bools, Ints, Member
from faust_assigner.planner import Plan

#: The planner with everything but the members settled.
Planner: TypeAlias = Callable[[Sequence[Member]], Plan]


def awaited(found: Plan, members: Sequence[Member], plan: Planner) -> dict[str, ByTopic]:
    """Member -> changelog -> partitions that come to it in the next round, out of its standbys of this one.

    Empty where nothing is off target, or where off target is as balanced, so that nothing would move.
    Cost: one plan more where something is off target; else O(tasks).
    """
    following = _following(found, members, plan)
    if following is None:
        return {}
    to = _moves(found, following)
    return _by_member(found, to, (to != NOBODY) & (found.flat_standby == to[:, None]).any(axis=1))


def going_on(found: Plan, members: Sequence[Member], plan: Planner) -> Plan:
    """``found``, which only reaches the target of the round before, with the warm-ups that come after it.

    Who is to get a task and does not stand by gets its copy now: a group without anybody who waits for a
    copy would rest where it is. Cost: as :func:`awaited`.
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
    """The next round, None where it would move nothing."""
    off = (found.flat_warmup != NOBODY) | (found.flat_owner != found.flat_target)
    if not bool((_stateful(found) & off).any()):
        return None
    return plan([_settled(member, found) for member in members])


def _moves(found: Plan, following: Plan) -> Ints:
    """int64[T]: the new owner of each stateful task that moves, or ``NOBODY``."""
    moves = _stateful(found) & (following.flat_owner != found.flat_owner)
    return np.where(moves, following.flat_owner, NOBODY)


def _stateful(found: Plan) -> Bools:
    return found.layout.per_task(lambda group: group.is_stateful)


def _settled(member: Member, found: Plan) -> Member:
    """The member as it will say of itself what this round gives it.

    What it owned before it stopped it goes on saying as long as it lives.
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
