"""The places of lines in files: limits of length, damage, closing rows, and the first time of a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.ledgers import chunks, sources
from faust_assigner.pipeline.ledgers.chunks import (
    Chunk,
    LedgerDamaged,
    cut,
    pack,
    read_head,
    read_lines,
)
from faust_assigner.pipeline.ledgers.files import find_files
from faust_assigner.pipeline.ledgers.parse import parse_chunks
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.progress import news, plan_full_visit
from tests.integration.spark.ledgers import DECISION, SAMPLE, good

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_line_above_the_limit_is_cut_wherever_its_block_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last piece adds nothing, and an unfinished last line is cut too."""
    monkeypatch.setattr(chunks, "MAX_LINE_BYTES", limit := 1_000)
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 300)
    path = tmp_path / "w.jsonl"
    long, last = 2 * limit + 170, limit + 77
    path.write_bytes(b"x" * long + b"\nnext\n" + b"y" * last)
    found = list(read_lines(Chunk(str(path), 0, path.stat().st_size)))
    assert [(at, len(line), line[:4]) for at, line in found] == [
        (0, limit + 1, b"xxxx"),
        (long + 1, 4, b"next"),
        (long + 6, limit + 1, b"yyyy"),
    ]


def test_all_chunks_of_a_file_have_its_inode_and_equal_chunks_keep_a_fixed_order() -> None:
    """The inode of a packed file finds it after a rotation; the order of a listing has no effect."""
    for name in ("w.jsonl.gz", "w.jsonl"):
        assert [one.inode for one in cut(name, 0, 19, 10, inode=7)] == [7] * (2 - ("gz" in name))
    listed = [Chunk(name, 0, 10) for name in "dbca"]
    loads = [tuple(one.name for one in load) for load in pack(listed, 2)]
    assert loads == [("a", "c"), ("b", "d")]


def test_each_chunk_ends_with_a_row_that_counts_its_lines() -> None:
    """A damaged file has a further line at the position of the damage; an empty chunk has no line."""
    parts = [Chunk("a", 0, 90), Chunk("a", 90, 200), Chunk("b.gz", 0, 50)]

    def read(chunk: Chunk) -> Iterator[tuple[int, bytes]]:
        if chunk.start == 90:
            return
        yield 3, good(DECISION).data
        yield 11, b"no row"
        if chunk.name == "b.gz":
            raise LedgerDamaged(17, "not read further: torn")
        yield 19, b""
        yield 20, good(SAMPLE).data

    (batch,) = parse_chunks(parts, read)
    rows = batch.to_pylist()
    told = [tuple(row[name] for name in ("file", "chunk", "pos", "line")) for row in rows]
    assert told == [
        ("a", 0, 3, 1),
        ("a", 0, 11, 2),
        ("a", 0, 20, 4),
        ("a", 0, 90, 4),
        ("a", 90, 200, 0),
        ("b.gz", 0, 3, 1),
        ("b.gz", 0, 11, 2),
        ("b.gz", 0, 17, 3),
        ("b.gz", 0, 50, 3),
    ]
    assert [bool(row["reason"]) for row in rows] == [
        number in (1, 6, 7) for number in range(len(rows))
    ]
    assert rows[7]["reason"] == "not read further: torn"
    tables = [[name for name in TABLES if row[name] is not None] for row in rows]
    filled = {0: ["decision"], 2: ["partition_sample"], 5: ["decision"]}
    assert tables == [filled.get(number, []) for number in range(len(rows))]


@pytest.mark.parametrize(("since", "until"), [("soon", None), (None, "soon")])
def test_a_bound_that_is_no_time_is_named(since: str | None, until: str | None) -> None:
    """The error names the option with the wrong text."""
    option = "--since" if since else "--until"
    with pytest.raises(ConfigError, match=f"^{option} 'soon': expected a day, a time, or an age"):
        Period.parse(since, until, now=NOW)


