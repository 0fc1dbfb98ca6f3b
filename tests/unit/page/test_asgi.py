"""The page as an ASGI application, called like uvicorn calls it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.ledger.install import MARK as LEDGER
from faust_assigner.app.metrics.probes import MARK as METRICS
from faust_assigner.page import mount, watch
from faust_assigner.page.asgi import assignor_asgi
from faust_assigner.page.mount import MARK
from faust_assigner.wire.worker_status import (
    Peers,
    Rounds,
    RoundTold,
    WorkerStatus,
    decode_ledger,
    decode_peers,
    decode_rounds,
    decode_status,
)
from tests.support.faust_group import make_app
from tests.support.page import Script
from tests.support.status import group
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def app() -> Any:
    """A finalized app that has the page."""
    made = make_app(
        "http://w", assignor="faust_assigner:PartitionAssignor", broker="kafka://127.0.0.1:1"
    )
    made.finalize()
    return made


async def get(
    app: Any, path: str, *, method: str = "GET", root: str = "/assignor", **more: Any
) -> Any:
    """Send a request; return (status, headers, body)."""
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": method,
        "path": f"{root}{path}",
        "root_path": root,
        "headers": [],
        "query_string": b"",
    } | more

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    await assignor_asgi(app)(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"]


async def seen(app: Any) -> None:
    """Let the app look once at a made group."""
    await getattr(app, MARK).watch._once(Script(iter([group(3).evidence()])))


async def test_the_page_is_mounted_at_any_place(app: Any) -> None:
    """The path is in ``root_path``, as newer servers send it, or is stripped."""
    await seen(app)
    for root in ("/assignor", "", "/api/v1/assignor"):
        status, headers, body = await get(app, "/", root=root)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b'data-name="w2"' in body
        assert int(headers["content-length"]) == len(body)
    assert (await get(app, "/page.css"))[0] == 200
    assert (await get(app, "/story", query_string=b"t=orders/0&part=1"))[0] == 200


async def test_the_workers_documents_are_there(app: Any) -> None:
    """An ASGI app does not start Faust's own web server, and workers request these documents."""
    status, _, body = await get(app, "/ready")
    assert (status, json.loads(body)["status"]) == (503, "not ready")
    assert json.loads((await get(app, "/live"))[2])["status"] == "live"
    assert json.loads((await get(app, "/peers"))[2])["app"] == app.conf.id


