"""Stories of second lives: restarts of consumers and instances, elections, outages, a faulty store."""

from __future__ import annotations

from faust_assigner.service.digest import Held
from faust_assigner.service.errors import QuotaExceeded, StoreUnavailable
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.unit.service.whole.recorded import SharedStore
from tests.unit.service.whole.stage import Stage, Story

SILENT = StoreUnavailable("the store is silent")


async def restarted(stage: Stage) -> None:
    """A consumer's process ends in several ways, and registers again in several ways."""
    n = await stage.instance("n", topics={"t": 3}).start()
    a = stage.member("a", n).begin()
    stage.member("b", n).begin()
    await stage.passes(2.0)
    stage.act("a's connection breaks; the same process registers again")
    await a.end()
    await stage.passes(1.0)
    a = stage.member("a", n).begin(returns=True)
    await stage.passes(2.0)
    stage.act("the same process with a second stream at the same time")
    again = stage.member("a", n).begin(returns=True, endpoint="a:2")
    await stage.passes(2.0)
    stage.act("a new process while the old one lives; the old one goes on")
    new = stage.member("a", n, "a2").begin()
    await stage.passes(2.0)
    stage.member("a", n).begin(returns=True)
    await again.call("Heartbeat", session_id=again.session)
    await again.call("Heartbeat", session_id="")
    await stage.passes(9.0)
    stage.act("its heartbeats end, its stream stays")
    new.beat_s = None
    await new.end()
    stage.member("a", n, "a2", beat_s=None).begin(heartbeats=True, returns=True)
    await stage.passes(12.0)
    stage.act("without an incarnation, with and without heartbeats")
    for beats in (True, False):
        one = stage.member("c", n, " ", beat_s=None)
        one.incarnation = ""
        one.begin(heartbeats=beats)
        await stage.passes(2.0)
    await stage.call(n, "GetState")


async def confused(stage: Stage) -> None:
    """Consumers hold wrong partitions; heartbeats for wrong names and sessions."""
    n = await stage.instance("n", topics={"t": 2}).start()
    m = await stage.instance("m").start()
    a = stage.member("a", n).begin()
    await stage.passes(2.0)
    stage.act("a forgets a partition")
    a.owned.pop(("t", 1))
    await stage.passes(9.0)
    stage.act("a has a wrong epoch, and its heartbeats go to the other instance")
    a.owned["t", 0] -= 1
    a.at = m
    await stage.passes(9.0)
    stage.act("a goes on to report wrong partitions")
    a.digest_of = lambda _: Held(99, 1)
    await stage.passes(24.0)
    a.digest_of = None
    stage.act("wrong names")
    await a.call("Heartbeat", session_id="other", incarnation="a0")
    await a.call("Heartbeat", session_id="other")
    await a.call("Heartbeat", session_id=a.session, incarnation="a0")
    await a.call("Heartbeat", session_id=a.session, consumer_name="nobody")
    await a.call("Heartbeat", session_id=a.session, consumer_name="")
    await a.call("Deregister", incarnation="a0")
    await a.call("Deregister", consumer_name="nobody")
    await a.call("ReportReplicas", incarnation="a0")
    await a.call("Deregister")
    await stage.passes(2.0)


async def elected(stage: Stage) -> None:
    """The leader resigns, loses its lease or is cut off, in the middle of a hand-off."""
    one = await stage.instance("one", topics={"t": 4}).start()
    two = await stage.instance("two", topics={"t": 5, "u": 1}).start()
    stage.member("a", two).begin()
    await stage.passes(2.0)
    stage.act("the leader stops while a hand-off warms")
    b = stage.member("b", two, warm_s=3.0).begin()
    await stage.passes(1.0)
    stage.member("c", one, beat_s=None).begin()
    await stage.passes(0.5)
    await one.node.stop()
    await stage.passes(6.0)
    stage.act("a third instance; the leader's renewals fail")
    three = await stage.instance("three").start()
    two.store.fails["keep_alive"] = [("before", SILENT)] * 40
    await stage.passes(9.0)
    two.store.fails.clear()
    await stage.passes(6.0)
    stage.act("the leader is cut off from the store, and comes back")
    three.store.cut = SILENT
    await stage.call(three, "GetState")
    await b.end()
    await stage.passes(14.0)
    await stage.call(three, "WatchAssignments")
    await stage.call(three, "Pause", reason="x")
    three.store.cut = None
    await stage.passes(7.0)
    await stage.call(three, "GetState")


