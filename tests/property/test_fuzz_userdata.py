"""Any user_data and subscription yield a valid answer, in bounded time and memory.

`make fuzz` runs the same properties for FUZZ_EXAMPLES examples.
"""

from __future__ import annotations

import json
import os
import resource
import time
import tracemalloc
import zlib
from base64 import b64encode
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.answer import decode_answer
from faust_assigner.wire.bounded import KEY, USER_DATA_BYTES, split_value
from faust_assigner.wire.join import decode_join
from tests.support.examples import examples
from tests.support.faust_group import WireGroup, cluster_of, make_app
from tests.unit.wire.test_join import HOSTILE

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", str(examples(60, 20))))
LOG = "shop-totals-changelog"
PARTITIONS = {"orders": 5, LOG: 5, "clicks": 3, "shop-rates-changelog": 2, "empty": 0}
NAMES = [*PARTITIONS, "missing", "", "\u00e4", "x" * 300]

# A single group serves all examples: earlier examples must not affect later examples.
GROUP = WireGroup({t: n for t, n in PARTITIONS.items() if n})
for _m in ("good0", "good1"):
    _app = make_app(f"http://{_m}", tables=["totals"], global_tables={"rates": {}})
    GROUP.add(_m, _app, list(PARTITIONS))
GROUP.rebalance()
GOOD = {m: ConsumerProtocolMemberMetadata.decode(raw) for m, raw in GROUP.join_bytes().items()}
SAMPLE = GOOD["good0"].user_data
FIELDS = split_value(json.loads(SAMPLE)[KEY])[1]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
partition_lists = (
    st.lists(
        st.integers(-3, 9) | st.sampled_from([2**31, 10**30, True, "0", None, 0.5]), max_size=6
    )
    | json_values
)
topic_maps = st.dictionaries(st.sampled_from(NAMES), partition_lists, max_size=4) | json_values


@st.composite
def mutated(draw: st.DrawFn, good: bytes) -> bytes:
    """Draw valid bytes with changed, removed or repeated parts."""
    raw = bytearray(good)
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        kind = draw(st.integers(0, 3))
        if kind == 0 and raw:
            raw[at] = draw(st.integers(0, 255))
        elif kind == 1:
            del raw[at : at + draw(st.integers(1, 40))]
        elif kind == 2:
            raw[at:at] = raw[at : at + draw(st.integers(1, 40))]
        else:
            raw[at:at] = draw(st.binary(max_size=8))
    return bytes(raw)


@st.composite
def structured(draw: st.DrawFn) -> bytes:
    """Draw JSON in the shape of metadata, with arbitrary values in all fields."""
    value = {
        "assignment": draw(
            st.fixed_dictionaries({"actives": topic_maps, "standbys": topic_maps}) | json_values
        ),
        "url": draw(st.just("http://x") | json_values),
        "changelog_distribution": draw(json_values),
    }
    if draw(st.booleans()):
        value["topic_groups"] = draw(
            st.dictionaries(st.sampled_from(NAMES), st.integers(-2, 2**33), max_size=3)
            | json_values
        )
    if draw(st.booleans()):
        value[KEY] = draw(
            json_values
            | st.builds(
                lambda v, raw: f"{v}:{b64encode(raw).decode()}",
                st.integers(-1, 3),
                st.binary(max_size=60),
            )
        )
    return json.dumps(value).encode()


user_data = st.one_of(
    st.none(),
    st.binary(max_size=200),
    mutated(SAMPLE),
    structured(),
    st.sampled_from(list(HOSTILE.values())),
)
subscriptions = st.one_of(
    st.lists(st.sampled_from(NAMES), max_size=8),
    st.lists(st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=3), max_size=4),
    st.none(),
    st.just("orders"),
    st.integers(),
)
strangers = st.lists(
    st.tuples(subscriptions, user_data, st.integers(-(2**15), 2**15 - 1)), min_size=1, max_size=4
)
slow = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def wanted(metadata: dict[str, Any]) -> dict[str, set[str]]:
    """Return topic -> the members that may own its partitions."""
    return {
        topic: {
            m
            for m, said in metadata.items()
            if isinstance(said.subscription, (list, tuple)) and topic in said.subscription
        }
        for topic, count in PARTITIONS.items()
        if count
    }


def check(answers: dict[str, ConsumerProtocolMemberAssignment], metadata: dict[str, Any]) -> None:
    """Check that each subscribed partition has one owner, and that the answers can be encoded."""
    assert answers.keys() == metadata.keys()
    roles = {m: decode_answer(a.user_data) for m, a in answers.items()}
    for topic, members in wanted(metadata).items():
        everything = set(range(PARTITIONS[topic]))
        held = [p for m in roles for p in roles[m].actives.get(topic, ())]
        if topic == "shop-rates-changelog":
            assert all(set(roles[m].actives[topic]) == everything for m in members)
        else:
            assert sorted(held) == (sorted(everything) if members else [])
        assert all(not roles[m].actives.get(topic) for m in roles.keys() - members)
    for m, answer in answers.items():
        for topic, numbers in ConsumerProtocolMemberAssignment.decode(answer.encode()).assignment:
            assert set(numbers) <= set(range(PARTITIONS[topic])), m


