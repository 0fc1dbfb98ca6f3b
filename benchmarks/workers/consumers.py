"""A process of consumers of the assigner service, for ``service_scale.py``: they acknowledge at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from typing import Any

from faust_assigner.service.client import AssignerClient, Lost, Release, Warm
from faust_assigner.service.clock import seconds
from faust_assigner.service.errors import ServiceRefused

#: Seconds between two updates of each consumer's figures.
NOTE_S = 0.1


@dataclass(frozen=True)
class Notes:
    """Figures of all consumers in shared memory; each array has one number for each consumer.

    ``owned``: the partitions that the consumer may work on now; ``lost``: its lost sessions; ``streams``:
    its registrations; ``at``: the number of its last instance. ``is_over`` ends the processes.
    """

    owned: Any
    lost: Any
    streams: Any
    at: Any
    is_over: Any

    @classmethod
    def of(cls, spawn: SpawnContext, consumers: int) -> Notes:
        """Make the arrays for this number of consumers."""
        owned, lost, streams, at = (spawn.Array("i", consumers, lock=False) for _ in range(4))
        return cls(owned, lost, streams, at, spawn.Event())


class Member:
    """A consumer that acknowledges at once and counts its lost sessions."""

    def __init__(self, targets: Sequence[str], number: int) -> None:
        turned = [*targets[number % len(targets) :], *targets[: number % len(targets)]]
        self.client = AssignerClient(turned, f"c{number:05}")
        self.number = number
        self.lost = 0
        self.targets = targets
        self.task = asyncio.create_task(self._obey(), name=f"c{number:05}")

    async def _obey(self) -> None:
        async for command in self.client.commands():
            with contextlib.suppress(ServiceRefused):
                if isinstance(command, Lost):
                    self.lost += 1
                elif isinstance(command, Warm):
                    await self.client.ready(command)
                elif isinstance(command, Release):
                    await self.client.released(command)

    def note(self, notes: Notes) -> None:
        """Write this consumer's figures."""
        client, number = self.client, self.number
        is_valid = seconds() < client.holdings.until
        notes.owned[number] = len(client.holdings.owned) if is_valid else 0
        notes.lost[number], notes.streams[number] = self.lost, client.streams
        streams = client._streams
        asked = streams.targets[(streams._turn - 1) % len(streams.targets)]
        notes.at[number] = self.targets.index(asked)


async def _consume(targets: Sequence[str], numbers: Sequence[int], notes: Notes) -> None:
    members = [Member(targets, number) for number in numbers]
    while not notes.is_over.is_set():
        await asyncio.sleep(NOTE_S)
        for member in members:
            member.note(notes)
            if member.task.done():
                member.task.result()
    for member in members:
        member.task.cancel()
    await asyncio.gather(*(member.task for member in members), return_exceptions=True)


def consume(targets: Sequence[str], numbers: Sequence[int], notes: Notes) -> None:
    """Run these consumers until ``notes.is_over``."""
    logging.disable(logging.WARNING)
    asyncio.run(_consume(targets, numbers, notes))
