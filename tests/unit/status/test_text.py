"""The report as text with several members: order by severity, equal properties, names, colours."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from faust_assigner.status.build import build
from faust_assigner.status.render import render
from faust_assigner.status.report import (
    NOT_ASKED,
    SILENT,
    UNREACHABLE,
    Difference,
    MemberReport,
    Report,
    WaitReport,
)
from faust_assigner.status.words import condition, span
from tests.unit.status.test_several import moving, status


def member(name: str, **more: Any) -> MemberReport:
    """A ready member."""
    evidence = moving({name: status()})
    (found,) = build(evidence).members
    return replace(found, **{"ready": True, **more})


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"answer": NOT_ASKED, "is_leaving": True}, ("unknown", NOT_ASKED)),
        ({"answer": UNREACHABLE, "not_live": ("a",)}, ("bad", UNREACHABLE)),
        ({"is_leaving": True, "not_live": ("a",)}, ("changing", "stops")),
        ({"not_live": ("a", "b"), "not_ready": ("c",)}, ("bad", "not live: a")),
        ({"not_ready": ("c", "d"), "restore_remaining_records": 5}, ("bad", "not ready: c")),
        (
            {"restore_remaining_records": 5_000, "restore_remaining_s": 90.0},
            ("changing", "ready, restores 5,000 (1 min 30 s)"),
        ),
        ({"restore_remaining_records": 0}, ("good", "ready")),
    ],
)
def test_the_state_of_a_member_is_its_worst_news(more: dict[str, Any], found: Any) -> None:
    """The cases are ordered by severity."""
    assert condition(member("x", **more)) == found


def report(*members: MemberReport, **more: Any) -> Report:
    """A report of these members."""
    return replace(build(moving({"x": status()})), **{"members": members, "waits": (), **more})


def printed(found: Report, *, colours: bool = False, **options: Any) -> str:
    """The text for a pipe or a terminal."""
    console = Console(
        file=io.StringIO(),
        width=200,
        highlight=False,
        emoji=False,
        force_terminal=colours,
        color_system="standard" if colours else None,
        no_color=False,
    )
    console.print(render(found, **options))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_short_screen_shows_the_worst_members_by_name_within_a_rank() -> None:
    """The order is lost, not live or ready, restoring, rest; the screen's height limits the rows."""
    members = (
        member("a"),
        member("b", answer=NOT_ASKED),
        member("c", restore_remaining_records=5),
        member("d", not_ready=("x",)),
        member("e", not_live=("x",)),
        member("g", answer=SILENT),
        member("f", answer=UNREACHABLE),
    )
    order = ["f", "g", "d", "e", "c", "a", "b"]
    for rows in (1, 4, 6):
        shown = printed(report(*members), rows=rows)
        assert re.findall(r"^([a-g]) ", shown, re.MULTILINE) == order[:rows]
        assert f"and {7 - rows} more members" in shown
    for rows in (7, 8, None):
        shown = printed(report(*members), rows=rows)
        assert re.findall(r"^([a-g]) ", shown, re.MULTILINE) == [one.name for one in members]
        assert "more members" not in shown


def test_a_part_of_the_report_without_a_line_has_no_title() -> None:
    """Each title is printed once a line follows it."""
    titles = ("waiting", "workers differ in", "not known")
    quiet = report(member("a"))
    parts: list[dict[str, Any]] = [
        {"waits": (WaitReport(kind="answer", member="a", text="stands"),)},
        {"differences": (Difference(name="x", values={"1": ("a",), "2": ("b",)}),)},
        {"problems": ("no lag of t-0",)},
    ]
    found = []
    for more in ({}, *parts):
        lines = printed(replace(quiet, **more)).splitlines()
        found.append([title for title in titles if title in map(str.rstrip, lines)])
    assert found == [[], *([title] for title in titles)]


