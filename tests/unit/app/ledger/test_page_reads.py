"""Pages to the byte: their lines, their ends, and the start of the next page."""

from __future__ import annotations

from pathlib import Path

import pytest

from faust_assigner.app.ledger import pages
from faust_assigner.app.ledger.pages import page
from tests.unit.app.ledger.test_pages import write


def marked(number: int, group: str = "shop", size: int = 0) -> bytes:
    """Return a short line of the group without line break, padded to ``size`` bytes."""
    body = b'"%d' % number + b'"group_id":"%s"' % group.encode()
    return body + b"." * max(0, size - len(body))


@pytest.mark.parametrize("block", [1, 7, 30, 61, 10_000])
def test_files_are_read_newest_first_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Files are ordered by time, then by number; each page's lines are oldest first."""
    monkeypatch.setattr(pages, "group_marker", lambda group: b'"group_id":"%s"' % group.encode())
    monkeypatch.setattr(pages, "BLOCK_BYTES", block)
    monkeypatch.setattr(pages, "PAGE_BYTES", 1)
    for name, numbers, at in (
        ("b.jsonl", (4, 5), 200.0),
        ("a.jsonl.3", (2, 3), 150.0),
        ("a.jsonl.2", (0, 1), 100.0),
        ("empty.jsonl", (), 160.0),
    ):
        write(tmp_path, name, [marked(number) + b"\n" for number in numbers], at)
    (tmp_path / "other.json").write_bytes(marked(9) + b"\n")
    found, cursor = list[bytes](), ""
    for _ in range(20):
        one = page(tmp_path, "shop", cursor)
        assert list(one.lines) == sorted(one.lines)
        found[:0] = one.lines
        cursor = one.cursor
        if not cursor:
            break
    assert found == [marked(number) for number in range(6)]


def test_a_page_ends_when_it_is_full_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cursor is the end of the remaining lines, or the end of the next file."""
    monkeypatch.setattr(pages, "group_marker", lambda group: b'"group_id":"%s"' % group.encode())
    size = 50
    monkeypatch.setattr(pages, "BLOCK_BYTES", size + 1)
    write(tmp_path, "new.jsonl", [marked(n, size=size) + b"\n" for n in range(2, 5)], at=20)
    write(tmp_path, "old.jsonl", [marked(n, size=size) + b"\n" for n in range(2)], at=10)
    numbers = {path.stem: path.stat().st_ino for path in tmp_path.iterdir()}
    monkeypatch.setattr(pages, "PAGE_BYTES", size)
    first = page(tmp_path, "shop")
    assert first.lines == (marked(4, size=size),)
    assert first.cursor == f"{numbers['new']}:{2 * size + 1}"
    assert page(tmp_path, "shop", first.cursor).lines == (marked(3, size=size),)
    monkeypatch.setattr(pages, "PAGE_BYTES", size + 1)
    whole = page(tmp_path, "shop")
    assert whole.lines == tuple(marked(n, size=size) for n in (2, 3, 4))
    assert whole.cursor == f"{numbers['old']}:{2 * (size + 1)}"
    rest = page(tmp_path, "shop", whole.cursor)
    assert (rest.lines, rest.cursor) == (tuple(marked(n, size=size) for n in (0, 1)), "")
    beyond = page(tmp_path, "shop", f"{numbers['old']}:99999")
    assert beyond.lines == rest.lines
    monkeypatch.setattr(pages, "READ_BYTES", 2 * (size + 1))
    monkeypatch.setattr(pages, "PAGE_BYTES", 10**6)
    assert page(tmp_path, "shop").lines == first.lines


def test_lines_of_samples_of_other_groups_and_too_long_ones_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line of the maximum size is included; an unfinished line is not."""
    monkeypatch.setattr(pages, "group_marker", lambda group: b'"group_id":"%s"' % group.encode())
    monkeypatch.setattr(pages, "LINE_BYTES", 60)
    lines = [
        marked(0),
        pages.SAMPLE + marked(1),
        b"",
        marked(2, "shop2"),
        marked(3, size=60),
        marked(4, size=61),
        marked(5),
    ]
    data = b"\n".join(lines) + b"\n" + marked(6)
    write(tmp_path, "w.jsonl", [data], at=1)
    for block in (25, 60, 61, 10_000):
        monkeypatch.setattr(pages, "BLOCK_BYTES", block)
        one = page(tmp_path, "shop")
        assert (one.lines, one.cursor) == ((marked(0), marked(3, size=60), marked(5)), "")


