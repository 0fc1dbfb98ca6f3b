"""The same requests to Apache Kafka and to the embedded broker get the same answers.

A script of raw requests runs on both. Ids, ports and times are left out; the fields that clients
depend on are compared.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import KafkaServer
from tests.support.clients.raw_client import RawClient, batch
from tests.support.waiting import wait_until

Script = Callable[[str], list[Any]]
NOT_YET = (3, 5, 6, 14, 15, 16)  # leaders and coordinators are still starting on a fresh Kafka


def span(value: int) -> datetime.timedelta:
    """Milliseconds for kio."""
    return datetime.timedelta(milliseconds=value)


class Group:
    """Members of a group, each on its own connection; answers are logged without ids."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap, self.name = bootstrap, name
        self.clients: dict[str, RawClient] = {}
        self.ids: dict[str, str] = {}
        self.generation: dict[str, int] = {}
        self.log: list[Any] = []
        probe = RawClient(bootstrap)
        ghost = {"group_id": name, "generation_id": 1, "member_id": "ghost"}
        while (
            probe.call(10, 3, key=name).error_code in NOT_YET
            or probe.call(12, 3, **ghost).error_code in NOT_YET
        ):
            time.sleep(0.1)

    def client(self, who: str) -> RawClient:
        """Return the member's connection."""
        if who not in self.clients:
            self.clients[who] = RawClient(self.bootstrap, 30)
        return self.clients[who]

    def name_of(self, member_id: str) -> str:
        """Return a stable name for a member id."""
        return next(
            (who for who, known in self.ids.items() if known == member_id), "?" if member_id else ""
        )

    def join_values(self, who: str, member_id: str | None = None, **changes: Any) -> dict[str, Any]:
        """Return the values of a JoinGroup."""
        return {
            "group_id": self.name,
            "session_timeout": span(60_000),
            "rebalance_timeout": span(60_000),
            "member_id": self.ids.get(who, "") if member_id is None else member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"meta"}],
            **changes,
        }

    def send_join(self, who: str, version: int = 5, **changes: Any) -> None:
        """Send a JoinGroup and do not wait."""
        self.client(who).send(11, version, **self.join_values(who, **changes))

    def take_join(self, who: str, version: int = 5) -> Any:
        """Receive the answer to the last JoinGroup."""
        answer = self.client(who).receive(11, version)
        if answer.member_id:
            self.ids[who] = answer.member_id
        if answer.error_code == 0:
            self.generation[who] = answer.generation_id
        self.log.append(
            (
                "join",
                who,
                int(answer.error_code),
                answer.generation_id,
                answer.protocol_name or "",
                self.name_of(answer.leader),
                sorted(self.name_of(m.member_id) for m in answer.members),
            )
        )
        return answer

    def join(self, who: str, version: int = 5, **changes: Any) -> Any:
        """Join completely, with the second request for a member id."""
        self.send_join(who, version, **changes)
        answer = self.take_join(who, version)
        if answer.error_code == 79:
            return self.join(who, version, **changes)
        return answer

    def sync(self, who: str, given: dict[str, bytes] | None = None, **changes: Any) -> None:
        """SyncGroup, answered."""
        self.send_sync(who, given, **changes)
        self.take_sync(who)

    def send_sync(self, who: str, given: dict[str, bytes] | None = None, **changes: Any) -> None:
        """SyncGroup, not waiting."""
        assignments = [
            {"member_id": self.ids[w], "assignment": data} for w, data in (given or {}).items()
        ]
        values = {
            "group_id": self.name,
            "generation_id": self.generation.get(who, -1),
            "member_id": self.ids[who],
            "assignments": assignments,
            **changes,
        }
        self.client(who).send(14, 3, **values)

    def take_sync(self, who: str) -> None:
        """Receive the answer to the last SyncGroup."""
        answer = self.client(who).receive(14, 3)
        self.log.append(("sync", who, int(answer.error_code), bytes(answer.assignment)))

    def heartbeat(self, who: str, **changes: Any) -> None:
        """Heartbeat."""
        values = {
            "group_id": self.name,
            "generation_id": self.generation.get(who, -1),
            "member_id": self.ids.get(who, ""),
            **changes,
        }
        self.log.append(("heartbeat", who, int(self.client(who).call(12, 3, **values).error_code)))

    def commit(self, who: str, topic: str = "t", **changes: Any) -> None:
        """Commit one partition."""
        part = {"partition_index": 0, "committed_offset": 1}
        values = {
            "group_id": self.name,
            "generation_id_or_member_epoch": self.generation.get(who, -1),
            "member_id": self.ids.get(who, ""),
            "topics": [{"name": topic, "partitions": [part]}],
            **changes,
        }
        answer = self.client(who).call(8, changes.pop("version", 7), **values)
        self.log.append(("commit", who, int(answer.topics[0].partitions[0].error_code)))

    def leave(self, *members: dict[str, Any]) -> None:
        """LeaveGroup."""
        answer = self.client("admin").call(13, 4, group_id=self.name, members=list(members))
        self.log.append(
            ("leave", int(answer.error_code), [int(m.error_code) for m in answer.members])
        )

    def wait_for_a_round(self) -> None:
        """Wait until the group has taken a JoinGroup that it cannot answer yet."""
        wait_until(lambda: self._described().group_state == "PreparingRebalance", "the round")

    def _described(self) -> Any:
        return self.client("admin").call(15, 4, groups=(self.name,)).groups[0]

    def state(self) -> None:
        """DescribeGroups."""
        group = self._described()
        self.log.append(("state", group.group_state, group.protocol_data, len(group.members)))


