"""Rounds of our coordinator with real clients: kept partitions flow, revoked ones are committed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition, errors
from aiokafka.errors import (
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from aiokafka.structs import OffsetAndMetadata

from faust_assigner.app.membership.beside_round import _commit_once
from faust_assigner.app.membership.topics import change_topics
from faust_assigner.broker import EmbeddedBroker
from tests.support.coordination.cooperative_members import TOPIC, Member, Plan
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.timeout(150)

#: The session of a member that forgets its member id: a round waits for the former member that long.
FORGOTTEN_SOON = {"session_timeout_ms": 3_000}


@contextlib.asynccontextmanager
async def group(
    plan: Plan, *names: str, **settings: Any
) -> AsyncIterator[tuple[EmbeddedBroker, list[Member]]]:
    """A broker with one topic of four partitions, and members that own their share of ``plan``."""
    async with EmbeddedBroker() as broker:
        broker.node.catalogue.create(TOPIC, 4, {})
        members = [await Member(broker, name, plan, **settings).start() for name in names]
        try:
            await until(
                lambda: all(m.owned == plan.wanted[m.name] for m in members), "the first round"
            )
            yield broker, members
        finally:
            for member in members:
                await member.stop()


@contextlib.asynccontextmanager
async def load(broker: EmbeddedBroker) -> AsyncIterator[None]:
    """Send a record to each partition every 10 ms."""
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()

    async def send() -> None:
        while True:
            for partition in range(4):
                await producer.send(TOPIC, b"x", partition=partition)
            await asyncio.sleep(0.01)

    sending = asyncio.create_task(send())
    try:
        yield
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await producer.stop()


async def test_what_a_member_keeps_flows_through_both_rounds() -> None:
    """A join takes one partition; the member reads the others without a gap or a repeat."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (broker, members), load(broker):
        (a,) = members
        plan.wanted = {"a": {0, 1, 2}, "b": {3}}
        told = len(a.told)
        a.rounds.clear()
        await until(lambda: len(a.offsets(0)) > 20, "records")
        members.append(b := await Member(broker, "b", plan).start())
        await until(lambda: b.owned == {3} and len(b.read) > 5, "the hand-over")
        seen = len(a.read)
        await until(lambda: len(a.read) > seen + 50, "more records")
        assert a.told[told:] == [
            ("let go", frozenset({3})),
            ("gained", frozenset()),
            ("gained", frozenset()),
        ]
        for partition in (0, 1, 2):
            offsets = a.offsets(partition)
            assert offsets == list(range(len(offsets))), "a break or a repeat"
        assert [what for what, _ in a.rounds] == ["joins", "joins"]
        assert a.rounds[0][1] == told, "a round is announced before anything goes"
        assert [sorted(told) for told in plan.rounds[-2:]] == [["a", "b"], ["a", "b"]]
        assert ("assigned", frozenset({3})) in b.told


async def test_what_is_assigned_flows_and_is_committed_while_the_topics_change() -> None:
    """The next round has the new topics; aiokafka takes the assignment away until then."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (broker, (a,)), load(broker):
        broker.node.catalogue.create("later", 1, {})
        rounds, told = len(plan.rounds), len(a.told)
        assert await change_topics(a.consumer, [TOPIC, "later"])
        assert a.owned == {0, 1, 2, 3}
        assert await a.commit(1, 3)
        await until(lambda: len(a.told) > told, "the round")
        assert await a.commit(1, 4)
        assert a.told[told:] == [("gained", frozenset())]
        assert len(plan.rounds) == rounds + 1
        assert plan.topics[-1] == {"a": ["later", TOPIC]}
        await until(lambda: len(a.offsets(0)) > 20, "records")
        assert a.offsets(0) == list(range(len(a.offsets(0)))), "a break or a repeat"


async def test_topics_that_change_during_a_round_come_in_the_next_one() -> None:
    """A member without an assignment subscribes anew, as aiokafka does."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (_, (a,)):
        member, rounds = a.coordinator.membership, len(plan.rounds)
        member.round = asyncio.get_running_loop().create_future()
        changed = asyncio.create_task(change_topics(a.consumer, [TOPIC, "later"]))
        await asyncio.sleep(0.05)
        assert (changed.done(), a.consumer.subscription()) == (False, {TOPIC})
        member.end_round()
        assert await changed
        await until(lambda: len(plan.rounds) > rounds, "the round")
        assert plan.topics[-1] == {"a": ["later", TOPIC]}
        for name in ("gave_up", "lost"):
            setattr(member, name, True)
            assert not await change_topics(a.consumer, [TOPIC])
            setattr(member, name, False)
        assert not await change_topics(SimpleNamespace(_coordinator=None), [TOPIC])


