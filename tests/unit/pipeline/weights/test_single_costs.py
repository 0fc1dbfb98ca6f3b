"""Weights of a ledger that measured one kind of cost alone, and the drift of each group."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from faust_assigner.pipeline.weights.drift import drift
from faust_assigner.pipeline.weights.rates import NO_DECAY, PartitionRate, rates_of
from faust_assigner.pipeline.weights.weighing import _costs
from faust_assigner.weights.document import WeightRow

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def rate(partition: int, **more: Any) -> PartitionRate:
    """Return a partition without any load over two seconds."""
    idle = PartitionRate("g", "t", partition, 1, 2_000.0, 0.0, 0.0, 0.0, 0, NOON)
    return idle._replace(**more)


def row(group_id: str, partition: int, weight: float) -> WeightRow:
    """Return a row of the new weights."""
    day = "2026-11-21"
    return WeightRow(group_id, day, 5, NOON, "t", partition, weight, 1.0, 1.0, 1.0, 1, 1.0, 3)


@pytest.mark.parametrize(
    ("loads", "shares"),
    [
        # Records alone, consumed, then arrived: three quarters are of the first partition.
        ([{"records_in": 30.0}, {"records_in": 10.0}], [0.75, 0.25]),
        ([{"arrived": 9.0, "moved": 9}, {"arrived": 1.0, "moved": 1}], [0.9, 0.1]),
        # CPU time of idle partitions, then CPU time and bytes together.
        ([{"cpu_ms": 3.0}, {"cpu_ms": 1.0}], [0.75, 0.25]),
        ([{"cpu_ms": 3.0, "bytes_in": 10.0}, {"cpu_ms": 1.0, "bytes_in": 10.0}], [0.625, 0.375]),
        ([{}, {}], [0.0, 0.0]),
    ],
)
def test_a_blend_is_the_mean_of_the_shares_that_were_measured(
    loads: list[dict[str, Any]], shares: list[float]
) -> None:
    """A cost that is zero everywhere does not count; without any cost all shares are zero."""
    rates = [rate(number, **load) for number, load in enumerate(loads)]
    assert _costs(rates, "blend").tolist() == pytest.approx(shares)


def test_a_named_cost_is_per_second_of_the_covered_time() -> None:
    """The time differs between the partitions; other costs have no effect."""
    rates = [
        rate(0, records_in=30.0, cpu_ms=6.0, bytes_in=900.0),
        rate(1, records_in=10.0, cpu_ms=4.0, bytes_in=50.0, covered_ms=500.0),
    ]
    assert _costs(rates, "records").tolist() == [15.0, 20.0]
    assert _costs(rates, "cpu").tolist() == [3.0, 8.0]
    assert _costs(rates, "bytes").tolist() == [450.0, 100.0]


def test_the_drift_of_a_group_is_of_its_own_shared_partitions() -> None:
    """Groups may share a topic; a single shared partition has no drift; a new group is absent."""
    before = [
        {"group_id": group, "topic": "t", "partition": number, "weight": weight}
        for group, number, weight in (("g", 0, 1.0), ("g", 1, 3.0), ("h", 0, 5.0), ("k", 0, 2.0))
    ]
    rows = [
        row("h", 0, 9.0),
        row("g", 1, 1.0),
        row("h", 1, 70.0),
        row("g", 0, 1.0),
        row("new", 0, 4.0),
        row("g", 2, 50.0),
    ]
    assert drift(before, rows) == {"g": pytest.approx(0.25), "h": 0.0}


@pytest.mark.parametrize("name", ["records_in", "bytes_in", "cpu_ms", "state_bytes", "end_offset"])
def test_an_amount_below_zero_counts_as_zero(name: str) -> None:
    """A counter was reset; the other amounts of the sample count."""
    amounts = {"records_in": 2, "bytes_in": 3, "cpu_ms": 4.0, "state_bytes": 5, "end_offset": 6}

    def made(value: float) -> PartitionRate:
        place = {"group_id": "g", "topic": "t", "partition": 0, "ts": NOON}
        (found,) = rates_of([{**place, **amounts, name: value}], half_life_s=NO_DECAY)  # type: ignore
        return found

    assert made(-7) == made(0) != made(7)


def test_the_usual_interval_of_a_group_is_the_median_over_all_its_partitions() -> None:
    """The first sample of a partition covers it, whichever partition comes last."""
    sample = {"group_id": "g", "topic": "t", "records_in": 1, "bytes_in": 1, "cpu_ms": 1.0}
    rest = {"state_bytes": 1, "end_offset": 1}
    moments = {0: (0, 10, 20, 30), 1: (0, 100), 2: (0,)}
    rows: list[Any] = [
        {**sample, **rest, "partition": number, "ts": NOON + dt.timedelta(seconds=at)}
        for number, times in moments.items()
        for at in times
    ]
    found = rates_of(rows, half_life_s=NO_DECAY)
    assert [rate.covered_ms for rate in found] == [40_000.0, 110_000.0, 10_000.0]
