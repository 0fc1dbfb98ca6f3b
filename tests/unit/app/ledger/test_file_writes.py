"""The ledger's files: their bytes, their removal, and appended rows; no thread."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.ledger import files as ledger_files
from faust_assigner.app.ledger import writer
from faust_assigner.app.ledger.files import LedgerFiles
from tests.support.waiting import PATIENCE_S
from tests.unit.app.ledger.test_files import sample


def writes(files: LedgerFiles, *lines: bytes) -> dict[str, bytes]:
    """Append ``lines`` in one call; return the folder's files afterwards."""
    files._append(list(lines))
    return {path.name: path.read_bytes() for path in files.folder.iterdir()}


def test_a_file_is_rotated_when_the_next_lines_do_not_fit(tmp_path: Path) -> None:
    """The size is exact to the byte; a write larger than a file gets its own file."""
    files = LedgerFiles(tmp_path, "w", file_bytes=10, total_bytes=10**6)
    assert writes(files, b"12345\n") == {"w.jsonl": b"12345\n"}
    assert writes(files, b"6\n", b"7\n") == {"w.jsonl": b"12345\n6\n7\n"}
    assert writes(files, b"\n") == {"w.jsonl": b"\n", "w.jsonl.1": b"12345\n6\n7\n"}
    long = b"x" * 30 + b"\n"
    assert writes(files, long)["w.jsonl"] == long
    assert writes(files, long) == {
        "w.jsonl": long,
        "w.jsonl.1": b"12345\n6\n7\n",
        "w.jsonl.2": b"\n",
        "w.jsonl.3": long,
    }
    assert (files.counts.written, files.counts.dropped) == (6, 0)


def test_a_rotated_file_gets_the_next_number_of_its_own_name(tmp_path: Path) -> None:
    """Numbers are compared as numbers; other names and other kinds of files do not count."""
    for name in ("w.jsonl.9", "w.jsonl.10", "w.jsonl.11x", "w2.jsonl.50", "w.jsonl.99.gz"):
        (tmp_path / name).touch()
    files = LedgerFiles(tmp_path, "w", file_bytes=4, total_bytes=10**6)
    writes(files, b"abc\n")
    assert writes(files, b"def\n")["w.jsonl.11"] == b"abc\n"


def test_the_size_of_a_file_that_was_there_counts(tmp_path: Path) -> None:
    """A process of the same name continues the file, without an empty line."""
    (tmp_path / "w.jsonl").write_bytes(b"12345\n")
    files = LedgerFiles(tmp_path, "w", file_bytes=8, total_bytes=10**6)
    assert writes(files, b"a\n") == {"w.jsonl": b"12345\na\n"}
    assert writes(files, b"b\n") == {"w.jsonl": b"b\n", "w.jsonl.1": b"12345\na\n"}


def test_the_oldest_files_go_until_the_next_one_fits(tmp_path: Path) -> None:
    """Rotated files of any worker are removed, oldest first; files of other kinds stay."""
    now = time.time()
    for name, size, age_s in (
        ("a.jsonl.1", 40, 50.0),
        ("a.jsonl.2", 40, 10.0),
        ("b.jsonl.7", 40, 90.0),
        ("b.jsonl", 40, ledger_files.QUIET_S / 2),
        ("c.jsonl.old", 40, 999.0),
        ("notes.txt", 900, 999.0),
    ):
        (tmp_path / name).write_bytes(b"x" * size)
        os.utime(tmp_path / name, (now - age_s,) * 2)
    files = LedgerFiles(tmp_path, "w", file_bytes=100, total_bytes=220)
    assert set(writes(files, b"1\n")) == {
        "a.jsonl.2",
        "b.jsonl",
        "c.jsonl.old",
        "notes.txt",
        "w.jsonl",
    }
    exact = LedgerFiles(tmp_path, "v", file_bytes=98, total_bytes=220)
    assert "a.jsonl.2" in writes(exact, b"1\n"), "220 bytes with its own are not too many"


def test_the_room_of_an_ended_processs_file_counts(tmp_path: Path) -> None:
    """The file of the longest silence goes first; no further file goes once the rest fits."""
    now = time.time()
    for name, size, age_s in (
        ("dead.jsonl", 70, 3 * ledger_files.QUIET_S),
        ("gone.jsonl", 30, 2 * ledger_files.QUIET_S),
        ("a.jsonl.1", 40, ledger_files.QUIET_S / 3),
        ("w.jsonl", 20, 4 * ledger_files.QUIET_S),
    ):
        (tmp_path / name).write_bytes(b"x" * (size - 1) + b"\n")
        os.utime(tmp_path / name, (now - age_s,) * 2)
    files = LedgerFiles(tmp_path, "w", file_bytes=60, total_bytes=140)
    assert set(writes(files, b"1\n")) == {"a.jsonl.1", "w.jsonl"}
    assert files.counts.written == 1


def test_a_file_is_at_most_as_large_as_all_files_together(tmp_path: Path) -> None:
    """A total below a file's size limits the file."""
    files = LedgerFiles(tmp_path, "w", file_bytes=1000, total_bytes=5)
    writes(files, b"abc\n")
    assert writes(files, b"de\n") == {"w.jsonl": b"de\n"}
    assert files.place == str(tmp_path)