async def test_nothing_can_be_changed(app: Any) -> None:
    """All other methods are refused, and a HEAD answer has no body."""
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert (await get(app, "/", method=method))[0] == 405
    await seen(app)
    status, headers, body = await get(app, "/", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000


async def test_events_end_when_the_page_is_closed(app: Any) -> None:
    """The closed stream frees its place."""
    await seen(app)
    gone, sent = asyncio.Event(), list[Any]()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 3:
            gone.set()

    scope = {"type": "http", "method": "GET", "path": "/events", "headers": []}
    await asyncio.wait_for(assignor_asgi(app)(scope, receive, send), PATIENCE_S)
    assert sent[0]["status"] == 200
    assert (b"content-type", b"text/event-stream") in sent[0]["headers"]
    assert sent[2]["body"].startswith(b"event: look")
    assert getattr(app, MARK).watch._streams == 0


async def test_a_head_request_on_the_event_stream_holds_no_place(app: Any) -> None:
    """The answer ends after the headers of a stream, even if all places are taken."""
    await seen(app)
    getattr(app, MARK).watch._streams = watch.MOST_STREAMS
    status, headers, body = await asyncio.wait_for(get(app, "/events", method="HEAD"), PATIENCE_S)
    assert (status, headers["content-type"], body) == (200, "text/event-stream", b"")


async def test_a_page_beyond_the_last_place_is_refused_as_busy(app: Any) -> None:
    """The status is 503, so the browser retries later; open streams stay."""
    await seen(app)
    getattr(app, MARK).watch._streams = watch.MOST_STREAMS
    sent = list[Any]()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/events", "headers": []}
    await asyncio.wait_for(assignor_asgi(app)(scope, asyncio.Event().wait, send), PATIENCE_S)
    assert (sent[0]["status"], sent[1]["body"]) == (503, b"Too many pages are open.")
    assert getattr(app, MARK).watch._streams == watch.MOST_STREAMS


async def test_the_page_is_off_by_one_setting() -> None:
    """Without the page there is no thread, no view and no answer; the probes still work."""
    off = make_app(
        "http://w",
        assignor="faust_assigner:PartitionAssignor",
        broker="kafka://127.0.0.1:1",
        faust_assigner_page=False,
    )
    off.finalize()
    assert mount.install(off) is None
    assert (await get(off, "/"))[0] == 404
    assert (await get(off, "/live"))[0] == 200
    off.on_webserver_init(off.web)
    paths = {str(path) for path in off.web.views}
    assert "/assignor/live" in paths
    assert "/assignor/" not in paths
    on = make_app(
        "http://w", assignor="faust_assigner:PartitionAssignor", broker="kafka://127.0.0.1:1"
    )
    on.finalize()
    on.on_webserver_init(on.web)
    assert {"/assignor/", "/assignor", "/assignor/events", "/assignor/live"} <= {
        str(path) for path in on.web.views
    }


async def test_the_ledger_is_told_or_it_is_said_that_it_is_off(app: Any, tmp_path: Path) -> None:
    """The request's cursor limits the lines; a disabled ledger is not found."""
    assert (await get(app, "/ledger"))[0] == 200
    files = getattr(app, LEDGER).writer
    files.folder = tmp_path
    line = b'{"table":"recovery","group_id":' + json.dumps(app.conf.id).encode() + b"}"
    (tmp_path / "a.jsonl").write_bytes(line + b"\n" + line + b"\n")
    number = (tmp_path / "a.jsonl").stat().st_ino
    assert len(decode_ledger((await get(app, "/ledger"))[2]).lines) == 2
    before = f"before={number}:{len(line)}".encode()
    assert len(decode_ledger((await get(app, "/ledger", query_string=before))[2]).lines) == 1
    delattr(app, LEDGER)
    assert (await get(app, "/ledger"))[0] == 404


async def test_another_protocol_than_http_is_an_error(app: Any) -> None:
    """The ASGI server handles the error."""
    for kind in ("websocket", "lifespan"):
        with pytest.raises(RuntimeError, match=kind):
            await get(app, "/", type=kind)


async def test_each_document_is_under_its_own_path_and_a_head_has_none(app: Any) -> None:
    """The documents are the members of the last round and the rounds."""
    status, _, body = await get(app, "/rounds")
    assert (status, json.loads(body)) == (200, {"version": 1, "app": app.conf.id, "rounds": []})
    assert "peers" in json.loads((await get(app, "/peers"))[2])
    assert (await get(app, "/peers", method="HEAD"))[2] == b""


async def test_a_worker_is_live_while_it_is_not_ready_and_not_live_after_a_crash(
    app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes restarts a worker that is not live, but not a worker that is not ready."""
    assert (await get(app, "/ready"))[0] == 503
    assert (await get(app, "/live"))[0] == 200
    monkeypatch.setattr(type(app), "crashed", True)
    status, _, body = await get(app, "/live")
    assert (status, json.loads(body)) == (
        503,
        {"status": "not live", "reasons": ["the app has crashed"]},
    )


async def test_an_app_that_is_not_configured_yet_has_not_started() -> None:
    """A server may answer probes before the app is configured."""
    status, _, body = await get(SimpleNamespace(), "/live")
    assert (status, json.loads(body)["status"]) == (503, "not started")


async def test_an_app_is_configured_after_its_page_was_mounted() -> None:
    """Modules mount the page while they are imported; the app's settings follow later."""
    app = make_app(
        "http://w", assignor="faust_assigner:PartitionAssignor", broker="kafka://127.0.0.1:1"
    )
    respond = assignor_asgi(app)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app.finalize()
    scope = {"type": "http", "method": "HEAD", "path": "/events", "headers": []}
    await respond(scope, lambda: asyncio.sleep(0, {"type": "http.request"}), send)
    assert sent[0]["status"] == 200


async def test_request_headers_reach_the_answer(app: Any) -> None:
    """A matching tag returns 304, and the ledger's lines have a content type of their own."""
    await seen(app)
    _, headers, _ = await get(app, "/")
    tag = headers["etag"].encode()
    assert (await get(app, "/", headers=[(b"if-none-match", tag)]))[0] == 304
    lines = (await get(app, "/ledger"))[1]
    assert lines["content-type"] == "application/x-ndjson"


async def test_a_stream_goes_on_until_the_disconnect(app: Any) -> None:
    """A server may deliver the request's body first; every event announces more body."""
    await seen(app)
    first, gone, sent = [{"type": "http.request"}], asyncio.Event(), list[Any]()

    async def receive() -> Any:
        if first:
            return first.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 3:
            gone.set()

    scope = {"type": "http", "method": "GET", "path": "/events", "headers": []}
    streaming = asyncio.ensure_future(assignor_asgi(app)(scope, receive, send))
    done, _ = await asyncio.wait({streaming}, timeout=PATIENCE_S)
    streaming.cancel()
    assert done
    assert len(sent) == 3
    assert all(message["more_body"] for message in sent[1:])


class Sensor:
    """A worker's metrics: its documents and its reasons against readiness."""

    reasons: tuple[str, ...] = ("it restores", "it joins")

    async def document(self) -> WorkerStatus:
        """Return the status."""
        return WorkerStatus(app="shop", member_id="m1")

    def peers(self) -> Peers:
        """Return the members."""
        return Peers(app="shop", generation=4)

    def rounds(self) -> Rounds:
        """Return the rounds."""
        return Rounds(app="shop", rounds=(RoundTold(generation=3),))

    def not_ready(self) -> tuple[str, ...]:
        """Return the reasons."""
        return self.reasons


async def test_every_document_of_a_worker_is_whole_and_of_its_type() -> None:
    """Documents must not be cached; a probe's answer lists all reasons."""
    sensor = Sensor()
    app = SimpleNamespace(**{METRICS: sensor})
    found = {path: await get(app, f"/{path}") for path in ("status", "peers", "rounds", "ready")}
    assert [status for status, _, _ in found.values()] == [200, 200, 200, 503]
    for _, headers, body in found.values():
        assert headers == {
            "content-type": "application/json",
            "cache-control": "no-store",
            "content-length": str(len(body)),
        }
    assert decode_status(found["status"][2]) == await sensor.document()
    assert decode_peers(found["peers"][2]) == sensor.peers()
    assert decode_rounds(found["rounds"][2]) == sensor.rounds()
    said = {"status": "not ready", "reasons": ["it restores", "it joins"]}
    assert json.loads(found["ready"][2]) == said
    sensor.reasons = ()
    status, _, body = await get(app, "/ready")
    assert (status, json.loads(body)) == (200, {"status": "ready", "reasons": []})
