"""When changes must have landed, and when nothing more may be made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from faust_assigner.app.tables.write_behind import discard, usage_of

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object

#: Seconds between two looks whether there is room again.
LOOK_S = 0.005

#: Seconds that one record is held back at most: an agent may wait for another record to be done with its own.
LONGEST_S = 1.0


class BackPressure(Consumer):
    """Of the consumer, over the other repairs."""

    callback: Callable[[Any], Awaitable[Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.callback = partial(self._deliver_with_room, self.callback)
        self._usage = usage_of(self.app)

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """After the final commit what counts lands; the rest is processed again, here or elsewhere."""
        await super().on_partitions_revoked(revoked)
        await told()
        discard(self.app)

    async def _deliver_with_room(
        self, deliver: Callable[[Any], Awaitable[Any]], message: Any
    ) -> Any:
        if self._usage.is_full and not self._is_changelog_tp(message.tp):
            await self._make_room()
        return await deliver(message)

    async def _make_room(self) -> None:
        """Hold the record back until something has landed; a transaction has to be committed for that."""
        deadline = monotonic() + LONGEST_S
        if self.in_transaction:
            await self.commit()
        while self._usage.is_full and monotonic() < deadline and not self.should_stop:
            await asyncio.sleep(LOOK_S)


async def told() -> None:
    """Until what the producer knows by now has been told to the stores."""
    for _ in range(2):
        await asyncio.sleep(0)
