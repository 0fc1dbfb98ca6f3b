"""A ledger's pages: all lines of the group except samples, each once, for any files."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from faust_assigner.app.ledger import pages
from faust_assigner.app.ledger.files import LedgerFiles
from faust_assigner.app.ledger.install import MARK
from faust_assigner.app.ledger.pages import page
from faust_assigner.app.metrics.probes import ledger_page
from faust_assigner.ledger import encode
from faust_assigner.wire.worker_status import decode_ledger, encode_ledger


def line(number: int, group: str = "shop", size: int = 0) -> bytes:
    """Return a recovery's line, identified by its first offset."""
    return encode(
        "recovery",
        {
            "group_id": group,
            "decision_id": "d" * size or "d",
            "topic": "t",
            "partition": 0,
            "member_id": "m",
            "source": "standby",
            "started": 1.0,
            "ended": 1.5,
            "start_offset": number,
            "end_offset": number,
            "records": 0,
            "bytes": 0,
        },
    )


def sample(group: str = "shop") -> bytes:
    """Return a sample's line, which pages leave out."""
    names = [
        "partition",
        "end_offset",
        "committed_offset",
        "bytes_in",
        "records_in",
        "cpu_ms",
        "state_bytes",
    ]
    row = {"group_id": group, "ts": 1.0, "topic": "t", **dict.fromkeys(names, 0)}
    return encode("partition_sample", row)


def write(folder: Path, name: str, lines: list[bytes], at: float) -> None:
    """Write a file with the modification time ``at``."""
    (folder / name).write_bytes(b"".join(lines))
    os.utime(folder / name, (at, at))


def all_lines(folder: Path, group: str = "shop") -> list[bytes]:
    """Return the lines of all encoded pages, oldest first, with line breaks."""
    found: list[bytes] = []
    cursor = ""
    for _ in range(1000):
        told = decode_ledger(encode_ledger(page(folder, group, cursor)))
        assert told.app == group
        found[:0] = [one + b"\n" for one in told.lines]
        if not told.cursor:
            return found
        cursor = told.cursor
    raise AssertionError("the pages do not end")


def test_the_pages_of_a_group_are_its_lines_without_samples(tmp_path: Path) -> None:
    """Other apps' lines, samples and an unfinished line are left out; the newest file is last."""
    write(tmp_path, "w.jsonl.1", [line(0), sample(), line(1)], at=100)
    write(tmp_path, "w.jsonl", [line(2), line(9, "shop2"), sample(), line(3), line(4)[:-9]], at=200)
    assert all_lines(tmp_path) == [line(0), line(1), line(2), line(3)]
    assert all_lines(tmp_path, "shop2") == [line(9, "shop2")]
    assert page(tmp_path / "nowhere", "shop").lines == ()


