"""Stories of consumers' wishes, of Kafka's topics, and of callers that the service refuses."""

from __future__ import annotations

import hashlib
from pathlib import Path

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.auth import TokenAuthenticator
from tests.unit.service.whole.stage import Stage, Story, place

#: The bytes of an unknown field with a number far above those of the proto.
_LONG = "x" * 300


class Kafka:
    """The partition counts of Kafka; an entry may be an error."""

    def __init__(self, stage: Stage, **counts: object) -> None:
        self.counts = counts
        self._stage = stage

    async def count(self, topic: str) -> int | None:
        """Answer a question of the service."""
        found = self.counts.get(topic)
        self._stage.note(f"kafka: {topic} has {found!r}")
        if isinstance(found, Exception):
            raise found
        assert found is None or isinstance(found, int)
        return found


async def kafka(stage: Stage) -> None:
    """Topics grow, disappear and come back in Kafka; some were never there."""
    broker = Kafka(stage, t=2, k=1)
    n = await stage.instance("n", topics={"own": 1}, count=broker.count).start()
    a = stage.member("a", n).begin(topics=["t", "own"])
    await stage.passes(2.0)
    stage.act("an unknown topic; a topic that Kafka cannot count")
    stage.member("b", n).begin(topic="none")
    broker.counts["slow"] = TimeoutError("no answer")
    stage.member("b", n).begin(topic="slow")
    stage.member("b", n).begin(topics=["slow", "none"], returns=True)
    await stage.passes(3.0)
    stage.act("t grows; the number of k is unreadable")
    broker.counts |= {"t": 3, "k": OSError("reset")}
    await stage.passes(5.0)
    stage.act("t is smaller in Kafka than here")
    broker.counts["t"] = 1
    await stage.passes(5.0)
    stage.act("t is deleted, is missed once, and is deleted again")
    broker.counts["t"] = None
    await stage.passes(4.0)
    broker.counts["t"] = 3
    await stage.passes(4.0)
    broker.counts["t"] = None
    await stage.passes(9.0)
    stage.act("t comes back, smaller")
    broker.counts["t"] = 1
    await stage.passes(5.0)
    stage.act("an operator removes t, which Kafka has")
    await stage.call(n, "RemoveTopic", topic="t")
    await stage.passes(6.0)
    await a.end()
    stage.member("a", n).begin(topics=["t"], returns=True)
    stage.member("c", n).begin(topics=["t"])
    await stage.passes(2.0)
    await stage.call(n, "RemoveTopic", topic="own")
    await stage.passes(6.0)
    await stage.call(n, "GetState")


async def terms(stage: Stage) -> None:
    """A topic is missed once in each of two terms of one leader, which counts as no deletion."""
    broker = Kafka(stage, t=2)
    n = await stage.instance("n", count=broker.count).start()
    stage.member("a", n, beat_s=None).begin(topic="t")
    await stage.passes(1.0)
    broker.counts["t"] = None
    n.store.fails["keep_alive"] = [("before", StoreUnavailable("the store is silent"))] * 30
    await stage.passes(5.0)
    n.store.fails.clear()
    await stage.passes(6.0)
    broker.counts["t"] = 2
    await stage.passes(5.0)
    await stage.call(n, "GetState")


async def replicas(stage: Stage) -> None:
    """Replicas, racks, capacities, weights and co-partitioned topics."""
    n = await stage.instance("n", topics={"t": 3, "u": 3}, replicas=1, max_handoffs=4).start()
    weights = [pb.TopicWeights(topic="t", partitions=[0, 2], weights=[3.0, 0.5])]
    together = [pb.TopicGroup(topics=["t", "u"])]
    a = stage.member("a", n).begin(
        keeps_replicas=True, rack="r1", weights_by_topic=weights, copartitioned=together
    )
    await stage.passes(2.0)
    stage.act("b keeps replicas, and has warm ones")
    b = stage.member("b", n).begin(
        keeps_replicas=True,
        rack="r2",
        copartitioned=together,
        replicas=[pb.TopicPartition(topic="t", partition=2)],
        replicas_by_topic=[pb.TopicPartitions(topic="u", partitions=[2, 2])],
    )
    await stage.passes(4.0)
    stage.act("c keeps none; two small consumers share a rack")
    stage.member("c", n).begin(capacity=0.5, rack="r2", copartitioned=together)
    await stage.passes(4.0)
    await b.call(
        "ReportReplicas",
        replicas=[pb.TopicPartition(topic="t", partition=1)],
        replicas_by_topic=[pb.TopicPartitions(topic="u", partitions=[1, 0])],
    )
    await b.call("ReportReplicas", replicas=[pb.TopicPartition(topic="a b", partition=1)])
    await stage.passes(3.0)
    stage.act("a dies; b has its replicas")
    await a.end()
    await stage.passes(13.0)
    await stage.call(n, "GetState")


