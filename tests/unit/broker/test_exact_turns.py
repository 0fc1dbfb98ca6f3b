"""Turns and limits of connections, each at its exact number."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import server as server_module
from faust_assigner.broker.settings import Settings
from tests.support.hall import Hall, frames, in_hall

API_VERSIONS = 18


@pytest.mark.parametrize("pieces", [1, 3, 9])
def test_a_connection_waits_once_for_the_turn_of_each_frame(pieces: int) -> None:
    """Bytes that come while it waits add no turn, however they are cut."""

    async def story(hall: Hall) -> tuple[int, int]:
        peer, _ = hall.connect("peer")
        waits: list[Any] = []
        wait = hall.server.scheduler.wait

        def counted(one: Any, lane: Any) -> None:
            waits.append(one)
            wait(one, lane)

        hall.server.scheduler.wait = counted  # type: ignore[method-assign]
        data = b"".join(frames(API_VERSIONS, 3))
        each = -(-len(data) // pieces)
        for at in range(0, len(data), each):
            peer.data_received(data[at : at + each])
        before = len(waits)
        await hall.answers(3)
        for _ in range(20):
            await asyncio.sleep(0)
        return before, len(waits)

    assert in_hall(story) == (1, 3)


@pytest.mark.parametrize(
    ("sizes", "closed"),
    [((60, 40, 0), ""), ((60, 41, 0), "a"), ((50, 60, 30), "a"), ((50, 60, 51), "ab")],
)
def test_the_longest_stalled_peers_are_dropped_above_the_limit(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], closed: str
) -> None:
    """Only as many as needed; a peer that reads its answers is never dropped."""
    monkeypatch.setattr(server_module, "DISCONNECT_UNSENT_BYTES", 100)

    async def story(hall: Hall) -> tuple[str, int]:
        peers = [hall.connect(name) for name in "abc"]
        for number, (peer, _) in enumerate(peers[:2]):
            peer.stalled_since = 7.0 + number
        # The last one tells first, so that the limit is passed by a stalled peer.
        for (peer, _), size in zip(peers[::-1], sizes[::-1], strict=True):
            hall.server.count_unsent(peer, size)
        found = "".join(wire.name for _, wire in peers if wire.aborted)
        return found, hall.node.counters["answers_over_budget"]

    assert in_hall(story) == (closed, len(closed))


@pytest.mark.parametrize(("timeout_s", "every_s"), [(0.5, 0.125), (4.0, 1.0), (60.0, 1.0)])
async def test_a_sweep_looks_at_the_files_and_then_at_every_connection(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, every_s: float
) -> None:
    """A frame that is too slow is found within a quarter of its time."""
    acts: list[Any] = []
    times: list[float] = []

    class Over(Exception):
        """Ends the sweeps."""

    async def sleep(seconds: float) -> None:
        acts.append(("sleeps", seconds))
        if len(acts) > 6:
            raise Over

    def swept(name: str) -> Any:
        def sweep(now: float) -> None:
            acts.append(name)
            times.append(now)

        return SimpleNamespace(sweep=sweep)

    node: Any = SimpleNamespace(
        settings=Settings(), group_timers=SimpleNamespace(), peer_log=swept("log")
    )
    server: Any = server_module.BrokerServer(node, frame_timeout_s=timeout_s)
    server._certificates = SimpleNamespace(reload=lambda: acts.append("files"))
    server._connections = [swept("a"), swept("b")]
    monkeypatch.setattr(
        server_module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep})
    )
    with pytest.raises(Over):
        await server._sweep()
    one = [("sleeps", every_s), "files", "a", "b", "log"]
    assert acts == [*one, *one, ("sleeps", every_s)]
    assert times[0] == times[1] == times[2] <= asyncio.get_running_loop().time()
