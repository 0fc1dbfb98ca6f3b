"""The leader's updates of replicas, and its deletion of keys that are no longer needed."""

from __future__ import annotations

from collections.abc import Iterator

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading.bundles import Bundle
from faust_assigner.service.leading.copartitioned import bound_topics
from faust_assigner.service.leading.corrections import pinned
from faust_assigner.service.leading.moves import held_back, living_owner
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.questions import has_more, waits_in_vain
from faust_assigner.service.store.base import Delete, Put
from faust_assigner.service.view import View


def tidy(view: View, targets: Targets) -> Iterator[Bundle]:
    """Update the replicas, and delete drained consumers and keys that have become void.

    Cool-downs without a lease, which earlier releases wrote, are deleted too.
    """
    for name in sorted(targets.replicas.keys() | view.replicas.keys()):
        yield from _replicas(view, name, targets.replicas.get(name, ()))
    ready = view.ready()
    for name in sorted(view.draining):
        if not has_more(view, name):
            key = view.keys.consumer(name)
            told = (name, "drained: it owns no partitions any longer, and its stream ends")
            yield Bundle((view.same(key),), (Delete(key),), (told,))
        elif name not in view.departed and waits_in_vain(view, name, ready):
            # Its stream ends although it owns partitions, because no other consumer can take them.
            # This key keeps the group from waiting for the consumer after an outage.
            key = view.keys.consumer(name)
            yield Bundle((view.same(key),), (Put(view.keys.departed(name), b"dismissed"),))
    for key in _void_marks(view):
        yield Bundle((view.same(key),), (Delete(key),))
    yield from _moved_once(view)
    for _, cooling in sorted(view.cooldowns.items()):
        if not cooling.kv.lease:
            key = cooling.kv.key
            yield Bundle((view.same(key),), (Delete(key),))


def _moved_once(view: View) -> Iterator[Bundle]:
    """Delete an operator's one-time moves that are complete or impossible."""
    once = [(at, entry) for at, entry in sorted(view.pins.items()) if entry.value.once]
    ready = {consumer.name: consumer for consumer in view.ready()} if once else {}
    possible = pinned(view, ready, bound_topics(view)) if once else {}
    for at, entry in once:
        name = entry.value.consumer
        if living_owner(view, at) == name and at not in view.handoffs:
            told = f"the move to {name} that an operator ordered is complete"
        elif possible.get(at) != name:
            told = (
                f"the move to {name} that an operator ordered is cancelled: {name} cannot take "
                "the partition"
            )
        else:
            continue
        key = entry.kv.key
        yield Bundle((view.same(key),), (Delete(key),), ((str(at), told),))


def _void_marks(view: View) -> Iterator[str]:
    """Iterate over the void keys that mark an outage or a departed consumer.

    The mark of an outage is void when no partition is held back for a missing consumer. The mark
    of a departed consumer is void when all its partitions have new owners.
    """
    if view.consumers and not held_back(view):
        yield from (entry.kv.key for entry in view.awaiting.values())
    for name, entry in sorted(view.departed.items()):
        if name not in view.owned and name not in view.consumers:
            yield entry.kv.key


def _replicas(view: View, name: str, wanted: tuple[TopicPartition, ...]) -> Iterator[Bundle]:
    key = view.keys.replicas(name)
    if name not in view.consumers or not wanted:
        if key in view.raw:
            yield Bundle((view.same(key),), (Delete(key),))
    elif name not in view.replicas or view.replicas[name].value != wanted:
        yield Bundle((view.same(key),), (Put(key, codec.dump_partitions(wanted)),))
