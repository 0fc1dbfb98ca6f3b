"""The target owner of every partition, planned by :func:`faust_assigner.plan` from the view.

The plan balances all topics together. Only topics that a consumer declares co-partitioned have a
common owner per partition number; such partitions are *co-partitioned*. A moving partition already counts
as its new owner's, so that a new plan does not reverse a hand-off under way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from faust_assigner.grouper import bonds
from faust_assigner.model import Member
from faust_assigner.planner import Plan, plan
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.leading.record import NEUTRAL, Suitability
from faust_assigner.service.records import KEEPS_REPLICAS, Consumer
from faust_assigner.service.view import View


@dataclass(frozen=True)
class Targets:
    """The target of a plan.

    ``owner``     the owner of each partition; a partition without a possible owner has no entry
    ``replicas``  the replicas of each consumer that keeps replicas
    """

    owner: Mapping[TopicPartition, str]
    replicas: Mapping[str, tuple[TopicPartition, ...]]


def claimants(view: View, names: Collection[str]) -> dict[TopicPartition, str]:
    """Map each partition to its owner, or to the new owner of its hand-off, among ``names``."""
    found = {
        at: entry.value.owner
        for at, entry in view.assignments.items()
        if entry.value.owner in names
    }
    for at, entry in view.handoffs.items():
        handoff = entry.value
        if (
            handoff.phase is not Phase.COMPLETE
            and handoff.failed is None
            and handoff.new_owner in names
        ):
            found[at] = handoff.new_owner
    if view.awaiting:
        for at, name in hinted(view, names).items():
            found.setdefault(at, name)
    return found


def hinted(view: View, names: Collection[str]) -> dict[TopicPartition, str]:
    """Map each unassigned partition to the first of ``names`` that reports to have owned it."""
    return {
        at: name
        for name in sorted(names, reverse=True)
        if name in view.consumers
        for topic, numbers in view.consumers[name].value.former.items()
        for number in numbers
        if (at := TopicPartition(topic, number)) not in view.assignments and view.exists(at)
    }


def bound_topics(view: View) -> dict[str, tuple[str, ...]]:
    """Map each topic to its co-partitioned topics of equal partition count, including itself."""
    roots = bonds(
        topics for entry in view.consumers.values() for topics in entry.value.co_partitioned
    )
    copartitioned_groups: dict[tuple[str, int], list[str]] = {}
    for topic in sorted(view.topics):
        count = view.topics[topic].value.partition_count
        copartitioned_groups.setdefault((roots.get(topic, topic), count), []).append(topic)
    return {
        topic: tuple(copartitioned)
        for copartitioned in copartitioned_groups.values()
        for topic in copartitioned
    }


def copartitioned_with(
    at: TopicPartition, bound: Mapping[str, tuple[str, ...]]
) -> tuple[TopicPartition, ...]:
    """Return the partitions that are co-partitioned with this partition, including itself."""
    return tuple(TopicPartition(topic, at.partition) for topic in bound.get(at.topic, (at.topic,)))


def choose(
    view: View, consumers: Sequence[Consumer], *, replicas: int, standing: Suitability = NEUTRAL
) -> Targets:
    """Plan the targets for ``consumers``.

    A cool-down counts while its key exists; a lease ends the cool-down. Stuck and crowding
    consumers get no partition of a leaving consumer, as long as a different consumer can take the
    partition.

    Cost: :func:`faust_assigner.plan`, plus one pass over all partitions.
    """
    if not consumers:
        return Targets({}, {})
    by_name = {consumer.name: consumer for consumer in consumers}
    mine, bound = claimants(view, by_name), bound_topics(view)
    pins = pinned(view, by_name, bound)
    counts = {topic: entry.value.partition_count for topic, entry in view.topics.items()}
    made = plan(
        _members(consumers, counts, mine | pins),
        counts,
        changelogs=counts,
        replicas=replicas,
        weights=_weights(consumers, counts) or None,
        co_partitioned=sorted(
            {tuple(sorted(set(topics))) for c in consumers for topics in c.co_partitioned}
        ),
    )
    owner = {
        TopicPartition(topic, number): name
        for name in made.member_ids
        for topic, numbers in made.actives(name).items()
        for number in numbers
    }
    barred = {(at, name) for at, name in view.cooldowns if mine.get(at) != name}
    passed_over = standing.stuck | standing.crowding
    for at in _of_leaving_consumers(view):
        barred |= {(at, n) for n in passed_over if mine.get(at) != n or n in standing.overtaken}
    _avoid(owner, barred, by_name, mine, bound, view.handoffs.keys())
    _pin(owner, pins, barred, by_name, mine, bound)
    return Targets(owner, _replicas(made, by_name))


def pinned(
    view: View, consumers: Mapping[str, Consumer], bound: Mapping[str, tuple[str, ...]]
) -> dict[TopicPartition, str]:
    """Map each pinned partition, and those co-partitioned with it, to the consumer of the operator's order.

    A pin has no effect while its consumer is not among ``consumers``. The same holds while the
    consumer does not subscribe to a co-partitioned topic, or cools down for one of its partitions.
    """
    found: dict[TopicPartition, str] = {}
    for at, entry in sorted(view.pins.items()):
        name, copartitioned = entry.value.consumer, copartitioned_with(at, bound)
        if (
            name in consumers
            and view.exists(at)
            and all(consumers[name].wants(one.topic) for one in copartitioned)
            and not any((one, name) in view.cooldowns for one in copartitioned)
        ):
            found |= {one: found.get(one, name) for one in copartitioned}
    return found


def _pin(
    owner: dict[TopicPartition, str],
    pins: Mapping[TopicPartition, str],
    barred: Collection[tuple[TopicPartition, str]],
    consumers: Mapping[str, Consumer],
    mine: Mapping[TopicPartition, str],
    bound: Mapping[str, tuple[str, ...]],
) -> None:
    """Put each pinned partition on its consumer, in place.

    To keep the loads even, the consumer gives an equal number of partitions to the previous target.
    The consumer prefers to give partitions that it does not own yet.
    """
    held: dict[str, list[TopicPartition]] = {}
    for at, name in owner.items() if pins else ():
        held.setdefault(name, []).append(at)
    for at, name in sorted(pins.items()):
        displaced = owner.get(at)
        if displaced == name:
            continue
        copartitioned = copartitioned_with(at, bound)
        owner.update(dict.fromkeys(copartitioned, name))
        if displaced is None:
            continue
        others = (copartitioned_with(one, bound) for one in held.get(name, ()))
        back = min(
            (
                other
                for other in others
                if len(other) == len(copartitioned)
                and all(
                    owner.get(one) == name
                    and one not in pins
                    and (one, displaced) not in barred
                    and consumers[displaced].wants(one.topic)
                    for one in other
                )
            ),
            default=(),
            key=lambda other: (
                mine.get(other[0]) == name,
                mine.get(other[0]) != displaced,
                other[0].topic != at.topic,
                other,
            ),
        )
        owner.update(dict.fromkeys(back, displaced))


def _of_leaving_consumers(view: View) -> Iterator[TopicPartition]:
    """Iterate over the partitions of leaving consumers."""
    for name in view.draining:
        mine = view.incarnation(name)
        for at in view.owned.get(name, ()):
            if view.assignments[at].value.incarnation == mine:
                yield at


def _members(
    consumers: Sequence[Consumer], counts: Mapping[str, int], mine: Mapping[TopicPartition, str]
) -> list[Member]:
    everything = tuple(sorted(counts))
    actives: dict[str, dict[str, list[int]]] = {consumer.name: {} for consumer in consumers}
    for at in sorted(mine):
        actives[mine[at]].setdefault(at.topic, []).append(at.partition)
    return [
        Member(
            c.name,
            c.topics or everything,
            actives=actives[c.name],
            rack_id=c.rack,
            standbys={topic: list(numbers) for topic, numbers in c.holds.items()},
            capacity=c.capacity,
            generation=0,
        )
        for c in consumers
    ]


def _weights(
    consumers: Sequence[Consumer], counts: Mapping[str, int]
) -> dict[tuple[str, int], float]:
    """Merge the consumers' weights: the highest weight of each partition counts."""
    found: dict[tuple[str, int], float] = {}
    for consumer in consumers:
        for topic in sorted(counts.keys() & consumer.weights.keys()):
            for number, weight in consumer.weights[topic].items():
                if 0 <= number < counts[topic] and 0 <= weight < float("inf"):
                    found[topic, number] = max(weight, found.get((topic, number), 0.0))
    return found


