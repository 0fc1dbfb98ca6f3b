"""Requests for a key of another worker: the worker asked and the headers that are forwarded."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import AsyncIterator
from typing import Any

import faust
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from yarl import URL

from faust_assigner.errors import ConfigError
from faust_assigner.settings.places import allowed
from tests.support.faust_group import PartitionAssignor as Ours
from tests.support.faust_group import StockAssignor, make_app

CREDENTIALS = {"Authorization": "Bearer canary", "Cookie": "session=canary", "X-Trace": "7"}


@contextlib.asynccontextmanager
async def served(handler: Any) -> AsyncIterator[URL]:
    """Run a web server on loopback; yield its URL."""
    front = web.Application()
    front.router.add_route("*", "/{tail:.*}", handler)
    async with TestServer(front) as server:
        yield server.make_url("/")


async def echo(request: web.Request) -> web.Response:
    """Answer with the received headers and body."""
    return web.json_response(
        {"headers": dict(request.headers), "body": await request.text()}, status=201
    )


class Worker:
    """An app with a web server that forwards every request to ``owner``."""

    def __init__(self, owner: URL, assignor: Any = Ours, **options: Any) -> None:
        self.app: faust.App = make_app("http://127.0.0.1:1", assignor=assignor, **options)
        self.app.finalize()
        self.owner = owner

    async def forward(self, request: web.Request) -> Any:
        """Forward the request to the owner."""
        try:
            return await self.app.router._route_req(self.owner, self.app.web, request)
        except faust.web.exceptions.ServiceUnavailable:
            return web.Response(status=503)


@contextlib.asynccontextmanager
async def asked(worker: Worker, method: str, **request: Any) -> AsyncIterator[Any]:
    """The response to one request."""
    async with (
        served(worker.forward) as url,
        ClientSession() as session,
        session.request(method, url / "shop", allow_redirects=False, **request) as answer,
    ):
        yield answer
    await worker.app.on_before_shutdown.send()


async def test_stock_faust_hands_the_callers_credentials_to_whoever_advertised_a_url() -> None:
    """If Faust changes this, our router can be removed."""
    async with (
        served(echo) as owner,
        asked(Worker(owner, StockAssignor), "GET", headers=CREDENTIALS) as answer,
    ):
        headers = (await answer.json(content_type=None))["headers"]
        assert headers["Authorization"] == "Bearer canary"
        assert headers["Cookie"] == "session=canary"


async def test_credentials_stay_and_the_rest_goes_along() -> None:
    """The owner's status, type and body are returned; it gets the other headers and the body."""
    async with (
        served(echo) as owner,
        asked(Worker(owner), "POST", data="order", headers=CREDENTIALS) as answer,
    ):
        assert (answer.status, answer.content_type) == (201, "application/json")
        seen = await answer.json()
    assert seen["body"] == "order"
    assert seen["headers"]["X-Trace"] == "7"
    assert "canary" not in str(seen)


async def test_a_compressed_body_is_read_by_the_owner() -> None:
    """The first worker's web server has decoded the body, so the owner must not decode it again."""
    body, headers = gzip.compress(b"order"), {"Content-Encoding": "gzip", "X-Trace": "7"}
    async with (
        served(echo) as owner,
        asked(Worker(owner), "POST", data=body, headers=headers) as answer,
    ):
        assert answer.status == 201
        seen = await answer.json()
    assert seen["body"] == "order"
    assert seen["headers"]["X-Trace"] == "7"


async def test_an_app_with_its_own_http_client_forwards_with_it() -> None:
    """The client may hold certificates or a proxy."""
    made = []

    def client() -> ClientSession:
        made.append(ClientSession())
        return made[-1]

    async with (
        served(echo) as owner,
        asked(worker := Worker(owner, HttpClient=client), "POST", data="order") as answer,
    ):
        assert answer.status == 201
    assert made == [worker.app.http_client]
    await worker.app.http_client.close()


@pytest.mark.parametrize(
    ("trusted", "goes_along"),
    [
        ("127.0.0.1", True),
        ("127.0.0.0/8, *.shop.internal", True),
        ("127.0.0.1:{port}", True),
        ("127.0.0.1:1", False),
        ("10.0.0.0/8", False),
        ("", False),
    ],
)
async def test_credentials_go_on_to_named_workers_only(trusted: str, goes_along: bool) -> None:
    """A worker with another URL or with another port than the listed one gets no credentials."""
    async with served(echo) as owner:
        worker = Worker(owner, faust_assigner_credentials_to=trusted.format(port=owner.port))
        async with asked(
            worker, "GET", headers=CREDENTIALS | {"Proxy-Authorization": "proxy"}
        ) as answer:
            seen = (await answer.json())["headers"]
    assert (seen.get("Authorization"), seen.get("Cookie")) == (
        ("Bearer canary", "session=canary") if goes_along else (None, None)
    )
    assert (seen["X-Trace"], seen.get("Proxy-Authorization")) == ("7", None)


