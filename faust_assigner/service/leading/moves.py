"""A rebalance: decides from the view which writes of the leader move partitions to targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import (
    Handoff,
    HandoffEvent,
    Phase,
    TopicPartition,
    state_of,
    step,
)
from faust_assigner.service.leading.advance import step_bundle
from faust_assigner.service.leading.bundles import Bundle, joined, owner, still_gone
from faust_assigner.service.leading.copartitioned import bound_topics, copartitioned_with
from faust_assigner.service.leading.record import NEUTRAL, Suitability, unreserved_places
from faust_assigner.service.leading.targets import Targets, hinted
from faust_assigner.service.questions import awaited
from faust_assigner.service.records import FORGOTTEN, PlannedMove
from faust_assigner.service.store.base import Compare, Delete, Put, Write
from faust_assigner.service.view import View
from faust_assigner.settings.service import ServiceSettings


def rebalance(
    view: View,
    targets: Targets,
    settings: ServiceSettings,
    now: float,
    standing: Suitability = NEUTRAL,
) -> Iterator[Bundle]:
    """Yield the writes that assign orphans at once, and that begin as many hand-offs as allowed.
    ``now`` is in unix seconds.
    """
    wanted, held, living = targets.owner, held_back(view), living_owners(view)
    # ``advance`` has already assigned each orphan with a hand-off. Partitions for one consumer
    # follow each other, so that they share a compare and a log line.
    for at in sorted(wanted.keys() - living.keys() - held, key=lambda at: (wanted[at], at)):
        if not _is_fenced(view, at):
            yield _assign_at_once(view, at, wanted[at])
    # If a partition has an owner but no target, the owner has unsubscribed from the topic. If the owner lives
    # and is not draining, it loses the partition. A dead owner's assignment stays until the owner returns.
    refused = {at for at in living.keys() - wanted.keys() if living[at] not in view.draining}
    for at in sorted(refused.union(_removed_partitions(view))):
        yield _remove_assignment(view, at)
    yield from _abort_unwanted(view, wanted)
    yield from _begin_handoffs(
        view, wanted, living, settings, now, standing, only_leaving=bool(held)
    )


def living_owners(view: View) -> dict[TopicPartition, str]:
    """Map each partition to its owner, if the owning process is registered.

    Cost: one pass over the assignments.
    """
    registered = {(name, entry.value.incarnation) for name, entry in view.consumers.items()}
    found = ((at, entry.value) for at, entry in view.assignments.items())
    return {at: one.owner for at, one in found if one.process in registered}


def _removed_partitions(view: View) -> Iterator[TopicPartition]:
    """Iterate over the assigned or moving partitions that do not exist any more."""
    counts = {topic: entry.value.partition_count for topic, entry in view.topics.items()}
    for at in view.assignments.keys() | view.handoffs.keys():
        if not at.partition < counts.get(at.topic, 0):
            yield at


def held_back(view: View) -> set[TopicPartition]:
    """Return the partitions that are reserved for missing consumers and not assigned yet.

    These are the partitions of missing owners after an outage. If the store has lost the
    assignments, they are the partitions without an assignment and without a claim.
    """
    if not view.awaiting:
        return set()
    held = {at for name in awaited(view) for at in view.owned[name]}
    if any(entry.value == FORGOTTEN for entry in view.awaiting.values()):
        claimed = hinted(view, view.consumers.keys())
        held |= {at for at in view.partitions() if at not in view.assignments and at not in claimed}
    return held


def waiting(view: View, targets: Targets) -> int:
    """Count the partitions that must move, but have no hand-off yet."""
    return len(_due_moves(view, targets.owner, living_owners(view)))


def _due_moves(
    view: View, wanted: Mapping[TopicPartition, str], living: Mapping[TopicPartition, str]
) -> set[TopicPartition]:
    return {
        at
        for at, owner in living.items()
        if wanted.get(at, owner) != owner and at not in view.handoffs
    }


def pinned_partitions(view: View) -> set[TopicPartition]:
    """Return the pinned partitions and the partitions that are co-partitioned with them."""
    bound = bound_topics(view) if view.pins else {}
    return {one for at in view.pins for one in copartitioned_with(at, bound)}


def planned(view: View, targets: Targets, without: Collection[str] = ()) -> Iterator[PlannedMove]:
    """Iterate over the partitions not at their targets; owners in ``without`` count as gone."""
    for at, name in sorted(targets.owner.items()):
        owner = living_owner(view, at)
        old = None if owner in without else owner
        if old != name:
            yield PlannedMove(at, old, name)


def _remove_assignment(view: View, at: TopicPartition) -> Bundle:
    both = [key for key in (view.keys.assignment(at), view.keys.handoff(at)) if key in view.raw]
    compares = [*map(view.same, both), *_of_owner(view, at)]
    entry = view.assignments.get(at)
    owner = "its owner" if entry is None else entry.value.owner
    why = (
        "does not subscribe to the topic"
        if view.exists(at)
        else "keeps no partition that does not exist"
    )
    told = (str(at), f"removed from {owner}, which {why} any longer")
    return Bundle(tuple(compares), tuple(map(Delete, both)), (told,))


def _of_owner(view: View, at: TopicPartition) -> list[Compare]:
    entry = view.assignments.get(at)
    return [] if entry is None else [still_gone(view, entry.value.owner)]


def living_owner(view: View, at: TopicPartition) -> str | None:
    """Return the owner's name, if the owning process is registered."""
    entry = view.assignments.get(at)
    if entry is None or not view.is_registered(*entry.value.process):
        return None
    return entry.value.owner


