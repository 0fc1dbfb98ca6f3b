"""A consumer's registration: its leased key, its stream, and how both end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from faust_assigner.service import keys as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import ServiceRefused, WrongCaller
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import Consumer, Ended, Status
from faust_assigner.service.serving.registry import Registry, Stream
from faust_assigner.service.serving.relay import snapshot, tell
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.base import KeyValue, Put, Store
from faust_assigner.service.store.rewrite import rewritten
from faust_assigner.service.tasks import ended
from faust_assigner.service.view import Change, View, has_more, waits_in_vain

logger = logging.getLogger(__name__)


class Sessions:
    """The registrations this instance keeps alive."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        settings: ServiceSettings,
        clock: Clock,
        mirror: Mirror,
        metrics: Metrics,
        node_id: str,
    ) -> None:
        self.registry = Registry()
        self._store = store
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._mirror = mirror
        self._metrics = metrics
        self._node_id = node_id
        self._keeping: dict[Stream, asyncio.Task[None]] = {}
        self._is_over = False

    async def register(self, consumer: Consumer) -> Stream:
        """Write the consumer's key under a lease of its own, see it in the mirror, and begin its stream.

        The stream begins only where the mirror is past the registration: whatever the consumer has said
        before, anywhere, is in what it is told first.
        """
        known = self._mirror.revision
        lease = await HeldLease.grant(self._store, self._clock, self._settings.consumer_ttl_s)
        try:
            revision, session = await self._write(consumer, lease)
        except ServiceRefused:
            await lease.revoke()
            raise
        # Where nobody knows what became of it, time ends the lease: the consumer may be processing still,
        # and a revoked lease would give away at once what it owns.
        await self._mirror.past(revision, known)
        stream = self._stream(consumer.name, session, lease)
        self.registry.add(
            stream
        )  # one that was here before has ended when the mirror heard of this one
        loop = asyncio.get_running_loop()
        self._keeping[stream] = loop.create_task(self._keep(stream, lease), name=f"keep {session}")
        self._metrics.streams(len(self.registry))
        self._check(self._mirror.view, consumer.name)
        self._relieve(self._mirror.view)
        if self._is_over:
            await self.stop()
        return stream

    async def _write(self, consumer: Consumer, lease: HeldLease) -> tuple[int, str]:
        key, session = self._keys.consumer(consumer.name), f"{self._node_id}-{lease.lease_id:x}"

        async def registered(kv: KeyValue | None) -> Put:
            status, dismissed = Status.READY, False
            before = None if kv is None else codec.readable(codec.load_consumer, kv.value)
            if before is not None:
                if before.identity and before.identity != consumer.identity:
                    raise WrongCaller(f"{consumer.name} is registered by another identity")
                # A drain is the process's last; it is not undone by a connection that broke. Only a process
                # that was told to stop, with its partitions left to it, has a successor that may take them.
                if before.status is Status.DRAINING and not before.dismissed:
                    status = before.status
                    dismissed = _is_left_alone(
                        self._mirror.view, consumer.name
                    )  # what it is told first
            await asyncio.sleep(0)  # claims may be long to read and to write: the others' turn
            value = codec.dump_consumer(
                replace(
                    consumer,
                    status=status,
                    dismissed=dismissed,
                    registered_at=self._clock.wall(),
                    session=session,
                )
            )
            await asyncio.sleep(0)
            return Put(key, codec.checked_size(consumer.name, value), lease.lease_id)

        return await rewritten(self._store, key, registered), session

    def _stream(self, name: str, session: str, lease: HeldLease) -> Stream:
        return Stream(
            name,
            session,
            limit=self._settings.channel,
            lives=lambda: lease.left_s,
            snapshot=lambda: snapshot(self._mirror.view, name),
            overflowed=lambda: self._metrics.stream_resynced(name),
            closed=self._closed,
            revoke=lease.revoke,
        )

    async def _keep(self, stream: Stream, lease: HeldLease) -> None:
        await lease.hold(self._settings.consumer_keepalive_s)
        logger.info("%s: the registration is lost", stream.consumer_name)
        self._keeping.pop(stream, None)
        self._end(stream, Ended.LEASE_LOST)

    def _end(self, stream: Stream, why: Ended) -> None:
        stream.end(why)
        if self.registry.remove(stream):
            self._metrics.streams(len(self.registry))

    async def _closed(self, stream: Stream) -> None:
        """The consumer went away without a word: its lease is not renewed any more and runs out."""
        self._end(stream, Ended.CLOSED)
        await self._stop_keeping(stream)

    async def _stop_keeping(self, stream: Stream) -> None:
        keeping = self._keeping.pop(stream, None)
        if keeping is not None:
            await ended(keeping)

    # -- what happens to others ----------------------------------------------------------------------

    def heard(self, changes: Sequence[Change]) -> None:
        """A listener of the mirror: tell the consumers that are here."""
        view = self._mirror.view
        for name, command in tell(view, changes):
            stream = self.registry.get(name)
            if stream is not None:
                stream.offer(command)
        for change in changes:
            if change.kind == "consumers":
                self._check(view, change.name, change)
        if any(change.kind == "consumers" for change in changes):
            self._relieve(view)

    def _relieve(self, view: View) -> None:
        """A draining consumer that nobody is left to relieve need not wait."""
        for name in [n for n, e in view.consumers.items() if e.value.status is Status.DRAINING]:
            stream = self.registry.get(name)
            if stream is not None and _is_left_alone(view, name):
                self._end(stream, Ended.DRAINED)
                self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        """Its lease is not renewed any more."""
        keeping = self._keeping.pop(stream, None)
        if keeping is not None:
            keeping.cancel()

    def _check(self, view: View, name: str, change: Change | None = None) -> None:
        """End the stream of a registration that is not there any more."""
        stream, entry = self.registry.get(name), view.consumers.get(name)
        if stream is None or (entry is not None and entry.value.session == stream.session):
            return
        why = Ended.LEASE_LOST if entry is None else Ended.REPLACED
        if (
            entry is None
            and change
            and change.before
            and change.before.value.status is Status.DRAINING
        ):
            why = Ended.DRAINED
        self._end(stream, why)
        self._drop(stream)

    async def stop(self) -> None:
        """End all streams, and those to come; their registrations live on until their leases run out."""
        self._is_over = True
        for stream in self.registry:
            self._end(stream, Ended.STOPPING)
        for stream in tuple(self._keeping):
            await self._stop_keeping(stream)


def _is_left_alone(view: View, name: str) -> bool:
    """Whether a draining consumer has what nobody can take from it."""
    return has_more(view, name) and waits_in_vain(view, name)
