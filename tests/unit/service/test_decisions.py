"""Small decisions of the service, each with a case for its opposite."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from aiokafka.structs import OffsetAndMetadata

from faust_assigner.service import values as codec
from faust_assigner.service.client import AssignerClient, Grant
from faust_assigner.service.client import TopicPartition as Spoken
from faust_assigner.service.client.messages import grants_of
from faust_assigner.service.client.offsets import left_at
from faust_assigner.service.commands import AbortWarm, Assignment, Owned, Pulse
from faust_assigner.service.errors import Replaced
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.instance_state import InstanceState
from faust_assigner.service.leading.catalogue import Catalogue
from faust_assigner.service.leading.rebalancer import Rebalancer
from faust_assigner.service.leading.record import Record
from faust_assigner.service.leading.targets import Targets, choose
from faust_assigner.service.leading.tidying import tidy
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import HEARTBEATS, Consumer, Ended, Status, TopicConfig
from faust_assigner.service.server.convert import messages_of
from faust_assigner.service.serving.callers import Callers
from faust_assigner.service.serving.registered import Registered, _check_incarnation
from faust_assigner.service.serving.registrar import fences
from faust_assigner.service.serving.registry import Stream
from faust_assigner.service.store.base import Delete, Event, KeyValue, Put
from faust_assigner.service.view import Change, View
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, SETTINGS, put, store, view_of

OTHER = TopicPartition("t", 1)
ANYTHING: Any = None


@pytest.mark.parametrize(
    ("registered", "is_refused"), [("one", True), ("~made", False), ("", False)]
)
def test_a_caller_without_an_incarnation_is_no_process_that_has_one(
    registered: str, is_refused: bool
) -> None:
    """Otherwise the caller would drain a foreign process."""
    consumer = Consumer(name="a", incarnation=registered)
    if is_refused:
        with pytest.raises(Replaced):
            _check_incarnation(consumer, "")
    else:
        _check_incarnation(consumer, "")


@pytest.mark.parametrize(("before_s", "count"), [(30.0, 1), (20.0, 0)])
def test_a_time_to_live_that_is_a_little_longer_is_waited_for(before_s: float, count: int) -> None:
    """If the later answer is lost, the process still relies on the previous registration."""

    async def story() -> None:
        kept = store()
        one = Consumer(name="a", incarnation="one", session="s", capabilities=(HEARTBEATS,))
        lease = (await kept.grant(before_s)).lease_id
        present = KeyValue(ALL.consumer("a"), codec.dump_consumer(one), 1, 1, 1, lease)
        new = await HeldLease.grant(kept, LoopClock(), 20.0)
        found = await fences(kept, ALL, present, one, replace(one, session="s2"), new)
        assert [write.key for write in found] == [ALL.fence("a", "one")] * count
        await kept.close()

    virtually(story)


def test_a_consumer_that_drains_no_more_is_not_marked_as_sent_away() -> None:
    """With the mark, it could be neither drained nor undrained any more."""

    async def story() -> None:
        kept = store()
        draining = Consumer(name="a", status=Status.DRAINING, by_operator=True)
        view = view_of(draining, topics={"t": 1}, owners={AT: "a"})
        await put(
            kept, ALL.consumer("a"), codec.dump_consumer(replace(draining, by_operator=False))
        )

        async def reached(revision: int) -> None:
            ready = replace(draining, status=Status.READY, by_operator=False)
            await put(kept, ALL.consumer("a"), codec.dump_consumer(ready))

        mirror: Any = SimpleNamespace(view=view, reached=reached)
        await Registered(kept, ALL, mirror).drain("a")
        kv = await kept.get(ALL.consumer("a"))
        assert kv is not None
        assert not codec.load_consumer(kv.value).dismissed
        await kept.close()

    virtually(story)


def test_a_consumer_keeps_its_own_partition_while_it_cools_down_for_it() -> None:
    """The consumer got the partition later, so a change would cost one more move."""
    view = view_of(
        Consumer(name="a"), Consumer(name="b"), topics={"t": 2}, owners={AT: "a", OTHER: "b"}
    )
    key = ALL.cooldown(AT, "a")
    view.apply(Event(key, 900, KeyValue(key, codec.dump_until(1.0), 900, 900)))
    assert choose(view, view.ready(), replicas=0).owner == {AT: "a", OTHER: "b"}


def test_a_stuck_consumer_is_overtaken_by_hand_offs_that_began_after_its_own() -> None:
    """A hand-off that is merely older and slow shows no stuck consumer."""
    settings = ServiceSettings(handoff_timeout_s=300.0)
    record = Record(settings)
    slow = replace(HANDOFF, new_owner="slow")
    stuck = replace(HANDOFF, at=OTHER, new_owner="stuck")
    view = view_of(
        *(Consumer(name=name) for name in ("old", "slow", "stuck")),
        topics={"t": 2},
        handoffs=[slow, stuck],
    )
    for at, now in ((AT, 0.0), (OTHER, 10.0)):
        record.on_changes(view, Change("handoffs", at, None, view.handoffs[at]), now)
    before, key = view.handoffs[AT], ALL.handoff(AT)
    ready = codec.dump_handoff(replace(slow, phase=Phase.READY))
    view.apply(Event(key, 90, KeyValue(key, ready, before.kv.create_revision, 90)))
    record.on_changes(view, Change("handoffs", AT, before, view.handoffs[AT]), 50.0)
    standing = record.standing(view, 60.0)
    assert (standing.stuck, standing.overtaken) == ({"stuck"}, frozenset())


@pytest.mark.parametrize(("waiting", "is_due"), [(1, True), (0, False)])
def test_the_end_of_a_hand_off_asks_for_a_plan_if_partitions_wait_for_its_place(
    waiting: int, is_due: bool
) -> None:
    """Otherwise each wave of hand-offs would wait for the next regular plan."""

    async def story() -> None:
        view = view_of(Consumer(name="old"), topics={"t": 1}, handoffs=[HANDOFF])
        mirror: Any = SimpleNamespace(view=view)
        rebalancer = Rebalancer(mirror, SETTINGS, LoopClock(), Metrics())
        rebalancer._plan_at, rebalancer._waiting = float("inf"), waiting
        rebalancer.on_changes([Change("handoffs", AT, view.handoffs[AT], None)])
        assert (rebalancer._plan_at < float("inf")) is is_due

    virtually(story)


@pytest.mark.parametrize(("in_kafka", "count"), [(2, 5), (7, 7)])
def test_a_topic_never_shrinks_to_its_count_in_kafka(in_kafka: int, count: int) -> None:
    """An operator may have configured more partitions, and their owners must keep them."""
    mirror: Any = SimpleNamespace(view=view_of(topics={"t": 5}))
    catalogue = Catalogue(ANYTHING, ALL, ANYTHING, ANYTHING, mirror, {}, None)
    _, [write] = catalogue._changes_for("t", in_kafka)
    assert isinstance(write, Put)
    assert codec.load_topic(write.value) == TopicConfig("t", count, True)


def test_a_topic_that_kafka_has_again_has_no_mark_of_its_deletion() -> None:
    """With the mark, the configuration could not restore the topic after a loss of the store."""
    view = View(ALL)
    view.apply(Event(ALL.removed("t"), 5, KeyValue(ALL.removed("t"), b"in Kafka", 5, 5)))
    mirror: Any = SimpleNamespace(view=view)
    _, writes = Catalogue(ANYTHING, ALL, ANYTHING, ANYTHING, mirror, {}, None)._changes_for("t", 3)
    assert Delete(ALL.removed("t")) in writes


@pytest.mark.parametrize("is_there", [True, False])
def test_the_mark_of_a_leave_stays_while_its_consumer_is_registered(is_there: bool) -> None:
    """The consumer still owns, or is about to own, partitions that no consumer can take."""
    consumers = [Consumer(name="a"), *([Consumer(name="gone")] if is_there else [])]
    view = view_of(*consumers, topics={"t": 1})
    key = ALL.departed("gone")
    view.apply(Event(key, 900, KeyValue(key, b"dismissed", 900, 900)))
    written = [write for bundle in tidy(view, Targets({}, {})) for write in bundle.writes]
    assert (Delete(key) in written) is not is_there


@pytest.mark.parametrize("vacant_s", [1.0, 20.0])
def test_a_group_without_a_leader_for_a_leaders_time_to_live_has_none(vacant_s: float) -> None:
    """The consumers' time to live is longer and does not count."""
    now = [100.0]
    clock: Any = SimpleNamespace(monotonic=lambda: now[0])
    mirror: Any = SimpleNamespace(view=View(ALL), heard_at=100.0)
    condition = InstanceState(mirror, clock, ServiceSettings())
    condition.on_changes([Change("leaders", "leader", None, None)])
    now[0] += vacant_s
    assert condition.has_leader is (vacant_s < 15.0)


