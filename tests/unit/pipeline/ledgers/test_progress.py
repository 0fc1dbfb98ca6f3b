"""Progress in files and topics: only new lines are read; a new file is read from its start."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers import progress
from faust_assigner.pipeline.ledgers.chunks import read_lines
from faust_assigner.pipeline.ledgers.files import LedgerFile
from faust_assigner.pipeline.ledgers.progress import Visit, news
from faust_assigner.pipeline.ledgers.topic_source import TopicSource
from faust_assigner.snapshots.changelog import Changelog, Extent

State = dict[str, Any]


class Reader:
    """Visits to a folder, each from the state of the previous visit."""

    def __init__(self, *paths: Path) -> None:
        self.paths = [str(path) for path in paths]
        self.state: State = {}

    def visit(self) -> list[tuple[str, int, int]]:
        """Return the (file, start, end) of all chunks read in this visit."""
        found = news(self.paths, self.state, {})
        self.state = found.state(lines_of(found))
        return sorted((Path(chunk.name).name, chunk.start, chunk.end) for chunk in found.chunks)


def lines_of(visit: Visit) -> dict[str, int]:
    """Return the number of lines, counted like a reader of the chunks."""
    return {chunk.name: sum(1 for _ in read_lines(chunk)) for chunk in visit.chunks}


def test_news_follow_growth_and_open_lines(tmp_path: Path) -> None:
    """An open line is read again from its start, and counted once."""
    path, reader = tmp_path / "w.jsonl", Reader(tmp_path)
    assert reader.visit() == []
    path.write_bytes(b"one\ntw")
    assert reader.visit() == [("w.jsonl", 0, 6)]
    assert reader.state["files"][str(path)]["lines"] == 1
    assert reader.visit() == []
    path.write_bytes(b"one\ntwo\nthree\n")
    assert reader.visit() == [("w.jsonl", 4, 14)]
    assert reader.state["files"][str(path)]["lines"] == 3


def test_a_rotated_file_is_known_under_its_new_name(tmp_path: Path) -> None:
    """Its lines are not read again; a new file under the old name is read from its start."""
    path, reader = tmp_path / "w.jsonl", Reader(tmp_path)
    path.write_bytes(b"one\n")
    reader.visit()
    with path.open("ab") as file:
        file.write(b"two\n")
    path.rename(tmp_path / "w.jsonl.1")
    path.write_bytes(b"another file that is longer than the first\n")
    assert reader.visit() == [("w.jsonl", 0, 43), ("w.jsonl.1", 4, 8)]
    path.write_bytes(b"short\n")
    assert reader.visit() == [("w.jsonl", 0, 6)]
    path.unlink()
    assert reader.visit() == []


def test_a_file_is_known_under_the_name_of_an_older_rotated_file(tmp_path: Path) -> None:
    """The second rotation renames two files: each keeps the state of its own lines."""
    path, reader = tmp_path / "w.jsonl", Reader(tmp_path)
    first, second = (tmp_path / f"w.jsonl.{number}" for number in (1, 2))
    first.write_bytes(b"1\n")
    path.write_bytes(b"20\n21\n")
    reader.visit()
    first.rename(second)
    path.rename(first)
    with first.open("ab") as file:
        file.write(b"22\n")
    path.write_bytes(b"30\n")
    assert reader.visit() == [("w.jsonl", 0, 3), ("w.jsonl.1", 6, 9)]
    files = reader.state["files"]
    assert {Path(name).name: state["lines"] for name, state in files.items()} == {
        "w.jsonl": 1,
        "w.jsonl.1": 3,
        "w.jsonl.2": 1,
    }


def test_packed_file_that_grows_is_read_again_whole(tmp_path: Path) -> None:
    """The file can be read only from its start, so its lines are counted again."""
    path, reader = tmp_path / "a.jsonl.gz", Reader(tmp_path)
    path.write_bytes(gzip.compress(b"one\n"))
    reader.visit()
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert [start for _, start, _ in reader.visit()] == [0]
    assert reader.state["files"][str(path)]["lines"] == 2
    assert reader.visit() == []


def test_file_that_only_got_a_newer_date_is_not_read_again(tmp_path: Path) -> None:
    """The head and the size decide, not the clock."""
    path, reader = tmp_path / "w.jsonl", Reader(tmp_path)
    path.write_bytes(b"one\n")
    reader.visit()
    path.touch()
    assert reader.visit() == []
    assert reader.state["files"][str(path)]["lines"] == 1


def test_a_file_that_was_replaced_by_one_of_equal_size_is_read_from_its_start(
    tmp_path: Path,
) -> None:
    """The modification time triggers a comparison of the head."""
    path, reader = tmp_path / "w.jsonl", Reader(tmp_path)
    path.write_bytes(b"one\n")
    reader.visit()
    path.write_bytes(b"two\n")
    os.utime(path, (1.0, 1.0))
    assert reader.visit() == [("w.jsonl", 0, 4)]
    assert reader.state["files"][str(path)]["lines"] == 1


@pytest.mark.parametrize(("name", "whole"), [("w.jsonl", b"one\ntw"), ("w.jsonl.gz", b"")])
def test_an_open_line_and_a_packed_file_are_not_read_again_for_a_newer_date(
    tmp_path: Path, name: str, whole: bytes
) -> None:
    """The lines would be counted twice."""
    path, reader = tmp_path / name, Reader(tmp_path)
    path.write_bytes(whole or gzip.compress(b"one\n"))
    reader.visit()
    before = reader.state["files"][str(path)]["lines"]
    os.utime(path, (1.0, 1.0))
    assert reader.visit() == []
    assert reader.state["files"][str(path)]["lines"] == before == 1


def test_a_file_that_was_cut_behind_its_head_is_read_from_its_start(tmp_path: Path) -> None:
    """The head is the same, but the known position is behind the end."""
    path, reader = tmp_path / "w.jsonl", Reader(tmp_path)
    path.write_bytes(b"x\n" * 1000)
    reader.visit()
    path.write_bytes(b"x\n" * 700)
    assert reader.visit() == [("w.jsonl", 0, 1400)]


def test_a_file_without_an_inode_is_not_another_file_with_the_same_head() -> None:
    """Object stores have no inodes, and the workers' files there begin alike."""
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.pipe_file("/inodes/a.jsonl", b"one\n")
    before = news(["memory://inodes"], {}, {})
    fs.pipe_file("/inodes/b.jsonl", b"one\ntwo\n")
    (chunk,) = news(["memory://inodes"], before.state(lines_of(before)), {}).chunks
    assert (chunk.name.rpartition("/")[2], chunk.start, chunk.end) == ("b.jsonl", 0, 8)


