"""Lines of a worker whose clock is far ahead must not decide which week the answers are about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from faust_assigner.pipeline.console import show_history
from faust_assigner.pipeline.history import output
from faust_assigner.pipeline.history.answers import summary, week_rows, weeks_of
from faust_assigner.pipeline.history.page import to_html
from faust_assigner.pipeline.history.quality import CLOCK_SKEW, Quality
from faust_assigner.pipeline.history.report import REPORTED, Report

from .test_answers import END, NOON, hour, tables

AHEAD = -4_000


def release(days_ago: int, deploy: str) -> dict[str, Any]:
    """Return a rebalance of a release."""
    at = NOON - timedelta(days=days_ago)
    return {
        "group_id": "g", "decision_id": deploy, "trigger": "join", "ts": at, "dt": at.date(),
        "deploy": deploy, "longest_recovery_s": None, "tasks_moved": 1, "tasks_cold": 0,
    }  # fmt: skip


def standstill(days_ago: float, seconds: float) -> dict[str, Any]:
    """Return a recovery of this duration."""
    return {
        "group_id": "g", "decision_id": "d", "topic": "t", "partition": int(seconds), "member": "m",
        "source": "local", "records": 3, "trigger": None, "cause": None, "seconds": seconds,
        "started": NOON - timedelta(days=days_ago),
    }  # fmt: skip


def told() -> dict[str, list[dict[str, Any]]]:
    """Return two weeks, and one line that is eleven years ahead."""
    return tables(
        timeline=[hour(AHEAD, members=9), hour(0, rebalances=2), hour(6, rebalances=3), hour(7)],
        rebalances=[release(AHEAD, "ahead"), release(0, "new"), release(7, "old")],
        standstills=[standstill(AHEAD, 70.0), standstill(6, 8.0)],
    )


@pytest.mark.parametrize(
    ("days", "today", "expected"),
    [
        ((0, -1), END, (END - timedelta(days=6), END)),
        ((0, -1), END + timedelta(days=1), (END - timedelta(days=5), END + timedelta(days=1))),
        ((0, -1), None, (END - timedelta(days=5), END + timedelta(days=1))),
        ((4, 9), END, (END - timedelta(days=10), END - timedelta(days=4))),
        ((-3, -5), END, (END - timedelta(days=1), END + timedelta(days=5))),
        ((), END, None),
    ],
)
def test_the_newest_week_ends_with_the_newest_day_that_is_not_in_the_future(
    days: tuple[int, ...], today: date | None, expected: tuple[date, date] | None
) -> None:
    """Today counts, tomorrow does not; a history of future days only has a week, too."""
    assert weeks_of(tables(timeline=[hour(each) for each in days]), today) == expected


def test_a_line_of_the_future_is_in_neither_week() -> None:
    """Its hours, its release and its standstill are left out."""
    rows = {row["figure"]: tuple(row.values())[1:] for row in week_rows(told(), END)}
    assert rows["rebalances"] == ("5", "1", "+4 (+400%)")
    assert rows["most members"] == ("3", "3", "")
    assert rows["releases"] == ("1", "1", "new: new")


def test_the_summary_is_about_the_week_that_ends_today() -> None:
    """The sentences name the week of the other lines and its own standstill."""
    assert summary(told(), END) == [
        "From 2026-11-19 to 2026-11-25 the group had 5 rebalances (1 in the week before); "
        "0 tasks moved (0 in the week before), 0 of them cold.",
        "The longest standstill: t/8 on m for 8.0 s (the worker's own files lacked 3 records).",
    ]


def test_the_week_has_its_longest_standstill_though_earlier_ones_were_longer() -> None:
    """Ten longer standstills of earlier days fill the table, but not the summary."""
    rows = [*(standstill(9, 100.0 + number) for number in range(12)), standstill(2, 5.0)]
    assert summary(tables(timeline=[hour(0)], standstills=rows), END)[1:] == [
        "The longest standstill: t/5 on m for 5.0 s (the worker's own files lacked 3 records)."
    ]


def quality(checked_at: datetime) -> Quality:
    """Return the quality of a history without lines, checked at this time."""
    return Quality(checked_at, 0, 0, 0, 0, 0, None, None, 0, (), 0, None, None, 0, 0)


def test_a_day_is_in_the_future_beyond_the_tolerance_of_clocks() -> None:
    """An hour before midnight the next day counts; a moment earlier it does not."""
    edge = datetime(2026, 11, 26, tzinfo=UTC) - CLOCK_SKEW
    assert quality(edge).today == date(2026, 11, 26)
    assert quality(edge - timedelta(seconds=1)).today == date(2026, 11, 25)


def test_the_page_and_the_terminal_leave_future_days_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both take the day of the check; a report without a check takes all days."""
    report = Report({**dict.fromkeys(REPORTED, ()), **told(), "standstills": (), "rebalances": ()})
    checked = replace(report, quality=quality(NOON))
    assert report.today is None
    for each, expected in ((checked, True), (report, False)):
        show_history(each, "out")
        printed = capsys.readouterr().out
        page = to_html(each, {}, title="t").decode()
        assert ("to 2026-11-25 the group had 5 rebalances" in printed) is expected
        assert ("to 2026-11-25 the group had 5 rebalances" in page) is expected
        assert ("+4 (+400%)" in page) is expected


def test_the_owners_now_are_not_those_of_a_future_day() -> None:
    """A group with future days only has owners, too."""
    rows = [
        {"group_id": group, "dt": END - timedelta(days=days_ago), "member": str(days_ago)}
        for group, days_ago in (("g", 1), ("g", 0), ("g", AHEAD), ("h", -3), ("h", -2))
    ]
    found = output._newest_of_each_group(rows, END)
    assert [(row["group_id"], row["member"]) for row in found] == [("g", "0"), ("h", "-3")]


def test_future_days_do_not_displace_the_days_of_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They only fill its number of days."""
    monkeypatch.setattr(output, "REPORT_DAYS", 3)
    past, future = ["2026-11-23", "2026-11-24", "2026-11-25"], ["2027-01-01", "2027-01-02"]
    assert output._report_days([*past, *future], END) == past
    assert output._report_days([*past[1:], *future], END) == [*past[1:], future[1]]
    assert output._report_days(future, END) == future
