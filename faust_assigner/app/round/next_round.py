"""Whether one more round would move anything, and on which warm copies it waits. Pure.

A promoted task goes where its state lives, even against the balance. Once its owner is alive the next
round, whoever causes it, puts it right. The planner itself tells what that round would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from faust_assigner.app.round.placement import ByTopic
from faust_assigner.model import NOBODY, Bools, Ints, Member
from faust_assigner.planner import Plan

#: The planner with everything but the members settled.
Planner: TypeAlias = Callable[[Sequence[Member]], Plan]


def awaited(found: Plan, members: Sequence[Member], plan: Planner) -> dict[str, ByTopic]:
    """Member -> changelog -> partitions that come to it in the next round, out of its standbys of this one.

    With warm-ups also those that come to it once its copy has caught up.

    Empty where nothing is off target, or where off target is as balanced, so that nothing would move.
    Cost: one plan more where something is off target; else O(tasks).
    """
    stateful = found.layout.per_task(lambda group: group.is_stateful)
    warming = found.flat_warmup != NOBODY
    if not bool((stateful & (warming | (found.flat_owner != found.flat_target))).any()):
        return {}
    following = plan([_settled(member, found) for member in members])
    to = np.where(following.flat_owner != found.flat_owner, following.flat_owner, following.flat_awaited)
    to = np.where(warming & (to == NOBODY), found.flat_warmup, to)
    return _by_member(found, to, stateful & (to != NOBODY) & _stands_by(found, to))


def _settled(member: Member, found: Plan) -> Member:
    """The member as it will say of itself what this round gives it.

    What it owned before it stopped it goes on saying as long as it lives.
    """
    return replace(member, actives=found.actives(member.member_id),
                   standbys=found.standbys(member.member_id), generation=0)


def _stands_by(found: Plan, who: Ints) -> Bools:
    """bool[T]: ``who`` of each task is one of its standbys, or warms up."""
    there: Bools = (found.flat_standby == who[:, None]).any(axis=1) | (found.flat_warmup == who)
    return there


def _by_member(found: Plan, who: Ints, tasks: Bools) -> dict[str, ByTopic]:
    by_member: dict[str, ByTopic] = {}
    for group, start, end in zip(found.groups, found.layout.start, found.layout.start[1:], strict=False):
        for number in np.flatnonzero(tasks[start:end]).tolist():
            topics = by_member.setdefault(found.member_ids[int(who[start + number])], {})
            for topic in group.changelogs:
                topics.setdefault(topic, []).append(number)
    return by_member