async def test_a_trusted_worker_is_asked_only_where_it_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The second list allows no URL that the first list refuses."""
    async with served(echo) as owner:
        worker = Worker(
            owner, faust_assigner_urls="10.0.0.0/8", faust_assigner_credentials_to="127.0.0.1"
        )
        async with asked(worker, "GET", headers=CREDENTIALS) as answer:
            assert answer.status == 503
    assert "FAUST_ASSIGNER_URLS does not allow it" in caplog.text


async def test_a_redirect_is_handed_back() -> None:
    """The worker does not follow a redirect, because its target may be any host."""

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/secrets")

    async with served(elsewhere) as owner, asked(Worker(owner), "GET") as answer:
        assert (answer.status, answer.headers["Location"]) == (
            302,
            "http://169.254.169.254/secrets",
        )


async def test_a_url_that_is_not_allowed_is_refused_counted_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The caller gets a 503, and no request reaches the URL."""
    reached = []

    async def count(request: web.Request) -> web.Response:
        reached.append(request)
        return web.Response()

    async with served(count) as owner:
        worker = Worker(owner, faust_assigner_urls="10.0.0.0/8, *.shop.internal")
        for _ in range(2):
            async with asked(worker, "GET") as answer:
                assert answer.status == 503
    assert (reached, list(worker.app.router.forwarding.refused.values())) == ([], [2])
    assert sum("FAUST_ASSIGNER_URLS does not allow it" in line for line in caplog.messages) == 1


@pytest.mark.parametrize(
    ("url", "patterns", "answer"),
    [
        ("http://worker-2:6066", (), True),
        ("http://10.1.2.3:6066", (), True),
        ("http://[2001:db8::1]:6066", (), True),
        ("ftp://worker-2", (), False),
        ("worker-2", (), False),
        ("", (), False),
        ("http://169.254.169.254/latest", (), False),
        ("http://[::ffff:169.254.169.254]/", (), False),
        ("http://[fe80::1]/", (), False),
        ("http://0.0.0.0:6066", (), False),
        ("http://224.0.0.1", (), False),
        ("http://127.0.0.1:6379", (), False),
        ("http://localhost:6379", (), False),
        ("http://[::1]:6379", (), False),
        ("http://10.1.2.3:6066", ("10.0.0.0/8",), True),
        ("http://11.1.2.3:6066", ("10.0.0.0/8",), False),
        ("http://worker-2:6066", ("10.0.0.0/8",), False),
        ("http://W2.shop.internal", ("*.shop.internal",), True),
        ("http://w2.shop.internal.evil", ("*.shop.internal",), False),
        ("http://worker-2:6066", ("worker-2:6066",), True),
        ("http://worker-2:22", ("worker-2:6066",), False),
        ("http://127.0.0.1:6067", ("127.0.0.1",), True),
        ("http://127.1:6379", (), False),  # forms that resolvers turn into addresses
        ("http://2130706433:6379", (), False),
        ("http://0x7f.0.0.1:6379", (), False),
        ("http://169.254.43518:80", (), False),
        ("http://0:6379", (), False),
        ("http://localhost.:6379", (), False),
        ("http://worker-2.:6066", ("worker-2:6066",), True),
    ],
)
def test_what_may_be_forwarded_to(url: str, patterns: tuple[str, ...], answer: bool) -> None:
    """The asking worker advertises http://worker-1:6066."""
    assert allowed(URL(url), URL("http://worker-1:6066"), patterns) is answer


def test_workers_of_one_machine_may_ask_each_other() -> None:
    """Loopback URLs are allowed if the asking worker advertises a loopback URL."""
    assert allowed(URL("http://localhost:6067"), URL("http://127.0.0.1:6066"), ())


@pytest.mark.parametrize("setting", ["faust_assigner_urls", "faust_assigner_credentials_to"])
def test_a_list_that_cannot_be_read_forwards_nothing(setting: str) -> None:
    """Without this error an unreadable list would allow every URL."""
    app = make_app("http://w", assignor=Ours, **{setting: "10.0.0.0/99"})
    app.finalize()
    with pytest.raises(ConfigError, match=rf"{setting.upper()}.*10\.0\.0\.0/99"):
        _ = app.router
