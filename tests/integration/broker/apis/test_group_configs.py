"""Configs of a group: they apply to a living group and survive a restart of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.coordinator.events import JoinGroup, Protocol
from tests.integration.broker.apis.calls import milliseconds
from tests.property.consumer_sim.clients import subscription
from tests.support.clients.raw_client import RawClient

ALTER, REPLACE, DESCRIBE, BEAT = 44, 33, 32, 68
GROUP = 32
INTERVAL, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
DEFAULT_MS = 5_000


@pytest.fixture
def running(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker on disk with topic ``t``."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.call(lambda node: node.catalogue.create("t", 2, {}))
        yield broker


def alter(broker: EmbeddedBroker, name: str, value: int | None) -> None:
    """Set a config of group ``g``, or delete it."""
    change = {"name": name, "config_operation": 0 if value is not None else 1}
    change["value"] = None if value is None else str(value)
    resource = {"resource_type": GROUP, "resource_name": "g", "configs": [change]}
    with RawClient(broker.bootstrap) as client:
        (answer,) = client.call(ALTER, 1, resources=[resource], validate_only=False).responses
    assert answer.error_code == 0


def beat(broker: EmbeddedBroker, member_id: str, epoch: int) -> Any:
    """Send a ConsumerGroupHeartbeat; epoch 0 sends a full request to join."""
    joins = epoch == 0
    with RawClient(broker.bootstrap) as client:
        return client.call(
            BEAT, 1, group_id="g", member_id=member_id, member_epoch=epoch,
            rebalance_timeout=milliseconds(60_000 if joins else -1),
            subscribed_topic_names=["t"] if joins else None,
            topic_partitions=[] if joins else None,
        )  # fmt: skip


def interval_ms(answer: Any) -> int:
    """Return the heartbeat interval of a response in milliseconds."""
    return round(answer.heartbeat_interval.total_seconds() * 1000)


def test_a_living_group_obeys_a_config_that_changes(running: EmbeddedBroker) -> None:
    """The next response has the new interval, and the broker's default after the deletion."""
    assert interval_ms(beat(running, "m", 0)) == DEFAULT_MS
    alter(running, INTERVAL, 7_000)
    assert interval_ms(beat(running, "m", 2)) == 7_000
    alter(running, INTERVAL, None)
    assert interval_ms(beat(running, "m", 2)) == DEFAULT_MS


def test_a_living_session_is_renewed_by_the_config_of_then(running: EmbeddedBroker) -> None:
    """A member that is silent for the new session is removed before the old session ends."""
    beat(running, "m", 0)
    alter(running, INTERVAL, 50)
    alter(running, SESSION, 300)
    beat(running, "m", 2)

    def session_left(node: Any) -> int:
        due: int = node.groups.get("g").next_deadline_ms
        return due - int(node.timer())

    assert running.call(session_left) <= 300


def test_a_living_classic_group_obeys_it_once_it_is_upgraded(running: EmbeddedBroker) -> None:
    """The config was set while every member was a classic member."""

    def classic_member(node: Any) -> None:
        node.groups.ask("g", lambda t: JoinGroup(t, "", "c", (Protocol("range", subscription(["t"], {}, 1)),),
                                                 needs_known_id=False), lambda reply: None)  # fmt: skip
        node.groups.tick("g")

    running.call(classic_member)
    alter(running, INTERVAL, 7_000)
    assert interval_ms(beat(running, "m", 0)) == 7_000


def test_a_config_outlives_the_broker_and_a_deleted_one_does_not(running: EmbeddedBroker) -> None:
    """Set, replaced and deleted values are all on disk."""
    seen = []
    for value in (7_000, 8_000, None):
        alter(running, INTERVAL, value)
        running.restart()
        seen.append(running.call(lambda node: dict(node.group_configs.explicit("g"))))
    assert seen == [{INTERVAL: "7000"}, {INTERVAL: "8000"}, {}]


def test_one_deleted_config_leaves_the_others_of_its_group(running: EmbeddedBroker) -> None:
    """This holds after a restart, too."""
    alter(running, INTERVAL, 7_000)
    alter(running, SESSION, 50_000)
    alter(running, INTERVAL, None)
    running.restart()
    assert running.call(lambda node: dict(node.group_configs.explicit("g"))) == {SESSION: "50000"}
