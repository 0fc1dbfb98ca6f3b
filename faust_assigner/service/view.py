"""The store's content as decoded values; each value is decoded once, when its key changes."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from faust_assigner.service.handoff import Handoff, TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.readers import READERS, Reader
from faust_assigner.service.records import (
    Assigned,
    Consumer,
    Leader,
    Pause,
    Pin,
    Status,
    TopicConfig,
)
from faust_assigner.service.store.base import Compare, Event, KeyValue, Listing, absent, unchanged
from faust_assigner.service.values import UNREADABLE

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A decoded value, and its key in the store."""

    kv: KeyValue
    value: T


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one key.

    ``before`` or ``after`` is ``None`` if the key had, or has, no readable value.
    ``name`` is the entry's key in the view: a consumer's name, a topic, a partition, or
    (partition, consumer).
    """

    kind: str
    name: Any
    before: Entry[Any] | None
    after: Entry[Any] | None


@dataclass(eq=False)
class View:
    """The keys of one group, by kind, with indexes.

    Each change updates the indexes:

    ``owned``       consumer -> its assignments; a consumer without assignments has no entry
    ``moving``      consumer -> the hand-offs to or from the consumer; no entry without hand-offs
    ``granted``     (consumer, incarnation) -> the number of the process's assignments
    ``draining``    the consumers that hand all their partitions over
    ``raised``      the revision that last raised the base of epochs
    ``unreadable``  the keys with unreadable values
    ``inputs``      the number of changes so far on which a plan depends; if it is unchanged, so is
                    the plan
    """

    keys: Keys
    consumers: dict[str, Entry[Consumer]] = field(default_factory=dict)
    assignments: dict[TopicPartition, Entry[Assigned]] = field(default_factory=dict)
    handoffs: dict[TopicPartition, Entry[Handoff]] = field(default_factory=dict)
    topics: dict[str, Entry[TopicConfig]] = field(default_factory=dict)
    cooldowns: dict[tuple[TopicPartition, str], Entry[float]] = field(default_factory=dict)
    replicas: dict[str, Entry[tuple[TopicPartition, ...]]] = field(default_factory=dict)
    leaders: dict[str, Entry[Leader]] = field(default_factory=dict)
    bases: dict[str, Entry[int]] = field(default_factory=dict)
    fences: dict[tuple[str, str], Entry[bytes]] = field(default_factory=dict)
    expelled: dict[tuple[str, str], Entry[bytes]] = field(default_factory=dict)
    resyncs: dict[str, Entry[str]] = field(default_factory=dict)
    awaiting: dict[str, Entry[bytes]] = field(default_factory=dict)
    departed: dict[str, Entry[bytes]] = field(default_factory=dict)
    removed: dict[str, Entry[bytes]] = field(default_factory=dict)
    pauses: dict[str, Entry[Pause]] = field(default_factory=dict)
    pins: dict[TopicPartition, Entry[Pin]] = field(default_factory=dict)
    raw: dict[str, KeyValue] = field(default_factory=dict)
    owned: dict[str, set[TopicPartition]] = field(default_factory=dict)
    moving: dict[str, set[TopicPartition]] = field(default_factory=dict)
    granted: Counter[tuple[str, str]] = field(default_factory=Counter)
    draining: set[str] = field(default_factory=set)
    raised: int = 0
    unreadable: set[str] = field(default_factory=set)
    inputs: int = 0

    def apply(self, event: Event) -> Change | None:
        """Apply one event, and return the change; return None for a key of an unknown kind."""
        if event.kv is None:
            self.raw.pop(event.key, None)
        else:
            self.raw[event.key] = event.kv
        kind, names = self.keys.kind(event.key)
        reader = READERS.get((kind, len(names)))
        if reader is None:
            return None
        try:
            name = reader.name(names)
        except ValueError:
            return None
        mine: dict[Any, Entry[Any]] = getattr(self, reader.field)
        before = mine.pop(name, None)
        self.unreadable.discard(event.key)
        after = None if event.kv is None else self._read(reader, name, event.kv)
        if after is not None:
            mine[name] = after
        change = Change(reader.field, name, before, after)
        self._index(change)
        self.inputs += _is_input(change)
        return change

    def _index(self, change: Change) -> None:
        consumers_of: Callable[[Entry[Any] | None], tuple[str, ...]]
        if change.kind == "assignments":
            index, consumers_of = self.owned, _owner_of
            self._count(change.before, -1)
            self._count(change.after, 1)
        elif change.kind == "handoffs":
            index, consumers_of = self.moving, _parties_of
        else:
            if change.kind == "bases":
                self.raised = max((e.kv.mod_revision for e in self.bases.values()), default=0)
            elif change.kind == "consumers":
                self.draining.discard(change.name)
                if change.after is not None and change.after.value.status is Status.DRAINING:
                    self.draining.add(change.name)
            return
        for name in consumers_of(change.before):
            found = index.get(name)
            if found is not None:
                found.discard(change.name)
                if not found:
                    del index[name]
        for name in consumers_of(change.after):
            index.setdefault(name, set()).add(change.name)

    def _count(self, entry: Entry[Assigned] | None, by: int) -> None:
        if entry is not None:
            process = entry.value.process
            self.granted[process] += by
            if not self.granted[process]:
                del self.granted[process]

    def frozen(self) -> View:
        """Return a copy for a worker thread, which shares the immutable entries.

        Cost: some ten nanoseconds per key.
        """
        parts = {one.name: copy.copy(getattr(self, one.name)) for one in fields(self)}
        for index in ("owned", "moving"):
            parts[index] = {name: set(mine) for name, mine in parts[index].items()}
        return View(**parts)

    def _read(self, reader: Reader, name: object, kv: KeyValue) -> Entry[Any] | None:
        try:
            return Entry(kv, reader.read(kv, name))
        except UNREADABLE:
            self.unreadable.add(kv.key)
            return None

    def same(self, key: str) -> Compare:
        """Make a compare that holds if the store's ``key`` is unchanged from this view."""
        kv = self.raw.get(key)
        return absent(key) if kv is None else unchanged(kv)

    @property
    def leader(self) -> Entry[Leader] | None:
        """The leading instance, or ``None``."""
        return self.leaders.get("leader")

    @property
    def pause(self) -> Pause | None:
        """The operator's pause of moves for balance; ``None`` without a pause."""
        entry = self.pauses.get("group")
        return entry.value if entry else None

    @property
    def base(self) -> int:
        """The base of epochs, which is added to each revision; 0 if the store has no base."""
        return self.bases["base"].value if "base" in self.bases else 0

    def dated(self, assigned: Assigned) -> Assigned:
        """Return the assignment with the epoch for consumers: the base plus the revision.

        The base and the revision only rise, and so does their sum. If the base was raised after the
        grant, the owner may have committed under its former, lower epoch. The owner cannot
        distinguish these commits from commits of a former owner. The former owner's offset is then
        outdated, and is left out.
        """
        offset = assigned.offset if assigned.epoch >= self.raised else None
        return replace(assigned, epoch=self.base + assigned.epoch, offset=offset)

    def is_registered(self, name: str, incarnation: str) -> bool:
        """Whether this process of the consumer is registered now."""
        entry = self.consumers.get(name)
        return entry is not None and entry.value.incarnation == incarnation

    def may_work(self, name: str, incarnation: str) -> bool:
        """Whether this process may be working: it is registered, or its fence still exists."""
        return self.is_registered(name, incarnation) or (name, incarnation) in self.fences

    def incarnation(self, name: str) -> str:
        """Return the registered incarnation of a consumer; "" if the consumer is not registered."""
        entry = self.consumers.get(name)
        return "" if entry is None else entry.value.incarnation

    def ready(self) -> list[Consumer]:
        """List the consumers that may get partitions, sorted by name."""
        found = (self.consumers[name].value for name in sorted(self.consumers))
        return [consumer for consumer in found if consumer.status is Status.READY]

    def partitions(self) -> Iterable[TopicPartition]:
        """Iterate over every partition of every topic, by topic and number."""
        for topic in sorted(self.topics):
            for number in range(self.topics[topic].value.partition_count):
                yield TopicPartition(topic, number)

    def exists(self, at: TopicPartition) -> bool:
        """Whether the topic exists and has this partition."""
        config = self.topics.get(at.topic)
        return config is not None and 0 <= at.partition < config.value.partition_count


