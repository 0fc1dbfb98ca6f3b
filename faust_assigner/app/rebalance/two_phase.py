"""The two-phase rule: a partition that a living member still processes gets no new owner yet. Pure.

A member that keeps its partitions during a round reports this (``JoinData.holds``). If the plan
moves such a partition, this round's answers do not assign it; they promise it to the new owner. The
current owner revokes the partition. A second round, which follows at once, assigns it (KIP-429) and
keeps the first round's target. The members report this target in their metadata, so any leader of the
second round has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.placement import ByTopic, Placement
from faust_assigner.model import NOBODY, Bools, Claims, Group, Ints, Onward
from faust_assigner.planner import Plan
from faust_assigner.wire.runs import Runs

#: A member's claims may delay this number of consecutive rounds if they are older than the last
#: round. A member that missed one answer needs few rounds: it joins again and receives the next
#: answer.
MOST_HELD_UP = 10


@dataclass(frozen=True)
class Step:
    """The placement of this round, and ``promised``: member -> topic -> partitions.

    A member gets its promised partitions once their owners have revoked them. ``follows``: a second
    round is necessary. ``held_up_by``: the members that delay a move with claims that are older than
    the last round.
    """

    placement: Placement
    promised: Mapping[str, ByTopic] = field(default_factory=dict)
    follows: bool = False
    held_up_by: frozenset[str] = frozenset()


def step(placement: Placement, said: Sequence[MemberClaims]) -> Step:
    """Reduce ``placement`` to the part that can be assigned now. Cost: O(claims).

    A claim counts even if its generation is old: a member that missed the last answer still
    processes its partitions. A claim is ignored if the partition was promised to its new owner in
    the claim's generation or earlier, because the claimant revoked the partition then. Otherwise a
    false claim would block the partition for ever. A member may also report an old generation in
    each round; see :func:`disbelieved`.
    """
    blocked, held_up_by = _blocked(placement, said)
    if not blocked:
        return Step(placement)
    if not all(one.data.is_ours for one in said):
        return Step(_kept(placement, said, blocked), follows=True, held_up_by=held_up_by)
    claims = {one.member_id: one.data for one in said}
    actives: dict[str, ByTopic] = {}
    standbys: dict[str, ByTopic] = {m: dict(topics) for m, topics in placement.standbys.items()}
    promised: dict[str, ByTopic] = {}
    for m, topics in placement.actives.items():
        actives[m] = {}
        for topic, numbers in topics.items():
            mask = blocked.get((placement.group_ids[topic], m))
            later = [] if mask is None else [p for p in numbers if mask[p]]
            if len(later) < len(numbers):
                actives[m][topic] = (
                    [p for p in numbers if p not in set(later)] if later else numbers
                )
            if later:
                promised.setdefault(m, {})[topic] = later
                # The new owner keeps its existing standbys of these partitions until the second
                # round.
                if kept := [p for p in later if p in Runs.of(claims[m].standbys.get(topic, ()))]:
                    standbys[m][topic] = sorted({*standbys[m].get(topic, ()), *kept})
    return Step(
        replace(placement, actives=actives, standbys=standbys),
        promised,
        follows=True,
        held_up_by=held_up_by,
    )


def held_up(before: Mapping[str, int], by: Collection[str]) -> dict[str, int]:
    """Return member -> number of consecutive rounds delayed by the member, including this round."""
    return {m: before.get(m, 0) + 1 for m in by}


def disbelieved(
    said: Sequence[MemberClaims], rounds: Mapping[str, int]
) -> tuple[MemberClaims, ...]:
    """Refuse the claims of members that have delayed ``MOST_HELD_UP`` consecutive rounds.

    ``rounds``: member -> consecutive rounds that the member has delayed.
    """
    return tuple(
        replace(
            one,
            data=replace(one.data, holds=False),
            refused=one.refused
            or (
                "has blocked partitions that are assigned to other members for "
                f"{rounds[one.member_id]} rounds, with old claims"
            ),
        )
        if one.data.holds and rounds.get(one.member_id, 0) >= MOST_HELD_UP
        else one
        for one in said
    )


def _kept(
    placement: Placement, said: Sequence[MemberClaims], blocked: Mapping[tuple[int, str], Bools]
) -> Placement:
    """Leave blocked partitions with their current owners, in a group that has stock members.

    Stock members cannot report promised partitions. With stock members rounds are eager: all
    members revoke all partitions before the second round, and the leader makes a new plan for it. A
    revoked partition
    that no member claims would go to a member with a standby.
    """
    actives = {
        m: {
            t: [p for p in numbers if not _is_in(blocked, placement.group_ids[t], m, p)]
            for t, numbers in topics.items()
        }
        for m, topics in placement.actives.items()
    }
    standbys = {m: dict(topics) for m, topics in placement.standbys.items()}
    for one in said:
        if not one.data.holds or one.member_id not in actives:
            continue
        for topic in one.data.actives.keys() & placement.owners.keys():
            owner = placement.owners[topic]
            own = [
                p
                for p in _numbers(one.data.actives[topic], owner.size).tolist()
                if owner[p] != NOBODY
                and _is_in(blocked, placement.group_ids[topic], placement.member_ids[owner[p]], p)
            ]
            if own:
                actives[one.member_id][topic] = sorted(
                    {*actives[one.member_id].get(topic, ()), *own}
                )
                if spare := standbys[one.member_id].get(topic):
                    standbys[one.member_id][topic] = [p for p in spare if p not in set(own)]
    return replace(placement, actives=actives, standbys=standbys)


def _is_in(
    blocked: Mapping[tuple[int, str], Bools], group_id: int, member_id: str, number: int
) -> bool:
    mask = blocked.get((group_id, member_id))
    return mask is not None and bool(mask[number])


def _blocked(
    placement: Placement,
    said: Sequence[MemberClaims],
) -> tuple[dict[tuple[int, str], Bools], frozenset[str]]:
    """Return (group id, new owner) -> bool[partitions], and the members that delay moves.

    A partition is True (blocked) if a different member still processes it; one blocked topic blocks
    the whole task. The mapping is empty if no task is blocked. The returned members delay moves
    with claims that are older than the last round.
    """
    index = {m: i for i, m in enumerate(placement.member_ids)}
    holders = [one for one in said if one.data.holds]
    if not holders:
        return {}, frozenset()
    newest = max(one.data.generation for one in said)
    old = set()
    settled, theirs = _settled(placement, said, index), _processed(placement, said, index)
    found: dict[tuple[int, str], Bools] = {}
    for one in holders:
        for topic in sorted(one.data.actives.keys() & placement.owners.keys()):
            owner = placement.owners[topic]
            claimed = _numbers(one.data.actives[topic], owner.size)
            elsewhere = (owner[claimed] != index.get(one.member_id, NOBODY)) & (
                owner[claimed] != NOBODY
            )
            away = claimed[
                elsewhere
                & (one.data.generation < settled[topic][claimed])
                & (one.data.generation > theirs[topic][claimed])
            ]
            if away.size and one.data.generation < newest:
                old.add(one.member_id)
            for m in np.unique(owner[away]).tolist():
                key = (placement.group_ids[topic], placement.member_ids[m])
                mask = found.setdefault(key, np.zeros(owner.size, dtype=np.bool_))
                mask[away[owner[away] == m]] = True
    return found, frozenset(old)


def _settled(
    placement: Placement, said: Sequence[MemberClaims], index: Mapping[str, int]
) -> dict[str, Ints]:
    """Return topic -> int64[partitions]: the generation of the promise to the new owner.

    From this generation on, a claim by any other member is false.
    """
    never = np.iinfo(np.int64).max
    settled = {topic: np.full(owner.size, never) for topic, owner in placement.owners.items()}
    for one in said:
        for topic, own in _own(placement, one, one.data.promised, index):
            settled[topic][own] = one.data.generation
    return settled


def _processed(
    placement: Placement, said: Sequence[MemberClaims], index: Mapping[str, int]
) -> dict[str, Ints]:
    """Return topic -> int64[partitions]: the generation of the new owner's own claim, if any.

    Only claims of members that process their partitions during the round count. Up to this
    generation, a claim by any other member is false. A newer claim of a different member shows that
    the new owner missed a round.
    """
    nobody = np.iinfo(np.int64).min
    theirs = {topic: np.full(owner.size, nobody) for topic, owner in placement.owners.items()}
    for one in said:
        for topic, own in _own(placement, one, one.data.actives, index) if one.data.holds else ():
            theirs[topic][own] = one.data.generation
    return theirs


def _own(
    placement: Placement, one: MemberClaims, claims: Claims, index: Mapping[str, int]
) -> Iterator[tuple[str, Ints]]:
    """Yield (topic, the partitions in ``claims`` that ``placement`` gives to the member)."""
    for topic in claims.keys() & placement.owners.keys():
        owner = placement.owners[topic]
        numbers = _numbers(claims[topic], owner.size)
        yield topic, numbers[owner[numbers] == index.get(one.member_id, NOBODY)]


def landed(found: Plan, said: Sequence[MemberClaims]) -> Plan:
    """Return ``found``, or the previous round's target if this round only completes that round.

    A round completes the previous round if it has the same members and all of them received the
    answer. A new plan would return tasks to their old owners, which are now standbys, and the group
    would rebalance for ever.
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
            mine = [_all(claim, group, every=True) for claim in (data.actives, data.promised)]
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
    onward = found.onward and Onward(owner, warmup, warmup, found.onward.disbelieved)
    return replace(found, flat_owner=owner, flat_standby=standby, onward=onward)


