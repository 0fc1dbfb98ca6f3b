"""The benchmark of replays runs end to end, small: stock beside ours, and live records beside a restore."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(280)
def test_replays_of_stock_and_ours_give_whole_tables() -> None:
    """On the embedded broker, three workers one after the other; no figure is judged."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.replay", "--records", "4000", "--stock-records", "1000",
         "--partitions", "2"],
        cwd=ROOT, capture_output=True, text=True, timeout=270, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    rows = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert rows == ["worker", "stock", "ours", "ours,", "live,", "live,"]