async def test_the_newcomer_gets_nothing_before_the_owner_has_let_go() -> None:
    """The newcomer waits as long as the owner takes to revoke."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (broker, members):
        (a,) = members
        a.may_let_go.clear()
        plan.wanted = {"a": {0, 1}, "b": {2, 3}}
        members.append(b := await Member(broker, "b", plan).start())
        await until(a.letting_go.is_set, "the owner to be told")
        await asyncio.sleep(0.3)
        assert not b.owned
        assert a.owned == {0, 1, 2, 3}, "still assigned, or nothing could be committed"
        a.may_let_go.set()
        await until(lambda: b.owned == {2, 3}, "the hand-over")
        assert a.owned == {0, 1}


async def test_what_stays_under_another_transactional_id_is_let_go_and_taken_on_again() -> None:
    """The member does so in one round in which no other member revokes a partition."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (_, (a,)):
        told, plan.torn = len(a.told), {1}
        a.coordinator.request_rejoin()
        await until(lambda: len(a.told) >= told + 2, "the round")
        assert a.told[told:] == [("let go", frozenset({1})), ("gained", frozenset({1}))]
        assert a.owned == {0, 1, 2, 3}


async def test_another_transactional_id_begins_after_every_member_has_let_go() -> None:
    """An earlier start would fence the producer of the member that still commits under that id."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (broker, members):
        (a,) = members
        told = len(a.told)
        plan.wanted, plan.torn = {"a": {0, 1, 2}, "b": {3}}, {1}
        members.append(b := await Member(broker, "b", plan).start())
        await until(lambda: b.owned == {3} and len(a.told) >= told + 3, "the hand-over")
        assert a.told[told:] == [
            ("let go", frozenset({1, 3})),
            ("gained", frozenset()),
            ("gained", frozenset({1})),
        ]
        assert a.roles[-2:] == [{0, 2}, {0, 1, 2}], "tables of what is not assigned yet"
        assert a.owned == {0, 1, 2}


async def test_what_is_let_go_is_committed_first() -> None:
    """The callback commits with the generation of the round that revokes the partition."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (broker, members):
        (a,) = members
        a.commit_first = True
        plan.wanted = {"a": {0, 1}, "b": {2, 3}}
        members.append(b := await Member(broker, "b", plan).start())
        await until(lambda: b.owned == {2, 3}, "the hand-over")
        assert await b.consumer.committed(TopicPartition(TOPIC, 2)) == 7
        assert ("let go", frozenset({2, 3})) in a.told


async def test_a_commit_that_meets_a_round_is_sent_again_after_it() -> None:
    """aiokafka would leave the group; our commit waits for SyncGroup and keeps all partitions."""
    plan = Plan({"a": {0, 1}, "b": {2, 3}})
    async with group(plan, "a", "b") as (_, (a, b)):
        leader, other = (a, b) if a.coordinator._group_subscription else (b, a)
        perform, may_answer = leader.coordinator._perform_assignment, asyncio.Event()

        async def slowly(response: Any) -> Any:
            await may_answer.wait()
            return await perform(response)

        leader.coordinator._perform_assignment = slowly
        told = len(other.told)
        generation = other.coordinator.generation
        for member in (a, b):
            member.coordinator.request_rejoin()
        await until(lambda: other.coordinator.generation > generation, "JoinGroup to be answered")
        partition = min(other.owned)
        commit = asyncio.create_task(other.commit(partition, 11))
        await asyncio.sleep(0.3)
        assert not commit.done(), "the broker takes no commit between JoinGroup and SyncGroup"
        may_answer.set()
        assert await commit
        assert await other.consumer.committed(TopicPartition(TOPIC, partition)) == 11
        assert not other.coordinator.membership.lost
        assert not [what for what, _ in other.told[told:] if what in ("given up", "assigned")]


def has_sent(coordinator: Any) -> bool:
    """Return whether a commit has not got its answer yet."""
    return bool(coordinator.membership.committing.locked())


