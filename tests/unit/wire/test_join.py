"""The metadata of a joining member: round trips, reading by stock Faust, and hostile bytes."""

from __future__ import annotations

import json
import math
import time
from base64 import b64encode
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from faust.assignor.client_assignment import ClientMetadata

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.bounded import JSON_DEPTH, KEY, USER_DATA_BYTES
from faust_assigner.wire.join import STOCK, VERSION, JoinData, Memo, decode_join, encode_join
from faust_assigner.wire.runs import Runs, Writer

TOPICS = ["orders", "shop-orders-changelog", "shop-rates-changelog"]
SAID = JoinData(
    "http://w1:6066",
    {"orders": [0, 1, 2, 9], "shop-orders-changelog": {0, 1, 2, 9}},
    {"shop-orders-changelog": range(3, 6)},
    {"shop-orders-changelog": np.array([7, 11])},
    generation=41,
    instance_id="worker-1",
    rack_id="eu-1a",
    capacity=2.5,
    group_ids={"orders": 12, "shop-orders-changelog": 12},
    changelogs=frozenset(TOPICS[1:]),
    globals_={"shop-rates-changelog": True},
    software="0.1.0",
    former_actives={"orders": [4, 5], "shop-orders-changelog": [4, 5]},
    former_generation=40,
)


def test_everything_said_comes_back() -> None:
    """A round trip keeps every field."""
    back = decode_join(encode_join(SAID, TOPICS), TOPICS)
    assert {t: list(n) for t, n in back.actives.items()} == {t: [0, 1, 2, 9] for t in TOPICS[:2]}
    assert {t: list(n) for t, n in back.standbys.items()} == {"shop-orders-changelog": [3, 4, 5]}
    assert {t: list(n) for t, n in back.on_disk.items()} == {"shop-orders-changelog": [7, 11]}
    assert {t: list(n) for t, n in back.former_actives.items()} == {t: [4, 5] for t in TOPICS[:2]}
    for name in (
        "url",
        "generation",
        "former_generation",
        "instance_id",
        "rack_id",
        "capacity",
        "group_ids",
        "changelogs",
        "globals_",
        "software",
    ):
        assert getattr(back, name) == getattr(SAID, name), name
    assert back.is_ours


LOG, RATES = TOPICS[1:]
#: Field -> values that differ from its default.
ALONE: dict[str, tuple[Any, ...]] = {
    "url": ("http://w",),
    "actives": ({"orders": [3]},),
    "standbys": ({LOG: [0]},),
    "on_disk": ({LOG: [1]},),
    "former_actives": ({"orders": [2]},),
    "holds": (True,),
    "leaves": (True,),
    "cooperative": (True,),
    "generation": (0, 7),
    "instance_id": ("worker-1",),
    "rack_id": ("eu-1a",),
    "capacity": (0.25, 1.5),
    "group_ids": ({"orders": 12},),
    "changelogs": (frozenset({LOG}),),
    "globals_": ({RATES: True}, {RATES: False}),
    "software": ("0.1.0",),
    "positions": ({},),
    "awaited": ({LOG: [4]},),
    "overdue": ({LOG: [5]},),
}
#: Fields that have a meaning only together.
TOGETHER = (
    {"former_actives": {LOG: [0]}, "former_generation": 3},
    {"promised": {LOG: [6]}, "among": 2},
)


def plain(value: Any) -> Any:
    """Return claims as lists."""
    if isinstance(value, dict):
        return {
            topic: one if isinstance(one, bool | int) else list(one) for topic, one in value.items()
        }
    return value


@pytest.mark.parametrize(
    "said",
    [*({name: value} for name, values in ALONE.items() for value in values), *TOGETHER],
    ids=str,
)
def test_each_field_comes_back_alone(said: dict[str, Any]) -> None:
    """The remaining fields keep their defaults: each field is independent of the rest."""
    data = replace(JoinData(), **said)
    back = decode_join(encode_join(data, TOPICS, for_stock=False), TOPICS)
    assert {f.name: plain(getattr(back, f.name)) for f in fields(data)} == {
        f.name: plain(getattr(data, f.name)) for f in fields(data)
    }


