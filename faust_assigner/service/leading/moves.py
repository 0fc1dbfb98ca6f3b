"""A rebalance: what the leader writes so that partitions come to where they belong, decided from the view."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from faust_assigner.service import keys as codec
from faust_assigner.service.handoff import (
    Handoff,
    Happening,
    Phase,
    TopicPartition,
    state_of,
    step,
)
from faust_assigner.service.leading.advance import moved
from faust_assigner.service.leading.bundles import Bundle, joined, owner, still_gone
from faust_assigner.service.leading.record import NEUTRAL, Standing
from faust_assigner.service.leading.slots import beginning
from faust_assigner.service.leading.targets import Targets, bound_topics
from faust_assigner.service.records import PlannedMove, Status
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.store.base import Compare, Delete, Put, Write
from faust_assigner.service.view import View, has_more


def rebalance(
    view: View,
    targets: Targets,
    settings: ServiceSettings,
    now: float,
    standing: Standing = NEUTRAL,
) -> Iterator[Bundle]:
    """Orphans first and at once, then hand-offs as far as the places allow. ``now`` unix seconds."""
    wanted = targets.owner
    if not view.consumers:
        yield from _nobody(view)
        return
    for at in sorted(at for at in wanted if _is_orphan(view, at)):
        yield _given(view, at, wanted[at])
    for at in sorted(
        at
        for at in view.assignments.keys() | view.handoffs.keys()
        if not view.exists(at)
        or (
            at not in wanted
            and not _is_fenced(view, at)
            and not _is_leaving(view, _living_owner(view, at))
        )
    ):
        yield _forgotten(view, at)
    yield from _unwanted(view, wanted)
    yield from _begun(view, wanted, settings, now, standing)


def waiting(view: View, targets: Targets) -> int:
    """How many partitions are to move and have no hand-off yet."""
    return sum(1 for _ in _due(view, targets.owner))


def _due(view: View, wanted: Mapping[TopicPartition, str]) -> Iterator[TopicPartition]:
    for at, name in wanted.items():
        if at not in view.handoffs and _living_owner(view, at) not in (None, name):
            yield at


def _is_leaving(view: View, owner: str | None) -> bool:
    """A draining owner keeps what nobody can take."""
    return owner is not None and view.consumers[owner].value.status is Status.DRAINING


def planned(view: View, targets: Targets, without: Collection[str] = ()) -> Iterator[PlannedMove]:
    """Every partition that is not where it belongs; those in ``without`` are taken for gone."""
    for at, name in sorted(targets.owner.items()):
        owner = _living_owner(view, at)
        old = None if owner in without else owner
        if old != name:
            yield PlannedMove(at, old, name)


def _nobody(view: View) -> Iterator[Bundle]:
    """No consumers: nothing is anybody's, but for replaced processes that may still be working."""
    for at in sorted(view.assignments.keys() | view.handoffs.keys()):
        if not _is_fenced(view, at):
            yield _forgotten(view, at)


def _forgotten(view: View, at: TopicPartition) -> Bundle:
    both = [key for key in (view.keys.assignment(at), view.keys.handoff(at)) if key in view.raw]
    compares = [*map(view.same, both), *_of_owner(view, at)]
    return Bundle(f"{at}: nobody's", tuple(compares), tuple(map(Delete, both)))


def _of_owner(view: View, at: TopicPartition) -> list[Compare]:
    entry = view.assignments.get(at)
    return [] if entry is None else [still_gone(view, entry.value.owner)]


def _living_owner(view: View, at: TopicPartition) -> str | None:
    """The owner's name, where the process that owns the partition is the registered one."""
    entry = view.assignments.get(at)
    if entry is None or not view.is_registered(entry.value.owner, entry.value.incarnation):
        return None
    return entry.value.owner


def _is_fenced(view: View, at: TopicPartition) -> bool:
    """Whether the owner is a replaced process whose lease has not run out: nobody else may begin."""
    entry = view.assignments.get(at)
    return entry is not None and (entry.value.owner, entry.value.incarnation) in view.fences


def _is_orphan(view: View, at: TopicPartition) -> bool:
    """Nobody living owns it. What a hand-off does about it is done before (see ``advance``)."""
    return _living_owner(view, at) is None and not _is_fenced(view, at)


def _given(view: View, at: TopicPartition, to: str) -> Bundle:
    key = view.keys.handoff(at)
    compares = (view.same(view.keys.assignment(at)), view.same(key), *_of_owner(view, at))
    writes: tuple[Write, ...] = (owner(view, at, to, view.incarnation(to)),)
    return Bundle(
        f"{at}: to {to} at once", compares, (*writes, Delete(key)) if key in view.raw else writes
    )


def _unwanted(view: View, wanted: Mapping[TopicPartition, str]) -> Iterator[Bundle]:
    for at, entry in sorted(view.handoffs.items()):
        after = step(state_of(entry.value), Happening.UNWANTED)
        if after is not None and wanted.get(at, entry.value.new_owner) != entry.value.new_owner:
            yield moved(view, entry, Happening.UNWANTED, *after, 0.0)


def _begun(
    view: View,
    wanted: Mapping[TopicPartition, str],
    settings: ServiceSettings,
    now: float,
    standing: Standing,
) -> Iterator[Bundle]:
    due = set(_due(view, wanted))
    leaving = {at for at in due if _is_leaving(view, _living_owner(view, at))}
    for new, mine in beginning(view, wanted, due, leaving, bound_topics(view), standing, settings):
        yield from joined([_beginning(view, at, new, settings, now) for at in mine])


def _beginning(
    view: View, at: TopicPartition, new: str, settings: ServiceSettings, now: float
) -> Bundle:
    key, owner = view.keys.handoff(at), view.assignments[at].value
    old = owner.owner
    handoff = Handoff(
        at,
        old,
        new,
        Phase.WARMING,
        now,
        strict=settings.strict,
        old_incarnation=owner.incarnation,
        new_incarnation=view.incarnation(new),
    )
    return Bundle(
        f"{at}: from {old} to {new}",
        (view.same(key), view.same(view.keys.assignment(at))),
        (Put(key, codec.dump_handoff(handoff)),),
    )


# -- around it -------------------------------------------------------------------------------------------


def tidy(view: View, targets: Targets) -> Iterator[Bundle]:
    """Replicas, drained consumers, cool-downs that no lease ends (earlier releases wrote such ones)."""
    for name in sorted(targets.replicas.keys() | view.replicas.keys()):
        yield from _replicas(view, name, targets.replicas.get(name, ()))
    for name, entry in sorted(view.consumers.items()):
        if entry.value.status is Status.DRAINING and not has_more(view, name):
            key = view.keys.consumer(name)
            yield Bundle(f"{name}: drained", (view.same(key),), (Delete(key),))
    for (at, name), cooling in sorted(view.cooldowns.items()):
        if not cooling.kv.lease:
            key = cooling.kv.key
            yield Bundle(f"{at}: {name} may be asked again", (view.same(key),), (Delete(key),))


def _replicas(view: View, name: str, wanted: tuple[TopicPartition, ...]) -> Iterator[Bundle]:
    key = view.keys.replicas(name)
    if name not in view.consumers or not wanted:
        if key in view.raw:
            yield Bundle(f"{name}: no replicas", (view.same(key),), (Delete(key),))
    elif name not in view.replicas or view.replicas[name].value != wanted:
        yield Bundle(
            f"{name}: replicas", (view.same(key),), (Put(key, codec.dump_partitions(wanted)),)
        )
