"""The page accepts connections if the worker's loop is blocked: routing to the page or the worker."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from faust_assigner.page import takeover
from faust_assigner.page.takeover import HELD_UP_S, Takeover
from tests.support.waiting import PATIENCE_S


class Saying(asyncio.Protocol):
    """Answers with its name and the received bytes."""

    def __init__(self, name: str) -> None:
        self.name, self.transport = name, asyncio.Transport()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Echo the complete request."""
        self.transport.write(self.name.encode() + b" " + data)
        self.transport.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a busy machine take its time for the first line."""
    monkeypatch.setattr(takeover, "FIRST_LINE_S", 600.0)


@asynccontextmanager
async def taking(*, held_up_s: float = 60.0) -> AsyncIterator[int]:
    """Yield the port of a socket whose loop has been blocked for this long."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        task = asyncio.create_task(
            Takeover(
                sockets=lambda: [listening],
                turned_at=lambda: 0.0,
                clock=lambda: held_up_s,
                is_ours=lambda path: path.startswith("/assignor/"),
                ours=lambda: Saying("ours"),
                theirs=lambda: Saying("theirs"),
                their_loop=loop,
            ).run()
        )
        try:
            yield listening.getsockname()[1]
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def ask(port: int, *parts: bytes) -> bytes:
    """Send a request in parts, and return the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.15)
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (b"GET /assignor/ HTTP/1.1\r\n\r\n", b"ours"),
        (b"HEAD /assignor/parts HTTP/1.1\r\n\r\n", b"ours"),
        (b"POST /assignor/ HTTP/1.1\r\n\r\n", b"theirs"),
        (b"GET / HTTP/1.1\r\n\r\n", b"theirs"),
        (b"\x16\x03\x01 not HTTP\r\n", b"theirs"),
        (b"x" * takeover.FIRST_LINE_BYTES, b"theirs"),
    ],
)
async def test_a_request_for_the_page_is_ours_and_all_else_is_theirs(
    request_: bytes, name: bytes
) -> None:
    """The chosen server reads the complete request, once its line or the byte limit is reached."""
    async with taking() as port:
        assert await ask(port, request_) == name + b" " + request_


async def test_a_line_that_comes_in_parts_is_waited_for() -> None:
    """The path is complete only at the end of the line."""
    async with taking() as port:
        assert (await ask(port, b"GET /assi", b"gnor/ HTTP/1.1\r\n", b"\r\n")).startswith(
            b"ours GET /"
        )


async def test_a_connection_that_says_nothing_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's server has its own time limits."""
    monkeypatch.setattr(takeover, "FIRST_LINE_S", 0.2)
    async with taking() as port:
        assert await ask(port, b"", b"", b"", b"", b"GET /assignor/ HTTP/1.1\r\n\r\n") == (
            b"theirs GET /assignor/ HTTP/1.1\r\n\r\n"
        )


async def test_a_loop_that_turns_accepts_by_itself() -> None:
    """The page accepts no connection of a running loop."""
    async with taking(held_up_s=HELD_UP_S - 0.01) as port:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(port, b"GET /assignor/ HTTP/1.1\r\n\r\n"), 1.0)


async def test_an_old_request_line_and_one_of_further_words_are_theirs() -> None:
    """A request for the page has exactly a method, a path and a version."""
    async with taking() as port:
        for line in (b"GET /assignor/\r\n\r\n", b"GET /assignor/ x HTTP/1.1\r\n\r\n"):
            assert await ask(port, line) == b"theirs " + line