@pytest.mark.parametrize("is_registering", [True, False])
async def test_a_leave_without_a_registration_ends_at_once(is_registering: bool) -> None:
    """A registration in flight may still succeed."""
    client = AssignerClient("nowhere:1", "c")
    if is_registering:
        client._streams._stream = object()

    async def retried(method: str, request: Any) -> Any:
        return pb.DeregisterResponse(action=pb.SHUTDOWN_NOW)

    client._calls.retried = retried  # type: ignore[method-assign]
    assert not await client.leave()
    assert client._inbox._queue.empty() is is_registering
    client._streams._stream = None
    for job in client._beside:
        job.cancel()
    await asyncio.gather(*client._beside, return_exceptions=True)


async def test_a_grant_under_which_the_next_owner_has_committed_is_not_worked_on() -> None:
    """The next owner has processed the records after the offset already."""

    class Coordinator:
        async def fetch_committed_offsets(self, partitions: Any) -> Any:
            return {partitions[0]: OffsetAndMetadata(30, "epoch=6")}

    consumer: Any = SimpleNamespace(_coordinator=Coordinator())
    with pytest.raises(RuntimeError, match="epoch 6 has committed, this is 5"):
        await left_at(consumer, Grant(Spoken("t", 0), 5, 40))


@pytest.mark.parametrize(("left_s", "goes_on"), [(31.0, True), (29.0, False)])
async def test_a_stream_is_left_when_half_of_the_time_has_no_answer(
    left_s: float, goes_on: bool
) -> None:
    """A second instance may answer; one lost heartbeat is not enough."""
    client = AssignerClient("nowhere:1", "c", clock=lambda: 100.0 - left_s)
    client._session.begin(pb.AssignmentUpdate(session_id="s", lives_ms=60_000), until=100.0)

    async def once(method: str, request: Any, *, timeout: float) -> Any:
        none = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, none, none)

    client._calls.once = once  # type: ignore[method-assign]
    assert await client._heart._renew("s", 1.0) is goes_on


