"""The demo's script under our assignor, on both brokers: the tables equal the model's."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
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
    """The demo's output; it must end by itself with exit code 0 whatever the machine does beside."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.orders.demo", "--assignor", "ours", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def records_equal(said: str) -> int:
    """How many records of the tables were the model's: each customer, and each with an order."""
    found = re.search(r"equal, (\d+) records", said)
    assert found is not None, said
    return int(found[1])


def children_of(pid: int) -> list[int]:
    """The processes that ``pid`` started, by any of its threads."""
    listings = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for listing in listings for child in listing.read_text().split()]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.kafka
def test_demo_ends_with_equal_tables_on_kafka() -> None:
    """A join, a bounce, a SIGKILL and a return on Apache Kafka lose no order and count none twice."""
    with kafka_server() as kafka:  # of its own: the demo's topics have fixed names
        assert records_equal(run_demo("--bootstrap", kafka.bootstrap)) > 6_000


@pytest.mark.processes
@pytest.mark.timeout(120)
def test_a_demo_that_is_told_to_stop_leaves_nothing_running() -> None:
    """SIGTERM while its broker and its three workers run: they end, and its exit code says why."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "examples.orders.demo", "--assignor", "ours"], cwd=ROOT
    )
    try:
        began = time.monotonic()
        while len(started := children_of(demo.pid)) < 4:
            assert time.monotonic() - began < 60
            time.sleep(0.1)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(timeout=50) == 128 + signal.SIGTERM
    finally:
        demo.kill()
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]


@pytest.mark.processes
@pytest.mark.timeout(400)
def test_demo_ends_with_equal_tables_on_the_embedded_broker(tmp_path: Path) -> None:
    """The same on the embedded broker, which the demo starts and stops itself; its ledger plays it again."""
    said = run_demo("--ledger", str(tmp_path))
    assert records_equal(said) > 6_000
    assert re.search(r"a fourth worker joins\n.* moves 3 \(minimum 3\), cold 0;", said), said
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
    # For each change a round, a second one where owners had to let go, and as many once copies are warm.
    assert 3 <= outcome.rebalances <= len(ids) <= 4 * outcome.rebalances
    # Faust's own leader topic is a task of its own; what is promoted off its target moves once more.
    assert abs(outcome.moved - len(moved)) <= 4
    assert sum(row["cold"] for row in moved) == 0
