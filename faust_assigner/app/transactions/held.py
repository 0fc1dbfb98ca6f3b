"""New records that wait for the commit of their transaction, under ``exactly_once``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from faust.streams import current_event

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.tuples import TP


class HeldRecords:
    """Holds back the new records of transactions while a commit waits for the records before them.

    ``id_of`` returns the transactional id of a partition. ``reached`` returns the last offset of each source
    partition that sent into the open transaction of an id.
    """

    def __init__(
        self,
        id_of: Callable[[TP], str | None],
        reached: Callable[[str], Mapping[TP, int]],
    ) -> None:
        self._id_of, self._reached = id_of, reached
        #: Transactional id with a waiting commit -> set when records that are held back must check again.
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, transactional_id: str) -> None:
        """Hold back new records of the transaction until ``release()``."""
        self._held.setdefault(transactional_id, asyncio.Event())

    def holds(self, transactional_id: str) -> bool:
        """Whether new records of the transaction are held back."""
        return transactional_id in self._held

    def waits_for(self, events: Iterable[EventT[object]]) -> bool:
        """Whether a commit waits for at least one of ``events``."""
        return bool(self._held) and any(
            message.offset <= self._reached(transactional_id).get(message.tp, -1)
            for message in (event.message for event in events)
            if (transactional_id := self._id_of(message.tp)) in self._held
        )

    async def hold_value(self, value: object) -> object:
        """Wait for the commit if ``value``'s record must wait; runs as the first processor of a stream."""
        event = current_event()
        if self._held and event is not None and event.message:
            await self.wait_for_commit(event)
        return value

    async def wait_for_commit(self, event: EventT[object]) -> None:
        """Wait while a commit waits for the records before this record.

        Without this wait, if a partition's records are processed concurrently, some record might be half
        processed at every moment, and no commit could begin. A record for which the commit waits passes:
        several agents may read its topic, and one agent may not have processed the record yet.
        """
        message = event.message
        transactional_id = self._id_of(message.tp)
        while (
            transactional_id
            and transactional_id in self._held
            and message.offset > self._reached(transactional_id).get(message.tp, -1)
        ):
            await self._held[transactional_id].wait()

    def recheck_waiting(self, transactional_id: str) -> None:
        """Make the waiting records check again whether the commit waits for them."""
        if transactional_id in self._held:
            self._held[transactional_id].set()
            self._held[transactional_id] = asyncio.Event()

    def release(self, transactional_id: str) -> None:
        """Stop holding back the transaction's new records."""
        if (held := self._held.pop(transactional_id, None)) is not None:
            held.set()

    def release_all(self) -> None:
        """Stop holding back records of all transactions."""
        for transactional_id in list(self._held):
            self.release(transactional_id)
