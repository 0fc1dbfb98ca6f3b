"""Whole states: read positions, a group, and refused lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import Row
from faust_assigner.model import Member
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers import progress, rows
from faust_assigner.pipeline.ledgers.chunks import Chunk
from faust_assigner.pipeline.ledgers.current import GroupState, current_here
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.progress import (
    FilePosition,
    OffsetSpan,
    Visit,
    news,
    plan_full_visit,
)
from faust_assigner.pipeline.ledgers.refusals import (
    EmptyLedger,
    Refused,
    Tolerance,
    TooManyRefused,
    refuse_empty,
)
from faust_assigner.pipeline.ledgers.topic_source import TopicSource
from faust_assigner.snapshots.changelog import Changelog, Extent

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at(hours: float) -> datetime:
    """Return a time after noon."""
    return NOON + timedelta(hours=hours)


def row(table: str, moment: datetime | None, **more: Any) -> Row:
    """Return a row of a table."""
    column = {"decision": "ts", "recovery": "started", "partition_sample": "ts"}.get(table)
    told = {"group_id": "g", "decision_id": "d", "ended": at(99)}
    return Row(table, {**told, **({column: moment} if column else {}), **more})


# -- read positions -------------------------------------------------------------------------------


def test_the_whole_state_of_a_visit() -> None:
    """Lines add up over visits; unfinished lines do not count, unread files keep their count."""

    def read(at: int, size: int, lines: int = 0) -> FilePosition:
        return FilePosition(at, size, "h", 3, "m", 7, lines)

    visit = Visit(
        files={"c": read(5, 9), "b": read(9, 9), "a": read(4, 4, 12), "d": read(2, 8, 30)},
        lines_before={"c": 100, "b": 10, "a": 11},
        topics={"t": {"0": 3}},
    )
    found = visit.state({"c": 7, "b": 5})
    assert list(found["files"]) == ["a", "b", "c", "d"]
    assert {name: each["lines"] for name, each in found["files"].items()} == {
        "a": 11,
        "b": 15,
        "c": 106,
        "d": 30,
    }
    assert found["files"]["c"] == {
        **{"at": 5, "size": 9, "head": "h", "head_bytes": 3},
        **{"modified": "m", "inode": 7, "lines": 106},
    }
    assert found["topics"] == {"t": {"0": 3}}


@pytest.mark.parametrize(("chunks", "spans", "reads"), [(1, 0, True), (0, 1, True), (0, 0, False)])
def test_a_visit_reads_if_it_has_a_chunk_or_a_span(chunks: int, spans: int, reads: bool) -> None:
    """A list of files alone is no new content."""
    source = TopicSource(Cluster("a:1"), "t")
    visit = Visit(
        chunks=[Chunk("f", 0, 1)] * chunks,
        spans=[OffsetSpan(source, 0, 0, 1)] * spans,
        files={"f": FilePosition(0, 0, "", 0, "")},
    )
    assert bool(visit) is reads


def test_a_whole_visit_has_all_files_of_its_period_and_all_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The visit has each file's inode and the client's properties."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_bytes(b"x" * 5)
    monkeypatch.setattr(
        Period, "files", lambda self, found: [file for file in found if "b.jsonl" in file.name]
    )
    asked: list[TopicSource] = []

    def look(source: TopicSource) -> Changelog:
        asked.append(source)
        return Changelog(source.topic, {1: Extent(4, 9), 0: Extent(2, 2)}, 0, None)

    monkeypatch.setattr(progress, "topic_now", look)
    found = plan_full_visit(
        ["kafka://a:1/t", str(tmp_path), "kafka://a:1/u"], Period(), {"client.id": "me"}
    )
    path = tmp_path / "b.jsonl"
    assert found.chunks == [Chunk(str(path), 0, 5, path.stat().st_ino)]
    assert [source.cluster.properties for source in asked] == 2 * [{"client.id": "me"}]
    assert found.spans == [OffsetSpan(source, 1, 4, 9) for source in asked]
    assert found.topics == {"t": {"0": 2, "1": 9}, "u": {"0": 2, "1": 9}}


def test_news_of_two_topics_keep_each_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic without an entry is read from its start; partitions are in order."""
    logs = {
        "t": Changelog("t", {1: Extent(0, 9), 0: Extent(3, 8)}, 0, "id"),
        "u": Changelog("u", {0: Extent(1, 4)}, 0, "id-u"),
    }
    monkeypatch.setattr(progress, "topic_now", lambda source: logs[source.topic])
    before = {"topics": {"t:id": {"0": 5, "1": 9}, "other": {"0": 1}}}
    found = news(["kafka://a:1/t", "kafka://a:1/u"], before, {})
    told = [(each.source.topic, each.partition, each.start, each.end) for each in found.spans]
    assert told == [("t", 0, 5, 8), ("u", 0, 1, 4)]
    assert found.topics == {"t:id": {"0": 8, "1": 9}, "u:id-u": {"0": 4}}


# -- the current state ----------------------------------------------------------------------------


def decided(name: str, ts: datetime, group: str = "g", **more: Any) -> Row:
    """Return a decision over two members."""
    members = [
        {"member_id": "b", "rack": "r2", "capacity": 2.0, "instance_id": "i-b"},
        {"member_id": "a", "rack": None, "capacity": 1.0},
    ]
    told = {"group_id": group, "decision_id": name, "ts": ts, "config": {}, "members": members}
    return Row("decision", {**told, **more})


