"""Forwarding of a request for a key to the worker that has the key, only to trusted URLs.

Any member may advertise any URL, and stock Faust sends each request to this URL, headers included.
This module sends requests to allowed URLs only (``FAUST_ASSIGNER_URLS``). The headers
``Authorization`` and ``Cookie`` are sent only to the URLs in ``FAUST_ASSIGNER_CREDENTIALS_TO``.
Redirects are not followed. The body is forwarded; stock Faust forwards only the length of the body. A
forwarded request is not forwarded again. A forwarded read ends after FAUST_ASSIGNER_FORWARD_S, a write
after 300 s; stock Faust waits 300 s for both.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.web import RequestPayloadError
from faust.exceptions import SameNode
from faust.web.exceptions import ParseError, ServiceUnavailable
from mode import get_logger
from yarl import URL

from faust_assigner.app import settings
from faust_assigner.settings import table
from faust_assigner.settings.places import allowed, matches_any
from faust_assigner.wire.bounded import read_at_most

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.web.base import Request, Response, Web

    from faust_assigner.app.host.bases import RouterBase as Router
else:
    from faust.app.router import Router

logger = get_logger(__name__)

#: The headers with the client's credentials, forwarded only to the URLs in ``CREDENTIALS_TO``.
CREDENTIALS = frozenset({"authorization", "cookie"})
#: Headers that are never forwarded, because they belong to one connection. The web server has decoded a
#: body with a Content-Encoding such as gzip, so the body is forwarded without the encoding.
KEPT_BACK = frozenset(
    {
        "proxy-authorization",
        "host",
        "content-encoding",
        "content-length",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: The header that marks a forwarded request. During a rebalance two workers may take each other for the
#: owner of a key, and would send the request to each other until no connection is left.
HOP = "X-Faust-Assigner-Hop"
#: The largest answer that is passed back. The worker at a URL may be any server.
MOST_ANSWER_BYTES = 64 * 1024 * 1024
#: The maximum number of connections to one worker. By default aiohttp limits the connections to all
#: hosts together, so that requests to a frozen worker would also hold up requests to other workers.
MOST_CONNECTIONS = 100
#: The methods of requests that change no data. ``FAUST_ASSIGNER_FORWARD_S`` limits these requests.
READS = frozenset({"GET", "HEAD"})
#: The time limit of a connection to a different worker, in seconds.
CONNECT_S = 1.0
#: The time limit of a request that may change data, in seconds (aiohttp's default). The limit is
#: long because only the owner can answer such a request.
PATIENT_S = 300.0
#: The errors of an unreachable worker. The HTTP client of a stopping worker raises RuntimeError.
UNREACHABLE = (aiohttp.ClientError, TimeoutError, OSError, RuntimeError)
PASSED_BACK = (
    "Content-Type",
    "Location",
    "Retry-After",
    "X-Faust-Assigner-Role",
    "X-Faust-Assigner-Lag",
    "X-Faust-Assigner-Age",
)


class Forwarding:
    """Forwards the requests of one worker to allowed URLs."""

    def __init__(self, app: AppT) -> None:
        self._app = app
        self._patterns = settings.read(app, table.URLS)
        self._trusted = settings.read(app, table.CREDENTIALS_TO)
        self._forward_s = settings.read(app, table.FORWARD_S)
        #: URL -> number of requests that were not forwarded to it; each URL is logged once.
        self.refused: Counter[URL] = Counter()
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, dest_url: URL, web: Web, request: Request) -> Response:
        """Return the answer of the worker at ``dest_url``, within the time limit of the request.

        Raises SameNode if the URL is this worker's own, ServiceUnavailable if the URL is not allowed
        or if a different worker has forwarded the request, ParseError if the request cannot be
        read, TimeoutError, and aiohttp's errors.
        """
        own = URL(str(self._app.conf.canonical_url))
        host, port = _host_and_port(dest_url)
        if (host, port) == _host_and_port(own):
            raise SameNode()
        if HOP in request.headers:
            raise ServiceUnavailable()
        if not allowed(dest_url, own, self._patterns):
            self._refuse(dest_url)
        kept_back = KEPT_BACK if matches_any(dest_url, self._trusted) else KEPT_BACK | CREDENTIALS
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in kept_back
        ]
        try:
            url = request.url.with_host(host).with_port(port)
            body = await request.read()
        except (ValueError, RequestPayloadError) as error:
            raise ParseError(f"The Host header or the body cannot be read: {error}") from None
        total = self._forward_s if request.method in READS else PATIENT_S
        async with self._client().request(
            method=request.method,
            url=url,
            headers=[*headers, (HOP, "1")],
            data=body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=total, sock_connect=CONNECT_S),
        ) as answer:
            content = await read_at_most(answer.content.iter_any(), MOST_ANSWER_BYTES)
            if content is None:
                raise aiohttp.ClientPayloadError(f"an answer exceeds {MOST_ANSWER_BYTES} bytes")
            return web.bytes(
                content,
                status=answer.status,
                headers={
                    name: answer.headers[name] for name in PASSED_BACK if name in answer.headers
                },
            )

    def _client(self) -> Any:
        """Return the HTTP client: the app's, if the setting ``HttpClient`` names a class of the app."""
        chosen: object = self._app.conf.HttpClient
        if chosen is not aiohttp.ClientSession:
            return self._app.http_client
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=MOST_CONNECTIONS)
            )
            self._app.on_before_shutdown.connect(self._close, weak=False)
        return self._session

    async def _close(self, *_: object, **__: object) -> None:
        """Close the connections; a later request then fails as with a closed client of the app."""
        if self._session is not None:
            await self._session.close()

    def _refuse(self, url: URL) -> None:
        self.refused[url] += 1
        if self.refused[url] == 1:
            logger.warning(
                "Requests for keys are not forwarded to the worker with the URL %s: "
                "FAUST_ASSIGNER_URLS does not allow it",
                url,
            )
        raise ServiceUnavailable()


def _host_and_port(url: URL) -> tuple[str, int]:
    """Return host and port of a worker's URL; a URL without a scheme is only a host."""
    return (url.host if url.scheme else url.path) or "", int(url.port or 80)


class AllowlistRouter(Router):
    """Faust's router, except that it forwards requests to allowed URLs only."""

    def __init__(self, app: AppT) -> None:
        super().__init__(app)
        self.forwarding = Forwarding(app)

    async def _route_req(self, dest_url: URL, web: Web, request: Request) -> Response:
        try:
            return await self.forwarding.forward(dest_url, web, request)
        except UNREACHABLE as error:
            logger.info("Worker %s did not answer a request for a key: %r", dest_url, error)
            raise ServiceUnavailable() from None
