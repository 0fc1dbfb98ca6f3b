"""Third-party clients of the consumer group protocol on our broker; the slow half is on Kafka."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer

from tests.integration.broker.conftest import Scene
from tests.support.clients.raw_client import RawClient
from tests.support.coordination.librdkafka_members import Member, until


def test_members_join_one_by_one_and_leave(scene: Scene) -> None:
    """Six partitions: 6, 3+3, 2+2+2, 3+3; a new member gets only revoked partitions."""
    scene.cluster.create(scene.topic, 6, 10)
    one = scene.start("one")
    scene.await_shares([6], one)
    until(lambda: len(one.seen) == 60, "60 records")
    two = scene.start("two")
    scene.await_shares([3, 3], one, two)
    assert [move[1:] for move in scene.ledger.moves if move[0] == "two"] == [
        ("+", sorted(numbers(two)))
    ]
    three = scene.start("three")
    scene.await_shares([2, 2, 2], one, two, three)
    kept = two.owned | three.owned
    one.stop()
    scene.await_shares([3, 3], two, three)
    assert kept <= two.owned | three.owned
    described = scene.cluster.group(scene.group)
    assert (described.type.name, described.state.name) == ("CONSUMER", "STABLE")
    assert sorted(m.client_id for m in described.members) == ["three", "two"]


def numbers(member: Member) -> list[int]:
    """Return the numbers of the member's partitions."""
    return [number for _, number in member.owned]


def test_a_static_member_that_bounces_moves_nothing(scene: Scene) -> None:
    """The member leaves with -2, returns within its session, and keeps its partitions."""
    scene.cluster.create(scene.topic, 4)
    stays = scene.start("stays", **{"group.instance.id": "i-stays"})
    bounces = scene.start("bounces", **{"group.instance.id": "i-bounces"})
    scene.await_shares([2, 2], stays, bounces)
    had, moves = bounces.owned, len(scene.ledger.moves)
    bounces.stop()
    back = scene.start("back", **{"group.instance.id": "i-bounces"})
    scene.await_shares([2, 2], stays, back)
    assert back.owned == had
    assert [who for who, _, _ in scene.ledger.moves[moves:] if who == "stays"] == []


def test_a_pattern_takes_topics_as_they_come(scene: Scene) -> None:
    """The broker matches whole names; it finds a topic that is created later."""
    name = scene.topic
    scene.cluster.create(f"{name}-1", 2)
    scene.cluster.create(f"not-{name}-1", 2)
    one = scene.start("one", topics=[f"^{name}-.*"])
    scene.await_shares([2], one)
    scene.cluster.create(f"{name}-2", 3)
    scene.await_shares([5], one)
    assert {topic for topic, _ in one.owned} == {f"{name}-1", f"{name}-2"}


def test_a_member_that_was_put_out_comes_back(scene: Scene) -> None:
    """An administrator removes the member: it revokes, joins again and reads on from its commit."""
    scene.cluster.create(scene.topic, 2, 5)
    one = scene.start("one")
    until(lambda: len(one.seen) == 10, "10 records")
    assert one.commit() == ""
    with RawClient(scene.cluster.bootstrap) as admin:
        (shown,) = scene.cluster.group(scene.group).members
        member = {"member_id": shown.member_id}
        left = admin.call(13, 5, group_id=scene.group, members=[member])
        assert [int(m.error_code) for m in left.members] == [0]
    until(
        lambda: len(scene.ledger.moves) == 3 and len(one.owned) == 2,
        lambda: f"{scene.ledger.moves}",
    )
    assert scene.ledger.moves == [("one", "+", [0, 1]), ("one", "-", [0, 1]), ("one", "+", [0, 1])]
    scene.cluster.produce(scene.topic, 2, 1)
    until(lambda: len(one.seen) == 12, lambda: f"2 records more: {one.seen}")


@pytest.mark.slow
def test_a_live_group_is_upgraded_and_downgraded(scene: Scene) -> None:
    """Classic members are replaced one by one and back; the group's type follows, offsets stay.

    The test does not use cooperative-sticky: librdkafka's assignor sometimes puts user data into an
    assignment, and a real Kafka does not upgrade such a group.
    """
    scene.cluster.create(scene.topic, 6, 5)
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": "range",
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 500,
    }
    one, two = scene.start("one", **classic), scene.start("two", **classic)
    scene.await_shares([3, 3], one, two)
    assert scene.cluster.group(scene.group).type.name == "CLASSIC"
    until(lambda: len(one.seen) + len(two.seen) >= 30, "all records")
    new = scene.start("new")
    scene.await_shares([2, 2, 2], one, two, new)
    assert scene.cluster.group(scene.group).type.name == "CONSUMER"
    assert (one.commit(), two.commit()) == ("", "")
    one.stop()
    two.stop()
    scene.await_shares([6], new)
    old = scene.start("old", **classic)
    scene.await_shares([3, 3], new, old)
    new.stop()
    scene.await_shares([6], old)
    until(lambda: scene.cluster.group(scene.group).type.name == "CLASSIC", "a classic group again")
    scene.cluster.produce(scene.topic, 6, 1)
    until(lambda: len({s for s in old.seen if s[2] == 5}) == 6, lambda: f"new records: {old.seen}")


async def test_aiokafka_lives_in_one_group_with_librdkafka(scene: Scene) -> None:
    """A classic client and a client of the new protocol share the partitions."""
    import asyncio

    scene.cluster.create(scene.topic, 4)
    member = AIOKafkaConsumer(
        scene.topic,
        bootstrap_servers=scene.cluster.bootstrap,
        group_id=scene.group,
        session_timeout_ms=10_000,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
    )
    await member.start()
    try:
        async with asyncio.timeout(60):
            while len(member.assignment()) < 4:
                await asyncio.sleep(0.05)
            new = await asyncio.to_thread(scene.start, "new")
            while len(new.owned) < 2 or len(member.assignment()) > 2:
                await asyncio.sleep(0.05)
        assert {tp.partition for tp in member.assignment()} | set(numbers(new)) == {0, 1, 2, 3}
    finally:
        await member.stop()
        await asyncio.to_thread(scene.stack.close)
