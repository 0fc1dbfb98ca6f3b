"""The page's own server: its address, and the end of its listening."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from faust_assigner.page import server as server_module
from faust_assigner.page import watch as watch_module
from faust_assigner.page.server import application, served
from faust_assigner.page.watch import MOST_STREAMS, Watch
from tests.support.page import Script
from tests.support.status import group
from tests.support.waiting import PATIENCE_S


async def test_a_page_that_has_ended_gives_its_port_back() -> None:
    """While a server runs, a second server on its port is refused."""
    watch = Watch("shop", Script(iter([group(3).evidence()])))
    async with served(watch, host="127.0.0.1", port=0) as (host, port):
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        with pytest.raises(OSError, match="address already in use"):
            async with served(watch, host=host, port=port):
                pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)


@contextlib.asynccontextmanager
async def client(watch: Watch, **options: Any) -> AsyncIterator[TestClient[Any, Any]]:
    """A browser of the application with these options; it follows no redirect."""
    async with TestClient(TestServer(application(watch, **options))) as made:
        yield made


async def looked() -> Watch:
    """A watch after its first look."""
    watch = Watch("shop", Script(iter(())))
    await watch._once(Script(iter([group(2).evidence()])))
    return watch


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:6066", 200),
        ("127.0.0.1:6066", 200),
        ("[::1]:6066", 200),
        ("evil.example", 403),
        ("10.1.2.3", 403),
        ("localhost.evil.example:6066", 403),
        ("localhost:99999999", 403),
        ("127.0.0.1:x", 403),
    ],
)
async def test_a_local_page_answers_only_under_a_loopback_name(host: str, status: int) -> None:
    """A foreign site may point its name to this machine; a page for all hosts accepts any name."""
    watch = await looked()
    async with client(watch, is_local=True) as browser:
        assert (await browser.get("/", headers={"Host": host})).status == status
    async with client(watch) as browser:
        assert (await browser.get("/", headers={"Host": host})).status == 200


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 403), ("0.0.0.0", 200)])
async def test_the_server_is_local_if_its_address_is(host: str, status: int) -> None:
    """The application's setting depends on the address of the server."""
    seen: list[bool] = []
    watch = await looked()

    def noted(*_: Any, is_local: bool, **__: Any) -> Any:
        seen.append(is_local)
        return application(watch, is_local=is_local)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_module, "application", noted)
        patch.setattr(server_module.web, "TCPSite", _Loopback)
        async with served(watch, host=host, port=0):
            assert seen == [status == 403]
            await asyncio.sleep(0)
            assert watch._loop is not None
    assert watch._loop is None, "the looks end with the server"


class _Loopback(web.TCPSite):
    """Listens on loopback instead of any other address."""

    def __init__(self, runner: Any, host: str, port: int) -> None:
        super().__init__(runner, "127.0.0.1", port)


async def test_headers_count_in_any_case() -> None:
    """A browser sends If-None-Match after each look."""
    watch = await looked()
    async with client(watch) as browser:
        first = await browser.get("/", headers={"ACCEPT-ENCODING": "gzip"})
        assert first.headers["Content-Encoding"] == "gzip"
        assert first.headers["Vary"] == "Accept-Encoding"
        again = await browser.get("/", headers={"IF-NONE-MATCH": first.headers["ETag"]})
        assert (again.status, again.headers["ETag"]) == (304, first.headers["ETag"])
        other = await browser.get("/", headers={"If-None-Match": '"another"'})
        assert other.status == 200
        plain = await browser.get("/", headers={"Accept-Encoding": "identity"})
        assert "Content-Encoding" not in plain.headers


@pytest.mark.parametrize("closes", [True, False])
async def test_a_connection_ends_with_its_answer_only_on_a_workers_port(*, closes: bool) -> None:
    """The next request on the connection may be for the worker's own server."""
    watch = await looked()
    async with client(watch, prefix="/assignor", closes=closes) as browser:
        found = await browser.get("/assignor/parts")
        assert (found.headers.get("Connection") == "close") is closes
        for path in ("/", "/assignor"):
            home = await browser.get(path, allow_redirects=False)
            assert (home.status, home.headers["Location"]) == (302, "/assignor/")


async def test_a_stream_beyond_the_last_place_is_refused_as_busy() -> None:
    """The browser retries later."""
    watch = await looked()
    watch._streams = MOST_STREAMS
    async with client(watch) as browser:
        assert (await browser.get("/events")).status == 503


async def test_a_head_request_on_the_event_stream_holds_no_place() -> None:
    """The answer ends after the headers of a stream, even if all places are taken."""
    watch = await looked()
    watch._streams = MOST_STREAMS
    async with client(watch) as browser:
        found = await asyncio.wait_for(browser.head("/events"), PATIENCE_S)
        assert (found.status, found.content_type) == (200, "text/event-stream")
        assert await found.read() == b""
    assert watch._streams == MOST_STREAMS


async def test_a_browser_that_goes_gives_its_place_back_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The place is free before the next event, which may take long."""
    monkeypatch.setattr(watch_module, "BEAT_S", 600.0)
    watch = Watch("shop", Script(iter([group(2).evidence()])), every_s=600.0)
    async with served(watch, host="127.0.0.1", port=0) as (host, port), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"event: look")
        assert watch._streams == 1
        writer.close()
        while watch._streams:
            await asyncio.sleep(0.01)