async def test_a_commit_of_what_went_in_the_round_is_left_out() -> None:
    """The next owner commits that partition; the rest of the commit is sent again."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (_, (a,)):
        coordinator, sent = a.coordinator, list[set[int]]()
        assignment = coordinator.membership.own()
        whole, real = assignment._topic_partitions, coordinator._do_commit_offsets

        async def refused_once(own: Any, offsets: Any) -> None:
            sent.append({tp.partition for tp in offsets})
            if len(sent) == 1:
                raise IllegalGenerationError("g")
            await real(own, offsets)

        coordinator._do_commit_offsets = refused_once
        coordinator.membership.round = asyncio.get_running_loop().create_future()
        commit = asyncio.create_task(
            coordinator.commit_offsets(
                assignment, {TopicPartition(TOPIC, p): OffsetAndMetadata(5, "") for p in (0, 1)}
            )
        )
        await until(lambda: bool(sent) and not has_sent(coordinator), "the commit to be refused")
        assignment._topic_partitions = frozenset({TopicPartition(TOPIC, 0)})
        coordinator.membership.end_round()
        await commit
        assignment._topic_partitions = whole
        assert sent == [{0, 1}, {0}]


@pytest.mark.slow
@pytest.mark.parametrize("in_round", [True, False])
async def test_only_a_commit_that_is_lost_is_said(
    in_round: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """aiokafka logs an error for each commit refused during a round; ours sends it again."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", **FORGOTTEN_SOON) as (_, (a,)):
        coordinator, refused, send = a.coordinator, list[bool](), a.coordinator._send_req

        async def refuses_once(request: Any) -> Any:
            if isinstance(request, OffsetCommitRequest) and not refused:
                refused.append(True)
                return SimpleNamespace(topics=[(TOPIC, [(0, IllegalGenerationError.errno)])])
            return await send(request)

        coordinator._send_req = refuses_once
        if in_round:
            coordinator.membership.round = asyncio.get_running_loop().create_future()
        committing = asyncio.create_task(a.commit(0, 5))
        await until(lambda: bool(refused) and not has_sent(coordinator), "the commit to be refused")
        coordinator.membership.end_round()
        assert await committing == in_round
        assert "will rejoin" not in caplog.text
        assert caplog.text.count("so the commit is dropped") == (not in_round)


@pytest.mark.slow
async def test_a_refused_commit_of_an_old_generation_loses_no_membership() -> None:
    """In a round and after it, the refusal does not concern the current generation."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", **FORGOTTEN_SOON) as (_, (a,)):
        coordinator, member = a.coordinator, a.coordinator.membership
        who, refusals = coordinator.member_id, asyncio.Queue[str]()

        async def refused(own: Any, offsets: Any) -> None:
            if await refusals.get() == "in a round":
                coordinator.request_rejoin()
            coordinator.reset_generation()

        coordinator._do_commit_offsets = refused

        async def commit(refusal: str) -> asyncio.Task[None]:
            own = coordinator.membership.own()
            task = asyncio.create_task(_commit_once(coordinator, coordinator.membership, own, {}))
            await asyncio.sleep(0.01)
            refusals.put_nowait(refusal)
            return task

        member.round = asyncio.get_running_loop().create_future()
        await (await commit("in a round"))
        coordinator.membership.end_round()
        old = await commit("")
        coordinator.generation += 1
        await old
        assert (coordinator.member_id, member.lost) == (who, False)
        assert not coordinator._rejoin_needed_fut.done()
        await (await commit(""))
        assert member.lost


@pytest.mark.slow
@pytest.mark.parametrize("error", [RebalanceInProgressError, UnknownMemberIdError])
async def test_a_round_that_fails_beside_a_commit_under_way_is_made_again(
    error: type[KafkaError],
) -> None:
    """The next round follows at once, not after the session; its error is not the commit's."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", **FORGOTTEN_SOON) as (_, (a,)):
        coordinator, refused, may_end = a.coordinator, list[bool](), asyncio.Event()
        send, commit = coordinator._send_req, coordinator._do_commit_offsets

        async def refuses_once(request: Any) -> Any:
            answer = await send(request)
            if isinstance(request, SyncGroupRequest) and not refused:
                refused.append(True)
                return SimpleNamespace(error_code=error.errno, member_assignment=b"")
            return answer

        async def late(own: Any, offsets: Any) -> None:
            await may_end.wait()
            await commit(own, offsets)

        coordinator._send_req, coordinator._do_commit_offsets = refuses_once, late
        committing = asyncio.create_task(a.commit(0, 5))
        await asyncio.sleep(0.05)
        generation = coordinator.generation
        coordinator.request_rejoin()
        await until(lambda: coordinator.generation >= generation + 2, "the next round")
        assert "stand still" not in [what for what, _ in a.told]
        may_end.set()
        await committing