@pytest.mark.parametrize(
    ("properties", "alike", "columns"),
    [
        (({}, {}), "protocol cooperative, no rack", []),
        (
            ({"rack": "r", "version": "1"}, {"rack": "r", "version": "1"}),
            "protocol cooperative, version 1, rack r",
            [],
        ),
        (({"rack": "r"}, {"capacity": 2.0}), "protocol cooperative", ["rack", "capacity"]),
        (({"kind": "eager"}, {"version": "2"}), "no rack", ["protocol", "version"]),
    ],
)
def test_equal_properties_are_told_once_and_others_have_a_column(
    properties: tuple[dict[str, Any], ...], alike: str, columns: list[str]
) -> None:
    """A common unknown version or capacity is left out, but a missing rack is mentioned."""
    shown = printed(report(*(member(f"m{n}", **one) for n, one in enumerate(properties))))
    (line,) = re.findall(r"^all members: (.*)$", shown, re.MULTILINE)
    head = next(line for line in shown.splitlines() if line.startswith("member "))
    assert (line.rstrip(), head.split()[6:]) == (alike, columns)


def test_a_member_is_named_with_its_host_its_address_and_its_instance_id() -> None:
    """A fact that the name contains already is left out."""
    members = (
        member("h1:6066", url="http://h1:6066/", host="h1", instance_id=None),
        member("shop-1", url="", address="10.0.0.9", host="pod", instance_id="shop-1"),
        member("m-7", url="http://h2:1", host="h2", instance_id="twice"),
    )
    lines = [line.split("   ")[0].rstrip() for line in printed(report(*members)).splitlines()]
    at = lines.index("h1:6066")
    assert lines[at : at + 5] == [
        "h1:6066",
        "shop-1",
        "pod, 10.0.0.9",
        "m-7",
        "h2:1, instance twice",
    ]


def test_a_setting_is_shown_with_its_most_common_value_first() -> None:
    """Equally common values are in alphabetical order."""
    values = {"a": ("w1",), "c": ("w3", "w4"), "b": ("w2",)}
    shown = printed(report(member("x"), differences=(Difference(name="S", values=values),)))
    assert "  S: c on w3, w4; a on w1; b on w2" in shown


def colour_of(words: str, shown: str) -> str | None:
    """The colour of these words on a terminal."""
    found = re.search(r"\x1b\[([0-9;]*)m" + re.escape(words), shown)
    return None if found is None else found[1].rpartition(";")[2]


GREEN, YELLOW, RED = "32", "33", "31"


def test_what_is_amiss_is_yellow_or_red_on_a_terminal() -> None:
    """Healthy values are green or have no colour."""
    base = report(
        member("a"), member("b", is_leaving=True), member("c", not_live=("x",)),
        state="Odd", is_settled=False,
    )  # fmt: skip
    base = replace(base, totals=replace(base.totals, answered=3, members=3, standing_partitions=2))
    shown = printed(base, colours=True)
    assert [colour_of(one, shown) for one in ("Odd", "ready", "stops", "not live")] == [
        YELLOW, GREEN, YELLOW, RED,
    ]  # fmt: skip
    assert colour_of("2 partitions not processed", shown) == YELLOW
    well = replace(base, is_settled=True, totals=replace(base.totals, standing_partitions=0))
    shown = printed(well, colours=True)
    assert colour_of("Odd", shown) == GREEN
    assert colour_of("all partitions processed", shown) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (9.94, "9.9 s"),
        (10.4, "10 s"),
        (3_599, "59 min 59 s"),
        (3_660, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_time_has_at_most_two_units(seconds: float, words: str) -> None:
    """The smaller unit is rounded down."""
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("records", "seconds", "shown"),
    [(0, 3.0, "0"), (7, 0.0, "7"), (7, 90.0, "7 (1 min 30 s)"), (None, 3.0, "-")],
)
def test_a_lag_in_time_is_shown_beside_missing_records_only(
    records: int | None, seconds: float, shown: str
) -> None:
    """A copy that lacks no record is not late, whenever it caught up."""
    one = member("x", standby_lag=records, standby_lag_s=seconds, lag=5)
    line = next(line for line in printed(report(one)).splitlines() if line.startswith("x "))
    assert re.split(r" {2,}", line.strip())[-1] == shown