async def limited(stage: Stage) -> None:
    """Many partitions, few hand-offs at a time; a consumer that never gets ready is stuck."""
    n = await stage.instance(
        "n",
        topics={"t": 8},
        max_handoffs=4,
        max_handoffs_per_consumer=2,
        handoff_timeout_s=3.0,
        cooldown_s=2.0,
    ).start()
    stage.member("a", n).begin()
    await stage.passes(2.0)
    b = stage.member("b", n, warm_s=None).begin()
    await stage.passes(12.0)
    stage.act("c is able; a drains")
    stage.member("c", n).begin()
    await stage.passes(3.0)
    await stage.call(n, "Drain", consumer_name="a")
    await stage.passes(8.0)
    stage.act("b is able again")
    b.warm_s = 0.1
    await stage.passes(12.0)
    await stage.call(n, "GetState")


async def overflowing(stage: Stage) -> None:
    """A consumer reads nothing for a while: its stream begins again with a full assignment."""
    n = await stage.instance("n", topics={"t": 6}, channel=1).start()
    a = stage.member("a", n).begin()
    stage.member("b", n).begin()
    await stage.passes(3.0)
    stage.act("many changes at once")
    for number in range(3):
        await stage.call(n, "SetTopic", topic=f"x{number}", partition_count=1)
        await stage.call(n, "Move", consumer_name="b", **place("t", number))
    await stage.passes(4.0)
    await a.call("Deregister")
    await stage.passes(4.0)


async def refused(stage: Stage) -> None:
    """Registrations with wrong fields, and unknown groups."""
    n = await stage.instance("n", topics={"t": 2}).start()
    at = pb.TopicPartition(topic="t", partition=0)
    for said in (
        {"consumer_name": ""},
        {"consumer_name": "a/b"},
        {"consumer_name": _LONG},
        {"consumer_name": "a", "incarnation": "~x"},
        {"consumer_name": "a", "incarnation": "x y"},
        {"consumer_name": "a", "incarnation": _LONG},
        {"consumer_name": "a", "endpoint": "a b"},
        {"consumer_name": "a", "endpoint": _LONG * 8},
        {"consumer_name": "a", "topic": "a b"},
        {"consumer_name": "a", "topic": "unknown"},
        {"consumer_name": "a", "capacity": -1.0},
        {"consumer_name": "a", "capacity": float("nan")},
        {"consumer_name": "a", "group": "other"},
        {"consumer_name": "a", "weights": [pb.PartitionWeight(partition=at, weight=-1.0)]},
        {
            "consumer_name": "a",
            "weights_by_topic": [pb.TopicWeights(topic="t", partitions=[1], weights=[])],
        },
        {"consumer_name": "a", "former": [pb.TopicPartitions(topic="t", partitions=[2**31])]},
        {"consumer_name": "a", "replicas": [pb.TopicPartition(topic="", partition=1)]},
        {"consumer_name": "a", "copartitioned": [pb.TopicGroup(topics=["t"])]},
        {"consumer_name": "a", "rack": _LONG},
    ):
        task = stage.watch(n, "Register", **said)  # type: ignore[arg-type]
        await stage.passes(0.1)
        task.cancel()
        await stage.passes(0.1)
    await stage.call(n, "Pause", reason=_LONG * 10)
    await stage.call(n, "Plan", extra=[pb.RegisterRequest(consumer_name="a", capacity=-1.0)])
    await stage.call(n, "GetState", group="other")
    await stage.call(n, "WatchAssignments", topics=["a b"])
    await stage.call(n, "WatchAssignments", least_revision=2**62)


async def identified(stage: Stage) -> None:
    """Callers with tokens: wrong ones, other names, an administrator."""
    tokens = [
        (name, hashlib.sha256(said.encode()).digest())
        for name, said in (("a", "of-a"), ("b*", "of-b"), ("boss", "of-boss"), ("g/c", "of-c"))
    ]
    by = TokenAuthenticator(tokens, admins=["boss"], path=Path("tokens"))
    n = await stage.instance("n", topics={"t": 2}, authenticator=by).start()
    for token, name in (
        ("", "a"), ("nonsense", "a"), ("of-a", "b"), ("of-b", "b7"), ("of-b", "c"),
        ("of-c", "c"), ("of-boss", "a"), ("of-a", "a"),
    ):  # fmt: skip
        stage.act(f"{token or 'no token'} as {name}")
        task = stage.watch(n, "Register", token=token, consumer_name=name, incarnation="i")
        await stage.passes(0.2)
        await stage.call(n, "ReportReplicas", token=token, consumer_name=name, incarnation="i")
        task.cancel()
        await stage.passes(0.1)
    for token in ("", "of-a", "of-c", "of-boss"):
        stage.act(f"an operator with {token or 'no token'}")
        await stage.call(n, "Pause", token=token, reason="x")
        await stage.call(n, "GetState", token=token)
        task = stage.watch(n, "WatchAssignments", token=token)
        await stage.passes(0.2)
        task.cancel()


STORIES: dict[str, Story] = {
    "kafka": kafka,
    "terms": terms,
    "replicas": replicas,
    "limited": limited,
    "overflowing": overflowing,
    "refused": refused,
    "identified": identified,
}
