"""The doctor's two looks at a group and the brokers' settings, from prepared client answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError

from faust_assigner.doctor import group_facts
from faust_assigner.doctor.group_facts import look, topics_of
from faust_assigner.doctor.topics import TopicFacts
from faust_assigner.status.collect import Where

TOPIC, BROKER = 2, 4
LIMITS: Mapping[tuple[int, str], Mapping[str, str | None]] = {
    (TOPIC, "__consumer_offsets"): {"max.message.bytes": "1048588"},
    (BROKER, "7"): {
        "group.min.session.timeout.ms": "6000",
        "group.max.session.timeout.ms": "1800000",
    },
}


class Client:
    """A cluster of broker 7 with topics and settings; ``refused`` resources have an error."""

    def __init__(self) -> None:
        self.partitions: dict[str, set[int]] = {}
        self.configs: dict[tuple[int, str], Mapping[str, str | None]] = dict(LIMITS)
        self.refused: set[tuple[int, str]] = set()
        self.error: Exception | None = None
        self.asked: list[tuple[int, set[tuple[int, str]]]] = []
        self.cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=7)])

    async def fetch_all_metadata(self) -> Client:
        """Return the cluster."""
        return self

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the topic's partitions, or None for an unknown topic."""
        return self.partitions.get(topic)

    async def send(self, node: int, request: Any) -> Any:
        """Answer a DescribeConfigs request."""
        if self.error is not None:
            raise self.error
        wanted = [
            (int(one.resource_type), one.resource_name) for one in request._fields["resources"]
        ]
        self.asked.append((node, set(wanted)))
        return SimpleNamespace(
            results=[
                SimpleNamespace(
                    resource_type=kind,
                    resource_name=name,
                    error_code=29 if (kind, name) in self.refused else 0,
                    configs=[
                        SimpleNamespace(name=key, value=value)
                        for key, value in self.configs.get((kind, name), {}).items()
                    ],
                )
                for kind, name in wanted
            ]
        )


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """Replace the client of every connection with a prepared client."""
    made = Client()

    @asynccontextmanager
    async def client_of(connection: Mapping[str, Any]) -> AsyncIterator[Client]:
        yield made

    monkeypatch.setattr(group_facts, "client_of", client_of)
    return made


async def test_a_topic_has_its_width_policy_and_retention(client: Client) -> None:
    """A missing topic is left out; a retention of -1 keeps records for ever."""
    client.partitions = {
        "orders": {0, 1, 2},
        "log": {0},
        "bare": {0},
        "secret": {0},
        "empty": set(),
    }
    client.configs |= {
        (TOPIC, "orders"): {"cleanup.policy": "delete", "retention.ms": "604800000"},
        (TOPIC, "log"): {"cleanup.policy": "compact", "retention.ms": "-1"},
        (TOPIC, "bare"): {"cleanup.policy": None, "retention.ms": "soon"},
        (TOPIC, "secret"): {"cleanup.policy": "delete"},
    }
    client.refused = {(TOPIC, "secret")}
    names = ["orders", "log", "bare", "secret", "empty", "absent"]
    assert await topics_of({}, names) == {
        "orders": TopicFacts(partitions=3, cleanup_policy="delete", retention_ms=604_800_000),
        "log": TopicFacts(partitions=1, cleanup_policy="compact", retention_ms=-1),
        "bare": TopicFacts(partitions=1),
        "secret": TopicFacts(partitions=1),
    }
    assert client.asked == [(7, {(TOPIC, name) for name in ("orders", "log", "bare", "secret")})]
    assert await topics_of({}, ["absent"]) == {}
    assert len(client.asked) == 1, "no topic, no request"


@pytest.mark.parametrize("error", [KafkaError("no right"), TimeoutError()])
async def test_a_topic_without_settings_keeps_its_width(client: Client, error: Exception) -> None:
    """The brokers refuse the request, or do not answer in time."""
    client.partitions, client.error = {"orders": {0, 1}}, error
    assert await topics_of({}, ["orders"]) == {"orders": TopicFacts(partitions=2)}


@pytest.mark.parametrize(
    ("changes", "record_bytes", "bounds_s"),
    [
        ({}, 1_048_588, (6.0, 1800.0)),
        ({(TOPIC, "__consumer_offsets"): {}}, None, (6.0, 1800.0)),
        ({(BROKER, "7"): {"group.min.session.timeout.ms": "6000"}}, 1_048_588, None),
        ({(BROKER, "7"): {"group.max.session.timeout.ms": "6000"}}, 1_048_588, None),
    ],
)
async def test_a_group_is_looked_at_twice_with_the_brokers_limits_between(
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[tuple[int, str], Mapping[str, str | None]],
    record_bytes: int | None,
    bounds_s: tuple[float, float] | None,
) -> None:
    """The second look comes after the pause; limits that the brokers do not report are unknown."""
    client.configs |= changes
    client.partitions = {"orders": {0}, "clicks": {0, 1}}
    events: list[object] = []

    class Looks:
        def __init__(self, where: Where, clock: object) -> None:
            events.append((where.group_id, clock))

        async def __aenter__(self) -> Looks:
            return self

        async def __aexit__(self, *_: object) -> None:
            events.append("closed")

        async def look(self) -> Any:
            events.append("look")
            return SimpleNamespace(
                number=events.count("look"),
                ends={("orders", 0): 5},
                leaderless=frozenset({("clicks", 0)}),
            )

    async def sleep(seconds: float) -> None:
        events.append(seconds)

    monkeypatch.setattr(group_facts, "Looks", Looks)
    monkeypatch.setattr(asyncio, "sleep", sleep)

    def clock() -> float:
        return 0.0

    found: Any = await look(Where(connection={}, group_id="shop"), between_s=4.0, clock=clock)
    assert events == [("shop", clock), "look", 4.0, "look", "closed"]
    assert (found.evidence.number, found.later.number) == (1, 2)
    assert found.topics == {
        "orders": TopicFacts(partitions=1),
        "clicks": TopicFacts(partitions=2),
    }
    assert (found.record_bytes, found.session_bounds_s) == (record_bytes, bounds_s)
