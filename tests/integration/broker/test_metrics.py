"""The broker's counters as Prometheus reads them, and its log lines about fenced members."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.metrics import PREFIX, MetricsPort
from tests.support.coordination.raw_consumer_group import ConsumerScript
from tests.support.waiting import PATIENCE_S


def read(port: int) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every sample by name and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return {
        (sample.name.removeprefix(PREFIX), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_rebalances_members_fences_and_heartbeats_are_counted() -> None:
    """Two members join, a stranger is refused: by reason, protocol, error and time."""
    with EmbeddedBroker() as broker:
        metrics = MetricsPort(broker.server, broker.loop)
        try:
            with ConsumerScript(broker.bootstrap) as s:
                s.topic("a", 4)
                s.settle("one")
                s.settle("one", "two")
                s.beat("stranger", 7)
                s.beat("one", 99)
            seen = read(metrics.port)
        finally:
            metrics.close()
    assert seen["group_members", (("protocol", "consumer"),)] == 2
    assert seen["groups", (("state", "Stable"), ("type", "consumer"))] == 1
    assert seen["group_fenced_requests_total", (("error", "FENCED_MEMBER_EPOCH"),)] == 1
    assert seen["group_fenced_requests_total", (("error", "UNKNOWN_MEMBER_ID"),)] >= 1
    assert seen["group_rebalances_total", (("reason", "member_joined"),)] >= 1
    assert seen["group_rebalance_seconds_count", ()] >= 1
    assert seen["group_heartbeat_seconds_count", (("protocol", "consumer"),)] >= 4
    assert seen["topics", ()] == 2, "a and __consumer_offsets"


def test_a_fenced_member_is_written_down_with_both_epochs(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the member, its epoch, the reason, and the current epoch."""
    with EmbeddedBroker() as broker, caplog.at_level("INFO"), ConsumerScript(broker.bootstrap) as s:
        s.topic("a", 1)
        s.go_on("one", instance_id="i")
        epoch = s.epochs["one"]
        s.beat("one", epoch + 4)
        s.beat("other", epoch, instance_id="i")
        one, other = f"{s.group}-one", f"{s.group}-other"
    lines = [r.getMessage() for r in caplog.records if "is refused" in r.getMessage()]
    assert any(
        f"of {one} with epoch {epoch + 4} is refused with FENCED_MEMBER_EPOCH: it is at epoch {epoch}"
        in line
        for line in lines
    ), lines
    assert any(
        f"of {other} with epoch {epoch} is refused with FENCED_INSTANCE_ID: "
        f"instance i is {one} at epoch {epoch}" in line
        for line in lines
    ), lines


@pytest.mark.processes
def test_the_command_shows_metrics_on_loopback() -> None:
    """--metrics-port 0 prints the chosen port."""
    command = [
        sys.executable,
        "-m",
        "faust_assigner.cli",
        "broker",
        "--port",
        "0",
        "--metrics-port",
        "0",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.fullmatch(
                r"metrics on http://127\.0\.0\.1:(\d+)/metrics\n", process.stdout.readline()
            )
            assert found is not None
            assert process.stdout.readline().startswith("listening on ")
            assert read(int(found[1]))["connections", ()] == 0
        finally:
            process.terminate()
        assert process.wait(PATIENCE_S) == 0
