"""``range``: each member gets one contiguous run of each topic's partitions."""

from __future__ import annotations

from collections.abc import Mapping

from faust_assigner.coordinator.assignors.spec import GroupSpec, Target
from faust_assigner.coordinator.catalogue import Topic, TopicId


def assign_ranges(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Split topics with equal subscribers alike: member k of n gets the k-th run of each topic.

    Members are ordered by instance id, then member id, so that a static member that returns under a new
    id gets its former runs. Cost O(members x topics).
    """
    line = sorted(spec.members, key=lambda m: (spec.members[m].instance_id or m, m))
    target: dict[str, dict[TopicId, tuple[int, ...]]] = {m: {} for m in line}
    for topic_id in sorted(topics):
        readers = [m for m in line if topic_id in spec.members[m].topics]
        for member_id, run in zip(
            readers, _partition_runs(topics[topic_id].partitions, len(readers)), strict=True
        ):
            if run:
                target[member_id][topic_id] = tuple(run)
    return target


def _partition_runs(partitions: int, readers: int) -> list[range]:
    """Return the runs; the first ``partitions % readers`` runs are longer by 1."""
    if not readers:
        return []
    each, longer = divmod(partitions, readers)
    ends = [each * (k + 1) + min(k + 1, longer) for k in range(readers)]
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
