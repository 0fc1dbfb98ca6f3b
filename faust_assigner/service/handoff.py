"""A hand-off as a table: Warming -> Ready -> Complete -> gone, or abort.

    Warming    the new owner fills its caches; the old one goes on
    Ready      the new owner is warm. Strict mode: the old one drains, flushes and releases first. An old
               owner that cannot, or does not in time, is expelled: its session ends
    Complete   the assignment is the new owner's; the old one is told to let go, and is fenced by its epoch

Pure: :func:`step` takes a state and an event. A hand-off has an id, the store's revision that created it,
so that an answer to a hand-off that was deleted and created again is known for what it is. An owner has an
*epoch*, the revision that made it the owner: whoever commits shows it, and lower ones are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """What is stored; the names are those of the wire."""

    WARMING = "Warming"
    READY = "Ready"
    COMPLETE = "Complete"


class TopicPartition(NamedTuple):
    """A partition of a topic. A tuple: plans compare and hash hundreds of thousands of them."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class Handoff:
    """One partition on its way from ``old_owner`` to ``new_owner``.

    ``started_at``  unix seconds
    ``strict``      the old owner releases before the new one starts
    ``released``    strict: the old owner has drained; ``offset`` is the next one to process, where it said so
    ``unreleased``  strict: why the old owner cannot release; ``expelled``: its session was ended for it
    ``failed``      why the new owner (or an operator) gives up; the leader aborts it
    ``progress``    0..1, as the new owner last said
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


class State(Enum):
    """Where a hand-off stands; strict mode divides Ready."""

    WARMING = "warming"
    FAILED = "failed"
    READY = "ready"
    RELEASING = "releasing"
    UNRELEASED = "unreleased"  #: the old owner says that it cannot release
    EXPELLED = "expelled"  #: the old owner's session was ended; its lease has not run out yet
    RELEASED = "released"
    COMPLETE = "complete"
    HANDED = "handed"  #: complete, and the old owner had released before
    GONE = "gone"


class Happening(Enum):
    """What can happen to a hand-off."""

    WARM = "the new owner is warm"
    GAVE_UP = "the new owner gives up"
    LET_GO = "the old owner released"
    CANNOT = "the old owner cannot release"
    OLD_GONE = "the old owner is gone"
    NEW_GONE = "the new owner is gone, or leaves"
    UNWANTED = "the plan has changed"
    LATE = "its time is over"
    LOOK = "the leader looks at it"


class Effect(Enum):
    """What the leader does to the assignment in the same transaction."""

    NOTHING = "nothing"
    GIVE = "the new owner owns it"
    COOL = "the old owner keeps it, and the new one is not asked again for a while"
    EXPEL = "the old owner's session ends, and its lease is not renewed any more"


Step = tuple[State, Effect]
_S, _H, _E = State, Happening, Effect

#: What is not here changes nothing. LOOK is what the leader does of itself, as soon as it sees the state.
NEXT: Mapping[tuple[State, Happening], Step] = {
    (_S.WARMING, _H.WARM): (_S.READY, _E.NOTHING),
    (_S.WARMING, _H.GAVE_UP): (_S.FAILED, _E.NOTHING),
    (_S.WARMING, _H.OLD_GONE): (_S.GONE, _E.GIVE),  # an orphan never waits
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
    # A client without an incarnation cannot be told from its successor: it is back before anybody looked.
    (_S.EXPELLED, _H.LATE): (_S.GONE, _E.NOTHING),
    (_S.RELEASED, _H.LOOK): (_S.HANDED, _E.GIVE),
    (_S.RELEASED, _H.OLD_GONE): (_S.GONE, _E.GIVE),
    (_S.RELEASED, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    (_S.RELEASED, _H.GAVE_UP): (_S.FAILED, _E.NOTHING),
    (_S.COMPLETE, _H.LET_GO): (_S.GONE, _E.NOTHING),
    (_S.COMPLETE, _H.CANNOT): (_S.GONE, _E.NOTHING),  # the new owner has it, under its own epoch
    (_S.COMPLETE, _H.OLD_GONE): (_S.GONE, _E.NOTHING),
    (_S.COMPLETE, _H.NEW_GONE): (
        _S.GONE,
        _E.NOTHING,
    ),  # the assignment is an orphan: see the rebalancer
    (_S.COMPLETE, _H.LATE): (_S.GONE, _E.NOTHING),  # the old owner is fenced by its epoch
    (_S.HANDED, _H.LOOK): (_S.GONE, _E.NOTHING),
    (_S.HANDED, _H.OLD_GONE): (_S.GONE, _E.NOTHING),
    (_S.HANDED, _H.NEW_GONE): (_S.GONE, _E.NOTHING),
    (_S.HANDED, _H.LATE): (_S.GONE, _E.NOTHING),
}


def state_of(handoff: Handoff) -> State:
    """Where it stands."""
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


def step(state: State, happening: Happening, *, strict: bool = False) -> Step | None:
    """What comes next; ``None`` where nothing does."""
    after = NEXT.get((state, happening))
    if after is not None and after[0] is State.READY and strict:
        return State.RELEASING, after[1]
    return after


def advanced(
    handoff: Handoff, to: State, *, offset: int | None = None, reason: str = ""
) -> Handoff:
    """The hand-off as it is stored in state ``to`` (any but GONE)."""
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
    raise ValueError(f"a hand-off is not stored as {to}")
