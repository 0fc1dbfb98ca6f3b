"""The words of a report for every kind of value: states, names, lags, reasons, tables of partitions."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from faust_assigner.status.build import build
from faust_assigner.status.render import (
    _columns,
    _decision,
    _lag,
    _name_cell,
    _partitions_table,
    _render_differences,
    _render_head,
    _render_waits,
    _state_rank,
    partitions,
)
from faust_assigner.status.report import (
    Copy,
    Decision,
    Difference,
    Partition,
    Standstill,
    WaitReport,
)
from faust_assigner.status.words import (
    behind,
    condition,
    names_of,
    span,
    table_of,
    why,
    with_member_names,
)
from tests.support.status import group

REPORT = build(group(1).evidence())
MEMBER = REPORT.members[0]


def decision(**more: Any) -> Decision:
    """A round that moved tasks."""
    base: dict[str, Any] = {
        "decision_id": "d", "generation": 7, "leader": "w1", "at": 40, "trigger": "join",
        "completes": "", "joined": ("http://a:1/", "http://b:2"), "left": ("http://c:3",),
        "members": 3, "tasks": 12, "moved": 5, "cold": 2, "off_target": 4, "warming": 0,
        "is_planned": True,
    }  # fmt: skip
    return Decision(**base | more)


@pytest.mark.parametrize(
    ("more", "level", "words", "rank"),
    [
        ({}, "good", "ready", 3),
        ({"restore_remaining_records": 0, "restore_remaining_s": 9.0}, "good", "ready", 3),
        (
            {"restore_remaining_records": 1_500, "restore_remaining_s": 0.0},
            "changing",
            "ready, restores 1,500",
            2,
        ),
        (
            {"restore_remaining_records": 1_500, "restore_remaining_s": 61.0},
            "changing",
            "ready, restores 1,500 (1 min 1 s)",
            2,
        ),
        ({"not_ready": ("x", "y"), "restore_remaining_records": 5}, "bad", "not ready: x", 1),
        ({"not_ready": ("x",), "not_live": ("z", "q")}, "bad", "not live: z", 1),
        ({"is_leaving": True, "not_live": ("z",)}, "changing", "stops", 1),
        ({"answer": "not asked", "is_leaving": True}, "unknown", "not asked", 3),
        ({"answer": "silent", "not_live": ("z",)}, "bad", "silent", 0),
        ({"answer": "another worker"}, "bad", "another worker", 0),
    ],
)
def test_a_member_has_one_state_and_a_rank(more: Any, level: str, words: str, rank: int) -> None:
    """The first of several reasons is shown."""
    one = replace(MEMBER, **more)
    assert (condition(one), _state_rank(one)) == ((level, words), rank)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "w0\npod-0"),
        ({"is_leader": True}, "w0 (leader)\npod-0"),
        ({"host": None}, "w0"),
        ({"host": "w0"}, "w0"),
        ({"url": "https://h:7/", "host": "h"}, "w0\nhttps://h:7"),
        ({"url": "", "address": "10.1"}, "w0\npod-0, 10.1"),
        ({"url": "", "address": "w0", "host": None}, "w0"),
        ({"instance_id": "w0"}, "w0\npod-0"),
        ({"instance_id": "i9", "url": "http://g:1"}, "w0\npod-0, g:1, instance i9"),
    ],
)
def test_a_member_is_shown_with_what_its_name_does_not_say(more: Any, text: str) -> None:
    """The name is the host of the URL, whose port is not repeated."""
    base = replace(MEMBER, url="http://w0", instance_id=None, is_leader=False)
    assert _name_cell(replace(base, **more)).plain == text


def test_lags_are_known_of_some_partitions_or_of_none() -> None:
    """Partitions without an owner and changelogs have no lag that is missed."""
    totals = replace(REPORT.totals, lag=4_321)

    def told(*lags: tuple[int | None, str | None, bool]) -> str:
        base = REPORT.partitions[0]
        rows = tuple(
            replace(base, lag=lag, owner=owner, is_changelog=is_changelog)
            for lag, owner, is_changelog in lags
        )
        return _lag(replace(REPORT, totals=totals, partitions=rows))

    known, dark = (0, "w0", False), (None, "w0", False)
    assert told(known, (None, None, False), (None, "w0", True)) == "lag 4,321 records"
    assert told(known, dark) == "lag 4,321 records (not known of 1 partition)"
    assert told(dark, known, dark) == "lag 4,321 records (not known of 2 partitions)"
    assert told(dark, dark, (5, None, False)) == "lag not known"
    assert told() == "lag 4,321 records"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {},
            "last decision: generation 7, 1 min 1 s ago by w1, because members joined (w-a, http://b:2): "
            "12 tasks, 5 moved, 2 cold, 4 off target",
        ),
        (
            {"at": None, "leader": None, "warming": 3, "tasks": 1, "trigger": "leave+odd"},
            "last decision: generation 7 by a leader that is no longer known, because members left "
            "(http://c:3) and odd: 1 task, 5 moved, 2 cold, 4 off target, 3 warming up",
        ),
        (
            {
                "at": 200,
                "is_planned": False,
                "trigger": "join",
                "completes": "first+leave",
                "left": (),
            },
            "last decision: generation 7, 0 s ago by w1, because no member had partitions and members left "
            "(second of two rounds): the planner failed; partitions were assigned without regard to their "
            "former owners",
        ),
    ],
)
def test_the_last_decision_is_one_sentence(more: Any, text: str) -> None:
    """A clock behind the leader's shows no negative age; a URL may end with a slash."""
    members = (replace(MEMBER, url="http://a:1", name="w-a"), replace(MEMBER, url="", name="none"))
    report = replace(REPORT, taken_at=101.0, members=members, decision=decision(**more))
    assert _decision(report).plain == text
    assert names_of(report) == {"http://a:1": "w-a"}


