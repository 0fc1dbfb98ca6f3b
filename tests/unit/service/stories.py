"""Helpers of the service's tests: a store in virtual time, and views built by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.records import Assigned, Consumer, TopicConfig
from faust_assigner.service.serving.acks import Acks
from faust_assigner.service.serving.answering import Answering
from faust_assigner.service.serving.callers import Callers
from faust_assigner.service.store.base import Event, KeyValue, Put
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.view import View
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock

ALL = Keys("/g/")
AT = TopicPartition("t", 0)
SETTINGS = ServiceSettings(prefix="/g/")
HANDOFF = Handoff(AT, "old", "new", Phase.WARMING, 1_000.0)


def store() -> MemoryStore:
    """A store on the loop's time."""
    return MemoryStore(clock=LoopClock())


def acks_of(kept: Any, clock: Any = None, kind: type[Acks] = Acks) -> Acks:
    """The handler of answers of an instance that knows no consumer and has no base of epochs."""
    mirror: Any = SimpleNamespace(view=View(ALL))
    callers = Callers(kept, ALL, mirror)
    return kind(clock or LoopClock(), mirror, callers, Answering(kept, ALL))


async def put(kept: MemoryStore, key: str, value: bytes) -> KeyValue:
    """Write a key and return its new KeyValue."""
    await kept.txn([], [Put(key, value)])
    kv = await kept.get(key)
    assert kv is not None
    return kv


def view_of(
    *consumers: Consumer,
    topics: Mapping[str, int],
    owners: Mapping[TopicPartition, str] | None = None,
    handoffs: Sequence[Handoff] = (),
) -> View:
    """A view as the store's events would build it."""
    found = View(ALL)
    documents = {ALL.consumer(c.name): codec.dump_consumer(c) for c in consumers}
    documents |= {ALL.topic(t): codec.dump_topic(TopicConfig(t, n)) for t, n in topics.items()}
    documents |= {
        ALL.assignment(at): codec.dump_assigned(Assigned(at, name))
        for at, name in (owners or {}).items()
    }
    documents |= {ALL.handoff(h.at): codec.dump_handoff(h) for h in handoffs}
    for revision, (key, value) in enumerate(documents.items(), 1):
        found.apply(Event(key, revision, KeyValue(key, value, revision, revision)))
    return found
