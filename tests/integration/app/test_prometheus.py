"""A real Prometheus scrapes real workers, and its rules are ours."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from tests.support.prometheus import prometheus_server, prometheus_tool
from tests.support.waiting import wait_until
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

RULES = Path(__file__).resolve().parents[3] / "docs/operations/alerts.yml"
PARTITIONS, WORKERS = 6, ("a", "b", "c")


pytestmark = pytest.mark.prometheus


@pytest.mark.processes
@pytest.mark.timeout(400)
def test_promtool_accepts_the_alert_rules() -> None:
    """Each rule of the file is found and valid."""
    done = subprocess.run(
        [prometheus_tool("promtool"), "check", "rules", str(RULES)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {RULES.read_text().count('alert:')} rules found" in done.stdout


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(500)
def test_a_real_prometheus_scrapes_three_workers_and_fires_for_a_frozen_one(
    tmp_path: Path,
) -> None:
    """Each partition is owned once, one worker leads three; the frozen worker alone raises the alert."""
    rules = tmp_path / "alerts.yml"
    rules.write_text(re.sub(r"for: \d+m", "for: 2s", RULES.read_text()))
    with broker_process() as broker:
        app_id = f"scraped-{time.time_ns()}"
        fleet = Measured(app_id, broker.bootstrap, PARTITIONS, tmp_path, session_s=8.0)
        Load(broker.bootstrap, app_id, PARTITIONS).prepare(waiting=2)
        try:
            for name in WORKERS:
                fleet.start(name)
            targets = {name: f"127.0.0.1:{fleet.ports[name]}" for name in WORKERS}
            with prometheus_server(list(targets.values()), rules, tmp_path) as prometheus:

                def shows(expression: str, *values: float) -> None:
                    wait_until(lambda: prometheus.values(expression) == list(values), seconds=120)

                shows("up", 1.0, 1.0, 1.0)
                shows("faust_assigner_ready", 1.0, 1.0, 1.0)
                shows("faust_assigner_members", 3.0)
                shows("sum(faust_assigner_leads)", 1.0)
                shows("count(faust_assigner_owned_changelog_partition)", 2.0 * PARTITIONS)
                shows(
                    "max(count by (topic, partition) (faust_assigner_owned_changelog_partition))",
                    1.0,
                )
                silent = "FaustAssignerWorkerSilent"
                assert prometheus.firing(silent) == []
                fleet.workers["b"].process.send_signal(signal.SIGSTOP)
                try:
                    wait_until(lambda: prometheus.firing(silent) == [targets["b"]], seconds=90)
                finally:
                    fleet.workers["b"].process.send_signal(signal.SIGCONT)
                wait_until(lambda: prometheus.firing(silent) == [], seconds=90)
        finally:
            fleet.stop()
