"""A consumer's registration: its leased key and its stream, from their start to their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from faust_assigner.service import values as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import (
    LeaseLost,
    Replaced,
    ServiceRefused,
    StoreError,
    WrongCaller,
)
from faust_assigner.service.errors import expelled as expelled_as
from faust_assigner.service.errors import replaced as replaced_by
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import FENCE_AT, HeldLease
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import (
    FORGOTTEN,
    HEARTBEATS,
    KNOWN,
    MOST_REPLACED,
    Consumer,
    Ended,
    Status,
)
from faust_assigner.service.serving.admission import Admission
from faust_assigner.service.serving.beats import Beats
from faust_assigner.service.serving.fences import fences, may_share
from faust_assigner.service.serving.registry import Registry, Stream, followed_by
from faust_assigner.service.serving.relay import snapshot, tell
from faust_assigner.service.store.base import Delete, KeyValue, Put, Store, Write
from faust_assigner.service.store.rewrite import rewritten
from faust_assigner.service.tasks import ended
from faust_assigner.service.view import Change, View, awaited, waits_in_vain
from faust_assigner.settings.service import ServiceSettings

logger = logging.getLogger(__name__)


class _Changed(Exception):
    """The present registration has changed since it was read."""


class Sessions:
    """The registrations kept alive by this instance."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        settings: ServiceSettings,
        clock: Clock,
        mirror: Mirror,
        metrics: Metrics,
        beats: Beats,
        node_id: str,
    ) -> None:
        self.registry = Registry()
        self._admission = Admission()
        self._store = store
        self._keys = keys
        self._settings = settings
        self._clock = clock
        self._mirror = mirror
        self._metrics = metrics
        self._beats = beats
        self._node_id = node_id
        self._keeping: dict[Stream, asyncio.Task[None]] = {}
        self._is_over = False

    async def register(self, consumer: Consumer) -> Stream:
        """Write the consumer's leased key, see it in the mirror, begin its stream.

        The stream begins only after the mirror is past the registration. So its first snapshot
        reflects every earlier acknowledgement of the consumer, to any instance. Raises
        ``Busy`` if too many consumers register at once.
        """
        async with self._admission.turn():
            return await self._registered(consumer)

    async def _registered(self, consumer: Consumer) -> Stream:
        if not self._mirror.view.consumers:
            await self._mirror.begin_epochs(self._clock.wall())
        known = self._mirror.revision
        revision, written, lease = await self._written(consumer)
        await self._mirror.past(revision, known)
        await self._mirror.pass_epoch(consumer.epoch, self._clock.wall())
        stream = self._stream(written, lease)
        # The mirror's listener has already ended an older stream of this name.
        self.registry.add(stream)
        if stream.beats:
            self._beats.take(written.name, written.session, lease)
        else:
            keeping = self._keep(stream, lease)
            self._keeping[stream] = asyncio.get_running_loop().create_task(
                keeping, name=f"keep {written.session}"
            )
        self._metrics.streams(len(self.registry))
        self._check(self._mirror.view, consumer.name)
        self._relieve(self._mirror.view)
        if self._is_over:
            await self.stop()
        return stream

    async def _written(self, consumer: Consumer) -> tuple[int, Consumer, HeldLease]:
        """Write the registration, under the lease of the process's present registration if any."""
        while (present := await self._present_lease(consumer)) is not None:
            try:
                return *await self._write(consumer, *present), present[1]
            except (LeaseLost, _Changed):
                continue
        ttl_s = self._settings.consumer_ttl_s
        lease = await HeldLease.grant(self._store, self._clock, ttl_s)
        try:
            return *await self._write(consumer, None, lease), lease
        except ServiceRefused:
            await lease.revoke()
            raise
        # After a StoreError the outcome is unknown, and the lease is left to expire: the consumer
        # may still be processing, and a revoked lease would reassign its partitions at once.

    async def _present_lease(self, consumer: Consumer) -> tuple[KeyValue, HeldLease] | None:
        """Return the process's present registration and its renewed lease, or None.

        Under a new lease the process could lose its partitions without notice: an instance whose
        mirror is late goes on to renew the old lease for the process's heartbeats. A changed time
        to live needs a new lease all the same, and :meth:`_write` revokes the old lease.
        """
        kv = await self._store.get(self._keys.consumer(consumer.name))
        before = None if kv is None else codec.readable(codec.load_consumer, kv.value)
        if kv is None or before is None or not may_share(before, consumer):
            return None
        ttl_s = self._settings.consumer_ttl_s
        try:
            lease = await HeldLease.adopt(self._store, self._clock, kv.lease, ttl_s)
        except LeaseLost:
            return None
        # etcd counts whole seconds, and may grant a little more than the time to live.
        return (kv, lease) if ttl_s <= lease.granted_s < ttl_s + 2 else None

    async def _write(
        self, consumer: Consumer, present: KeyValue | None, lease: HeldLease
    ) -> tuple[int, Consumer]:
        """Write the registration; raise _Changed if ``present`` is given and not the present one."""
        consumer, key = (
            self._identified(consumer, present, lease),
            self._keys.consumer(consumer.name),
        )
        old = 0  # the process's lease before this one

        async def registered(kv: KeyValue | None) -> list[Write]:
            nonlocal old
            if present is not None and kv != present:
                raise _Changed
            before = None if kv is None else codec.readable(codec.load_consumer, kv.value)
            after = replace(consumer, registered_at=self._clock.wall())
            beside: list[Write] = await self._returning(after)
            if not (beside or self._mirror.view.awaiting):
                after = replace(after, former={})
            if kv is not None and before is not None:
                after = self._following(before, after)
                old = kv.lease if may_share(before, after) else 0
                if self._settings.strict:
                    beside += await fences(self._store, self._keys, kv, before, after, lease)
            await asyncio.sleep(0)  # large claims take long to encode: other tasks run
            value = codec.dump_consumer(after)
            await asyncio.sleep(0)
            put = Put(key, codec.checked_size(consumer.name, value), lease.lease_id)
            return [put, *beside]

        mark = self._keys.expelled(consumer.name, consumer.incarnation)
        refusal = expelled_as(consumer.name, consumer.incarnation)
        while True:
            try:
                revision = await rewritten(
                    self._store, key, registered, unless={mark: refusal}, known=present
                )
                if old and old != lease.lease_id:
                    await self._revoke(old)
                return revision, consumer
            except Replaced:
                # This process is expelled, and another process registered since: report Expelled.
                if await self._store.get(mark) is not None:
                    raise refusal from None
                raise
            except LeaseLost:
                # Retry if the lease of the replaced process expired, raise if our own did.
                if await self._store.keep_alive(lease.lease_id) <= 0:
                    raise

    def _identified(
        self, consumer: Consumer, present: KeyValue | None, lease: HeldLease
    ) -> Consumer:
        """Return the request with the new session, and with an incarnation if it has none."""
        session = f"{self._node_id}-{lease.lease_id:x}"
        if present is not None:
            session += f"-{present.mod_revision:x}"
        incarnation = consumer.incarnation or (
            f"~{session}" if HEARTBEATS in consumer.capabilities else ""
        )
        return replace(consumer, incarnation=incarnation, session=session)

    async def _revoke(self, lease_id: int) -> None:
        try:
            await self._store.revoke(lease_id)
        except StoreError as error:
            logger.info("lease %x: not revoked, so it expires: %s", lease_id, error)

    async def _returning(self, consumer: Consumer) -> list[Write]:
        """Return the additional writes of a registration after a leave or an outage.

        The first consumer after an outage of the whole group would get every partition, most of
        them cold. So its registration writes a mark. Until the mark's lease ends
        (``rebalance_delay_s``), each consumer gets only its former partitions.
        """
        view, delay_s = self._mirror.view, self._settings.rebalance_delay_s
        writes: list[Write] = []
        if consumer.name in view.departed:
            writes.append(Delete(self._keys.departed(consumer.name)))
        if delay_s <= 0 or view.consumers:
            return writes
        others = awaited(view) - {consumer.name}
        if not (others or consumer.former):
            return writes
        said = KNOWN if view.owned else FORGOTTEN
        lease = await self._store.grant(delay_s)
        logger.warning(
            "%s is the first consumer after all were gone: %s are awaited for up to %g s "
            "(--rebalance-delay-s); until then each consumer gets only its former partitions",
            consumer.name,
            f"{len(others)} others" if view.owned else "the former consumers",
            delay_s,
        )
        return [*writes, Put(self._keys.awaiting, said, lease.lease_id)]

    def _following(self, before: Consumer, after: Consumer) -> Consumer:
        """Return ``after`` with the fields inherited from ``before``.

        Raises WrongCaller and Replaced.
        """
        if before.identity and before.identity != after.identity:
            raise WrongCaller(f"{after.name} is registered by another identity")
        if before.incarnation != after.incarnation:
            if after.returns or after.incarnation in before.replaced:
                raise replaced_by(after.name, after.incarnation, before.incarnation)
            # A new process is not drained, unless an operator drained the consumer.
            passed = (before.incarnation, *before.replaced)[:MOST_REPLACED]
            after = replace(after, replaced=passed)
            if not before.by_operator:
                return after
        # A broken connection does not undo a drain. But a dismissed process was told to stop
        # while it owned partitions: the next process of this name may take these partitions.
        if before.status is Status.DRAINING and not before.dismissed:
            after = replace(
                after,
                status=before.status,
                by_operator=before.by_operator,
                leaves=before.leaves and before.incarnation == after.incarnation,
                # If True, _relieve() ends the new stream as its first step.
                dismissed=waits_in_vain(self._mirror.view, after.name, self._mirror.view.ready()),
            )
        return replace(
            after,
            replaced=after.replaced or before.replaced,
            former=after.former or (before.former if self._mirror.view.awaiting else {}),
        )

    def _stream(self, consumer: Consumer, lease: HeldLease) -> Stream:
        name = consumer.name
        return Stream(
            name,
            consumer.session,
            incarnation=consumer.incarnation,
            limit=self._settings.channel,
            lives=lambda: lease.left_s,
            snapshot=lambda: snapshot(self._mirror.view, name),
            overflowed=lambda: self._metrics.stream_resynced(name),
            closed=self._closed,
            now=lambda: self._mirror.dated,
            beats=HEARTBEATS in consumer.capabilities,
        )

    async def pulse(self) -> None:
        """Send pulses on idle streams, forever; end the streams if the store gives no news.

        A consumer may send its heartbeats to a different instance. The consumer would stay
        registered and never receive its commands.
        """
        settings = self._settings
        most_s = max(FENCE_AT * settings.consumer_ttl_s, 3 * settings.reconcile_s)
        while True:
            await self._clock.sleep(settings.pulse_s)
            silent_s = self._clock.monotonic() - self._mirror.heard_at
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
        await lease.hold(self._settings.consumer_keepalive_s)
        logger.info("%s: the registration is lost", stream.consumer_name)
        self._keeping.pop(stream, None)
        self._end(stream, Ended.LEASE_LOST)

    def _end(self, stream: Stream, why: Ended) -> None:
        stream.end(why)
        if self.registry.remove(stream):
            self._metrics.streams(len(self.registry))

    async def _closed(self, stream: Stream) -> None:
        """End the stream of a disconnected consumer, and stop renewing its lease here."""
        self._end(stream, Ended.CLOSED)
        await self._stop_keeping(stream)

    async def _stop_keeping(self, stream: Stream) -> None:
        keeping = self._keeping.pop(stream, None)
        if keeping is not None:
            await ended(keeping)

    # -- changes in the store ----------------------------------------------------------------------

    def heard(self, changes: Sequence[Change]) -> None:
        """Listen to the mirror and send commands to the consumers connected here."""
        view = self._mirror.view
        for name, command in tell(view, changes):
            stream = self.registry.get(name)
            if stream is not None:
                stream.offer(command)
        for change in changes:
            if change.kind == "consumers":
                self._check(view, change.name, change)
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

    def _check(self, view: View, name: str, change: Change | None = None) -> None:
        """End the stream of ``name`` if its registration is gone or has another session."""
        stream, entry = self.registry.get(name), view.consumers.get(name)
        if stream is None or (entry is not None and entry.value.session == stream.session):
            return
        why = Ended.LEASE_LOST
        if entry is not None:
            why = followed_by(entry.value.incarnation, stream.incarnation)
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
