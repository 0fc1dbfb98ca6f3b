"""Edge cases of ledgers: damaged compressed files, periods, paths, and topics without ids."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from faust_assigner.pipeline.ledgers import progress, rows
from faust_assigner.pipeline.ledgers.chunks import Chunk, LedgerDamaged, pack, read_lines
from faust_assigner.pipeline.ledgers.files import file_system, find_files
from faust_assigner.pipeline.ledgers.parse import parse_messages
from faust_assigner.pipeline.ledgers.period import SLACK, Period
from faust_assigner.pipeline.ledgers.progress import news
from faust_assigner.pipeline.ledgers.refusals import Refused
from faust_assigner.pipeline.schema import PARSED_ARROW
from faust_assigner.snapshots.changelog import Changelog, Extent
from tests.integration.spark.ledgers import DECISION, SAMPLE, good
from tests.unit.pipeline.ledgers.test_progress import Reader

START = datetime(2026, 11, 21, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "data", "readable"),
    [
        ("w.jsonl.gz", gzip.compress(b"one\n")[:10] + b"\xff" * 30, []),
        ("w.jsonl.gz", gzip.compress(b"one\n")[:15], [b"one"]),
        # An open line is not read, because its rest is missing.
        ("w.jsonl.gz", gzip.compress(b"one\ntwo\nthr")[:-8], [b"one", b"two"]),
        ("w.jsonl.xz", b"no xz at all", []),
        ("w.jsonl.bz2", b"no bz2 at all", []),
    ],
    ids=["a bad block", "cut off", "without its end", "no xz", "no bz2"],
)
def test_each_kind_of_damage_of_a_packed_file_is_told_with_its_place(
    tmp_path: Path, name: str, data: bytes, readable: list[bytes]
) -> None:
    """The file stays in the list of a period, and its reader counts the damage, after the lines before."""
    path, lines = tmp_path / name, list[bytes]()
    path.write_bytes(data)
    with pytest.raises(LedgerDamaged, match="not read further: ") as damage:
        lines.extend(line for _, line in read_lines(Chunk(str(path), 0, len(data))))
    assert lines == readable
    assert damage.value.position == sum(len(line) + 1 for line in readable)
    found = find_files([str(path)])
    assert Period(until=START).files(found) == found


@pytest.mark.parametrize(("seconds", "kept"), [(-0.001, False), (0.0, False), (0.001, True)])
def test_a_file_that_begins_an_hour_after_the_period_is_not_read(
    tmp_path: Path, seconds: float, kept: bool
) -> None:
    """A file that begins exactly at the hour is after the period."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(good({**SAMPLE, "ts": "2026-11-21T20:00:00.000Z"}).data)
    until = START - SLACK + timedelta(seconds=seconds)
    assert bool(Period(until=until).files(find_files([str(path)]))) is kept


def test_several_paths_are_listed_and_a_missing_one_is_left_out(tmp_path: Path) -> None:
    """A visit reads the other paths; the files are in the order of their names."""
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "w.jsonl").write_bytes(b"one\n")
    paths = [str(tmp_path / name) for name in ("missing", "b", "a")]
    found, all_answered = progress._listed(paths)
    assert [file.name for file in found] == [f"{tmp_path}/{name}/w.jsonl" for name in "ab"]
    assert not all_answered
    assert progress._listed(paths[1:])[1]
    assert [chunk.name for chunk in news(paths, {}, {}).chunks] == [file.name for file in found]


def test_a_file_whose_size_is_the_time_of_another_is_read(tmp_path: Path) -> None:
    """The size is compared with the size, and the time with the time."""
    path, reader = tmp_path / "w.jsonl", Reader(tmp_path)
    path.write_bytes(b"1\n" * 5)
    os.utime(path, (12.0, 12.0))
    assert reader.visit() == [("w.jsonl", 0, 10)]
    path.write_bytes(b"1\n" * 6)
    os.utime(path, (12.0, 12.0))
    assert reader.visit() == [("w.jsonl", 10, 12)]
    os.utime(path, (10.0, 10.0))
    assert reader.visit() == []
    assert reader.state["files"][str(path)]["modified"] == "10.0"


