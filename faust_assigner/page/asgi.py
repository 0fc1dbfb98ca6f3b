"""The page for workers whose web application is an ASGI app, as ``faust.contrib.asgi`` serves it.

In such a worker Faust's own web server does not start. Without this application, such a worker has
neither probes nor the documents for ``faust-assigner status`` and for other workers' pages. This
application serves the page, the probes and the documents::

    api = FastAPI()
    api.mount("/assignor", assignor_asgi(app))
    serve_asgi(app, api)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from faust_assigner.app.metrics.probes import LINES, ledger_page, live_problems
from faust_assigner.app.metrics.probes import MARK as METRICS
from faust_assigner.page.answers import EVENT_HEADERS, HEADERS, Answer, answer
from faust_assigner.page.mount import MARK, PageService
from faust_assigner.page.paths import EVENTS
from faust_assigner.page.watch import TooManyStreams, Watch
from faust_assigner.wire.worker_status import encode_document

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_JSON = {"Content-Type": "application/json", "Cache-Control": "no-store"}


def assignor_asgi(app: Any) -> Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]:
    """Return an ASGI application to mount at ``/assignor``.

    It serves the page, the probes and this worker's status, and answers only GET and HEAD. ``app``
    is the Faust app, which may be configured later.
    """

    async def respond(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"The page supports HTTP, not {scope['type']}")
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        path = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix("/")
        page: PageService | None = getattr(app, MARK, None)
        if scope["method"] not in ("GET", "HEAD"):
            found = Answer(405, b"Read-only.", {**HEADERS, "Allow": "GET, HEAD"})
        elif path in ("status", "peers", "rounds", "ready", "live"):
            found = await _worker_answer(app, path)
        elif path == "ledger":
            lines = await ledger_page(app, query.get("before", ""))
            found = Answer(404, b"FAUST_ASSIGNER_LEDGER is off.", HEADERS)
            if lines is not None:
                found = Answer(200, lines, LINES)
        elif page is None:
            found = Answer(404, b"FAUST_ASSIGNER_PAGE is 0.", HEADERS)
        elif path == EVENTS and scope["method"] == "HEAD":
            found = Answer(200, b"", EVENT_HEADERS)
        elif path == EVENTS:
            await _stream_events(page.watch, receive, send)
            return
        else:
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in scope["headers"]
            }
            found = await answer(page.watch, path, query, headers)
        await _send(send, found, with_body=scope["method"] != "HEAD")

    return respond


async def _worker_answer(app: Any, path: str) -> Answer:
    """Return a probe, or a document of this worker, as Faust's web server would."""
    sensor = getattr(app, METRICS, None)
    if sensor is None:
        return Answer(503, b'{"status": "not started", "reasons": []}', _JSON)
    if path == "status":
        return Answer(200, encode_document(await sensor.document()), _JSON)
    if path in ("peers", "rounds"):
        document = sensor.peers() if path == "peers" else sensor.rounds()
        return Answer(200, encode_document(document), _JSON)
    reasons = live_problems(app) if path == "live" else sensor.not_ready()
    said = {"status": path if not reasons else f"not {path}", "reasons": list(reasons)}
    return Answer(503 if reasons else 200, json.dumps(said).encode(), _JSON)


async def _send(send: Send, found: Answer, *, with_body: bool) -> None:
    await _start_response(
        send, found.status, {**found.headers, "Content-Length": str(len(found.body))}
    )
    await send({"type": "http.response.body", "body": found.body if with_body else b""})


async def _start_response(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _stream_events(watch: Watch, receive: Receive, send: Send) -> None:
    """Send events until the browser closes the page."""

    async def closed() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def tell() -> None:
        events = watch.events()
        async with contextlib.aclosing(events):
            try:
                first = await anext(events)
            except TooManyStreams:
                await _send(send, Answer(503, b"Too many pages are open.", HEADERS), with_body=True)
                return
            await _start_response(send, 200, EVENT_HEADERS)
            await send({"type": "http.response.body", "body": first, "more_body": True})
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})

    telling, closing = asyncio.create_task(tell()), asyncio.create_task(closed())
    try:
        await asyncio.wait((telling, closing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (telling, closing):
            task.cancel()
        await asyncio.gather(telling, closing, return_exceptions=True)
