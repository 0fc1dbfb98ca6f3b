"""Stories of a group: joins, hand-offs that succeed or fail, and operators' orders."""

from __future__ import annotations

from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.unit.service.whole.stage import Stage, Story, handoff, place

TOPICS = {"t": 4, "u": 2}


async def joined(stage: Stage) -> None:
    """Consumers join one after another, and leave; callers watch."""
    n = await stage.instance("n", topics=TOPICS).start()
    stage.watch(n, "WatchAssignments", topics=["t"])
    await stage.passes(1.0)
    stage.act("a joins")
    a = stage.member("a", n).begin(endpoint="http://a:1")
    await stage.passes(2.0)
    stage.act("b joins and is slow")
    b = stage.member("b", n, warm_s=1.0).begin(rack="r1", capacity=2.0)
    await stage.passes(1.0)
    [move, *_] = sorted(n.node.view.handoffs)
    await b.call(
        "ReportProgress",
        partition=pb.TopicPartition(topic=move.topic, partition=move.partition),
        progress=0.25,
    )
    await stage.call(n, "GetState")
    await stage.passes(3.0)
    stage.act("c joins without heartbeats, for one topic")
    stage.member("c", n, beat_s=None).begin(topic="u")
    await stage.passes(3.0)
    await stage.call(n, "GetState")
    stage.act("a leaves")
    await a.call("Deregister")
    await stage.passes(3.0)
    await a.call("Deregister")
    stage.act("b dies")
    await b.end()
    await stage.passes(12.0)


async def lenient(stage: Stage) -> None:
    """Without the strict mode the new owner begins before the old owner ends."""
    n = await stage.instance("n", topics={"t": 3}, strict=False, max_handoffs=8).start()
    stage.member("a", n).begin()
    await stage.passes(2.0)
    stage.act("b joins; a releases")
    b = stage.member("b", n).begin()
    await stage.passes(3.0)
    stage.act("c joins; the old owners release never")
    for member in stage.members:
        member.release_s = None
    stage.member("c", n).begin()
    await stage.passes(9.0)
    stage.act("b dies while it owns a partition")
    await b.end()
    await stage.passes(12.0)


async def failing(stage: Stage) -> None:
    """New owners give up or are late; an operator aborts."""
    n = await stage.instance("n", topics={"t": 4}).start()
    stage.member("a", n).begin()
    await stage.passes(2.0)
    stage.act("b cannot warm")
    b = stage.member("b", n, fails=True).begin()
    await stage.passes(4.0)
    stage.act("b is able again after the cool-down")
    b.fails = False
    await stage.passes(14.0)
    stage.act("c never gets ready")
    stage.member("c", n, warm_s=None).begin()
    await stage.passes(3.0)
    [at, *_] = sorted(n.node.view.handoffs)
    await stage.call(n, "AbortHandoff", **place(at.topic, at.partition))
    await stage.passes(30.0)
    await stage.call(n, "GetState")


async def expelled(stage: Stage) -> None:
    """Old owners cannot release, or do not release in time."""
    n = await stage.instance("n", topics={"t": 4}).start()
    a = stage.member("a", n).begin()
    await stage.passes(2.0)
    stage.act("a cannot release")
    a.fails = True
    b = stage.member("b", n).begin()
    await stage.passes(3.0)
    stage.act("the expelled process registers again; then its successor")
    await a.end()
    a2 = stage.member("a", n).begin(returns=True)
    await stage.passes(1.0)
    await a2.call("Heartbeat", session_id=a.session)
    await stage.passes(8.0)
    stage.act("a's successor; b does not release")
    b.release_s = None
    stage.member("a", n, "a2").begin()
    await stage.passes(22.0)
    await stage.call(n, "GetState")


