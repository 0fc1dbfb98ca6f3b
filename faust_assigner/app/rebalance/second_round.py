"""The second round: it completes the previous round's target instead of making a new plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.two_phase import claimed_numbers
from faust_assigner.model import NOBODY, Claims, Group, Ints, WarmupPlan
from faust_assigner.planner import Plan


def landed(found: Plan, said: Sequence[MemberClaims]) -> Plan:
    """Return ``found``, or the previous round's target if this round only completes that round.

    A round completes the previous round if it has the same members and all of them received the
    answer. A new plan would return tasks to their old owners, which are standbys now. The group would
    then rebalance for ever.
    """
    dates = {(one.data.generation, one.data.among) for one in said}
    if len(dates) != 1 or min(dates)[1] != len(said):
        return found
    claims = {one.member_id: one.data for one in said}
    owner, standby = found.flat_owner.copy(), np.full_like(found.flat_standby, NOBODY)
    warmup = np.full_like(owner, NOBODY)
    for g, group in enumerate(found.groups):
        for m, member_id in enumerate(found.member_ids):
            data = claims[member_id]
            mine = [
                _claimed_numbers(claim, group, every=True)
                for claim in (data.actives, data.promised)
            ]
            own = found.layout.of(g, owner)
            own[np.concatenate(mine)] = m
        seats = standby[found.layout.start[g] : found.layout.start[g + 1]]
        _seat(
            seats,
            found.layout.of(g, warmup),
            found.layout.of(g, owner),
            [claims[m].standbys for m in found.member_ids],
            group,
        )
    warmup_plan = found.warmup_plan and WarmupPlan(
        owner, warmup, warmup, found.warmup_plan.disbelieved
    )
    return replace(found, flat_owner=owner, flat_standby=standby, warmup_plan=warmup_plan)


def _claimed_numbers(claims: Claims, group: Group, *, every: bool) -> Ints:
    """Return the claimed task numbers of ``group``, read from the claim on one topic.

    ``every`` selects all topics of the group; without it only the changelogs are selected. The first
    selected topic is read. The result is empty unless all selected topics have claims.
    """
    named = group.topics if every else group.changelogs
    if not named or not all(topic in claims for topic in named):
        return np.empty(0, dtype=np.int64)
    return claimed_numbers(claims[named[0]], group.partitions)


def _seat(seats: Ints, spare: Ints, owner: Ints, claims: Sequence[Claims], group: Group) -> None:
    """Fill ``seats``, int64[n, R], with the members that claim a standby, without the task's owner.

    If a task has no free seat left, the member goes into ``spare``: its copy is the task's warm-up.
    """
    taken = np.zeros(owner.size, dtype=np.int64)
    for m, claim in enumerate(claims):
        numbers = _claimed_numbers(claim, group, every=False)
        numbers = numbers[owner[numbers] != m]
        free = taken[numbers] < seats.shape[1]
        spare[numbers[~free]] = m
        numbers = numbers[free]
        seats[numbers, taken[numbers]] = m
        taken[numbers] += 1
