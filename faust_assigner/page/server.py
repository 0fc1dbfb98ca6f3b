"""Serves the page by aiohttp: for ``faust-assigner ui``, and in a worker's thread for the page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from ipaddress import ip_address

from aiohttp import web

from faust_assigner.page.answers import EVENT_HEADERS, HEADERS, answer
from faust_assigner.page.paths import EVENTS
from faust_assigner.page.watch import TooManyStreams, Watch


async def respond(
    watch: Watch, path: str, request: web.Request, *, closes: bool = False
) -> web.StreamResponse:
    """Return aiohttp's answer for ``path``, which is relative to the page's address.

    With ``closes`` the connection ends after the answer.
    """
    if path == EVENTS:
        if request.method == "HEAD":
            return web.Response(headers=EVENT_HEADERS)
        return await _stream_events(watch, request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    found = await answer(watch, path, request.query, headers)
    response = web.Response(status=found.status, body=found.body, headers=found.headers)
    if closes:
        response.force_close()
    return response


async def _stream_events(watch: Watch, request: web.Request) -> web.StreamResponse:
    events = watch.events()
    async with contextlib.aclosing(events):
        try:
            first = await anext(events)
        except TooManyStreams:
            return web.Response(status=503, text="Too many pages are open.", headers=HEADERS)
        response = web.StreamResponse(headers=EVENT_HEADERS)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            await response.write(first)
            async for event in events:
                await response.write(event)
    return response


def application(
    watch: Watch, *, prefix: str = "", is_local: bool = False, closes: bool = False
) -> web.Application:
    """Return the application with the page at ``PREFIX/``.

    With ``is_local`` the application answers only requests for a loopback name. Otherwise a foreign
    site could read the page after its name was made to point to this machine (DNS rebinding). With
    ``closes`` a connection ends with its answer, because the next request on the connection may be
    for the worker's server.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        if is_local and not _is_loopback(_host_of(request)):
            return web.Response(status=403, text="Ask for localhost.", headers=HEADERS)
        return await respond(watch, request.match_info["path"], request, closes=closes)

    async def home(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{prefix}/")

    app = web.Application()
    if prefix:
        app.router.add_get("/", home)
        app.router.add_get(prefix, home)
    app.router.add_get(prefix + "/{path:[^/]*}", handle)
    return app


def _host_of(request: web.Request) -> str:
    """Return the host that the request names; "" for an impossible host or port."""
    try:
        return request.url.host or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.asynccontextmanager
async def served(
    watch: Watch, *, host: str, port: int, prefix: str = ""
) -> AsyncIterator[tuple[str, int]]:
    """Serve the page and query the group until the block ends; yield the address.

    Raises OSError if the port is not available.
    """
    app = application(watch, prefix=prefix, is_local=_is_loopback(host))
    # A stop does not wait for event streams, because they do not end.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    looking = asyncio.create_task(watch.run())
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][:2]
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
        await runner.cleanup()