@pytest.fixture
def awaited(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set as soon as the takeover waits for a connection's first line."""
    seen, real = asyncio.Event(), takeover._path_of

    async def noted(connection: socket.socket) -> str | None:
        seen.set()
        return await real(connection)

    monkeypatch.setattr(takeover, "_path_of", noted)
    return seen


async def test_a_waiting_connection_is_closed_with_the_takeover(awaited: asyncio.Event) -> None:
    """The client retries, and the worker's next process answers."""
    async with taking() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.wait_for(awaited.wait(), PATIENCE_S)
    found = asyncio.ensure_future(reader.read())
    done, _ = await asyncio.wait({found}, timeout=PATIENCE_S)
    found.cancel()
    writer.close()
    assert done
    assert found.result() == b""


async def test_only_so_many_connections_are_waited_for(
    awaited: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next connection stays in the kernel's queue until a place is free."""
    monkeypatch.setattr(takeover, "MOST_WAITING", 1)
    async with taking() as port:
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.wait_for(awaited.wait(), PATIENCE_S)
        asking = asyncio.ensure_future(ask(port, b"GET /assignor/ HTTP/1.1\r\n\r\n"))
        done, _ = await asyncio.wait({asking}, timeout=3 * takeover.TICK_S)
        assert not done
        silent.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await asking).startswith(b"ours ")
        silent.close()


async def test_a_connection_is_closed_if_the_workers_loop_is() -> None:
    """The process is about to end."""
    closed = asyncio.new_event_loop()
    closed.close()
    taker = Takeover(
        sockets=list,
        turned_at=lambda: 0.0,
        clock=lambda: 60.0,
        is_ours=lambda path: False,
        ours=asyncio.Protocol,
        theirs=asyncio.Protocol,
        their_loop=closed,
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(b"GET / HTTP/1.1\r\n\r\n")
        await taker._route_connection(ours)
        assert ours.fileno() == -1


def test_a_socket_without_a_connection_or_closed_gives_none() -> None:
    """The listening socket is neither closed nor made blocking, as it belongs to the worker."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        assert takeover._accepted(listening) is None
        with socket.create_connection(listening.getsockname()):
            listening.setblocking(True)
            found = takeover._accepted(listening)
            assert found is not None
            assert (found.getblocking(), listening.getblocking()) == (False, True)
            found.close()
        assert listening.fileno() != -1
    assert takeover._accepted(listening) is None


async def test_a_connection_that_the_workers_loop_cannot_attach_is_closed() -> None:
    """The client has closed the connection meanwhile."""

    class Loop:
        def __init__(self) -> None:
            self.asked: list[object] = []

        async def connect_accepted_socket(self, protocol: object, connection: object) -> None:
            self.asked.append((protocol, connection))
            raise OSError("gone")

        def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            return asyncio.create_task(work)

    loop = Loop()
    taker = Takeover(
        sockets=list,
        turned_at=lambda: 0.0,
        clock=lambda: 60.0,
        is_ours=lambda path: False,
        ours=asyncio.Protocol,
        theirs=asyncio.BaseProtocol,
        their_loop=loop,  # type: ignore[arg-type]
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        taker._attach_to_worker_loop(ours)
        await asyncio.gather(*taker._given)
        assert loop.asked == [(asyncio.BaseProtocol, ours)]
        assert ours.fileno() == -1
    await asyncio.sleep(0)
    assert taker._given == set()


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        (b"", None),
        (b"GET /assig", None),
        (b"GET /a\r\n", None),
        (b"GET /assignor/ HTTP/1.1\r\n", "/assignor/"),
        (b"HEAD /x?y=z HTTP/1.0\r\nHost: h\r\n", "/x?y=z"),
        (b"PUT /assignor/ HTTP/1.1\r\n", None),
        (b"GET /assignor/ HTTP/1.1\r\nLong: " + b"h" * 6_000, "/assignor/"),
    ],
)
async def test_the_path_of_a_client_that_has_closed_is_what_it_sent(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, path: str | None
) -> None:
    """An incomplete line has no path; no byte of the line is consumed."""
    real = asyncio.sleep
    monkeypatch.setattr(takeover.asyncio, "sleep", lambda _: real(0))
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        theirs.sendall(sent)
        theirs.close()
        if sent == b"GET /assig":
            with pytest.raises(TimeoutError):  # the limit of a first line ends the wait
                await asyncio.wait_for(takeover._path_of(ours), 0.05)
        else:
            assert await asyncio.wait_for(takeover._path_of(ours), PATIENCE_S) == path
        assert ours.recv(9_000) == sent


async def test_a_loop_without_a_sign_of_life_for_a_second_is_blocked() -> None:
    """The limit of exactly one second is included."""
    request_ = b"GET /assignor/ HTTP/1.1\r\n\r\n"
    async with taking(held_up_s=HELD_UP_S) as port:
        assert await ask(port, request_) == b"ours " + request_
