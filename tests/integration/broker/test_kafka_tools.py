"""Kafka's own command-line tools show the same groups of both protocols on ours as on Kafka."""

from __future__ import annotations

import re
import subprocess

import pytest

from faust_assigner.testing.kafka import kafka_jars
from tests.integration.broker.conftest import Scene
from tests.support.coordination.librdkafka_members import until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CLASSIC = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "range",
    "session.timeout.ms": 10_000,
}


class Tools:
    """Kafka's tools against a broker; their output line by line, without addresses."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def run(self, main_class: str, *arguments: str) -> list[str]:
        """Return the lines of a run. Raises AssertionError if the tool fails."""
        command = ["java", "-Xmx256m", "-cp", f"{kafka_jars()}/*", main_class]
        command += ["--bootstrap-server", self.scene.cluster.bootstrap, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        text = done.stdout.replace(self.scene.group, "GROUP").replace(self.scene.topic, "TOPIC")
        text = re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", text)
        return [" ".join(line.split()) for line in text.splitlines() if line.strip()]

    def groups(self, *arguments: str) -> list[str]:
        """Run kafka-consumer-groups.sh."""
        return self.run(GROUPS, *arguments)

    def mine(self, *arguments: str) -> list[str]:
        """Return the lines about the scene's group."""
        return [
            line
            for line in self.groups(*arguments)
            if "GROUP " in line and not line.startswith("GROUP ID")
        ]


@pytest.mark.parametrize(
    ("protocol", "config"), [("Consumer", {}), ("Classic", CLASSIC)], ids=["consumer", "classic"]
)
def test_a_group_is_listed_described_reset_and_deleted(
    scene: Scene, protocol: str, config: dict[str, object]
) -> None:
    """The tool lists, describes, resets and deletes, with types, members and offsets."""
    tools = Tools(scene)
    scene.cluster.create(scene.topic, 2, 3)
    one = scene.start("one", **config)
    until(lambda: len(one.seen) == 6, "6 records")
    assert one.commit() == ""
    assert f"GROUP {protocol} Stable" in tools.groups("--list", "--type", "--state")
    assert f"GROUP {protocol}" in tools.groups("--list", "--type", protocol)
    other = "Classic" if protocol == "Consumer" else "Consumer"
    assert not any("GROUP" in line for line in tools.groups("--list", "--type", other)[1:])
    lines = tools.mine("--describe", "--group", scene.group)
    offsets = [line.split() for line in lines if " TOPIC " in line][1:]
    # Partition, then committed, end and lag; the member's id between them, then its host.
    assert sorted((words[2], words[-6:-3], words[-2:]) for words in offsets) == [
        ("0", ["3", "3", "0"], ["/127.0.0.1", "one"]),
        ("1", ["3", "3", "0"], ["/127.0.0.1", "one"]),
    ]
    strategy = "uniform" if protocol == "Consumer" else "range"
    state = tools.mine("--describe", "--group", scene.group, "--state")
    assert state[-1] == f"GROUP HOST:PORT (1) {strategy} Stable 1"
    members = tools.mine("--describe", "--group", scene.group, "--members")
    assert [line.split()[-3:] for line in members if "/127" in line] == [["/127.0.0.1", "one", "2"]]
    one.stop()
    moved = tools.groups(
        "--reset-offsets", "--group", scene.group, "--all-topics", "--to-earliest", "--execute"
    )
    assert sorted(moved[-2:]) == ["GROUP TOPIC 0 0", "GROUP TOPIC 1 0"]
    gone = tools.groups("--delete-offsets", "--group", scene.group, "--topic", scene.topic)
    assert gone[-2:] == ["TOPIC 0 Successful", "TOPIC 1 Successful"]
    assert any(
        "Deletion of requested" in line for line in tools.groups("--delete", "--group", scene.group)
    )
    assert "GROUP" not in tools.groups("--list")


def test_a_groups_own_config_is_set_shown_and_used(scene: Scene) -> None:
    """kafka-configs.sh --entity-type groups sets the heartbeat interval of the members."""
    tools = Tools(scene)
    config = ("--entity-type", "groups", "--entity-name", scene.group)
    change = "consumer.heartbeat.interval.ms=2500"
    assert "Completed updating config for group GROUP." in tools.run(
        "kafka.admin.ConfigCommand", "--alter", *config, "--add-config", change
    )
    shown = tools.run("kafka.admin.ConfigCommand", "--describe", *config)
    assert any(line.startswith(change) for line in shown), shown


def test_the_features_of_the_protocol_are_shown(scene: Scene) -> None:
    """kafka-features.sh reports the consumer protocol as on."""
    lines = Tools(scene).run("org.apache.kafka.tools.FeatureCommand", "describe")
    assert any(
        line.startswith(
            "Feature: group.version SupportedMinVersion: 0 SupportedMaxVersion: 1 FinalizedVersionLevel: 1"
        )
        for line in lines
    ), lines
