"""Each scenario on two brokers: ours, and (slow) a real Kafka; fixtures for group scenarios."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import SETTINGS
from tests.support.coordination.librdkafka_members import Cluster, Ledger, Member, until

SAME_SETTINGS = {name: value for name, value in SETTINGS.items() if name.startswith("group.")}


@pytest.fixture(params=["ours", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.kafka])])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Our broker, and a real Kafka."""
    with ExitStack() as stack:
        if request.param == "kafka":
            bootstrap = request.getfixturevalue("kafka").bootstrap
        else:
            bootstrap = stack.enter_context(EmbeddedBroker(settings=SAME_SETTINGS)).bootstrap
        cluster = Cluster(bootstrap)
        yield cluster
        cluster.close()


class Scene:
    """A topic, a group and members that stop when the test ends."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster, self.stack = cluster, stack
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.ledger = Ledger()

    def start(self, name: str, topics: list[str] | None = None, **config: Any) -> Member:
        """Start another member."""
        wanted = [self.topic] if topics is None else topics
        member = Member(self.cluster.bootstrap, self.group, wanted, self.ledger, name, **config)
        return self.stack.enter_context(member)

    def shares(self, *members: Member) -> list[int]:
        """Return the members' numbers of partitions, ascending."""
        return sorted(len(member.owned) for member in members)

    def await_shares(self, wanted: list[int], *members: Member) -> None:
        """Wait until the members have these shares; assert that no partition had two owners."""
        until(
            lambda: self.shares(*members) == wanted and len(self.ledger.owner) == sum(wanted),
            lambda: f"{wanted}, there is {self.shares(*members)}: {self.ledger.moves}",
        )
        assert self.ledger.doubles == []


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    """A topic, a group and members for one test."""
    with ExitStack() as stack:
        yield Scene(cluster, stack)
