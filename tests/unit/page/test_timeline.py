"""The chart's coordinates: positions, and the displayed time span."""

from __future__ import annotations

import pytest

from faust_assigner.page.history import RoundSeen, Sample
from faust_assigner.page.timeline import LANES, LEFT, RIGHT, WIDTH, Chart, chart_of

NOW = 1_000_000.0


def sample(ago_s: float, lag: int | None = 0, members: int = 3) -> Sample:
    """A look this many seconds before now."""
    return Sample(
        at=NOW - ago_s,
        members=members,
        ready=members,
        lag=lag,
        behind=0,
        standing=0,
        is_settled=True,
    )


def seen(ago_s: float, generation: int, cold: int = 0, *, is_planned: bool = True) -> RoundSeen:
    """A round this many seconds before now."""
    return RoundSeen(
        generation=generation,
        at=NOW - ago_s,
        reason="join",
        leader=None,
        members=3,
        tasks=8,
        moved=2,
        cold=cold,
        off_target=0,
        warming=0,
        is_planned=is_planned,
    )


def lag_line(chart: Chart) -> str:
    """The path of the lag's line."""
    (lane,) = (lane for lane in chart.lanes if lane.name == "lag")
    return lane.line


@pytest.mark.parametrize(
    ("length_s", "step_s", "labels"),
    [
        (120, 30, ["now", "-30 s", "-1 min", "-1 min 30 s", "-2 min"]),
        (180, 30, ["now", "-30 s", "-1 min", "-1 min 30 s", "-2 min", "-2 min 30 s", "-3 min"]),
        (200, 60, ["now", "-1 min", "-2 min", "-3 min"]),
    ],
)
def test_the_axis_has_at_most_seven_marks_within_the_chart(
    length_s: int, step_s: int, labels: list[str]
) -> None:
    """The first tick is now, at the right edge; no tick lies before the first look."""
    chart = chart_of([sample(length_s), sample(0)], [], NOW)
    assert [tick.label for tick in chart.ticks] == labels
    scale = (WIDTH - LEFT - RIGHT) / length_s
    for number, tick in enumerate(chart.ticks):
        assert tick.x == pytest.approx(WIDTH - RIGHT - number * step_s * scale, abs=0.06)
        assert LEFT <= tick.x <= WIDTH - RIGHT


def test_a_chart_shows_two_minutes_at_least() -> None:
    """The cases: a first look a second ago, and no look at all."""
    for samples in ([sample(1)], []):
        chart = chart_of(samples, [seen(60, 4)], NOW)
        assert chart.words.startswith("The last 2 min: 1 rounds; ")
        assert chart.rounds[0].x == LEFT + (WIDTH - LEFT - RIGHT) / 2


def test_rounds_before_the_first_look_are_counted_and_not_drawn() -> None:
    """A round at the time of the first look is drawn at the left edge."""
    chart = chart_of([sample(600)], [seen(601, 1), seen(600, 2), seen(0, 3)], NOW)
    assert [(mark.generation, mark.x) for mark in chart.rounds] == [(2, LEFT), (3, WIDTH - RIGHT)]
    assert chart.earlier == 1


def test_a_round_is_cold_if_state_moved_or_the_leader_had_no_plan() -> None:
    """Both cases have the same mark."""
    marks = chart_of([], [seen(3, 1), seen(2, 2, cold=1), seen(1, 3, is_planned=False)], NOW).rounds
    assert [mark.is_cold for mark in marks] == [False, True, True]


@pytest.mark.parametrize(
    ("rounds", "numbered"),
    [
        ([seen(60, 9), seen(58, 10)], {10}),
        ([seen(60, 9), seen(57, 10)], {9, 10}),
        ([seen(60, 99), seen(57, 100)], {100}),
        ([seen(60, 8), seen(58, 9), seen(56, 10)], {8, 10}),
        ([seen(57, 8), seen(20, 9), seen(57, 10)], {9, 10}),
    ],
)
def test_a_rounds_number_is_left_out_if_it_would_touch_a_newer_rounds_number(
    rounds: list[RoundSeen], numbered: set[int]
) -> None:
    """A second has 7 pixels; all rounds keep their marks. The last case has a wrong clock."""
    chart = chart_of([], rounds, NOW)
    assert chart.numbered == numbered
    assert len(chart.rounds) == len(rounds)


def test_a_value_holds_until_the_next_look_and_a_gap_is_left_open() -> None:
    """30 s without a look leave no gap, 31 s leave a gap."""
    top, height = LANES["lag"]
    width = (WIDTH - LEFT - RIGHT) / 120

    def x(ago_s: float) -> str:
        return f"{round(LEFT + (120 - ago_s) * width, 1):g}"

    looks = [sample(120, 10), sample(90, 20), sample(59, 20)]
    assert lag_line(chart_of(looks, [], NOW)) == (
        f"M{x(120)},{top + height // 2}L{x(90)},{top + height // 2}L{x(90)},{top}"
        f"M{x(59)},{top}L{x(59)},{top}"
    )


def test_figures_are_the_greatest_and_the_newest_of_those_that_are_known() -> None:
    """Looks with an unknown lag are left out; without any known lag the lane shows unknown."""
    chart = chart_of([sample(50, 3_000), sample(20, 7), sample(0, None)], [], NOW)
    told = {lane.name: (lane.most, lane.now) for lane in chart.lanes}
    assert (told["lag"], told["members"]) == (("3,000", "7"), ("3", "3"))
    unknown = chart_of([sample(0, None)], [], NOW).lanes[1]
    assert (unknown.most, unknown.now, unknown.line, unknown.area) == ("unknown", "unknown", "", "")


@pytest.mark.parametrize(("step_s", "runs"), [(20, 1), (30, 1), (31, 5)])
def test_only_the_time_between_two_looks_makes_a_gap(step_s: int, runs: int) -> None:
    """The total length of the line does not matter."""
    looks = [sample(step_s * n, 5) for n in (4, 3, 2, 1, 0)]
    assert lag_line(chart_of(looks, [], NOW)).count("M") == runs


def test_the_greatest_value_is_that_of_the_whole_hour() -> None:
    """The first look has the greatest lag; each lane has its own maximum."""
    looks = [sample(5 * n, 9_000 if n == 199 else n, members=n % 7) for n in range(199, -1, -1)]
    lanes = {lane.name: lane.most for lane in chart_of(looks, [], NOW).lanes}
    assert lanes == {"members": "6", "lag": "9,000", "standing": "0"}
