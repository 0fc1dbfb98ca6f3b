"""The hand-off's state machine as a table: Warming -> Ready -> Complete -> gone, or abort.

    Warming    the new owner fills its caches; the old owner keeps processing
    Ready      the new owner is warm. Strict mode: the old owner drains, flushes and releases first.
               If the old owner does not release in time, the leader expels it: the leader ends the
               old owner's session
    Complete   the new owner has the assignment; the old owner is asked to release, and its epoch
               is fenced

:func:`step` is pure: it takes a state and an event. The id of a hand-off is the revision that
created its key. An answer with an outdated id therefore has no effect on a later hand-off of the
same partition. The *epoch* of an owner is the revision that made it the owner. An owner sends its
epoch with each commit, and the sink refuses lower epochs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """The phase of a hand-off in the store. The values are the stored names."""

    WARMING = "Warming"
    READY = "Ready"
    COMPLETE = "Complete"


class TopicPartition(NamedTuple):
    """A partition of a topic. A tuple, so that plans compare and hash many partitions fast.

    It equals aiokafka's and kafka-python's TopicPartition of the same topic and number.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Handoff:
    """The move of one partition from ``old_owner`` to ``new_owner``.

    ``started_at``  unix seconds
    ``strict``      the old owner releases before the new owner starts
    ``released``    strict: the old owner has drained
    ``offset``      the next offset to process, if the old owner reported it with its release
    ``unreleased``  strict: the reason why the old owner cannot release
    ``expelled``    strict: the leader has ended the old owner's session for this reason
    ``failed``      the reason why the new owner (or an operator) gives up; the leader aborts the
                    hand-off
    ``progress``    0..1, as last reported by the new owner
    ``old_incarnation``, ``new_incarnation``  the processes of the two owners
    """

    at: TopicPartition
    old_owner: str
    new_owner: str
    phase: Phase
    started_at: float
    strict: bool = False
    released: bool = False
    offset: int | None = None
    unreleased: str | None = None
    expelled: bool = False
    failed: str | None = None
    progress: float = 0.0
    old_incarnation: str = ""
    new_incarnation: str = ""

    @property
    def old_process(self) -> tuple[str, str]:
        """The process of the old owner: (name, incarnation)."""
        return self.old_owner, self.old_incarnation

    @property
    def new_process(self) -> tuple[str, str]:
        """The process of the new owner: (name, incarnation)."""
        return self.new_owner, self.new_incarnation


class State(Enum):
    """The state of a hand-off. Strict mode divides the phase Ready into several states."""

    WARMING = "warming"
    FAILED = "failed"
    READY = "ready"
    RELEASING = "releasing"
    UNRELEASED = "unreleased"  #: the old owner reported that it cannot release
    EXPELLED = "expelled"  #: the old owner's session was ended; its lease has not expired yet
    RELEASED = "released"
    COMPLETE = "complete"
    HANDED = "handed"  #: complete; the old owner had released before
    GONE = "gone"


class HandoffEvent(Enum):
    """An event of a hand-off."""

    WARM = "the new owner is warm"
    GAVE_UP = "the new owner gives up"
    LET_GO = "the old owner released"
    CANNOT = "the old owner cannot release"
    OLD_GONE = "the old owner is gone"
    NEW_GONE = "the new owner is gone, or leaves"
    UNWANTED = "the plan has changed"
    LATE = "its time limit has passed"
    LOOK = "the leader checks it"


class Effect(Enum):
    """The leader's change to the assignment in the same transaction."""

    NOTHING = "nothing"
    GIVE = "the new owner owns it"
    COOL = "the old owner keeps it, and the new owner gets no further attempt during the cool-down"
    EXPEL = "the old owner's session ends, and its lease is no longer renewed"


Step = tuple[State, Effect]
_S, _H, _E = State, HandoffEvent, Effect