def one_member(bootstrap: str) -> list[Any]:
    """The life of a member, with every wrong generation and id in between."""
    g = Group(bootstrap, "one")
    g.heartbeat("a", member_id="ghost", generation_id=1)
    g.commit("a", member_id="ghost", generation_id_or_member_epoch=3)
    g.send_join("a", member_id="ghost")
    g.take_join("a")
    g.ids.clear()
    for changes in ({"session_timeout": span(1)}, {"protocols": []}, {"protocol_type": ""}):
        g.send_join("a", **changes)
        g.take_join("a")
    g.join("a")
    g.commit("a")
    g.sync("a", {"a": b"A"})
    for generation in (-2, -1, 0, 1, 2, 2**31 - 1):
        g.heartbeat("a", generation_id=generation)
        g.commit("a", generation_id_or_member_epoch=generation)
        g.sync("a", generation_id=generation)
    g.heartbeat("a", member_id="stranger")
    g.commit("a", member_id="", generation_id_or_member_epoch=-1)
    g.heartbeat("a", group_instance_id="nobody")
    g.commit("a", topic="nowhere")
    g.state()
    g.leave({"member_id": g.ids["a"]}, {"member_id": "stranger"})
    g.state()
    g.commit("a", member_id="", generation_id_or_member_epoch=-1)
    g.commit("a", member_id="x", generation_id_or_member_epoch=-1)
    g.commit("a", generation_id_or_member_epoch=1)
    g.heartbeat("a")
    return g.log


def two_members(bootstrap: str) -> list[Any]:
    """A member joins, both sync, the follower rejoins unchanged and changed; a member leaves."""
    g = Group(bootstrap, "two")
    g.join("a")
    g.sync("a", {"a": b"A"})
    g.send_join("b")
    g.take_join("b")
    g.send_join("b")
    g.wait_for_a_round()
    g.heartbeat("a")
    g.commit("a")
    g.sync("a")
    g.send_join("a")
    g.take_join("a")
    g.take_join("b")
    g.heartbeat("b")
    g.commit("b")
    g.send_sync("b")
    g.sync("a", {"a": b"A2", "b": b"B2"})
    g.take_sync("b")
    g.sync("b")
    g.state()
    g.join("b")
    g.send_join("c", protocols=[{"name": "other", "metadata": b""}])
    g.take_join("c")
    g.send_join("b", protocols=[{"name": "range", "metadata": b"news"}])
    g.wait_for_a_round()
    g.state()
    g.send_join("a")
    g.take_join("a")
    g.take_join("b")
    g.join("a")
    g.sync("a", {"a": b"A3"})
    g.sync("b")
    g.leave({"member_id": g.ids["b"]})
    g.heartbeat("a")
    g.join("a")
    g.sync("a", {"a": b"all"})
    g.state()
    return g.log


def static_members(bootstrap: str) -> list[Any]:
    """Restarts with the same and with other metadata, fencing, skipped assignments, removals."""
    g = Group(bootstrap, "static")
    g.join("a", group_instance_id="ia")
    g.sync("a", {"a": b"A"}, group_instance_id="ia")
    g.send_join("b", group_instance_id="ib")
    g.wait_for_a_round()
    g.send_join("a", group_instance_id="ia")
    g.take_join("a")
    g.take_join("b")
    g.send_sync("b", group_instance_id="ib")
    g.sync("a", {"a": b"A", "b": b"B"}, group_instance_id="ia")
    g.take_sync("b")
    old = g.ids["b"]
    g.join("b", member_id="", group_instance_id="ib")
    g.sync("b", group_instance_id="ib")
    g.log.append(("new id", g.ids["b"] != old))
    g.heartbeat("b", member_id=old, group_instance_id="ib")
    g.heartbeat("b", member_id=old)
    g.commit("b", member_id=old, group_instance_id="ib")
    g.sync("b", member_id=old, group_instance_id="ib")
    g.join(
        "b",
        member_id="",
        group_instance_id="ib",
        protocols=[{"name": "range", "metadata": b"other"}],
    )
    g.heartbeat("a", group_instance_id="ia")
    g.state()
    for version in (8, 9):
        g.send_join("a", version, member_id="", group_instance_id="ia")
        answer = g.client("a").receive(11, version)
        g.log.append(
            (
                "leader bounced",
                int(answer.error_code),
                answer.leader == answer.member_id,
                answer.leader == g.ids["a"],
                len(answer.members),
                getattr(answer, "skip_assignment", None),
            )
        )
        g.ids["a"] = answer.member_id
    g.leave(
        {"member_id": old, "group_instance_id": "ib"},
        {"member_id": "", "group_instance_id": "nobody"},
        {"member_id": "", "group_instance_id": "ib"},
    )
    g.heartbeat("a", group_instance_id="ia")
    return g.log


