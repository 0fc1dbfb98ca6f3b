"""The bytes on the wire, field by field: members of two releases in a group read each other."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import numpy as np
import pytest

from faust_assigner.wire.answer import AnswerWriter, Stitch, actives_to_claim, decode_answer
from faust_assigner.wire.bounded import split_value
from faust_assigner.wire.directory import Directory, decode_directory, encode_directory
from faust_assigner.wire.join import JoinData, decode_join, encode_join, url_of
from faust_assigner.wire.outcome import Outcome, decode_outcome, encode_outcome
from faust_assigner.wire.runs import Reader, Runs

Tagged = list[tuple[int, str]]


def tagged(raw: bytes) -> Tagged:
    """Return the fields in their order, as hexadecimal text."""
    return [(tag, body.data.hex()) for tag, body in Reader(raw).fields()]


# -- a join ----------------------------------------------------------------------------------


JOINED = JoinData(
    "http://w:6066",
    {"a": [0, 1, 2], "b": [0, 1, 2], "c": [4]},
    {"b": [3], "z": [9]},
    {"c": [300, 301]},
    former_actives={"a": [7]},
    former_generation=8,
    holds=True,
    leaves=True,
    cooperative=True,
    promised={"c": [6]},
    among=5,
    generation=41,
    instance_id="i-1",
    rack_id="r-2",
    capacity=2.5,
    group_ids={"a": 3, "b": 3, "c": 1, "z": 2},
    changelogs=frozenset({"b", "c", "z"}),
    globals_={"c": True, "b": False},
    software="1.2.3",
    positions={"b": {3: 1000, 1: 990}, "c": {4: 1}, "z": {0: 5}},
    awaited={"b": [2]},
    overdue={"c": [5]},
)
TOPICS = ["c", "a", "b"]
JOIN_FIELDS: Tagged = [
    (1, "2a"), (2, "02000102000203020304"), (3, "03010303"), (4, "030202ac0201"), (14, "03010302"),
    (15, "03020305"), (12, "0903000307"), (20, ""), (22, ""), (23, ""), (21, "0503020306"),
    (5, "692d31"), (6, "722d32"), (11, "312e322e33"), (7, "0000000000000440"),
    (8, "03020001010302"), (9, "020101"), (10, "0201010302"), (13, "0105010103bc0f140203040102"),
]  # fmt: skip


@pytest.mark.parametrize("for_stock", [True, False])
def test_a_join_has_these_bytes(for_stock: bool) -> None:
    """Stock's keys come first, then every field of this package; "z" is not subscribed to."""
    actives = {"a": [0, 1, 2], "b": [0, 1, 2], "c": [4]} if for_stock else {}
    standbys = {"b": [3], "z": [9]} if for_stock else {}
    document = json.loads(encode_join(JOINED, TOPICS, for_stock=for_stock))
    version, raw = split_value(document.pop("faust_assigner"))
    assert list(document.items()) == [
        ("assignment", {"actives": actives, "standbys": standbys}),
        ("url", "http://w:6066"),
        ("changelog_distribution", {}),
        ("external_topic_distribution", {}),
        ("topic_groups", {}),
    ]
    assert (version, tagged(raw)) == (1, JOIN_FIELDS)


def test_a_join_is_read_with_every_field() -> None:
    """Topics outside the subscription are dropped; claims are sets and positions are arrays."""
    found = decode_join(encode_join(JOINED, TOPICS), TOPICS)
    positions = found.positions
    assert positions is not None
    shown = {t: (said[0].tolist(), said[1].tolist()) for t, said in positions.items()}  # type: ignore[index,union-attr]
    assert shown == {"b": ([1, 3], [990, 1000]), "c": ([4], [1])}
    assert replace(found, positions=None) == replace(
        JOINED,
        actives={"a": Runs([0], [3]), "b": Runs([0], [3]), "c": Runs([4], [1])},
        standbys={"b": Runs([3], [1])},
        on_disk={"c": Runs([300], [2])},
        former_actives={"a": Runs([7], [1])},
        promised={"c": Runs([6], [1])},
        group_ids={"a": 3, "b": 3, "c": 1},
        changelogs=frozenset({"b", "c"}),
        awaited={"b": Runs([2], [1])},
        overdue={"c": Runs([5], [1])},
        positions=None,
    )


