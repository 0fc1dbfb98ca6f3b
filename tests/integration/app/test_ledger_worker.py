"""The ledgers of real workers: every line is a row, every round one decision; recoveries."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.ledger import Row, parse
from faust_assigner.testing.broker import broker_process
from tests.support.workers.script import play

PARTITIONS = 6


def rows_in(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return all rows by table; an invalid line fails, except a killed worker's torn last line."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl*")):
        for line in path.read_bytes().splitlines(keepends=True):
            parsed = parse(line)
            if line.endswith(b"\n"):
                assert isinstance(parsed, Row), (path, line)
                rows[parsed.table].append(parsed.values)
    return rows


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(280)
def test_workers_tell_decisions_recoveries_and_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workers, one killed and restarted with its files, 3,000 earlier changelog rows."""
    ledger, app = tmp_path / "ledger", f"ledger-{time.time_ns()}"
    monkeypatch.setenv("FAUST_ASSIGNER_LEDGER", str(ledger))
    monkeypatch.setenv("FAUST_ASSIGNER_LEDGER_SAMPLE_S", "1")
    monkeypatch.setenv("FAUST_ASSIGNER_DEPLOY", "blue")
    with broker_process() as broker:
        outcome = play(
            broker.bootstrap,
            "ours",
            tmp_path / "fleet",
            app_id=app,
            partitions=PARTITIONS,
            preload=3000,
            orders_per_s=2.0,
            events=("join", "SIGKILL", "restart with files"),
        )
    assert outcome.violations == []
    assert len(list(ledger.glob("*.jsonl"))) >= 4, "a file for each process"
    rows = rows_in(ledger)
    check_decisions(rows, app)
    check_recoveries(rows, app)
    check_samples(rows, app, outcome.verdict.orders)


def check_decisions(rows: dict[str, list[dict[str, Any]]], app: str) -> None:
    """Each decision places each partition of each topic once, on a member of the decision."""
    decisions = {row["decision_id"]: row for row in rows["decision"]}
    assert len(decisions) >= 3
    assert {row["config"]["deploy"] for row in decisions.values()} == {"blue"}
    placed: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    for row in rows["assignment"]:
        if row["role"] == "active":
            assert row["member_id"] in {
                m["member_id"] for m in decisions[row["decision_id"]]["members"]
            }
            placed[row["decision_id"]][row["topic"], row["partition"]] += 1
    topics = ("customers", "orders", "rates-changelog", "totals-changelog")
    every = {(f"{app}-{topic}", p): 1 for topic in topics for p in range(PARTITIONS)}
    for name in decisions:
        assert placed[name] == every


def check_recoveries(rows: dict[str, list[dict[str, Any]]], app: str) -> None:
    """The first owners replayed the whole changelog; after the kill, standbys took over."""
    decisions = {row["decision_id"] for row in rows["decision"]}
    recoveries = [row for row in rows["recovery"] if row["topic"] == f"{app}-totals-changelog"]
    assert {row["decision_id"] for row in recoveries} <= decisions
    assert "standby" in {row["source"] for row in recoveries}
    replayed = [row for row in recoveries if row["source"] == "replay"]
    assert {row["partition"] for row in replayed} == set(range(PARTITIONS))
    for row in recoveries:
        assert row["started"] <= row["ended"]
        assert row["end_offset"] >= row["start_offset"]
        assert row["records"] <= row["end_offset"] - row["start_offset"]
        assert bool(row["bytes"]) == bool(row["records"])
    first = {
        row["partition"]: row
        for row in sorted(replayed, key=lambda row: row["started"], reverse=True)
    }
    assert sum(row["records"] for row in first.values()) >= 3000 * 0.9


def check_samples(rows: dict[str, list[dict[str, Any]]], app: str, orders: int) -> None:
    """The living workers' samples add up to roughly the processed records; state has a size."""
    samples = rows["partition_sample"]
    sampled = sum(row["records_in"] for row in samples if row["topic"] == f"{app}-orders")
    assert orders * 0.3 < sampled < orders * 3
    assert any(row["cpu_ms"] > 0 and row["bytes_in"] > 0 for row in samples)
    for topic in ("orders", "totals-changelog"):
        mine = [row for row in samples if row["topic"] == f"{app}-{topic}"]
        records, size = (sum(row[field] for row in mine) for field in ("records_in", "bytes_in"))
        assert records > 100, topic
        assert 5 < size / records < 500, (topic, size, records)
    assert any(
        row["state_bytes"] > 0 for row in samples if row["topic"] == f"{app}-totals-changelog"
    )
    assert all(row["committed_offset"] <= row["end_offset"] for row in samples)
