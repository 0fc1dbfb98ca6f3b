"""The page on a server of its own: for ``faust-assigner ui``, and on a port of a worker beside Faust's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from ipaddress import ip_address

from aiohttp import web

from faust_assigner.page.answers import EVENT_HEADERS, EVENTS, HEADERS, answer
from faust_assigner.page.watch import TooManyStreams, Watch


async def respond(
    watch: Watch, path: str, request: web.Request, *, closes: bool = False
) -> web.StreamResponse:
    """aiohttp's answer for a path below the page's own; with ``closes`` the connection ends with it."""
    if path == EVENTS:
        return await _stream(watch, request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    found = await answer(watch, path, request.query, headers)
    response = web.Response(status=found.status, body=found.body, headers=found.headers)
    if closes:
        response.force_close()
    return response


async def _stream(watch: Watch, request: web.Request) -> web.StreamResponse:
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
    """The page at ``PREFIX/``.

    With ``is_local`` only requests for this machine by a loopback name are answered: a page of another
    site, whose name was made to point here, must not read this one. With ``closes`` a connection ends with
    its answer: the next request on it may be for somebody else.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        if is_local and not _is_loopback(request.url.host or ""):
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
    """Serve the page and look at the group until the block ends; gives the address.

    Raises OSError where the port cannot be had.
    """
    app = application(watch, prefix=prefix, is_local=_is_loopback(host))
    # Streams of events have no end; a stop does not wait for them.
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
