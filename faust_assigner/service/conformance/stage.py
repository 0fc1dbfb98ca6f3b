"""The course of one scenario: the simulated service, the client, and the waits for the client's steps."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from faust_assigner.service.conformance.simulated_service import (
    OpenStream,
    SimulatedService,
    Timeout,
    Write,
    at,
    served,
    until,
)
from faust_assigner.service.conformance.subjects import Start, Subject

#: Seconds that a client may take for each step.
PATIENCE_S: Final = 20.0
#: Seconds of silence after which a client counts as stopped.
QUIET_S: Final = 1.0


class RuleBroken(Exception):
    """The client has broken the rule."""


@dataclass
class Stage:
    """One scenario: the simulated service, the client, and the client's time limit."""

    start: Start
    part: SimulatedService
    name: str
    target: str = ""
    patience_s: float = PATIENCE_S
    subject: Subject = field(init=False)

    @contextlib.asynccontextmanager
    async def begun(self, *owned: tuple[int, int]) -> AsyncIterator[Stage]:
        """Start the client, grant (partition, epoch), and wait until it works on all of them."""
        async with served(self.part) as self.target, self.start(self.target, self.name) as subject:
            self.subject = subject
            await self.registered(1)
            told = self.part.tell(self.part.snapshot(owned))
            for number, epoch in owned:
                await self.works(number, epoch, told)
            yield self

    async def registered(self, count: int) -> OpenStream:
        """Wait for the client's registration number ``count``, from 1; return its stream."""
        await self.until(lambda: len(self.part.streams) >= count, f"registration {count} comes")
        return self.part.streams[count - 1]

    async def works(self, number: int, epoch: int, since: float) -> None:
        """Wait until the client works on the partition under this epoch."""
        await self.until(
            lambda: any(one.epoch == epoch for one in self.written(number, since)),
            f"the client works on partition {number} under epoch {epoch}",
        )

    async def stops(self, number: int) -> None:
        """Wait until the client has not worked on the partition for :data:`QUIET_S` seconds."""
        await self.until(
            lambda: not self.written(number, time.monotonic() - QUIET_S),
            f"the client stops work on partition {number}",
        )

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until the condition holds. Raises RuleBroken after the time limit."""
        try:
            await until(holds, self.patience_s, what)
        except Timeout as error:
            raise RuleBroken(f"expected: {error}") from None

    def written(self, number: int, since: float) -> list[Write]:
        """Return the client's writes to a partition since a time, by the writes' own times."""
        mine = at(number)
        return [one for one in self.subject.work if one.partition == mine and one.when >= since]

    def check(self, holds: object, what: str) -> None:
        """Raise RuleBroken if the condition does not hold."""
        if not holds:
            raise RuleBroken(what)
