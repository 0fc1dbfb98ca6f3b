"""The view's indexes after each change are those of a view that is built from the keys alone."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.questions import (
    awaited,
    has_more,
    is_idle,
    leaving,
    unowned,
    waits_in_vain,
)
from faust_assigner.service.records import Assigned, Consumer, Pin, Status, TopicConfig
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from tests.unit.service.stories import ALL

T0, T1, U2 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 2)


def consumer(name: str, incarnation: str, **more: Any) -> tuple[str, bytes]:
    """The key and the value of a registration."""
    made = Consumer(name=name, incarnation=incarnation, **more)
    return ALL.consumer(name), codec.dump_consumer(made)


def owned(at: TopicPartition, name: str, incarnation: str) -> tuple[str, bytes]:
    """The key and the value of an assignment."""
    return ALL.assignment(at), codec.dump_assigned(Assigned(at, name, incarnation=incarnation))


def moving(at: TopicPartition, old: str, new: str, **more: Any) -> tuple[str, bytes]:
    """The key and the value of a hand-off between first processes."""
    made = Handoff(at, old, new, Phase.READY, 1.0, strict=True)
    processes = {"old_incarnation": f"{old}1", "new_incarnation": f"{new}1"}
    made = replace(made, **{**processes, **more})
    return ALL.handoff(at), codec.dump_handoff(made)


def topic(name: str, count: int) -> tuple[str, bytes]:
    """The key and the value of a topic."""
    return ALL.topic(name), codec.dump_topic(TopicConfig(name, count))


#: Each change: the key, its value or None, and the facts of the group afterwards: the number of
#: partitions without an owner, idle or not, those awaited, and whether "b" has more to do.
STORY: list[tuple[str, bytes | None, tuple[int, bool, set[str], bool]]] = [
    (*topic("t", 2), (2, True, set(), False)),
    (*topic("u", 5), (7, True, set(), False)),
    (*consumer("a", "a1"), (7, True, set(), False)),
    (*consumer("b", "b1"), (7, True, set(), False)),
    (*owned(T0, "a", "a1"), (6, False, set(), False)),
    (*owned(T1, "a", "a1"), (5, False, set(), False)),
    (*owned(T0, "b", "b1"), (5, False, set(), True)),
    (*owned(U2, "b", "b0"), (5, False, set(), True)),
    (*owned(T0, "b", "b0"), (6, False, set(), False)),
    (*moving(T1, "a", "b"), (6, False, set(), True)),
    (*moving(T1, "a", "b", phase=Phase.COMPLETE), (6, False, set(), True)),
    (*moving(T1, "a", "c"), (6, False, set(), False)),
    (*moving(T1, "b", "a"), (6, False, set(), True)),
    (*moving(T1, "b", "a", old_incarnation="b0"), (6, False, set(), False)),
    (*moving(T1, "a", "b", new_incarnation="b0"), (6, False, set(), False)),
    (ALL.handoff(T1), None, (6, False, set(), False)),
    (*consumer("b", "b1", status=Status.DRAINING), (6, False, set(), False)),
    (*consumer("b", "b1", status=Status.DRAINING, rack="r"), (6, False, set(), False)),
    (*consumer("b", "b0"), (4, False, set(), True)),
    (ALL.consumer("b"), None, (6, False, {"b"}, False)),
    (ALL.departed("b"), b"dismissed", (6, False, set(), False)),
    (ALL.assignment(T0), b"not json", (6, False, set(), False)),
    (ALL.assignment(T0), None, (6, False, set(), False)),
    (ALL.assignment(U2), None, (6, False, set(), False)),
    (ALL.consumer("a"), b"[]", (7, True, {"a"}, False)),
    (*consumer("a", "a2", status=Status.DRAINING), (7, True, set(), False)),
    (ALL.consumer("a"), None, (7, True, {"a"}, False)),
    (ALL.epochs, codec.dump_base(70), (7, True, {"a"}, False)),
    (ALL.pin(T0), codec.dump_pin(Pin(T0, "a")), (7, True, {"a"}, False)),
    (ALL.epochs, codec.dump_base(90), (7, True, {"a"}, False)),
    (ALL.fence("a", ""), b"s", (7, True, {"a"}, False)),
    (ALL.epochs, None, (7, True, {"a"}, False)),
    (*topic("u", 1), (3, True, {"a"}, False)),
    (*owned(TopicPartition("v", 1), "a", "a1"), (3, True, {"a"}, False)),
    (*consumer("a", "a1"), (1, False, set(), False)),
    (*owned(TopicPartition("v", 2), "a", "a1"), (0, False, set(), False)),
    (*owned(TopicPartition("v", 3), "a", "a1"), (0, False, set(), False)),
]


def parts(view: View) -> dict[str, Any]:
    """Every field except the count of the changes, and the facts that are computed."""
    found = {one.name: getattr(view, one.name) for one in fields(view) if one.name != "inputs"}
    found["granted"] = dict(view.granted)  # a Counter equals one with further zeros
    return {**found, "leaving": leaving(view, "a"), "ready": view.ready(), "base": view.base}


def test_indexes_follow_every_change() -> None:
    """A listing in another order gives the same view."""
    view = View(ALL)
    for revision, (key, value, facts) in enumerate(STORY, 100):
        before = view.raw.get(key)
        created = before.create_revision if before else revision
        kv = None if value is None else KeyValue(key, value, created, revision)
        frozen = view.frozen()
        kept = parts(view.frozen())
        view.apply(Event(key, revision, kv))
        anew = View(ALL)
        for one in reversed(list(view.raw.values())):
            anew.apply(Event(one.key, one.mod_revision, one))
        assert parts(view) == parts(anew), key
        assert (unowned(view), is_idle(view), awaited(view), has_more(view, "b")) == facts, key
        assert parts(frozen) == kept, key


def test_a_frozen_view_has_every_part_of_its_view() -> None:
    """And the count of the changes."""
    view = View(ALL)
    for revision, (key, value, _) in enumerate(STORY[:22], 1):
        kv = None if value is None else KeyValue(key, value, revision, revision)
        view.apply(Event(key, revision, kv))
    view.raised = 7
    frozen = view.frozen()
    assert (parts(frozen), frozen.inputs) == (parts(view), view.inputs)
    assert view.inputs > 9
    assert view.unreadable == {ALL.assignment(T0)}


@pytest.mark.parametrize("number", [-1, 0, 2, 3])
def test_a_partition_exists_below_its_topics_count(number: int) -> None:
    """A topic that is not known has none."""
    view = View(ALL)
    key, value = topic("t", 3)
    view.apply(Event(key, 1, KeyValue(key, value, 1, 1)))
    assert view.exists(TopicPartition("t", number)) is (0 <= number < 3)
    assert not view.exists(TopicPartition("u", 0))


def test_one_topic_that_can_be_taken_is_enough_to_wait_for() -> None:
    """Any ready consumer and any topic counts; without partitions there is nothing to wait for."""
    view = View(ALL)
    places = (TopicPartition("t", 1), TopicPartition("u", 2), TopicPartition("v", 3))
    writes = [consumer("a", "a1", status=Status.DRAINING), *(owned(at, "a", "a1") for at in places)]
    for revision, (key, value) in enumerate(writes, 1):
        view.apply(Event(key, revision, KeyValue(key, value, revision, revision)))
    for wanted, in_vain in ((("t",), False), (("u",), False), (("v",), False), (("w",), True)):
        ready = [Consumer(name="x", topics=("w",)), Consumer(name="y", topics=wanted)]
        assert waits_in_vain(view, "a", ready) is in_vain
    assert waits_in_vain(view, "a", [])
    assert not waits_in_vain(view, "b", [])
