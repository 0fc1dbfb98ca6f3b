"""A period of a ledger: the files to open, and the rows within the period."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.ledger import encode
from faust_assigner.pipeline.ledgers import rows as rows_module
from faust_assigner.pipeline.ledgers.chunks import Chunk
from faust_assigner.pipeline.ledgers.files import LedgerFile, find_files
from faust_assigner.pipeline.ledgers.period import Period, without_future
from faust_assigner.pipeline.ledgers.rows import accepted_rows

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = datetime(2026, 11, 1, tzinfo=UTC)


def decided(day: int, name: str) -> bytes:
    """Return a decision on a day of the month, and a placement of the decision."""
    at = (DAY + timedelta(days=day - 1, hours=12)).timestamp()
    return encode(
        "decision",
        {
            "group_id": "g",
            "decision_id": name,
            "ts": at,
            "generation": day,
            "trigger": "join",
            "policy": "p",
            "config": {},
            "members": [],
            "solve_ms": 1.0,
        },
    ) + encode(
        "assignment",
        {
            "group_id": "g",
            "decision_id": name,
            "topic": "t",
            "partition": 0,
            "role": "active",
            "member_id": "m",
            "prev_member_id": None,
            "moved": False,
            "standby_hit": False,
            "cold": False,
        },
    )


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Three files of a worker, with five days each; each file's time is that of its last line."""
    for number in range(3):
        days = range(1 + 5 * number, 6 + 5 * number)
        path = tmp_path / f"w.jsonl.{number + 1}"
        path.write_bytes(b"".join(decided(day, f"d{day}") for day in days))
        changed = (DAY + timedelta(days=days[-1] - 1, hours=12)).timestamp()
        os.utime(path, (changed, changed))
    return tmp_path


@pytest.mark.parametrize(
    ("since", "until", "opened", "days"),
    [
        (None, None, "123", range(1, 16)),
        ("2026-11-11", None, "3", range(11, 16)),
        (None, "2026-11-06", "1", range(1, 6)),
        ("2026-11-07", "2026-11-10", "2", range(7, 10)),
        ("2026-11-05T13:00", "2026-11-06T11:00", "1", range(0)),
        ("10d", None, "3", range(11, 16)),
    ],
)
def test_files_outside_are_not_read_and_rows_outside_are_left_out(
    ledger: Path,
    monkeypatch: pytest.MonkeyPatch,
    since: str | None,
    until: str | None,
    opened: str,
    days: range,
) -> None:
    """A file is chosen by its modification time and first line, an assignment by its decision."""
    read: list[str] = []

    def noted(chunk: Chunk) -> object:
        read.append(chunk.name[-1])
        return original(chunk)

    original = rows_module.read_lines
    monkeypatch.setattr(rows_module, "read_lines", noted)
    period = Period.parse(since, until, now=NOW)
    kept = period.rows(list(accepted_rows([str(ledger)], None, period)))
    # A clock may be off by an hour: a file that ends an hour before the period is opened too.
    assert "".join(read).startswith(opened)
    assert len(read) <= len(opened) + 1
    assert [row.values["decision_id"] for row in kept] == [
        f"d{day}" for day in days for _ in range(2)
    ]


def test_a_file_whose_age_is_not_told_is_read() -> None:
    """A storage without modification times excludes no file."""
    import fsspec

    fsspec.filesystem("memory").pipe_file("/period/w.jsonl", decided(1, "d1"))
    (file,) = find_files(["memory://period"])
    file = type(file)(file.name, file.size, "")
    assert Period(since=NOW).files([file]) == [file]
    assert Period(until=DAY - timedelta(days=9)).files([file]) == []