def _all(claims: Claims, group: Group, *, every: bool) -> Ints:
    """Return the claimed task numbers of ``group``, read from the claim on one topic.

    ``every`` selects all topics of the group; without it only the changelogs are selected. The first
    selected topic is read. The result is empty unless all selected topics have claims.
    """
    named = group.topics if every else group.changelogs
    if not named or not all(topic in claims for topic in named):
        return np.empty(0, dtype=np.int64)
    return _numbers(claims[named[0]], group.partitions)


def _seat(seats: Ints, spare: Ints, owner: Ints, claims: Sequence[Claims], group: Group) -> None:
    """Fill ``seats``, int64[n, R], with the members that claim a standby, without the task's owner.

    If a task has no free seat left, the member goes into ``spare``: its copy is the task's warm-up.
    """
    taken = np.zeros(owner.size, dtype=np.int64)
    for m, claim in enumerate(claims):
        numbers = _all(claim, group, every=False)
        numbers = numbers[owner[numbers] != m]
        free = taken[numbers] < seats.shape[1]
        spare[numbers[~free]] = m
        numbers = numbers[free]
        seats[numbers, taken[numbers]] = m
        taken[numbers] += 1


def _numbers(claim: object, count: int) -> Ints:
    return np.asarray(Runs.of(claim).below(count).numbers(), dtype=np.int64)  # type: ignore[arg-type]
