"""The recovery benchmark runs end to end, small: app, changelog, Spark, snapshot, fresh workers."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(280)
def test_recovery_four_ways_with_equal_state() -> None:
    """A real app's table on the embedded broker, snapshot by Spark's own connector; no figure is judged."""
    # A process of its own: the benchmark stops its Spark session, which would be the tests' own here.
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.recovery", "--keys", "2000", "--tail", "0.05",
         "--partitions", "3", "--broker", "embedded"],
        cwd=ROOT, capture_output=True, text=True, timeout=270, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.count("through the app") == 2
    assert done.stdout.count("equal") == 4
