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
        self, id_of: Callable[[TP], str | None], reached: Callable[[str], Mapping[TP, int]]
    ) -> None:
        self._id_of, self._reached = id_of, reached
        #: Transactional id with a waiting commit -> set when records that are held back must check again.
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, transactional_id: str) -> None:
        """Hold back new records of the transaction until ``release()``."""
        if transactional_id not in self._held:
            self._held[transactional_id] = asyncio.Event()
            self.recheck_waiting()

    def holds(self, transactional_id: str) -> bool:
        """Whether new records of the transaction are held back."""
        return transactional_id in self._held

    def waits_for(self, events: Iterable[EventT[object]]) -> bool:
        """Whether a commit waits for at least one of ``events``."""
        return self.first_waited_for(events) is not None

    def first_waited_for(self, events: Iterable[EventT[object]]) -> EventT[object] | None:
        """Return the first of ``events`` that a commit waits for; None if no commit waits for them."""
        if not self._held:
            return None
        return next((event for event in events if self._is_waited_for(event)), None)

    def _is_waited_for(self, event: EventT[object]) -> bool:
        message = getattr(event, "message", None)  # a channel may contain values without a record
        if not message:
            return False
        transactional_id = self._id_of(message.tp)
        return (
            transactional_id is not None
            and transactional_id in self._held
            and message.offset <= self._reached(transactional_id).get(message.tp, -1)
        )

    async def hold_value(
        self, value: object, queued: Callable[[], Iterable[EventT[object]]] = tuple
    ) -> object:
        """Wait for the commit if ``value``'s record must wait; runs as the first processor of a stream."""
        event = current_event()
        if self._held and event is not None and event.message:
            await self.wait_for_commit(event, queued)
        return value

    async def wait_for_commit(
        self, event: EventT[object], queued: Callable[[], Iterable[EventT[object]]] = tuple
    ) -> None:
        """Wait while a commit waits for the records before this record.

        Without this wait, if a partition's records are processed concurrently, some record might be half
        processed at every moment, and no commit could begin. A record for which the commit waits passes:
        several agents may read its topic, and one agent may not have processed the record yet.

        ``queued`` returns the records that the same stream reads next. If a commit waits for a queued
        record, this record passes, too. Otherwise the commit would wait for the stream, and the stream
        for the commit.
        """
        message = event.message
        transactional_id = self._id_of(message.tp)
        while (
            transactional_id
            and transactional_id in self._held
            and message.offset > self._reached(transactional_id).get(message.tp, -1)
            and not self.waits_for(queued())
        ):
            await self._held[transactional_id].wait()

    def recheck_waiting(self) -> None:
        """Make the waiting records check again whether a commit waits for them."""
        for transactional_id, waiting in list(self._held.items()):
            self._held[transactional_id] = asyncio.Event()
            waiting.set()

    def release(self, transactional_id: str) -> None:
        """Stop holding back the transaction's new records."""
        if (held := self._held.pop(transactional_id, None)) is not None:
            held.set()

    def release_all(self) -> None:
        """Stop holding back records of all transactions."""
        for transactional_id in list(self._held):
            self.release(transactional_id)
