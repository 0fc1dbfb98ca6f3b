"""Queries to all workers at the same time, each with a deadline and an outcome."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from faust_assigner.status import worker_requests
from faust_assigner.status.report import ANSWERED, SILENT, UNREACHABLE, UNREADABLE
from faust_assigner.wire.worker_status import (
    LedgerPage,
    Peer,
    Peers,
    Rounds,
    RoundTold,
    WorkerStatus,
    encode_document,
    encode_ledger,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
END = web.AppKey("end", asyncio.Event)
NO_LIMIT = resource.RLIM_INFINITY
NEEDED = 1_000 + worker_requests._OTHER_FILES
GOOD = encode_document(WorkerStatus(app="shop", member_id="m"))


@asynccontextmanager
async def serving(*handlers: Handler) -> AsyncIterator[list[str]]:
    """Start a server for each handler, and yield their URLs."""
    servers, end = [], asyncio.Event()
    for handler in handlers:
        app = web.Application()
        app[END] = end
        app.router.add_get("/{path:.*}", handler)
        servers.append(TestServer(app))
        await servers[-1].start_server()
    try:
        yield [str(server.make_url("/")) for server in servers]
    finally:
        end.set()
        for server in servers:
            await server.close()


async def never(request: web.Request) -> web.StreamResponse:
    """Never answer, like a worker with a blocked event loop."""
    await request.app[END].wait()
    return web.Response()


async def halfway(request: web.Request) -> web.StreamResponse:
    """Begin an answer and never end it."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"{")
    await request.app[END].wait()
    return response


async def dripping(request: web.Request) -> web.StreamResponse:
    """Send a byte at a time, for three seconds."""
    response = web.StreamResponse()
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(150):
            await response.write(b" ")
            await asyncio.sleep(0.02)
    return response


def answering(body: bytes, status: int = 200, **headers: str) -> Handler:
    """Return a handler with this answer."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, headers=headers)

    return handler


@pytest.mark.parametrize(
    ("handler", "word", "detail"),
    [
        (answering(GOOD), ANSWERED, ""),
        (never, SILENT, "did not answer within 0.2 s"),
        (halfway, SILENT, "did not answer within 0.2 s"),
        (dripping, SILENT, "did not answer within 0.2 s"),
        (answering(b"", 404), UNREADABLE, "does not exist (404): an older version"),
        (answering(b"", 500), UNREADABLE, "answers 500"),
        (answering(b"", 302, Location="http://169.254.169.254/"), UNREADABLE, "answers 302"),
        (answering(b"<html>"), UNREADABLE, "returned a different document: not JSON"),
        (answering(b" " * (5 * 2**20)), UNREADABLE, "exceeds the size limit"),
    ],
)
async def test_each_answer_has_an_outcome(handler: Handler, word: str, detail: str) -> None:
    """The detail has the reason; a redirect is not followed."""
    async with serving(handler) as (url,):
        found = (await worker_requests.ask_status([url], deadline_s=0.2 if word == SILENT else 30))[
            url
        ]
    assert found.answer == word
    assert detail in found.detail
    assert (found.status is not None) == (word == ANSWERED)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://127.0.0.1:1", UNREACHABLE),
        ("http://no-such-host.invalid:6066", UNREACHABLE),
        ("ftp://127.0.0.1", UNREACHABLE),
        ("nonsense", UNREADABLE),
        ("http://[broken", UNREADABLE),
    ],
)
async def test_a_url_where_nobody_is_has_an_outcome(url: str, word: str) -> None:
    """The cases: a refused connection, an unknown host name, an invalid URL."""
    found = (await worker_requests.ask_status([url], deadline_s=20))[url]
    assert found.answer in (word, SILENT if word == UNREACHABLE else word)
    assert url in found.detail


async def test_all_are_asked_at_the_same_time() -> None:
    """The servers answer only after all requests arrived, so sequential requests would time out."""
    count = 150
    asked, everybody = 0, asyncio.Event()

    async def together(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        if asked == count:
            everybody.set()
        await everybody.wait()
        return web.Response(body=GOOD)

    async with serving(together) as (url,):
        found = await worker_requests.ask_status(
            [f"{url}?{n}" for n in range(count)], deadline_s=60
        )
    assert [one.answer for one in found.values()] == [ANSWERED] * count


async def test_a_silent_worker_does_not_hold_up_the_others() -> None:
    """Each worker has its own outcome."""
    async with serving(answering(GOOD), never) as (good, bad):
        found = await worker_requests.ask_status([good, bad], deadline_s=0.5)
    assert found[bad].answer == SILENT
    assert found[good].answer in (ANSWERED, SILENT)  # half a second may be short on a busy machine


async def test_peers_are_those_of_the_workers_that_tell() -> None:
    """Workers without a valid document are left out."""
    peers = Peers(app="shop", generation=7, peers=(Peer(url="http://a"),))
    async with serving(answering(encode_document(peers)), answering(b"{}")) as (good, bad):
        assert await worker_requests.ask_peers([good, bad], deadline_s=30) == {good: peers}
    assert await worker_requests.ask_peers([], deadline_s=30) == {}


async def test_ledgers_are_asked_page_by_page_and_what_is_missing_is_said() -> None:
    """A page's cursor leads to the older page; old versions have no ledger; pages are limited."""
    asked: list[str] = []

    async def paged(request: web.Request) -> web.StreamResponse:
        before = request.query.get("before", "")
        asked.append(before)
        page = {"": ("3", "c:2"), "c:2": ("2", "c:1"), "c:1": ("1", "")}[before]
        told = LedgerPage(app="shop", lines=(page[0].encode(),), cursor=page[1])
        return web.Response(body=encode_ledger(told))

    async def ending(request: web.Request) -> web.StreamResponse:
        if request.query.get("before"):
            return web.Response(status=500)
        return web.Response(body=encode_ledger(LedgerPage(app="shop", lines=(b"9",), cursor="c:8")))

    async with serving(paged, answering(b"", 404), answering(b"nonsense"), ending) as urls:
        good, old, bad, short = urls
        found = await worker_requests.ask_ledgers(urls, deadline_s=30, most_pages=9)
        assert found[good] == ([b"3", b"2", b"1"], "")
        assert found[short][0] == [b"9"]
        assert "500" in found[short][1]
        assert "404" in found[old][1]
        assert "not JSON" in found[bad][1]
        assert asked == ["", "c:2", "c:1"]
        found = await worker_requests.ask_ledgers([good], deadline_s=30, most_pages=2)
        assert found[good] == ([b"3", b"2"], f"{good} has older lines that were not read")


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((NO_LIMIT, NO_LIMIT), []),
        ((1_000_000, NO_LIMIT), []),
        ((100, NO_LIMIT), [(NEEDED, NO_LIMIT)]),
        ((100, 200), [(200, 200)]),
    ],
)
def test_the_limit_of_open_files_is_raised_and_never_lowered(
    limits: tuple[int, int], raised: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is raised to the hard limit; an unlimited process is left alone."""
    done: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, values: done.append(values))
    worker_requests._allow_sockets(1_000)
    assert done == raised


async def test_rounds_are_those_of_the_workers_that_have_them() -> None:
    """Workers of an older version and pages of a different service are left out."""
    told = Rounds(app="shop", rounds=(RoundTold(generation=4, at=2.5),))
    paths: list[str] = []

    async def rounds(request: web.Request) -> web.StreamResponse:
        paths.append(request.path)
        return web.Response(body=encode_document(told))

    async def absent(request: web.Request) -> web.StreamResponse:
        raise web.HTTPNotFound

    async def other(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"[]")

    async with serving(rounds, absent, other) as urls:
        found = await worker_requests.ask_rounds(urls, deadline_s=10.0)
    assert (found, paths) == ({urls[0]: told}, [worker_requests.ROUNDS_PATH])