def _avoid(
    owner: dict[TopicPartition, str],
    barred: Collection[tuple[TopicPartition, str]],
    consumers: Mapping[str, Consumer],
    mine: Mapping[TopicPartition, str],
    bound: Mapping[str, tuple[str, ...]],
    moving: Collection[TopicPartition] = (),
) -> None:
    """Change each ``barred`` pair of partition and target, in place.

    The least loaded allowed consumer becomes the target; without an allowed consumer the target
    stays. A partition in ``moving`` stays with the new owner of its hand-off, if that owner is
    allowed.
    """
    load = dict.fromkeys(consumers, 0)
    for name in owner.values():
        load[name] += 1
    for at in sorted(at for at, name in barred if owner.get(at) == name):
        name = owner[at]
        copartitioned = [
            other for other in copartitioned_with(at, bound) if owner.get(other) == name
        ]
        if (at, name) not in barred:
            continue
        load[name] -= len(copartitioned)
        others = [
            other
            for other, consumer in consumers.items()
            if all(
                (one, other) not in barred and consumer.wants(one.topic) for one in copartitioned
            )
        ]
        holder = mine.get(at)
        best = min(
            others,
            default=name,
            key=lambda other: (load[other] / consumers[other].capacity, other != holder, other),
        )
        stays = holder in others and (
            at in moving
            or (load[best] + len(copartitioned)) / consumers[best].capacity
            > load[holder] / consumers[holder].capacity
        )
        chosen = holder if stays and holder is not None else best
        owner.update(dict.fromkeys(copartitioned, chosen))
        load[chosen] += len(copartitioned)


def _replicas(
    made: Plan, consumers: Mapping[str, Consumer]
) -> dict[str, tuple[TopicPartition, ...]]:
    return {
        name: tuple(
            TopicPartition(topic, number)
            for topic, numbers in made.standbys(name).items()
            for number in numbers
        )
        for name in made.member_ids
        if KEEPS_REPLICAS in consumers[name].capabilities
    }