def test_each_field_has_a_case_of_its_own() -> None:
    """Each new field needs a row in the table above."""
    named = {*ALONE, *(name for said in TOGETHER for name in said), "version"}
    assert {f.name for f in fields(JoinData)} == named


def test_stock_faust_reads_our_metadata() -> None:
    """Faust's own class loads the bytes and finds claims, URL and empty distributions."""
    read = ClientMetadata.loads(encode_join(SAID, TOPICS))
    assert read.url == SAID.url
    assert read.assignment.actives == {t: [0, 1, 2, 9] for t in TOPICS[:2]}
    assert read.assignment.standbys == {"shop-orders-changelog": [3, 4, 5]}
    assert read.changelog_distribution == {}
    assert read.external_topic_distribution == {}


def test_we_read_stock_metadata() -> None:
    """Metadata without this package's key is a stock member's, with claims and group ids."""
    stock = {
        "assignment": {"actives": {"orders": [2, 0]}, "standbys": {"orders": [1]}},
        "url": "http://s",
        "changelog_distribution": {"http://s": {"orders": [0, 2]}},
        "external_topic_distribution": {},
        "topic_groups": {"orders": 3},
    }
    read = decode_join(json.dumps(stock).encode(), TOPICS)
    assert (read.version, read.is_ours) == (STOCK, False)
    assert list(read.actives["orders"]) == [0, 2]
    assert read.group_ids == {"orders": 3}


def test_a_newer_member_may_say_more() -> None:
    """Unknown fields, unknown keys and a higher version are skipped; the lower version counts."""
    newer = json.loads(encode_join(SAID, TOPICS))
    version, _, text = newer[KEY].partition(":")
    extra = Writer()
    extra.field(200, b"something new")
    newer[KEY] = f"{int(version) + 7}:" + text + b64encode(extra.data).decode()
    newer["another_key"] = {"a": [1]}
    assert not text.endswith("="), (
        "Base64 of two blocks joins only where the first needs no padding"
    )
    read = decode_join(json.dumps(newer).encode(), TOPICS)
    assert (read.version, read.generation) == (VERSION, 41)


def test_unknown_fields_are_passed_over() -> None:
    """A field with an unknown tag changes no known field."""
    fields = Writer()
    fields.field(1, b"\x05")
    fields.field(99, b"whatever")
    raw = {"url": "http://w", KEY: f"3:{b64encode(fields.data).decode()}"}
    assert decode_join(json.dumps(raw).encode(), TOPICS).generation == 4


def test_a_round_of_members_that_say_much_alike_keeps_their_memories_apart() -> None:
    """The memo of a round shares equal fields such as changelogs; former actives stay separate."""
    memo: Memo = {}
    for numbers in ([0, 1], [2], []):
        said = encode_join(replace(SAID, former_actives={"orders": numbers}), TOPICS)
        read = decode_join(said, TOPICS, memo=memo)
        assert [list(runs) for runs in read.former_actives.values()] == [numbers] * bool(numbers)
        assert read.changelogs == SAID.changelogs


@pytest.mark.parametrize("generation", [-1, -2, -(2**40)])
def test_no_generation_is_below_that_of_no_assignment(generation: int) -> None:
    """A varint has no sign; a wrong generation must not stop the member from joining."""
    said = JoinData(generation=generation, former_generation=generation, former_actives={"a": [1]})
    back = decode_join(encode_join(said, ["a"]), ["a"])
    assert (back.generation, back.former_generation) == (-1, -1)


