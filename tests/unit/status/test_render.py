"""The report as text, on a terminal and in a pipe: the facts that an operator needs."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from faust_assigner.status.build import build
from faust_assigner.status.render import partitions, render
from faust_assigner.status.report import Decision, Report
from faust_assigner.status.words import span, why
from tests.support.status import LOG, group
from tests.unit.status.test_build import heard, rebalancing
from tests.unit.status.test_schema import busy


def text(report: Report, *, width: int = 200, **options: Any) -> str:
    """Return the text that a pipe receives."""
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False)
    console.print(render(report, **options))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_first_lines_say_how_the_group_is() -> None:
    """State, members, protocol, the last decision with its reason, and lags are shown."""
    made = group(2)
    made.join("m2").round()
    lines = text(build(made.evidence())).splitlines()
    assert lines[0] == (
        "group shop: Stable, 3 members, 3 answered, 3 ready; cooperative rebalances; "
        "coordinator 127.0.0.1:9092"
    )
    assert lines[1] == (
        "last decision: generation 3, 1 min ago by w0, because members joined "
        "(w2): 6 tasks, 2 moved, 2 cold, 0 off target"
    )
    assert lines[2] == "lag 600 records, copies 0 behind; all partitions processed"


def test_a_lag_that_is_not_known_is_not_shown_as_zero() -> None:
    """Of six source partitions with records, two have a committed offset, then none."""
    evidence = group(2).evidence()
    some = {place: at for place, at in evidence.committed.items() if place[1] < 2}
    shown = text(build(replace(evidence, committed=some)))
    assert "lag 200 records (not known of 4 partitions), copies" in shown
    assert "lag not known, copies" in text(build(replace(evidence, committed={})))


def test_a_restore_is_shown_with_the_seconds_that_are_left() -> None:
    """The worker's rate yields the seconds; without a rate only the records are shown."""
    made = group(2)
    for left_s, words in (
        (25.0, "ready, restores 12,000 (25 s)"),
        (None, "ready, restores 12,000 "),
    ):
        said = {"restore_remaining_records": 12_000, "restore_remaining_s": left_s}
        assert words in text(build(made.evidence(heard=heard(made, "m1", **said))))


def test_each_member_has_its_state_and_its_partitions() -> None:
    """The leader is marked, and a silent worker is shown with its partitions."""
    made = group(2)
    shown = text(build(made.evidence(silent=["m1"])))
    assert "w0 (leader)" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("w1 ")]
    assert "silent" in line
    numbers = partitions({"orders": tuple(made.answer_of("m1").actives["orders"])}, "shop")
    assert numbers.split(" ")[0] in line
    assert "0 behind" not in line
    assert "by the workers that answered" in shown


def test_what_all_members_have_alike_is_said_once() -> None:
    """Differing properties have columns."""
    made = group(2)
    shown = text(build(made.evidence()))
    assert "all members: protocol cooperative, version 0.1.0, no rack, capacity 1" in shown
    made.offers["m1"] = {"rack_id": "az-b", "capacity": 2.0}
    made.round()
    shown = text(build(made.evidence()))
    assert "all members: protocol cooperative, version 0.1.0\n" in shown
    head = next(line for line in shown.splitlines() if line.startswith("member "))
    assert head.split()[-2:] == ["rack", "capacity"]
    assert "az-b" in shown


def test_waits_differences_and_problems_have_their_places() -> None:
    """The three lists follow the table in this order."""
    shown = text(build(replace(busy(), problems=("The brokers did not answer",))))
    at = [shown.index(title) for title in ("\nwaiting\n", "\nworkers differ in\n", "\nnot known\n")]
    assert at == sorted(at)
    assert "  The brokers did not answer" in shown
    assert "(2 s so far)" in shown
    assert "FAUST_ASSIGNER_STALE_READS_S: 0 on w2; 9 on w0" in shown
    head = next(line for line in shown.splitlines() if line.startswith("member "))
    assert head.split()[:8] == [
        "member",
        "state",
        "owns",
        "lag",
        "standbys",
        "behind",
        "warm-ups",
        "behind",
    ]


def test_partitions_are_listed_on_demand_with_their_copies() -> None:
    """An unmeasured lag is shown as an upper bound."""
    made = group(2)
    evidence = made.evidence(silent=["m1"])
    report = build(replace(evidence, ends=dict.fromkeys(evidence.ends, 1234)))
    shown = text(report, with_partitions=True)
    assert "w1: at most 234" in shown
    assert "w0: 0" in shown
    assert LOG not in text(report)


def test_nothing_is_said_of_lags_while_nothing_is_known() -> None:
    """Without any answer the text does not claim that all partitions are processed."""
    shown = text(build(replace(rebalancing(group(2)), heard={})))
    assert "processed" not in shown
    assert "last decision: not reported by any member" in shown


def test_a_screen_has_room_for_the_worst_members() -> None:
    """The remaining members are counted."""
    made = group(9)
    broken = heard(made, "m4", not_ready=("2 partitions stand still",))
    report = build(made.evidence(silent=["m7"], heard=broken))
    shown = text(report, rows=3)
    assert "and 6 more members" in shown
    names = re.findall(r"^(w\d)(?: \(leader\))? ", shown, re.MULTILINE)
    assert names == ["w7", "w4", "w0"]


def test_markup_of_a_stranger_is_shown_and_not_obeyed() -> None:
    """The host has the name of one of rich's styles."""
    made = group(2)
    shown = text(build(made.evidence(heard=heard(made, "m1", host="[red]x[/red]"))))
    assert "[red]x[/red]" in shown


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, "-"),
        ({"orders": (0, 1, 2)}, "0-2 of orders"),
        (
            {"orders": (0, 1), "shop-totals-changelog": (0, 1), "shop-rates-changelog": (0, 1)},
            "0-1 of orders, tables rates, totals",
        ),
        ({"orders": (0,), "clicks": (3, 5)}, "3,5 of clicks\n0 of orders"),
        ({f"t{n}": (0,) for n in range(6)}, "0 of t0, t1, t2, t3 and 2 more"),
        ({"shop-__assignor-__leader": (0,)}, "-"),
    ],
)
def test_partitions_are_told_in_few_words(numbers: dict[str, tuple[int, ...]], words: str) -> None:
    """Topics with equal numbers share an entry, tables have short names, the leader topic is hidden."""
    assert partitions(numbers, "shop") == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (9.96, "10.0 s"), (59.4, "59 s"), (7200, "2 h"), (86_400, "1 d")],
)
def test_times_are_told_in_units_of_people(seconds: float, words: str) -> None:
    """A time has at most two units."""
    assert span(seconds) == words


def test_the_second_of_two_rounds_has_the_reason_of_the_first() -> None:
    """Both rounds of an incident have the same cause."""
    made = group(2)
    made.join("m2").round()
    decision = build(made.evidence()).decision
    assert isinstance(decision, Decision)
    second = replace(decision, trigger="rejoin", completes="leave", left=("http://w9",), joined=())
    assert why(second) == "members left (http://w9) (second of two rounds)"
