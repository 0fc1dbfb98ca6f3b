"""A real Prometheus scrapes real workers and evaluates our rules."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from faust_assigner.testing.broker import broker_process
from tests.support.prometheus import prometheus_server, prometheus_tool
from tests.support.waiting import wait_until
from tests.support.workers.load import Load
from tests.support.workers.with_web import Measured

RULES = Path(__file__).resolve().parents[3] / "docs/operations/alerts.yml"
PARTITIONS, WORKERS = 6, ("a", "b", "c")


pytestmark = pytest.mark.prometheus

#: Labels of the series below.
AT, OF = '{job="w",instance="a"}', 'app="shop",topic="t"'


class Case(NamedTuple):
    """Series with a value every 30 s; the alert is quiet at ``quiet`` and fires at ``fires``."""

    alert: str
    series: dict[str, str]
    quiet: str
    fires: str
    labels: dict[str, str]
    is_over: str = ""


TASK = {"app": "shop", "topic": "t", "partition": "0"}
WORKER = {"job": "w", "instance": "a"}
WORKER_OF = {"app": "shop", "instance": "a"}
CASES = (
    Case(
        "FaustAssignerWorkerSilent",
        {f"up{AT}": "1 1 0x20", f"faust_assigner_info{AT}": "1x2 _x20"},
        "1m30s",
        "2m",
        WORKER,
    ),
    Case(
        "FaustAssignerWorkerNotReady",
        {f"faust_assigner_ready{AT}": "0x20 1"},
        "4m30s",
        "5m",
        WORKER,
        "10m30s",
    ),
    Case(
        "FaustAssignerPartitionStandsStill",
        {
            f'faust_assigner_standing_seconds{{{OF},partition="0",reason="record"}}': "0+30x20",
            f'faust_assigner_standing_seconds{{{OF},partition="1",reason="restoring"}}': "0+30x20",
        },
        "3m",
        "3m30s",
        {**TASK, "reason": "record"},
    ),
    Case(
        "FaustAssignerRoundHangs",
        {'faust_assigner_round_age_seconds{app="shop",instance="a"}': "0+30x40"},
        "10m",
        "10m30s",
        WORKER_OF,
    ),
    Case(
        "FaustAssignerCommitHangs",
        {'faust_assigner_commit_age_seconds{app="shop",instance="a"}': "0+30x10"},
        "1m",
        "1m30s",
        WORKER_OF,
    ),
    Case(
        "FaustAssignerCommitHangs",
        {'faust_assigner_revocation_age_seconds{app="shop",instance="a"}': "0+30x10"},
        "1m",
        "1m30s",
        WORKER_OF,
    ),
    Case(
        "FaustAssignerStandbyBehind",
        {f'faust_assigner_standby_lag_seconds{{{OF},partition="0"}}': "300 301x20"},
        "5m",
        "5m30s",
        TASK,
    ),
    Case(
        "FaustAssignerNoCaughtUpCopy",
        {
            f'faust_assigner_owned_changelog_partition{{{OF},partition="0"}}': "1x90",
            f'faust_assigner_standby_lag_records{{{OF},partition="0"}}': "10001x90",
            f'faust_assigner_owned_changelog_partition{{{OF},partition="1"}}': "1x90",
            f'faust_assigner_standby_lag_records{{{OF},partition="1"}}': "10000x90",
            'faust_assigner_standby_partitions{app="shop"}': "2x90",
            'faust_assigner_owned_changelog_partition{app="alone",topic="t",partition="0"}': "1x90",
            'faust_assigner_standby_partitions{app="alone"}': "0x90",
        },
        "29m30s",
        "30m",
        TASK,
    ),
    Case(
        "FaustAssignerDiskNearlyFull",
        {
            f"faust_assigner_disk_free_bytes{AT}": "10 9x20",
            f"faust_assigner_disk_size_bytes{AT}": "100x20",
        },
        "5m",
        "5m30s",
        WORKER,
    ),
    Case(
        "FaustAssignerMemberRefused",
        {'faust_assigner_refused_members_total{app="shop",instance="a"}': "0x2 1x50"},
        "1m",
        "1m30s",
        {"app": "shop"},
        "12m",
    ),
    Case(
        "FaustAssignerMemberRefused",
        {'faust_assigner_disbelieved_positions_total{app="shop",instance="a"}': "0x2 1x50"},
        "1m",
        "1m30s",
        {"app": "shop"},
        "12m",
    ),
    Case(
        "FaustAssignerMemberFlaps",
        {
            'faust_assigner_rounds_led_total{app="shop",trigger="join"}': "0x60 0+0.25x60",
            'faust_assigner_rounds_led_total{app="shop",trigger="warm_up"}': "0+1x120",
        },
        "49m",
        "52m",
        {"app": "shop"},
    ),
    Case(
        "FaustAssignerWorkerFenced",
        {'faust_assigner_fences_total{app="shop",instance="a"}': "0x2 1x50"},
        "1m",
        "1m30s",
        WORKER_OF,
        "12m",
    ),
    Case(
        "FaustAssignerUnreadable",
        {'faust_assigner_unreadable_partitions{app="shop"}': "1x20"},
        "4m30s",
        "5m",
        {"app": "shop"},
    ),
    Case(
        "FaustAssignerPlannerFailed",
        {'faust_assigner_fallbacks_total{app="shop",instance="a"}': "0x2 1x50"},
        "1m",
        "1m30s",
        {"app": "shop"},
        "12m",
    ),
)


@pytest.mark.processes
@pytest.mark.timeout(400)
def test_promtool_accepts_the_alert_rules() -> None:
    """promtool finds each rule of the file and accepts it."""
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
@pytest.mark.timeout(400)
def test_each_alert_waits_for_its_time_and_no_longer(tmp_path: Path) -> None:
    """promtool's clock: each alert is quiet a step before its time and after its cause ends."""
    rules = yaml.safe_load(RULES.read_text())
    severities = {}
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]
        severities[rule["alert"]] = rule["labels"]
    assert severities.keys() == {case.alert for case in CASES}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    asked = [
        {
            "name": f"{case.alert} {number}",
            "interval": "30s",
            "input_series": [
                {"series": name, "values": values} for name, values in case.series.items()
            ],
            "alert_rule_test": [
                {"eval_time": at, "alertname": case.alert, "exp_alerts": []}
                for at in (case.quiet, case.is_over)
                if at
            ]
            + [
                {
                    "eval_time": case.fires,
                    "alertname": case.alert,
                    "exp_alerts": [{"exp_labels": {**case.labels, **severities[case.alert]}}],
                }
            ],
        }
        for number, case in enumerate(CASES)
    ]
    tests = {"rule_files": ["rules.yml"], "evaluation_interval": "30s", "tests": asked}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [prometheus_tool("promtool"), "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(500)
def test_a_real_prometheus_scrapes_three_workers_and_fires_for_a_frozen_one(tmp_path: Path) -> None:
    """Each partition has one owner, one worker leads; only the frozen worker raises the alert."""
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
