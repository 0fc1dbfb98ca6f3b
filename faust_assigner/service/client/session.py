"""The session of a consumer: its last registration, and how long that registration surely lives."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.inbox import Inbox
from faust_assigner.service.proto import kafka_assigner_pb2 as pb


class Session:
    """The last registration.

    ``id``              its id, "" before the first one; heartbeats send it
    ``is_registered``   its stream has answered, and has not ended
    ``lives_s``         its time to live in seconds; infinite without heartbeats
    ``count``           the number of registrations so far
    """

    def __init__(self, holdings: Holdings, inbox: Inbox, clock: Callable[[], float]) -> None:
        self.id = ""
        self.is_registered = False
        self.lives_s = math.inf
        self.count = 0
        self.is_pulsing = False
        self._heard_at = -math.inf
        self._holdings = holdings
        self._inbox = inbox
        self._clock = clock
        self._begun = asyncio.Event()

    def begin(self, said: pb.AssignmentUpdate, until: float) -> None:
        """Begin the session of a stream's first message; the session surely lives to ``until``."""
        self.count += 1
        self._inbox.begin()
        self.id, self.is_registered = said.session_id, True
        self.check_time()
        self.lives_s = said.lives_ms / 1000 if said.lives_ms else math.inf
        self.is_pulsing = said.pulse_ms > 0
        self._holdings.begin(until)
        self._begun.set()

    async def timed(self) -> None:
        """Wait until there is a session with a time to live."""
        while not self.id or self.lives_s == math.inf:
            self._begun.clear()
            await self._begun.wait()

    def note_message(self) -> None:
        """Note the time of a message of the stream."""
        self._heard_at = self._clock()

    @property
    def is_silent(self) -> bool:
        """Whether the stream has been silent for too long."""
        return self.is_pulsing and self._clock() - self._heard_at > self.lives_s / 2

    @property
    def left_s(self) -> float:
        """The seconds for which the session surely lives."""
        return self._holdings.until - self._clock()

    @property
    def is_alive(self) -> bool:
        """Whether the consumer is registered, or its last registration surely lives."""
        # Without heartbeats a registration has no time to live: it ends with its stream.
        return self.is_registered or 0 < self.left_s < math.inf

    def give_up(self) -> None:
        """End the session now: all partitions are lost, even if time is left."""
        self._holdings.begin(-math.inf)
        self.check_time()

    def check_time(self) -> bool:
        """Return whether the session's time has just ended; queue its partitions as Lost."""
        lost = self._holdings.expire(self._clock())
        if lost is None:
            return False
        self._inbox.lose(lost)
        return True
