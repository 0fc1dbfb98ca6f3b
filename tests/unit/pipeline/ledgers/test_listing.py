"""Listing and reading ledger files, and choosing files by period."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.ledger import Row
from faust_assigner.pipeline.ledgers import files
from faust_assigner.pipeline.ledgers.chunks import Chunk, LedgerDamaged, pack, read_lines
from faust_assigner.pipeline.ledgers.files import LedgerFile, LedgerPathError, find_files
from faust_assigner.pipeline.ledgers.parse import parse_chunks
from faust_assigner.pipeline.ledgers.period import Period

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


# -- files ----------------------------------------------------------------------------------------


def test_a_name_that_no_table_can_contain_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    """Earlier, the history ended with a traceback after all files were read."""
    (tmp_path / "w.jsonl").touch()
    (tmp_path / os.fsdecode(b"x\xff.jsonl")).touch()
    with pytest.raises(LedgerPathError, match=r"x\\udcff\.jsonl': the name is not UTF-8") as raised:
        find_files([str(tmp_path)])
    assert str(raised.value).isascii()
    assert [file.name for file in find_files([str(tmp_path / "w.jsonl")])] == [
        str(tmp_path / "w.jsonl")
    ]


@pytest.mark.parametrize("name", ["w.jsonl", "."])
def test_a_pipe_in_place_of_a_ledger_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    """Earlier, ``history --stream`` waited for ever, and other commands read it as empty."""
    os.mkfifo(tmp_path / "w.jsonl")
    with pytest.raises(LedgerPathError, match=r"w\.jsonl: a pipe or a device"):
        find_files([str(tmp_path / name)])


def test_a_link_without_a_target_is_listed(tmp_path: Path) -> None:
    """Its lines count as refused when it is read."""
    (tmp_path / "w.jsonl").symlink_to("gone")
    assert [file.name for file in find_files([str(tmp_path)])] == [str(tmp_path / "w.jsonl")]


def test_files_of_several_paths_are_listed_by_name_with_their_facts(tmp_path: Path) -> None:
    """A glob means its files, and the ledgers of its folders."""
    for name in ("b/w.jsonl", "b/deep/v.jsonl.gz", "b/x.txt", "a.jsonl", "c.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(name))
    found = find_files([str(tmp_path / "c.jsonl"), str(tmp_path / "[ab]*")])
    names = ["a.jsonl", "b/deep/v.jsonl.gz", "b/w.jsonl", "c.jsonl"]
    assert [file.name for file in found] == [str(tmp_path / name) for name in names]
    assert [file.size for file in found] == [len(name) for name in names]
    stats = [(tmp_path / name).stat() for name in names]
    assert [file.inode for file in found] == [stat.st_ino for stat in stats]
    assert [float(file.modified) for file in found] == [stat.st_mtime for stat in stats]


@pytest.mark.parametrize("error", [PermissionError("denied"), ImportError("install s3fs")])
def test_a_path_that_cannot_be_read_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A file system without its package is a usage error too."""

    def isdir(_: str) -> bool:
        raise error

    monkeypatch.setattr(files, "file_system", lambda url: (SimpleNamespace(isdir=isdir), url))
    with pytest.raises(LedgerPathError) as failure:
        find_files(["s3://shop/ledger"])
    assert str(failure.value) == f"cannot read ledger s3://shop/ledger: {error}"
    assert failure.value.exit_code == 2


def test_a_name_without_the_characters_of_a_pattern_is_no_pattern(tmp_path: Path) -> None:
    """The error has the given path."""
    with pytest.raises(LedgerPathError, match=r"no such ledger: .*/missing$"):
        find_files([f"{tmp_path}/missing"])


def test_loads_have_the_largest_chunks_first_and_their_own_order() -> None:
    """Each load is sorted by name and position; a task without a chunk is left out."""
    big, small = Chunk("b", 10, 90_010), [Chunk("a", n * 10, n * 10 + 10) for n in range(3)]
    assert pack([*small, big], 2) == [(big,), tuple(small)]
    assert pack([big], 4) == [(big,)]
    assert pack([Chunk("z", 0, 50_000), Chunk("a", 0, 50_000)], 1) == [
        (Chunk("a", 0, 50_000), Chunk("z", 0, 50_000))
    ]
    assert pack([big], 0) == [(big,)]


