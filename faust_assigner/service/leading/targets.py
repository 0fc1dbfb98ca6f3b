"""The target owner of every partition, planned by :func:`faust_assigner.plan` from the view.

The plan balances all topics together. If a consumer declares topics as co-partitioned, their
partitions of equal number get the same owner; other topics are independent. A moving partition
already counts as its new owner's, so that a new plan does not reverse a hand-off in progress.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from faust_assigner.model import Member
from faust_assigner.planner import Plan, plan
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.leading.copartitioned import bound_topics
from faust_assigner.service.leading.corrections import avoid, pin, pinned
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
    """Map each partition to its owner or the new owner of its hand-off, if the consumer is in ``names``."""
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
    """Map each unassigned partition to the first of ``names`` that reports a former ownership."""
    return {
        at: name
        for name in sorted(names, reverse=True)
        if name in view.consumers
        for topic, numbers in view.consumers[name].value.former.items()
        for number in numbers
        if (at := TopicPartition(topic, number)) not in view.assignments and view.exists(at)
    }


def choose(
    view: View, consumers: Sequence[Consumer], *, replicas: int, standing: Suitability = NEUTRAL
) -> Targets:
    """Plan the targets for ``consumers``.

    A cool-down bars a (partition, consumer) pair while the cool-down's key exists; the key expires with its
    lease. Stuck and crowding consumers (see :class:`Suitability`) get no partition of a leaving consumer if
    a different consumer can take the partition.

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
    avoid(owner, barred, by_name, mine, bound, view.handoffs.keys())
    pin(owner, pins, barred, by_name, mine, bound)
    return Targets(owner, _replicas(made, by_name))


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
    """Merge the consumers' weights; each partition gets its highest reported weight."""
    found: dict[tuple[str, int], float] = {}
    for consumer in consumers:
        for topic in sorted(counts.keys() & consumer.weights.keys()):
            for number, weight in consumer.weights[topic].items():
                if 0 <= number < counts[topic] and 0 <= weight < float("inf"):
                    found[topic, number] = max(weight, found.get((topic, number), 0.0))
    return found


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
