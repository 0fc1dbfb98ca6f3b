"""Parts of the metadata that are decoded or compressed once, and the exact runs of decoded sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from faust_assigner.wire import answer as room
from faust_assigner.wire.answer import AnswerWriter, Stitch
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import JoinData, Memo, decode_join, encode_join
from faust_assigner.wire.runs import Reader, Runs, Writer


def test_the_common_parts_of_two_members_are_decoded_once() -> None:
    """The second member's values are the objects in the memo; other fields are its own."""
    topics = ("c", "a", "b")
    common: dict[str, Any] = {
        "software": "1.2",
        "group_ids": {"a": 3, "b": 4, "c": 3},
        "changelogs": frozenset({"a", "c"}),
        "globals_": {"a": True, "c": False},
    }
    one = JoinData("http://one", {"a": [0]}, instance_id="i1", generation=5, **common)
    two = JoinData("http://two", {"a": [1]}, instance_id="i2", generation=6, **common)
    memo: Memo = {}
    first = decode_join(encode_join(one, topics), topics, memo=memo)
    assert {(tag, key) for tag, _, key in memo} == {
        (tag, ("a", "b", "c")) for tag in (8, 9, 10, 11)
    }
    before = dict(memo)
    second = decode_join(encode_join(two, topics), topics, memo=memo)
    assert memo == before
    assert first.group_ids is second.group_ids
    assert first.globals_ is second.globals_
    assert (first.software, second.software) == ("1.2", "1.2")
    assert (second.group_ids, second.changelogs, second.globals_) == (
        common["group_ids"],
        common["changelogs"],
        common["globals_"],
    )
    assert [
        (d.url, d.instance_id, d.generation, list(d.actives["a"])) for d in (first, second)
    ] == [("http://one", "i1", 5, [0]), ("http://two", "i2", 6, [1])]


@pytest.mark.parametrize(
    ("numbers", "runs"),
    [
        ([0, 1, 5, 9, 13], Runs([0, 5, 9, 13], [2, 1, 1, 1])),
        ([3, 7, 8, 20, 21, 40, 50, 60], Runs([3, 7, 20, 40, 50, 60], [1, 2, 2, 1, 1, 1])),
        ([2, 3, 4, 300, 301, 302], Runs([2, 300], [3, 3])),
        ([], Runs([], [])),
    ],
)
def test_a_decoded_set_has_the_fewest_runs(numbers: list[int], runs: Runs) -> None:
    """Adjacent numbers are one run in both forms of the bytes."""
    out = Writer()
    out.numbers(numbers)
    assert Reader(bytes(out.data)).runs() == runs


def test_the_common_part_of_stock_answers_is_compressed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three tails: our members with and without the directory, and the stock members."""
    tails: list[bytes] = []

    class Counted(Stitch):
        def __init__(self, tail: bytes) -> None:
            tails.append(tail)
            super().__init__(tail)

    monkeypatch.setattr(room, "Stitch", Counted)
    owners: Mapping[str, Any] = {
        "t": np.array([0, 1], dtype=np.int64),
        "log": np.array([1, 1, 0], dtype=np.int64),
    }
    directory = Directory(urls=("u1", "u2"), owners=owners, changelogs=frozenset({"log"}))
    writer = AnswerWriter(directory, {"t": 4, "log": 6}, generation=3, is_uniform=False)
    for url in ("u1", "u2", "u3"):
        writer.for_stock({"t": [0]}, {}, url)
        writer.for_ours({"t": [1]}, {}, url)
        writer.for_ours({"t": [1]}, {}, url, with_directory=False)
    assert len(tails) == 3
    assert writer.shared_bytes == len(Stitch(tails[1]))
    assert tails[0] == (
        b',"changelog_distribution":{"u1":{"log":[2]},"u2":{"log":[0,1]}},'
        b'"external_topic_distribution":{"u1":{"t":[0]},"u2":{"t":[1]}},'
        b'"topic_groups":{"log":6,"t":4}}'
    )