def topics_and_records(bootstrap: str) -> list[Any]:
    """CreateTopics, Produce, Fetch, ListOffsets, offsets and deletion, with the errors of each."""
    log: list[Any] = []
    client = RawClient(bootstrap)
    one = {"num_partitions": 1, "replication_factor": 1}
    wanted = [
        {"name": "made", **one},
        {"name": "a b", **one},
        {"name": "", **one},
        {"name": "none", **one | {"num_partitions": 0}},
        {"name": "copies", **one | {"replication_factor": 3}},
        {"name": "twice", **one},
        {"name": "twice", **one},
        {"name": "bad", **one, "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"name": "odd", **one, "configs": [{"name": "no.such", "value": "1"}]},
        {"name": "default", "num_partitions": -1, "replication_factor": -1},
    ]
    made = client.call(19, 5, topics=wanted, timeout=span(10_000))
    log.append(sorted((t.name, int(t.error_code)) for t in made.topics))
    log.append(
        sorted((t.name, int(t.error_code)) for t in client.call(19, 5, topics=wanted[:1]).topics)
    )
    while client.produce("made", 0, batch()).error_code != 0:
        time.sleep(0.1)
    for data in (
        batch()[:-1],
        batch(magic=1),
        batch() + batch(),
        batch(attributes=0x20),
        batch(count=2, last_delta=7),
        batch(b"x" * 1_100_000),
        b"",
        bytes([*batch()[:-1], 7]),
    ):
        log.append(("produce", int(client.produce("made", 0, data).error_code)))
    log.append(("acks", int(client.produce("made", 0, batch(), acks=2).error_code)))
    log.append(
        (
            "unknown",
            int(client.produce("nowhere", 0, batch()).error_code),
            int(client.produce("made", 5, batch()).error_code),
        )
    )
    for sequence in (0, 1, 0, 1, 7, 2):
        answer = client.produce("made", 0, batch(producer_id=9_000_001, epoch=0, sequence=sequence))
        log.append(("sequence", sequence, int(answer.error_code), answer.base_offset))
    for offset in (-1, 0, 4, 5, 99):
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10**6}
        answer = client.call(
            1, 11, topics=[{"topic": "made", "partitions": [part]}], max_wait=span(10), min_bytes=1
        )
        found = answer.responses[0].partitions[0]
        log.append(
            (
                "fetch",
                offset,
                int(found.error_code),
                found.high_watermark,
                len(found.records or b""),
            )
        )
    for timestamp in (-3, -2, -1, 0, 1_000, 1_001):
        part = {"partition_index": 0, "timestamp": timestamp}
        found = (
            client.call(2, 7, topics=[{"name": "made", "partitions": [part]}])
            .topics[0]
            .partitions[0]
        )
        log.append(("list", timestamp, int(found.error_code), found.offset, found.timestamp))
    Group(bootstrap, "nobody"), Group(bootstrap, "ghost")  # their coordinators are up
    fetched = client.call(
        9, 5, group_id="nobody", topics=[{"name": "made", "partition_indexes": (0, 7)}]
    )
    log.append(
        [
            (p.partition_index, p.committed_offset, int(p.error_code))
            for p in fetched.topics[0].partitions
        ]
    )
    grown = client.call(
        37,
        1,
        topics=[
            {"name": n, "count": c, "assignments": None}
            for n, c in (("made", 3), ("default", 1), ("nowhere", 2))
        ],
        timeout=span(10_000),
    )
    log.append(sorted((r.name, int(r.error_code)) for r in grown.results))
    gone = client.call(20, 5, topic_names=("made", "nowhere"), timeout=span(10_000))
    log.append(sorted((r.name, int(r.error_code)) for r in gone.responses))
    groups = client.call(42, 1, groups_names=("ghost",))
    log.append([int(r.error_code) for r in groups.results])
    return log


def knows_the_topic(client: RawClient) -> bool:
    """Return whether the broker takes commits for the topic: Kafka's controller knows it earlier."""
    found = client.call(3, 4, topics=({"name": "t"},), allow_auto_topic_creation=False)
    return [int(topic.error_code) for topic in found.topics] == [0]


@pytest.mark.kafka
@pytest.mark.parametrize("script", [one_member, two_members, static_members, topics_and_records])
def test_kafka_and_the_broker_answer_alike(kafka: KafkaServer, script: Script) -> None:
    """The answers are compared one by one."""
    settings = {"group.min.session.timeout.ms": 1_000}
    with EmbeddedBroker(settings=settings) as broker:
        for bootstrap in (kafka.bootstrap, broker.bootstrap):
            with RawClient(bootstrap) as client:
                client.call(
                    19, 5, topics=[{"name": "t", "num_partitions": 1, "replication_factor": 1}]
                )
                wait_until(partial(knows_the_topic, client), "the broker to know its topic")
        theirs, ours = script(kafka.bootstrap), script(broker.bootstrap)
    assert len(ours) == len(theirs)
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []
