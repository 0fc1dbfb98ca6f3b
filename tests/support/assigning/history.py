"""A story's history in etcd, checked against the rules of a hand-off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from faust_assigner.service import values as codec
from faust_assigner.service.errors import Compacted, StoreError
from faust_assigner.service.handoff import Handoff, Phase
from faust_assigner.service.keys import Keys
from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.base import Event, Put
from faust_assigner.service.store.etcd import EtcdStore

#: C1: the phases that may follow a phase of the same hand-off.
FOLLOWS = {
    Phase.WARMING: {Phase.WARMING, Phase.READY},
    Phase.READY: {Phase.READY, Phase.COMPLETE},
    Phase.COMPLETE: {Phase.COMPLETE},
}


class Recorder:
    """Every change under a prefix since etcd's start, even if etcd compacts or restarts."""

    def __init__(self, store: EtcdStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._seen = asyncio.Condition()
        self._revision = 0
        self._events: list[Event] = []

    async def run(self) -> None:
        """Watch without an end; raises ``Compacted`` if unseen changes were compacted."""
        while True:
            try:
                watching = self._store.watch(self._prefix, self._revision + 1)
                async with contextlib.aclosing(watching) as watch:  # type: ignore[type-var]
                    async for batch in watch:
                        async with self._seen:
                            self._events += batch.events
                            self._revision = batch.revision
                            self._seen.notify_all()
            except Compacted:
                raise
            except StoreError:
                await asyncio.sleep(0.2)

    async def so_far(self) -> list[Event]:
        """Return all events so far, up to and including an event that this call writes."""
        mark = await self._store.txn([], [Put(f"{self._prefix}marks/seen", b"")])
        async with asyncio.timeout(30), self._seen:
            await self._seen.wait_for(lambda: self._revision >= mark.revision)
        return list(self._events)


@contextlib.asynccontextmanager
async def recorded(endpoint: str, prefix: str) -> AsyncIterator[Recorder]:
    """Record from now on, and all earlier changes that etcd still has."""
    store = EtcdStore(EtcdAccess(endpoints=(endpoint,)))
    recorder = Recorder(store, prefix)
    task = asyncio.create_task(recorder.run(), name="recorder")
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.wait([task])
        await store.close()
        if not task.cancelled():
            task.result()


async def history(endpoint: str, prefix: str) -> list[Event]:
    """Return every change under the prefix since etcd's start; none may be compacted."""
    async with recorded(endpoint, prefix) as recorder:
        return await recorder.so_far()


def faults(events: Sequence[Event], prefix: str, *, strict: bool = False) -> list[str]:
    """Return breaches of the rules: C1 phases, C2 strict order, C3 the leader, C6 living owners."""
    keys, found = Keys(prefix), []
    handoffs: dict[str, tuple[int, Handoff]] = {}
    owners: dict[str, tuple[str, str]] = {}
    consumers: dict[str, str] = {}  # consumer -> incarnation of its registered process
    leader: str | None = None
    for event in events:
        kind, names = keys.kind(event.key)
        where = f"revision {event.revision}, {event.key}"
        if event.key == keys.leader:
            leader = None if event.kv is None else codec.load_leader(event.kv.value).holder
        elif kind == "consumers":
            consumers.pop(names[0], None)
            if event.kv is not None:
                consumers[names[0]] = codec.load_consumer(event.kv.value).incarnation
        elif kind == "handoffs":
            found += _handoff(handoffs, event, where, leader)
        elif kind == "assignments":
            if leader is None:
                found.append(f"{where}: assigned while nobody leads")
            before = owners.get(event.key)
            if event.kv is None:
                owners.pop(event.key, None)
                continue
            assigned = codec.load_assigned(event.kv.value, event.kv.mod_revision)
            owner = owners[event.key] = (assigned.owner, assigned.incarnation)
            open_one = handoffs.get(event.key.replace("/assignments/", "/handoffs/"))
            if (
                strict
                and open_one
                and before is not None
                and consumers.get(before[0]) == before[1]
                and owner != before
                and not open_one[1].released
            ):
                found.append(f"{where}: given to {owner[0]} before {before[0]} released")
    return found


def _handoff(
    handoffs: dict[str, tuple[int, Handoff]], event: Event, where: str, leader: str | None
) -> list[str]:
    before = handoffs.pop(event.key, None)
    if event.kv is None:
        return []
    after = codec.load_handoff(event.kv.value)
    handoffs[event.key] = (event.kv.create_revision, after)
    if before is None or before[0] != event.kv.create_revision:
        if leader is None:
            return [f"{where}: begun while nobody leads"]
        return [] if after.phase is Phase.WARMING else [f"{where}: begun as {after.phase.value}"]
    if after.phase not in FOLLOWS[before[1].phase]:
        return [f"{where}: {before[1].phase.value} became {after.phase.value}"]
    if (after.old_owner, after.new_owner) != (before[1].old_owner, before[1].new_owner):
        return [f"{where}: its consumers changed"]
    return []
