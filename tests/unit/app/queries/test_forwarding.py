"""A request for a remote key: its possible targets, its headers and its answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.web import RequestPayloadError
from faust.app.router import Router
from faust.app.router import Router as FaustRouter
from faust.exceptions import SameNode
from faust.web.exceptions import ParseError, ServiceUnavailable
from yarl import URL

from faust_assigner.app.compose import forward_requests
from faust_assigner.app.host.mixing import over
from faust_assigner.app.queries import forwarding as module
from faust_assigner.app.queries.forwarding import CONNECT_S, HOP, PATIENT_S, AllowlistRouter
from faust_assigner.settings import table

OWN, OTHER, FORWARD_S = URL("http://w0:6066"), URL("http://w1:6067"), 3.0


#: Headers of a single connection or of its body's bytes; a forwarded request has its own.
CONNECTIONS = (
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Host",
    "Keep-Alive",
    "Proxy-Authorization",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
)
#: Headers that the client gets from the answering worker.
PASSED = {
    "Content-Type": "application/json",
    "Location": "/elsewhere",
    "Retry-After": "1",
    "X-Faust-Assigner-Role": "standby",
    "X-Faust-Assigner-Lag": "3",
    "X-Faust-Assigner-Age": "0.5",
}


class Http:
    """The app's HTTP client; ``asked`` lists the arguments of each request."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers = {"Content-Type": "application/json"}
        self.chunks = [b"ans", b"wer"]

    def request(self, **asked: Any) -> Any:
        """Note the request."""
        self.asked.append(asked)
        return self

    async def __aenter__(self) -> Any:
        self._rest = iter(self.chunks)
        return SimpleNamespace(content=self, status=201, headers=self.headers)

    async def __aexit__(self, *_: object) -> None:
        pass

    def iter_any(self) -> Any:
        """The answer's body."""
        return self

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._rest:
            return chunk
        raise StopAsyncIteration


class Made:
    """An AllowlistRouter of the worker at ``OWN`` under these settings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **said: Any) -> None:
        values = {
            table.URLS: said.get("urls", ()),
            table.CREDENTIALS_TO: said.get("trusted", ()),
            table.FORWARD_S: FORWARD_S,
        }
        monkeypatch.setattr(module.settings, "read", lambda app, setting: values[setting])
        self.http = Http()
        conf = SimpleNamespace(canonical_url=OWN, HttpClient=Http)
        app = SimpleNamespace(conf=conf, http_client=self.http, assignor=None)
        self.router: Any = over(AllowlistRouter, Router)(app)  # type: ignore[arg-type]

    async def forward(
        self, url: URL = OTHER, *, is_forwarded: bool = False, method: str = "POST"
    ) -> Any:
        """Forward a request with credentials."""

        async def read() -> bytes:
            return b"body"

        request = SimpleNamespace(
            method=method,
            url=URL("http://w0:6066/counts/a?b=c"),
            headers={
                "Authorization": "secret",
                "Cookie": "secret",
                **dict.fromkeys(CONNECTIONS, "of this connection"),
                "Accept": "text/plain",
                **({HOP: "1"} if is_forwarded else {}),
            },
            read=read,
        )
        web = SimpleNamespace(bytes=lambda body, *, status, headers: (body, status, headers))
        return await self._send(url, web, request)

    async def _send(self, *asked: Any) -> Any:
        return await self.router.forwarding.forward(*asked)


class Routed(Made):
    """A router that forwards as Faust's own ``_route_req`` does."""

    async def _send(self, *asked: Any) -> Any:
        return await self.router._route_req(*asked)


async def test_a_worker_that_does_not_answer_is_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust knows only its own errors: any other one is a 500 with a traceback."""
    it = Routed(monkeypatch)
    for error in (TimeoutError(), ConnectionResetError(), aiohttp.ClientPayloadError()):

        def fail(error: Exception = error, **asked: Any) -> Any:
            raise error

        monkeypatch.setattr(it.http, "request", fail)
        with pytest.raises(ServiceUnavailable):
            await it.forward(method="GET")


async def test_a_request_is_forwarded_with_its_body_and_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connection headers are dropped as well, and redirects are not followed."""
    it = Made(monkeypatch)
    it.http.headers |= {**PASSED, "Set-Cookie": "no", "Server": "no"}
    body, status, headers = await it.forward()
    assert (body, status) == (b"answer", 201)
    assert headers == PASSED
    assert it.http.asked == [
        {
            "method": "POST",
            "url": URL("http://w1:6067/counts/a?b=c"),
            "headers": [("Accept", "text/plain"), (HOP, "1")],
            "data": b"body",
            "allow_redirects": False,
            "timeout": aiohttp.ClientTimeout(total=PATIENT_S, sock_connect=CONNECT_S),
        }
    ]