#: A pair without an entry changes nothing. LOOK is the leader's own event: it checks the hand-off.
NEXT: Mapping[tuple[State, HandoffEvent], Step] = {
    (_S.WARMING, _H.WARM): (_S.READY, _E.NOTHING),
    (_S.WARMING, _H.GAVE_UP): (_S.FAILED, _E.NOTHING),
    (_S.WARMING, _H.OLD_GONE): (_S.GONE, _E.GIVE),  # no owner is left: skip the warm-up
    (_S.WARMING, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    (_S.WARMING, _H.UNWANTED): (_S.GONE, _E.NOTHING),
    (_S.WARMING, _H.LATE): (_S.GONE, _E.COOL),
    (_S.FAILED, _H.LOOK): (_S.GONE, _E.COOL),
    (_S.READY, _H.LOOK): (_S.COMPLETE, _E.GIVE),
    (_S.READY, _H.OLD_GONE): (_S.GONE, _E.GIVE),
    (_S.READY, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    (_S.READY, _H.GAVE_UP): (_S.FAILED, _E.NOTHING),
    (_S.RELEASING, _H.LET_GO): (_S.RELEASED, _E.NOTHING),
    (_S.RELEASING, _H.OLD_GONE): (_S.GONE, _E.GIVE),
    (_S.RELEASING, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    (_S.RELEASING, _H.GAVE_UP): (_S.FAILED, _E.NOTHING),
    (_S.RELEASING, _H.CANNOT): (_S.UNRELEASED, _E.NOTHING),
    (_S.RELEASING, _H.LATE): (_S.EXPELLED, _E.EXPEL),
    (_S.UNRELEASED, _H.LOOK): (_S.EXPELLED, _E.EXPEL),
    (_S.UNRELEASED, _H.OLD_GONE): (_S.GONE, _E.GIVE),
    (_S.UNRELEASED, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    (_S.EXPELLED, _H.OLD_GONE): (_S.GONE, _E.GIVE),
    (_S.EXPELLED, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    # A process without an incarnation looks like its successor. If the successor registers before
    # the leader sees the end of the old registration, only LATE ends the hand-off.
    (_S.EXPELLED, _H.LATE): (_S.GONE, _E.NOTHING),
    (_S.RELEASED, _H.LOOK): (_S.HANDED, _E.GIVE),
    (_S.RELEASED, _H.OLD_GONE): (_S.GONE, _E.GIVE),
    (_S.RELEASED, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    (_S.RELEASED, _H.GAVE_UP): (_S.FAILED, _E.NOTHING),
    (_S.COMPLETE, _H.LET_GO): (_S.GONE, _E.NOTHING),
    (_S.COMPLETE, _H.CANNOT): (_S.GONE, _E.NOTHING),  # the new owner's epoch fences the old owner
    (_S.COMPLETE, _H.OLD_GONE): (_S.GONE, _E.NOTHING),
    (_S.COMPLETE, _H.NEW_GONE): (
        _S.GONE,
        _E.NOTHING,
    ),  # the rebalancer assigns the orphaned partition
    (_S.COMPLETE, _H.LATE): (_S.GONE, _E.NOTHING),  # the old owner is fenced by its epoch
    (_S.HANDED, _H.LOOK): (_S.GONE, _E.NOTHING),
    (_S.HANDED, _H.OLD_GONE): (_S.GONE, _E.NOTHING),
    (_S.HANDED, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    (_S.HANDED, _H.LATE): (_S.GONE, _E.NOTHING),
}


def state_of(handoff: Handoff) -> State:
    """Return the state of a hand-off."""
    if handoff.phase is Phase.COMPLETE:
        return State.HANDED if handoff.released else State.COMPLETE
    if handoff.expelled:
        return State.EXPELLED
    if handoff.unreleased is not None:
        return State.UNRELEASED
    if handoff.failed is not None:
        return State.FAILED
    if handoff.phase is Phase.WARMING:
        return State.WARMING
    if not handoff.strict:
        return State.READY
    return State.RELEASED if handoff.released else State.RELEASING


def step(state: State, event: HandoffEvent, *, strict: bool = False) -> Step | None:
    """Return the next state and the effect; ``None`` if the event changes nothing."""
    after = NEXT.get((state, event))
    if after is not None and after[0] is State.READY and strict:
        return State.RELEASING, after[1]
    return after


def advanced(
    handoff: Handoff, to: State, *, offset: int | None = None, reason: str = ""
) -> Handoff:
    """Return the hand-off as it is stored in state ``to`` (any state except GONE)."""
    if to in (State.READY, State.RELEASING):
        return replace(handoff, phase=Phase.READY, progress=1.0)
    if to is State.RELEASED:
        return replace(handoff, released=True, offset=offset)
    if to in (State.COMPLETE, State.HANDED):
        return replace(handoff, phase=Phase.COMPLETE)
    if to is State.UNRELEASED:
        return replace(handoff, unreleased=reason)
    if to is State.EXPELLED:
        why = handoff.unreleased or "it did not release in time"
        return replace(handoff, unreleased=why, expelled=True)
    if to is State.FAILED:
        return replace(handoff, failed=reason)
    raise ValueError(f"a hand-off cannot be stored in the state {to}")
