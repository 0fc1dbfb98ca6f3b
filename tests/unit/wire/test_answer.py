"""The leader's answer: a shared part and a part per member, always readable by stock Faust."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from faust.assignor.client_assignment import ClientMetadata

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.answer import (
    AnswerWriter,
    Stitch,
    actives_to_claim,
    decode_answer,
    read_directory,
)
from faust_assigner.wire.bounded import KEY, TOPICS, read_distribution
from faust_assigner.wire.directory import Directory

OWNER = np.array([0, 0, 1, 1], dtype=np.int64)
DIRECTORY = Directory(
    ("http://a", "http://b"), {"orders": OWNER, "log": OWNER}, (), frozenset({"log"})
)
ACTIVES = {"orders": [0, 1], "log": [0, 1]}
STANDBYS = {"log": [2]}


def writer(**more: object) -> AnswerWriter:
    """Return a writer of answers of generation 7."""
    return AnswerWriter(
        DIRECTORY, {"orders": 4, "log": 4}, **{"generation": 7, "is_uniform": True, **more}
    )


def test_our_member_reads_its_part_and_the_directory() -> None:
    """The answer has the assignment, the generation, the group ids and the directory of owners."""
    answer = decode_answer(writer().for_ours(ACTIVES, STANDBYS, "http://a", writes={"log": [1]}))
    assert {t: list(n) for t, n in answer.actives.items()} == ACTIVES
    assert {t: list(n) for t, n in answer.standbys.items()} == STANDBYS
    assert (answer.url, answer.generation, answer.is_uniform) == ("http://a", 7, True)
    assert answer.group_ids == {"orders": 4, "log": 4}
    assert {t: list(n) for t, n in answer.writes.items()} == {"log": [1]}
    assert read_directory(answer.directory).url_of("orders", 3) == "http://b"


@pytest.mark.parametrize("is_uniform", [True, False])
def test_a_member_learns_whether_every_member_uses_this_package(is_uniform: bool) -> None:
    """A member must not use this package's extensions if the group has a stock member."""
    told = writer(is_uniform=is_uniform).for_ours(ACTIVES, STANDBYS, "http://a")
    assert decode_answer(told).is_uniform is is_uniform


@pytest.mark.parametrize(("generation", "told"), [(-5, -1), (-1, -1), (0, 0)])
def test_an_answer_has_its_generation_or_none(generation: int, told: int) -> None:
    """-1 stands for no generation; lower numbers become -1."""
    answer = decode_answer(writer(generation=generation).for_ours(ACTIVES, STANDBYS, "http://a"))
    assert answer.generation == told


def test_a_stock_leaders_list_of_workers_has_a_bound() -> None:
    """The limit of URLs is the limit of topics."""
    urls: dict[str, dict[str, list[int]]] = {f"http://{n}": {} for n in range(TOPICS)}
    assert len(read_distribution(urls)) == TOPICS
    with pytest.raises(MetadataRefused, match="10001 URLs"):
        read_distribution({**urls, "http://x": {}})


def test_awaited_standbys_are_told_to_whom_they_concern() -> None:
    """The field lists the member's awaited standbys; answers for stock members do not have it."""
    told = writer().for_ours(ACTIVES, STANDBYS, "http://a", awaited={"log": [2]})
    assert {t: list(n) for t, n in decode_answer(told).awaited.items()} == {"log": [2]}
    plain = writer().for_ours(ACTIVES, STANDBYS, "http://a")
    assert decode_answer(plain).awaited == {}
    assert decode_answer(writer().for_stock(ACTIVES, STANDBYS, "http://a")).awaited == {}
    assert ClientMetadata.loads(zlib.decompress(told)).assignment.standbys == STANDBYS


def test_stock_members_get_the_distributions_in_full() -> None:
    """Faust's own class loads the answer and finds the whole cluster."""
    read = ClientMetadata.loads(zlib.decompress(writer().for_stock(ACTIVES, STANDBYS, "http://a")))
    assert read.assignment.actives == ACTIVES
    assert read.url == "http://a"
    assert read.changelog_distribution == {"http://a": {"log": [0, 1]}, "http://b": {"log": [2, 3]}}
    assert read.external_topic_distribution["http://b"] == {"orders": [2, 3]}
    assert read.topic_groups == {"orders": 4, "log": 4}


def test_stock_reads_even_the_answer_to_one_of_ours() -> None:
    """A static member that returns with stock Faust gets the answer for its former process."""
    read = ClientMetadata.loads(zlib.decompress(writer().for_ours(ACTIVES, STANDBYS, "http://a")))
    assert (read.assignment.actives, read.assignment.standbys, read.url) == (
        ACTIVES,
        STANDBYS,
        "http://a",
    )
    assert read.topic_groups == {"orders": 4, "log": 4}


def test_we_read_what_a_stock_leader_answers() -> None:
    """The answer has both distributions, but no generation and no directory."""
    answer = decode_answer(writer().for_stock(ACTIVES, STANDBYS, "http://a"))
    assert (answer.generation, answer.directory, answer.is_uniform) == (-1, b"", False)
    assert answer.changelog_distribution["http://b"] == {"log": [2, 3]}