async def stale(stage: Stage) -> None:
    """Answers for a wrong hand-off, partition, phase, process or consumer."""
    n = await stage.instance("n", topics={"t": 2}).start()
    a = stage.member("a", n, release_s=None).begin()
    await stage.passes(2.0)
    b = stage.member("b", n, warm_s=None).begin()
    await stage.passes(1.0)
    [at] = sorted(n.node.view.handoffs)
    right = n.node.view.handoffs[at].kv.create_revision
    this, other = handoff("t", at.partition, right), handoff("t", 1 - at.partition)
    stage.act("while it warms")
    await b.say("PartitionReady", handoff("t", at.partition, right + 1))
    await b.say("PartitionReady", other)
    await b.say("PartitionReady", handoff("nothing", 0))
    await b.say("PartitionReady", handoff("", 0))
    await a.say("PartitionReady", this)
    await a.say("PartitionReleased", this, final_offset=5)
    await a.say("ReleaseFailed", this, reason="early", epoch=7)
    await b.call("PartitionReady", incarnation="b0", **vars(this))
    await b.say("ReportProgress", this, progress=1.5)
    await b.say("ReportProgress", this, progress=0.5)
    await b.say("ReportProgress", this, progress=0.4)
    await a.say("ReportProgress", this, progress=0.4)
    await stage.call(n, "PartitionReady", consumer_name="nobody", **vars(this))
    stage.act("ready, twice")
    await b.say("PartitionReady", this)
    await b.say("PartitionReady", this)
    await b.say("WarmFailed", handoff("t", at.partition, right - 1), reason="old")
    await stage.passes(0.5)
    stage.act("released, twice, with another offset")
    await a.say("PartitionReleased", this, final_offset=2**63)
    await a.say("PartitionReleased", this, final_offset=5)
    await a.say("PartitionReleased", this, final_offset=6)
    await stage.passes(0.5)
    await a.say("PartitionReleased", this, final_offset=7)
    await b.say("PartitionReady", this)
    await b.say("WarmFailed", this, reason="late")
    await stage.call(n, "AbortHandoff", **vars(this))
    await stage.call(n, "GetState")


async def operated(stage: Stage) -> None:
    """An operator's orders, each also with wrong names."""
    n = await stage.instance("n", topics={"t": 4}).start()
    stage.watch(n, "WatchState")
    await stage.passes(1.0)
    stage.member("a", n).begin()
    stage.member("b", n).begin()
    await stage.passes(2.0)
    stage.act("a pause; c joins meanwhile")
    await stage.call(n, "Pause", reason="a deploy")
    await stage.call(n, "Pause", reason="another reason")
    stage.member("c", n).begin()
    await stage.passes(2.0)
    await stage.call(n, "Plan")
    await stage.call(n, "Move", consumer_name="c", **place("t", 0))
    await stage.passes(2.0)
    await stage.call(n, "Resume")
    await stage.call(n, "Resume")
    await stage.passes(2.0)
    stage.act("pins")
    await stage.call(n, "Pin", consumer_name="a", **place("t", 3))
    await stage.call(n, "Pin", consumer_name="nobody", **place("t", 3))
    await stage.call(n, "Pin", consumer_name="a", **place("t", 9))
    await stage.call(n, "Pin", consumer_name="a", **place("", 0))
    await stage.call(n, "Move", consumer_name="nobody", **place("t", 1))
    await stage.passes(2.0)
    await stage.call(n, "GetState")
    await stage.call(n, "Unpin", **place("t", 3))
    await stage.call(n, "Unpin", **place("t", 3))
    await stage.passes(2.0)
    stage.act("drains")
    await stage.call(n, "Drain", consumer_name="b")
    await stage.call(n, "Drain", consumer_name="nobody")
    await stage.call(n, "Undrain", consumer_name="b")
    await stage.call(n, "Undrain", consumer_name="nobody")
    await stage.passes(2.0)
    await stage.call(n, "Drain", consumer_name="b")
    await stage.passes(3.0)
    await stage.call(n, "Undrain", consumer_name="b")
    stage.act("plans")
    await stage.call(n, "Plan", without=["a"])
    await stage.call(n, "Plan", without=["nobody"], extra=[pb.RegisterRequest(consumer_name="d")])
    stage.act("topics")
    await stage.call(n, "SetTopic", topic="v", partition_count=2)
    await stage.passes(1.5)
    await stage.call(n, "SetTopic", topic="v", partition_count=1)
    await stage.call(n, "SetTopic", topic="v", partition_count=0)
    await stage.call(n, "SetTopic", topic="a b", partition_count=1)
    await stage.passes(1.5)
    await stage.call(n, "RemoveTopic", topic="t")
    await stage.call(n, "RemoveTopic", topic="t")
    await stage.passes(6.0)
    await stage.call(n, "GetState")
    await stage.call(n, "SetTopic", topic="t", partition_count=1)
    await stage.passes(1.5)


STORIES: dict[str, Story] = {
    "joined": joined,
    "lenient": lenient,
    "failing": failing,
    "expelled": expelled,
    "stale": stale,
    "operated": operated,
}
