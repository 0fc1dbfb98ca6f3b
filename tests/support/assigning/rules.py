"""Promises checked by the simulator on virtual time and by tests on real processes: C3 and C9."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from faust_assigner.service.handoff import Handoff, HandoffEvent, TopicPartition, step
from faust_assigner.service.handoff import state_of as where
from faust_assigner.service.keys import Keys
from faust_assigner.service.records import Assigned, names_itself
from faust_assigner.service.serving.answering import OF_OLD_OWNER, SAID
from faust_assigner.service.store.base import Compare, Field, Put, Write
from faust_assigner.service.view import Entry


def uncompared(keys: Keys, compares: Sequence[Compare], writes: Sequence[Write]) -> Iterator[str]:
    """C3: writes without a compare of the leader's key, or of the changed object's revision."""
    compared = {compare.key: compare for compare in compares}
    guard = compared.get(keys.leader)
    for write in writes:
        kind, _ = keys.kind(write.key)
        own = compared.get(write.key)
        begins = (
            kind == "handoffs" and isinstance(write, Put) and own is not None and own.expected == 0
        )
        leads = begins or kind in ("assignments", "cooldowns", "replicas")
        if leads and (guard is None or guard.field is not Field.MOD_REVISION):
            yield f"C3 the leader's key is compared: {write}"
        fields = (Field.MOD_REVISION, Field.CREATE_REVISION)
        if kind in ("assignments", "handoffs", "consumers", "assigner", "epochs") and (
            own is None or own.field not in fields
        ):
            yield f"C3 the object's revision is compared: {write}"


#: The first assigner's clients send no hand-off id.
NO_ID = 0


@dataclass(frozen=True)
class Said:
    """An answer of a consumer, and whether it was refused. Times in seconds of one clock."""

    at: TopicPartition
    name: str
    event: HandoffEvent
    handoff_id: int
    sent: float
    answered: float
    refused: bool
    incarnation: str = ""


@dataclass(frozen=True)
class Moment:
    """A state of a partition's hand-off and assignment, begun between ``earliest`` and ``latest``."""

    earliest: float
    latest: float
    handoff: Entry[Handoff] | None
    owner: Assigned | None


NOTHING = Moment(0.0, 0.0, None, None)


def fits(moments: Sequence[Moment], answer: Said) -> bool:
    """C9: the answer fits the model in some state between request and answer.

    ``moments`` are those of the answer's partition, in order. A hand-off is one key, so a history
    is linearizable if each answer fits its own interval: accepted where the table accepts the event
    or has accepted it before, refused elsewhere.
    """
    seen = during(moments, answer)
    # Without a hand-off the owner is read later: both may be of different moments.
    return any(
        _refused(answer, one.handoff, other.owner) == answer.refused
        for one in seen
        for other in seen
    )


def during(moments: Sequence[Moment], answer: Said) -> list[Moment]:
    """Return the states that may have held between request and answer."""
    seen = [NOTHING]
    for moment in moments:
        if moment.latest <= answer.sent:
            seen = [moment]  # earlier states are over when the request is sent
        elif moment.earliest <= answer.answered:
            seen.append(moment)
    return seen


def _is(answer: Said, name: str, incarnation: str) -> bool:
    """Return whether the answer is of that process; without an incarnation, by its name."""
    is_named = answer.incarnation == "" and not names_itself(incarnation)
    return answer.name == name and (answer.incarnation == incarnation or is_named)


def _refused(answer: Said, entry: Entry[Handoff] | None, owner: Assigned | None) -> bool:
    """Return whether the model refuses this answer in this state."""
    if entry is None:
        owns = owner is not None and _is(answer, owner.owner, owner.incarnation)
        return owner is None or owns != (answer.event is HandoffEvent.WARM)
    if answer.handoff_id not in (NO_ID, entry.kv.create_revision):
        return True
    handoff = entry.value
    right = (
        (handoff.old_owner, handoff.old_incarnation)
        if answer.event in OF_OLD_OWNER
        else (handoff.new_owner, handoff.new_incarnation)
    )
    if not _is(answer, *right):
        return True
    state = where(handoff)
    says = step(state, answer.event, strict=handoff.strict)
    return state not in SAID[answer.event] and says is None
