"""Recorded loads by halves, and drawn variations of a recording, with every choice of the draw given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from faust_assigner.pipeline.simulate.facts import _halves, facts_of
from faust_assigner.pipeline.simulate.recorded import (
    DAY_S,
    NOMINAL_RECORDS,
    _groups,
    _load,
    _periods,
    _varied,
    week,
)
from faust_assigner.pipeline.weights.rates import NO_DECAY, rates_of
from faust_assigner.simulation.fleet import Event, Kind

from .test_recordings import decision, member, placed, sampled, scenario

HOUR = 3_600.0


class Draw:
    """A generator whose integers are the last choice or ``picks`` in turn; its pauses double."""

    def __init__(self, *picks: int) -> None:
        self.picks, self.choices = list(picks), list[int]()

    def integers(self, count: int) -> int:
        """Return the next pick."""
        self.choices.append(count)
        return self.picks.pop(0) if self.picks else count - 1

    def lognormal(self, mean: float, sigma: float) -> float:
        """Return the factor of a pause."""
        assert (mean, sigma) == (0.0, 0.5)
        return 2.0

    def permutation(self, count: int) -> Any:
        """Return the partitions in reverse."""
        return np.arange(count)[::-1]


def test_the_sample_at_the_middle_is_in_the_second_half_and_only_the_first_half_decays() -> None:
    """Weights are learned with a half-life; the load that scores them is not."""
    at = [(0, 7), (10, 90), (20, 11), (30, 500), (40, 3)]
    rows = [sampled("in/0", hours * HOUR, count, 0).values for hours, count in at]
    first, second = rates_of(rows[:2]), rates_of(rows[2:], half_life_s=NO_DECAY)
    assert _halves(rows[::-1]) == (tuple(first), tuple(second))
    assert first != rates_of(rows[:2], half_life_s=NO_DECAY)
    assert second != rates_of(rows[2:])
    assert _halves(rows[:1]) == ((), tuple(rates_of(rows[:1])))
    assert _halves([]) == ((), ())


def test_state_is_counted_in_whole_records_and_only_for_groups_with_a_changelog() -> None:
    """A source has no state to replay; both changelogs are replayed; an unknown state is nominal."""
    rows = [
        decision("d1", 0, member("a")),
        *(placed("d1", f"in/{n}", "a") for n in range(3)),
        *(placed("d1", f"log/{n}", "a", role="standby") for n in range(3)),
        *(placed("d1", f"plain/{n}", "a") for n in range(2)),
        placed("d1", "aux-changelog/2", "a"),
        sampled("aux-changelog/0", 0, 6, 40),
        sampled("in/0", 0, 60, 0),
        sampled("log/0", 0, 10, 0, state_bytes=1_275),
        sampled("log/2", 0, 20, 0, bytes_in=0, state_bytes=399),
        sampled("plain/1", 0, 30, 0, state_bytes=7_000),
    ]
    facts = facts_of(rows)
    groups, members = _groups(facts.topics)
    rates, records = _load(groups, members, facts.rates)
    assert [group.topics for group in groups] == [("plain",), ("in", "aux-changelog")]
    assert records.tolist() == [0, 0, 167, NOMINAL_RECORDS, 3]
    assert rates.tolist() == pytest.approx([0, 0.5, 76 / 60, 0, 20 / 60])
    assert _load(groups, members, ())[0].tolist() == [1, 1, 1, 1, 1]


def restarts(*days: float) -> list[Event]:
    """Return a restart at each time in days."""
    return [Event(day * DAY_S, Kind.RESTART, "abc"[n % 3], 3.0) for n, day in enumerate(days)]


@pytest.mark.parametrize(
    ("days", "part", "picks", "drawn", "counts"),
    [
        # Two whole weeks, and a rest that is left out.
        ((1, 8, 14), 0, (0, 0), [(1, "a"), (8, "a")], [1, 1]),
        ((1, 8, 14), 1, (0, 0), [(1, "b"), (8, "b")], [1, 1]),
        # Three weeks: the even part has two of them.
        ((2, 9, 15, 21), 0, (1, 0, 1), [(1, "c"), (9, "a"), (15, "c")], [2, 2, 2]),
        # Nine days are no two weeks, so days are drawn; the last day counts.
        ((0.25, 1.5, 8.75), 1, (0,) * 9, [(day + 0.5, "b") for day in range(9)], [4] * 9),
        ((0.25, 0.75), 0, (), None, []),
        ((), 0, (), None, []),
    ],
)
def test_periods_are_whole_weeks_or_else_days(
    days: tuple[float, ...],
    part: int,
    picks: tuple[int, ...],
    drawn: list[tuple[float, str]] | None,
    counts: list[int],
) -> None:
    """Each place gets a period of the part, at the same time within the period."""
    draw: Any = Draw(*picks)
    found = _periods(restarts(*days), draw, part)
    told = None if found is None else [(event.at_s / DAY_S, event.member_id) for event in found]
    assert told == drawn
    assert draw.choices == counts


def test_a_whole_variation_of_one_day() -> None:
    """Pauses are longer, the fewest incidents go first, and the last worker never leaves."""
    events = [
        Event(10.0, Kind.JOIN, "c"),
        Event(30.0, Kind.LEAVE, "a"),
        Event(70.0, Kind.JOIN, "c"),
        Event(150.0, Kind.RESTART, "b", 4.0),
        Event(310.0, Kind.CRASH, "a"),
        Event(630.0, Kind.LEAVE, "a"),
        Event(1_000.0, Kind.BOUNCE, "b", 5.0),
        Event(1_500.0, Kind.CRASH, "c"),
    ]
    made = scenario("g", *events)
    draw: Any = Draw()
    varied = _varied(made, draw)
    assert varied.events == (
        Event(20.0, Kind.JOIN, "c"),
        Event(60.0, Kind.LEAVE, "c"),
        Event(140.0, Kind.JOIN, "c"),
        # The worker that has left once is not the next victim.
        Event(300.0, Kind.RESTART, "b", 4.0),
        Event(620.0, Kind.CRASH, "a"),
        Event(1_260.0, Kind.LEAVE, "c"),
        Event(2_000.0, Kind.BOUNCE, "b", 5.0),
    )
    assert draw.choices == [3, 2, 1, 2, 1]
    turned = [3, 2, 1, 0, 4]
    assert varied == replace(
        made,
        events=varied.events,
        rates=varied.rates,
        records=varied.records,
        learned_weights=varied.learned_weights,
    )
    for name in ("rates", "records", "learned_weights"):
        assert getattr(varied, name).tolist() == getattr(made, name)[turned].tolist()


def test_a_variation_of_several_days_keeps_the_times_of_its_days() -> None:
    """A worker that runs already does not join again; the pauses are those of the days."""
    events = [
        Event(5.0, Kind.JOIN, "c"),
        Event(DAY_S + 7.0, Kind.CRASH, "b"),
        Event(2 * DAY_S + 9.0, Kind.RESTART, "a", 2.0),
    ]
    draw: Any = Draw(0, 1, 0)
    varied = _varied(scenario("g", *events), draw, 0)
    assert varied.events == (Event(5.0, Kind.JOIN, "c"), Event(DAY_S + 9.0, Kind.RESTART, "c", 2.0))


def test_a_recording_has_the_day_of_its_first_decision() -> None:
    """The recording lasts three days; it begins at the second group's own first decision."""
    rows = [
        decision("d1", 0, member("a")),
        decision("d2", 2 * DAY_S + 60.0, member("a"), member("b")),
        decision("e1", DAY_S, member("x"), group="h"),
        decision("e2", 3 * DAY_S, member("x"), group="h"),
        placed("d1", "in/0", "a"),
        placed("e1", "in/0", "x", group_id="h"),
    ]
    found = [(made.group_id, made.dt, made.start) for made in week(facts_of(rows)).recordings]
    assert found == [("g", "2026-11-16", ("a",)), ("h", "2026-11-17", ("x",))]
