"""The benchmark of the standbys runs and prints."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.printed import printed


def test_the_standby_benchmark_prints_and_writes_every_event(tmp_path: Path) -> None:
    """Fresh, join and leave, with one and two replicas and three kinds of racks."""
    target = tmp_path / "rows.json"
    said = printed("benchmarks.standbys", "--small", "--repeat", "1", "--json", str(target))
    rows = json.loads(target.read_text())
    assert len(rows) == 3 * 2 * 3
    assert all(row["over"] <= (row["event"] != "fresh") for row in rows)
    assert all(row["beside"] == 0 for row in rows)
    assert len(said.splitlines()) == len(rows) + 1
