"""A member's former partitions on its disk: read back whole or ignored, with no other effect."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance import memory_file
from faust_assigner.app.rebalance.memory_file import MOST_BYTES, NAME, FormerPartitions, MemoryFile
from faust_assigner.wire.bounded import LARGEST_INT

OWNED = {"orders": [0, 1, 7], "shop-totals-changelog": range(3)}


def file_of(folder: Path, app_id: str = "shop") -> MemoryFile:
    """Return a process's view of the file in ``folder``."""
    return MemoryFile(SimpleNamespace(conf=SimpleNamespace(appdir=folder, id=app_id)), Counter())


def counters(file: MemoryFile) -> Counter[str]:
    """Return the counters of the file."""
    return file._counters


def test_the_next_process_is_told_what_the_last_one_owned(tmp_path: Path) -> None:
    """The file has generation and partitions; a later assignment replaces it."""
    file_of(tmp_path).keep(6, {"orders": [3]})
    file_of(tmp_path).keep(7, OWNED)
    found = file_of(tmp_path).former()
    assert found.generation == 7
    assert {t: list(n) for t, n in found.actives.items()} == {t: list(n) for t, n in OWNED.items()}
    assert os.listdir(tmp_path) == [NAME]


def test_the_first_process_remembers_nothing(tmp_path: Path) -> None:
    """A missing file is no problem."""
    file = file_of(tmp_path)
    assert file.former() == FormerPartitions()
    assert not counters(file)


def test_a_process_reads_once(tmp_path: Path) -> None:
    """Later writes, by itself or a neighbour, do not change its former assignment."""
    file_of(tmp_path).keep(7, {"orders": [3]})
    file = file_of(tmp_path)
    assert file.former().generation == 7
    file.keep(8, {"orders": [4]})
    assert file.former().generation == 7


def test_an_app_that_was_never_started_keeps_nothing(tmp_path: Path) -> None:
    """Faust creates the folder at a worker's start; a tool that loads the app creates none."""
    file = file_of(tmp_path / "never")
    file.keep(7, OWNED)
    assert not list(tmp_path.iterdir())
    assert not counters(file)


def test_whose_memory_it_is(tmp_path: Path) -> None:
    """The file of a different app in a shared folder is ignored."""
    file_of(tmp_path, "other").keep(7, OWNED)
    file = file_of(tmp_path)
    assert file.former() == FormerPartitions()
    assert counters(file) == {"memories_ignored": 1}


GOOD: dict[str, Any] = {"version": 1, "app": "shop", "generation": 7, "actives": {"orders": [0]}}


def said(**more: Any) -> bytes:
    """Return the file's bytes with changed fields."""
    return json.dumps({**GOOD, **more}).encode()


HOSTILE = {
    "empty": b"",
    "torn": said()[:-3],
    "noise": bytes(range(256)),
    "a list": b"[]",
    "huge": said(more="x" * MOST_BYTES),
    "deep": b'{"a":' * 40_000 + b"1" + b"}" * 40_000,
    "deep without end": b"[" * 100_000,
    "not a number": b'{"version": NaN}',
    "of a later version": said(version=2),
    "of version true": said(version=True),
    "of version text": said(version="1"),
    "without a generation": said(generation=None),
    "of generation true": said(generation=True),
    "of half a generation": said(generation=0.5),
    "of a generation below zero": said(generation=-1),
    "of a generation beyond 31 bits": said(generation=2**31),
    "of the last generation of all": said(generation=LARGEST_INT),
    "a byte too long": said() + b" " * (MOST_BYTES + 1 - len(said())),
    "without actives": said(actives=None),
    "with actives a list": said(actives=[0]),
    "with a partition as text": said(actives={"orders": ["0"]}),
    "with a partition as truth": said(actives={"orders": [True]}),
    "with a partition below zero": said(actives={"orders": [-1]}),
    "with a partition of 400 digits": said(actives={"orders": [10**400]}),
    "with lists in lists": said(actives={"orders": [[0]]}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_cannot_be_taken_counts_as_none(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The problem is logged once and counted, without the file's bytes."""
    (tmp_path / NAME).write_bytes(HOSTILE[name])
    file = file_of(tmp_path)
    assert file.former() == file.former() == FormerPartitions()
    assert counters(file) == {"memories_ignored": 1}
    assert [len(record.getMessage()) < 400 for record in caplog.records] == [True]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_what_is_no_file_is_not_waited_for(make: Any, tmp_path: Path) -> None:
    """A pipe without a writer, a folder and an endless device are no files."""
    make(tmp_path / NAME)
    file = file_of(tmp_path)
    assert file.former() == FormerPartitions()
    assert counters(file) == {"memories_ignored": 1}


def test_a_full_disk_is_said_once_and_costs_the_memory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure is counted; the old file stays whole, and no temporary file remains."""
    file = file_of(tmp_path)
    file.keep(6, {"orders": [3]})

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(memory_file.os, "fsync", full)
        for generation in (7, 8, 9):
            file.keep(generation, OWNED)
    assert counters(file) == {"memory_failures": 3}
    assert len(caplog.records) == 1
    assert file_of(tmp_path).former().generation == 6
    assert os.listdir(tmp_path) == [NAME]
    file.keep(10, OWNED)
    assert file_of(tmp_path).former().generation == 10
    with monkeypatch.context() as patched:
        patched.setattr(memory_file.os, "fsync", full)
        file.keep(11, OWNED)
    assert len(caplog.records) == 2, "it is said when it begins again"


def test_a_file_and_its_name_outlive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content is synced before the rename, then the folder."""
    acts: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        memory_file.os, "replace", lambda *names: (acts.append("named"), replace(*names))
    )
    monkeypatch.setattr(
        memory_file.os,
        "fsync",
        lambda fd: (
            acts.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"),
            fsync(fd),
        ),
    )
    file_of(tmp_path).keep(6, OWNED)
    assert acts == ["file", "named", "folder"]


def test_a_file_as_large_as_may_be_is_written_and_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is exact to the byte."""
    file_of(tmp_path).keep(6, OWNED)
    monkeypatch.setattr(memory_file, "MOST_BYTES", (tmp_path / NAME).stat().st_size)
    file_of(tmp_path).keep(7, OWNED)
    assert file_of(tmp_path).former().generation == 7


def test_a_file_too_large_to_be_read_is_not_written(tmp_path: Path) -> None:
    """A million scattered partitions exceed the file's limit."""
    file = file_of(tmp_path)
    file.keep(6, {"orders": [3]})
    file.keep(7, {"orders": range(0, 2_000_000, 2)})
    assert counters(file) == {"memory_failures": 1}
    assert file_of(tmp_path).former().generation == 6


def test_the_next_process_is_told_what_the_leader_knew_of_the_last_one(tmp_path: Path) -> None:
    """The file keeps capacity and rack; missing or invalid offers are ignored."""
    offers = {"capacity": 2.0, "rack": "r1"}
    file_of(tmp_path).keep(7, OWNED, offers)
    assert file_of(tmp_path).former().offers == offers
    for wrong in ([], 7, "x"):
        (tmp_path / NAME).write_text(json.dumps({**GOOD, "offers": wrong}))
        assert file_of(tmp_path).former().offers == {}
    (tmp_path / NAME).write_text(json.dumps(GOOD))
    assert file_of(tmp_path).former() == FormerPartitions(7, file_of(tmp_path).former().actives)
