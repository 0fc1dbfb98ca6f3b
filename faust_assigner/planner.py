"""Make a plan: run the planner's stages in order. Each stage is a module in the package root.

    subscriptions + claims -> groups -> previous owners
        -> target actives -> waiting tasks -> promotions -> followers -> standbys -> warm-ups -> Plan

The planner uses no clock, no randomness and no I/O. The same members give the same plan, in any order and
under any hash seed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from faust_assigner.actives.relief import relieve_heaviest
from faust_assigner.actives.weighted import Weighed, weigh
from faust_assigner.assignment import Plan
from faust_assigner.errors import PlanInputError
from faust_assigner.followers import place_followers
from faust_assigner.grouper import PartitionGrouper, starts
from faust_assigner.model import NOBODY, Bools, Ints, Layout, Member, Previous, WarmupPlan
from faust_assigner.previous import resolve_claims
from faust_assigner.promotion import promotable, promote
from faust_assigner.standby import place_standbys
from faust_assigner.sticky import StickyAssignor
from faust_assigner.warmup import Progress, WarmupPolicy

__all__ = ["Plan", "plan"]


def plan(
    members: Iterable[Member],
    partitions: Mapping[str, int],
    *,
    replicas: int = 0,
    changelogs: Collection[str] = (),
    weightless: Collection[str] = (),
    weights: Any = None,
    previous_ids: Mapping[str, int] | None = None,
    co_partitioned: Collection[Collection[str]] | None = None,
    warmups: WarmupPolicy | None = None,
) -> Plan:
    """Assign each partition of each subscribed topic; docs/explanation/objective.md has the objective.

    ``partitions``: topic -> partition count. ``changelogs``: the topics with state; each of their
    partitions gets ``replicas`` standbys. ``weightless``: topics that are assigned but add no load.
    ``previous_ids``: topic -> previous group id, for callers that need stable ids. Topics with equal
    counts and subscribers share tasks; with ``co_partitioned``, only topics of the same set share tasks.

    ``weights``: (topic, partition) -> cost; with weights, the planner relieves the heaviest member with few
    moves, and task counts may be uneven. With ``warmups``, a living owner keeps a stateful task until the
    target member has caught up. Without ``warmups``, each task with a living owner moves to its target at
    once.

    Raises :class:`PlanInputError` for invalid or contradictory arguments. Members' claims raise no error:
    unreadable claims, and claims on unknown partitions, are ignored.
    """
    ordered = _ordered(members)
    counts = _counts(partitions)
    replicas = min(_checked_count("replicas", replicas), len(ordered))
    layout = _layout(ordered, counts, changelogs, weightless, previous_ids, co_partitioned)
    previous = resolve_claims(layout, ordered)
    progress = None if warmups is None else Progress(layout, ordered, previous, warmups)
    weighed = weigh(layout, weights)
    counted, target = _targets(layout, previous, weighed, progress)
    waiting = None if progress is None else progress.held(target)
    promoted = promotable(layout, previous)
    owner = promote(
        layout,
        target,
        previous,
        promoted,
        None if weighed is None else weighed.weight,
        waiting=waiting,
        even_state=replicas >= len(ordered) - 1,
    )
    owner, target = (place_followers(layout, flat, previous) for flat in (owner, target))
    if progress is None or waiting is None:
        standby, warmup_plan = place_standbys(layout, previous, owner, target, replicas), None
    else:
        standby, warmup_plan = _warm(progress, owner, target, waiting, promoted, weighed, replicas)
    return Plan(
        layout=layout,
        previous=previous,
        flat_target=target,
        flat_owner=owner,
        flat_standby=standby,
        flat_counted_target=counted,
        promoted=promoted,
        partitions=counts,
        replicas=replicas,
        weighed=weighed,
        waiting=waiting,
        warmup_plan=warmup_plan,
    )


def _targets(
    layout: Layout, previous: Previous, weighed: Weighed | None, progress: Progress | None
) -> tuple[Ints, Ints]:
    """Return int64[T] twice: the target by task counts, and the target with weights and warm-ups."""
    counted = StickyAssignor().assign(
        layout, previous, None if progress is None else progress.caught_up
    )
    target = counted if weighed is None else relieve_heaviest(weighed, previous, counted)
    return counted, target if progress is None else progress.another(target)


def _warm(
    progress: Progress,
    owner: Ints,
    target: Ints,
    far: Bools,
    promoted: Bools,
    weighed: Weighed | None,
    replicas: int,
) -> tuple[Ints, WarmupPlan]:
    """Place the standbys and plan the next rounds.

    In two cases the next round may have another target: after promotions (``promoted``), because the next
    round starts from this round's owners, and with weights, because that target is a heuristic. If tasks are
    off their target in such a case, this function computes the next round's target, and only the moves to
    that target are awaited.

    A target member that is too ``far`` behind gets a warm-up. A target member that could take its task at
    once is preferred as a standby.
    """
    layout, claimed, disbelieved = progress.layout, progress.previous, progress.disbelieved()
    off = owner != target
    if off.any() if weighed is not None else (promoted & off).any():
        progress = progress.after(owner)
        _, target = _targets(layout, progress.previous, weighed, progress)
        target = place_followers(layout, target, progress.previous)
        far = progress.far(owner, target)
    standby = place_standbys(layout, claimed, owner, np.where(far, owner, target), replicas)
    return standby, progress.plan_warmups(owner, target, standby, far, disbelieved)


def _ordered(members: Iterable[Member]) -> list[Member]:
    """Return the members sorted by id; raise PlanInputError for an invalid member or a duplicate id."""
    unordered = list(members)
    for member in unordered:
        if not isinstance(member.member_id, str):
            raise PlanInputError(f"member_id must be a string, got {member.member_id!r}")
        if isinstance(member.topics, (str, bytes)) or not isinstance(member.topics, Iterable):
            raise PlanInputError(
                f"{member.member_id!r}: topics must be a collection of names, got {member.topics!r}"
            )
        capacity: Any = member.capacity
        if not (isinstance(capacity, (int, float, np.number)) and 0 < capacity < math.inf):
            raise PlanInputError(
                f"{member.member_id!r}: capacity must be above 0, got {capacity!r}"
            )
    ordered = sorted(unordered, key=lambda m: m.member_id)
    for one, other in pairwise(ordered):
        if one.member_id == other.member_id:
            raise PlanInputError(f"two members have the id {one.member_id!r}")
    return ordered


def _counts(partitions: Mapping[str, int]) -> dict[str, int]:
    return {
        topic: _checked_count(f"partitions[{topic!r}]", count)
        for topic, count in partitions.items()
    }


def _checked_count(name: str, value: object) -> int:
    if not isinstance(value, (int, np.integer)) or value < 0:
        raise PlanInputError(f"{name} must be a whole number, 0 or more, got {value!r}")
    return int(value)


def _layout(
    members: Sequence[Member],
    partitions: Mapping[str, int],
    changelogs: Collection[str],
    weightless: Collection[str],
    previous_ids: Mapping[str, int] | None,
    co_partitioned: Collection[Collection[str]] | None,
) -> Layout:
    for name, topics in (("changelogs", changelogs), ("weightless", weightless)):
        if isinstance(topics, (str, bytes)):
            raise PlanInputError(f"{name} must be a collection of names, got {topics!r}")
    groups = PartitionGrouper().group(
        [m.topics for m in members],
        partitions,
        changelogs=changelogs,
        weightless=weightless,
        previous_ids=previous_ids,
        co_partitioned=co_partitioned,
    )
    racks = sorted({m.rack_id for m in members if isinstance(m.rack_id, str)})
    index = {rack: r for r, rack in enumerate(racks)}
    return Layout(
        member_ids=tuple(m.member_id for m in members),
        groups=groups,
        start=starts(groups),
        capacity=np.array([m.capacity for m in members], dtype=np.float64),
        rack=np.array(
            [index[m.rack_id] if isinstance(m.rack_id, str) else NOBODY for m in members],
            dtype=np.int64,
        ),
    )