def test_names_replace_the_urls_of_both_lists() -> None:
    """Only the named trigger shows its members."""
    found = with_member_names(decision(), {"http://b:2": "bee", "http://c:3": "sea"})
    assert (found.joined, found.left) == (("http://a:1/", "bee"), ("sea",))
    assert why(replace(found, trigger="rejoin+leave")) == (
        "a member requested it and members left (sea)"
    )


def test_partitions_are_listed_by_equal_numbers_with_tables_after_topics() -> None:
    """Four names are listed; the leader topic is left out."""
    numbers = {
        "e": (1, 2, 4), "shop-t-changelog": (1, 2, 4), "a": (1, 2, 4), "b": (0,), "c": (1, 2, 4),
        "d": (1, 2, 4), "f": (1, 2, 4), "shop-u-changelog": (1, 2, 4), "shop-__assignor-__leader": (0,),
        "bank-v-changelog": (0,),
    }  # fmt: skip
    assert partitions(numbers, "shop") == (
        "1-2,4 of a, c, d, e and 1 more, tables t, u\n0 of b, bank-v-changelog"
    )
    assert partitions({"shop-t-changelog": (3,)}, "shop") == "3 of table t"
    assert partitions({"shop-__assignor-__leader": (0,)}, "shop") == "-"
    assert [table_of(one, "shop") for one in ("shop-a-b-changelog", "shop-changelog", "shop-a")] == [
        "a-b", "", "",
    ]  # fmt: skip


def test_properties_are_a_column_where_members_differ() -> None:
    """Properties that no member has are left out, except for the rack."""
    a = replace(MEMBER, kind="cooperative", version="1.2", rack=None, capacity=None)
    assert _columns([a, a]) == (["protocol cooperative", "version 1.2", "no rack"], [])
    b = replace(a, capacity=2.5, rack="r", version="")
    assert _columns([a, b]) == (["protocol cooperative"], ["version", "rack", "capacity"])
    assert _columns([b]) == (["protocol cooperative", "rack r", "capacity 2.5"], [])
    assert _columns([]) == ([], [])


def test_waits_and_differences_are_lines_in_their_order() -> None:
    """The most common value comes first, then the lower value; no time is shown for zero seconds."""
    waits = (
        WaitReport(kind="k", member="w", text="x", seconds=61.0),
        WaitReport(kind="k", member=None, text="y", seconds=0.0),
    )
    assert [line.plain for line in _render_waits(replace(REPORT, waits=waits))] == [
        "w: x (1 min 1 s so far)",
        "y",
    ]
    values = {"9": ("c",), "": ("a",), "5": ("d", "e"), "7": tuple("ghijk")}
    found = replace(REPORT, differences=(Difference(name="N", values=values),))
    assert [line.plain for line in _render_differences(found)] == [
        "N: 7 on g, h, i, j and 1 more; 5 on d, e; not set on a; 9 on c"
    ]


