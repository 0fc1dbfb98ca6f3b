"""A member's next step towards its target assignment: revoke first, then assign. A pure function.

    keep    = assigned & target              assigned partitions that stay
    revoke  = assigned - keep                assigned partitions outside the target
    wanted  = target - keep                  partitions to assign as soon as they are free

A member with partitions to revoke stays at its epoch until its reported list of owned partitions no longer
has them. Only then does the member reach the target's epoch and receive free partitions. A member holds a
partition while the partition is assigned or being revoked; no other member gets it during this time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from faust_assigner.coordinator.catalogue import Partitions, TopicId
from faust_assigner.coordinator.consumer.partitions import dated, keep, merge, overlaps
from faust_assigner.coordinator.records import CurrentAssignment, Epochs, MemberState


@dataclass(frozen=True, slots=True)
class Aim:
    """A member's target, and the conditions of its next step."""

    epoch: int
    target: Partitions
    #: Subscribed topics that exist: the member gets no partition of any other topic.
    readable: frozenset[TopicId]
    #: Whether a different member holds a partition now.
    taken: Callable[[TopicId, int], bool]
    #: Whether the present request changed the member's subscription.
    reads_anew: bool


def next_step(member: CurrentAssignment, aim: Aim, owned: Partitions | None) -> CurrentAssignment:
    """Return the member after one step, or unchanged if blocked; ``owned`` are its reported partitions."""
    waits = member.state is MemberState.UNREVOKED and _still_owns(owned, member.revoking)
    if not waits and not is_settled(member, aim.epoch):
        return _step_towards(member, aim, owned)
    return _revoke_unsubscribed(member, aim, owned) if aim.reads_anew else member


def is_settled(member: CurrentAssignment, target_epoch: int) -> bool:
    """Return whether the member has reached its target."""
    return member.state is MemberState.STABLE and member.epoch == target_epoch


def _still_owns(owned: Partitions | None, revoking: Epochs) -> bool:
    """Return whether a revocation is pending: the member has not reported a list without the partitions."""
    return owned is None or overlaps(owned, revoking)


def _step_towards(
    member: CurrentAssignment, aim: Aim, owned: Partitions | None
) -> CurrentAssignment:
    wanted = {t: frozenset(parts) for t, parts in aim.target.items() if t in aim.readable}
    kept = keep(member.assigned, lambda t, p: p in wanted.get(t, ()))
    revoke = keep(member.assigned, lambda t, p: p not in wanted.get(t, ()))
    if revoke and _still_owns(owned, revoke):
        return replace(
            member,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED,
            assigned=kept,
            revoking=revoke,
        )
    missing = [
        (t, p) for t in sorted(wanted) for p in sorted(wanted[t]) if p not in kept.get(t, {})
    ]
    free: dict[TopicId, list[int]] = {}
    for topic_id, number in missing:
        if not aim.taken(topic_id, number):
            free.setdefault(topic_id, []).append(number)
    granted = {topic_id: tuple(numbers) for topic_id, numbers in free.items()}
    blocked = sum(map(len, granted.values())) < len(missing)
    return CurrentAssignment(
        aim.epoch,
        member.epoch,
        MemberState.UNRELEASED if blocked else MemberState.STABLE,
        merge(kept, dated(granted, aim.epoch)),
        {},
    )


def _revoke_unsubscribed(
    member: CurrentAssignment, aim: Aim, owned: Partitions | None
) -> CurrentAssignment:
    """Revoke the partitions of unsubscribed topics immediately, whatever the target contains."""
    unread = {t: parts for t, parts in member.assigned.items() if t not in aim.readable}
    if not unread:
        return member
    kept = {t: parts for t, parts in member.assigned.items() if t in aim.readable}
    revoking = merge(member.revoking, unread)
    if _still_owns(owned, revoking):
        return replace(
            member,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED,
            assigned=kept,
            revoking=revoking,
        )
    return replace(member, previous_epoch=member.epoch, assigned=kept)
