"""Back pressure: hold records back while too many table changes wait to be written to the stores."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from faust_assigner.app.tables.write_behind import usage_of

if TYPE_CHECKING:
    from faust.types.tuples import Message

    from faust_assigner.app.host.bases import ConsumerBase as Consumer

#: Seconds between two checks whether enough waiting changes have been written.
LOOK_S = 0.005

#: The longest time in seconds that a record is held back: an agent may need it to finish an earlier record.
LONGEST_S = 1.0


class BackPressure:
    """Holds records of ``consumer`` back before their delivery."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer, self._usage = consumer, usage_of(consumer.app)
        self._tables = consumer.app.tables

    def holds_back(self, message: Message) -> bool:
        """Return whether a record must wait; a changelog record never waits.

        The consumer calls this method for each record, so the slower check of the topic comes last.
        """
        return self._usage.is_full and message.tp.topic not in self._tables.changelog_topics

    async def wait_for_room(self) -> None:
        """Wait until enough changes are written, up to ``LONGEST_S``; with transactions, commit first."""
        deadline = monotonic() + LONGEST_S
        if self._consumer.in_transaction:
            await self._consumer.commit()
        while self._usage.is_full and monotonic() < deadline and not self._consumer.should_stop:
            await asyncio.sleep(LOOK_S)
