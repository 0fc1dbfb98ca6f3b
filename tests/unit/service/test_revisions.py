"""Messages carry the revision of their state, on the scale of epochs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from faust_assigner.service.commands import Warm
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.admin_servicer import AdminServicer
from faust_assigner.service.server.auth import NoAuthentication
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.servicer import ConsumerServicer
from faust_assigner.service.values import load_handoff
from tests.support.assigning.consumers import Bench, eventually, virtually
from tests.unit.service.stories import store


@contextlib.asynccontextmanager
async def listening(node: AssignerNode, name: str) -> AsyncIterator[list[pb.AssignmentCommand]]:
    """Collect the messages to a consumer of the RPC."""
    told: list[pb.AssignmentCommand] = []
    request = pb.RegisterRequest(consumer_name=name, heartbeats=True, incarnation=f"i-{name}")

    async def listen() -> None:
        context: Any = None
        async for message in ConsumerServicer(Groups({"": node}), NoAuthentication()).Register(
            request, context
        ):
            told.append(message)

    task = asyncio.create_task(listen())
    try:
        await eventually(lambda: told, "the first message")
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def epochs(told: list[pb.AssignmentCommand]) -> list[tuple[int, int]]:
    """Return (revision, epoch) of every grant."""
    return [(one.revision, grant.epoch) for one in told for grant in one.assignment.grants]


def test_a_grant_is_told_under_a_revision_not_below_its_epoch() -> None:
    """A state at a later revision therefore includes the grant."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4})
            async with listening(node, "a") as told:
                await eventually(lambda: len(epochs(told)) == 4, "four grants")
                assert all(revision >= epoch > 0 for revision, epoch in epochs(told))
        await kept.close()

    virtually(story)


def test_revisions_never_fall_on_a_stream_and_rise_with_each_change() -> None:
    """Up to the revision of a pulse, no message is missing."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            async with listening(node, "a") as told:
                await eventually(lambda: len(epochs(told)) == 2, "two grants")
                await node.set_topic("t", 4)
                await eventually(lambda: len(epochs(told)) == 4, "four grants")
                await eventually(lambda: told[-1].HasField("pulse"), "a pulse")
                seen = [one.revision for one in told]
                assert seen == sorted(seen)
                assert seen[0] < max(epoch for _, epoch in epochs(told)) <= seen[-1]
        await kept.close()

    virtually(story)


def test_a_queued_message_keeps_the_revision_at_which_it_was_true() -> None:
    """To a slow reader, old messages must not look like the newest state."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            helper = await b.consumer(node, "a")
            await b.settles(1)
            stream = helper.stream
            assert stream is not None
            helper._task and helper._task.cancel()
            await node.set_topic("t", 2)
            await eventually(lambda: len(b.owners()) == 2, "both are owned")
            before = node.revision
            await node.set_topic("u", 1)
            await eventually(lambda: node.revision > before, "news")
            servicer = ConsumerServicer(Groups({"": node}), NoAuthentication())
            message = await anext(servicer._messages(node, stream, with_session=False))
            assert message.revision == stream.revision <= before, message
        await kept.close()

    virtually(story)


def test_revisions_of_two_instances_compare() -> None:
    """All instances count the store's writes, so an operator's and a consumer's revisions compare."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            one, two = await b.node({"t": 2}), await b.node()
            async with listening(one, "a") as told:
                await eventually(lambda: len(epochs(told)) == 2, "two grants")
                await eventually(lambda: two.revision == one.revision, "both are up to date")
                admin, context = AdminServicer(Groups({"": two}), NoAuthentication()), None
                states = [part async for part in admin.GetState(pb.GetStateRequest(), context)]
                assert states[0].revision >= told[-1].revision > 0
                plans = [part async for part in admin.Plan(pb.PlanRequest(), context)]
                assert [part.revision for part in plans] == [states[0].revision]
        await kept.close()

    virtually(story)


def test_an_answers_revision_is_the_first_with_the_answer() -> None:
    """A repeated answer has a revision with the change too; both are on the scale of epochs."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            servicer, context = ConsumerServicer(Groups({"": node}), NoAuthentication()), None
            await b.consumer(node, "a")
            await b.settles(2)
            late = await b.consumer(node, "b", warm_s=None)
            await eventually(lambda: late.of(Warm), "asked to warm")
            (warm,) = late.of(Warm)
            request = pb.PartitionReadyRequest(
                consumer_name="b",
                partition=pb.TopicPartition(topic=warm.at.topic, partition=warm.at.partition),
                handoff_id=warm.handoff_id,
            )
            before = node.revision
            first = (await servicer.PartitionReady(request, context)).revision
            kv = await kept.get(node.keys.handoff(warm.at))
            assert kv is not None
            assert first == node.view.base + kv.mod_revision > before > node.view.base > 0
            await b.settles(1, 1)
            after = (await servicer.PartitionReady(request, context)).revision
            kv = await kept.get(node.keys.assignment(warm.at))
            assert kv is not None
            assert after == node.view.base + kv.mod_revision > first
        await kept.close()

    virtually(story)


