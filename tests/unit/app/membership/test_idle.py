"""When a member leaves for lack of fetches, and when its idle time starts again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer import subscription_state
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import KafkaError, NodeNotReadyError
from kio.index import load_request_schema
from kio.serial import entity_reader

from faust_assigner.app.membership.idle import rejoin_after_idle
from faust_assigner.app.membership.leave_request import IDLE, STOPS, LeaveGroup


class Coordinator:
    """aiokafka's coordinator of a member with these partitions."""

    group_id, member_id = "g", "m-1"
    generation, _group_instance_id = 3, None
    error: KafkaError | None = None

    def __init__(self, acts: list[str], *partitions: int) -> None:
        self.acts = acts
        self.requests: list[LeaveGroup] = []
        self._closing = asyncio.get_running_loop().create_future()
        self._subscription = SimpleNamespace(
            assigned_partitions=lambda: set(partitions),
            fetcher_idle_time=301.0,
            _fetch_count=0,
            _last_fetch_ended=1.0,
        )
        self._subscription.fetch_context = partial(
            SubscriptionState.fetch_context, self._subscription
        )

    async def _maybe_leave_group(self) -> None:
        raise AssertionError("ours says why")

    async def _send_req(self, request: LeaveGroup) -> None:
        self.acts.append("leave")
        self.requests.append(request)
        if self.error is not None:
            raise self.error

    def reset_generation(self) -> None:
        """Note the call."""
        self.acts.append("forget the generation")

    async def _stop_heartbeat_task(self) -> None:
        self.acts.append("stop heartbeats")

    @property
    def idle_since(self) -> float:
        """Return the end time of the last fetch."""
        return float(self._subscription._last_fetch_ended)


LEFT = ["leave", "forget the generation"]


def sent(coordinator: Any) -> tuple[str, str, str]:
    """Return group, member and reason of the request, as a current broker reads them."""
    (request,) = coordinator.requests
    prepared = request.prepare({13: (0, 5)}).encode()
    entity, _ = entity_reader(load_request_schema(13, 5))(prepared, 0)
    (member,) = entity.members
    assert member.group_instance_id is None
    return entity.group_id, member.member_id, member.reason


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the clock to 500 s."""
    monkeypatch.setattr(subscription_state, "time", SimpleNamespace(monotonic=lambda: 500.0))
    return


async def started(*partitions: int) -> Any:
    """Return the coordinator of a started consumer."""
    consumer = SimpleNamespace(_coordinator=Coordinator([], *partitions))
    rejoin_after_idle(consumer, 300.0)
    return consumer._coordinator


async def test_a_member_with_partitions_leaves_and_says_why(caplog: Any) -> None:
    """The log names the setting."""
    coordinator = await started(0)
    await coordinator._maybe_leave_group()
    assert coordinator.acts == LEFT
    assert sent(coordinator) == ("g", "m-1", IDLE)
    assert "broker_max_poll_interval is 300.0 s" in caplog.text


async def test_a_member_without_partitions_stays_and_counts_anew() -> None:
    """Else aiokafka would repeat the check at each heartbeat; a fetch ends the idle time itself."""
    coordinator = await started()
    await coordinator._maybe_leave_group()
    assert (coordinator.acts, coordinator.idle_since) == ([], 500.0)
    coordinator = await started()
    coordinator._subscription._fetch_count = 1
    await coordinator._maybe_leave_group()
    assert coordinator.idle_since == 1.0


@pytest.mark.parametrize("partitions", [(), (0,)])
async def test_a_consumer_that_stops_leaves_without_a_word(
    caplog: Any, partitions: tuple[int, ...]
) -> None:
    """The number of partitions does not matter."""
    coordinator = await started(*partitions)
    coordinator._closing.set_result(None)
    await coordinator._maybe_leave_group()
    assert (coordinator.acts, caplog.text) == (LEFT, "")
    assert sent(coordinator) == ("g", "m-1", STOPS)


@pytest.mark.parametrize(("member_id", "instance"), [("", None), ("m-1", "one")])
async def test_nobody_leaves_who_is_no_member_or_a_static_one(
    member_id: str, instance: str | None
) -> None:
    """A static member keeps its partitions over a restart; its generation ends nevertheless."""
    coordinator = await started(0)
    coordinator.member_id, coordinator._group_instance_id = member_id, instance
    coordinator._closing.set_result(None)
    await coordinator._maybe_leave_group()
    assert coordinator.acts == ["forget the generation"]


async def test_a_broker_that_cannot_be_told_holds_nobody_up(caplog: Any) -> None:
    """The worker drops its member id; the group removes the member after its session timeout."""
    coordinator = await started(0)
    coordinator._closing.set_result(None)
    coordinator.error = NodeNotReadyError("away")
    await coordinator._maybe_leave_group()
    assert coordinator.acts == LEFT
    assert "LeaveGroup request failed" in caplog.text


def test_an_older_broker_is_not_told_why() -> None:
    """Versions 3 and 4 have members and no reason, so the second version is sent."""
    request = LeaveGroup("g", "m-1", STOPS)
    assert request.prepare({13: (0, 4)}).encode() == b"\x00\x01g\x00\x03m-1"
    assert STOPS.encode() in request.prepare({13: (0, 5)}).encode()


@pytest.mark.parametrize(
    ("partitions", "membership", "is_anew"),
    [
        ((0,), None, True),
        ((0,), SimpleNamespace(gave_up=True), True),
        ((0,), SimpleNamespace(gave_up=False), False),
        ((), SimpleNamespace(gave_up=False), True),
    ],
    ids=["eager", "gave up", "keeps", "nothing"],
)
async def test_the_time_of_a_join_is_idle_only_where_something_is_kept(
    partitions: tuple[int, ...], membership: Any, is_anew: bool
) -> None:
    """Revoked partitions cannot be fetched; heartbeats stop as in aiokafka."""
    coordinator = await started(*partitions)
    if membership is not None:
        coordinator.membership = membership
    await coordinator._stop_heartbeat_task()
    assert coordinator.acts == ["stop heartbeats"]
    assert coordinator.idle_since == (500.0 if is_anew else 1.0)


@pytest.mark.parametrize("generation", [1, -1])
async def test_a_member_of_the_first_generation_leaves_as_any_other(generation: int) -> None:
    """Kafka's first generation is 1; a member that waits for its first answer has none."""
    coordinator = await started(0)
    coordinator.generation = generation
    await coordinator._maybe_leave_group()
    assert coordinator.acts == LEFT