async def test_a_lost_membership_gives_everything_up_and_commits_nothing() -> None:
    """The member gives up its partitions eagerly, as in aiokafka, and claims none of them."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", **FORGOTTEN_SOON) as (_, (a,)):
        told = len(a.told)
        a.coordinator.reset_generation()
        assert not await a.commit(0, 3)
        await until(lambda: ("assigned", frozenset({0, 1, 2, 3})) in a.told[told:], "to join again")
        assert a.told[told][0] == "given up"
        assert ("gives up", told) in a.rounds, "a round under way ends before all of it goes"
        assert plan.rounds[-1] == {"a": []}, "what is not held any more is claimed by nobody"
        assert await a.commit(0, 3)


@pytest.mark.slow
async def test_a_membership_that_is_lost_while_the_coordinator_is_looked_for_commits_nothing() -> (
    None
):
    """The group accepts a commit without a generation once the group is empty."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", **FORGOTTEN_SOON) as (_, (a,)):
        coordinator, sent = a.coordinator, list[Any]()
        look, commit = coordinator.ensure_coordinator_known, coordinator._do_commit_offsets

        async def finds_late() -> None:
            coordinator.ensure_coordinator_known = look
            coordinator.reset_generation()

        async def commits(own: Any, offsets: Any) -> None:
            sent.append(coordinator.generation)
            await commit(own, offsets)

        coordinator.ensure_coordinator_known, coordinator._do_commit_offsets = finds_late, commits
        assert not await a.commit(0, 3)
        assert sent == []


async def test_a_coordinator_silent_for_a_session_stops_the_flow() -> None:
    """The group may have expelled a member whose heartbeats get no answer."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", session_timeout_ms=1_500) as (_, (a,)):
        real, silent = a.coordinator._client.send, asyncio.Event()

        async def send(node: Any, request: Any, **more: Any) -> Any:
            if more and not silent.is_set():
                await silent.wait()
            return await real(node, request, **more)

        told = len(a.told)
        a.coordinator._client.send = send
        await until(
            lambda: ("stand still", frozenset({0, 1, 2, 3})) in a.told[told:], "the flow to stop"
        )
        assert not await a.commit(0, 3)
        silent.set()
        await until(lambda: ("assigned", frozenset({0, 1, 2, 3})) in a.told[told:], "to come back")
        # On a busy machine the flow may stop again.
        whats = [what for what, _ in a.told[told:]][:3]
        assert whats == ["stand still", "given up", "assigned"]
        while not await a.commit(0, 3):
            await until(a.fence.is_sure, "the group's answer")


@pytest.mark.slow
async def test_kept_partitions_flow_while_a_round_waits_longer_than_a_session() -> None:
    """While a slow owner holds up JoinGroup, the others read on and commit."""
    plan = Plan({"a": {0, 1}, "b": {2, 3}})
    session_s = 4.0
    times = {"session_timeout_ms": 4_000, "rebalance_timeout_ms": 60_000}
    async with group(plan, "a", "b", **times) as (broker, members), load(broker):
        a, b = members
        plan.wanted = {"a": {0, 1}, "b": {2}, "c": {3}}
        b.may_let_go.clear()
        told, generation = len(a.told), a.coordinator.generation
        members.append(c := await Member(broker, "c", plan, **times).start())
        await until(b.letting_go.is_set, "b to be asked")
        await until(lambda: len(a.told) > told, "a to have the first answer")
        await until(lambda: a.coordinator.membership.round is not None, "a to wait for JoinGroup")
        began = time.monotonic()
        while time.monotonic() - began < session_s + 0.5:
            at = a.offsets(0)[-1]
            assert await asyncio.wait_for(a.commit(0, at), PATIENCE_S), "a commit of what is kept"
            await until(lambda at=at: a.offsets(0)[-1] > at, "a record")  # type: ignore[misc]
            await asyncio.sleep(0.05)
            assert a.coordinator.membership.round is not None, "the round waits for b"
        assert await broker_offset(a, 0) == at
        b.may_let_go.set()
        await until(lambda: c.owned == {3} and len(c.read) > 5, "the hand-over")
        assert a.coordinator.generation == generation + 2, "nobody was expelled meanwhile"
        assert {what for what, _ in a.told[told:]} <= {"gained"}
        for partition in (0, 1):
            offsets = a.offsets(partition)
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


async def broker_offset(member: Member, partition: int) -> int:
    """Return the offset that the group has committed."""
    committed: int = await member.consumer.committed(TopicPartition(TOPIC, partition))
    return committed


@pytest.mark.parametrize("answers", [errors.UnknownMemberIdError, errors.IllegalGenerationError])
async def test_a_heartbeat_of_a_stranger_keeps_nothing_flowing(answers: type[KafkaError]) -> None:
    """The answer of JoinGroup is lost, the group continues without the member: streams stop."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", session_timeout_ms=600) as (_, (a,)):
        real, told, over = a.coordinator._client.send, len(a.told), asyncio.Event()

        async def send(node: Any, request: Any, **more: Any) -> Any:
            if isinstance(request, JoinGroupRequest):
                await over.wait()
            if isinstance(request, HeartbeatRequest) and a.coordinator.membership.round is not None:
                return SimpleNamespace(error_code=answers.errno)
            return await real(node, request, **more)

        a.coordinator._client.send = send
        a.coordinator.request_rejoin()
        await until(lambda: [what for what, _ in a.told[told:]] == ["stand still"], "the stop")
        over.set()
        a.coordinator._client.send = real
        await until(lambda: a.told[-1][0] == "assigned", "to come back")