def put(name: str, topic: str, number: int, owner: str, role: str = "active", **more: Any) -> Row:
    """Return a placement."""
    told = {"group_id": "g", "decision_id": name, "topic": topic, "partition": number}
    return Row("assignment", {**told, "member_id": owner, "role": role, **more})


def test_the_whole_state_of_two_groups() -> None:
    """Groups, members and topics are sorted; a repeated decision's later line counts."""
    given = [
        decided("d", at(2), "h"),
        put("d", "log", 1, "a"),
        put("d", "log", 1, "b", "standby"),
        put("d", "in", 1, "a"),
        put("d", "in", 0, "b"),
        put("d", "z", 0, "b", group_id="h"),
        put("old", "in", 9, "a"),
        decided("d", at(3), config={"weightless": "y x"}),
        decided("d", at(1), config={"weightless": "never"}),
        decided("old", at(0)),
    ]
    topics_ = ["in", "log"]
    common = {"generation": 1, "rack_id": None, "instance_id": None, "capacity": 1.0}
    for order in (given, given[::-1]):
        first, second = current_here(order)
        assert first == GroupState(
            "g",
            "d",
            (
                Member("a", topics_, actives={"in": {1}, "log": {1}}, standbys={}, **common),
                Member(
                    "b",
                    topics_,
                    actives={"in": {0}},
                    standbys={"log": {1}},
                    generation=1,
                    rack_id="r2",
                    instance_id="i-b",
                    capacity=2.0,
                ),
            ),
            {"in": 2, "log": 2},
            ("log",),
            ("x", "y"),
            at(3),
        )
        assert list(first.partitions) == topics_
        assert [list(member.topics) for member in first.members] == [topics_, topics_]
        assert (second.group_id, second.at, second.partitions) == ("h", at(2), {"z": 1})
    assert len(current_here(given)) == 2
    assert [each.decision_id for each in current_here(given, 2)] == ["d", "old", "d"]


# -- refused lines --------------------------------------------------------------------------------


def test_counts_are_told_with_the_first_refused_line() -> None:
    """Without refused lines the text has only the numbers."""
    refused = Refused(accepted=1_500, keep=1)
    assert str(refused) == "0 of 1,500 lines refused"
    refused.refuse("f", 7, "why")
    refused.refuse("g", 8, "other")
    assert str(refused) == "2 of 1,502 lines refused, the first: f:7: why"
    assert refused.kept == [("f", 7, "why")]


@pytest.mark.parametrize(
    ("tolerance", "lines", "text"),
    [
        (
            Tolerance(most=2_000),
            2_001,
            "2,001 of 4,001 lines refused; at most 2,000 may be refused",
        ),
        (Tolerance(most=2_000), 2_000, ""),
        (Tolerance(share=0.25), 666, ""),
        (Tolerance(share=0.25), 667, "667 of 2,667 lines refused; at most 666 may be refused"),
        (Tolerance(share=0.0), 1, "at most 0 may be refused"),
        (Tolerance(most=0), 0, ""),
        (Tolerance(), 9_999, ""),
    ],
)
def test_a_tolerance_takes_so_many_lines(tolerance: Tolerance, lines: int, text: str) -> None:
    """The error has both numbers."""
    refused = Refused(accepted=2_000, lines=lines)
    if not text:
        tolerance.check(refused)
        return
    with pytest.raises(TooManyRefused) as failure:
        tolerance.check(refused)
    assert text in str(failure.value)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1e3", "%", "101%", "1 0"])
def test_another_text_is_no_tolerance(text: str) -> None:
    """Blanks around a number are permitted."""
    with pytest.raises(ConfigError, match="--max-refused"):
        Tolerance.parse(text)
    assert Tolerance.parse(" 7 ") == Tolerance(most=7)
    assert Tolerance.parse("0%") == Tolerance(share=0.0)
    assert Tolerance.parse(None) == Tolerance()


def test_an_empty_ledger_is_refused_with_its_counts_and_the_result_that_stays() -> None:
    """A ledger with a single accepted line is not empty."""
    refuse_empty(Refused(accepted=1, lines=9), wanted=True, replaces="out")
    with pytest.raises(EmptyLedger) as failure:
        refuse_empty(Refused(lines=2, first="f:1: why"), wanted=None, replaces="out")
    assert str(failure.value) == (
        "no line of the ledgers is accepted: 2 of 2 lines refused, the first: f:1: why; out stays as it was "
        "(--allow-empty permits this)"
    )


def test_a_ledger_is_read_with_its_period_and_its_tolerance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The given counter counts; rows outside the period are read and dropped."""
    asked: list[Any] = []
    given = [row("partition_sample", at(hours)) for hours in (0, 1)]

    def accepted(*args: Any) -> Any:
        asked.append(args)
        args[1].accepted += 2
        args[1].lines += 3
        return iter(given)

    monkeypatch.setattr(rows, "accepted_rows", accepted)
    counter, period = Refused(), Period(at(1))
    found = rows.read_here(["l"], Tolerance(most=3), period, {"a": "b"}, refused=counter)
    assert found == ([given[1]], counter)
    assert asked == [(["l"], counter, period, {"a": "b"})]
    assert counter.accepted == 2
    with pytest.raises(TooManyRefused):
        rows.read_here(["l"], Tolerance(most=2))
    assert rows.read_here(["l"], Tolerance())[0] == given