def test_a_file_is_dated_by_its_first_line_that_has_a_time(tmp_path: Path) -> None:
    """Lines before it may be refused."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"no row\n" + good({**SAMPLE, "ts": "2026-11-21T20:00:00.000Z"}).data)
    files = find_files([str(path)])
    assert Period(until=NOW).files(files) == []
    assert Period(until=datetime(2026, 11, 21, 20, tzinfo=UTC)).files(files) == files


def test_a_visit_of_whole_files_finds_them_again_by_their_inodes(tmp_path: Path) -> None:
    """A path that is named twice is read once, by each kind of visit."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"one\n")
    os.link(path, tmp_path / "other")
    paths = [str(tmp_path), str(path)]
    (chunk,) = plan_full_visit(paths, Period(), {}).chunks
    assert (chunk.name, chunk.end, chunk.inode) == (str(path), 4, path.stat().st_ino)
    assert [(one.name, one.inode) for one in news(paths, {}, {}).chunks] == [
        (str(path), path.stat().st_ino)
    ]


def test_one_character_of_a_name_may_be_any(tmp_path: Path) -> None:
    """The question mark is a sign of a pattern, as in a shell."""
    for name in ("w1.jsonl", "w12.jsonl"):
        (tmp_path / name).touch()
    assert [Path(file.name).name for file in find_files([f"{tmp_path}/w?.jsonl"])] == ["w1.jsonl"]


def test_urls_of_one_file_are_one_file_and_a_path_in_them_is_no_local_path() -> None:
    """A name on another file system is its own identity."""
    fs = fsspec.filesystem("memory")
    for name in ("a.jsonl", "b.jsonl"):
        fs.pipe_file(f"/twice/{name}", b"x")
    found = find_files(["memory://twice", "memory://twice/b.jsonl"])
    assert [file.name.rpartition("/")[2] for file in found] == ["a.jsonl", "b.jsonl"]


class Told:
    """A column or a frame of Spark as the text of its expression."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given: Told(f"{self.text}.{name}({', '.join(map(_text, given))})")


def _text(given: Any) -> str:
    return given.text if isinstance(given, Told) else repr(given)


class Functions:
    """Spark's functions, each as a text."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given: Told(f"{name}({', '.join(map(_text, given))})")


def test_the_lines_of_a_table_are_its_accepted_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused lines and the rows of other tables have no such struct."""
    monkeypatch.setattr(sources, "F", Functions())
    frame: Any = Told("parsed")
    found: Any = sources.rows_of(frame, "recovery")
    assert found.text == "parsed.where(col('recovery').isNotNull()).select('recovery.*')"


def test_refused_lines_are_counted_by_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accepted line has the struct of a table; the first refusal is the smallest place."""
    monkeypatch.setattr(sources, "F", Functions())
    asked: list[str] = []

    def agg(*columns: Told) -> Any:
        asked.extend(column.text for column in columns)
        return SimpleNamespace(
            collect=lambda: [SimpleNamespace(accepted=9, lines=2, first="f: why"), None]
        )

    frame: Any = SimpleNamespace(agg=agg)
    found = sources.refused_of(frame)
    assert (found.accepted, found.lines, found.first) == (9, 2, "f: why")
    structs = ", ".join(f"when(col('{name}').isNotNull(), True)" for name in TABLES)
    assert asked == [
        f"count_if(coalesce({structs})).alias('accepted')",
        "count('reason').alias('lines')",
        "min(when(col('reason').isNotNull(), concat_ws(': ', 'file', 'reason'))).alias('first')",
    ]


def test_the_head_of_a_file_is_more_than_its_first_line(tmp_path: Path) -> None:
    """Two ledgers may begin with the same line."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"one\ntwo\nthree")
    assert [read_head(str(path), count) for count in (0, 3, 9, 99)] == [
        b"",
        b"one",
        b"one\ntwo\nt",
        b"one\ntwo\nthree",
    ]
