"""One member's next step towards its target: give up first, then receive. A pure function.

    keep    = assigned & target              what it has and shall have
    revoke  = assigned - keep                what it has and shall not have
    wanted  = target - keep                  what it shall have and has not: granted where nobody holds it

A member that has something to give up stays at its epoch until its own list of owned partitions shows that
it has; only then does it reach the target's epoch and is granted what is free. A partition is held by whoever
has it assigned or is giving it up, so nobody is granted it before (B2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from faust_assigner.coordinator.catalogue import Partitions, TopicId
from faust_assigner.coordinator.consumer.partitions import dated, keep, merge, overlaps
from faust_assigner.coordinator.records import CurrentAssignment, Epochs, MemberState


@dataclass(frozen=True, slots=True)
class Aim:
    """Where a member is going, and what it may have of it."""

    epoch: int
    target: Partitions
    #: Topics it reads and that exist: of others it is to have nothing, whatever the target says.
    readable: frozenset[TopicId]
    #: Whether somebody else holds a partition now.
    taken: Callable[[TopicId, int], bool]
    #: Whether its subscription is another one since this very request.
    reads_anew: bool


def next_step(member: CurrentAssignment, aim: Aim, owned: Partitions | None) -> CurrentAssignment:
    """The member after one step, or itself when it cannot go on; ``owned`` is what it says it holds."""
    waits = member.state is MemberState.UNREVOKED and _still_owns(owned, member.revoking)
    if not waits and not is_settled(member, aim.epoch):
        return _towards(member, aim, owned)
    return _shed_unread(member, aim, owned) if aim.reads_anew else member


def is_settled(member: CurrentAssignment, target_epoch: int) -> bool:
    """Whether nothing is left to do for it."""
    return member.state is MemberState.STABLE and member.epoch == target_epoch


def _still_owns(owned: Partitions | None, revoking: Epochs) -> bool:
    """Silence counts as yes: only a list without them shows that they were given up."""
    return owned is None or overlaps(owned, revoking)


def _towards(member: CurrentAssignment, aim: Aim, owned: Partitions | None) -> CurrentAssignment:
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


def _shed_unread(
    member: CurrentAssignment, aim: Aim, owned: Partitions | None
) -> CurrentAssignment:
    """It no longer reads a topic: take that away at once, whatever the target still says."""
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