def test_a_page_is_bounded_and_the_next_one_goes_on_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines may exceed a block, files may be smaller, and a page may end between two files."""
    chance = random.Random(11)
    monkeypatch.setattr(pages, "BLOCK_BYTES", 700)
    for bound in (1, 900, 5000):
        monkeypatch.setattr(pages, "PAGE_BYTES", bound)
        folder = tmp_path / str(bound)
        folder.mkdir()
        wanted: list[bytes] = []
        for number in range(12):
            lines = [line(n, size=chance.choice([1, 40, 3000])) for n in range(chance.randrange(9))]
            wanted += lines
            noise = [one for each in lines for one in (sample(), each)]
            write(folder, f"w.jsonl.{number + 1}", noise, at=1000 + number)
        assert all_lines(folder) == wanted
        first = page(folder, "shop")
        assert sum(map(len, first.lines)) <= bound + 700 + 3300
        assert len(first.lines) < len(wanted)


def test_so_much_is_read_for_a_page_though_there_be_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker with samples only answers at once, with a cursor."""
    monkeypatch.setattr(pages, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(pages, "READ_BYTES", 3000)
    write(tmp_path, "w.jsonl", [line(0), *[sample()] * 100], at=1)
    first = page(tmp_path, "shop")
    assert (first.lines, bool(first.cursor)) == ((), True)
    assert all_lines(tmp_path) == [line(0)]


def test_a_line_that_no_page_can_hold_is_left_out_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of it counts as a line."""
    monkeypatch.setattr(pages, "BLOCK_BYTES", 500)
    monkeypatch.setattr(pages, "LINE_BYTES", 1000)
    write(tmp_path, "w.jsonl", [line(0), line(1, size=5000), line(2)], at=1)
    assert all_lines(tmp_path) == [line(0), line(2)]
    write(tmp_path, "w.jsonl", [line(0), line(1), line(2, size=5000)[:-1]], at=1)
    assert all_lines(tmp_path) == [line(0), line(1)]


def test_a_cursor_follows_its_file_when_that_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later lines are on no later page; after a file's removal the remaining files are read."""
    monkeypatch.setattr(pages, "PAGE_BYTES", 1)
    monkeypatch.setattr(pages, "BLOCK_BYTES", len(line(0)))
    write(tmp_path, "w.jsonl", [line(n) for n in range(4)], at=1)
    first = page(tmp_path, "shop")
    (tmp_path / "w.jsonl").rename(tmp_path / "w.jsonl.1")
    write(tmp_path, "w.jsonl", [line(7)], at=2)
    second = page(tmp_path, "shop", first.cursor)
    assert first.lines[0] > second.lines[-1]
    assert line(7).strip() not in second.lines
    (tmp_path / "w.jsonl.1").unlink()
    for cursor in (second.cursor, "nonsense", "1:x", ":", "-1:-1"):
        assert page(tmp_path, "shop", cursor).lines == (line(7).strip(),)


async def test_an_app_answers_with_its_own_ledger_and_none_where_that_is_off(
    tmp_path: Path,
) -> None:
    """The group is the app's id; lines of other groups are left out."""
    write(tmp_path, "w.jsonl", [line(0), line(1, "other")], at=1)
    app = SimpleNamespace(conf=SimpleNamespace(id="shop"))
    assert await ledger_page(app, "") is None
    setattr(app, MARK, SimpleNamespace(writer=LedgerFiles(tmp_path, "w")))
    told = await ledger_page(app, "")
    assert told is not None
    assert decode_ledger(told).lines == (line(0).strip(),)


@pytest.mark.parametrize("digits", [70, 5000])
async def test_a_cursor_of_thousands_of_digits_is_answered_as_an_unknown_one(
    tmp_path: Path, digits: int
) -> None:
    """Files and memory both answer; Python refuses integers of 4,301 digits."""
    write(tmp_path, "w.jsonl", [line(0)], at=1)
    tail = pages.Tail()
    tail.keep([line(0).strip()])
    number = (tmp_path / "w.jsonl").stat().st_ino
    for read, cursor in (
        (LedgerFiles(tmp_path, "w").page, f"{number}:{'9' * digits}"),
        (tail.page, "9" * digits),
    ):
        app = SimpleNamespace(conf=SimpleNamespace(id="shop"))
        setattr(app, MARK, SimpleNamespace(writer=SimpleNamespace(page=read)))
        told = await ledger_page(app, cursor)
        assert told is not None
        assert decode_ledger(told).lines == (line(0).strip(),)


def test_a_page_in_memory_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest lines may be dropped before the first page and between two pages."""
    monkeypatch.setattr(pages, "TAIL_BYTES", 12)
    monkeypatch.setattr(pages, "PAGE_BYTES", 4)
    tail = pages.Tail()
    tail.keep(b"l%d" % n for n in range(10))
    newest = tail.page("shop")
    assert newest.lines == (b"l8", b"l9")
    before = tail.page("shop", newest.cursor)
    assert before.lines == (b"l6", b"l7")
    assert tail.page("shop", before.cursor).lines == (b"l4", b"l5")
    tail.keep([b"m0", b"m1"])
    again = tail.page("shop", newest.cursor)
    assert (again.lines, again.cursor) == ((b"l6", b"l7"), "")
    assert tail.page("shop", before.cursor).lines == (), "they are no longer kept"


def test_a_cursor_of_thousands_of_digits_is_unknown(tmp_path: Path) -> None:
    """Python refuses to read so many digits; anybody may ask for the page."""
    (tmp_path / "a.jsonl").write_bytes(line(1) + b"\n")
    inode = (tmp_path / "a.jsonl").stat().st_ino
    tail = pages.Tail()
    tail.keep([line(1)])
    assert page(tmp_path, "shop", f"{inode}:{'9' * 5000}").lines == (line(1).rstrip(b"\n"),)
    assert tail.page("shop", "9" * 5000).lines == (line(1),)
