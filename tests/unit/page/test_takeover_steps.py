"""The steps of a takeover without a network: accepting, placing, giving up, and what is left afterwards."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from faust_assigner.page import takeover
from faust_assigner.page.takeover import Takeover


class Connection:
    """A connection that notes its end."""

    def __init__(self, name: str) -> None:
        self.name, self.closed = name, 0

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


class Loop:
    """The worker's loop: it notes what it is asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.given = error, list[object]()

    def call_soon_threadsafe(self, work: Callable[..., object], *arguments: object) -> None:
        """Note the call, or raise as a closed loop does."""
        if self.error is not None:
            raise self.error
        self.given.append((work, *arguments))


def taker(loop: Any = None, *, sockets: Any = list, held_up_s: float = 60.0) -> Takeover:
    """A takeover of paths that begin with /ours."""
    return Takeover(
        sockets=sockets,
        turned_at=lambda: 100.0,
        clock=lambda: 100.0 + held_up_s,
        is_ours=lambda path: path.startswith("/ours"),
        ours=asyncio.Protocol,
        theirs=asyncio.DatagramProtocol,
        their_loop=loop,
    )


async def test_all_queues_are_emptied_up_to_the_limit_and_each_place_is_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A connection has its place until it is answered; the order of the sockets is kept."""
    queues = {"a": ["a1", "a2"], "b": ["b1", "b2"], "c": ["c1"]}
    placed, free = list[str](), asyncio.Event()

    async def place(self: Takeover, connection: Any) -> None:
        placed.append(connection)
        await free.wait()

    monkeypatch.setattr(takeover, "MOST_WAITING", 3)
    monkeypatch.setattr(
        takeover, "_accepted", lambda one: queues[one].pop(0) if queues[one] else None
    )
    monkeypatch.setattr(Takeover, "_route_connection", place)
    one = taker(sockets=lambda: iter("abc"))
    one._accept_all()
    one._accept_all()
    await asyncio.sleep(0)
    assert (placed, len(one._waiting)) == (["a1", "a2", "b1"], 3)
    free.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert one._waiting == set()
    one._accept_all()
    await asyncio.gather(*one._waiting)
    assert placed == ["a1", "a2", "b1", "b2", "c1"]
    assert queues == {"a": [], "b": [], "c": []}


def path_of(found: str | Exception | None) -> Callable[[Any], Awaitable[str | None]]:
    """A first line with this path, or with an error."""

    async def path(connection: Any) -> str | None:
        if isinstance(found, Exception):
            raise found
        return found

    return path


@pytest.mark.parametrize(
    ("found", "error", "who", "closed"),
    [
        ("/ours/x", None, "ours", 0),
        ("/theirs", None, "theirs", 0),
        (None, None, "theirs", 0),
        (ConnectionResetError("gone"), None, "theirs", 0),
        (TimeoutError(), None, "theirs", 0),
        ("/ours", OSError("gone"), None, 1),
        ("/ours", RuntimeError("closed"), None, 1),
        ("/theirs", RuntimeError("closed"), None, 1),
    ],
)
async def test_a_connection_goes_to_one_loop_or_is_closed(
    monkeypatch: pytest.MonkeyPatch,
    found: str | Exception | None,
    error: Exception | None,
    who: str | None,
    closed: int,
) -> None:
    """An unreadable line is the worker's affair; a connection that no loop takes is closed once."""
    ours = list[object]()

    async def connect(protocol: object, connection: object) -> None:
        if error is not None:
            raise error
        ours.append((protocol, connection))

    monkeypatch.setattr(takeover, "_path_of", path_of(found))
    monkeypatch.setattr(asyncio.get_running_loop(), "connect_accepted_socket", connect)
    loop = Loop(error)
    one, connection = taker(loop), Connection("c")
    await one._route_connection(connection)  # type: ignore[arg-type]
    assert ours == ([(asyncio.Protocol, connection)] if who == "ours" else [])
    assert loop.given == ([(one._attach_to_worker_loop, connection)] if who == "theirs" else [])
    assert connection.closed == closed


async def test_a_placement_that_is_cancelled_closes_the_connection_and_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection goes to no loop."""
    started = asyncio.Event()

    async def path(connection: Any) -> str | None:
        started.set()
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(takeover, "_path_of", path)
    loop = Loop()
    one, connection = taker(loop), Connection("c")
    task = asyncio.create_task(one._route_connection(connection))  # type: ignore[arg-type]
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (connection.closed, loop.given) == (1, [])


@pytest.mark.parametrize(("held_up_s", "accepts"), [(0.99, False), (1.0, True), (7.0, True)])
async def test_a_tick_accepts_only_for_a_blocked_loop_and_the_end_waits_for_all_placements(
    monkeypatch: pytest.MonkeyPatch, held_up_s: float, *, accepts: bool
) -> None:
    """The loop is checked five times a second; each placement ends before the takeover does."""
    waits, ended, real = list[float](), list[str](), asyncio.sleep

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await real(0)

    async def place(self: Takeover, connection: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await real(0)
            ended.append(connection)

    queue = ["x", "y"]
    monkeypatch.setattr(takeover.asyncio, "sleep", sleep)
    monkeypatch.setattr(takeover, "_accepted", lambda _: queue.pop(0) if queue else None)
    monkeypatch.setattr(Takeover, "_route_connection", place)
    one = taker(sockets=lambda: ["s"], held_up_s=held_up_s)
    task = asyncio.create_task(one.run())
    while len(waits) < 3:
        await real(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(waits) == {0.2}
    assert sorted(ended) == (["x", "y"] if accepts else [])


async def test_a_peeked_connection_is_watched_no_longer() -> None:
    """The next loop adds its own reader; a byte above ASCII is a part of the path."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(b"GET /\xe4 HTTP/1.1\r\n")
        assert await takeover._path_of(ours) == "/ä"
        assert not asyncio.get_running_loop().remove_reader(ours)
