"""The client of a description: its connection, its use and its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.clients import groups


class Client:
    """A fake of aiokafka's client that notes its calls."""

    made: list[Client]

    def __init__(self, **connection: Any) -> None:
        self.connection, self.calls = connection, list[str]()
        self.made.append(self)

    async def bootstrap(self) -> None:
        """Note the call."""
        self.calls.append("bootstrap")

    async def close(self) -> None:
        """Note the call."""
        self.calls.append("close")


@pytest.mark.parametrize("fails", [False, True])
def test_a_client_is_connected_for_its_block_and_closed_after_it(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The error of the block is raised after the client is closed."""
    Client.made = []
    monkeypatch.setattr(groups, "AIOKafkaClient", Client)

    async def story() -> None:
        async with groups.client_of({"bootstrap_servers": "b:1", "client_id": "c"}) as client:
            client.calls.append("block")
            if fails:
                raise KeyError("a bug")

    if fails:
        with pytest.raises(KeyError, match="a bug"):
            asyncio.run(story())
    else:
        asyncio.run(story())
    (made,) = Client.made
    assert made.connection == {"bootstrap_servers": "b:1", "client_id": "c"}
    assert made.calls == ["bootstrap", "block", "close"]
