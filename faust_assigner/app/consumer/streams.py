"""The streams of agents: their runs after an error, and batches of ``take`` that a rebalance ends early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from faust.types.models import FieldDescriptorT
from mode import Service
from mode.utils.times import want_seconds

if TYPE_CHECKING:
    from faust.types.topics import TopicT
    from faust.types.tuples import TP
    from mode.services import WaitArgT
    from mode.utils.times import Seconds

    from faust_assigner.app.host.bases import StreamBase as Stream
else:
    from faust.streams import Stream

#: Seconds between two checks whether a commit or a rebalance waits for records of an incomplete batch.
LOOK_S = 0.1


class TimelyStream(Stream):
    """The stream of an app without ``exactly_once``: an incomplete batch does not delay a rebalance.

    Stock Faust's ``take`` waits until its batch is full or ``within`` is over. Meanwhile the rebalance waits
    for the records in the batch: an eager rebalance for ever, a cooperative one until its timeout.

    An agent that fails reads on in its next run, also after ``group_by`` and ``through``. Stock Faust stops
    the source, too. The next run then reads the stopped source and ends, so no code reads the topic any more.
    Here the source continues, and the next run gets the stream that was created from it.
    """

    #: The processors that stay if the agent fails; the next run adds the others again. None without an agent.
    _kept: tuple[object, ...] | None = None
    #: Whether the agent has failed and is in a later run.
    _runs_again = False
    #: The stream that ``group_by`` or ``through`` created from this stream.
    _created: TimelyStream | None = None
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
        self._take_added()
        if self._created is not None:
            self._created.begin_again()

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
    ) -> TimelyStream:
        """Return the repartitioned stream; a later run of the agent gets the same, with its own ``key``."""
        if not isinstance(key, FieldDescriptorT):
            self._new_key, key = key, self._key_of
        return self._create(
            partial(super().group_by, key, name=name, topic=topic, partitions=partitions)
        )

    def _key_of(self, value: object) -> object:
        assert self._new_key is not None
        return self._new_key(value)

    def through(self, channel: Any) -> TimelyStream:
        """Return the stream of ``channel``; a later run of the agent gets the same stream."""
        return self._create(partial(super().through, channel))

    def _create(self, create: Callable[[], TimelyStream]) -> TimelyStream:
        # Faust moves this stream's processors to the created stream.
        if self._created is not None and self._runs_again:
            self._created._processors.extend(self._take_added())
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

    async def stop(self) -> None:
        """Stop this stream; of an agent's streams, stop the others only if the app stops.

        Faust calls this method when the agent fails. The source must continue: a record that the source has
        read, but not sent, would be neither sent nor acknowledged.
        """
        if self._kept is None or self.app.should_stop:
            await super().stop()
        else:
            await Service.stop(self)

    async def wait_for_stopped(
        self, *coros: WaitArgT | asyncio.Event, timeout: Seconds | None = None
    ) -> bool:
        """Wait for ``coros`` as ``take`` does; return early if a rebalance or the shutdown waits.

        ``take`` then returns the records that it has read.
        """
        if not all(isinstance(event, asyncio.Event) for event in coros):
            return await super().wait_for_stopped(*coros, timeout=timeout)
        loop = asyncio.get_running_loop()
        end = loop.time() + want_seconds(timeout) if timeout else None
        while True:
            left = LOOK_S if end is None else max(0.0, min(LOOK_S, end - loop.time()))
            # Ignore the result, which is True after a timeout as well.
            await super().wait_for_stopped(*coros, timeout=left)
            if any(event.is_set() for event in coros):
                return False
            if (
                self.should_stop
                or (end is not None and loop.time() >= end)
                or self._holds_up_a_round()
            ):
                return True

    def _holds_up_a_round(self) -> bool:
        """Return whether a rebalance or the shutdown waits for unfinished records.

        A rebalance and the shutdown wait only with Faust's setting ``stream_wait_empty``.
        """
        consumer = self.app.consumer
        if not self.app.conf.stream_wait_empty or not consumer._unacked_messages:
            return False
        leaving: frozenset[TP] = getattr(consumer, "leaving", frozenset())
        return (
            self.app.should_stop
            or not self.app.flow_control.is_active()
            or any(m.tp in leaving and not m.acked for m in list(consumer._unacked_messages))
        )
