"""The benchmark of the standbys runs and prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_the_standby_benchmark_prints_and_writes_every_event(tmp_path: Path) -> None:
    """Fresh, join and leave, one and two replicas, three kinds of racks."""
    target = tmp_path / "rows.json"
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.standbys", "--small", "--repeat", "1", "--json", str(target)],
        cwd=root, capture_output=True, text=True, timeout=120, check=True)
    rows = json.loads(target.read_text())
    assert len(rows) == 3 * 2 * 3
    assert all(row["over"] <= (row["event"] != "fresh") for row in rows)
    assert all(row["beside"] == 0 for row in rows)
    assert len(done.stdout.splitlines()) == len(rows) + 1
