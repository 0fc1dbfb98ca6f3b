"""Directories, pages and answers at their edges: global tables, empty columns, single names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.answer import AnswerWriter, decode_answer
from faust_assigner.wire.directory import (
    Directory,
    _decode_labels,
    decode_directory,
    encode_directory,
)
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.runs import join_texts
from faust_assigner.wire.worker_status import LedgerPage, decode_ledger, encode_ledger


def test_a_global_table_hides_no_later_topic_and_numbers_are_in_order() -> None:
    """Every member has all partitions of it; members of one URL are merged, in order."""
    owners = np.array([number % 3 for number in range(300)])
    directory = Directory(
        ("http://b", "http://a", "http://b"),
        {"all": np.array([1, 0, -1]), "orders": owners, "zero": np.array([2])},
        globals_=frozenset({"all"}),
    )
    assert directory.by_url({"zero", "orders", "all", "unknown"}) == {
        "http://b": {
            "all": [0, 1, 2],
            "orders": [number for number in range(300) if number % 3 != 1],
            "zero": [0],
        },
        "http://a": {"all": [0, 1, 2], "orders": list(range(1, 300, 3))},
    }


def test_a_member_without_a_url_and_a_topic_without_partitions_come_back() -> None:
    """Neither is an error of the group."""
    directory = Directory(
        ("",), {"none": np.empty(0, dtype=np.int64), "orders": np.array([0, -1, 0])}
    )
    found = decode_directory(encode_directory(directory))
    assert (found.urls, found.instances) == (("",), ())
    assert {topic: owner.tolist() for topic, owner in found.owners.items()} == {
        "none": [],
        "orders": [0, -1, 0],
    }


def test_as_many_labels_as_the_limit_are_read() -> None:
    """One more is refused."""
    raw = join_texts(["a", "bc", "d"])
    assert _decode_labels(raw, "topic", 3, 2) == ("a", "bc", "d")
    with pytest.raises(MetadataRefused, match="3 topics, the limit is 2"):
        _decode_labels(raw, "topic", 2, 2)
    with pytest.raises(MetadataRefused):
        _decode_labels(raw, "topic", 3, 1)


def test_only_a_line_feed_ends_a_line_of_the_ledger() -> None:
    """Other breaks may be within a name, and an empty line stays."""
    lines = (b'{"a": "x\ry"}', b"", b"\x0b\x0c\r", b'{"b": "\xc2\x85"}', b"")
    page = LedgerPage(app="shop", lines=lines, cursor="7:9")
    assert decode_ledger(encode_ledger(page)) == page


def test_only_the_leader_s_answer_says_that_it_leads_and_who_came_and_went() -> None:
    """Whatever the outcome of the round says by itself."""
    outcome = Outcome(trigger="join", members=3, joined=("http://c",), left=("http://d",))
    writer = AnswerWriter(Directory(), {"t": 5}, generation=4, is_uniform=True, outcome=outcome)
    told = [
        decode_answer(writer.for_ours({"t": [0]}, {}, "http://a", leads=leads)).outcome
        for leads in (True, False)
    ]
    assert told == [replace(outcome, leads=True), replace(outcome, joined=(), left=())]