async def test_heartbeats_beside_a_round_look_for_a_coordinator_that_is_not_known() -> None:
    """Their connection breaks while JoinGroup waits on another one; the coordinator is alive."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (_, (a,)):
        real, told, over = a.coordinator._client.send, len(a.told), asyncio.Event()

        async def send(node: Any, request: Any, **more: Any) -> Any:
            if isinstance(request, JoinGroupRequest):
                await over.wait()
            return await real(node, request, **more)

        a.coordinator._client.send = send
        a.coordinator.request_rejoin()
        await until(lambda: a.coordinator.membership.round is not None, "the round")
        await asyncio.sleep(0.2)
        a.coordinator.coordinator_dead()
        died = time.monotonic()
        try:
            await until(lambda: a.fence.silent_s() < time.monotonic() - died, "the next heartbeat")
            assert (a.told[told:], a.fence.is_sure()) == ([], True)
        finally:
            over.set()
        await until(lambda: a.coordinator.membership.round is None, "the end of the round")


async def test_who_stood_still_for_a_moment_reads_again_what_was_passed_over() -> None:
    """A JoinGroup takes almost a session; the streams then skip records until the next answer."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (_, (a,)):
        told = len(a.told)
        a.fence._heard_at -= 100.0
        assert a.coordinator.membership.must_skip_records()
        a.fence.note_renewal(time.monotonic())
        assert a.coordinator.membership.must_skip_records(), (
            "until what was passed over is read again"
        )
        assert not await a.commit(0, 3)
        await until(
            lambda: ("assigned", frozenset({0, 1, 2, 3})) in a.told[told:], "to begin again"
        )
        assert [what for what, _ in a.told[told:]] == ["stand still", "given up", "assigned"]
        assert not a.coordinator.membership.must_skip_records()


async def test_only_heartbeats_renew_a_fence_that_a_freeze_has_closed() -> None:
    """A coordinator also answers OffsetFetch from members that it has removed."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", heartbeat_interval_ms=2_000) as (_, (a,)):
        assert (a.coordinator.membership.is_overdue(), a.fence.is_sure()) == (False, True)
        # On a slow machine the watching task would give all partitions up before the answer.
        a.coordinator.membership.watching.cancel()
        a.fence._heard_at -= 60.0
        await a.coordinator.fetch_committed_offsets([TopicPartition(TOPIC, 0)])
        assert (a.coordinator.membership.is_overdue(), a.fence.is_sure()) == (True, False)
        assert await a.coordinator._do_heartbeat()
        assert (a.coordinator.membership.is_overdue(), a.fence.is_sure()) == (False, True)


async def test_each_round_renews_the_fence() -> None:
    """Rounds that follow each other faster than heartbeats leave no time for a heartbeat."""
    plan = Plan({"a": {0, 1, 2, 3}})
    slow = {"session_timeout_ms": 120_000, "heartbeat_interval_ms": 110_000}
    async with group(plan, "a", **slow) as (_, (a,)):
        a.fence._heard_at -= 100.0
        generation = a.coordinator.generation
        a.coordinator.request_rejoin()
        await until(lambda: a.coordinator.generation > generation, "the round")
        # The generation comes with JoinGroup's answer; SyncGroup's answer may come later.
        await until(lambda: a.fence.silent_s() < 100.0, "the round's last answer")


async def test_a_fetch_in_flight_for_a_partition_that_went_ends_nothing() -> None:
    """The response meets a state without a position, and the fetcher continues."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (broker, members), load(broker):
        (a,) = members
        for wanted in ({0, 1}, {0, 1, 2, 3}, {3}, {0, 1, 2, 3}):
            plan.wanted = {"a": wanted}
            a.coordinator.request_rejoin()
            await until(lambda wanted=wanted: a.owned == wanted, "the round")  # type: ignore[misc]
            seen = len(a.read)
            await until(lambda seen=seen: len(a.read) > seen + 20, "records")  # type: ignore[misc]
        assert not a.consumer._fetcher._fetch_task.done()


