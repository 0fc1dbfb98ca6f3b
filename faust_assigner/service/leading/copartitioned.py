"""Co-partitioned topics: their partitions of equal number have one owner and move together."""

from __future__ import annotations

from collections.abc import Mapping

from faust_assigner.grouper import bonds
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.view import View


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
