"""Writes an answer to a hand-off after a check of the process, the hand-off's id and its state.

Answers are idempotent. Each answer is one transaction that compares the hand-off's revision. An
answer therefore neither recreates a deleted hand-off nor returns an advanced hand-off to an earlier
state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from faust_assigner.service import values as codec
from faust_assigner.service.errors import (
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
from faust_assigner.service.keys import Keys
from faust_assigner.service.records import names_itself
from faust_assigner.service.store.base import Delete, KeyValue, Put, Store, Write
from faust_assigner.service.store.rewrite import rewritten

_S, _H = State, HandoffEvent
#: Answer -> the states in which a repetition of the answer is accepted and changes nothing.
SAID: dict[HandoffEvent, frozenset[State]] = {
    _H.WARM: frozenset({_S.READY, _S.RELEASING, _S.RELEASED, _S.COMPLETE, _S.HANDED}),
    _H.LET_GO: frozenset({_S.RELEASED, _S.HANDED}),
    _H.CANNOT: frozenset({_S.UNRELEASED}),
    _H.GAVE_UP: frozenset({_S.FAILED}),
}
#: The answers that the old owner gives; the new owner gives all other answers.
OF_OLD_OWNER = frozenset({_H.LET_GO, _H.CANNOT})

#: Returns the hand-off to write, a State to delete the hand-off, or ``None`` to write nothing.
Decide = Callable[[Handoff], "Handoff | State | None"]


@dataclass(eq=False, repr=False)
class Answering:
    """Writes the answers to hand-offs, from any instance."""

    store: Store
    keys: Keys

    async def take(
        self,
        caller: tuple[str, str] | None,
        at: TopicPartition,
        handoff_id: int | None,
        event: HandoffEvent,
        decide: Decide,
    ) -> int:
        """Write the hand-off that ``decide`` returns; return a revision that contains the answer.

        ``caller``: the process, as (name, incarnation); None for an operator. ``handoff_id``: None
        means the open hand-off, whichever it is. Raises NotFound, WrongCaller, WrongPhase, Replaced,
        Expelled and StoreError.
        """
        key = self.keys.handoff(at)
        unless: dict[str, Exception] = {}
        shown = 0

        async def answered(kv: KeyValue | None) -> Write | None:
            nonlocal shown
            handoff = codec.readable(codec.load_handoff, kv)
            if kv is None or handoff is None:
                shown = await self._accept_repeated(caller, at, event)
                return None
            if handoff_id is not None and handoff_id != kv.create_revision:
                raise WrongPhase(
                    f"{at}: hand-off {handoff_id} has ended; the current hand-off is "
                    f"{kv.create_revision}"
                )
            if caller is not None:
                name, incarnation = _expected_process(handoff, event)
                if not _is_process(caller, name, incarnation):
                    raise await self._stranger(at, caller, name, incarnation)
                unless[self.keys.expelled(name, incarnation)] = expelled(name, incarnation)
            after = decide(handoff)
            if after is None:
                await self._check_not_expelled(caller)
                return None
            return Delete(key) if isinstance(after, State) else Put(key, codec.dump_handoff(after))

        return max(await rewritten(self.store, key, answered, unless=unless), shown)

    async def check_grant(self, at: TopicPartition, granted: int) -> None:
        """Raise WrongPhase unless the partition's assignment still has the revision ``granted``."""
        kv = await self.store.get(self.keys.assignment(at))
        if kv is None or kv.mod_revision != granted:
            raise WrongPhase(f"{at}: the epoch of this answer has ended")

    async def _stranger(
        self, at: TopicPartition, caller: tuple[str, str], expected: str, incarnation: str
    ) -> ServiceRefused:
        """Return the refusal for a caller that is not the expected process.

        If the caller is now the registered process of the name, it gets WrongPhase, because
        Replaced would end its work.
        """
        if caller[0] != expected:
            return WrongCaller(f"{at}: only {expected} may give this answer, not {caller[0]}")
        kv = await self.store.get(self.keys.consumer(expected))
        registered = codec.readable(codec.load_consumer, kv)
        if registered is not None and _is_process(caller, expected, registered.incarnation):
            return WrongPhase(f"{at}: this hand-off is with an earlier process of {expected}")
        return replaced(*caller, incarnation)

    async def _check_not_expelled(self, caller: tuple[str, str] | None) -> None:
        """Raise Expelled if the caller is expelled.

        This read is needed if the answer writes nothing: only a transaction compares the key that
        marks an expelled process.
        """
        if caller is not None and await self.store.get(self.keys.expelled(*caller)) is not None:
            raise expelled(*caller)

    async def _accept_repeated(
        self, caller: tuple[str, str] | None, at: TopicPartition, event: HandoffEvent
    ) -> int:
        """Accept an answer without a hand-off if the assignment already shows its result.

        Return the assignment's revision. Raises NotFound and Expelled.
        """
        kv = await self.store.get(self.keys.assignment(at))
        said = codec.readable(lambda value: codec.load_assigned(value, 0), kv)
        is_owner = said is not None and caller is not None and _is_process(caller, *said.process)
        if kv is None or caller is None or said is None or is_owner != (event is HandoffEvent.WARM):
            raise NotFound(f"{at}: no hand-off")
        await self._check_not_expelled(caller)
        return kv.mod_revision


def handoff_after(
    handoff: Handoff, event: HandoffEvent, *, offset: int | None = None, reason: str = ""
) -> Handoff | State | None:
    """Return the hand-off after the consumer's answer ``event``, as a :data:`Decide` returns it.

    Raises WrongPhase.
    """
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


def _is_process(caller: tuple[str, str], name: str, incarnation: str) -> bool:
    """Return whether the caller is the process ``name``, ``incarnation``.

    If the process sends no incarnation, only the name must match.
    """
    return caller[0] == name and (
        caller[1] == incarnation or (caller[1] == "" and not names_itself(incarnation))
    )


def _expected_process(handoff: Handoff, event: HandoffEvent) -> tuple[str, str]:
    """Return the process that may give this answer, as (name, incarnation)."""
    return handoff.old_process if event in OF_OLD_OWNER else handoff.new_process
