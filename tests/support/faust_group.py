"""A consumer group without a broker: real Faust apps, metadata and assignments as bytes on the
wire.

Only bytes pass between members, encoded and decoded by aiokafka's own protocol classes, as with a
broker. A member's memory is the state of its assignor.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import faust
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.structs import PartitionMetadata
from faust.assignor.partition_assignor import PartitionAssignor as StockAssignor

from faust_assigner import PartitionAssignor

__all__ = ["PartitionAssignor", "StockAssignor", "WireGroup", "cluster_of", "make_app"]

_SCRATCH = tempfile.TemporaryDirectory(prefix="faust-group-")


def cluster_of(partitions: Mapping[str, int]) -> ClusterMetadata:
    """Return aiokafka's view of a cluster with these topics."""
    cluster = ClusterMetadata()
    cluster._partitions = {
        topic: {p: PartitionMetadata(topic, p, 0, [0], [0], None) for p in range(count)}
        for topic, count in partitions.items()
    }
    return cluster


def make_app(
    url: str,
    *,
    app_id: str = "shop",
    assignor: Any = PartitionAssignor,
    replicas: int = 1,
    tables: Iterable[str] = (),
    global_tables: Mapping[str, Mapping[str, Any]] | None = None,
    **options: Any,
) -> faust.App:
    """A configured app that was never started; table ``t`` has changelog ``shop-t-changelog``."""
    options.setdefault("datadir", _SCRATCH.name)
    options.setdefault("store", "memory://")
    app = faust.App(
        app_id,
        PartitionAssignor=assignor,
        canonical_url=url,
        table_standby_replicas=replicas,
        **options,
    )
    for name in tables:
        app.Table(name)
    for name, flags in (global_tables or {}).items():
        app.GlobalTable(name, **flags)
    return app


class WireGroup:
    """Members by id; ``rebalance`` is a whole round of JoinGroup and SyncGroup."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self.partitions = dict(partitions)
        self.apps: dict[str, faust.App] = {}
        self.topics: dict[str, set[str]] = {}
        self.joined: dict[str, bytes] = {}
        self.synced: dict[str, bytes] = {}
        self.leader = ""

    def add(self, member_id: str, app: faust.App, topics: Collection[str]) -> None:
        """Add a member at the next rebalance."""
        self.apps[member_id] = app
        self.topics[member_id] = set(topics)

    def remove(self, member_id: str) -> None:
        """Remove a member before the next rebalance."""
        for book in (self.apps, self.topics):
            del book[member_id]

    def join_bytes(self) -> dict[str, bytes]:
        """Return every member's metadata as bytes on the wire."""
        return {m: app.assignor.metadata(self.topics[m]).encode() for m, app in self.apps.items()}

    def rebalance(self, leader: str | None = None) -> None:
        """Let all members join, the leader assign, and all members sync."""
        self.joined = self.join_bytes()
        self.leader = leader or next(iter(self.apps))
        metadata = {m: ConsumerProtocolMemberMetadata.decode(raw) for m, raw in self.joined.items()}
        answers = self.apps[self.leader].assignor.assign(cluster_of(self.partitions), metadata)
        self.synced = {m: answer.encode() for m, answer in answers.items()}
        assert self.synced.keys() == self.apps.keys()
        for m, app in self.apps.items():
            app.assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(self.synced[m]))

    def actives(self, topic: str) -> dict[int, str]:
        """Return partition -> owner; asserts that no partition has two owners."""
        owners: dict[int, str] = {}
        for m, app in self.apps.items():
            for tp in app.assignor.assigned_actives():
                if tp.topic == topic:
                    assert tp.partition not in owners, f"{tp} has two owners"
                    owners[tp.partition] = m
        return owners

    def standbys(self, topic: str) -> dict[int, set[str]]:
        """Return partition -> the members with a standby."""
        found: dict[int, set[str]] = {p: set() for p in range(self.partitions.get(topic, 0))}
        for m, app in self.apps.items():
            for tp in app.assignor.assigned_standbys():
                if tp.topic == topic:
                    found[tp.partition].add(m)
        return found
