"""Manages the streams of the consumers that registered at this instance."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from faust_assigner.service.clock import Clock
from faust_assigner.service.leases import FENCE_AT, HeldLease
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.questions import waits_in_vain
from faust_assigner.service.records import HEARTBEATS, Consumer, Ended, Status
from faust_assigner.service.serving.admission import Admission
from faust_assigner.service.serving.beats import Beats
from faust_assigner.service.serving.registrar import Registrar
from faust_assigner.service.serving.registry import Registry, Stream, end_reason
from faust_assigner.service.serving.relay import commands_of_changes, snapshot
from faust_assigner.service.tasks import cancel_and_wait
from faust_assigner.service.view import Change, View
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Sessions:
    """The consumers that registered at this instance, with their streams."""

    settings: ServiceSettings
    clock: Clock
    mirror: Mirror
    metrics: Metrics
    beats: Beats
    registrar: Registrar
    registry: Registry = field(default_factory=Registry, init=False)
    _admission: Admission = field(default_factory=Admission, init=False)
    _keeping: dict[Stream, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _is_over: bool = field(default=False, init=False)

    async def register(self, consumer: Consumer) -> Stream:
        """Write the consumer's leased key, wait until the mirror has it, and begin the stream.

        Because of this wait, the first snapshot reflects every earlier acknowledgement of the
        consumer, to any instance. Raises ``Busy`` if too many consumers register at once.
        """
        async with self._admission.turn():
            return await self._registered(consumer)

    async def _registered(self, consumer: Consumer) -> Stream:
        if not self.mirror.view.consumers:
            await self.mirror.epochs.begin(self.clock.wall())
        known = self.mirror.revision
        revision, written, lease = await self.registrar.write(consumer)
        await self.mirror.reached_write(revision, known)
        await self.mirror.epochs.surpass(consumer.epoch, self.clock.wall())
        stream = self._stream(written, lease)
        # If a later registration of the name has overtaken this one, its stream must stay.
        self._check(self.mirror.view, stream)
        if stream.ended is None:
            self._open(stream, lease)
        self._relieve(self.mirror.view)
        if self._is_over:
            await self.stop()
        return stream

    def _open(self, stream: Stream, lease: HeldLease) -> None:
        """Add the stream, and renew its lease if the consumer sends no heartbeats."""
        # The mirror's listener has already ended an older stream of this name.
        self.registry.add(stream)
        if stream.beats:
            self.beats.take(stream.consumer_name, stream.session, lease)
        else:
            keeping = self._keep(stream, lease)
            self._keeping[stream] = asyncio.get_running_loop().create_task(
                keeping, name=f"keep {stream.session}"
            )
        self.metrics.streams(len(self.registry))

    def _stream(self, consumer: Consumer, lease: HeldLease) -> Stream:
        name = consumer.name
        return Stream(
            name,
            consumer.session,
            incarnation=consumer.incarnation,
            limit=self.settings.channel,
            lives=lambda: lease.left_s,
            snapshot=lambda: snapshot(self.mirror.view, name),
            overflowed=lambda: self.metrics.stream_resynced(name),
            closed=self._closed,
            now=lambda: self.mirror.dated,
            beats=HEARTBEATS in consumer.capabilities,
        )

    async def pulse(self) -> None:
        """Send pulses on idle streams, forever; end the streams if the store does not answer.

        If the store answers other instances, heartbeats to them would keep the consumer registered
        while its stream here sends no commands.
        """
        settings = self.settings
        most_s = max(FENCE_AT * settings.consumer_ttl_s, 3 * settings.reconcile_s)
        while True:
            await self.clock.sleep(settings.pulse_s)
            silent_s = self.clock.monotonic() - self.mirror.heard_at
            for stream in self.registry:
                if stream.beats and silent_s >= most_s:
                    logger.warning(
                        "%s: its stream ends, because the store has not answered for %.0f s and "
                        "this instance has no current assignment; the consumer registers again",
                        stream.consumer_name,
                        silent_s,
                    )
                    self._end(stream, Ended.LEASE_LOST)
                else:
                    stream.pulse()

    async def _keep(self, stream: Stream, lease: HeldLease) -> None:
        await lease.hold(self.settings.consumer_keepalive_s)
        logger.info("%s: the registration is lost, so its stream ends", stream.consumer_name)
        self._keeping.pop(stream, None)
        self._end(stream, Ended.LEASE_LOST)

    def _end(self, stream: Stream, why: Ended) -> None:
        stream.end(why)
        if self.registry.remove(stream):
            self.metrics.streams(len(self.registry))

    async def _closed(self, stream: Stream) -> None:
        """End the stream of a disconnected consumer, and stop renewing its lease here."""
        self._end(stream, Ended.CLOSED)
        await self._stop_keeping(stream)

    async def _stop_keeping(self, stream: Stream) -> None:
        keeping = self._keeping.pop(stream, None)
        if keeping is not None:
            await cancel_and_wait(keeping)

    # -- changes in the store ----------------------------------------------------------------------

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Send the commands that follow from the mirror's changes to the connected consumers."""
        view = self.mirror.view
        for name, command in commands_of_changes(view, changes):
            stream = self.registry.get(name)
            if stream is not None:
                stream.offer(command)
        for change in changes:
            if change.kind == "consumers":
                stream = self.registry.get(change.name)
                if stream is not None:
                    self._check(view, stream, change)
            elif change.kind == "resyncs" and change.after is not None:
                stream = self.registry.get(change.name)
                if stream is not None and stream.session == change.after.value:
                    stream.resync()
        if any(change.kind == "consumers" for change in changes):
            self._relieve(view)
        if any(change.kind == "bases" for change in changes):
            # All epochs have changed: each stream sends a full assignment when it is next read.
            for stream in self.registry:
                stream.resync()

    def _relieve(self, view: View) -> None:
        """End the streams of draining consumers whose partitions no ready consumer can take."""
        leaving = [name for name in sorted(view.draining) if self.registry.get(name) is not None]
        ready = view.ready() if leaving else []
        for name in leaving:
            stream = self.registry.get(name)
            if stream is not None and waits_in_vain(view, name, ready):
                self._end(stream, Ended.DRAINED)
                self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        """Stop renewing the lease of the stream's registration."""
        keeping = self._keeping.pop(stream, None)
        if keeping is not None:
            keeping.cancel()

    def _check(self, view: View, stream: Stream, change: Change | None = None) -> None:
        """End the stream if its registration is gone or has another session."""
        name = stream.consumer_name
        entry = view.consumers.get(name)
        if entry is not None and entry.value.session == stream.session:
            return
        why = Ended.LEASE_LOST
        if entry is not None:
            why = end_reason(entry.value.incarnation, stream.incarnation)
        if (name, stream.incarnation) in view.expelled:
            why = Ended.EXPELLED
        elif (
            entry is None
            and change
            and change.before
            and change.before.value.status is Status.DRAINING
        ):
            why = Ended.DRAINED
        self._end(stream, why)
        self._drop(stream)

    async def stop(self) -> None:
        """End all present and later streams; their registrations live until their leases expire."""
        self._is_over = True
        for stream in self.registry:
            self._end(stream, Ended.STOPPING)
        for stream in tuple(self._keeping):
            await self._stop_keeping(stream)
