"""The two-phase rule: a partition that a living member still processes gets no new owner yet. Pure.

A member that keeps its partitions during a round reports this (``JoinData.holds``). If the plan
moves such a partition, this round's answers do not assign it; they promise it to the new owner. The
current owner revokes the partition. A second round, which follows at once, assigns it (KIP-429) and
keeps the first round's target. The members report this target in their metadata, so any leader of the
second round has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from faust_assigner.app.rebalance.member_claims import MemberClaims
from faust_assigner.app.rebalance.placement import ByTopic, Placement
from faust_assigner.model import NOBODY, Bools, Claims, Ints
from faust_assigner.wire.runs import Runs


@dataclass(frozen=True)
class RoundStep:
    """The placement of this round, and ``promised``: member -> topic -> partitions.

    A member gets its promised partitions once their owners have revoked them. ``follows``: a second
    round is necessary. ``held_up_by``: the members that delay a move with claims that are older than
    the last round.
    """

    placement: Placement
    promised: Mapping[str, ByTopic] = field(default_factory=dict)
    follows: bool = False
    held_up_by: frozenset[str] = frozenset()


def step(
    placement: Placement, said: Sequence[MemberClaims], *, is_cooperative: bool = False
) -> RoundStep:
    """Reduce ``placement`` to the part that can be assigned now. Cost: O(claims).

    A claim counts even if its generation is old: a member that missed the last answer still
    processes its partitions. A claim is ignored if the partition was promised to its new owner in
    the claim's generation or earlier, because the claimant revoked the partition then. Otherwise a
    false claim would block the partition for ever. A member may also report an old generation in
    each round; see :func:`~faust_assigner.app.rebalance.doubts.refuse_overdue_claims`.

    A member without our data cannot report promised partitions. In an eager round (without
    ``is_cooperative``) it is a stock member, and the second round is eager, too. In a cooperative
    round its metadata is unreadable. It gets no partition that another member processes, and after
    one try no second round follows for it: the rounds would never end.
    """
    blocked, held_up_by = _blocked_moves(placement, said)
    if not blocked:
        return RoundStep(placement)
    mute = {one.member_id for one in said if not one.data.is_ours}
    if mute and not is_cooperative:
        return RoundStep(
            _leave_blocked_with_owners(placement, said, blocked),
            follows=True,
            held_up_by=held_up_by,
        )
    if unpromised := {key: mask for key, mask in blocked.items() if key[1] in mute}:
        placement = _leave_blocked_with_owners(placement, said, unpromised)
        blocked = {key: mask for key, mask in blocked.items() if key not in unpromised}
    placement, promised = _promise_blocked(placement, said, blocked)
    return RoundStep(
        placement,
        promised,
        follows=bool(promised) or not any(one.data.holds and one.data.among for one in said),
        held_up_by=held_up_by,
    )


def _promise_blocked(
    placement: Placement, said: Sequence[MemberClaims], blocked: Mapping[tuple[int, str], Bools]
) -> tuple[Placement, dict[str, ByTopic]]:
    """Return ``placement`` without the blocked partitions, and these by their new owner and topic."""
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
    return replace(placement, actives=actives, standbys=standbys), promised


def _leave_blocked_with_owners(
    placement: Placement, said: Sequence[MemberClaims], blocked: Mapping[tuple[int, str], Bools]
) -> Placement:
    """Leave blocked partitions with their current owners, in a group with members without our data.

    With stock members rounds are eager: all members revoke all partitions before the second round,
    and the leader makes a new plan for it. A revoked partition that no member claims would go to a
    member with a standby.
    """
    actives = {
        m: {
            t: [p for p in numbers if not _is_in(blocked, placement.group_ids[t], m, p)]
            for t, numbers in topics.items()
        }
        for m, topics in placement.actives.items()
    }
    standbys = {m: dict(topics) for m, topics in placement.standbys.items()}
    for (m, topic), own in _tasks_of_holders(placement, said, blocked).items():
        actives[m][topic] = sorted({*actives[m].get(topic, ()), *own})
        if spare := standbys[m].get(topic):
            standbys[m][topic] = [p for p in spare if p not in own]
    return replace(placement, actives=actives, standbys=standbys)


def _tasks_of_holders(
    placement: Placement, said: Sequence[MemberClaims], blocked: Mapping[tuple[int, str], Bools]
) -> dict[tuple[str, str], set[int]]:
    """Return (member, topic) -> its blocked partitions, also of topics that no member claims yet.

    Of several claims on a partition, the claim of the newest generation counts.
    """
    found: dict[tuple[str, str], set[int]] = {}
    keepers: dict[tuple[int, int], MemberClaims] = {}
    claimed: set[tuple[str, int]] = set()
    for one in sorted(said, key=lambda one: -one.data.generation):
        if not one.data.holds or one.member_id not in placement.actives:
            continue
        for topic in one.data.actives.keys() & placement.owners.keys():
            owner, group_id = placement.owners[topic], placement.group_ids[topic]
            own = {
                p
                for p in claimed_numbers(one.data.actives[topic], owner.size).tolist()
                if owner[p] != NOBODY
                and _is_in(blocked, group_id, placement.member_ids[owner[p]], p)
                and (topic, p) not in claimed
            }
            claimed |= {(topic, p) for p in own}
            if own:
                found[one.member_id, topic] = own
                keepers |= {(group_id, p): one for p in own}
    for (group_id, p), one in keepers.items():
        for topic in one.topics:
            if placement.group_ids.get(topic) == group_id and (topic, p) not in claimed:
                found.setdefault((one.member_id, topic), set()).add(p)
    return found


def _is_in(
    blocked: Mapping[tuple[int, str], Bools], group_id: int, member_id: str, number: int
) -> bool:
    mask = blocked.get((group_id, member_id))
    return mask is not None and bool(mask[number])


def _blocked_moves(
    placement: Placement, said: Sequence[MemberClaims]
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
    settled, theirs = (
        _promise_generations(placement, said, index),
        _claim_generations(placement, said, index),
    )
    found: dict[tuple[int, str], Bools] = {}
    for one in holders:
        for topic in sorted(one.data.actives.keys() & placement.owners.keys()):
            owner = placement.owners[topic]
            claimed = claimed_numbers(one.data.actives[topic], owner.size)
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


def _promise_generations(
    placement: Placement, said: Sequence[MemberClaims], index: Mapping[str, int]
) -> dict[str, Ints]:
    """Return topic -> int64[partitions]: the generation of the promise to the new owner.

    From this generation on, a claim by any other member is false.
    """
    never = np.iinfo(np.int64).max
    settled = {topic: np.full(owner.size, never) for topic, owner in placement.owners.items()}
    for one in said:
        for topic, own in _claimed_and_placed(placement, one, one.data.promised, index):
            settled[topic][own] = one.data.generation
    return settled


def _claim_generations(
    placement: Placement, said: Sequence[MemberClaims], index: Mapping[str, int]
) -> dict[str, Ints]:
    """Return topic -> int64[partitions]: the generation of the new owner's own claim, if any.

    Only claims of members that process their partitions during the round count. A claim by any other
    member is false unless its generation is newer. A newer claim shows that the new owner missed a
    round.
    """
    nobody = np.iinfo(np.int64).min
    theirs = {topic: np.full(owner.size, nobody) for topic, owner in placement.owners.items()}
    for one in said:
        for topic, own in (
            _claimed_and_placed(placement, one, one.data.actives, index) if one.data.holds else ()
        ):
            theirs[topic][own] = one.data.generation
    return theirs


def _claimed_and_placed(
    placement: Placement, one: MemberClaims, claims: Claims, index: Mapping[str, int]
) -> Iterator[tuple[str, Ints]]:
    """Yield (topic, the partitions in ``claims`` that ``placement`` gives to the member)."""
    for topic in claims.keys() & placement.owners.keys():
        owner = placement.owners[topic]
        numbers = claimed_numbers(claims[topic], owner.size)
        yield topic, numbers[owner[numbers] == index.get(one.member_id, NOBODY)]


def claimed_numbers(claim: object, count: int) -> Ints:
    """Return the claimed partition numbers below ``count``, as int64[n]."""
    return np.asarray(Runs.of(claim).below(count).numbers(), dtype=np.int64)  # type: ignore[arg-type]
