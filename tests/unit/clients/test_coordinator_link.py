"""A link to a coordinator that moves, does not answer or cannot be found, with a fake client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.client import ConnectionGroup, CoordinationType

from faust_assigner.clients import coordinator_link as room
from faust_assigner.clients.coordinator_link import FIND_S, CoordinatorLink
from tests.unit.clients.test_member import play

BACKOFF_S = 0.5


class Client:
    """A fake of aiokafka's client; ``finds`` lists the lookups' outcomes, the last for ever."""

    def __init__(self) -> None:
        self.finds: list[Any] = [7]
        self.ready_nodes = {7, 8}
        self.answer: Callable[[int], Any] = lambda node: ("answered by", node)
        self.lookups: list[float] = []
        self.updates = self.closed = self.hung_up = 0
        self.boots = True
        self._conns = {n: SimpleNamespace(close=self._hang_up) for n in (0, 1)}
        self.groups: list[Any] = []

    def _hang_up(self) -> None:
        self.hung_up += 1

    async def bootstrap(self) -> None:
        """Connect, or raise an error."""
        if not self.boots:
            raise errors.KafkaConnectionError("nobody")

    async def close(self) -> None:
        """Count the call."""
        self.closed += 1

    async def coordinator_lookup(self, kind: Any, group_id: str) -> int:
        """Return the next outcome; None never returns."""
        self.lookups.append(asyncio.get_running_loop().time())
        self.groups.append((kind, group_id))
        found = self.finds.pop(0) if len(self.finds) > 1 else self.finds[0]
        if found is None:
            await asyncio.sleep(1e9)
        if isinstance(found, Exception):
            raise found
        return int(found)

    async def ready(self, node: int, group: Any) -> bool:
        """Return whether the node can be reached."""
        self.groups.append(group)
        return node in self.ready_nodes

    async def force_metadata_update(self) -> None:
        """Count the call; with a silent cluster the update never ends."""
        self.updates += 1
        if self.finds[0] is None:
            await asyncio.sleep(1e9)

    async def send(self, node: int, request: Any, group: Any) -> Any:
        """Return an answer or raise an error."""
        self.groups.append((node, request, group))
        found = self.answer(node)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """Replace the client of every link of a test."""
    made = Client()
    monkeypatch.setattr(room, "AIOKafkaClient", lambda **_: made)
    return made


def run(story: Callable[[CoordinatorLink], Any]) -> None:
    """Run the story with a link on a simulated clock."""

    async def told() -> None:
        await story(CoordinatorLink("g", retry_backoff_s=BACKOFF_S))

    play(told())


def test_a_coordinator_is_looked_for_once_and_again_after_it_is_lost(client: Client) -> None:
    """Otherwise each request would cost a lookup."""
    client.finds = [7, 8]

    async def story(link: CoordinatorLink) -> None:
        assert [await link.send(None) for _ in range(2)] == [("answered by", 7)] * 2
        link.lost()
        assert await link.send(None) == ("answered by", 8)

    run(story)
    assert len(client.lookups) == 2


def test_a_request_that_fails_makes_the_next_one_look_again(client: Client) -> None:
    """The error reaches the caller, which decides about a retry."""
    client.finds = [7, 8]
    client.answer = lambda node: errors.RequestTimedOutError() if node == 7 else node

    async def story(link: CoordinatorLink) -> None:
        with pytest.raises(errors.RequestTimedOutError):
            await link.send(None)
        assert await link.send(None) == 8

    run(story)


@pytest.mark.parametrize(
    "problem",
    [
        errors.GroupCoordinatorNotAvailableError(),
        errors.KafkaConnectionError(),
        errors.NodeNotReadyError(),
        errors.RequestTimedOutError(),
        9,
    ],
)
def test_a_coordinator_that_is_not_there_yet_is_looked_for_after_a_pause(
    client: Client, problem: Any
) -> None:
    """The link refreshes its metadata; node 9 cannot be reached."""
    client.finds = [problem, problem, 7]

    async def story(link: CoordinatorLink) -> None:
        assert await link.send(None) == ("answered by", 7)

    run(story)
    assert client.lookups == [0.0, BACKOFF_S, 2 * BACKOFF_S]
    assert (client.updates, client.hung_up) == (2, 0)


def test_a_lookup_that_no_server_answers_ends_and_begins_on_new_connections(client: Client) -> None:
    """An open connection to a dead host would stay silent for a quarter of an hour."""
    client.finds = [None, None, 7]

    async def story(link: CoordinatorLink) -> None:
        assert await link.send(None) == ("answered by", 7)

    run(story)
    assert client.hung_up == 4, "both connections, twice"
    assert client.lookups == [0.0, FIND_S + BACKOFF_S + FIND_S, 2 * (FIND_S + BACKOFF_S) + FIND_S]


def test_an_error_that_no_other_try_can_cure_is_raised(client: Client) -> None:
    """A member without rights must not look for its coordinator for ever."""
    client.finds = [errors.GroupAuthorizationFailedError()]

    async def story(link: CoordinatorLink) -> None:
        with pytest.raises(errors.GroupAuthorizationFailedError):
            await link.send(None)

    run(story)
    assert len(client.lookups) == 1


@pytest.mark.parametrize("boots", [True, False])
def test_a_link_that_cannot_connect_leaves_nothing_open(client: Client, boots: bool) -> None:
    """The caller then has no link to close."""
    client.boots = boots

    async def story(link: CoordinatorLink) -> None:
        if boots:
            await link.start()
            await link.close()
        else:
            with pytest.raises(errors.KafkaConnectionError):
                await link.start()

    run(story)
    assert client.closed == 1


def test_the_first_broker_of_a_cluster_may_be_the_coordinator(client: Client) -> None:
    """Its id is 0; the lookup and the request use the connection for coordination."""
    client.finds, client.ready_nodes = [0], {0}

    async def story(link: CoordinatorLink) -> None:
        assert await link.send("hello") == ("answered by", 0)

    run(story)
    assert client.groups == [
        (CoordinationType.GROUP, "g"),
        ConnectionGroup.COORDINATION,
        (0, "hello", ConnectionGroup.COORDINATION),
    ]


def test_an_error_that_is_not_the_brokers_keeps_the_coordinator(client: Client) -> None:
    """A cancelled request says nothing about the coordinator."""
    client.finds = [7, 8]
    client.answer = lambda node: ValueError("a bug") if len(client.lookups) == 1 else node

    async def story(link: CoordinatorLink) -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="a bug"):
                await link.send(None)

    run(story)
    assert len(client.lookups) == 1


def test_a_cancellation_at_the_instant_of_a_lookups_answer_is_kept(client: Client) -> None:
    """Otherwise a stopped member goes on."""

    async def story(link: CoordinatorLink) -> None:
        found = asyncio.get_running_loop().create_future()
        client.coordinator_lookup = lambda *_: found  # type: ignore[method-assign]
        sending = asyncio.ensure_future(link.send(None))
        await asyncio.sleep(FIND_S / 2)
        found.set_result(7)
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()

    run(story)