@slow
@given(strangers)
def test_any_metadata_gets_a_valid_answer(others: list[tuple[Any, Any, int]]) -> None:
    """The leader answers all strangers, and the two valid members keep their partitions."""
    assignor = GROUP.apps["good0"].assignor
    metadata: dict[str, Any] = dict(GOOD)
    for i, (topics, raw, version) in enumerate(others):
        metadata[f"stranger{i}"] = Mock(subscription=topics, user_data=raw, version=version)
    before = assignor.counters["fallbacks"]
    started = time.process_time()
    answers = assignor.assign(cluster_of(GROUP.partitions), metadata)
    assert time.process_time() - started < 2
    check(answers, metadata)
    assert assignor.counters["fallbacks"] == before, "the planner itself must take it"
    for m in GOOD:
        GROUP.apps[m].assignor.on_assignment(
            ConsumerProtocolMemberAssignment.decode(answers[m].encode())
        )


@slow
@given(
    st.one_of(
        st.none(),
        st.binary(max_size=300),
        mutated(ConsumerProtocolMemberAssignment.decode(GROUP.synced["good0"]).user_data),
        structured().map(zlib.compress),
    ),
    st.dictionaries(
        st.sampled_from(["orders", LOG, "odd"]), st.lists(st.integers(0, 9), max_size=5)
    ),
)
def test_any_answer_is_survived(raw: bytes | None, given_: dict[str, list[int]]) -> None:
    """After any answer, exactly the assigned partitions have a role."""
    app = make_app("http://w", tables=["totals"])
    app.assignor.on_assignment(Mock(assignment=list(given_.items()), user_data=raw))
    roles = app.assignor.assigned_actives() | app.assignor.assigned_standbys()
    assert {(tp.topic, tp.partition) for tp in roles} == {
        (t, p) for t, n in given_.items() for p in n
    }
    app.assignor.tables_metadata()
    app.assignor.external_topics_metadata()
    again = app.assignor.metadata({"orders", LOG})
    decode_join(again.user_data, again.subscription)


def refilled(raw: bytes) -> bytes:
    """Draw the sample with other bytes in our own fields."""
    said = json.loads(SAMPLE)
    return json.dumps(
        {**said, KEY: f"{said[KEY].partition(':')[0]}:{b64encode(raw).decode()}"}
    ).encode()


#: Subscriptions for both the sender and the reader of a round.
JOINED = st.one_of(st.just(sorted(PARTITIONS)), st.lists(st.sampled_from(NAMES), max_size=6))


@slow
@given(st.one_of(user_data, mutated(SAMPLE), mutated(FIELDS).map(refilled)), JOINED)
def test_decoding_refuses_or_returns(raw: bytes | None, topics: list[str]) -> None:
    """The decoder raises only MetadataRefused, and its result has the declared types."""
    try:
        data = decode_join(raw, topics)
    except MetadataRefused:
        return
    assert type(data.url) is str
    assert type(data.generation) is int
    assert data.generation >= -1
    for claims in (
        data.actives,
        data.standbys,
        data.on_disk,
        data.former_actives,
        data.awaited,
        data.overdue,
        data.promised,
    ):
        for runs in claims.values():
            assert all(s >= 0 and n > 0 for s, n in zip(runs.starts, runs.lengths, strict=True))


@pytest.mark.parametrize("name", HOSTILE)
def test_each_known_payload_leaves_the_group_at_work(name: str) -> None:
    """All partitions are assigned, and the other members keep their partitions."""
    assignor = GROUP.apps["good0"].assignor
    metadata: dict[str, Any] = dict(GOOD)
    metadata["stranger"] = Mock(subscription=list(PARTITIONS), user_data=HOSTILE[name], version=4)
    refused = assignor.counters["refused_members"]
    check(assignor.assign(cluster_of(GROUP.partitions), metadata), metadata)
    assert assignor.counters["refused_members"] == refused + 1


def test_sixty_members_with_the_largest_payloads_stay_within_time_and_memory() -> None:
    """15 MiB of the worst metadata: repeated claims on all partitions, and deep nesting."""
    from faust_assigner.wire.runs import Writer

    out, body = Writer(), Writer()
    body.numbers([0])
    body.varint(90_000 << 1)
    body.varints([0, 7] * 90_000)
    out.field(2, body.data)
    runs = json.dumps({"url": "u", KEY: f"1:{b64encode(out.data).decode()}"}).encode()
    assert len(runs) < USER_DATA_BYTES
    numbers = json.dumps(
        {"assignment": {"actives": {"orders": list(range(40_000))}, "standbys": {}}, "url": "u"}
    ).encode()
    payloads = [
        runs,
        numbers,
        b"[" * USER_DATA_BYTES,
        b'{"a":' * 50_000,
        b'"' + b"\\u0041" * 43_000 + b'"',
    ]
    metadata: dict[str, Any] = dict(GOOD)
    for i in range(60):
        metadata[f"stranger{i:02}"] = Mock(
            subscription=["orders"], user_data=payloads[i % 5], version=4
        )
    assignor = GROUP.apps["good0"].assignor
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    check(assignor.assign(cluster_of(GROUP.partitions), metadata), metadata)
    assert time.process_time() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024  # KiB


def test_a_bomb_never_unpacks_in_memory() -> None:
    """A small answer of 128 MiB unpacked uses at most 12 MiB."""
    bomb = zlib.compress(b"\0" * (128 << 20), 9)
    app = make_app("http://w", tables=["totals"])
    tracemalloc.start()
    try:
        app.assignor.on_assignment(Mock(assignment=[("orders", [0])], user_data=bomb))
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()
    assert app.assignor.counters["unreadable_answers"] == 1