async def test_a_partition_that_goes_while_its_offset_is_asked_for_holds_up_nobody() -> None:
    """Callers that wait for its committed offset get an answer; else its node stays in flight."""
    plan = Plan({"a": {0, 1}})
    async with group(plan, "a") as (broker, members), load(broker):
        (a,) = members
        real, asked, may_answer = (
            a.coordinator._do_fetch_commit_offsets,
            asyncio.Event(),
            asyncio.Event(),
        )

        async def late(tps: Any) -> Any:
            asked.set()
            await may_answer.wait()
            return await real(tps)

        a.coordinator._do_fetch_commit_offsets = late
        plan.wanted = {"a": {0, 1, 2}}
        a.coordinator.request_rejoin()
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        plan.wanted = {"a": {0, 1}}
        a.coordinator.request_rejoin()
        await until(
            lambda: a.owned == {0, 1} and ("let go", frozenset({2})) in a.told, "the second round"
        )
        seen = len(a.offsets(0))
        await until(lambda: len(a.offsets(0)) > seen + 20, "records of what is kept")
        may_answer.set()


async def test_two_rounds_without_a_step_in_between_do_not_end_the_coordination() -> None:
    """A heartbeat task cancelled before its first step cancels the task that waits for it."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (_, (a,)):
        for _ in range(5):
            generation = a.coordinator.generation
            a.coordinator.request_rejoin()
            await until(lambda g=generation: a.coordinator.generation > g, "a round")  # type: ignore[misc]
        await a.coordinator._stop_heartbeat_task()
        a.coordinator._start_heartbeat_task()
        await a.coordinator._stop_heartbeat_task()
        a.coordinator._start_heartbeat_task()
        assert not a.coordinator._coordination_task.done()


async def test_a_live_partition_does_not_wait_for_idle_ones() -> None:
    """Otherwise the broker holds the one fetch in flight for a long time without the live partition."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a", fetch_max_wait_ms=35_000) as (broker, (a,)):
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        try:
            for _ in range(40):
                await producer.send_and_wait(TOPIC, b"x", partition=0)
                await asyncio.sleep(0.03)
        finally:
            await producer.stop()
        await until(lambda: len(a.offsets(0)) == 40, "all records")
        times = [at for at, p, _ in a.read if p == 0]
        assert sum(after - before > 30.0 for before, after in pairwise(times)) == 0


async def test_a_member_that_offers_only_faust_makes_the_round_eager_for_the_next_time() -> None:
    """This round still revokes only moved partitions; from the next round on all are given up."""
    plan = Plan({"a": {0, 1, 2, 3}})
    async with group(plan, "a") as (broker, members):
        (a,) = members
        assert a.assignor.stops_nobody
        plan.wanted = {"a": {0, 1}, "b": {2, 3}}
        b = Member(broker, "b", plan)
        await b.consumer.start()  # without a take-over, as with stock or with the setting off
        b.consumer.subscribe([TOPIC], listener=b)
        b.reading = asyncio.create_task(b._read())
        members.append(b)
        await until(lambda: ("assigned", frozenset({0, 1})) in a.told, "the second round")
        assert a.coordinator.membership.chosen == "faust"
        assert not a.assignor.stops_nobody
        assert [what for what, _ in a.told[-4:] if what != "gained"] == [
            "let go",
            "given up",
            "assigned",
        ]
        assert ("let go", frozenset({2, 3})) in a.told
        await until(lambda: b.owned == {2, 3}, "the hand-over")
