"""The request to a group's coordinator: one connection and its retries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from faust_assigner.clients.groups import NoBrokerAnswers
from faust_assigner.errors import TryAgain
from faust_assigner.status import collect
from faust_assigner.status.collect import TRIES, Looks, Where
from tests.support.status import group

WHERE = Where(connection={"bootstrap_servers": "b:1"}, group_id="shop")


class Client:
    """A client of a cluster whose coordinator is node 7."""

    def __init__(self, told: list[Any], broker: Any) -> None:
        self.told = told
        self.cluster = SimpleNamespace(
            broker_metadata=lambda node: told.append(("broker", node)) or broker
        )

    async def coordinator_lookup(self, kind: int, group_id: str) -> int:
        """Return the coordinator."""
        self.told.append(("lookup", group_id))
        return 7

    async def close(self) -> None:
        """Count the close."""
        self.told.append("closed")


@pytest.mark.parametrize(
    ("broker", "coordinator"), [(SimpleNamespace(host="h", port=9), "h:9"), (None, "")]
)
async def test_a_group_is_asked_of_its_coordinator_over_one_connection(
    monkeypatch: pytest.MonkeyPatch, broker: Any, coordinator: str
) -> None:
    """The look finds the coordinator, then fetches members and committed offsets."""
    told: list[Any] = []

    async def connected(connection: Any) -> Client:
        told.append(connection)
        return Client(told, broker)

    async def described(client: Any, node: int, group_id: str) -> Any:
        told.append(("members", node, group_id))
        return group(2).entity()

    async def committed(client: Any, node: int, group_id: str) -> Any:
        told.append(("offsets", node, group_id))
        return {TopicPartition("orders", 3): 5}

    monkeypatch.setattr(collect, "connected", connected)
    monkeypatch.setattr(collect, "described", described)
    monkeypatch.setattr(collect, "committed_offsets", committed)
    looks = Looks(WHERE, lambda: 0.0)
    found, offsets = await looks._describe()
    again, _ = await looks._describe()
    await looks.close()
    await looks.close()
    assert (found.coordinator, offsets) == (coordinator, {("orders", 3): 5})
    assert len(found.members) == len(again.members) == 2
    asked = [("lookup", "shop"), ("members", 7, "shop"), ("offsets", 7, "shop"), ("broker", 7)]
    assert told == [WHERE.connection, *asked, *asked, "closed"]


@pytest.mark.parametrize(
    ("errors", "tries", "is_raised"),
    [
        ([TryAgain("loads")], 2, False),
        ([TryAgain("loads")] * (TRIES - 1), TRIES, False),
        ([TryAgain("loads")] * TRIES, TRIES, True),
        ([NoBrokerAnswers("away")], 1, True),
    ],
)
async def test_a_coordinator_that_loads_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, errors: list[Exception], tries: int, is_raised: bool
) -> None:
    """A few retries are made; brokers without any answer are not asked again."""
    monkeypatch.setattr(collect, "BETWEEN_S", 0.0)
    left, asked = list(errors), []
    looks = Looks(WHERE, lambda: 0.0)

    async def describe() -> Any:
        asked.append(1)
        if left:
            raise left.pop()
        return "found"

    monkeypatch.setattr(looks, "_describe", describe)
    if is_raised:
        with pytest.raises(type(errors[0])):
            await looks._group()
    else:
        assert await looks._group() == "found"
    assert len(asked) == tries
