"""Where every partition belongs: the view of the store, through our planner.

All topics are balanced together; only topics that a consumer declares co-partitioned travel together. A
partition on its way counts as its new owner's already, so that a plan does not change its mind half way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from faust_assigner.grouper import bonds
from faust_assigner.model import Member
from faust_assigner.planner import Plan, plan
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.leading.record import NEUTRAL, Standing
from faust_assigner.service.records import KEEPS_REPLICAS, Consumer
from faust_assigner.service.view import View


@dataclass(frozen=True)
class Targets:
    """``owner`` of each partition that has one; ``replicas`` by consumer, for those that keep them."""

    owner: Mapping[TopicPartition, str]
    replicas: Mapping[str, tuple[TopicPartition, ...]]


def claimants(view: View, names: Collection[str]) -> dict[TopicPartition, str]:
    """Partition -> whose it is, or is about to be; only those in ``names``."""
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
    """Partitions without an assignment -> the first consumer of ``names`` that says it owned them."""
    return {
        at: name
        for name in sorted(names, reverse=True)
        if name in view.consumers
        for topic, numbers in view.consumers[name].value.former.items()
        for number in numbers
        if (at := TopicPartition(topic, number)) not in view.assignments and view.exists(at)
    }


def bound_topics(view: View) -> dict[str, tuple[str, ...]]:
    """Topic -> all topics that travel with it, itself included: declared together, and of one count."""
    roots = bonds(
        topics for entry in view.consumers.values() for topics in entry.value.co_partitioned
    )
    crews: dict[tuple[str, int], list[str]] = {}
    for topic in sorted(view.topics):
        count = view.topics[topic].value.partition_count
        crews.setdefault((roots.get(topic, topic), count), []).append(topic)
    return {topic: tuple(crew) for crew in crews.values() for topic in crew}


def crew_of(at: TopicPartition, bound: Mapping[str, tuple[str, ...]]) -> tuple[TopicPartition, ...]:
    """The partitions that travel with one, itself included."""
    return tuple(TopicPartition(topic, at.partition) for topic in bound.get(at.topic, (at.topic,)))


def choose(
    view: View, consumers: Sequence[Consumer], *, replicas: int, standing: Standing = NEUTRAL
) -> Targets:
    """The plan for ``consumers``. A cool-down counts while its key is there: a lease ends it. What a consumer
    that leaves hands over is not for consumers that are stuck or crowding, as long as there are others.

    Cost: that of :func:`faust_assigner.plan`, plus one pass over all partitions.
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
    for at in _left_behind(view):
        barred |= {(at, n) for n in passed_over if mine.get(at) != n or n in standing.overtaken}
    _avoid(owner, barred, by_name, mine, bound, view.handoffs.keys())
    _pin(owner, pins, barred, by_name, mine, bound)
    return Targets(owner, _replicas(made, by_name))


def pinned(
    view: View, consumers: Mapping[str, Consumer], bound: Mapping[str, tuple[str, ...]]
) -> dict[TopicPartition, str]:
    """Partition -> the consumer on which an operator wants it, with the partitions that travel with it.

    A pin is passed over while its consumer is not among ``consumers``, does not want a topic of them, or
    cools down for the partition.
    """
    found: dict[TopicPartition, str] = {}
    for at, entry in sorted(view.pins.items()):
        name, crew = entry.value.consumer, crew_of(at, bound)
        if (
            name in consumers
            and view.exists(at)
            and all(consumers[name].wants(one.topic) for one in crew)
            and not any((one, name) in view.cooldowns for one in crew)
        ):
            found |= {one: found.get(one, name) for one in crew}
    return found


def _pin(
    owner: dict[TopicPartition, str],
    pins: Mapping[TopicPartition, str],
    barred: Collection[tuple[TopicPartition, str]],
    consumers: Mapping[str, Consumer],
    mine: Mapping[TopicPartition, str],
    bound: Mapping[str, tuple[str, ...]],
) -> None:
    """Put each pinned partition on its consumer. To keep the loads even, that gives as many back to the
    consumer from which it came: such as it does not have yet, if it can."""
    held: dict[str, list[TopicPartition]] = {}
    for at, name in owner.items() if pins else ():
        held.setdefault(name, []).append(at)
    for at, name in sorted(pins.items()):
        displaced = owner.get(at)
        if displaced == name:
            continue
        crew = crew_of(at, bound)
        owner.update(dict.fromkeys(crew, name))
        if displaced is None:
            continue
        others = (crew_of(one, bound) for one in held.get(name, ()))
        back = min(
            (
                other
                for other in others
                if len(other) == len(crew)
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


def _left_behind(view: View) -> Iterator[TopicPartition]:
    """The partitions of consumers that leave."""
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
    """The highest word counts, where consumers know different things."""
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
    """Another consumer where partition and target are ``barred``: the least loaded; if there is none, it
    after all. What is ``moving`` already goes on to where it goes, if it may."""
    load = dict.fromkeys(consumers, 0)
    for name in owner.values():
        load[name] += 1
    for at in sorted(at for at, name in barred if owner.get(at) == name):
        name = owner[at]
        crew = [other for other in crew_of(at, bound) if owner.get(other) == name]
        if (at, name) not in barred:
            continue
        load[name] -= len(crew)
        others = [
            other
            for other, consumer in consumers.items()
            if all((one, other) not in barred and consumer.wants(one.topic) for one in crew)
        ]
        holder = mine.get(at)
        best = min(
            others,
            default=name,
            key=lambda other: (load[other] / consumers[other].capacity, other != holder, other),
        )
        stays = holder in others and (
            at in moving
            or (load[best] + len(crew)) / consumers[best].capacity
            > load[holder] / consumers[holder].capacity
        )
        chosen = holder if stays and holder is not None else best
        owner.update(dict.fromkeys(crew, chosen))
        load[chosen] += len(crew)


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
