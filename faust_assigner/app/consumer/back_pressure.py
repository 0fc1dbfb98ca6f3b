"""Back pressure: hold back records while too many table changes wait to be written to the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from faust_assigner.app.tables.write_behind import discard, usage_of

if TYPE_CHECKING:
    from faust.types.tuples import TP, Message

    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object

#: Seconds between two checks whether there is room again.
LOOK_S = 0.005

#: The longest time in seconds that a record is held back: an agent may need it to finish an earlier record.
LONGEST_S = 1.0


class BackPressure(Consumer):
    """A part of the consumer, placed before the other repairs."""

    callback: Callable[[Message], Awaitable[object]]

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.callback = partial(self._deliver_with_room, self.callback)
        self._usage = usage_of(self.app)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Write the committed changes after the final commit; drop the rest, whose records are repeated."""
        await super().on_partitions_revoked(revoked)
        await told()
        discard(self.app)

    async def _deliver_with_room(
        self, deliver: Callable[[Message], Awaitable[object]], message: Message
    ) -> object:
        if self._usage.is_full and not self._is_changelog_tp(message.tp):
            await self._make_room()
        return await deliver(message)

    async def _make_room(self) -> None:
        """Hold the record back until changes are written, which under transactions needs a commit."""
        deadline = monotonic() + LONGEST_S
        if self.in_transaction:
            await self.commit()
        while self._usage.is_full and monotonic() < deadline and not self.should_stop:
            await asyncio.sleep(LOOK_S)


async def told() -> None:
    """Wait two steps of the loop, so that the producer's pending delivery callbacks reach the stores."""
    for _ in range(2):
        await asyncio.sleep(0)
