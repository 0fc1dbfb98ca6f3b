"""Twelve hours of load: our scaler against a lag-only scaler, on groups assigned by the planner."""

from __future__ import annotations

import pytest

from benchmarks.scaling.arms import LagOnly, Ours, Outcome, live
from benchmarks.scaling.day import Costs, Day
from faust_assigner.scaler.settings import Settings

COSTS, HOURS, SEED = Costs(), 12.0, 1


@pytest.fixture(scope="module")
def ours() -> Outcome:
    """The same hours under our scaler."""
    return live(Day.drawn(SEED, hours=HOURS), Ours(Settings()), COSTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "window_s"), [(20.0, 300.0), (60.0, 300.0), (60.0, 900.0)], ids=str
)
def test_half_the_moves_of_lag_alone_at_no_more_lag(
    ours: Outcome, seconds: float, window_s: float
) -> None:
    """The rival's thresholds need more or fewer workers; its window is Kubernetes' or ours."""
    metric = LagOnly(seconds * COSTS.worker_rate)
    rival = live(Day.drawn(SEED, hours=HOURS), metric, COSTS, down_s=window_s)
    assert ours.moves * 2 <= rival.moves
    assert ours.lag_p95_s <= rival.lag_p95_s
    assert ours.lag_median_s <= rival.lag_median_s


@pytest.mark.slow
def test_the_size_follows_the_load(ours: Outcome) -> None:
    """A constant largest size would have few moves but no scaling."""
    day = Day.drawn(SEED, hours=HOURS)
    needed = float((day.load / COSTS.worker_rate).mean() * HOURS)
    assert ours.changes >= 6
    assert ours.worker_hours < 2.2 * needed
