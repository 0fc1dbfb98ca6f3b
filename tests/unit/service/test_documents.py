"""The store's keys, values and view: each kind as a whole, and wrong values of each kind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import (
    NEXT,
    Effect,
    Handoff,
    HandoffEvent,
    Phase,
    State,
    TopicPartition,
    advanced,
    state_of,
    step,
)
from faust_assigner.service.keys import (
    MAX_PARTITIONS,
    Keys,
    checked_consumer,
    checked_endpoint,
    checked_incarnation,
    checked_topic,
    escape,
    one_line,
)
from faust_assigner.service.questions import is_idle, unowned
from faust_assigner.service.records import (
    Assigned,
    Consumer,
    Leader,
    Pause,
    Pin,
    Status,
    TopicConfig,
    names_itself,
)
from faust_assigner.service.store.base import Event, KeyValue, Listing, absent, unchanged
from faust_assigner.service.view import Change, Entry, View, differences
from tests.unit.service.stories import ALL, view_of

AT = TopicPartition("a.b", 7)
CONSUMER = Consumer(
    name="c",
    status=Status.DRAINING,
    registered_at=5.0,
    topics=("t", "u"),
    capacity=2.5,
    rack="r",
    weights={"t": {3: 1.5, 0: 2.5}, "u": {1: 4.0}},
    capabilities=("heartbeats", "replicas"),
    co_partitioned=(("t", "u"), ("x",)),
    holds={"t": (1, 2)},
    former={"u": (3,)},
    endpoint="e",
    identity="i",
    session="s",
    incarnation="n",
    replaced=("m", "l"),
    by_operator=True,
    leaves=True,
    dismissed=True,
)
HANDOFF = Handoff(
    AT, "old", "new", Phase.READY, 9.0, strict=True, released=True, offset=0, unreleased="",
    expelled=True, failed="f", progress=0.25, old_incarnation="o", new_incarnation="n",
)  # fmt: skip

DOCUMENTS: list[tuple[Any, Any, Any, dict[str, Any]]] = [
    (codec.dump_consumer, codec.load_consumer, CONSUMER, {
        "consumer_name": "c", "status": "Draining", "registered_at": 5, "session": "s",
        "topics": ["t", "u"], "rack": "r", "endpoint": "e", "identity": "i",
        "capabilities": ["heartbeats", "replicas"], "co_partitioned": [["t", "u"], ["x"]],
        "holds": {"t": [1, 2]}, "former": {"u": [3]},
        "weights": {"t": [[3, 0], [1.5, 2.5]], "u": [[1], [4.0]]}, "capacity": 2.5,
        "leaves": True, "dismissed": True, "incarnation": "n", "replaced": ["m", "l"],
        "by_operator": True}),
    (codec.dump_consumer, codec.load_consumer, Consumer(name="c"), {
        "consumer_name": "c", "status": "Ready", "registered_at": 0, "session": ""}),
    (codec.dump_handoff, codec.load_handoff, HANDOFF, {
        "topic": "a.b", "partition": 7, "old_owner": "old", "new_owner": "new", "phase": "Ready",
        "started_at": 9, "strict": True, "released": True, "offset": 0, "unreleased": "",
        "expelled": True, "failed": "f", "progress": 0.25, "old_incarnation": "o",
        "new_incarnation": "n"}),
    (codec.dump_handoff, codec.load_handoff, Handoff(AT, "x", "y", Phase.WARMING, 1.0), {
        "topic": "a.b", "partition": 7, "old_owner": "x", "new_owner": "y", "phase": "Warming",
        "started_at": 1}),
    (codec.dump_assigned, lambda value: codec.load_assigned(value, 6),
        Assigned(AT, "x", 6, 0, "i"),
        {"topic": "a.b", "partition": 7, "owner": "x", "status": "Active", "offset": 0,
         "incarnation": "i"}),
    (codec.dump_assigned, lambda value: codec.load_assigned(value, 6), Assigned(AT, "x", 6),
        {"topic": "a.b", "partition": 7, "owner": "x", "status": "Active"}),
    (codec.dump_topic, codec.load_topic, TopicConfig("t", 3, True),
        {"topic": "t", "partition_count": 3, "in_kafka": True}),
    (codec.dump_topic, codec.load_topic, TopicConfig("t", 0), {"topic": "t", "partition_count": 0}),
    (codec.dump_leader, codec.load_leader, Leader("n1", 5), {"holder": "n1", "lease_id": 5}),
    (codec.dump_base, codec.load_base, 2**62, {"base": 2**62}),
    (codec.dump_until, codec.load_until, 7.5, {"until": 7.5}),
    (codec.dump_pin, codec.load_pin, Pin(AT, "x", once=True),
        {"topic": "a.b", "partition": 7, "consumer": "x", "once": True}),
    (codec.dump_pin, codec.load_pin, Pin(AT, "x"), {"topic": "a.b", "partition": 7, "consumer": "x"}),
    (codec.dump_pause, codec.load_pause, Pause("r", 7.5), {"reason": "r", "since": 7.5}),
    (codec.dump_partitions, codec.load_partitions,
        (TopicPartition("t", 3), TopicPartition("t", 1), TopicPartition("u", 2)),
        {"partitions": {"t": [3, 1], "u": [2]}}),
    (codec.dump_partitions, codec.load_partitions, (), {"partitions": {}}),
]  # fmt: skip


@pytest.mark.parametrize(("dump", "load", "value", "document"), DOCUMENTS)
def test_a_value_is_this_document_and_comes_back(
    dump: Any, load: Any, value: Any, document: dict[str, Any]
) -> None:
    """Fields with default values are left out; 0, "" and a missing value are distinct."""
    assert json.loads(dump(value)) == document
    assert load(json.dumps({**document, "later": 1}).encode()) == value


WRONG: list[tuple[Any, dict[str, Any]]] = [
    (codec.load_consumer, {"status": "Ready", "registered_at": 0}),
    (codec.load_consumer, {"consumer_name": "c", "status": "ready", "registered_at": 0}),
    (codec.load_consumer, {"consumer_name": "c", "status": "Ready", "registered_at": "x"}),
    (codec.load_consumer, {**DOCUMENTS[1][3], "weights": {"t": [[0, 1], [1.0]]}}),
    (codec.load_handoff, {**DOCUMENTS[3][3], "offset": -1}),
    (codec.load_handoff, {**DOCUMENTS[3][3], "offset": 2**63}),
    (codec.load_handoff, {**DOCUMENTS[3][3], "phase": "Gone"}),
    (codec.load_topic, {"topic": "t", "partition_count": -1}),
    (codec.load_topic, {"topic": "t", "partition_count": MAX_PARTITIONS + 1}),
    (codec.load_base, {"base": -1}),
    (codec.load_base, {"base": 2**62 + 1}),
    (codec.load_partitions, {"partitions": [1]}),
]


@pytest.mark.parametrize(("load", "document"), WRONG)
def test_a_wrong_value_is_unreadable(load: Any, document: dict[str, Any]) -> None:
    """The cases: a missing field, a wrong type, a number out of range, no JSON object."""
    for value in (json.dumps(document).encode(), b"[1]", b"{"):
        assert codec.readable(load, KeyValue("/g/x", value, 1, 1)) is None
    assert codec.readable(load, None) is None


def test_limits_of_values_are_inclusive() -> None:
    """A value at its limit is read; negative claims are left out; a large document is refused."""
    handoff = {**DOCUMENTS[3][3], "offset": 2**63 - 1}
    assert codec.load_handoff(json.dumps(handoff).encode()).offset == 2**63 - 1
    topic = {"topic": "t", "partition_count": MAX_PARTITIONS}
    assert codec.load_topic(json.dumps(topic).encode()).partition_count == MAX_PARTITIONS
    claims = {**DOCUMENTS[1][3], "holds": {"t": [-1, 0, 5]}, "former": {"u": [-2, 4]}}
    consumer = codec.load_consumer(json.dumps(claims).encode())
    assert (consumer.holds, consumer.former) == ({"t": (0, 5)}, {"u": (4,)})
    most = (1 << 20) - len(codec.dump_consumer(Consumer(name="c", rack="r"))) + 1
    assert len(codec.dump_consumer(Consumer(name="c", rack="r" * most))) == 1 << 20
    with pytest.raises(BadRequest, match=f"c sends {(1 << 20) + 1} bytes"):
        codec.dump_consumer(Consumer(name="c", rack="r" * (most + 1)))


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (checked_consumer, ["a", "A-._9", "x" * 128], ["", "x" * 129, "a/b", "é"]),
        (checked_topic, ["a", "...", "x" * 249], ["", ".", "..", "x" * 250, "a:b"]),
        (checked_incarnation, ["", "a:b", "x" * 128], ["-", "x" * 129, "a/b", "~a"]),
        (checked_endpoint, ["", "http://h:1/~", "x" * 512], ["x" * 513, "a b", "é"]),
    ],
)
def test_a_name_within_its_alphabet_and_length_is_returned(
    check: Any, good: list[str], bad: list[str]
) -> None:
    """All other names are bad requests."""
    assert [check(name) for name in good] == good
    for name in bad:
        with pytest.raises(BadRequest):
            check(name)


def test_names_are_escaped_byte_by_byte() -> None:
    """The text of a caller becomes one printable line."""
    assert escape("a-Z_9") == "a-Z_9"
    assert escape("a.b/é~") == "a%2Eb%2F%C3%A9%7E"
    assert one_line("a\tb\x1b[1m\u202ec", 6) == "a b [1"
    assert one_line("é\u2028", 9) == "é "
    assert [names_itself(one) for one in ("", "~a", "a", "a~")] == [False, False, True, True]


#: Key -> the view's field, the entry's name, and the value.
PLACES: dict[str, tuple[str, Any, bytes]] = {
    ALL.consumer("c.d"): ("consumers", "c.d", codec.dump_consumer(Consumer(name="c.d"))),
    ALL.assignment(AT): ("assignments", AT, codec.dump_assigned(Assigned(AT, "x"))),
    ALL.handoff(AT): ("handoffs", AT, codec.dump_handoff(HANDOFF)),
    ALL.topic("a.b"): ("topics", "a.b", codec.dump_topic(TopicConfig("a.b", 9))),
    ALL.cooldown(AT, "c.d"): ("cooldowns", (AT, "c.d"), codec.dump_until(1.0)),
    ALL.replicas("c.d"): ("replicas", "c.d", codec.dump_partitions((AT,))),
    ALL.leader: ("leaders", "leader", codec.dump_leader(Leader("n", 1))),
    ALL.epochs: ("bases", "base", codec.dump_base(5)),
    ALL.fence("c.d", "i.1"): ("fences", ("c.d", "i.1"), b"s"),
    ALL.fence("c.d", ""): ("fences", ("c.d", ""), b"s"),
    ALL.expelled("c.d", "~i"): ("expelled", ("c.d", "~i"), b"s"),
    ALL.resync("c.d"): ("resyncs", "c.d", b"s"),
    ALL.awaiting: ("awaiting", "group", b"known"),
    ALL.departed("c.d"): ("departed", "c.d", b"s"),
    ALL.removed("a.b"): ("removed", "a.b", b"s"),
    ALL.paused: ("pauses", "group", codec.dump_pause(Pause("r", 1.0))),
    ALL.pin(AT): ("pins", AT, codec.dump_pin(Pin(AT, "x"))),
}


@pytest.mark.parametrize("key", PLACES)
def test_each_key_has_its_place_in_the_view_and_leaves_it(key: str) -> None:
    """Written, unreadable or misnamed, and deleted: each change has its before and after."""
    field, name, value = PLACES[key]
    view = View(ALL)

    def apply(revision: int, value: bytes | None) -> Change:
        kv = None if value is None else KeyValue(key, value, 5, revision)
        change = view.apply(Event(key, revision, kv))
        assert change is not None
        assert (view.raw.get(key), change.kind, change.name) == (kv, field, name)
        return change

    first = apply(5, value)
    entry = getattr(view, field)[name]
    assert isinstance(entry, Entry)
    assert (entry.kv, first.before, first.after) == (view.raw[key], None, entry)
    assert view.same(key) == unchanged(entry.kv)
    if field not in ("fences", "expelled", "awaiting", "departed", "removed", "resyncs"):
        for wrong in (b"?", value.replace(b'"a.b"', b'"z"').replace(b'"c.d"', b'"z"')):
            if wrong == value or field in ("replicas",):
                continue
            bad = apply(6, wrong)
            assert (bad.before, bad.after, view.unreadable) == (entry, None, {key})
            again = apply(7, value)
            assert (again.before, view.unreadable) == (None, set())
            entry = getattr(view, field)[name]
    last = apply(8, None)
    assert (last.before, last.after, getattr(view, field), view.raw) == (entry, None, {}, {})
    assert view.same(key) == absent(key)


@pytest.mark.parametrize(
    "key",
    ["/g/consumers/a/b", "/g/later/a", "/g/assignments/t/01", "/g/assignments/t/-1", "/g/pins/t/x",
     f"/g/handoffs/t/{MAX_PARTITIONS}", "/g/cooldowns/t/+1/c", "/g/assignments/t/1_0"],
)  # fmt: skip
def test_a_key_of_no_known_kind_is_only_kept_raw(key: str) -> None:
    """Each partition has exactly one valid spelling."""
    view = View(ALL)
    assert view.apply(Event(key, 5, KeyValue(key, b"{}", 5, 5))) is None
    assert (list(view.raw), view.unreadable, view.inputs) == ([key], set(), 0)


def test_epochs_are_above_the_base_and_offsets_from_before_its_raise_are_left_out() -> None:
    """The revision that raised the base counts, not the base."""
    view = View(ALL)
    assert (view.base, view.raised) == (0, 0)
    assert view.dated(Assigned(AT, "x", 7, 3)) == Assigned(AT, "x", 7, 3)
    view.apply(Event(ALL.epochs, 50, KeyValue(ALL.epochs, codec.dump_base(1_000), 40, 50)))
    assert (view.base, view.raised) == (1_000, 50)
    assert view.dated(Assigned(AT, "x", 49, 3)) == Assigned(AT, "x", 1_049, None)
    assert view.dated(Assigned(AT, "x", 50, 3)) == Assigned(AT, "x", 1_050, 3)
    view.apply(Event(ALL.epochs, 60, None))
    assert (view.base, view.raised) == (0, 0)


def test_counts_of_a_group_are_of_registered_processes() -> None:
    """The counts are unowned partitions, an idle group, and the ready consumers by name."""
    a, b = Consumer(name="a", incarnation="a1"), Consumer(name="b", status=Status.DRAINING)
    view = view_of(b, a, Consumer(name="0"), topics={"t": 2, "u": 2})
    assert (unowned(view), is_idle(view)) == (4, True)
    for number, (owner, incarnation) in enumerate((("a", "a0"), ("gone", "x"))):
        at = TopicPartition("t", number)
        key, value = (
            ALL.assignment(at),
            codec.dump_assigned(Assigned(at, owner, incarnation=incarnation)),
        )
        view.apply(Event(key, 90, KeyValue(key, value, 90, 90)))
    assert (unowned(view), is_idle(view)) == (4, True)
    at = TopicPartition("u", 1)
    key, value = ALL.assignment(at), codec.dump_assigned(Assigned(at, "a", incarnation="a1"))
    view.apply(Event(key, 91, KeyValue(key, value, 91, 91)))
    assert (unowned(view), is_idle(view)) == (3, False)
    for number in (7, 8, 9, 10):  # the topic has shrunk
        at = TopicPartition("u", number)
        key, value = ALL.assignment(at), codec.dump_assigned(Assigned(at, "0"))
        view.apply(Event(key, 92, KeyValue(key, value, 92, 92)))
    assert unowned(view) == 0
    assert [consumer.name for consumer in view.ready()] == ["0", "a"]
    assert list(view.partitions()) == [TopicPartition(t, n) for t in "tu" for n in (0, 1)]
    exists = [view.exists(TopicPartition("t", n)) for n in (-1, 0, 1, 2)]
    assert exists == [False, True, True, False]
    assert view.exists(TopicPartition("x", 0)) is False
    assert [view.is_registered("a", i) for i in ("a1", "a0", "")] == [True, False, False]
    assert (view.incarnation("a"), view.incarnation("x")) == ("a1", "")


def test_the_differences_to_a_listing_are_writes_by_revision_and_then_deletions() -> None:
    """A key with an equal revision but a different value differs too."""

    def kv(key: str, revision: int, value: bytes = b"v") -> KeyValue:
        return KeyValue(key, value, revision, revision)

    known = {key: kv(key, 5) for key in ("z", "same", "gone", "other", "also")}
    items = (kv("also", 9), kv("b", 8), kv("other", 5, b"w"), kv("same", 5), kv("a", 8), kv("z", 7))
    assert differences(known, Listing(20, items)) == [
        Event("other", 5, items[2]),
        Event("z", 7, items[5]),
        Event("a", 8, items[4]),
        Event("b", 8, items[1]),
        Event("also", 9, items[0]),
        Event("gone", 20, None),
    ]


INPUTS: list[tuple[str, bytes, bytes, bool]] = [
    (ALL.consumer("c"), codec.dump_consumer(CONSUMER),
        codec.dump_consumer(replace(CONSUMER, session="x", registered_at=9.0)), False),
    (ALL.consumer("c"), codec.dump_consumer(CONSUMER),
        codec.dump_consumer(replace(CONSUMER, endpoint="x")), True),
    (ALL.handoff(AT), codec.dump_handoff(HANDOFF),
        codec.dump_handoff(replace(HANDOFF, progress=0.5)), False),
    (ALL.handoff(AT), codec.dump_handoff(HANDOFF),
        codec.dump_handoff(replace(HANDOFF, released=False)), True),
    (ALL.leader, codec.dump_leader(Leader("n", 1)), codec.dump_leader(Leader("m", 2)), False),
    (ALL.epochs, codec.dump_base(5), codec.dump_base(6), False),
    (ALL.expelled("c", "i"), b"a", b"b", False),
    (ALL.resync("c"), b"a", b"b", False),
    (ALL.removed("t"), b"a", b"b", False),
    (ALL.fence("c", "i"), b"a", b"b", True),
    (ALL.cooldown(AT, "c"), codec.dump_until(1.0), codec.dump_until(2.0), True),
    (ALL.topic("a.b"), codec.dump_topic(TopicConfig("a.b", 1)),
        codec.dump_topic(TopicConfig("a.b", 2)), True),
]  # fmt: skip


@pytest.mark.parametrize(("key", "one", "two", "counts"), INPUTS)
def test_only_changes_on_which_a_plan_depends_are_counted(
    key: str, one: bytes, two: bytes, counts: bool
) -> None:
    """Creations and deletions count, except for kinds that no plan reads."""
    view = View(ALL)
    seen = []
    for revision, value in ((5, one), (6, two), (7, None)):
        before = view.inputs
        kv = None if value is None else KeyValue(key, value, 5, revision)
        view.apply(Event(key, revision, kv))
        seen.append(view.inputs - before)
    is_kind = view.keys.kind(key)[0] not in ("assigner", "epochs", "expelled", "resyncs", "removed")
    assert seen == [is_kind, counts, is_kind]


# -- the hand-off's table ------------------------------------------------------------------------------

FRESH = Handoff(AT, "old", "new", Phase.WARMING, 1.0, progress=0.25, offset=3)


@pytest.mark.parametrize(
    ("to", "after"),
    [
        (State.READY, replace(FRESH, phase=Phase.READY, progress=1.0)),
        (State.RELEASING, replace(FRESH, phase=Phase.READY, progress=1.0)),
        (State.RELEASED, replace(FRESH, released=True, offset=41)),
        (State.COMPLETE, replace(FRESH, phase=Phase.COMPLETE)),
        (State.HANDED, replace(FRESH, phase=Phase.COMPLETE)),
        (State.UNRELEASED, replace(FRESH, unreleased="why")),
        (State.EXPELLED, replace(FRESH, unreleased="it did not release in time", expelled=True)),
        (State.FAILED, replace(FRESH, failed="why")),
    ],
)
def test_a_hand_off_is_stored_with_the_fields_of_its_new_state_alone(
    to: State, after: Handoff
) -> None:
    """All other fields stay; an existing reason of an expulsion is kept."""
    assert advanced(FRESH, to, offset=41, reason="why") == after
    if to is State.EXPELLED:
        kept = replace(FRESH, unreleased="a disk")
        assert advanced(kept, to) == replace(kept, expelled=True)
    with pytest.raises(ValueError, match="a hand-off cannot be stored"):
        advanced(FRESH, State.GONE)


@pytest.mark.parametrize(("state", "event"), [(s, e) for s in State for e in HandoffEvent])
def test_strict_mode_differs_only_at_the_readiness(state: State, event: HandoffEvent) -> None:
    """In strict mode the old owner releases first; all other steps are equal."""
    loose, strict = step(state, event), step(state, event, strict=True)
    assert loose == NEXT.get((state, event))
    if loose == (State.READY, Effect.NOTHING):
        assert strict == (State.RELEASING, Effect.NOTHING)
    else:
        assert strict == loose


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, State.WARMING),
        ({"failed": ""}, State.FAILED),
        ({"phase": Phase.READY, "failed": "x"}, State.FAILED),
        ({"phase": Phase.READY}, State.READY),
        ({"phase": Phase.READY, "strict": True}, State.RELEASING),
        ({"phase": Phase.READY, "strict": True, "released": True}, State.RELEASED),
        ({"phase": Phase.READY, "strict": True, "unreleased": ""}, State.UNRELEASED),
        (
            {"phase": Phase.READY, "strict": True, "unreleased": "x", "expelled": True},
            State.EXPELLED,
        ),
        ({"phase": Phase.READY, "unreleased": "x", "failed": "y"}, State.UNRELEASED),
        ({"phase": Phase.COMPLETE, "failed": "x", "expelled": True}, State.COMPLETE),
        ({"phase": Phase.COMPLETE, "released": True}, State.HANDED),
        ({"strict": True, "released": True}, State.WARMING),
    ],
)
def test_the_state_is_that_of_the_furthest_field(fields: dict[str, Any], state: State) -> None:
    """An empty reason counts as a reason."""
    assert state_of(replace(FRESH, **fields)) is state


def test_the_prefix_of_a_group_is_before_each_key() -> None:
    """Two groups have no common key."""
    keys = [getattr(Keys(prefix), name)("x") for prefix in ("/g/", "/h/") for name in
            ("consumer", "departed", "resync", "topic", "removed", "replicas")]  # fmt: skip
    assert keys == [f"{prefix}{kind}/x" for prefix in ("/g/", "/h/") for kind in
                    ("consumers", "departed", "resyncs", "config/topics", "removed", "replicas")]  # fmt: skip
