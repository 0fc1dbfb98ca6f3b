"""The ledger's files: limited size, complete lines, and no effect on the app."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.app.ledger import files as ledger_files
from faust_assigner.app.ledger.files import LedgerFiles
from faust_assigner.ledger import Row, parse
from tests.support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every ledger at the end of its test."""
    made: list[LedgerFiles] = []
    begin = LedgerFiles.__init__

    def noted(self: LedgerFiles, *arguments: Any, **settings: Any) -> None:
        begin(self, *arguments, **settings)
        made.append(self)

    monkeypatch.setattr(LedgerFiles, "__init__", noted)
    yield
    for files in made:
        files.close()


def sample(number: int) -> tuple[str, dict[str, Any]]:
    """Return a row that is identified by its partition."""
    return "partition_sample", {
        "group_id": "shop",
        "ts": 1.0,
        "topic": "orders",
        "partition": number,
        "end_offset": 0,
        "committed_offset": 0,
        "bytes_in": 0,
        "records_in": 0,
        "cpu_ms": 0.0,
        "state_bytes": 0,
    }


def numbers(*paths: Path) -> list[int]:
    """Return the partitions in files, in order; check that every line is a row."""
    found = []
    for path in paths:
        for line in path.read_bytes().splitlines():
            row = parse(line)
            assert isinstance(row, Row), line
            found.append(row.values["partition"])
    return found


def age(path: Path) -> tuple[int, float]:
    """Sort key: rotated files by number, the current file last."""
    return (int(path.suffix[1:]) if path.suffix != ".jsonl" else 1 << 30, 0.0)


def test_rows_are_written_in_order_by_another_thread(tmp_path: Path) -> None:
    """A single file has a line per row; the folder is created when needed."""
    files = LedgerFiles(tmp_path / "new" / "folder", "shop/1: x")
    for number in range(20):
        files.put(lambda number=number: [sample(number)])
    files.drain()
    assert files.path.name == "shop_1__x.jsonl"
    assert numbers(files.path) == list(range(20))
    assert files.counts.written == 20


def test_files_rotate_and_keep_their_number(tmp_path: Path) -> None:
    """No file exceeds the limit, no row is repeated or lost, and ``.1`` is the oldest."""
    files = LedgerFiles(tmp_path, "w", file_bytes=1000, total_bytes=10**6)
    for number in range(60):
        files.put(lambda number=number: [sample(number)])
    files.drain()
    paths = sorted(tmp_path.iterdir(), key=age)
    assert len(paths) > 5
    assert [path.name for path in paths[:2]] == ["w.jsonl.1", "w.jsonl.2"]
    assert numbers(*paths) == list(range(60))
    assert max(path.stat().st_size for path in paths) <= 1000


def test_folder_stays_below_its_bound(tmp_path: Path) -> None:
    """The oldest rotated files and files of ended processes go; a living process's file stays."""
    gone, alive = tmp_path / "gone.jsonl", tmp_path / "alive.jsonl"
    for path in (gone, alive):
        path.write_bytes(b"x" * 1500)
    os.utime(gone, (time.time() - 7 * 86400,) * 2)
    files = LedgerFiles(tmp_path, "w", file_bytes=1000, total_bytes=6000)
    for number in range(100):
        files.put(lambda number=number: [sample(number)])
    files.drain()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 6000
    assert alive.exists()
    assert not gone.exists()
    mine = sorted(tmp_path.glob("w.*"), key=age)
    kept = numbers(*mine)
    assert kept == list(range(kept[0], 100))


def test_a_worker_that_restarts_before_its_file_rotates_keeps_the_bound(tmp_path: Path) -> None:
    """Each process leaves its own file; files of ended processes go, however short they lived."""
    for life in range(20):
        files = LedgerFiles(tmp_path, f"w-{life}", file_bytes=1000, total_bytes=4000)
        files.put(lambda: [sample(0), sample(1)])
        files.close()
        for path in tmp_path.iterdir():
            os.utime(path, (path.stat().st_mtime - 300,) * 2)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 4000
    assert (tmp_path / "w-19.jsonl").exists()