def test_each_partition_is_a_row_with_all_its_copies() -> None:
    """A changelog's own lag is not shown; a bound is marked unless it is unknown."""
    copies = (
        Copy(member="b", is_warmup=False, lag=1_200, seconds=61.0, is_measured=True),
        Copy(member="c", is_warmup=True, lag=0, seconds=5.0, is_measured=False),
        Copy(member="d", is_warmup=False, lag=None, seconds=None, is_measured=False),
    )
    base: dict[str, Any] = {"committed": 1, "end": 2, "copies": (), "standing": None}
    rows = [
        Partition(topic="t", partition=3, is_changelog=False, owner="a", lag=1_000, **base),
        Partition(topic="u", partition=0, is_changelog=False, owner=None, lag=None, **base),
        Partition(
            topic="log", partition=4, is_changelog=True, owner="a", lag=9,
            **base | {"copies": copies, "standing": Standstill(reason="paused", seconds=0.5)},
        ),
    ]  # fmt: skip
    screen = io.StringIO()
    Console(file=screen, width=200).print(_partitions_table(rows))
    lines = [line.split() for line in screen.getvalue().splitlines()[2:] if line.strip()]
    assert lines == [
        ["t", "3", "a", "1,000", "-", "-"],
        ["u", "0", "-", "-", "-", "-"],
        ["log", "4", "a", "-", "paused,", "0.5", "s", "b:", "1,200", "(1", "min", "1", "s)"],
        ["c", "(warm-up):", "at", "most", "0"],
        ["d:", "-"],
    ]


def test_times_and_lags_change_their_form_at_their_limits() -> None:
    """Below ten seconds a fraction has one digit; from a minute on two units are shown."""
    times = (
        0.0,
        9.94,
        9.0,
        10.4,
        59.4,
        60.0,
        61.9,
        3_599.0,
        3_600.0,
        3_660.0,
        86_399.0,
        86_400.0,
        90_001.0,
    )
    assert [span(one) for one in times] == [
        "0 s", "9.9 s", "9 s", "10 s", "59 s", "1 min", "1 min 1 s", "59 min 59 s", "1 h", "1 h 1 min",
        "23 h 59 min", "1 d", "1 d 1 h",
    ]  # fmt: skip
    lags = ((None, None), (None, 3.0), (0, 3.0), (5, 0.0), (5_000, 3.0))
    assert [behind(*one) for one in lags] == ["-", "-", "0", "5", "5,000 (3 s)"]


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        (
            {"members": 3, "answered": 3, "ready": 2, "standing_partitions": 0},
            [
                "group shop: Stable, 3 members, 3 answered, 2 ready; cooperative rebalances; coordinator -",
                "lag 7 records, copies 1,234 behind; all partitions processed",
            ],
        ),
        (
            {"members": 2_000, "answered": 1, "ready": 1, "standing_partitions": 1},
            [
                "group shop: Stable, 2,000 members, 1 answered, 1 ready; cooperative rebalances; "
                "coordinator -",
                "lag 7 records, copies 1,234 behind; 1 partition not processed by the workers that answered",
            ],
        ),
        (
            {"members": 1, "answered": 0, "ready": 0, "standing_partitions": 9},
            [
                "group shop: Stable, 1 member, 0 answered, 0 ready; cooperative rebalances; coordinator -"
            ],
        ),
    ],
)
def test_the_head_counts_members_and_partitions(more: Any, lines: list[str]) -> None:
    """Without an answer nothing is known about the processing."""
    totals = replace(REPORT.totals, lag=7, standby_lag=1_234, **more)
    found = replace(REPORT, totals=totals, coordinator="", decision=None)
    head, last, *rest = [line.plain for line in _render_head(found)]
    assert [head, *rest] == lines
    assert last == "last decision: not reported by any member"
