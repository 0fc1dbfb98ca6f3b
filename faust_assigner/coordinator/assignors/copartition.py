"""``copartition``: this package's planner as a server-side assignor.

Topics with equal partition counts and equal subscribers are placed together: partition p of each topic goes
to the same member, as joins require. The planner optimises balance first, then stickiness, both exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

from faust_assigner.coordinator.assignors.spec import GroupSpec, Target
from faust_assigner.coordinator.catalogue import Topic, TopicId
from faust_assigner.model import Member
from faust_assigner.planner import plan


def assign_together(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Return the planner's target, with the last target as the members' claims. Cost: the planner's cost."""
    names = {topic_id: topic.name for topic_id, topic in topics.items()}
    ids = {name: topic_id for topic_id, name in names.items()}
    members = [
        Member(
            member_id,
            sorted(names[t] for t in said.topics if t in names),
            actives={names[t]: numbers for t, numbers in said.target.items() if t in names},
            instance_id=said.instance_id,
            rack_id=said.rack_id,
        )
        for member_id, said in sorted(spec.members.items())
    ]
    counts = {topic.name: topic.partitions for topic in topics.values() if topic.partitions}
    planned = plan(members, counts)
    return {
        member_id: {ids[name]: tuple(sorted(numbers)) for name, numbers in share.items() if numbers}
        for member_id, share in ((m, planned.actives(m)) for m in spec.members)
    }
