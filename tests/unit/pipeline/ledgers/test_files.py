"""Ledger files in chunks and blocks: each line once and whole, wherever it is cut."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import pytest

from faust_assigner.pipeline.ledgers import files
from faust_assigner.pipeline.ledgers.files import (
    Chunk,
    LedgerDamaged,
    cut,
    last_line_start,
    read_lines,
)

LINES = [b"a", b"", b"bcdefghijkl", b"mn", b"opqrstuvwxyz0123456789", b"end"]


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of short and long lines, which is read four bytes at a time."""
    monkeypatch.setattr(files, "BLOCK_BYTES", 4)
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"\n".join(LINES) + b"\n")
    return str(path)


@pytest.mark.parametrize("chunk_bytes", [1, 3, 4, 7, 1_000])
def test_each_line_is_read_once_and_whole_by_the_chunk_it_starts_in(
    ledger: str, chunk_bytes: int
) -> None:
    """Lines that go over several blocks and several chunks."""
    size = os.path.getsize(ledger)
    starts = [sum(len(line) + 1 for line in LINES[:n]) for n in range(len(LINES))]
    found = []
    for chunk in cut(ledger, 0, size, chunk_bytes):
        lines = list(read_lines(chunk))
        assert all(chunk.start <= position < chunk.end for position, _ in lines)
        found += lines
    assert found == list(zip(starts, LINES, strict=True))


def test_the_open_line_at_the_end_starts_behind_the_last_newline(ledger: str) -> None:
    """For each size that a growing file may have, however the blocks fall."""
    contents = Path(ledger).read_bytes()
    for low in (0, 5):
        for size in range(low, len(contents) + 1):
            expected = max(contents[:size].rfind(b"\n") + 1, low)
            assert last_line_start(ledger, low, size) == expected


def test_a_packed_file_has_no_open_line(tmp_path: Path) -> None:
    """It is read from its start whenever it changes."""
    assert last_line_start(str(tmp_path / "ledger.jsonl.gz"), 3, 9) == 9


def test_a_packed_file_is_one_chunk_from_its_start() -> None:
    """However far a stream has read it: what is packed cannot be read from its middle."""
    assert cut("ledger.jsonl.gz", 5, 9, 2, inode=3) == [Chunk("ledger.jsonl.gz", 0, 9, 3)]
    assert cut("ledger.jsonl.gz", 0, 0) == []


# -- files that were renamed since they were listed -----------------------------------------------


def test_a_file_that_rotated_is_read_under_its_new_name_and_the_other_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job looks at thousands of files; each one left open counts against the process's limit."""
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


def test_a_file_that_was_removed_since_is_damage_and_not_an_empty_one(tmp_path: Path) -> None:
    """Its lines are missing from every figure."""
    (tmp_path / "ledger.jsonl").write_bytes(b"another\n")
    with pytest.raises(LedgerDamaged, match="removed"):
        list(read_lines(Chunk(str(tmp_path / "ledger.jsonl"), 0, 7, inode=1)))
