"""Changes existing registrations: records replicas, and begins drains and leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from faust_assigner.service import values as codec
from faust_assigner.service.errors import NotFound, replaced
from faust_assigner.service.keys import Keys, checked_consumer
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.questions import has_more, waits_in_vain
from faust_assigner.service.records import Action, Consumer, Status, names_itself
from faust_assigner.service.serving.claims import check_claims
from faust_assigner.service.store.base import Delete, KeyValue, Put, Store, Write, unchanged
from faust_assigner.service.store.rewrite import rewritten


@dataclass(eq=False, repr=False)
class Registered:
    """Changes the registrations of all instances in the store."""

    store: Store
    keys: Keys
    mirror: Mirror

    async def hold(self, name: str, incarnation: str, held: Mapping[str, tuple[int, ...]]) -> int:
        """Record the replicas that a process keeps; return a revision that contains the record.

        Raises NotFound, Replaced and BadRequest.
        """

        def holding(consumer: Consumer) -> Consumer:
            _check_incarnation(consumer, incarnation)
            check_claims(after := replace(consumer, holds=held))
            return after

        return await self.change(name, holding)

    async def leave(self, name: str, incarnation: str) -> Action:
        """Begin the leave of a process. Raises NotFound and Replaced."""

        def leaving(consumer: Consumer) -> Consumer:
            _check_incarnation(consumer, incarnation)
            return replace(consumer, status=Status.DRAINING, leaves=True)

        return await self._drained(name, leaving)

    async def drain(self, name: str) -> Action:
        """Drain the consumer by an operator's order; the order holds for every process of the name.

        Raises NotFound.
        """

        def draining(consumer: Consumer) -> Consumer:
            return replace(consumer, status=Status.DRAINING, by_operator=True)

        return await self._drained(checked_consumer(name), draining)

    async def _drained(self, name: str, change: Callable[[Consumer], Consumer]) -> Action:
        revision = await self.change(name, change)
        # Read the view at this revision or later: from then on no plan includes the consumer.
        await self.mirror.reached(revision)
        entry = self.mirror.view.consumers.get(name)
        if entry is None:
            return Action.SHUTDOWN_NOW
        if entry.value.status is not Status.DRAINING:
            # A later process has the name, or an operator has ended the drain.
            return Action.WAIT_FOR_DRAIN
        if has_more(self.mirror.view, name):
            if not waits_in_vain(self.mirror.view, name, self.mirror.view.ready()):
                return Action.WAIT_FOR_DRAIN
            # No ready consumer can take its partitions. Its key stays until its lease expires, so
            # that no later consumer takes the partitions before the process has stopped.
            await self.change(
                name,
                lambda now: replace(now, dismissed=now.status is Status.DRAINING),
                beside=[Put(self.keys.departed(name), b"dismissed")],
            )
            return Action.SHUTDOWN_NOW
        gone = await self.store.txn([unchanged(entry.kv)], [Delete(entry.kv.key)])
        return Action.SHUTDOWN_NOW if gone.succeeded else Action.WAIT_FOR_DRAIN

    async def change(
        self, name: str, change: Callable[[Consumer], Consumer], *, beside: Sequence[Write] = ()
    ) -> int:
        """Change a registration; return the revision of the write, or of the unchanged value.

        Raises NotFound.
        """
        key = self.keys.consumer(name)

        async def changed(kv: KeyValue | None) -> Sequence[Write] | None:
            before = codec.readable(codec.load_consumer, kv)
            if kv is None or before is None:
                raise NotFound(f"no consumer {name}")
            if (after := change(before)) == before:
                return None
            value = codec.dump_consumer(after)
            return [Put(key, value, kv.lease), *beside]

        return await rewritten(self.store, key, changed)


def _check_incarnation(registered: Consumer, incarnation: str) -> None:
    """Raise ``Replaced`` if another process is registered.

    A caller without an incarnation is accepted if the registered process sends none either.
    """
    if incarnation != registered.incarnation and (
        incarnation or names_itself(registered.incarnation)
    ):
        raise replaced(registered.name, incarnation, registered.incarnation)
