"""The broker on the test's clock, with its faults, under librdkafka members of both protocols."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from faust_assigner.testing import log
from faust_assigner.testing.virtual_broker import VirtualBroker
from tests.integration.broker.conftest import Scene
from tests.support.clients.raw_client import RawClient
from tests.support.coordination.librdkafka_members import Cluster, until

SETTINGS = {
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.min.session.timeout.ms": 45_000,
}
CLASSIC = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 200,
}
HEARTBEAT = 68


@pytest.fixture
def broker() -> Iterator[VirtualBroker]:
    """A broker with five heartbeats per second, whose clock moves only with the test."""
    with VirtualBroker(SETTINGS) as virtual:
        yield virtual


@pytest.fixture
def pair(broker: VirtualBroker) -> Iterator[Scene]:
    """A topic of four partitions and a group without members."""
    with ExitStack() as stack:
        cluster = Cluster(broker.bootstrap)
        stack.callback(cluster.close)
        scene = Scene(cluster, stack)
        cluster.create(scene.topic, 4)
        yield scene


@pytest.mark.parametrize("config", [{}, CLASSIC], ids=["consumer", "classic"])
def test_a_killed_member_is_out_when_its_session_is(
    broker: VirtualBroker, pair: Scene, config: dict[str, Any]
) -> None:
    """44 s of silence keep the member, 46 s do not; its live peer stays."""
    one, two = pair.start("one", **config), pair.start("two", **config)
    pair.await_shares([2, 2], one, two)
    broker.kill("two")
    time.sleep(0.5)
    broker.advance(30_000)
    time.sleep(0.5)  # a real heartbeat of the living member
    broker.advance(14_000)
    assert set(broker.member_ids(pair.group)) == {"one", "two"}
    time.sleep(0.5)
    broker.advance(2_000)
    until(lambda: set(broker.member_ids(pair.group)) == {"one"}, "one member")
    until(lambda: len(one.owned) == 4, lambda: f"all four: {pair.ledger.moves}")


def test_a_stalled_member_goes_on_where_it_was(broker: VirtualBroker, pair: Scene) -> None:
    """Its heartbeats wait within the session; after it resumes, no partition has moved."""
    one, two = pair.start("one"), pair.start("two")
    pair.await_shares([2, 2], one, two)
    moves = len(pair.ledger.moves)
    broker.stall("two")
    time.sleep(0.5)
    broker.advance(20_000)
    broker.resume("two")
    time.sleep(0.5)
    broker.advance(40_000)  # the member has sent heartbeats since
    assert set(broker.member_ids(pair.group)) == {"one", "two"}
    assert pair.ledger.moves[moves:] == []


def test_an_expired_member_joins_again(broker: VirtualBroker, pair: Scene) -> None:
    """The member is fenced at its next heartbeat, revokes all and gets its share again."""
    one = pair.start("one")
    pair.await_shares([4], one)
    before = broker.group(pair.group)
    assert before is not None
    broker.expire(pair.group, "one")
    until(lambda: [sign for _, sign, _ in pair.ledger.moves] == ["+", "-", "+"], "out and in again")
    after = broker.group(pair.group)
    assert after is not None
    assert after.epoch > before.epoch


def test_a_lost_answer_costs_nothing(broker: VirtualBroker, pair: Scene) -> None:
    """The heartbeat with an assignment is answered again; partitions have one owner at the end."""
    one = pair.start("one")
    pair.await_shares([4], one)
    broker.lose_response("one", HEARTBEAT, times=2)
    until(lambda: broker.responses_lost == 2, "two lost answers")
    two = pair.start("two")
    pair.await_shares([2, 2], one, two)
    assert [(who, sign) for who, sign, _ in pair.ledger.moves].count(("one", "-")) == 1


def test_a_killed_client_is_cut_off_and_others_are_not(broker: VirtualBroker) -> None:
    """The broker selects the client by its client id."""
    broker.kill("raw")
    with RawClient(broker.bootstrap) as dead:
        dead.send(18, 0)
        assert dead.is_closed()
    Cluster(broker.bootstrap).create("still-served", 1)


def test_a_client_that_is_killed_during_its_request_gets_no_response(
    broker: VirtualBroker,
) -> None:
    """Earlier, a fetch that waited for records got them, and the killed client processed them."""
    log.create(broker.broker, "t", 1)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    with RawClient(broker.bootstrap) as dead:
        dead.send(
            1, 4, max_wait=timedelta(seconds=60), min_bytes=1, max_bytes=1_000,
            topics=[{"topic": "t", "partitions": [part]}],
        )  # fmt: skip
        until(lambda: broker.broker.call(lambda node: node.waiting_partitions) == 1, "the fetch")
        broker.kill("raw")
        log.append(broker.broker, "t", None, "v", 1.0, 0)
        assert dead.is_closed()
