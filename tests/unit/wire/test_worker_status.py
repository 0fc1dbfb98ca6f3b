"""A worker's document from an untrusted sender: a value of a wrong type is refused."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import (
    CopyLag,
    LedgerPage,
    MovedTask,
    Peer,
    Peers,
    Rounds,
    RoundTold,
    Standstill,
    TableStatus,
    WaitUnderWay,
    WorkerStatus,
    decode_ledger,
    decode_peers,
    decode_rounds,
    decode_status,
    encode_document,
    encode_ledger,
)

TABLE = {"name": "t", "changelog": "c", "store": "rocksdb"}
OF_ALL_TYPES: tuple[Any, ...] = ("x", 1, 1.5, True, None, [], {})


def decoded(**fields: Any) -> Any:
    """Return the document after a round trip."""
    return decode_status(json.dumps({"app": "shop", **fields}).encode())


@pytest.mark.parametrize(
    ("field", "read"),
    [
        ("host", {"x"}),
        ("instance_id", {"x", None}),
        ("pid", {1}),
        ("round_age_s", {1, 1.5, None}),
        ("is_leader", {True}),
    ],
)
def test_a_field_takes_values_of_its_type_alone(field: str, read: set[Any]) -> None:
    """In JSON true is not a number, and 1.5 is not a whole number."""
    taken = []
    for value in OF_ALL_TYPES:
        try:
            taken.append(getattr(decoded(**{field: value}), field))
        except MetadataRefused:
            continue
    assert {(type(one), one) for one in taken} == {
        (float if field == "round_age_s" and one is not None else type(one), one) for one in read
    }


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" * 400, "-" + "1" * 400, str(1 << 63)])
@pytest.mark.parametrize("field", ["round_age_s", "pid"])
def test_a_number_that_nobody_means_is_refused(field: str, number: str) -> None:
    """No duration and no size needs more than 63 bits."""
    with pytest.raises(MetadataRefused):
        decode_status(f'{{"app": "shop", "{field}": {number}}}'.encode())


@pytest.mark.parametrize(
    "said",
    [
        {"not_ready": "recovering"},
        {"not_ready": [1]},
        {"actives": [["orders", 1]]},
        {"actives": {"orders": 1}},
        {"tables": [{**TABLE, "expires_s": "long"}]},
        {"tables": [TABLE, 1]},
        {"tables": [{"name": "t"}]},
        {"counters": {"rounds": 1.5}},
    ],
)
def test_what_stands_within_lists_and_objects_is_read_as_closely(said: dict[str, Any]) -> None:
    """The check covers each entry of lists and objects."""
    with pytest.raises(MetadataRefused):
        decoded(**said)


def test_texts_are_short_and_printable() -> None:
    """The texts are shown on terminals."""
    found = decoded(host="a\x1b[2Jb", url="u" * 5_000, settings={"k\n": "v\r"})
    assert (found.host, len(found.url)) == ("a?[2Jb", 4_096)
    assert found.settings == {"k?": "v?"}


WHOLE = WorkerStatus(
    app="shop", member_id="m-1", url="http://w:6066", instance_id="i-1", host="h", pid=7,
    software="1.2", faust="0.11", aiokafka="0.12", python="3.12", app_version="9", generation=41,
    decision_id="d-7",
    outcome=Outcome(trigger="join", decided_at=5, members=2, joined=("http://a",), left=("b", "c")),
    is_leader=True, is_cooperative=True, is_rebalancing=True, is_leaving=True, round_age_s=1.5,
    not_ready=("a", "b"), not_live=("c",), actives={"orders": (0, 2), "log": (1,)},
    standbys={"log": (3,)}, awaited={"log": (4,)}, promised={"orders": (5,)},
    global_changelogs=("g", "h"),
    standing=(Standstill(topic="orders", partition=2, reason="record", seconds=31.0),),
    copies=(
        CopyLag(topic="log", partition=3, records=9, seconds=0.5),
        CopyLag(topic="log", partition=4, records=8),
    ),
    waits=(WaitUnderWay(what="revoke", step="commit", seconds=2.0),),
    restore_remaining_records=11, restore_remaining_s=12.0, disk_free_bytes=13, disk_size_bytes=14,
    tables=(
        TableStatus(
            name="t", changelog="log", store="rocksdb", is_global=True, is_windowed=True,
            is_set=True, uses_partitioner=True, expires_s=60.0, bytes={"1": 100, "3": 0},
        ),
    ),
    settings={"s": "v"}, counters={"c": 2},
)  # fmt: skip


def test_a_workers_document_comes_back_with_every_field() -> None:
    """Nested entries survive; the document names its version, and unknown keys are skipped."""
    assert {f.name for f in fields(WorkerStatus) if getattr(WHOLE, f.name) == f.default} == set()
    data = encode_document(WHOLE)
    document = json.loads(data)
    assert document["version"] == 1
    assert set(document) == {f.name for f in fields(WorkerStatus)} | {"version"}
    assert decode_status(data) == WHOLE
    assert decode_status(json.dumps({**document, "later": [1]}).encode()) == WHOLE
    assert decode_status(b'{"app":"shop"}') == WorkerStatus(app="shop")


def test_the_list_of_members_and_the_last_rounds_come_back_with_every_field() -> None:
    """Several entries of each kind keep their order."""
    peers = Peers(
        app="shop", generation=4,
        peers=(Peer(url="b", instance_id="i", actives={"t": (0, 1)}), Peer(url="a")),
    )  # fmt: skip
    assert decode_peers(encode_document(peers)) == peers
    moves = (
        MovedTask(topic="t", partition=1, source="", target="b", rule="balance", is_cold=True),
        MovedTask(topic="u", partition=2, source="a", target="c", rule="sticky", is_cold=False),
    )
    rounds = Rounds(
        app="shop",
        rounds=(
            RoundTold(generation=5, at=1.5, seconds=2.5, outcome=Outcome(moved=2), moves=moves),
            RoundTold(generation=4),
        ),
    )
    assert decode_rounds(encode_document(rounds)) == rounds


def test_a_page_of_the_ledger_comes_back_with_its_lines_as_they_are() -> None:
    """A line about the page precedes the ledger's lines; a page may have no lines."""
    page = LedgerPage(app="shop", lines=(b'{"a":1}', b"", b"junk \xff"), cursor="c-9")
    data = encode_ledger(page)
    assert data == b'{"version":1,"app":"shop","cursor":"c-9"}\n{"a":1}\n\njunk \xff'
    assert decode_ledger(data) == page
    assert decode_ledger(b'{"app":"shop"}') == LedgerPage(app="shop")
    for refused in (b"{}", b'{"app":"shop","cursor":1}', b"junk"):
        with pytest.raises(MetadataRefused):
            decode_ledger(refused)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"app": 1}, "app is int, not a text"),
        ({"pid": 1.0}, "pid is float, not a whole number"),
        ({"round_age_s": "1"}, "round_age_s is str, not a number"),
        ({"is_leader": 1}, "is_leader is int, not true or false"),
        ({"not_live": {}}, "not_live is dict, not a list"),
        ({"counters": []}, "counters is list, not an object"),
        ({"outcome": []}, "outcome is list, not an object"),
        ({"copies": [{"topic": "t"}]}, "copies without partition, records"),
    ],
)
def test_a_refusal_names_the_field_and_both_types(said: dict[str, Any], reason: str) -> None:
    """The reason may also name the missing keys."""
    with pytest.raises(MetadataRefused) as refusal:
        decoded(**said)
    assert str(refusal.value) == reason


def test_the_largest_numbers_and_texts_are_read() -> None:
    """The largest are 63 bits of either sign and 4,096 characters."""
    found = decoded(pid=(1 << 63) - 1, disk_free_bytes=1 - (1 << 63), host="x" * 4_096)
    assert (found.pid, found.disk_free_bytes) == ((1 << 63) - 1, 1 - (1 << 63))
    assert len(found.host) == 4_096
    with pytest.raises(MetadataRefused):
        decoded(disk_free_bytes=-(1 << 63))