def test_a_member_without_facts_sends_its_generation_alone() -> None:
    """Defaults take no bytes; empty claims and unsubscribed topics add no field."""
    nothing = JoinData(actives={"a": []}, group_ids={"z": 1}, changelogs=frozenset({"z"}))
    document = json.loads(encode_join(nothing, ["a"]))
    assert tagged(split_value(document["faust_assigner"])[1]) == [(1, "00")]
    empty = JoinData(positions={}, generation=0)
    document = json.loads(encode_join(empty, ["a"]))
    assert tagged(split_value(document["faust_assigner"])[1]) == [(1, "01"), (13, "")]


@pytest.mark.parametrize(
    ("user_data", "url"),
    [(b'{"url":"http://a"}', "http://a"), (b'{"url":"a b"}', ""), (b"junk", ""), (None, "")],
)
def test_the_url_of_refused_metadata_is_read_if_it_can_be(
    user_data: bytes | None, url: str
) -> None:
    """The log names the member by this URL."""
    assert url_of(user_data) == url


# -- an answer -------------------------------------------------------------------------------


OUTCOME = Outcome(
    trigger="join", completes="leave", decided_at=1_700_000_000, members=3, tasks=12, moved=4,
    cold=1, off_target=2, warming=5, is_planned=True, leads=True, joined=("http://a",),
    left=("http://b", "http://c"),
)  # fmt: skip
COUNTS = "80e2cfaa06030c04010205046a6f696e056c65617665"
NAMES = "0108687474703a2f2f610208687474703a2f2f6208687474703a2f2f63"
DIRECTORY = Directory(
    ("http://a", "http://b", ""),
    {"b": np.array([0, 0, 1, -1]), "a": np.array([0, 0, 1, -1]), "c": np.array([2, 1])},
    ("i", "", "j"),
    frozenset({"b"}),
    frozenset({"c"}),
    {"b": (np.array([1, -1, 0, 2]), np.array([2, 2, -1, -1])), "x": (np.array([1]),)},
)
WRITER = AnswerWriter(
    DIRECTORY, {"c": 1, "a": 0, "b": 0}, generation=41, is_uniform=True, decision_id="d-7",
    among=3, outcome=OUTCOME,
)  # fmt: skip
IDS = {"a": 0, "b": 0, "c": 1}


def answered(*, leads: bool) -> bytes:
    """Return the answer to a member with this package; the leader's answer has the directory."""
    return WRITER.for_ours(
        {"b": [0, 1], "a": [2, 1]}, {"c": [0], "b": [3]}, "http://a", writes={"b": [1]},
        awaited={"c": [0]}, promised={"a": [3]}, with_directory=leads, leads=leads,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("leads", "outcome"), [(True, "03" + COUNTS + NAMES), (False, "01" + COUNTS + "0000")]
)
def test_an_answer_has_these_bytes(leads: bool, outcome: str) -> None:
    """Stock's keys surround this package's fields; only the leader's own answer names members."""
    packed = answered(leads=leads)
    assert packed[:2] == b"\x78\x9c"
    document = json.loads(zlib.decompress(packed))
    head, dot, shared = document.pop("faust_assigner").partition(".")
    version, raw = split_value(head)
    assert (version, dot, bool(shared)) == (1, ".", leads)
    assert tagged(raw) == [
        (1, "2a"), (2, "01"), (4, "642d37"), (3, "03010301"), (5, "03010300"), (20, "0303000303"),
        (21, outcome),
    ]  # fmt: skip
    assert list(document.items()) == [
        ("assignment", {"actives": {"a": [2, 1], "b": [0, 1]}, "standbys": {"b": [3], "c": [0]}}),
        ("url", "http://a"),
        ("changelog_distribution", {}),
        ("external_topic_distribution", {}),
        ("topic_groups", IDS),
    ]


def test_an_answer_is_read_with_every_field() -> None:
    """The directory in the answer equals the written directory."""
    found = decode_answer(answered(leads=True))
    assert decode_directory(found.directory).urls == DIRECTORY.urls
    assert {name: has for name, has in vars(found).items() if name != "directory"} == {
        "actives": {"a": Runs([1], [2]), "b": Runs([0], [2])},
        "standbys": {"b": Runs([3], [1]), "c": Runs([0], [1])},
        "url": "http://a",
        "generation": 41,
        "writes": {"b": Runs([1], [1])},
        "is_uniform": True,
        "group_ids": IDS,
        "changelog_distribution": {},
        "external_topic_distribution": {},
        "decision_id": "d-7",
        "awaited": {"c": Runs([0], [1])},
        "promised": {"a": Runs([3], [1])},
        "among": 3,
        "outcome": OUTCOME,
    }
    assert decode_answer(answered(leads=False)).directory == b""
    assert actives_to_claim(["b", "c"], found) == {"a": Runs([1], [2]), "b": Runs([1], [1])}