async def test_a_read_by_fausts_own_route_has_the_limit_of_a_forwarded_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``topic_route`` and apps without the repairs waited 300 s for a frozen worker."""
    it = Routed(monkeypatch)
    for method in ("GET", "HEAD", "POST"):
        await it.forward(method=method)
    assert [asked["timeout"] for asked in it.http.asked] == [
        aiohttp.ClientTimeout(total=limit_s, sock_connect=CONNECT_S)
        for limit_s in (FORWARD_S, FORWARD_S, PATIENT_S)
    ]


async def test_fausts_own_requests_are_forwarded_with_the_same_care(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer is the other worker's, and a URL that is not allowed is refused."""
    it = Routed(monkeypatch, urls=("w1",))
    assert await it.forward() == (b"answer", 201, {"Content-Type": "application/json"})
    (asked,) = it.http.asked
    assert (asked["url"], asked["headers"], asked["data"]) == (
        URL("http://w1:6067/counts/a?b=c"),
        [("Accept", "text/plain"), (HOP, "1")],
        b"body",
    )
    with pytest.raises(ServiceUnavailable):
        await it.forward(URL("http://evil:80"))
    assert it.http.asked == [asked]


@pytest.mark.parametrize(("trusted", "are_sent"), [(("w1",), True), (("w2", "*.w1"), False)])
async def test_credentials_go_to_the_workers_that_a_setting_names(
    monkeypatch: pytest.MonkeyPatch, trusted: tuple[str, ...], are_sent: bool
) -> None:
    """Other workers get no credentials."""
    it = Made(monkeypatch, trusted=trusted)
    await it.forward()
    names = {name for name, _ in it.http.asked[0]["headers"]}
    assert names == {HOP, "Accept", *(("Authorization", "Cookie") if are_sent else ())}


@pytest.mark.parametrize("url", [OWN, URL("http://w0:6066/path")])
async def test_a_request_for_this_worker_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, url: URL
) -> None:
    """Host and port decide; a different port is a different worker."""
    it = Made(monkeypatch)
    with pytest.raises(SameNode):
        await it.forward(url)
    assert it.http.asked == []
    await it.forward(URL("http://w0:6068"))
    assert len(it.http.asked) == 1


@pytest.mark.parametrize("kind", [Made, Routed])
async def test_a_forwarded_request_is_not_forwarded_again(
    monkeypatch: pytest.MonkeyPatch, kind: type[Made]
) -> None:
    """Two workers that take each other for the owner would exchange it until no connection is left."""
    it = kind(monkeypatch)
    with pytest.raises(ServiceUnavailable):
        await it.forward(is_forwarded=True)
    with pytest.raises(SameNode):
        await it.forward(OWN, is_forwarded=True)
    assert it.http.asked == []
    assert not it.router.forwarding.refused, "the URL itself is allowed"


async def test_a_url_that_is_not_allowed_is_refused_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each URL has its own count."""
    it = Made(monkeypatch, urls=("w1",))
    evil, worse = URL("http://evil:80"), URL("http://169.254.169.254")
    for url in (evil, worse, evil):
        with pytest.raises(ServiceUnavailable):
            await it.forward(url)
    assert it.router.forwarding.refused == {evil: 2, worse: 1}
    assert len([one for one in caplog.records if "are not forwarded" in one.getMessage()]) == 2
    await it.forward()
    assert len(it.http.asked) == 1


def test_a_router_is_made_careful_once() -> None:
    """The app's own class stays a base."""

    class Own(FaustRouter):  # type: ignore[misc]
        pass

    class Conf:
        Router = Own

    app = SimpleNamespace(conf=Conf())
    forward_requests(app)
    chosen = app.conf.Router
    assert issubclass(chosen, AllowlistRouter)
    assert chosen.__mro__.index(AllowlistRouter) < chosen.__mro__.index(Own)
    forward_requests(app)
    assert app.conf.Router is chosen


@pytest.mark.parametrize("url", ["/counts/a", "http://w0:6066/counts/a"])
async def test_a_request_that_cannot_be_read_is_a_mistake_of_the_client(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """aiohttp has no host for an empty Host header; a body may not be of its Content-Encoding."""
    it = Made(monkeypatch)

    async def read() -> bytes:
        raise RequestPayloadError("no gzip")

    request = SimpleNamespace(method="POST", url=URL(url), headers={}, read=read)
    with pytest.raises(ParseError):
        await it.router.forwarding.forward(OTHER, None, request)
    assert not it.http.asked


async def test_an_endless_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The router then takes the worker for one that does not answer."""
    it = Made(monkeypatch)
    monkeypatch.setattr(module, "MOST_ANSWER_BYTES", 6)
    assert (await it.forward())[0] == b"answer"
    it.http.chunks.append(b"s")
    with pytest.raises(aiohttp.ClientPayloadError):
        await it.forward()