def _is_fenced(view: View, at: TopicPartition) -> bool:
    """Whether the owner is a replaced process with a running lease, which may still work."""
    entry = view.assignments.get(at)
    return entry is not None and entry.value.process in view.fences


def _assign_at_once(view: View, at: TopicPartition, to: str) -> Bundle:
    key = view.keys.handoff(at)
    # The compare fails if the new owner has changed meanwhile: it may leave, or be a new process.
    there = view.same(view.keys.consumer(to))
    compares = (view.same(view.keys.assignment(at)), view.same(key), *_of_owner(view, at), there)
    writes: tuple[Write, ...] = (owner(view, at, to, view.incarnation(to)),)
    entry = view.assignments.get(at)
    why = "it had no owner" if entry is None else f"{entry.value.owner} is gone"
    if entry is not None and entry.value.owner == to:
        why = "its process has restarted"
    told = (str(at), f"given to {to} at once, because {why}")
    return Bundle(compares, (*writes, Delete(key)) if key in view.raw else writes, (told,))


def _abort_unwanted(view: View, wanted: Mapping[TopicPartition, str]) -> Iterator[Bundle]:
    for at, entry in sorted(view.handoffs.items()):
        after = step(state_of(entry.value), HandoffEvent.UNWANTED)
        if after is not None and wanted.get(at, entry.value.new_owner) != entry.value.new_owner:
            yield step_bundle(view, entry, HandoffEvent.UNWANTED, *after, 0.0)


def _begin_handoffs(
    view: View,
    wanted: Mapping[TopicPartition, str],
    living: Mapping[TopicPartition, str],
    settings: ServiceSettings,
    now: float,
    standing: Suitability,
    *,
    only_leaving: bool,
) -> Iterator[Bundle]:
    due = _due_moves(view, wanted, living)
    leaving = {at for at in due if living[at] in view.draining}
    if only_leaving or view.pause is not None:
        due = leaving | (set() if only_leaving else due & pinned_partitions(view))
    for new, mine in beginning(view, wanted, due, leaving, bound_topics(view), standing, settings):
        yield from joined([_beginning(view, at, new, settings, now) for at in mine])


def beginning(
    view: View,
    wanted: Mapping[TopicPartition, str],
    due: Collection[TopicPartition],
    leaving: Set[TopicPartition],
    bound: Mapping[str, tuple[str, ...]],
    standing: Suitability,
    settings: ServiceSettings,
) -> Iterator[tuple[str, list[TopicPartition]]]:
    """Choose from the ``due`` partitions; yield (new owner, partitions that begin together).

    ``leaving``: the due partitions whose owners leave.

    The settings limit the number of concurrent hand-offs: each takes a *place*. Orphans take no
    place, because the leader assigns them at once. Partitions of a leaving consumer go before moves
    for balance, and a quarter of the group's places is kept for them. A consumer that never gets
    ready must not hold all places: an unproven new owner (see :class:`Suitability`) takes no place
    of this quarter, and a stuck consumer has a single place.
    """
    held = Counter(
        entry.value.new_owner
        for entry in view.handoffs.values()
        if entry.value.phase is not Phase.COMPLETE
    )
    copartitioned_groups = {copartitioned_with(at, bound) for at in due}
    for copartitioned in sorted(
        copartitioned_groups,
        key=lambda copartitioned: (leaving.isdisjoint(copartitioned), copartitioned),
    ):
        moving = [at for at in copartitioned if at in due]
        for new in sorted({wanted[at] for at in moving}):
            mine = [at for at in moving if wanted[at] == new]
            most, each = settings.max_handoffs, settings.max_handoffs_per_consumer
            if leaving.isdisjoint(mine) or new not in standing.proven:
                most = unreserved_places(most)
            if new in standing.stuck:
                each = 1
            room, free = most - held.total(), each - held[new]
            # Co-partitioned hand-offs begin together, even if they exceed the limit of one consumer.
            if room <= 0 or (len(mine) > free and held[new]):
                continue
            held[new] += len(mine)
            yield new, mine


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
    why = f"{old} leaves" if old in view.draining else "the plan balances the loads"
    if at in view.pins:
        why = "an operator ordered the move"
    return Bundle(
        (view.same(key), view.same(view.keys.assignment(at))),
        (Put(key, codec.dump_handoff(handoff)),),
        ((str(at), f"a hand-off from {old} to {new} begins, because {why}"),),
    )