def test_the_file_of_a_living_worker_stays_however_old(tmp_path: Path) -> None:
    """It has written no row for a day but holds its lock; an unlocked file goes at once."""
    idle = LedgerFiles(tmp_path, "idle", file_bytes=1000, total_bytes=1500)
    idle.put(lambda: [sample(0)])
    idle.drain()
    (tmp_path / "ended.jsonl").write_bytes(b"x" * 500)
    for name in ("idle", "ended"):
        os.utime(tmp_path / f"{name}.jsonl", (time.time() - 86_400,) * 2)
    busy = LedgerFiles(tmp_path, "busy", file_bytes=1000, total_bytes=1500)
    busy.put(lambda: [sample(0)])
    busy.close()
    assert {path.name for path in tmp_path.iterdir()} == {"idle.jsonl", "busy.jsonl"}
    idle.close()


def test_line_cut_by_a_kill_does_not_take_the_next_one_with_it(tmp_path: Path) -> None:
    """The next process of this name starts on a new line."""
    (tmp_path / "w.jsonl").write_bytes(b'{"table":"deci')
    files = LedgerFiles(tmp_path, "w")
    files.put(lambda: [sample(1)])
    files.drain()
    torn, row = files.path.read_bytes().splitlines()
    assert torn == b'{"table":"deci'
    assert isinstance(parse(row), Row)


def test_full_disk_is_said_once_counted_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A partial write is undone; when there is room again, rows are written again."""
    files = LedgerFiles(tmp_path, "w")
    files.put(lambda: [sample(0)])
    files.drain()
    write, full = os.write, True

    def half(file: int, data: bytes) -> int:
        if not full:
            return write(file, data)
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: len(data) // 2])

    monkeypatch.setattr(ledger_files.os, "write", half)
    for number in (1, 2, 3):
        files.put(lambda number=number: [sample(number), sample(number)])
    files.drain()
    full = False
    files.put(lambda: [sample(4)])
    files.drain()
    assert numbers(files.path) == [0, 4]
    assert files.counts.dropped == 6
    assert sum("No space left" in record.message for record in caplog.records) == 1


def test_folder_that_cannot_be_made_fails_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is logged once, and the rows are counted."""
    (tmp_path / "file").touch()
    files = LedgerFiles(tmp_path / "file" / "below", "w")
    for _ in range(3):
        files.put(lambda: [sample(0)])
    files.drain()
    assert files.counts.dropped == 3
    assert sum("cannot be written" in record.message for record in caplog.records) == 1


def test_caller_never_waits_for_a_slow_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full queue drops and counts rows; a put returns at once."""
    release = threading.Event()
    files = LedgerFiles(tmp_path, "w", most_waiting=4)
    files.put(lambda: release.wait(PATIENCE_S) and [])
    for number in range(100):
        files.put(lambda number=number: [sample(number)])
    assert files.counts.skipped >= 95, "the caller waited until the disk had taken the rows"
    release.set()
    files.drain()
    assert files.counts.written + files.counts.skipped == 100
    assert sum("queue is full" in record.message for record in caplog.records) == 1


def test_entry_that_cannot_be_made_is_counted_and_the_next_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread survives any error of the function that makes the row."""
    files = LedgerFiles(tmp_path, "w")
    files.put(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    files.put(lambda: [("nonsense", {})])
    files.put(lambda: [sample(5)])
    files.drain()
    assert files.counts.failed == 2
    assert numbers(files.path) == [5]
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    """A later row starts a thread again."""
    files = LedgerFiles(tmp_path, "w")
    files.put(lambda: [sample(number) for number in range(1000)])
    files.close(timeout_s=PATIENCE_S)
    assert numbers(files.path) == list(range(1000))
    files.put(lambda: [sample(1000)])
    files.drain()
    assert files.counts.written == 1001


def test_a_file_whose_close_fails_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descriptor is closed: a write to it would fail or reach another file."""
    files = LedgerFiles(tmp_path, "w")
    files._append([b"1\n"])
    close = os.close

    def fails(file: int) -> None:
        close(file)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "close", fails)
        files._close_file()
    files._append([b"2\n"])
    assert files.path.read_bytes() == b"1\n2\n"
    assert files.counts.dropped == 0