def differences(known: Mapping[str, KeyValue], listing: Listing) -> list[Event]:
    """List the events that turn ``known`` into ``listing``: writes by revision, then deletions."""
    now = {kv.key: kv for kv in listing.items}
    gone = [Event(key, listing.revision, None) for key in known if key not in now]
    # compare whole values, because a restored store uses the same revision again
    new = [Event(kv.key, kv.mod_revision, kv) for kv in listing.items if known.get(kv.key) != kv]
    return sorted(new, key=lambda event: (event.revision, event.key)) + sorted(
        gone, key=lambda e: e.key
    )


def _is_input(change: Change) -> bool:
    """Whether a plan may depend on the change.

    A plan does not depend on the leader, on a consumer's session or on a hand-off's progress.
    """
    if change.kind in ("leaders", "bases", "expelled", "resyncs", "removed"):
        return False
    if change.before is None or change.after is None:
        return change.before is not change.after
    before, after = change.before.value, change.after.value
    if change.kind == "consumers":
        return bool(
            replace(before, session="", registered_at=0.0)
            != replace(after, session="", registered_at=0.0)
        )
    if change.kind == "handoffs":
        return bool(replace(before, progress=0.0) != replace(after, progress=0.0))
    return True


def _owner_of(entry: Entry[Assigned] | None) -> tuple[str, ...]:
    return () if entry is None else (entry.value.owner,)


def _parties_of(entry: Entry[Handoff] | None) -> tuple[str, ...]:
    return () if entry is None else (entry.value.old_owner, entry.value.new_owner)
