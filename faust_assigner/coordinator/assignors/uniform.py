"""``uniform``: every member the same number of partitions, and as many of them as can be where they were."""

from __future__ import annotations

from collections.abc import Mapping

from faust_assigner.coordinator.assignors.spec import GroupSpec, Target
from faust_assigner.coordinator.catalogue import Topic, TopicId


def assign_uniformly(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Even, then sticky."""
    everything = {(t, p) for t in topics for p in range(topics[t].partitions)}
    line = sorted(spec.members)
    kept: dict[str, list[tuple[TopicId, int]]] = {}
    for member_id in line:
        before = spec.members[member_id].target
        kept[member_id] = [(t, p) for t in sorted(before) for p in before[t] if (t, p) in everything]
    each, longer = divmod(len(everything), max(len(line), 1))
    order = sorted(line, key=lambda m: (-len(kept[m]), m))
    for place, member_id in enumerate(order):
        kept[member_id] = kept[member_id][: each + (place < longer)]
        everything.difference_update(kept[member_id])
    free = iter(sorted(everything))
    for place, member_id in enumerate(order):
        missing = each + (place < longer) - len(kept[member_id])
        kept[member_id] += [next(free) for _ in range(missing)]
    return {m: by_topic(kept[m]) for m in line}


def by_topic(pairs: list[tuple[TopicId, int]]) -> dict[TopicId, tuple[int, ...]]:
    """Pairs as a mapping of ascending partitions."""
    found: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(pairs):
        found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}
