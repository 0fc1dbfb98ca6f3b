"""The answers at the top of the page."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from faust_assigner.pipeline.history import answers
from faust_assigner.pipeline.history.answers import (
    release_rows,
    standstill_rows,
    summary,
    week_rows,
    why,
)

END = date(2026, 11, 25)
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def hour(days_ago: int, **more: Any) -> dict[str, Any]:
    """Return an hour of the timeline with a rebalance."""
    counts = dict.fromkeys(("tasks_gone", "tasks_balance", "tasks_new", "tasks_cold"), 0)
    told = {"members": 3, "standstill_s": None, "lag_max": None, "lag_sum": None}
    day = END - timedelta(days=days_ago)
    return {
        "group_id": "g", "dt": day, "rebalances": 1, "recoveries": 0, **counts, **told, **more
    }  # fmt: skip


def tables(**found: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return a report's tables, empty except for these."""
    return {**{name: [] for name in ("timeline", "standstills", "rebalances")}, **found}


def test_a_week_is_seven_days_and_is_compared_with_the_seven_before() -> None:
    """The seventh day ago is in the week before; the fourteenth is in neither week."""
    rows = [hour(0), hour(6), hour(7), hour(13), hour(13), hour(14)]
    found = {row["figure"]: row for row in week_rows(tables(timeline=rows))}
    told = found["rebalances"]
    assert (told["this week"], told["week before"], told["change"]) == ("2", "3", "-1 (-33%)")


def test_without_a_week_before_there_is_no_comparison() -> None:
    """A missing comparison is a dash, not a zero."""
    found = {row["figure"]: row for row in week_rows(tables(timeline=[hour(0), hour(1)]))}
    assert (found["rebalances"]["week before"], found["rebalances"]["change"]) == ("-", "")


def test_a_standstill_of_the_week_is_in_the_summary_and_an_older_one_in_the_table() -> None:
    """The summary is of the week; the table is of all days, longest first."""
    common = {
        "group_id": "g", "decision_id": "d", "topic": "t", "partition": 1, "member": "worker-1",
        "source": "replay", "records": 1_200, "trigger": None, "cause": "owner gone",
    }  # fmt: skip
    rows = [
        {**common, "seconds": 5.0, "started": NOON},
        {**common, "seconds": 50.0, "started": NOON - timedelta(days=9)},
    ]
    rounds = [{"group_id": "g", "decision_id": "d", "trigger": "leave", "dt": END, "deploy": "v1"}]
    told = tables(timeline=[hour(0)], standstills=rows, rebalances=rounds)
    assert [row["seconds"] for row in standstill_rows(told)] == [50.0, 5.0]
    assert (
        "The longest standstill: t/1 on worker-1 for 5.0 s (the worker had no copy of the state and "
        "replayed 1,200 records; the previous owner had left; round for: leave)." in summary(told)
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("replay", "no copy of the state and replayed 7 records"),
        ("standby", "standby copy lacked 7 records"),
        ("local", "own files lacked 7 records"),
        ("snapshot", "a snapshot and read 7 further records"),
    ],
)
def test_why_names_the_origin_of_the_state(source: str, said: str) -> None:
    """An unknown cause or trigger is left out."""
    told = why({"source": source, "records": 7, "cause": None, "trigger": None}, None)
    assert told.endswith(said)


def test_releases_are_compared_per_round() -> None:
    """The older release moved more in total, the newer more per round."""

    def rounds(deploy: str, hour: int, count: int, moved: int, took: float | None) -> Any:
        row = {"group_id": "g", "deploy": deploy, "tasks_moved": moved, "tasks_cold": 0}
        return [
            {**row, "ts": NOON.replace(hour=hour, minute=n), "longest_recovery_s": took}
            for n in range(count)
        ]

    rows = [*rounds("new", 13, 1, 4, None), *rounds("old", 12, 3, 2, 9.0)]
    found = release_rows({"rebalances": rows})
    assert [
        (row["release"], row["tasks moved"], row["moved per round"], row["longest standstill s"])
        for row in found
    ] == [("old", 6, 2.0, 9.0), ("new", 4, 4.0, None)]


def test_a_history_without_lines_has_an_answer() -> None:
    """The page has a sentence instead of empty tables."""
    assert summary(tables()) == ["The history has no line."]


def rich_weeks() -> dict[str, list[dict[str, Any]]]:
    """Return two weeks with distinct figures, and a day of the week before."""
    named = ("rebalances", "tasks_gone", "tasks_balance", "tasks_new", "tasks_cold", "recoveries")
    rest = ("standstill_s", "lag_max", "members")

    def row(days_ago: int, counts: tuple[int, ...], others: tuple[Any, ...]) -> dict[str, Any]:
        return hour(
            days_ago,
            **dict(zip(named, counts, strict=True)),
            **dict(zip(rest, others, strict=True)),
        )

    rows = [
        row(6, (2, 3, 5, 7, 11, 13), (0.5, 1_700, 6)),
        row(0, (1, 10, 20, 30, 4, 1_000), (2_000.25, 40, 9)),
        row(3, (0, 0, 0, 0, 0, 0), (None, None, None)),
        row(13, (4, 1, 1, 1, 0, 6), (4_000.5, 850, 8)),
        row(7, (2, 4, 5, 6, 0, 7), (3.0, 12, 4)),
        row(14, (900, 900, 900, 900, 900, 900), (9_000.0, 9_000_000, 900)),
    ]
    releases = [(6, "v3"), (0, "v2"), (0, "v4"), (7, "v2"), (13, "v1"), (14, "v0")]
    rounds = [
        {"group_id": "g", "decision_id": f"d{n}", "trigger": "join", "deploy": deploy}
        | {"dt": END - timedelta(days=n)}
        for n, deploy in releases
    ]
    return tables(timeline=rows, rebalances=rounds)


