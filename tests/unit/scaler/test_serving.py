"""The scaler as a process: its signals, its end, and refused settings."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from faust_assigner.errors import ConfigError
from faust_assigner.scaler import recommender as recommender_module
from faust_assigner.scaler import render, server
from faust_assigner.scaler.case import HOLD, SLEEP, STAY, Recommendation
from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.memory import Memory
from faust_assigner.scaler.recommend import recommend
from faust_assigner.scaler.server import Listening, ScalerServer
from faust_assigner.scaler.settings import Settings, read_settings
from faust_assigner.status.collect import Where

WHERE = Where(connection={}, group_id="g")


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def ending(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that ends the scaler; the test fails if the scaler does not handle the signal."""

    def untaken(*_: object) -> None:
        raise AssertionError("the scaler does not handle the signal")

    before = signal.signal(request.param, untaken)
    yield request.param
    signal.signal(request.param, before)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1:7"), ("::1", "[::1]:7")])
def test_the_scaler_serves_one_group_until_a_signal(
    monkeypatch: pytest.MonkeyPatch, ending: signal.Signals, host: str, shown: str
) -> None:
    """Looks use a monotonic clock; the connections close after the server."""
    told: list[Any] = []

    class Looks:
        def __init__(self, where: Where, clock: Any) -> None:
            told.append((where, clock))

        async def __aenter__(self) -> Any:
            return SimpleNamespace(look="look")

        async def __aexit__(self, *_: object) -> None:
            told.append("closed")

    class Server:
        def __init__(self, *given: Any) -> None:
            told.append(given)

        async def start(self) -> int:
            os.kill(os.getpid(), ending)
            return 7

        async def stop(self) -> None:
            told.append("stopped")

    monkeypatch.setattr(server, "Looks", Looks)
    monkeypatch.setattr(server, "ScalerServer", Server)
    monkeypatch.setattr(server, "Recommender", lambda *given: given)
    listening = Listening(host=host, port=0)
    server.serve(WHERE, listening, {"max": "3"}, told.append)
    assert told == [
        (WHERE, time.monotonic),
        (("g", "look", time.monotonic), listening, {"max": "3"}),
        f"The scaler of group g listens on {shown}",
        "stopping",
        "stopped",
        "closed",
    ]


def test_a_contradiction_is_refused_before_the_group_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No port is opened."""
    monkeypatch.setattr(server, "Looks", None)
    with pytest.raises(ConfigError, match="not loopback"):
        server.serve(WHERE, Listening(host="0.0.0.0", port=0), {}, print)


async def test_a_server_is_unhealthy_before_it_ends_its_calls() -> None:
    """KEDA then asks another server; the recommender's look ends last."""
    told: list[Any] = []

    async def note(*given: Any) -> None:
        told.append(given)

    fake: Any = SimpleNamespace(
        _health=SimpleNamespace(enter_graceful_shutdown=lambda: note("unhealthy")),
        _server=SimpleNamespace(stop=lambda grace_s: note("stopped", grace_s)),
        recommender=SimpleNamespace(close=lambda: note("closed")),
    )
    await ScalerServer.stop(fake)
    assert told == [("unhealthy",), ("stopped", server.STOP_GRACE_S), ("closed",)]


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("upSeconds", "x", "a number of seconds, from 0 to 86400, got 'x'"),
        ("upSeconds", "86401", "a number of seconds, from 0 to 86400"),
        ("targetLagSeconds", "nan", "a number of seconds, from 1 to 86400"),
        ("workerRate", "x", "a number of records a second, 0.001 or more"),
        ("workerRate", "0", "a number of records a second, 0.001 or more"),
        ("min", "-1", "a whole number, 0 or more"),
        ("max", "1" * 7, "a whole number, 1 or more"),
    ],
)
def test_a_refused_setting_names_its_unit_and_its_bounds(key: str, text: str, words: str) -> None:
    """An unbounded setting has only a least value."""
    with pytest.raises(ConfigError, match=words) as refused:
        read_settings({key: text})
    assert str(refused.value).startswith(f"{key}: must be ")


@pytest.mark.parametrize(
    ("least", "backlog", "size", "decision"),
    [(0, 0, 0, SLEEP), (0, 5, 1, HOLD), (1, 0, 1, HOLD), (3, 5, 3, HOLD)],
)
def test_a_group_that_never_had_a_worker_sleeps_only_without_work(
    least: int, backlog: int, size: int, decision: str
) -> None:
    """With records waiting, the group is active with its least size."""
    sources = {("orders", 0): Source(owner="", committed=0, end=backlog)}
    look = Look(taken_at=1.0, members=0, tasks=0, sources=sources)
    found, _ = recommend(look, Settings(least=least), Memory())
    assert (found.size, found.decision, found.is_active) == (size, decision, decision == HOLD)


def test_figures_that_are_not_known_yet_read_so() -> None:
    """A group without known tasks has no list of sizes; a single worker is "1 worker"."""
    found = Recommendation(size=1, present=1, decision=STAY, reasons=("why",), backlog=1_234)
    assert render.as_text("g", found).splitlines() == [
        "g: 1 worker (stay; 1 now)",
        "  why          why",
        "  load         not known yet, 1,234 records wait",
        "  one worker   unknown rate: no worker was busy between two queries",
    ]


async def test_the_scaler_is_well_as_a_process_and_as_a_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both roles are set before calls are answered, and both end with the scaler."""
    told: list[Any] = []

    async def close() -> None:
        told.append("recommender closed")

    recommender: Any = SimpleNamespace(group_id="g", close=close)
    scaler = ScalerServer(recommender, Listening(host="127.0.0.1", port=7))

    async def start() -> None:
        told.append(dict(scaler._health._server_status))

    async def stop(grace_s: float) -> None:
        told.append((grace_s, dict(scaler._health._server_status)))

    scaler._server = SimpleNamespace(start=start, stop=stop)  # type: ignore[assignment]
    monkeypatch.setattr(Listening, "listen", lambda self, to: 9)
    assert await scaler.start() == 9
    await scaler.stop()
    well = health_pb2.HealthCheckResponse.SERVING
    ill = health_pb2.HealthCheckResponse.NOT_SERVING
    roles = ("", server.SERVICE)
    assert told == [
        dict.fromkeys(roles, well),
        (server.STOP_GRACE_S, dict.fromkeys(roles, ill)),
        "recommender closed",
    ]


async def test_each_recommendation_begins_with_the_memory_of_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each ScaledObject has its own."""
    seen: list[Any] = []
    now = [10.0]

    def recommend_(look: Any, settings: Settings, memory: Memory) -> Any:
        seen.append(memory)
        found = SimpleNamespace(decision=STAY, size=1, present=1, reasons=("why",))
        return found, Memory(tasks=len(seen))

    async def look() -> Any:
        return now[0]

    monkeypatch.setattr(recommender_module, "recommend", recommend_)
    monkeypatch.setattr(recommender_module, "look_of", lambda evidence: object())
    recommender = recommender_module.Recommender("g", look, lambda: now[0])
    for asker in ("a", "b", "a", "b"):
        now[0] += 100.0
        await recommender.recommendation(asker, Settings())
    assert seen == [Memory(), Memory(), Memory(tasks=1), Memory(tasks=2)]