def test_equal_bytes_of_other_topics_or_other_fields_are_read_for_themselves() -> None:
    """The memo's key has the field and the subscription: a topic's index depends on both."""
    memo: Memo = {}
    logs = JoinData(changelogs=frozenset({"a"}))
    everywhere = JoinData(globals_={"a": False})
    found = []
    for said, topics in ((logs, ["a"]), (everywhere, ["a"]), (logs, ["a", "b"])):
        back = decode_join(encode_join(said, topics), topics, memo=memo)
        found.append((back.changelogs, back.globals_))
    assert found == [({"a"}, {}), (set(), {"a": False}), ({"a"}, {})]
    other = decode_join(encode_join(logs, ["a"]), ["z"], memo=memo)
    assert other.changelogs == {"z"}
    topics = ["a", "b", "c", "d"]
    for said in (JoinData(group_ids={"a": 3}), JoinData(globals_={"d": False})):
        back = decode_join(encode_join(said, topics), topics, memo=memo)
        assert (back.group_ids, back.globals_) == (said.group_ids, said.globals_)


@pytest.mark.parametrize(
    "claimed", [("actives", {"a": [0], "b": [1]}), ("changelogs", frozenset("ab"))]
)
def test_an_index_of_one_more_topic_than_there_are_is_refused(claimed: tuple[str, Any]) -> None:
    """The member's metadata is refused; the leader continues."""
    name, value = claimed
    with pytest.raises(MetadataRefused, match="beyond the 1 subscribed"):
        decode_join(encode_join(JoinData(**{name: value}), ["a", "b"]), ["a"])


@pytest.mark.parametrize(
    ("version", "is_read"), [("0", False), ("1", True), ("9999", True), ("10000", False)]
)
def test_versions_begin_with_1_and_have_four_digits_at_most(version: str, is_read: bool) -> None:
    """0 means stock Faust; a later version is read as the latest known version."""
    said = json.loads(encode_join(SAID, TOPICS))
    said[KEY] = version + said[KEY][said[KEY].index(":") :]
    data = json.dumps(said).encode()
    if is_read:
        assert decode_join(data, TOPICS).version == VERSION
    else:
        with pytest.raises(MetadataRefused, match="has no version"):
            decode_join(data, TOPICS)


def test_claims_on_other_topics_are_not_sent() -> None:
    """Topics outside the member's subscription are left out of this package's part."""
    back = decode_join(encode_join(SAID, ["orders"]), ["orders"])
    assert set(back.actives) == {"orders"}
    assert back.standbys == {}


def test_without_a_stock_part_only_our_key_tells() -> None:
    """The claims are sent once if no stock leader may read them."""
    packed = encode_join(SAID, TOPICS, for_stock=False)
    assert json.loads(packed)["assignment"] == {"actives": {}, "standbys": {}}
    assert list(decode_join(packed, TOPICS).actives["orders"]) == [0, 1, 2, 9]
    assert len(packed) < len(encode_join(SAID, TOPICS))


def test_a_run_of_a_million_costs_nothing() -> None:
    """A contiguous claim takes a few bytes and stays a range."""
    claim = JoinData("http://w", {"orders": range(1_000_000)})
    packed = encode_join(claim, TOPICS, for_stock=False)
    assert len(packed) < 220
    assert decode_join(packed, TOPICS).actives["orders"].numbers() == range(1_000_000)  # type: ignore[union-attr]


def ours(fields: bytes) -> bytes:
    """Return metadata with these bytes as this package's part."""
    return json.dumps({"url": "http://w", KEY: f"1:{b64encode(fields).decode()}"}).encode()


def field(tag: int, body: bytes) -> bytes:
    """Return an encoded field."""
    out = Writer()
    out.field(tag, body)
    return bytes(out.data)


def stock(assignment: Any, url: Any = "http://w", **more: Any) -> bytes:
    """Return a stock member's metadata."""
    return json.dumps(
        {"assignment": assignment, "url": url, "changelog_distribution": {}, **more}
    ).encode()


GOOD = {"actives": {"orders": [0]}, "standbys": {}}
FAR = b"\xff\xff\xff\xff\x07"  # 2**31 - 1