def test_a_partial_write_goes_on_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No byte is written twice, and the size covers the whole line."""
    files = LedgerFiles(tmp_path, "w", file_bytes=10, total_bytes=10**6)
    write = os.write
    monkeypatch.setattr(ledger_files.os, "write", lambda file, data: write(file, data[:3]))
    assert writes(files, b"1234567\n") == {"w.jsonl": b"1234567\n"}
    assert writes(files, b"8\n") == {"w.jsonl": b"1234567\n8\n"}
    assert writes(files, b"9\n")["w.jsonl"] == b"9\n"


def test_a_failed_write_closes_the_file_and_counts_each_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier lines stay; the next write opens the file again."""
    files = LedgerFiles(tmp_path, "w")
    writes(files, b"1\n")

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(ledger_files.os, "write", full)
        assert writes(files, b"2\n", b"3\n", b"4\n") == {"w.jsonl": b"1\n"}
    assert (files._file, files.counts.written, files.counts.dropped) == (None, 1, 3)
    assert writes(files, b"5\n") == {"w.jsonl": b"1\n5\n"}
    assert files.counts.written == 2


class Collected(LedgerFiles):
    """Files that collect the appended lines in ``turns``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "w", most_waiting=3)
        self.turns: list[list[bytes]] = []
        self.released = 0

    def _append(self, lines: list[bytes]) -> None:
        self.turns.append(list(lines))

    def _release(self) -> None:
        self.released += 1


def test_many_rows_are_appended_in_turns_with_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full turn is appended at once, then the rest; work without rows appends no line."""
    pauses: list[float] = []
    monkeypatch.setattr(writer.time, "sleep", pauses.append)
    monkeypatch.setattr(writer, "LINES_A_TURN", 3)
    monkeypatch.setattr(writer, "encode", lambda table, row: b"%d" % row["partition"])
    files = Collected(tmp_path)
    for rows in (7, 6, 0, 1):
        files._write_rows(lambda rows=rows: [sample(number) for number in range(rows)])
    assert files.turns == [
        [b"0", b"1", b"2"],
        [b"3", b"4", b"5"],
        [b"6"],
        [b"0", b"1", b"2"],
        [b"3", b"4", b"5"],
        [b"0"],
    ]
    assert pauses == [writer.PAUSE_S] * 4


def test_a_ledger_that_wrote_nothing_closes_at_once(tmp_path: Path, caplog: Any) -> None:
    """A ledger with lost rows logs a warning after its thread has released the file."""
    files = Collected(tmp_path)
    files.close()
    assert (files.released, caplog.text) == (0, "")
    files.put(lambda: [sample(1)])
    files.close(PATIENCE_S)
    assert (files.released, len(files.turns), caplog.text) == (1, 1, "")
    for name in ("dropped", "skipped", "failed"):
        files.counts = writer.Counts(written=1, **{name: 2})
        caplog.clear()
        files.close(PATIENCE_S)
        assert f"The ledger in {tmp_path} is incomplete" in caplog.text
        assert f"{name}=2" in caplog.text


def test_a_file_is_abandoned_once_no_process_has_its_lock(tmp_path: Path) -> None:
    """A file that cannot be opened may be in use; the question itself leaves no lock."""
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "w.jsonl").write_bytes(b"line")
    for name in ("missing.jsonl", "folder.jsonl"):
        assert not ledger_files._is_abandoned(str(tmp_path / name))
    assert not (tmp_path / "missing.jsonl").exists()
    name = str(tmp_path / "w.jsonl")
    assert [ledger_files._is_abandoned(name) for _ in range(2)] == [True, True]
    with open(name, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert not ledger_files._is_abandoned(name)
    assert ledger_files._is_abandoned(name)
    assert Path(name).read_bytes() == b"line"


@pytest.mark.parametrize("lost", [{}, {"dropped": 1}, {"skipped": 2}, {"failed": 3}])
def test_a_close_waits_for_its_thread_as_long_as_it_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lost: dict[str, int]
) -> None:
    """The thread gets a sign to end, unless its queue stays full; lost rows are logged."""
    made, joined = LedgerFiles(tmp_path, "w", most_waiting=1), list[float]()
    made.close(9.0)
    made._thread = SimpleNamespace(join=joined.append)  # type: ignore[assignment]
    made.counts = writer.Counts(written=7, **lost)
    made.close(0.25)
    assert (joined, made._waiting.get_nowait()) == ([0.25], None)
    work = list[Any]
    made._waiting.put(work)
    made.close(0.01)
    assert (joined, made._waiting.get_nowait()) == ([0.25, 0.01], work)
    said = f"The ledger in {tmp_path} is incomplete: {made.counts}"
    assert caplog.messages == [said] * (2 if lost else 0)


def test_two_callers_at_once_start_one_thread(tmp_path: Path) -> None:
    """The second caller finds the first caller's thread once it has the lock; a dead one is replaced."""
    made = LedgerFiles(tmp_path, "w")
    first: Any = SimpleNamespace(is_alive=lambda: True)

    class Lock:
        """A lock for which this caller waits while the other caller starts its thread."""

        def __enter__(self) -> None:
            made._thread = first

        def __exit__(self, *_: object) -> None:
            pass

    made._starting = Lock()  # type: ignore[assignment]
    made._thread = SimpleNamespace(is_alive=lambda: False)  # type: ignore[assignment]
    made._ensure_thread()
    assert made._thread is first
    first.is_alive = lambda: False
    made._ensure_thread()
    assert made._thread is not first
    assert made._thread.is_alive()
    assert (made._thread.name, made._thread.daemon) == ("ledger", True)
    made.close(PATIENCE_S)
    assert not made._thread.is_alive()