def test_chunks_of_news_have_the_inode_of_their_file(tmp_path: Path) -> None:
    """The reader finds a rotated file under its new name by the inode."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"one\n")
    (chunk,) = news([str(tmp_path)], {}, {}).chunks
    assert chunk.inode == path.stat().st_ino


def test_a_file_that_is_gone_since_the_listing_is_left_to_the_next_visit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other files are read."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"one\n")
    listed = [LedgerFile(str(tmp_path / "gone.jsonl"), 4), LedgerFile(str(path), 4)]
    monkeypatch.setattr(progress, "_listed", lambda paths: (listed, True))
    found = news([str(tmp_path)], {}, {})
    assert [chunk.name for chunk in found.chunks] == [str(path)]
    assert list(found.files) == [str(path)]


def test_a_file_that_rotates_while_a_visit_is_planned_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The position in the new file was recorded with the size of the old file.

    The next visit began at this position if the new file had grown beyond that size.
    """
    path, reader, seen = tmp_path / "w.jsonl", Reader(tmp_path), list[bytes]()

    def lines() -> list[bytes]:
        found = news(reader.paths, reader.state, {})
        reader.state = found.state(lines_of(found))
        return [line for chunk in found.chunks for _, line in read_lines(chunk)]

    path.write_bytes(b"old 1\n")
    (tmp_path / "v.jsonl").write_bytes(b"v\n")
    assert lines() == [b"v", b"old 1"]
    path.write_bytes(b"old 1\nold 2\n")
    (tmp_path / "v.jsonl").write_bytes(b"v\nv\n")
    real = progress.read_head

    def rotating(name: str, count: int) -> bytes:
        if name == str(path) and not (tmp_path / "w.jsonl.1").exists():
            path.rename(tmp_path / "w.jsonl.1")
            path.write_bytes(b"new 1\n")
        return real(name, count)

    monkeypatch.setattr(progress, "read_head", rotating)
    seen += lines()
    with path.open("ab") as file:
        file.write(b"new 2 is long\n")
    seen += lines()
    assert set(seen) == {b"v", b"old 2", b"new 1", b"new 2 is long"}
    assert len(seen) == 4


def test_records_that_retention_removed_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known offset is before the topic's first record."""
    log = Changelog("ledger", {0: Extent(20, 30)}, 0, "a")
    monkeypatch.setattr(progress, "topic_now", lambda _: log)
    found = news(["kafka://a:1/ledger"], {"topics": {"ledger:a": {"0": 10}}}, {})
    assert [(span.start, span.end) for span in found.spans] == [(20, 30)]


def test_files_that_are_gone_are_forgotten_once_there_is_news(tmp_path: Path) -> None:
    """Otherwise the state would keep all names; without new lines the state stays."""
    for number in range(50):
        (tmp_path / f"w.jsonl.{number}").write_bytes(b"x\n")
    reader = Reader(tmp_path)
    reader.visit()
    first = reader.state
    for number in range(49):
        (tmp_path / f"w.jsonl.{number}").unlink()
    assert reader.visit() == []
    assert reader.state == first
    (tmp_path / "w.jsonl").write_bytes(b"y\n")
    assert reader.visit() == [("w.jsonl", 0, 2)]
    assert [Path(name).name for name in reader.state["files"]] == ["w.jsonl", "w.jsonl.49"]


