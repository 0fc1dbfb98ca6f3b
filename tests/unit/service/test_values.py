"""The JSON values of keys: the first assigner's fields, and unreadable values."""

from __future__ import annotations

import json

import pytest

from faust_assigner.service import values
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.records import Assigned, Consumer, Leader, Status, TopicConfig
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View

AT = TopicPartition("shop.orders", 3)
ALL = Keys("/kafka-assigner/shop/")


def test_documents_have_the_first_assigners_fields() -> None:
    """Enums are strings, times are whole seconds, and empty fields of ours are left out."""
    consumer = Consumer(name="c", registered_at=17.9)
    assert json.loads(values.dump_consumer(consumer)) == {
        "consumer_name": "c",
        "status": "Ready",
        "registered_at": 17,
        "session": "",
    }
    assert json.loads(values.dump_assigned(Assigned(AT, "c"))) == {
        "topic": "shop.orders",
        "partition": 3,
        "owner": "c",
        "status": "Active",
    }
    assert json.loads(values.dump_handoff(Handoff(AT, "a", "b", Phase.WARMING, 17.9))) == {
        "topic": "shop.orders",
        "partition": 3,
        "old_owner": "a",
        "new_owner": "b",
        "phase": "Warming",
        "started_at": 17,
    }
    assert json.loads(values.dump_topic(TopicConfig("t", 4))) == {
        "topic": "t",
        "partition_count": 4,
    }
    assert json.loads(values.dump_leader(Leader("n", 9))) == {"holder": "n", "lease_id": 9}


def test_documents_come_back_as_they_were() -> None:
    """All of our own fields are included."""
    consumer = Consumer(
        name="c",
        status=Status.DRAINING,
        registered_at=17.0,
        topics=("t",),
        capacity=2.0,
        rack="r",
        weights={AT.topic: {AT.partition: 1.5}},
        capabilities=("replicas",),
        co_partitioned=(("a", "b"),),
        holds={"t": (1, 2)},
        identity="i",
        session="s",
    )
    assert values.load_consumer(values.dump_consumer(consumer)) == consumer
    handoff = Handoff(
        AT,
        "a",
        "b",
        Phase.READY,
        17.0,
        strict=True,
        released=True,
        offset=0,
        failed="x",
        progress=0.5,
    )
    assert values.load_handoff(values.dump_handoff(handoff)) == handoff
    assert values.load_assigned(values.dump_assigned(Assigned(AT, "c", offset=0)), 8) == Assigned(
        AT, "c", 8, 0
    )


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"topic":"t","partition":"x"}',
        b"\xff",
        b'{"topic":"other","partition":3,"owner":"c","status":"Active"}',
    ],
)
def test_garbage_in_the_store_is_left_aside_and_counted(value: bytes) -> None:
    """The key counts as missing, but its revision is known, so it can be overwritten."""
    view = View(ALL)
    key = ALL.assignment(AT)
    view.apply(Event(key, 5, KeyValue(key, value, 5, 5)))
    assert (view.assignments, len(view.unreadable)) == ({}, 1)
    assert view.same(key).expected == 5


@pytest.mark.parametrize("capacity", ["0", "-0.5", "-1", "NaN", "Infinity", "-Infinity"])
def test_a_capacity_that_divides_nothing_is_1(capacity: str) -> None:
    """Foreign consumers may write any capacity, and loads are divided by it."""
    document = values.dump_consumer(Consumer(name="c", capacity=7.25))
    assert b"7.25" in document
    assert values.load_consumer(document).capacity == 7.25
    assert values.load_consumer(document.replace(b"7.25", capacity.encode())).capacity == 1.0