def test_a_file_replaced_between_listing_and_reading_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removed file is skipped too; later files are read."""
    monkeypatch.setattr(pages, "group_marker", lambda group: b'"group_id":"%s"' % group.encode())
    for number, name in enumerate(("a.jsonl", "b.jsonl", "c.jsonl")):
        write(tmp_path, name, [marked(number) + b"\n"], at=30 - 10 * number)
    listing = pages._newest_first(tmp_path)
    monkeypatch.setattr(pages, "_newest_first", lambda folder: listing)
    (tmp_path / "a.jsonl").rename(tmp_path / "a.jsonl.1")
    write(tmp_path, "a.jsonl", [marked(7) + b"\n"], at=40)
    (tmp_path / "b.jsonl").unlink()
    assert page(tmp_path, "shop").lines == (marked(2),)


def test_lines_in_memory_are_the_newest_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples and long lines are not kept; a page has at least one line."""
    monkeypatch.setattr(pages, "TAIL_BYTES", 12)
    monkeypatch.setattr(pages, "LINE_BYTES", 6)
    monkeypatch.setattr(pages, "PAGE_BYTES", 5)
    tail = pages.Tail()
    assert (tail.page("shop").lines, tail.page("shop").cursor) == ((), "")
    tail.keep([b"first.", pages.SAMPLE, b"too long", b"2nd..."])
    one = tail.page("shop")
    assert (one.app, one.lines, one.cursor) == ("shop", (b"2nd...",), "1")
    assert tail.page("shop", one.cursor).lines == (b"first.",)
    tail.keep([b"3"])
    newest = tail.page("shop")
    assert (newest.lines, newest.cursor) == ((b"2nd...", b"3"), "")
    assert tail.page("shop", "3").lines == (b"2nd...", b"3")
    assert tail.page("shop", "2").lines == (b"2nd...",)
    assert tail.page("shop", "99").lines == (b"2nd...", b"3")
    assert tail.page("shop", "0").lines == tail.page("shop", "1").lines == ()
    tail.keep([b"4", b"5", b"6"])
    assert tail.page("shop").lines == (b"2nd...", b"3", b"4", b"5", b"6")[-5:]
    monkeypatch.setattr(pages, "TAIL_BYTES", 3)
    tail.keep([])
    assert tail.page("shop").lines == (b"4", b"5", b"6")
    assert tail.page("shop", "4").lines == (b"4",)


def test_a_page_counts_each_byte_that_it_has_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that spans several blocks does not end the page early."""
    monkeypatch.setattr(pages, "BLOCK_BYTES", 10)
    monkeypatch.setattr(pages, "READ_BYTES", 40)
    write(tmp_path, "w.jsonl", [b"x" * 30 + b"\n"] * 3, at=1)
    number = (tmp_path / "w.jsonl").stat().st_ino
    cursors, cursor = list[str](), ""
    for _ in range(5):
        cursor = page(tmp_path, "shop", cursor).cursor
        cursors.append(cursor)
        if not cursor:
            break
    assert cursors == [f"{number}:61", f"{number}:30", ""]


@pytest.mark.parametrize("offset", ["x", "", "-1", "²"])
def test_a_cursor_without_an_offset_reads_its_file_whole(tmp_path: Path, offset: str) -> None:
    """Newer files are left out; an older file follows."""
    lines = [b'{"table":"decision","group_id":"shop","n":%d}' % n for n in range(3)]
    for at, (name, line) in enumerate(zip(("old", "this", "new"), lines, strict=True), 1):
        write(tmp_path, f"{name}.jsonl", [line + b"\n"], at=at)
    number = (tmp_path / "this.jsonl").stat().st_ino
    found = page(tmp_path, "shop", f"{number}:{offset}")
    assert (found.lines, found.cursor) == (tuple(lines[:2]), "")