def test_a_file_whose_clock_was_set_back_is_read(tmp_path: Path) -> None:
    """Its first line is after the period, but the file was changed before the time of this line."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(decided(15, "ahead") + decided(2, "right"))
    changed = (DAY + timedelta(days=2)).timestamp()
    os.utime(path, (changed, changed))
    period = Period(until=DAY + timedelta(days=3))
    found = period.rows(list(accepted_rows([str(tmp_path)], None, period)))
    assert [row.values["decision_id"] for row in found] == ["right", "right"]


def test_lines_of_clocks_ahead_count_only_without_other_lines(tmp_path: Path) -> None:
    """An hour is tolerated. A decision with an earlier line stays, with its placements."""
    lines = [decided(2, "d2"), decided(3, "d3"), decided(9, "d9"), decided(9, "d2")]
    (tmp_path / "w.jsonl").write_bytes(b"".join(lines))
    rows = list(accepted_rows([str(tmp_path)]))

    def found(now: datetime) -> list[tuple[str, str]]:
        return [(row.table[0], row.values["decision_id"]) for row in without_future(rows, now)]

    late = DAY + timedelta(days=2, hours=11)
    assert found(late) == [("d", "d2"), ("a", "d2"), ("d", "d3"), ("a", "d3"), ("a", "d2")]
    assert found(late - timedelta(seconds=1)) == [("d", "d2"), ("a", "d2"), ("a", "d2")]
    assert len(found(DAY)) == len(rows) == 8


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("yesterday", None),
        (None, "2026-13-01"),
        ("2026-11-02", "1d2"),
        ("2026-11-02", "2026-11-01"),
        ("2026-11-01", "2026-11-01"),
    ],
)
def test_what_is_no_period_is_said(since: str | None, until: str | None) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match=r"--since|--until"):
        Period.parse(since, until, now=NOW)


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("999999d", None),
        ("0001-01-01", "9999-12-31"),
        ("0001-01-01T00:00+14:00", "9999-12-31T23:59-12:00"),
        ("1900-01-01", None),
    ],
)
def test_a_bound_far_away_leaves_out_nothing(
    ledger: Path, since: str | None, until: str | None
) -> None:
    """Neither the age nor the slack of an hour leaves Python's calendar."""
    files = find_files([str(ledger)])
    assert Period.parse(since, until, now=NOW).files(files) == files


def test_a_period_begins_with_its_first_moment_and_ends_before_its_last() -> None:
    """Adjacent periods contain each moment once."""
    period = Period(DAY, NOW)
    moment = timedelta(milliseconds=1)
    assert [period.holds(at) for at in (DAY - moment, DAY, NOW - moment, NOW)] == [
        False,
        True,
        True,
        False,
    ]


def test_a_file_that_begins_within_the_slack_after_the_period_is_opened(ledger: Path) -> None:
    """The clock of the file's worker may be fast."""
    files = find_files([str(ledger)])
    noon = DAY + timedelta(days=5, hours=12)
    assert Period(until=noon - timedelta(minutes=30)).files(files) == files[:2]
    assert Period(until=noon - timedelta(minutes=61)).files(files) == files[:1]


def test_an_offset_of_a_time_counts_and_a_time_without_it_is_utc() -> None:
    """The rule holds for options and for the modification times of a storage."""
    found = Period.parse("2026-11-21T12:00+02:00", "2026-11-21T12:00", now=NOW)
    assert found == Period(NOW - timedelta(hours=2), NOW)
    early = LedgerFile("memory://w.jsonl", 1, "2026-11-21T12:30:00+02:00")
    late = LedgerFile("memory://w.jsonl", 1, "2026-11-21T12:30:00")
    assert Period(since=NOW).files([early, late]) == [late]


def test_a_file_that_is_gone_before_its_first_line_is_read_stays_in_the_list(
    tmp_path: Path,
) -> None:
    """The reader then counts the file as refused; a failed listing would stop the run."""
    gone = [LedgerFile(str(tmp_path / "w.jsonl"), 9), LedgerFile("memory://gone/w.jsonl", 9)]
    assert Period(until=DAY).files(gone) == gone


def test_a_file_that_begins_with_an_assignment_begins_at_its_first_time(tmp_path: Path) -> None:
    """A rotation separates a decision from its assignments, which have no time of their own."""
    decision, assignment = decided(6, "d6").splitlines(keepends=True)
    (tmp_path / "w.jsonl").write_bytes(assignment + decision)
    files = find_files([str(tmp_path)])
    assert Period(until=DAY + timedelta(days=5)).files(files) == []
    assert Period(until=DAY + timedelta(days=6)).files(files) == files


def test_the_first_time_is_that_of_the_listed_file_and_not_of_its_successor(tmp_path: Path) -> None:
    """A file rotated after the listing is found by its inode."""
    path = tmp_path / "w.jsonl"
    path.write_bytes(decided(1, "d1"))
    files = find_files([str(tmp_path)])
    path.rename(tmp_path / "w.jsonl.1")
    path.write_bytes(decided(9, "d9"))
    assert Period(until=DAY + timedelta(days=3)).files(files) == files
