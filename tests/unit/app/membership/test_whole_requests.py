"""The requests of a cooperative member: their answers, their time and their heartbeats."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

from faust_assigner.app.membership import fence as fences
from faust_assigner.app.membership.coordinator import CooperativeCoordinator
from faust_assigner.wire.join import COOPERATIVE, EAGER
from tests.unit.app.membership.test_coordinator import Made, request_of
from tests.unit.app.membership.test_coordinator import made as made


@pytest.mark.parametrize(
    ("kind", "code", "heard"),
    [
        (SyncGroupRequest, 0, [500.0]),
        (SyncGroupRequest, 27, []),
        (JoinGroupRequest, 0, []),
        (HeartbeatRequest, 0, []),
    ],
)
async def test_a_good_answer_to_sync_group_renews_the_session_from_its_request_on(
    made: Made, monkeypatch: pytest.MonkeyPatch, kind: type[Any], code: int, heard: list[float]
) -> None:
    """The caller gets the answer itself, whatever it is."""
    now, told = 500.0, list[float]()
    answer = SimpleNamespace(error_code=code)

    async def send(*_: Any, **__: Any) -> Any:
        nonlocal now
        now += 30.0
        return answer

    monkeypatch.setattr(fences, "monotonic", lambda: now)
    monkeypatch.setattr(GroupCoordinator, "_send_req", send)
    made.it._client.send, made.fence.note_renewal = send, told.append  # type: ignore[method-assign]
    assert await made.it._send_req(request_of(kind)) is answer
    assert told == heard


@pytest.mark.parametrize("joined", [True, False])
async def test_the_outcome_of_a_join_is_aiokafkas(
    made: Made, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    """After False aiokafka joins again; the files are looked at before the round begins."""
    seen: list[Any] = []
    subscription = SimpleNamespace(topics={"orders"})

    async def rejoin(_: Any, given: Any) -> bool:
        seen.append((given, made.member.round))
        return joined

    def cache_file_offsets(topics: Any) -> None:
        seen.append((topics, made.member.round))

    made.assignor.cache_file_offsets = cache_file_offsets  # type: ignore[method-assign]
    monkeypatch.setattr(GroupCoordinator, "_do_rejoin_group", rejoin)
    assert await made.it._do_rejoin_group(subscription) is joined
    assert seen[0] == ({"orders"}, None)
    assert seen[1][0] is subscription
    assert seen[1][1].done()
    assert made.member.round is None


async def test_a_coordinator_gets_its_membership_before_it_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiokafka starts its tasks at once; the interval of heartbeats is in seconds."""
    given: list[Any] = []

    def init(self: Any, *args: Any, **options: Any) -> None:
        given.append((self.membership, self.heartbeat_s, args, options))

    monkeypatch.setattr(GroupCoordinator, "__init__", init)
    made: Any = CooperativeCoordinator(
        "client",  # type: ignore[arg-type]
        "subscription",
        member=lambda subscription: ("member of", subscription),  # type: ignore[arg-type,return-value]
        heartbeat_interval_ms=2500,
        group_id="g",
    )
    membership = ("member of", "subscription")
    options = {"heartbeat_interval_ms": 2500, "group_id": "g"}
    assert given == [(membership, 2.5, ("client", "subscription"), options)]
    assert made.membership == membership


@pytest.mark.parametrize("error", [errors.NodeNotReadyError(), ValueError("a bug"), None])
async def test_heartbeats_beside_a_request_come_at_their_interval_and_end_with_it(
    made: Made, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Whatever ends the request; only an error of Kafka makes the coordinator unknown."""
    slept, sleep, gate = list[float](), asyncio.sleep, asyncio.Event()

    async def wait(seconds: float) -> None:
        if seconds:
            slept.append(seconds)
            if len(slept) == 3:
                gate.set()
        await sleep(0)

    async def send(*_: Any, **__: Any) -> Any:
        await gate.wait()
        if error is not None:
            raise error
        return "answer"

    monkeypatch.setattr(asyncio, "sleep", wait)
    made.it.heartbeat_s, made.it._client.send = 2.5, send
    request = request_of(JoinGroupRequest)
    request._group_protocols = [("shop", b"other"), (EAGER, b"said"), (COOPERATIVE, b"old")]
    if error is None:
        assert await made.it._send_req(request) == "answer"
    else:
        with pytest.raises(type(error)):
            await made.it._send_req(request)
    assert set(slept) == {2.5}
    assert request._group_protocols == [(COOPERATIVE, b"said"), (EAGER, b"said")]
    is_kafkas = isinstance(error, errors.KafkaError)
    assert made.acts[:2] == ["heartbeat", "heartbeat"]
    assert ("dead" in made.acts) is is_kafkas
    assert len(asyncio.all_tasks()) == 1