def test_each_figure_of_two_weeks_has_its_own_sum_or_extreme_and_its_change() -> None:
    """Hours without members, lag or standstill do not affect the extremes."""
    found = [tuple(row.values()) for row in week_rows(rich_weeks())]
    assert found == [
        ("rebalances", "3", "6", "-3 (-50%)"),
        ("tasks moved", "75", "18", "+57 (+317%)"),
        ("… because their owner had left", "13", "5", "+8 (+160%)"),
        ("… for balance", "25", "6", "+19 (+317%)"),
        ("… cold", "15", "0", "+15"),
        ("recoveries", "1,013", "13", "+1,000 (+7692%)"),
        ("longest standstill, s", "2,000.2", "4,000.5", "-2,000.2 (-50%)"),
        ("highest lag of a partition, records", "1,700", "850", "+850 (+100%)"),
        ("most members", "9", "8", "+1 (+12%)"),
        ("fewest members", "6", "4", "+2 (+50%)"),
        ("releases", "3", "2", "new: v3, v4"),
    ]
    assert [list(row) for row in week_rows(rich_weeks())] == 11 * [
        ["figure", "this week", "week before", "change"]
    ]


def test_figures_that_are_equal_or_unknown_have_no_change() -> None:
    """The earlier week has hours without members, and the number of rebalances is equal."""
    told = tables(timeline=[hour(0, members=5), hour(7, members=None)])
    found = {row.pop("figure"): tuple(row.values()) for row in week_rows(told)}
    assert found["rebalances"] == ("1", "1", "")
    assert found["most members"] == ("5", "-", "")
    assert found["highest lag of a partition, records"] == ("-", "-", "")


@pytest.mark.parametrize(
    ("days_ago", "row"),
    [(6, ("5", "-", "")), (7, ("5", "0", "new: c, d, e")), (8, ("5", "0", "new: c, d, e"))],
)
def test_releases_are_new_only_if_the_history_is_older_than_the_week(
    days_ago: int, row: tuple[str, ...]
) -> None:
    """Only the last three names of new releases are shown."""
    rounds = [
        {"group_id": "g", "decision_id": deploy, "deploy": deploy, "dt": END, "trigger": ""}
        for deploy in "adbec"
    ]
    told = week_rows(tables(timeline=[hour(0), hour(days_ago)], rebalances=rounds))
    assert tuple(told[-1].values()) == ("releases", *row)


def test_releases_of_an_older_week_without_a_new_one_are_counted() -> None:
    """The first day of the newest week belongs to that week alone."""
    rounds = [
        {"group_id": "g", "decision_id": "d", "deploy": "v", "dt": END - timedelta(days=ago)}
        for ago in (6, 7, 8)
    ]
    told = week_rows(tables(timeline=[hour(0), hour(20)], rebalances=rounds))
    assert tuple(told[-1].values()) == ("releases", "1", "1", "")


def standstill(seconds: float, **more: Any) -> dict[str, Any]:
    """Return a standstill at noon of the last day."""
    return {
        "group_id": "g", "decision_id": "d", "topic": "t", "partition": 3, "member": "w",
        "source": "local", "records": 4_000, "trigger": None, "cause": None,
        "started": NOON, "seconds": seconds, **more,
    }  # fmt: skip


def test_a_row_of_a_standstill_has_all_its_columns_and_the_trigger_of_its_own_group() -> None:
    """Two groups share a decision's id; equal standstills are in order of time."""
    rounds = [
        {"group_id": group, "decision_id": "d", "trigger": trigger}
        for group, trigger in (("g", "join"), ("h", "leave"))
    ]
    rows = [
        standstill(2.5, started=NOON + timedelta(hours=1), topic="later"),
        standstill(2.5, group_id="h", cause="balance", source="standby", partition=8, member="x"),
        standstill(9.0, trigger="own word", decision_id="old", source="tape", records=5),
        standstill(1.0, decision_id="unknown", cause="no owner before", source="snapshot"),
    ]
    assert standstill_rows(tables(standstills=rows, rebalances=rounds)) == [
        {
            "seconds": 9.0,
            "partition": "t/3",
            "why": "the worker restored 5 records; round for: own word",
            "time": NOON,
            "member": "w",
            "group": "g",
        },
        {
            "seconds": 2.5,
            "partition": "t/8",
            "why": "the worker's standby copy lacked 4,000 records; the partition moved for balance; "
            "round for: leave",
            "time": NOON,
            "member": "x",
            "group": "h",
        },
        {
            "seconds": 2.5,
            "partition": "later/3",
            "why": "the worker's own files lacked 4,000 records; round for: join",
            "time": NOON + timedelta(hours=1),
            "member": "w",
            "group": "g",
        },
        {
            "seconds": 1.0,
            "partition": "t/3",
            "why": "the worker loaded a snapshot and read 4,000 further records; the partition had no "
            "owner before",
            "time": NOON,
            "member": "w",
            "group": "g",
        },
    ]


