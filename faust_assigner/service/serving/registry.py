"""The consumers connected to this instance, each with its stream of commands."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field

from faust_assigner.service.commands import Command, Pulse
from faust_assigner.service.records import Ended, names_itself

#: The ends of a stream after which the consumer must not get the queued commands.
_STALE = (Ended.REPLACED, Ended.AGAIN, Ended.EXPELLED, Ended.LEASE_LOST)


def end_reason(incarnation: str, before: str) -> Ended:
    """Return the reason for the end of a stream of the incarnation ``before``.

    ``incarnation`` is now registered under the name. The reason is AGAIN if it is the same process,
    for example by a call that this process had given up. The process may register once more,
    whereas REPLACED would end the process.
    """
    is_same = names_itself(incarnation) and incarnation == before
    return Ended.AGAIN if is_same else Ended.REPLACED


@dataclass(eq=False, repr=False)
class Stream:
    """The stream of one consumer's commands. It begins with a snapshot.

    A snapshot also replaces a queue that overflows. A snapshot is made at the moment when the
    stream is read, so that no change is missing. The iteration ends with the stream; ``ended`` then
    is the reason. ``revision`` is the revision of the state of the last command, on the scale of
    epochs.
    """

    consumer_name: str
    session: str
    _: KW_ONLY
    incarnation: str = ""
    limit: int
    lives: Callable[[], float]
    snapshot: Callable[[], Iterable[Command]]
    overflowed: Callable[[], None]
    closed: Callable[[Stream], Awaitable[None]]
    #: Returns the revision of the current state.
    now: Callable[[], int] = int
    #: Whether the consumer sends heartbeats and receives pulses.
    beats: bool = False
    ended: Ended | None = field(default=None, init=False)
    revision: int = field(default=0, init=False)
    _queue: deque[tuple[int, Command]] = field(default_factory=deque, init=False)
    _anew: bool = field(default=True, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def lives_s(self) -> float:
        """The seconds for which no other consumer gets this consumer's partitions.

        The time counts from the consumer's request. The consumer stops processing when the time is
        over, unless an instance has answered a heartbeat since. Such answers count only after the
        stream's first message: until then the consumer has an outdated assignment.
        """
        return 0.0 if self.ended else max(self.lives(), 0.0)

    def offer(self, command: Command) -> None:
        """Queue a command; drop the command if a snapshot is due, which will include it."""
        if self.ended or self._anew:
            return
        if len(self._queue) >= self.limit:
            self.resync()
            self.overflowed()
        else:
            self._queue.append((self.now(), command))
            self._wake.set()

    def pulse(self) -> None:
        """Queue a pulse, unless a command or a snapshot waits to be sent."""
        if self.beats and not self.ended and not self._anew and not self._queue:
            self._queue.append((self.now(), Pulse()))
            self._wake.set()

    def resync(self) -> None:
        """Send a snapshot next, in place of the queued commands."""
        if not self.ended:
            self._queue.clear()
            self._anew = True
            self._wake.set()

    def end(self, why: Ended) -> None:
        """End the stream for this reason; if it has already ended, keep the first reason."""
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
                self._queue.extend((self.now(), command) for command in self.snapshot())
            if self._queue:
                self.revision, command = self._queue.popleft()
                return command
            if self.ended:
                raise StopAsyncIteration
            await self._wake.wait()

    async def close(self) -> None:
        """End the stream of a disconnected consumer.

        The registration stays until its lease expires. A consumer that reconnects in time therefore
        keeps its partitions.
        """
        self.end(Ended.CLOSED)
        await self.closed(self)


class Registry:
    """The open streams at this instance, by the consumer's name."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Stream]:
        return iter(tuple(self._streams.values()))

    def get(self, name: str) -> Stream | None:
        """Return the stream of this name."""
        return self._streams.get(name)

    def add(self, stream: Stream) -> None:
        """Add a stream; an older stream of the same name ends."""
        older = self._streams.get(stream.consumer_name)
        if older is not None:
            older.end(end_reason(stream.incarnation, older.incarnation))
        self._streams[stream.consumer_name] = stream

    def remove(self, stream: Stream) -> bool:
        """Remove this stream; return False if it is not the current stream of its name.

        A late clean-up therefore never removes a newer stream of the same name.
        """
        if self._streams.get(stream.consumer_name) is not stream:
            return False
        del self._streams[stream.consumer_name]
        return True