def test_nothing_is_forgotten_while_a_path_does_not_answer(tmp_path: Path) -> None:
    """A briefly missing mount returns with its files: they are not read again."""
    here, mount = tmp_path / "here", tmp_path / "mount"
    for folder in (here, mount):
        folder.mkdir()
        (folder / "w.jsonl").write_bytes(b"x\n")
    reader = Reader(here, mount)
    reader.visit()
    known = set(reader.state["files"])
    mount.rename(tmp_path / "away")
    (here / "w.jsonl").write_bytes(b"x\ny\n")
    assert reader.visit() == [("w.jsonl", 2, 4)]
    assert set(reader.state["files"]) == known


@pytest.mark.parametrize(
    ("before", "now", "spans"),
    [
        ((None, [1000]), (None, [1400]), [(0, 1000, 1400)]),
        (("a", [1000]), ("a", [1400]), [(0, 1000, 1400)]),
        (("a", [1000]), ("b", [400]), [(0, 0, 400)]),
        (("a", [1000]), ("b", [1400]), [(0, 0, 1400)]),
        ((None, [1000, 5]), (None, [400, 7]), [(0, 0, 400), (1, 0, 7)]),
        (("a", [1000]), ("a", [400]), []),
        (("a", [10]), ("a", [10, 4]), [(1, 0, 4)]),
    ],
    ids=[
        "grown",
        "grown, with ids",
        "another topic",
        "another topic that has outgrown the first",
        "another topic, no ids",
        "cut off by a failed leader",
        "a new partition",
    ],
)
def test_a_topic_that_was_created_again_is_read_from_its_first_record(
    monkeypatch: pytest.MonkeyPatch, before: Any, now: Any, spans: Any
) -> None:
    """The topic's id shows it; without ids, an end before the read offset."""
    state = visits(monkeypatch, before, "kafka://a:1/ledger", {})[1]
    found, after = visits(monkeypatch, now, "kafka://a:1/ledger", state)
    assert found == spans
    assert visits(monkeypatch, now, "kafka://a:1/ledger", after)[0] == []


def test_an_end_that_lags_behind_takes_no_offset_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker without the last records answers: no record is read twice."""
    state = visits(monkeypatch, ("a", [10]), "kafka://a:1/ledger", {})[1]
    found, state = visits(monkeypatch, ("a", [7]), "kafka://a:1/ledger", state)
    assert found == []
    assert visits(monkeypatch, ("a", [11]), "kafka://a:1/ledger", state)[0] == [(0, 10, 11)]


def test_a_partition_that_is_added_is_read_from_its_first_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty partition is stored with end 0; a later start would skip records."""
    state = visits(monkeypatch, ("a", [5, 9]), "kafka://a:1/ledger", {})[1]
    found, state = visits(monkeypatch, ("a", [5, 9, 0]), "kafka://a:1/ledger", state)
    assert found == []
    assert visits(monkeypatch, ("a", [5, 9, 3]), "kafka://a:1/ledger", state)[0] == [(2, 0, 3)]


def test_another_list_of_brokers_is_the_same_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic's id stays after a broker joins the list."""
    state = visits(monkeypatch, ("a", [10]), "kafka://a:1/ledger", {})[1]
    assert visits(monkeypatch, ("a", [12]), "kafka://a:1,b:2/ledger", state)[0] == [(0, 10, 12)]


def visits(
    monkeypatch: pytest.MonkeyPatch, topic: Any, url: str, state: State
) -> tuple[list[tuple[int, int, int]], State]:
    """Return the spans read in a visit to a topic of (id, ends), and the state after the visit."""
    identity, ends = topic
    extents = {number: Extent(0, end) for number, end in enumerate(ends)}
    log = Changelog("ledger", extents, 0, identity)
    monkeypatch.setattr(progress, "topic_now", lambda _: log)
    found = news([url], state, {})
    spans = [(span.partition, span.start, span.end) for span in found.spans]
    return spans, found.state({})


def test_a_period_begins_at_the_first_record_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search starts an hour earlier for skewed clocks; an older partition is skipped."""
    from datetime import UTC, datetime, timedelta

    from faust_assigner.pipeline.ledgers.period import SLACK, Period

    since, asked = datetime(2026, 11, 21, 12, tzinfo=UTC), []
    log = Changelog("ledger", {0: Extent(0, 50), 1: Extent(5, 9)}, 0, "a")
    monkeypatch.setattr(progress, "topic_now", lambda _: log)

    def offsets(source: TopicSource, log: Changelog, moment: datetime) -> dict[int, int]:
        asked.append(since - moment)
        return {0: 40, 1: 9}

    monkeypatch.setattr(progress, "offsets_since", offsets)
    source = TopicSource(Cluster("a:1"), "ledger")
    found = progress.plan_full_visit([source.url], Period(since), {})
    assert [(span.partition, span.start, span.end) for span in found.spans] == [(0, 40, 50)]
    assert asked == [SLACK]
    assert timedelta(hours=1) == SLACK
