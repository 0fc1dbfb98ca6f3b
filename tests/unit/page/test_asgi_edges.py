"""Requests to the page at the edges: paths, cases of headers, empty values, and refused streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.page import asgi, watch
from faust_assigner.page.answers import answer
from faust_assigner.page.asgi import assignor_asgi
from faust_assigner.page.mount import MARK
from faust_assigner.page.watch import Watch
from tests.support.status import group
from tests.support.waiting import PATIENCE_S
from tests.unit.page import test_asgi
from tests.unit.page.test_asgi import get, seen
from tests.unit.page.test_watch import script

#: The fixture of an app with the page.
app = test_asgi.app


@pytest.mark.parametrize(
    ("path", "root", "status"),
    [
        ("/parts", "/assignor", 200),
        ("/parts/", "/assignor", 404),
        ("//parts", "/assignor", 404),
        ("", "/assignor", 200),
        ("/parts", "/a/assignor", 200),
        ("/assignor/parts", "/assignor", 404),
    ],
)
async def test_only_the_whole_path_below_the_mount_is_a_page(
    app: Any, path: str, root: str, status: int
) -> None:
    """The root is removed once, at the beginning."""
    await seen(app)
    assert (await get(app, path, root=root))[0] == status


async def test_the_names_of_request_headers_may_be_in_any_case(app: Any) -> None:
    """Some servers pass the client's spelling on."""
    await seen(app)
    tag = getattr(app, MARK).watch.shown.tag.encode()
    status, headers, body = await get(app, "/", headers=[(b"If-None-Match", tag)])
    assert (status, headers["etag"], body) == (304, tag.decode(), b"")


async def test_an_empty_ledger_is_no_missing_ledger(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has just started has no line yet."""
    asked: list[Any] = []

    async def page(given: Any, before: str) -> bytes:
        asked.append((given, before))
        return b""

    monkeypatch.setattr(asgi, "ledger_page", page)
    status, headers, body = await get(app, "/ledger", query_string=b"x=1&before=7%3A8")
    assert (status, body, headers["content-length"]) == (200, b"", "0")
    assert asked == [(app, "7:8")]


async def test_a_refused_stream_has_one_answer(app: Any) -> None:
    """A second start of the answer is an error of the protocol."""
    await seen(app)
    getattr(app, MARK).watch._streams = watch.MOST_STREAMS
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/events", "headers": []}
    await asyncio.wait_for(assignor_asgi(app)(scope, asyncio.Event().wait, send), PATIENCE_S)
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]
    assert [one.get("more_body") for one in sent] == [None, None]


async def test_an_open_stream_ignores_all_messages_but_the_disconnect(app: Any) -> None:
    """A server may send an empty body, or a message of an extension, before the disconnect."""
    await seen(app)
    closing = asyncio.Event()
    sent: list[Any] = []
    messages = iter(("http.request", "http.extension", "http.request"))

    async def receive() -> Any:
        kind = next(messages, None)
        if kind is None:
            await closing.wait()
            return {"type": "http.disconnect"}
        return {"type": kind}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 3:
            closing.set()

    scope = {"type": "http", "method": "GET", "path": "/events", "headers": []}
    await asyncio.wait_for(assignor_asgi(app)(scope, receive, send), PATIENCE_S)
    start, *bodies = sent
    assert (start["status"], dict(start["headers"])[b"content-type"]) == (200, b"text/event-stream")
    assert [one["more_body"] for one in bodies] == [True] * len(bodies)
    version = getattr(app, MARK).watch.shown.version
    assert [one["body"] for one in bodies] == [
        b"retry: 2000\n\n",
        f"event: look\nid: {version}\ndata: {version}\n\n".encode(),
    ]


@pytest.mark.parametrize(
    ("query", "status", "is_page"),
    [
        ({"t": "orders/1"}, 200, True),
        ({"t": "orders/1", "part": ""}, 200, True),
        ({"t": "orders/1", "part": "1"}, 200, False),
        ({"key": "orders/1"}, 404, False),
        ({"t": ""}, 404, False),
    ],
)
async def test_a_story_is_a_page_or_a_part_of_one(
    query: dict[str, str], status: int, *, is_page: bool
) -> None:
    """The task is in ``t``; an empty ``part`` asks for the page."""
    shown = Watch("shop", script())
    await shown._once(script(group(2).evidence()))
    found = await answer(shown, "story", query, {})
    assert (found.status, b"<html" in found.body) == (status, is_page)