def test_ten_standstills_are_shown() -> None:
    """The shortest of eleven is left out."""
    rows = [standstill(float(n)) for n in range(11)]
    found = standstill_rows(tables(standstills=rows))
    assert [row["seconds"] for row in found] == [float(n) for n in range(10, 0, -1)]


def test_a_release_of_a_group_has_the_figures_of_its_own_rounds() -> None:
    """Two groups share a release's name; a round without recovery has no standstill."""

    def round_(group: str, deploy: str, minute: int, moved: int, cold: int, took: Any) -> Any:
        return {
            "group_id": group, "deploy": deploy, "ts": NOON + timedelta(minutes=minute),
            "tasks_moved": moved, "tasks_cold": cold, "longest_recovery_s": took,
        }  # fmt: skip

    rows = [
        round_("b", "v1", 9, 7, 1, 8.0),
        round_("b", "v1", 5, 2, 2, None),
        round_("b", "v1", 7, 3, 4, 0.0),
        round_("b", "v1", 8, 1, 0, 1.0),
        round_("a", "v1", 5, 0, 0, None),
        round_("b", "v0", 5, 6, 5, 3.0),
    ]
    names = ("group", "release", "first round", "rounds", "tasks moved", "cold")
    names += ("moved per round", "median standstill s", "longest standstill s")
    first = NOON + timedelta(minutes=5)
    assert release_rows({"rebalances": rows}) == [
        dict(zip(names, values, strict=True))
        for values in (
            ("a", "v1", first, 1, 0, 0, 0.0, None, None),
            ("b", "v0", first, 1, 6, 5, 6.0, 3.0, 3.0),
            ("b", "v1", first, 4, 13, 7, 3.25, 1.0, 8.0),
        )
    ]


def test_the_summary_of_a_rich_week_is_three_sentences() -> None:
    """A standstill on the week's first day counts; a longer standstill the day before does not."""
    found = rich_weeks()
    start = NOON - timedelta(days=6)
    older = standstill(9_999.0, started=start - timedelta(days=1))
    rows = [standstill(1_234.56, started=start), older, standstill(7.0, partition=1)]
    assert summary({**found, "standstills": rows}) == [
        "From 2026-11-19 to 2026-11-25 the group had 3 rebalances (6 in the week before); "
        "75 tasks moved (18 in the week before), 15 of them cold.",
        "The longest standstill: t/3 on w for 1,234.6 s (the worker's own files lacked 4,000 records).",
        "The highest lag of a partition: 1,700 records (850 in the week before).",
    ]


def test_the_summary_of_one_quiet_day_is_one_sentence() -> None:
    """The day has one rebalance and one task, without a standstill or a lag."""
    assert summary(tables(timeline=[hour(0, tasks_new=1)])) == [
        "From 2026-11-19 to 2026-11-25 the group had 1 rebalance; 1 task moved, 0 of them cold."
    ]


@pytest.mark.parametrize(
    ("now", "before", "told"),
    [(0, 4, ("0", "4", "-4 (-100%)")), (0, 0, ("0", "0", "")), (3, 0, ("3", "0", "+3"))],
)
def test_a_zero_is_a_figure_and_no_missing_one(
    now: int, before: int, told: tuple[str, ...]
) -> None:
    """The change of a week without recoveries is known; without a divisor there is no share."""
    rows = [hour(0, recoveries=now), hour(7, recoveries=before)]
    (row,) = [row for row in week_rows(tables(timeline=rows)) if row["figure"] == "recoveries"]
    assert tuple(row.values()) == ("recoveries", *told)


@pytest.mark.parametrize(
    ("own", "rounds", "said"),
    [("own", "other", "; round for: own"), ("", "other", "; round for: other"), (None, "", "")],
)
def test_the_trigger_that_was_stored_with_a_standstill_goes_before_its_rounds(
    own: str | None, rounds: str, said: str
) -> None:
    """The decision may be of a day outside the report."""
    told = why({"source": "local", "records": 7, "cause": None, "trigger": own}, rounds)
    assert told == f"the worker's own files lacked 7 records{said}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (3.0, "3.0"), (1_234.56, "1,234.6"), (12_345, "12,345"), (0, "0"), (None, "-")],
)
def test_seconds_keep_their_digit_and_counts_have_none(value: float | None, text: str) -> None:
    """A standstill of exactly three seconds is not a count."""
    assert answers._number(value) == text
