"""An operator's orders to the leader, as keys of the store: pause, pin, move, undrain."""

from __future__ import annotations

from dataclasses import dataclass, replace

from faust_assigner.service import values as codec
from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import NotFound, WrongPhase
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.keys import Keys, checked_consumer, one_line
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import Consumer, Pause, Pin, Status
from faust_assigner.service.serving.registered import Registered
from faust_assigner.service.store.base import Delete, KeyValue, Put, Store, Write
from faust_assigner.service.store.rewrite import Decide, rewritten

#: Maximum number of characters of a reason.
MOST_SAID = 500


@dataclass(eq=False, repr=False)
class Orders:
    """Writes orders. Each method returns the revision from which its order holds, as epochs count.

    Each order may be repeated.
    """

    store: Store
    keys: Keys
    clock: Clock
    mirror: Mirror
    registered: Registered

    async def pause(self, reason: str) -> int:
        """Stop moves for balance from now on. A second pause keeps the first pause's start time."""

        async def paused(kv: KeyValue | None) -> Write | None:
            before = codec.readable(codec.load_pause, kv)
            since = self.clock.wall() if before is None else before.since
            after = Pause(one_line(reason, MOST_SAID), since)
            return None if after == before else Put(self.keys.paused, codec.dump_pause(after))

        return await self._ordered(self.keys.paused, paused)

    async def resume(self) -> int:
        """End the pause, if there is one."""
        return await self._delete_order(self.keys.paused)

    async def pin(self, at: TopicPartition, name: str) -> int:
        """Keep the partition on the consumer whenever that consumer is registered.

        Raises NotFound.
        """
        self._check_exists(at)
        return await self._pinned(Pin(at, checked_consumer(name)))

    async def unpin(self, at: TopicPartition) -> int:
        """End the partition's pin or pending move, if there is any."""
        return await self._delete_order(self.keys.pin(at))

    async def move(self, at: TopicPartition, name: str) -> int:
        """Hand the partition to the consumer now; later plans may move the partition again.

        Raises NotFound, and WrongPhase if the consumer leaves, does not subscribe to the topic, or
        the partition is pinned.
        """
        self._check_exists(at)
        view = self.mirror.view
        entry = view.consumers.get(checked_consumer(name))
        if entry is None:
            raise NotFound(f"no consumer {name}")
        if entry.value.status is Status.DRAINING:
            raise WrongPhase(f"{name} is leaving, so it gets no partitions")
        if not entry.value.wants(at.topic):
            raise WrongPhase(f"{name} does not subscribe to {at.topic}")
        pin = view.pins.get(at)
        if pin is not None and not pin.value.once:
            raise WrongPhase(f"{at} is pinned to {pin.value.consumer}: unpin it first")
        return await self._pinned(Pin(at, name, once=True))

    async def undrain(self, name: str) -> int:
        """Cancel an operator's drain: the consumer gets partitions again.

        Raises NotFound, and WrongPhase if the process itself leaves or was already told to stop.
        """

        def kept(consumer: Consumer) -> Consumer:
            if consumer.status is Status.READY:
                return consumer
            if consumer.leaves or not consumer.by_operator:
                raise WrongPhase(
                    f"{name} is leaving because its process stops; only a drain by an operator can "
                    "be undone"
                )
            if consumer.dismissed:
                raise WrongPhase(f"{name} already got the command to stop: it may register again")
            return replace(consumer, status=Status.READY, by_operator=False)

        return await self._seen(await self.registered.change(checked_consumer(name), kept))

    def _check_exists(self, at: TopicPartition) -> None:
        if not self.mirror.view.exists(at):
            raise NotFound(f"no partition {at}")

    async def _pinned(self, pin: Pin) -> int:
        value = codec.dump_pin(pin)

        async def pinned(kv: KeyValue | None) -> Write | None:
            return (
                None if kv is not None and kv.value == value else Put(self.keys.pin(pin.at), value)
            )

        return await self._ordered(self.keys.pin(pin.at), pinned)

    async def _delete_order(self, key: str) -> int:
        async def ended(kv: KeyValue | None) -> Write | None:
            return None if kv is None else Delete(key)

        return await self._ordered(key, ended)

    async def _ordered(self, key: str, decide: Decide) -> int:
        return await self._seen(await rewritten(self.store, key, decide))

    async def _seen(self, revision: int) -> int:
        """Wait until this instance's mirror has the order, so that its next answers show it."""
        await self.mirror.reached(revision)
        return self.mirror.view.base + revision
