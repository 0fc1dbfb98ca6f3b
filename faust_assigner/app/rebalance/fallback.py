"""Answers from topic names and partition counts alone, for use after a failure of other code."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from faust_assigner.app.rebalance.answers import PROTOCOL_VERSION, protocol_list
from faust_assigner.app.rebalance.placement import dealt
from faust_assigner.model import Member
from faust_assigner.wire.join import url_of

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
    from faust.types.app import AppT


def plain_metadata(app: AppT) -> bytes:
    """Return the user_data of a member that claims no partitions."""
    return _stock_user_data({}, {}, str(app.conf.canonical_url))


def deal(
    cluster: ClusterMetadata, metadata: Mapping[str, ConsumerProtocolMemberMetadata], replicas: int
) -> dict[str, ConsumerProtocolMemberAssignment]:
    """Return a valid answer for each member, stock Faust or not, with partitions dealt round-robin.

    Topics whose names end like Faust's changelog topics get standbys.
    """
    members = [Member(m, _topics(metadata[m])) for m in sorted(metadata)]
    partitions = {topic: _count(cluster, topic) for member in members for topic in member.topics}
    logs = [topic for topic in partitions if topic.endswith("-changelog")]
    placement = dealt(members, partitions, replicas=replicas, changelogs=logs, previous_ids={})
    answers = {}
    for m in placement.member_ids:
        actives, standbys = placement.actives[m], placement.standbys[m]
        packed = _stock_user_data(
            actives, standbys, url_of(metadata[m].user_data), placement.group_ids
        )
        answers[m] = ConsumerProtocolMemberAssignment(
            PROTOCOL_VERSION, protocol_list(actives, standbys), zlib.compress(packed)
        )
    return answers


def _topics(said: ConsumerProtocolMemberMetadata) -> list[str]:
    return [t for t in said.subscription or () if type(t) is str]


def _count(cluster: ClusterMetadata, topic: str) -> int:
    try:
        return len(cluster.partitions_for_topic(topic) or ())
    except Exception:  # on any failure the topic counts as having no partitions
        return 0


def _stock_user_data(actives: object, standbys: object, url: str, ids: object = None) -> bytes:
    return json.dumps(
        {
            "assignment": {"actives": actives, "standbys": standbys},
            "url": url,
            "changelog_distribution": {},
            "external_topic_distribution": {},
            "topic_groups": ids or {},
        }
    ).encode()