def test_a_topic_without_ids_of_which_the_last_partition_fell_is_read_again_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic with an id is not read again: a lagging broker returned the lower end."""
    extents = {0: Extent(0, 7), 1: Extent(0, 400)}
    for topic_id, spans in ((None, [(0, 0, 7), (1, 0, 400)]), ("id", [(0, 5, 7)])):
        name = "ledger" if topic_id is None else "ledger:id"
        log = Changelog("ledger", extents, 0, topic_id)
        monkeypatch.setattr(progress, "topic_now", lambda _, log=log: log)
        before = {"topics": {name: {"0": 5, "1": 1_000}}}
        found = news(["kafka://a:1/ledger"], before, {})
        assert [(one.partition, one.start, one.end) for one in found.spans] == spans


def test_messages_of_two_files_keep_their_places_and_an_empty_batch_has_no_rows() -> None:
    """The offset is the line number; a tombstone has no row."""
    given = {
        "file": ["t/0", "t/1", "t/1"],
        "pos": [7, 8, 9],
        "value": [good(DECISION).data, None, good(SAMPLE).data],
    }
    schema = pa.schema([("file", pa.string()), ("pos", pa.int64()), ("value", pa.binary())])
    batches = [pa.RecordBatch.from_pydict(given, schema=schema)]
    batches.append(batches[0].slice(0, 0))
    first, second = parse_messages(batches)
    told = [(row["file"], row["chunk"], row["pos"], row["line"]) for row in first.to_pylist()]
    assert told == [("t/0", 0, 7, 7), ("t/1", 0, 9, 9)]
    assert (second.num_rows, second.schema) == (0, PARSED_ARROW)


def test_opening_a_file_counts_as_four_kilobytes() -> None:
    """Two tiny files have the weight of a file of that size."""
    tiny = [Chunk(f"f{n}", 0, 0) for n in range(4)]
    assert [len(load) for load in pack([*tiny, Chunk("big", 100, 100 + 8_192)], 2)] == [2, 3]
    wide = [*tiny, Chunk("big", 0, 3 * 4_096)]
    assert [len(load) for load in pack(wide, 2)] == [1, 4]


def test_a_link_to_a_listed_file_is_listed_under_the_files_first_name(tmp_path: Path) -> None:
    """The order of names decides."""
    (tmp_path / "b.jsonl").touch()
    (tmp_path / "z.jsonl").symlink_to(tmp_path / "b.jsonl")
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "a.jsonl").symlink_to(tmp_path / "b.jsonl")
    for paths in ([tmp_path], [tmp_path / "b.jsonl", tmp_path / "y"]):
        found = find_files([str(path) for path in paths])
        assert [file.name for file in found] == [str(tmp_path / "b.jsonl")]


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("s3a://b/x", "s3://b/x"),
        ("s3n://b/x", "s3://b/x"),
        ("s3://b/x", "s3://b/x"),
        ("s3b://b/x", "s3b://b/x"),
        ("/s3a://b/x", "/s3a://b/x"),
    ],
)
def test_hadoops_names_of_s3_are_read_as_s3(
    monkeypatch: pytest.MonkeyPatch, url: str, asked: str
) -> None:
    """Only the scheme at the beginning counts."""
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda given: given)
    assert file_system(url) == asked


def test_a_damaged_file_is_refused_at_the_line_after_its_last_readable_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A blank line counts in the numbers alone; the whole file is read, by its name and inode."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"seven b")
    asked: list[Chunk] = []

    def read(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
        asked.append(chunk)
        yield from enumerate((good(DECISION).data, b"", b"no row", good(SAMPLE).data))
        raise LedgerDamaged(99, "not read further: torn")

    monkeypatch.setattr(rows, "read_lines", read)
    refused = Refused(keep=9)
    found = list(rows.accepted_rows([str(path)], refused))
    assert [row.table for row in found] == ["decision", "partition_sample"]
    assert asked == [Chunk(str(path), 0, 7)]
    assert asked[0].inode == path.stat().st_ino
    (first, torn) = refused.kept
    assert (first[:2], torn) == ((str(path), 3), (str(path), 5, "not read further: torn"))
    assert (refused.accepted, refused.lines) == (2, 2)
