"""The benchmark of the cost of metrics and ledger runs end to end on a small case."""

from __future__ import annotations

import pytest

from tests.bench.printed import printed


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(280)
def test_one_worker_gives_figures_with_and_without_metrics_and_ledger() -> None:
    """On the embedded broker; no figure is judged."""
    said = printed("benchmarks.overhead", "--blocks", "8", "--block", "50", "--partitions", "2")
    rows = [line.split("|")[1].strip() for line in said.splitlines() if line.startswith("| o")]
    assert rows == ["off", "on"]
    assert "with them / without them" in said