def test_the_answer_to_a_stock_member_has_both_distributions_and_no_key_of_ours() -> None:
    """Changelogs are in the first, other topics in the second; a global table is on every URL."""
    packed = WRITER.for_stock({"b": [0, 1], "a": [2, 1]}, {"c": [0]}, "http://a")
    assert list(json.loads(zlib.decompress(packed)).items()) == [
        ("assignment", {"actives": {"a": [2, 1], "b": [0, 1]}, "standbys": {"c": [0]}}),
        ("url", "http://a"),
        ("changelog_distribution", {"http://a": {"b": [0, 1]}, "http://b": {"b": [2]}, "": {}}),
        (
            "external_topic_distribution",
            {
                "http://a": {"a": [0, 1], "c": [0, 1]},
                "http://b": {"a": [2], "c": [0, 1]},
                "": {"c": [0, 1]},
            },
        ),
        ("topic_groups", IDS),
    ]
    found = decode_answer(packed)
    assert (found.generation, found.is_uniform, found.among, found.outcome) == (-1, False, 0, None)
    assert (found.group_ids, found.changelog_distribution["http://b"]) == (IDS, {"b": [2]})
    assert found.external_topic_distribution["http://b"] == {"a": [2], "c": [0, 1]}


def test_an_answer_without_facts_has_its_generation_and_flags_alone() -> None:
    """The answer has no second round, outcome or decision, and the members' lowest version."""
    writer = AnswerWriter(Directory(), {}, generation=-1, is_uniform=False, version=7)
    document = json.loads(zlib.decompress(writer.for_ours({}, {}, "")))
    head, _, _ = document["faust_assigner"].partition(".")
    assert split_value(head)[0] == 7
    assert tagged(split_value(head)[1]) == [(1, "00"), (2, "00")]
    assert writer.shared_bytes == len(
        Stitch(b"." + zlib.decompress(writer.for_ours({}, {}, "")).partition(b".")[2])
    )


@pytest.mark.parametrize(
    "outcome", [OUTCOME, replace(OUTCOME, is_planned=False, leads=False), Outcome()]
)
def test_an_outcome_has_these_bytes(outcome: Outcome) -> None:
    """An outcome is flags, the time, six counts, two texts and two lists of names."""
    raw = encode_outcome(outcome)
    expected = {OUTCOME: "03" + COUNTS + NAMES, Outcome(): "01" + "00" * 11}.get(
        outcome, "00" + COUNTS + NAMES
    )
    assert raw.hex() == expected
    assert decode_outcome(Reader(raw)) == outcome


# -- the directory ---------------------------------------------------------------------------


def test_a_directory_has_these_bytes() -> None:
    """Co-partitioned topics share a column; a changelog's copies are columns; "x" has no owners."""
    assert tagged(zlib.decompress(encode_directory(DIRECTORY))) == [
        (1, "6100620063"),
        (2, "687474703a2f2f6100687474703a2f2f6200"),
        (3, "6900006a"),
        (4, "02000103020203010000"),
        (4, "03020206010000"),
        (7, "0301040403020400000000"),
        (7, "03010206050101"),
        (5, "0301"),
        (6, "0302"),
    ]


def test_a_directory_is_read_and_asked_for_every_fact() -> None:
    """Owners, copies, URLs, instance ids, changelogs and global tables are read back."""
    found = decode_directory(encode_directory(DIRECTORY))
    assert {t: owner.tolist() for t, owner in found.owners.items()} == {
        "a": [0, 0, 1, -1], "b": [0, 0, 1, -1], "c": [2, 1],
    }  # fmt: skip
    assert {t: [c.tolist() for c in columns] for t, columns in found.standbys.items()} == {
        "b": [[1, -1, 0, 2], [2, 2, -1, -1]]
    }
    assert (found.urls, found.instances) == (("http://a", "http://b", ""), ("i", "", "j"))
    assert (found.changelogs, found.globals_) == ({"b"}, {"c"})
    assert [found.standby_urls("b", p) for p in range(-1, 5)] == [
        (), ("http://b", ""), ("",), ("http://a",), ("",), (),
    ]  # fmt: skip
    assert found.standby_urls("a", 0) == ()
    assert [found.url_of("b", p) for p in (0, 1, 2)] == ["http://a", "http://a", "http://b"]
    held = {t: numbers.tolist() for t, numbers in found.held_by_instance("i").items()}
    assert held == {"a": [0, 1], "b": [0, 1]}
    last = {t: numbers.tolist() for t, numbers in found.held_by_instance("j").items()}
    assert last == {"c": [0]}