def _stream(*, beats: bool = False) -> Stream:
    """A stream that has sent its snapshot."""
    stream = Stream(
        "a",
        "s",
        limit=3,
        beats=beats,
        lives=ANYTHING,
        snapshot=ANYTHING,
        overflowed=ANYTHING,
        closed=ANYTHING,
    )
    stream._anew = False
    return stream


async def test_the_commands_of_a_registration_before_are_not_sent_any_more() -> None:
    """The process has a new stream, and a late grant would undo its messages."""
    stream = _stream()
    stream.offer(AbortWarm(AT, 1))
    stream.end(Ended.AGAIN)
    assert [command async for command in stream] == []


def test_a_pulse_is_not_queued_behind_commands() -> None:
    """Earlier, pulses filled a slow consumer's queue, and it got its assignment repeatedly."""
    stream = _stream(beats=True)
    for _ in range(5):
        stream.pulse()
    assert [command for _, command in stream._queue] == [Pulse()]


def test_the_process_before_the_last_one_is_refused_as_replaced() -> None:
    """Earlier, only the last predecessor was refused, and an older one worked until its fence."""
    process = Consumer(name="a", incarnation="three", replaced=("two", "one"))
    mirror: Any = SimpleNamespace(view=view_of(process, topics={"t": 1}))
    with pytest.raises(Replaced):
        Callers(ANYTHING, ALL, mirror).check("a", "", "one")


def test_the_parts_of_a_change_do_not_wait_for_each_other() -> None:
    """Only snapshots are atomic: a client waits for the last part if ``more`` is set."""
    ats = [TopicPartition("t" * 249, number) for number in range(5_000)]
    messages = list(messages_of(Assignment(tuple(Owned(at, 1) for at in ats))))
    assert len(messages) > 1
    assert not any(message.assignment.more for message in messages)


async def test_a_registration_with_less_than_half_of_its_time_left_is_renewed_at_once() -> None:
    """The first heartbeat would come after the end of the session."""
    client = AssignerClient("nowhere:1", "c", clock=lambda: 11.0)

    async def once(method: str, request: Any, *, timeout: float) -> Any:
        return pb.HeartbeatResponse(known=True, lives_ms=10_000)

    client._calls.once = once  # type: ignore[method-assign]
    said = pb.AssignmentUpdate(session_id="s", lives_ms=10_000)
    assert await client._streams.registration_end(said, 5.0) == 21.0
    assert await client._streams.registration_end(said, 6.0) == 16.0


def test_an_owner_that_stopped_at_the_first_record_is_followed_there() -> None:
    """Offset 0 must not be lost: without it the next owner begins at the group's last commit."""
    at = pb.TopicPartition(topic="t", partition=0)
    grants = [pb.Grant(partition=at, epoch=5, start_offset=0)]
    [grant] = grants_of(pb.AssignmentUpdate(assigned=[at], grants=grants))
    assert grant.start_offset == 0


def test_the_mark_of_a_dismissed_consumer_is_written_once() -> None:
    """Earlier, each plan wrote the mark, and each write caused the next plan."""
    draining = Consumer(name="a", status=Status.DRAINING)
    view = view_of(draining, topics={"t": 1}, owners={AT: "a"})
    assert len(list(tidy(view, Targets({}, {})))) == 1
    key = ALL.departed("a")
    view.apply(Event(key, 900, KeyValue(key, b"dismissed", 900, 900)))
    assert list(tidy(view, Targets({}, {}))) == []
