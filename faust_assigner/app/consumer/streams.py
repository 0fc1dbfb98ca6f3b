"""The streams of agents: an agent that fails reads on in its next run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from faust.types.models import FieldDescriptorT
from mode import Service

if TYPE_CHECKING:
    from faust.types.events import EventT
    from faust.types.topics import TopicT

    from faust_assigner.app.host.bases import StreamBase as Stream
else:
    from faust.streams import Stream


class ErrorChannel(Protocol):
    """The destination of a reader's error: the channel of a created stream, or the buffer of batches."""

    async def maybe_declare(self) -> None:
        """Create the channel's topic, if it has one."""

    async def throw(self, exc: BaseException) -> None:
        """Raise ``exc`` in the agent's run."""


class LastingStream(Stream):
    """The stream of an agent: after an error the agent's next run reads on.

    Stock Faust has three faults. After ``group_by`` and ``through`` it stops the source, too: the next run
    reads the stopped source and ends, so no code reads the topic any more. Here the source continues, and the
    next run gets the stream that was created from it. Stock Faust acknowledges the failed record when Python
    frees the failed run's iterator. If the agent's function has a variable for the iterator, the error keeps
    it alive, and no commit passes the record. A record that fails in a processor (``filter``, ``echo``) is
    never acknowledged. Here ``begin_again`` ends the iterators of the failed run and
    acknowledges its record.
    """

    #: The processors that stay if the agent fails; the next run adds the others again. None without an agent.
    _kept: tuple[object, ...] | None = None
    #: Whether the agent has failed and is in a later run.
    _runs_again = False
    #: The stream that ``group_by`` or ``through`` created from this stream.
    _created: LastingStream | None = None
    #: The record that the stream has read last; Faust sets it.
    current_event: EventT[object] | None
    #: The task that reads this stream in the background, for a created stream or for batches.
    _reader: asyncio.Future[None] | None = None
    #: The task that ends the failed run.
    _ending: asyncio.Task[None] | None = None
    #: The function of ``group_by`` in the agent's current run.
    _new_key: Callable[[object], object] | None = None

    def keep_processors(self) -> None:
        """Keep the current processors if the agent that reads this stream fails."""
        self._kept = tuple(self._processors)

    def _keep(self, *processors: object) -> None:
        if self._kept is not None:
            self._kept += processors

    def begin_again(self) -> None:
        """Prepare this stream, and the streams created from it, for the next run of a failed agent.

        The next run adds its processors (``filter``, ``echo``) again; in stock Faust they then run twice.
        """
        self._runs_again = True
        self._end_added_processors()
        unfinished = [agen for agen in self._active_agens if not _has_ended(agen)]
        # The iterator acknowledges its record at its end, unless a processor of the record has failed.
        failed = None if unfinished else self._take_failed()
        self._ending = asyncio.get_running_loop().create_task(self._end_run(unfinished, failed))
        if self._created is not None:
            self._created.begin_again()

    def _take_failed(self) -> EventT[object] | None:
        """Return the record whose processor has failed, once: a second call must not acknowledge it again."""
        failed, self.current_event = self.current_event, None
        return failed

    async def _end_run(
        self, unfinished: Collection[AsyncGenerator[object]], failed: EventT[object] | None
    ) -> None:
        """End the iterators and batches of the failed run, and acknowledge its ``failed`` record."""
        for agen in unfinished:
            with suppress(RuntimeError):  # of a background reader, which continues
                await agen.aclose()
        if failed is not None:
            await self.ack(failed)

    def _end_added_processors(self) -> None:
        """Remove the processors that the agent has added in its failed run."""
        self._take_added()

    def _take_added(self) -> list[object]:
        """Remove and return the processors that the agent has added in its current run."""
        kept = self._kept or ()
        added = [processor for processor in self._processors if processor not in kept]
        self._processors[:] = [processor for processor in self._processors if processor in kept]
        return added

    def group_by(
        self,
        key: Any,
        *,
        name: str | None = None,
        topic: TopicT | None = None,
        partitions: int | None = None,
    ) -> LastingStream:
        """Return the repartitioned stream; a later run of the agent gets the same, with its own ``key``."""
        if not isinstance(key, FieldDescriptorT):
            self._new_key, key = key, self._key_of
        return self._create(
            partial(super().group_by, key, name=name, topic=topic, partitions=partitions)
        )

    def _key_of(self, value: object) -> object:
        assert self._new_key is not None
        return self._new_key(value)

    def through(self, channel: Any) -> LastingStream:
        """Return the stream of ``channel``; a later run of the agent gets the same stream."""
        return self._create(partial(super().through, channel))

    def _create(self, create: Callable[[], LastingStream]) -> LastingStream:
        # Faust moves this stream's processors to the created stream.
        if self._created is not None and self._runs_again:
            for processor in self._take_added():
                self._created.add_processor(processor)
            # no effect while the source is read
            self._enable_passive(self._created.channel, declare=True)
            return self._created
        kept = self._kept
        moved = [processor for processor in self._processors if processor in (kept or ())]
        created = create()
        if created is not self:
            self._created = created
            created._kept = None if kept is None else tuple(moved)
            self._keep(*self._processors)
        return created

    def _enable_passive(self, channel: ErrorChannel, *, declare: bool = False) -> None:
        """Read this stream in the background, unless a task does; ``channel`` gets an error of the task."""
        if self._kept is None:  # no agent reads this stream
            super()._enable_passive(channel, declare=declare)
        elif self._reader is None or self._reader.done():
            self._reader = self.add_future(self._read(channel, declare))

    async def _read(self, channel: ErrorChannel, declare: bool) -> None:
        try:
            if declare:
                await channel.maybe_declare()
            # An iterator that starts the stream also stops it, and this task, after an error.
            await self.maybe_start()
            async for _ in self:
                pass
        except Exception as error:
            if (failed := self._take_failed()) is not None:
                await self.ack(failed)
            await channel.throw(error)
        else:
            await self.stop()

    async def stop(self) -> None:
        """Stop this stream; of an agent's streams, stop the others only if the app stops.

        Faust calls this method when the agent fails. The source must continue: a record that the source has
        read, but not sent, would be neither sent nor acknowledged.
        """
        if self._kept is None or self.app.should_stop:
            await super().stop()
        else:
            await Service.stop(self)


def _has_ended(agen: Any) -> bool:
    return agen.ag_frame is None
