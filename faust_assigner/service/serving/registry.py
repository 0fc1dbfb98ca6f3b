"""The consumers that are connected to this instance, each with its stream of commands."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator

from faust_assigner.service.commands import Command, Pulse
from faust_assigner.service.records import Ended

#: What of a stream's queue is still true when it has ended so.
_STALE = (Ended.REPLACED, Ended.EXPELLED, Ended.LEASE_LOST)


class Stream:
    """One consumer's commands. What does not fit is not lost: a snapshot takes the place of the whole queue.

    It begins with a snapshot too, taken when it is read: no change can slip in between.
    """

    def __init__(
        self,
        consumer_name: str,
        session: str,
        *,
        incarnation: str = "",
        limit: int,
        lives: Callable[[], float],
        snapshot: Callable[[], Iterable[Command]],
        overflowed: Callable[[], None],
        closed: Callable[[Stream], Awaitable[None]],
        now: Callable[[], int] = int,
        beats: bool = False,
    ) -> None:
        self.consumer_name = consumer_name
        self.session = session
        self.incarnation = incarnation
        self.beats = beats  # the consumer sends heartbeats, and is told that the stream lives
        self.ended: Ended | None = None
        self._limit = limit
        self._lives = lives
        self._snapshot = snapshot
        self._overflowed = overflowed
        self._closed = closed
        self._now = now  # the revision of the state that is told of now
        self.revision = 0
        self._queue: deque[tuple[int, Command]] = deque()
        self._anew = True
        self._wake = asyncio.Event()

    @property
    def lives_s(self) -> float:
        """Seconds for which the registration surely lives."""
        return 0.0 if self.ended else max(self._lives(), 0.0)

    def offer(self, command: Command) -> None:
        """Queue it, unless a snapshot is due that will tell it anyway."""
        if self.ended or self._anew:
            return
        if len(self._queue) >= self._limit:
            self.resync()
            self._overflowed()
        else:
            self._queue.append((self._now(), command))
            self._wake.set()

    def pulse(self) -> None:
        """Say that the stream lives, unless something is about to be told that says so as well."""
        if self.beats and not self.ended and not self._anew and not self._queue:
            self._queue.append((self._now(), Pulse()))
            self._wake.set()

    def resync(self) -> None:
        """Tell everything again; what is queued is in it."""
        if not self.ended:
            self._queue.clear()
            self._anew = True
            self._wake.set()

    def end(self, why: Ended) -> None:
        """No more commands; the first reason stays."""
        if self.ended is None:
            self.ended = why
            if why in _STALE:
                self._queue.clear()
                self._anew = False
            self._wake.set()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Command:
        while True:
            self._wake.clear()
            if self._anew:
                self._anew = False
                self._queue.extend((self._now(), command) for command in self._snapshot())
            if self._queue:
                self.revision, command = self._queue.popleft()
                return command
            if self.ended:
                raise StopAsyncIteration
            await self._wake.wait()

    async def close(self) -> None:
        """The consumer is gone from here."""
        self.end(Ended.CLOSED)
        await self._closed(self)


class Registry:
    """Name -> its living stream here."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        return iter(tuple(self._streams.values()))

    def get(self, name: str) -> Stream | None:
        """The stream of that name."""
        return self._streams.get(name)

    def add(self, stream: Stream) -> None:
        """From now on it is told everything; an older one of the name is over."""
        older = self._streams.get(stream.consumer_name)
        if older is not None:
            older.end(Ended.REPLACED)
        self._streams[stream.consumer_name] = stream

    def remove(self, stream: Stream) -> bool:
        """By the stream and not by its name: a late clean-up never takes away the one that came after it."""
        if self._streams.get(stream.consumer_name) is not stream:
            return False
        del self._streams[stream.consumer_name]
        return True
