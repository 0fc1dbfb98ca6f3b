"""The benchmark of replays runs end to end on a small case: stock and ours, with and without load."""

from __future__ import annotations

import pytest

from tests.bench.printed import printed


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(280)
def test_replays_of_stock_and_ours_give_whole_tables() -> None:
    """On the embedded broker, three workers in sequence; the test judges no figure."""
    said = printed(
        "benchmarks.replay", "--records", "4000", "--stock-records", "1000", "--partitions", "2"
    )
    rows = [line.split()[0] for line in said.splitlines()[1:]]
    assert rows == ["worker", "stock", "ours", "ours,", "live,", "live,"]