def test_a_file_is_looked_for_under_its_later_names_before_it_counts_as_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search is repeated three times during renames; the error has the place."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(b"one\n")
    inode = path.stat().st_ino
    tries: list[int] = []
    real = Path.glob

    def renamed(self: Path, pattern: str) -> Any:
        tries.append(1)
        if len(tries) == 1:
            path.rename(tmp_path / "between")
        elif len(tries) == 2:
            (tmp_path / "between").rename(tmp_path / "w.jsonl.1")
        return real(self, pattern)

    monkeypatch.setattr(Path, "glob", renamed)
    chunk = Chunk(str(path), 0, 4, inode)
    assert list(read_lines(chunk)) == [(0, b"one")]
    (tmp_path / "w.jsonl.1").rename(tmp_path / "elsewhere")
    (tmp_path / "w.jsonl.2").write_bytes(b"other\n")
    with pytest.raises(LedgerDamaged) as damage:
        list(read_lines(Chunk(str(path), 2, 4, inode)))
    assert (damage.value.position, len(tries)) == (2, 2 + 3)


def test_two_chunks_have_their_lines_and_a_closing_row_each() -> None:
    """Line numbers restart in each chunk; a blank line counts and has no row."""

    def read(chunk: Chunk) -> Any:
        yield from ((chunk.start + n, line) for n, line in enumerate((b"[]", b"", b"x")))

    chunks = [Chunk("a", 0, 50), Chunk("b", 50, 90)]
    found = pa.Table.from_batches(parse_chunks(chunks, read)).to_pylist()
    told = [(row["file"], row["chunk"], row["pos"], row["line"]) for row in found]
    assert told == [
        *(("a", 0, 0, 1), ("a", 0, 2, 3), ("a", 0, 50, 3)),
        *(("b", 50, 50, 1), ("b", 50, 52, 3), ("b", 50, 90, 3)),
    ]
    assert [row["reason"] is None for row in found] == 2 * [False, False, True]


# -- periods --------------------------------------------------------------------------------------


def at(hours: float) -> datetime:
    """Return a time after noon."""
    return NOON + timedelta(hours=hours)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90m", at(-1.5)),
        ("2h", at(-2)),
        ("3d", at(-72)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20T07:30", datetime(2026, 11, 20, 7, 30, tzinfo=UTC)),
        ("2026-11-20T07:30:15+05:00", datetime(2026, 11, 20, 2, 30, 15, tzinfo=UTC)),
    ],
)
def test_a_bound_is_an_age_a_day_or_a_time(text: str, moment: datetime) -> None:
    """Each text may be either bound; without bounds there is no period."""
    assert Period.parse(text, None, now=NOON) == Period(moment)
    assert Period.parse(None, text, now=NOON) == Period(None, moment)
    assert bool(Period.parse(text, None, now=NOON)) is True
    assert bool(Period.parse(None, text, now=NOON)) is True
    assert bool(Period.parse(None, None, now=NOON)) is False


def row(table: str, moment: datetime | None, **more: Any) -> Row:
    """Return a row of a table."""
    column = {"decision": "ts", "recovery": "started", "partition_sample": "ts"}.get(table)
    told = {"group_id": "g", "decision_id": "d", "ended": at(99)}
    return Row(table, {**told, **({column: moment} if column else {}), **more})


def test_the_rows_of_a_period_in_their_order() -> None:
    """A recovery has the time of its start; a placement belongs to its own group's decision."""
    given = [
        row("assignment", None, decision_id="in"),
        row("decision", at(0), decision_id="in"),
        row("decision", at(2), decision_id="out"),
        row("assignment", None, decision_id="out"),
        row("assignment", None, decision_id="in", group_id="h"),
        row("recovery", at(1)),
        row("recovery", at(-1)),
        row("partition_sample", at(1.5)),
        row("partition_sample", at(2)),
    ]
    assert Period(at(0), at(2)).rows(given) == [given[n] for n in (0, 1, 5, 7)]
    assert Period(at(1)).rows(given) == [given[n] for n in (2, 3, 5, 7, 8)]
    assert Period(None, at(1)).rows(given) == [given[n] for n in (0, 1, 6)]
    assert Period().rows(given) == given


@pytest.mark.parametrize(("hours", "kept"), [(-1.0, True), (-1.01, False), (3.0, True)])
def test_a_file_that_changed_within_an_hour_before_the_period_may_hold_its_lines(
    hours: float, kept: bool
) -> None:
    """The time is given in seconds since 1970 or in ISO format."""
    for modified in (str(at(hours).timestamp()), at(hours).isoformat()):
        file = LedgerFile("memory://period/w.jsonl", 5, modified)
        assert (Period(NOON).files([file]) == [file]) is kept
