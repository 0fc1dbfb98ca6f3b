"""The recovery benchmark runs on a small case: app, changelog, Spark, snapshot, workers."""

from __future__ import annotations

import pytest

from tests.bench.printed import printed


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(280)
def test_recovery_four_ways_with_equal_state() -> None:
    """A real app's table on the embedded broker, snapshots by Spark; the test judges no figure."""
    # In its own process: the benchmark stops its Spark session, which the tests share in this
    # process.
    said = printed(
        "benchmarks.recovery",
        "--keys",
        "2000",
        "--tail",
        "0.05",
        "--partitions",
        "3",
        "--broker",
        "embedded",
    )
    assert said.count("through the app") == 2
    assert said.count("equal") == 4
