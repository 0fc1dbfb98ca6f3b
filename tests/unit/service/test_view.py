"""The view's indexes by consumer, and its copies."""

from __future__ import annotations

import random
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.leading.tidying import tidy
from faust_assigner.service.questions import has_more, leaving, waits_in_vain
from faust_assigner.service.records import Assigned, Consumer, Status
from faust_assigner.service.serving.relay import snapshot
from faust_assigner.service.serving.sessions import Sessions
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View
from tests.unit.service.stories import ALL, HANDOFF, view_of

NAMES = ("a", "b", "c")


def _changes(chance: random.Random, count: int) -> Iterable[Event]:
    """Random writes and deletions of some assignments and hand-offs, some of them unreadable."""
    for revision in range(100, 100 + count):
        at = TopicPartition("t", chance.randrange(6))
        old, new = chance.sample(NAMES, 2)
        key, value = chance.choice(
            (
                (ALL.assignment(at), codec.dump_assigned(Assigned(at, chance.choice(NAMES)))),
                (ALL.handoff(at), codec.dump_handoff(Handoff(at, old, new, Phase.WARMING, 1.0))),
            )
        )
        value = chance.choice((value, value, b"?"))
        is_deleted = chance.random() < 0.3
        kv = None if is_deleted else KeyValue(key, value, revision, revision)
        yield Event(key, revision, kv)


def test_the_indexes_by_consumer_are_those_of_a_scan_after_every_change() -> None:
    """A consumer without any partition has no entry."""
    view = View(ALL)
    for event in _changes(random.Random(7), 3_000):
        view.apply(event)
        owned: dict[str, set[TopicPartition]] = {}
        for at, assigned in view.assignments.items():
            owned.setdefault(assigned.value.owner, set()).add(at)
        moving: dict[str, set[TopicPartition]] = {}
        for at, handoff in view.handoffs.items():
            for name in (handoff.value.old_owner, handoff.value.new_owner):
                moving.setdefault(name, set()).add(at)
        assert (view.owned, view.moving) == (owned, moving)


def test_a_frozen_view_stays_as_it_was() -> None:
    """A planning thread reads it while the mirror applies further changes."""
    view = view_of(Consumer(name="a"), topics={"t": 6})
    chance = random.Random(8)
    for event in _changes(chance, 200):
        view.apply(event)
    frozen, before = view.frozen(), deepcopy(_parts(view))
    for event in _changes(chance, 200):
        view.apply(event)
    assert _parts(frozen) == before
    assert all(
        getattr(view, changed) != getattr(frozen, changed)
        for changed in ("owned", "moving", "assignments", "handoffs")
    )


def _parts(view: View) -> list[Any]:
    return [getattr(view, part.name) for part in fields(view)]


class _NoScan(dict[TopicPartition, Any]):
    """A mapping that fails on iteration."""

    def _scanned(self, *_: object) -> Any:
        raise AssertionError("all partitions of the group were gone through for one consumer")

    __iter__ = keys = values = items = _scanned


def test_a_snapshot_for_one_consumer_goes_through_its_own_partitions_only() -> None:
    """After an instance's end, a thousand registrations must not each cost a scan of the group."""
    owners = {TopicPartition("t", number): NAMES[number % 3] for number in range(9)}
    handoff = Handoff(TopicPartition("t", 0), "a", "b", Phase.WARMING, 1.0)
    consumers = [Consumer(name=name) for name in NAMES]
    view = view_of(*consumers, topics={"t": 9}, owners=owners, handoffs=[handoff])
    view.assignments, view.handoffs = _NoScan(view.assignments), _NoScan(view.handoffs)
    told = [list(snapshot(view, name)) for name in NAMES]
    assert [len(commands) for commands in told] == [1, 2, 1]
    assert all(has_more(view, name) for name in NAMES)
    assert not has_more(view, "d")
    assert not waits_in_vain(view, "a", view.ready())


def test_what_an_earlier_process_is_to_release_is_not_asked_of_the_next_one() -> None:
    """A new process under the name owns none of its predecessor's partitions."""
    asked, earlier, loose, warming = (TopicPartition("t", number) for number in range(4))
    more = {"strict": True, "old_incarnation": "two"}
    handoffs = [
        Handoff(asked, "a", "b", Phase.READY, 1.0, **more),
        Handoff(earlier, "a", "b", Phase.READY, 1.0, **{**more, "old_incarnation": "one"}),
        Handoff(loose, "a", "b", Phase.READY, 1.0, **{**more, "strict": False}),
        Handoff(warming, "a", "b", Phase.WARMING, 1.0, **more),
    ]
    process = Consumer(name="a", incarnation="two")
    view = view_of(process, Consumer(name="b"), topics={"t": 4}, handoffs=handoffs)
    assert (leaving(view, "a"), leaving(view, "b")) == ({asked}, set())


def test_consumers_that_leave_together_go_through_the_ready_ones_once() -> None:
    """Earlier, each leaving consumer scanned all ready consumers, at each change."""
    leaving = [Consumer(name=f"d{number}", status=Status.DRAINING) for number in range(9)]
    owners = {TopicPartition("t", number): one.name for number, one in enumerate(leaving)}
    view = view_of(Consumer(name="r"), *leaving, topics={"t": 9}, owners=owners)
    asked: list[View] = []

    def ready(self: View) -> list[Consumer]:
        asked.append(self)
        return [self.consumers["r"].value]

    view.ready = ready.__get__(view)  # type: ignore[method-assign]
    registry: Any = {one.name: "a stream" for one in leaving}
    sessions: Any = SimpleNamespace(registry=registry)
    Sessions._relieve(sessions, view)
    assert len(asked) == 1
    assert list(tidy(view, Targets({}, {}))) == []
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("change", "is_input"), [({"progress": 0.5}, False), ({"strict": True}, True)]
)
def test_a_report_of_progress_is_no_reason_to_plan(change: dict[str, Any], is_input: bool) -> None:
    """Hundreds of warm-ups report every few seconds, and a plan of a large group takes seconds."""
    view = view_of(Consumer(name="old"), topics={"t": 1}, handoffs=[HANDOFF])
    before, key = view.inputs, ALL.handoff(HANDOFF.at)
    value = codec.dump_handoff(replace(HANDOFF, **change))
    view.apply(Event(key, 90, KeyValue(key, value, 3, 90)))
    assert (view.inputs > before) is is_input


@pytest.mark.parametrize(
    ("topics", "owner", "is_vain"),
    [(("t",), "a1", False), (("u",), "a1", True), ((), "a1", False), (("u",), "a0", False)],
)
def test_a_consumer_waits_in_vain_with_a_partition_that_no_ready_consumer_can_take(
    topics: tuple[str, ...], owner: str, is_vain: bool
) -> None:
    """A consumer in a hand-off does not wait in vain, as its release is still to come."""
    at = TopicPartition("t", 0)
    handoff = Handoff(at, "a", "b", Phase.COMPLETE, 1.0, old_incarnation="a1")
    leaves = Consumer(name="a", incarnation="a1", status=Status.DRAINING)
    view = view_of(leaves, Consumer(name="b", topics=topics), topics={"t": 1}, handoffs=[handoff])
    key, value = ALL.assignment(at), codec.dump_assigned(Assigned(at, "a", incarnation=owner))
    view.apply(Event(key, 90, KeyValue(key, value, 90, 90)))
    assert (has_more(view, "a"), waits_in_vain(view, "a", view.ready())) == (True, is_vain)