def test_the_directory_can_be_left_out() -> None:
    """The assignment is complete without the directory."""
    answer = decode_answer(writer().for_ours(ACTIVES, STANDBYS, "http://a", with_directory=False))
    assert list(answer.actives["orders"]) == [0, 1]
    assert read_directory(answer.directory).urls == ()


def test_a_stitched_stream_is_plain_zlib() -> None:
    """Head and tail, compressed separately, decompress as a single stream with a valid checksum."""
    tail = bytes(range(256)) * 50
    stitch = Stitch(tail)
    for head in (b"", b"x", b"head " * 1000, tail):
        assert zlib.decompress(stitch.after(head)) == head + tail


def test_synthetic_actives_of_a_global_table_are_never_claims() -> None:
    """The claim is the written partitions of the changelog; after a stock leader it is empty."""
    given = {"orders": [0], "log": [0, 1, 2, 3]}
    ours = decode_answer(writer().for_ours(given, {}, "u", writes={"log": [2]}))
    assert {t: list(n) for t, n in actives_to_claim(["log"], ours).items()} == {
        "orders": [0],
        "log": [2],
    }
    stock = decode_answer(writer().for_stock(given, {}, "u"))
    assert {t: list(n) for t, n in actives_to_claim(["log"], stock).items()} == {"orders": [0]}


BOMB = zlib.compress(b'{"url": "' + b"x" * (16 << 20) + b'"}', 9)


@pytest.mark.parametrize(
    "raw",
    [
        None,
        b"",
        b"noise",
        zlib.compress(b"[]"),
        zlib.compress(b"{}"),
        BOMB,
        writer().for_ours(ACTIVES, {}, "u")[:-5],
        zlib.compress(
            json.dumps(
                {"assignment": {"actives": {"t": [-1]}, "standbys": {}}, "url": "u"}
            ).encode()
        ),
        zlib.compress(
            json.dumps({"assignment": {"actives": {}, "standbys": {}}, "url": "u", KEY: 5}).encode()
        ),
        zlib.compress(
            json.dumps(
                {
                    "assignment": {"actives": {}, "standbys": {}},
                    "url": "u",
                    "changelog_distribution": {"u": {"t": ["0"]}},
                }
            ).encode()
        ),
    ],
    ids=range(10),
)
def test_a_bad_answer_is_refused(raw: bytes | None) -> None:
    """Bombs, cuts and wrong types are refused and use at most 4 MiB of memory."""
    with pytest.raises(MetadataRefused):
        decode_answer(raw)


def test_each_kind_of_partition_is_read_back_by_the_topics_it_is_of() -> None:
    """Topics are named by index: the member's actives and standbys have different topics."""
    data = writer().for_ours(
        {"a": [0], "c": [0]}, {"b": [1], "c": [1]}, "http://a",
        writes={"c": [0]}, awaited={"b": [1]},
    )  # fmt: skip
    answer = decode_answer(data)
    assert {t: list(n) for t, n in answer.writes.items()} == {"c": [0]}
    assert {t: list(n) for t, n in answer.awaited.items()} == {"b": [1]}


def test_of_a_table_that_is_not_global_the_actives_are_claimed() -> None:
    """The list of written partitions is used for global tables only."""
    answer = decode_answer(
        writer().for_ours(ACTIVES, STANDBYS, "http://a", writes={"log": [1], "orders": [0]})
    )
    claims = {t: list(n) for t, n in actives_to_claim({"log"}, answer).items()}
    assert claims == {"orders": [0, 1], "log": [1]}


def test_an_answer_without_a_directory_part_is_read() -> None:
    """The member's part is complete; the directory is empty."""
    told = writer().for_ours(ACTIVES, STANDBYS, "http://a", with_directory=False)
    said = json.loads(zlib.decompress(told))
    said[KEY] = said[KEY].removesuffix(".")
    answer = decode_answer(zlib.compress(json.dumps(said).encode()))
    assert (answer.generation, answer.directory) == (7, b"")


def test_a_promise_may_be_of_a_topic_without_a_partition_here() -> None:
    """Promised topics are numbered among the topics of the group, not of this member."""
    told = writer(among=3).for_ours({"orders": [0]}, {}, "http://a", promised={"log": [2]})
    answer = decode_answer(told)
    assert (answer.among, {t: list(n) for t, n in answer.promised.items()}) == (3, {"log": [2]})


def test_a_stock_leaders_list_of_workers_has_only_urls() -> None:
    """A URL of the list has the same limits as the member's own URL."""
    stock = {
        "assignment": {"actives": {}, "standbys": {}},
        "url": "",
        "changelog_distribution": {"http://a b": {"log": [0]}},
    }
    with pytest.raises(MetadataRefused, match="url contains a blank"):
        decode_answer(zlib.compress(json.dumps(stock).encode()))
