"""The demo's script under our assignor, on both brokers: the tables equal the model's."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from faust_assigner.pipeline.ledgers.rows import accepted_rows
from faust_assigner.pipeline.simulate.measured import calibrated
from faust_assigner.pipeline.simulate.policies import arms, load
from faust_assigner.pipeline.simulate.recorded import facts_of, week
from faust_assigner.simulation.fleet import Costs, Kind
from faust_assigner.simulation.simulator import simulate
from faust_assigner.testing.kafka import kafka_server

ROOT = Path(__file__).resolve().parents[3]


def run_demo(*arguments: str) -> str:
    """The demo's output; it must end by itself with exit code 0 in under three minutes."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders.demo", "--assignor", "ours", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.kafka
def test_demo_ends_with_equal_tables_on_kafka() -> None:
    """A join, a bounce, a SIGKILL and a return on Apache Kafka lose no order and count none twice."""
    with kafka_server() as kafka:  # of its own: the demo's topics have fixed names
        assert "equal, 480 records" in run_demo("--bootstrap", kafka.bootstrap)


@pytest.mark.processes
@pytest.mark.timeout(200)
def test_demo_ends_with_equal_tables_on_the_embedded_broker(tmp_path: Path) -> None:
    """The same on the embedded broker, which the demo starts and stops itself; its ledger plays it again."""
    assert "equal, 480 records" in run_demo("--ledger", str(tmp_path))
    facts = facts_of(accepted_rows([str(tmp_path)]))
    began = next(n for n, decision in enumerate(facts.decisions) if len(decision["members"]) == 3)
    facts = replace(facts, decisions=facts.decisions[began:])
    costs, measured = calibrated(Costs(), facts.recoveries, facts.decisions)
    assert (costs.session_timeout_s, "session_timeout_s" in measured) == (6.0, True)
    scenario = week(facts).scenario(0, 1)
    assert scenario.start == ("worker-1", "worker-2", "worker-3")
    happened = [(event.kind, event.member_id) for event in scenario.events]
    # A bounce that the machine was too slow to end within the session is seen, a quick one is not.
    assert [each for each in happened if each[1] != "worker-2"] == [
        (Kind.JOIN, "worker-4"),
        (Kind.BOUNCE, "worker-1"),
    ]
    outcome = simulate(scenario, arms(("ours+static",), (1,))[0], load("ours"), costs=costs)
    ids = {decision["decision_id"] for decision in facts.decisions[1:]}
    placed = [row.values for row in accepted_rows([str(tmp_path)]) if row.table == "assignment"]
    moved = [
        row
        for row in placed
        if row["decision_id"] in ids and row["topic"] == "orders" and row["moved"]
    ]
    # One round for each change, and a second one where owners had to let go first.
    assert 3 <= outcome.rebalances <= len(ids) <= 2 * outcome.rebalances
    # Faust's own leader topic is a task of its own, which a rebalance may move or not.
    assert outcome.moved - len(moved) in (0, 1)
    assert outcome.cold_moves == sum(row["cold"] for row in moved) == 3