def test_every_answer_has_a_revision() -> None:
    """A caller can compare any two messages of the service, even of different instances."""
    for service in pb.DESCRIPTOR.services_by_name.values():
        for call in service.methods:
            assert "revision" in call.output_type.fields_by_name, call.full_name


def test_the_revision_of_a_changed_topic_is_that_of_its_write() -> None:
    """An operator's script can wait at any instance for a state with the change."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            admin, context = AdminServicer(Groups({"": node}), NoAuthentication()), None
            await b.consumer(node, "a")
            await b.settles(2)
            grown = await admin.SetTopic(pb.Topic(topic="t", partition_count=4), context)
            kv = await kept.get(node.keys.topic("t"))
            assert kv is not None
            assert grown.revision == node.view.base + kv.mod_revision > node.view.base > 0
            again = await admin.SetTopic(pb.Topic(topic="t", partition_count=4), context)
            assert again == grown
            gone = await admin.RemoveTopic(pb.RemoveTopicRequest(topic="t"), context)
            mark = await kept.get(node.keys.removed("t"))
            assert mark is not None
            assert gone.revision == node.view.base + mark.mod_revision > grown.revision
        await kept.close()

    virtually(story)


def test_the_revision_of_a_drain_has_the_drain() -> None:
    """A state older than the answer still shows the consumer as ready."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            admin, context = AdminServicer(Groups({"": node}), NoAuthentication()), None
            for name in "ab":
                await b.consumer(node, name)
            await b.settles(1, 1)
            before = node.revision
            answer = await admin.Drain(pb.DrainRequest(consumer_name="a"), context)
            assert answer.action == pb.WAIT_FOR_DRAIN
            assert before < answer.revision <= node.revision
            assert "a" in node.view.draining
        await kept.close()

    virtually(story)


def test_the_revision_of_a_progress_report_has_the_newest_stored_report() -> None:
    """A report that comes too early is not stored, and returns the revision of the previous report."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            servicer, context = ConsumerServicer(Groups({"": node}), NoAuthentication()), None
            await b.consumer(node, "a")
            await b.settles(2)
            late = await b.consumer(node, "b", warm_s=None)
            await eventually(lambda: late.of(Warm), "asked to warm")
            (warm,) = late.of(Warm)

            async def report(progress: float) -> tuple[int, int, float]:
                """Return the answer's revision, the stored revision, and the stored progress."""
                answer = await servicer.ReportProgress(
                    pb.ReportProgressRequest(
                        consumer_name="b",
                        partition=pb.TopicPartition(
                            topic=warm.at.topic, partition=warm.at.partition
                        ),
                        handoff_id=warm.handoff_id,
                        progress=progress,
                    ),
                    context,
                )
                kv = await kept.get(node.keys.handoff(warm.at))
                assert kv is not None
                stored = node.view.base + kv.mod_revision
                return answer.revision, stored, load_handoff(kv.value).progress

            first, stored, progress = await report(0.25)
            assert (first, progress) == (stored, 0.25)
            assert await report(0.5) == (first, first, 0.25)
            await asyncio.sleep(6.0)
            second, stored, progress = await report(0.75)
            assert (second, progress) == (stored, 0.75)
            assert second > first
        await kept.close()

    virtually(story)


def test_a_heartbeats_answer_has_the_revision_of_its_instance() -> None:
    """A consumer whose stream is far behind this revision can detect the lag."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            one, two = await b.node({"t": 2}), await b.node()
            async with listening(one, "a") as told:
                await eventually(lambda: len(epochs(told)) == 2, "two grants")
                servicer, context = ConsumerServicer(Groups({"": two}), NoAuthentication()), None
                for session, is_known in ((told[0].assignment.session_id, True), ("no", False)):
                    request = pb.HeartbeatRequest(
                        consumer_name="a", session_id=session, incarnation="i-a" if is_known else ""
                    )
                    answer = await servicer.Heartbeat(request, context)
                    assert answer.known is is_known
                    assert answer.revision == two.revision
                    assert answer.revision >= max(epoch for _, epoch in epochs(told))
        await kept.close()

    virtually(story)
