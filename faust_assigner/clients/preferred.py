"""Assignors with preferences: each member gets partitions that match its labels, if balance allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from aiokafka.cluster import ClusterMetadata
from aiokafka.structs import TopicPartition

from faust_assigner.clients.assignors import Assigned, Joined, PlannedAssignor
from faust_assigner.clients.user_data import decode_user_data, encode_user_data
from faust_assigner.model import Member
from faust_assigner.planner import plan

RACK = "rack"
_ByTopic: TypeAlias = Mapping[str, frozenset[int]]


class MetadataAssignor(PlannedAssignor):
    """Balances first; then places as many partitions as possible on members that prefer them.

    ``labels`` describe this consumer. Subclasses implement :meth:`liked`, which returns the preferred
    partitions of a member with given labels. A partition stays on its owner, if balance allows, when the
    owner prefers it or no member does.
    """

    name = "metadata"

    def __init__(self, labels: Mapping[str, str], *, capacity: float = 1.0) -> None:
        super().__init__(capacity=capacity)
        self._user_data = decode_user_data(
            encode_user_data(replace(self._user_data, labels=dict(labels)))
        )

    def liked(
        self, labels: Mapping[str, str], topic: str, cluster: ClusterMetadata
    ) -> Collection[int]:
        """Return the partitions of ``topic`` that a member with ``labels`` prefers."""
        raise NotImplementedError

    def place(
        self, joined: Sequence[Joined], partitions: Mapping[str, int], cluster: ClusterMetadata
    ) -> dict[str, Assigned]:
        """Return member id -> its partitions.
        The planner prefers members with a copy of a task's state, so preferences are passed as copies.
        """
        likes = {
            facts: {
                topic: frozenset(self.liked(dict(facts), topic, cluster)) for topic in partitions
            }
            for facts in {_labels_key(one) for one in joined}
        }
        wanted = {
            topic: frozenset[int]().union(
                *(likes[_labels_key(one)][topic] for one in joined if topic in one.topics)
            )
            for topic in partitions
        }
        members = [_claiming_preferred(one, likes[_labels_key(one)], wanted) for one in joined]
        shares = _planned_partitions(members, partitions)
        liked = {one.member_id: likes[_labels_key(one)] for one in joined}
        # A partition that no member prefers may take the place of a preferred partition. So plan again
        # without the claims on such partitions, and use the second plan if it meets more preferences.
        homes = _planned_partitions([_only_preferred(one) for one in members], partitions)
        if _count_liked(homes, liked) > _count_liked(shares, liked):
            shares = _planned_partitions(
                [_claiming_home(one, homes[one.member_id]) for one in members], partitions
            )
        return {
            member_id: Assigned(active=topics, spare={}) for member_id, topics in shares.items()
        }


def _labels_key(one: Joined) -> tuple[tuple[str, str], ...]:
    """Return a member's labels as a dictionary key, so that ``liked`` is called once for equal labels."""
    return tuple(sorted(one.data.labels.items()))


def _claiming_preferred(one: Joined, liked: _ByTopic, wanted: _ByTopic) -> Member:
    """Return the member with claims only on partitions that it prefers, or that no member prefers."""
    kept = {
        topic: [n for n in numbers if n in liked[topic] or n not in wanted[topic]]
        for topic, numbers in one.data.active.items()
        if topic in wanted
    }
    return replace(
        one.member,
        actives=kept,
        standbys={topic: sorted(liked[topic]) for topic in one.topics if topic in liked},
    )


def _only_preferred(member: Member) -> Member:
    """Return the member with claims only on partitions that it prefers."""
    liked = member.standbys
    kept = {t: [n for n in ns if n in liked.get(t, ())] for t, ns in member.actives.items()}
    return replace(member, actives=kept)


def _claiming_home(member: Member, home: Mapping[str, Sequence[int]]) -> Member:
    """Return the member with claims on the preferred partitions of ``home``.
    For each topic it also keeps as many claims on other partitions as ``home`` has other partitions.
    """
    claimed: dict[str, list[int]] = {}
    for topic, numbers in home.items():
        liked = member.standbys.get(topic, ())
        here = [n for n in numbers if n in liked]
        others = [n for n in member.actives.get(topic, ()) if n not in liked]
        claimed[topic] = here + others[: len(numbers) - len(here)]
    return replace(member, actives=claimed)


def _planned_partitions(
    members: Sequence[Member], partitions: Mapping[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Return member id -> topic -> the partitions that the planner assigns to the member."""
    made = plan(members, partitions, changelogs=partitions, co_partitioned=())
    given: dict[str, dict[str, list[int]]] = {one.member_id: {} for one in members}
    for group, owners in zip(made.groups, made.target, strict=True):
        for number, owner in enumerate(owners.tolist()):
            for topic in group.topics:
                given[made.member_ids[owner]].setdefault(topic, []).append(number)
    return given


def _count_liked(
    shares: Mapping[str, Mapping[str, Sequence[int]]], liked: Mapping[str, _ByTopic]
) -> int:
    return sum(
        n in liked[member_id][topic]
        for member_id, topics in shares.items()
        for topic, numbers in topics.items()
        for n in numbers
    )


class RackAwareAssignor(MetadataAssignor):
    """Prefers partitions whose leader is in this consumer's rack, so that less traffic crosses racks.

    ``rack_id`` is compared with the brokers' ``broker.rack``. Leaders count, because aiokafka fetches
    from leaders only.
    """

    name = "rack-aware"

    def __init__(self, rack_id: str, *, capacity: float = 1.0) -> None:
        super().__init__({RACK: rack_id}, capacity=capacity)

    def liked(
        self, labels: Mapping[str, str], topic: str, cluster: ClusterMetadata
    ) -> Collection[int]:
        """Return the partitions whose leader runs in the member's rack."""
        rack = labels.get(RACK)
        return (
            []
            if rack is None
            else [
                number
                for number in cluster.partitions_for_topic(topic) or ()
                if _rack_of_leader(cluster, TopicPartition(topic, number)) == rack
            ]
        )


def _rack_of_leader(cluster: ClusterMetadata, partition: TopicPartition) -> str | None:
    broker = cluster.broker_metadata(cluster.leader_for_partition(partition))
    return None if broker is None else broker.rack