async def outage(stage: Stage) -> None:
    """All consumers are gone for long; they return one after another."""
    n = await stage.instance("n", topics={"t": 4}).start()
    a = stage.member("a", n).begin()
    b = stage.member("b", n).begin()
    await stage.passes(3.0)
    await a.end()
    await b.end()
    await stage.passes(10.0)
    stage.act("c is the first; b returns in time; a does not")
    stage.member("c", n).begin()
    await stage.passes(2.0)
    stage.member("b", n, "b2").begin()
    await stage.passes(9.0)
    stage.act("all leave, one by one, and one returns")
    for member in stage.members[2:]:
        await member.call("Deregister")
        await stage.passes(2.0)
    await stage.passes(1.0)
    stage.member("b", n, "b3").begin()
    await stage.passes(3.0)
    await stage.call(n, "GetState")


async def forgotten(stage: Stage) -> None:
    """The store has lost everything; consumers report what they had."""
    n = await stage.instance("n", topics={"t": 4}).start()
    ahead = int((stage.clock.wall() + 100) * 1000)
    former = [pb.TopicPartitions(topic="t", partitions=[0, 1, 9])]
    stage.member("a", n).begin(epoch=ahead, former=former, returns=True)
    await stage.passes(2.0)
    former = [pb.TopicPartitions(topic="t", partitions=[1, 2])]
    stage.member("b", n).begin(epoch=ahead + 10**9, former=former, returns=True)
    await stage.passes(8.0)
    stage.act("an epoch far ahead of the clock")
    stage.member("c", n).begin(epoch=ahead + 10**12)
    await stage.passes(3.0)
    stage.act("an epoch that is just the epoch of the registration")
    stage.member("d", n).begin(epoch=n.node.revision + 1)
    await stage.passes(2.0)
    await stage.call(n, "GetState")


async def restored(stage: Stage) -> None:
    """The store goes back to a snapshot; then it is compacted, and its watch breaks."""
    n = await stage.instance("n", topics={"t": 2}).start()
    stage.member("a", n).begin()
    await stage.passes(2.0)
    kept, revision = stage.store.keys(), stage.store.revision
    stage.member("b", n).begin()
    await stage.passes(4.0)
    stage.store.restore(revision, kept)
    await stage.passes(9.0)
    stage.act("a registration is the write that the lost history had, too")
    kept = stage.store.keys()
    await stage.call(n, "Pause", reason="lost")
    stage.store.restore(stage.store.revision - 1, kept)
    stage.member("c", n).begin()
    await stage.passes(2.0)
    stage.act("the history is compacted while the watch is broken")
    n.store.fails["watch"] = [("before", SILENT)]
    await stage.call(n, "Pause", reason="x")
    await stage.store.compact(stage.store.revision)
    await stage.passes(3.0)
    await stage.call(n, "Resume")
    stage.act("values that no release can read")
    await stage.store.txn([], [_raw("consumers/x", "[]"), _raw("handoffs/t/0", "{}")])
    await stage.store.txn([], [_raw("config/topics/z", "{"), _raw("nonsense", "1")])
    await stage.passes(3.0)
    await stage.call(n, "GetState")


def _raw(key: str, value: str) -> object:
    from faust_assigner.service.store.base import Put

    return Put(f"/g/{key}", value.encode())


