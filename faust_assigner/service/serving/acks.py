"""Consumers' answers about hand-offs: the caller, the hand-off's id and its state are checked.

Answers are idempotent. Each answer is one transaction on the hand-off's own revision. So an answer
neither recreates a deleted hand-off nor returns an advanced hand-off to an earlier state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from faust_assigner.service import values as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import (
    BadRequest,
    NotFound,
    ServiceRefused,
    WrongCaller,
    WrongPhase,
    expelled,
    replaced,
)
from faust_assigner.service.handoff import (
    Handoff,
    HandoffEvent,
    State,
    TopicPartition,
    advanced,
    state_of,
    step,
)
from faust_assigner.service.keys import Keys, one_line
from faust_assigner.service.records import names_itself
from faust_assigner.service.store.base import Delete, KeyValue, Put, Store, Write
from faust_assigner.service.store.rewrite import rewritten

#: Least seconds between two stored progress reports of one consumer on one partition.
PROGRESS_EVERY_S = 5.0
#: The most characters of a stored reason.
MOST_SAID = 500
NO_REASON = "no reason given"

_S, _H = State, HandoffEvent
#: The states after an answer: the same answer is accepted again and changes nothing.
SAID: dict[HandoffEvent, frozenset[State]] = {
    _H.WARM: frozenset({_S.READY, _S.RELEASING, _S.RELEASED, _S.COMPLETE, _S.HANDED}),
    _H.LET_GO: frozenset({_S.RELEASED, _S.HANDED}),
    _H.CANNOT: frozenset({_S.UNRELEASED}),
    _H.GAVE_UP: frozenset({_S.FAILED}),
}
#: The answers of the old owner; all other answers are the new owner's.
OF_OLD_OWNER = frozenset({_H.LET_GO, _H.CANNOT})

#: Returns the hand-off to write, a State to delete the hand-off, or ``None`` to write nothing.
Decide = Callable[[Handoff], "Handoff | State | None"]


class Acks:
    """Answers to hand-offs, from any instance."""

    def __init__(self, store: Store, keys: Keys, clock: Clock) -> None:
        self._store = store
        self._keys = keys
        self._clock = clock
        #: (partition, consumer) -> the time of the stored report, its revision
        self._reported: dict[tuple[TopicPartition, str], tuple[float, int]] = {}
        self._tidied_at = -float("inf")

    async def ready(
        self, name: str, at: TopicPartition, handoff_id: int | None, incarnation: str = ""
    ) -> int:
        """Record that the new owner is warm; return a revision of the store that has the answer.

        Raises NotFound, WrongCaller, WrongPhase, Replaced or Expelled.
        """
        return await self._answer(
            (name, incarnation),
            at,
            handoff_id,
            HandoffEvent.WARM,
            lambda h: _said(h, HandoffEvent.WARM),
        )

    async def released(
        self,
        name: str,
        at: TopicPartition,
        handoff_id: int | None,
        offset: int | None,
        incarnation: str = "",
    ) -> int:
        """Record that the old owner released the partition.

        Returns and raises as :meth:`ready`, and BadRequest for an offset out of range.
        """
        if offset is not None and not 0 <= offset <= codec.MAX_OFFSET:
            raise BadRequest(f"{at}: an offset is 0 to {codec.MAX_OFFSET}, got {offset}")
        return await self._answer(
            (name, incarnation),
            at,
            handoff_id,
            HandoffEvent.LET_GO,
            lambda h: _said(h, HandoffEvent.LET_GO, offset=offset),
        )

    async def release_failed(
        self,
        name: str,
        at: TopicPartition,
        handoff_id: int | None,
        reason: str,
        incarnation: str = "",
        granted: int | None = None,
    ) -> int:
        """Record that the old owner cannot release.

        ``granted`` is the revision of the grant to which the answer refers.

        Returns and raises as :meth:`ready`.
        """
        if granted is not None:
            kv = await self._store.get(self._keys.assignment(at))
            if kv is None or kv.mod_revision != granted:
                raise WrongPhase(f"{at}: this epoch has ended")
        return await self._answer(
            (name, incarnation),
            at,
            handoff_id,
            HandoffEvent.CANNOT,
            lambda h: _said(
                h, HandoffEvent.CANNOT, reason=one_line(reason, MOST_SAID) or NO_REASON
            ),
        )

    async def failed(
        self,
        name: str,
        at: TopicPartition,
        handoff_id: int | None,
        reason: str,
        incarnation: str = "",
    ) -> int:
        """Record that the new owner cannot warm the partition.

        Returns and raises as :meth:`ready`.
        """
        return await self._answer(
            (name, incarnation),
            at,
            handoff_id,
            HandoffEvent.GAVE_UP,
            lambda h: _said(
                h, HandoffEvent.GAVE_UP, reason=one_line(reason, MOST_SAID) or NO_REASON
            ),
        )

    async def abort(self, at: TopicPartition, handoff_id: int | None) -> int:
        """Give the hand-off up by an operator's order. Returns as :meth:`ready`.

        Raises NotFound or WrongPhase.
        """
        return await self._answer(
            None,
            at,
            handoff_id,
            HandoffEvent.GAVE_UP,
            lambda h: _said(h, HandoffEvent.GAVE_UP, reason="ended by an operator"),
        )

    async def progress(
        self,
        name: str,
        at: TopicPartition,
        handoff_id: int | None,
        fraction: float,
        incarnation: str = "",
    ) -> int:
        """Store the warm-up's progress, 0 to 1, at most every :data:`PROGRESS_EVERY_S` seconds.

        Return a revision of the store that has the newest stored report. Raises as :meth:`ready`.
        """
        now = self._clock.monotonic()
        when, revision = self._reported.get((at, name), (-float("inf"), 0))
        if now - when < PROGRESS_EVERY_S:
            return revision
        said = min(max(0.0, fraction), 1.0)  # in this order, NaN becomes 0
        revision = await self._answer(
            (name, incarnation),
            at,
            handoff_id,
            HandoffEvent.WARM,
            lambda h: replace(h, progress=said) if state_of(h) is State.WARMING else None,
        )
        # Remember accepted reports only: reports on invented partitions do not fill the memory.
        self._reported[at, name] = now, revision
        if now - self._tidied_at >= PROGRESS_EVERY_S:
            self._tidied_at = now
            self._reported = {
                pair: one for pair, one in self._reported.items() if now - one[0] < PROGRESS_EVERY_S
            }
        return revision

    async def _answer(
        self,
        caller: tuple[str, str] | None,
        at: TopicPartition,
        handoff_id: int | None,
        event: HandoffEvent,
        decide: Decide,
    ) -> int:
        key = self._keys.handoff(at)
        unless: dict[str, Exception] = {}
        shown = 0

        async def answered(kv: KeyValue | None) -> Write | None:
            nonlocal shown
            handoff = codec.readable(codec.load_handoff, kv)
            if kv is None or handoff is None:
                shown = await self._afterwards(caller, at, event)
                return None
            if handoff_id is not None and handoff_id != kv.create_revision:
                raise WrongPhase(
                    f"{at}: hand-off {handoff_id} has ended; the current hand-off is "
                    f"{kv.create_revision}"
                )
            if caller is not None:
                name, incarnation = _asked(handoff, event)
                if not _is(caller, name, incarnation):
                    raise await self._stranger(at, caller, name, incarnation)
                unless[self._keys.expelled(name, incarnation)] = expelled(name, incarnation)
            after = decide(handoff)
            if after is None:
                await self._check_not_expelled(caller)
                return None
            return Delete(key) if isinstance(after, State) else Put(key, codec.dump_handoff(after))

        return max(await rewritten(self._store, key, answered, unless=unless), shown)

    async def _stranger(
        self, at: TopicPartition, caller: tuple[str, str], expected: str, incarnation: str
    ) -> ServiceRefused:
        """Return the refusal of a caller that is not the expected process.

        The registered process is a successor, not replaced: Replaced would end its work.
        """
        if caller[0] != expected:
            return WrongCaller(f"{at}: {expected} is asked, not {caller[0]}")
        kv = await self._store.get(self._keys.consumer(expected))
        registered = codec.readable(codec.load_consumer, kv)
        if registered is not None and _is(caller, expected, registered.incarnation):
            return WrongPhase(f"{at}: this hand-off is with an earlier process of {expected}")
        return replaced(*caller, incarnation)

    async def _check_not_expelled(self, caller: tuple[str, str] | None) -> None:
        """Raise Expelled if the caller is expelled.

        Without a write, no transaction compares the mark of an expelled process.
        """
        if caller is not None and await self._store.get(self._keys.expelled(*caller)) is not None:
            raise expelled(*caller)

    async def _afterwards(
        self, caller: tuple[str, str] | None, at: TopicPartition, event: HandoffEvent
    ) -> int:
        """Accept an answer without a hand-off if the assignment already shows its result.

        Return the assignment's revision. Raises NotFound and Expelled.
        """
        kv = await self._store.get(self._keys.assignment(at))
        said = codec.readable(lambda value: codec.load_assigned(value, 0), kv)
        is_owner = (
            said is not None and caller is not None and _is(caller, said.owner, said.incarnation)
        )
        if kv is None or caller is None or said is None or is_owner != (event is HandoffEvent.WARM):
            raise NotFound(f"{at}: no hand-off")
        await self._check_not_expelled(caller)
        return kv.mod_revision


def _is(caller: tuple[str, str], name: str, incarnation: str) -> bool:
    """Return whether the caller is the process ``name``, ``incarnation``.

    The name is enough if the process sends no incarnation itself.
    """
    return caller[0] == name and (
        caller[1] == incarnation or (caller[1] == "" and not names_itself(incarnation))
    )


def _asked(handoff: Handoff, event: HandoffEvent) -> tuple[str, str]:
    """Return the process that may give this answer, as (name, incarnation)."""
    if event in OF_OLD_OWNER:
        return handoff.old_owner, handoff.old_incarnation
    return handoff.new_owner, handoff.new_incarnation


def _said(
    handoff: Handoff, event: HandoffEvent, *, offset: int | None = None, reason: str = ""
) -> Handoff | State | None:
    state = state_of(handoff)
    if state in SAID[event]:
        return None
    after = step(state, event, strict=handoff.strict)
    if after is None:
        raise WrongPhase(f"{handoff.at}: {event.value}, but the hand-off is {state.value}")
    return (
        after[0]
        if after[0] is State.GONE
        else advanced(handoff, after[0], offset=offset, reason=reason)
    )