HOSTILE: dict[str, bytes | None] = {
    "nothing": None,
    "empty": b"",
    "noise": bytes(range(256)),
    "not utf-8": b'{"url": "\xff\xfe"}',
    "utf-16": json.dumps({"url": "x"}).encode("utf-16"),
    "cut off": encode_join(SAID, TOPICS)[:-9],
    "a list": b"[]",
    "a number": b"1",
    "a text": b'"x"',
    "null": b"null",
    "no assignment": b'{"url": "http://w"}',
    "no url": json.dumps({"assignment": GOOD}).encode(),
    "url a number": stock(GOOD, 7),
    "url null": stock(GOOD, None),
    "url with a newline": stock(GOOD, "http://w\r\nX: y"),
    "url without end": stock(GOOD, "http://" + "w" * 5000),
    "url of half a character": b'{"assignment": {"actives": {}, "standbys": {}}, "url": "\\ud800"}',
    "assignment null": stock(None),
    "assignment a list": stock([]),
    "actives null": stock({"actives": None, "standbys": {}}),
    "actives a list": stock({"actives": [1], "standbys": {}}),
    "no standbys": stock({"actives": {}}),
    "a partition as text": stock({"actives": {"orders": ["0"]}, "standbys": {}}),
    "a partition as truth": stock({"actives": {"orders": [True]}, "standbys": {}}),
    "half a partition": stock({"actives": {"orders": [0.5]}, "standbys": {}}),
    "a partition below zero": stock({"actives": {"orders": [-1]}, "standbys": {}}),
    "a partition of 400 digits": stock({"actives": {"orders": [10**400]}, "standbys": {}}),
    "a partition of 9000 digits": b'{"assignment":{"actives":{"o":['
    + b"9" * 9000
    + b']},"standbys":{}}}',
    "a list of lists": stock({"actives": {"orders": [[0]]}, "standbys": {}}),
    "numbers for a list": stock({"actives": {"orders": 3}, "standbys": {}}),
    "not a number": b'{"assignment": {"actives": {"o": [NaN]}, "standbys": {}}, "url": "x"}',
    "infinite": b'{"assignment": {"actives": {"o": [Infinity]}, "standbys": {}}, "url": "x"}',
    "too deep": stock(GOOD, more=json.loads("[" * JSON_DEPTH + "]" * JSON_DEPTH)),
    "very deep": b'{"a":' * 40_000 + b"1" + b"}" * 40_000,
    "deep without end": b"[" * 200_000,
    "a text of escaped quotes that never closes": b'{"a":' + b"[" * 20 + b'"' + rb"\"" * 100_000,
    "brackets in a text that ends with a backslash": b'{"a":"' + b"[" * 20 + b"\\",
    "too long": stock(GOOD, more="x" * USER_DATA_BYTES),
    "group ids a list": stock(GOOD, topic_groups=[1]),
    "a group id as text": stock(GOOD, topic_groups={"orders": "1"}),
    "a group id below zero": stock(GOOD, topic_groups={"orders": -1}),
    "our key a number": stock(GOOD, **{KEY: 1}),
    "our key an object": stock(GOOD, **{KEY: {"v": 1}}),
    "our key without a version": stock(GOOD, **{KEY: "AAAA"}),
    "our key of version x": stock(GOOD, **{KEY: "x:AAAA"}),
    "our key of version 0": stock(GOOD, **{KEY: "0:AAAA"}),
    "our key not base64": stock(GOOD, **{KEY: "1:????"}),
    "our key not ascii": stock(GOOD, **{KEY: "1:\u00e4\u00e4\u00e4\u00e4"}),
    "a field cut off": ours(b"\x02\x7f\x01"),
    "a number without end": ours(b"\xff" * 40),
    "a field twice": ours(field(1, b"\x01") * 2),
    "a topic beyond the subscription": ours(field(2, b"\x02\x09\x00\x02\x00\x00")),
    "a topic claimed twice": ours(field(2, b"\x02\x00\x00\x02\x00\x00" * 2)),
    "more runs than bytes": ours(field(2, b"\x02\x00\x00" + FAR)),
    "a generation beyond 31 bits": ours(field(1, b"\xff\xff\xff\xff\xff\x01")),
    "an instance id not utf-8": ours(field(5, b"\xff\xfe")),
    "an instance id of blanks": ours(field(5, b"a b")),
    "a rack of 300 characters": ours(field(6, b"r" * 300)),
    "capacity zero": ours(field(7, np.float64(0).tobytes())),
    "capacity below zero": ours(field(7, np.float64(-1).tobytes())),
    "capacity not a number": ours(field(7, np.float64(math.nan).tobytes())),
    "capacity infinite": ours(field(7, np.float64(math.inf).tobytes())),
    "capacity of three bytes": ours(field(7, b"abc")),
    "a memory without a date": ours(field(12, b"")),
    "a memory cut off": ours(field(12, b"\x03\x02\x00")),
    "a memory beyond the subscription": ours(field(12, b"\x03\x02\x09\x00\x02\x00\x00")),
    "a memory twice": ours(field(12, b"\x03") * 2),
    "a memory of a generation beyond 31 bits": ours(field(12, b"\xff\xff\xff\xff\xff\x01")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metadata_is_refused(name: str) -> None:
    """The refusal is immediate, and its short reason does not repeat the bytes."""
    started = time.process_time()
    with pytest.raises(MetadataRefused) as refused:
        decode_join(HOSTILE[name], TOPICS)
    assert time.process_time() - started < 0.5
    assert len(str(refused.value)) < 200


def test_a_claim_on_two_billion_partitions_costs_nothing() -> None:
    """A run stays a run and is cut to the existing partitions before it is expanded."""
    bomb = ours(field(2, b"\x02\x00\x00\x02\x00" + FAR))
    claim = decode_join(bomb, TOPICS).actives["orders"]
    assert isinstance(claim, Runs)
    assert claim.size == 2**31
    assert list(claim.below(12)) == list(range(12))


def test_depth_is_counted_outside_texts() -> None:
    """Brackets inside a text do not count, and 16 levels are allowed."""
    plain = decode_join(stock(GOOD), TOPICS)
    assert decode_join(stock(GOOD, more="[" * 1000 + '\\"['), TOPICS) == plain
    deep = json.loads("[" * (JSON_DEPTH - 1) + "]" * (JSON_DEPTH - 1))
    assert decode_join(stock(GOOD, more=deep), TOPICS) == plain


def test_three_topics_with_equal_claims_and_an_empty_promise_come_back() -> None:
    """Topics with equal numbers share bytes; a second round may promise nothing to this member."""
    topics = ("a", "b", "c", "d")
    claims = {"a": [1, 2], "b": [1, 2], "c": [3], "d": [1, 2]}
    back = decode_join(encode_join(JoinData(actives=claims, among=3), topics), topics)
    assert {t: list(n) for t, n in back.actives.items()} == claims
    assert (back.among, back.promised) == (3, {})


@pytest.mark.parametrize(
    ("capacity", "is_read"), [(1e-6, True), (0.9e-6, False), (1e6, True), (1.1e6, False)]
)
def test_a_capacity_has_a_least_and_a_largest_value(capacity: float, is_read: bool) -> None:
    """Both limits are a million, as a factor of the usual capacity 1."""
    raw = encode_join(JoinData(capacity=capacity), ())
    if is_read:
        assert decode_join(raw, ()).capacity == capacity
        return
    with pytest.raises(MetadataRefused, match="the capacity"):
        decode_join(raw, ())


@pytest.mark.parametrize(("url", "said"), [("http://a", "http://a"), ("", "")])
def test_refused_metadata_keep_their_url(url: str, said: str) -> None:
    """Without a readable URL the refusal has none."""
    stock = {"url": url, "assignment": "no claims"}
    with pytest.raises(MetadataRefused) as refused:
        decode_join(json.dumps(stock).encode(), TOPICS)
    assert refused.value.url == said
    with pytest.raises(MetadataRefused) as unreadable:
        decode_join(b"{", TOPICS)
    assert unreadable.value.url == ""
