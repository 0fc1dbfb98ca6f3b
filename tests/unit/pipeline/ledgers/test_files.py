"""Ledger files in chunks and blocks: each line is read once and whole, for any boundaries."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import IO, Any

import fsspec
import pytest

from faust_assigner.pipeline.ledgers import chunks, files
from faust_assigner.pipeline.ledgers.chunks import (
    Chunk,
    LedgerDamaged,
    cut,
    last_line_start,
    pack,
    read_lines,
)

LINES = [b"a", b"", b"bcdefghijkl", b"mn", b"opqrstuvwxyz0123456789", b"end"]


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of short and long lines, read four bytes at a time."""
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 4)
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"\n".join(LINES) + b"\n")
    return str(path)


@pytest.mark.parametrize("chunk_bytes", [1, 3, 4, 7, 1_000])
def test_each_line_is_read_once_and_whole_by_the_chunk_it_starts_in(
    ledger: str, chunk_bytes: int
) -> None:
    """Lines span several blocks and chunks."""
    size = os.path.getsize(ledger)
    starts = [sum(len(line) + 1 for line in LINES[:n]) for n in range(len(LINES))]
    found = []
    for chunk in cut(ledger, 0, size, chunk_bytes):
        lines = list(read_lines(chunk))
        assert all(chunk.start <= position < chunk.end for position, _ in lines)
        found += lines
    assert found == list(zip(starts, LINES, strict=True))


def test_the_open_line_at_the_end_starts_behind_the_last_newline(ledger: str) -> None:
    """The case covers each size of a growing file and all block boundaries."""
    contents = Path(ledger).read_bytes()
    for low in (0, 5):
        for size in range(low, len(contents) + 1):
            expected = max(contents[:size].rfind(b"\n") + 1, low)
            assert last_line_start(ledger, low, size) == expected


def test_a_packed_file_has_no_open_line(tmp_path: Path) -> None:
    """A compressed file is read from its start after each change."""
    assert last_line_start(str(tmp_path / "ledger.jsonl.gz"), 3, 9) == 9


def test_a_packed_file_is_one_chunk_from_its_start() -> None:
    """Compressed data cannot be read from the middle, however far a stream has read."""
    assert cut("ledger.jsonl.gz", 5, 9, 2, inode=3) == [Chunk("ledger.jsonl.gz", 0, 9, 3)]
    assert cut("ledger.jsonl.gz", 0, 0) == []


# -- files renamed after the listing ---------------------------------------------------------------


def test_a_file_that_rotated_is_read_under_its_new_name_and_the_other_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job opens thousands of files; an open file counts against the process's limit."""
    path, rotated = tmp_path / "ledger.jsonl", tmp_path / "ledger.jsonl.1"
    rotated.write_bytes(b"listed\n")
    path.write_bytes(b"begun since\n")
    opened: list[IO[Any]] = []
    real = Path.open

    def remembered(self: Path, *arguments: Any, **more: Any) -> Any:
        opened.append(real(self, *arguments, **more))
        return opened[-1]

    monkeypatch.setattr(Path, "open", remembered)
    chunk = Chunk(str(path), 0, 7, inode=rotated.stat().st_ino)
    assert list(read_lines(chunk)) == [(0, b"listed")]
    assert len(opened) == 2
    assert all(stream.closed for stream in opened)


def test_a_rotated_file_with_a_pattern_in_its_name_is_found(tmp_path: Path) -> None:
    """The name of a pod or a test may have brackets."""
    rotated = tmp_path / "shop[1].jsonl.2"
    rotated.write_bytes(b"listed\n")
    chunk = Chunk(str(tmp_path / "shop[1].jsonl"), 0, 7, inode=rotated.stat().st_ino)
    assert list(read_lines(chunk)) == [(0, b"listed")]


def test_a_file_that_was_removed_since_is_damage_and_not_an_empty_one(tmp_path: Path) -> None:
    """Its lines are missing from every figure."""
    (tmp_path / "ledger.jsonl").write_bytes(b"another\n")
    with pytest.raises(LedgerDamaged, match="removed"):
        list(read_lines(Chunk(str(tmp_path / "ledger.jsonl"), 0, 7, inode=1)))


# -- listings of remote file systems, and loads


@pytest.mark.parametrize("key", ["mtime", "LastModified", "last_modified"])
def test_the_time_of_a_change_is_found_under_each_name_that_a_storage_gives_it(key: str) -> None:
    """An object may have no size."""
    fs = fsspec.filesystem("memory")
    found = files._describe(fs, {"name": "/b/w.jsonl", "size": None, key: "2026-11-21"})
    assert (found.size, found.modified, found.inode) == (0, "2026-11-21", 0)


def test_a_packed_file_that_is_gone_is_missing_and_not_damaged() -> None:
    """A stream treats a missing file as rotated, and finds the file in the next listing."""
    with pytest.raises(FileNotFoundError):
        list(read_lines(Chunk("memory://gone/w.jsonl.gz", 0, 9)))


def test_the_place_of_damage_is_behind_the_last_line_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is in bytes of the decompressed content."""
    path = tmp_path / "w.jsonl.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n") + b"no member of a packed file")
    monkeypatch.setattr(chunks, "BLOCK_BYTES", 4)
    with pytest.raises(LedgerDamaged) as caught:
        list(read_lines(Chunk(str(path), 0, 9)))
    assert caught.value.position == 8


def test_the_largest_chunks_are_distributed_first() -> None:
    """A large chunk at the end would delay its task."""
    chunks = [Chunk(f"f{size}", 0, size) for size in (10_000, 20_000, 50_000, 30_000)]
    loads = [{chunk.end for chunk in load} for load in pack(chunks, 2)]
    assert loads == [{50_000, 10_000}, {30_000, 20_000}]


def test_tiny_files_are_spread_over_the_tasks() -> None:
    """Opening a file costs as much as reading some kilobytes."""
    chunks = [Chunk(f"f{n:02}", 0, 1) for n in range(20)] + [Chunk("large", 0, 10)]
    assert sorted(len(load) for load in pack(chunks, 3)) == [7, 7, 7]
