"""benchmarks/rebalance.py runs and prints; no partition has two owners at a time."""

from __future__ import annotations

import pytest

from tests.bench.printed import printed


@pytest.mark.slow
@pytest.mark.processes
def test_it_prints_a_row_for_each_protocol() -> None:
    """Three members with our assignor: four times, partitions owned twice, two latencies."""
    said = printed("benchmarks.rebalance", "--members", "3", "--only", "ours")
    rows = [line.split() for line in said.splitlines() if line.startswith("ours")]
    assert [row[:3] for row in rows] == [["ours", "classic", "3"], ["ours", "consumer", "3"]]
    assert all(len(row) == 10 and row[7] == "0" for row in rows)
    assert all(float(seconds) < float("inf") for row in rows for seconds in row[3:7])