async def faulty(stage: Stage) -> None:
    """The store fails before or after a write, or is full."""
    n = await stage.instance("n", topics={"t": 2}).start()
    await stage.passes(1.0)
    stage.act("a registration fails before its write, and after it")
    n.store.fails["txn"] = [("before", SILENT)]
    a = stage.member("a", n, beat_s=None).begin(heartbeats=True)
    await stage.passes(0.1)
    n.store.fails["txn"] = [None, ("after", SILENT)]
    a.begin(heartbeats=True)
    await stage.passes(0.1)
    n.store.fails["grant"] = [("before", SILENT)]
    stage.member("b", n).begin()
    await stage.passes(0.3)
    a = stage.member("a", n).begin(returns=True)
    stage.act("the leader's write fails before, and after; then the store is full")
    n.store.fails["txn"] = [None, ("before", SILENT), ("after", SILENT)]
    await stage.passes(3.0)
    n.store.fails["txn"] = [None, ("before", QuotaExceeded("the store is full"))]
    stage.member("c", n).begin()
    await stage.passes(6.0)
    stage.act("heartbeats and answers fail")
    n.store.fails["keep_alive"] = [("before", SILENT), ("after", SILENT), ("before", SILENT)]
    await stage.passes(5.0)
    n.store.fails.clear()
    n.store.fails["txn"] = [("before", SILENT)]
    n.store.fails["get"] = [("before", SILENT)]
    await a.call("Deregister")
    await a.call("ReportReplicas", replicas=[pb.TopicPartition(topic="t")])
    await stage.passes(3.0)
    stage.act("the election fails after its write")
    n.store.fails.clear()
    m = stage.instance("m")
    m.store.fails["list"] = [("before", SILENT)]
    try:
        await m.start()
    except StoreUnavailable as error:
        stage.note(f"m does not start: {error}")
    await n.node.stop()
    m.store.fails["txn"] = [("after", SILENT)]
    await m.start()
    await stage.passes(4.0)


async def contested(stage: Stage) -> None:
    """Another instance changes a key just before a write that depends on it."""
    n = await stage.instance("n", topics={"t": 3, "u": 1}, cooldown_s=3.0).start()
    n.store.contested = ["/g/consumers/a"]
    a = stage.member("a", n).begin()
    await stage.passes(2.5)
    n.store.contested = ["/g/assignments/t/2", "/g/handoffs/u/0"]
    b = stage.member("b", n).begin()
    await stage.passes(1.0)
    stage.act("answers and orders come too late")
    for number in range(3):
        n.store.contested.append(f"/g/handoffs/t/{number}")
    n.store.contested += ["/g/handoffs/u/0", "/g/consumers/b", "/g/config/topics/u"]
    await b.call("ReportReplicas", replicas=[pb.TopicPartition(topic="t", partition=2)])
    await stage.call(n, "SetTopic", topic="u", partition_count=2)
    await stage.passes(3.0)
    n.store.contested = ["/g/pins/t/0", "/g/assigner/leader"]
    await stage.call(n, "Pin", consumer_name="b", partition=pb.TopicPartition(topic="t"))
    await stage.passes(5.0)
    n.store.contested = ["/g/consumers/a"]
    await a.call("Deregister")
    await stage.passes(4.0)
    await stage.call(n, "GetState")


async def emptied(stage: Stage) -> None:
    """A second life over the same keys, and one over an empty store in memory."""
    n = await stage.instance("n", topics={"t": 2}).start()
    a = stage.member("a", n).begin()
    await stage.passes(2.0)
    await a.call("ReportReplicas", replicas=[pb.TopicPartition(topic="t", partition=1)])
    await stage.call(n, "Pin", consumer_name="a", partition=pb.TopicPartition(topic="t"))
    await n.node.stop()
    stage.act("the second life")
    m = await stage.instance("m", topics={"t": 3}).start()
    await a.end()
    a = stage.member("a", m).begin(returns=True)
    await stage.passes(3.0)
    await stage.call(m, "GetState")
    stage.act("an empty store")
    store = SharedStore(stage.note, clock=stage.clock, first_revision=500)
    e = await stage.instance("e", topics={"t": 2}, store=store).start()
    stage.member("a", e).begin(returns=True, epoch=max(a.owned.values(), default=0))
    await stage.passes(9.0)
    await stage.call(e, "GetState")
    await e.node.stop()
    await store.close()


STORIES: dict[str, Story] = {
    "restarted": restarted,
    "confused": confused,
    "elected": elected,
    "outage": outage,
    "forgotten": forgotten,
    "restored": restored,
    "faulty": faulty,
    "contested": contested,
    "emptied": emptied,
}
