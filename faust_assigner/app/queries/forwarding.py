"""Forwards a request for a key to the worker that has it: only to URLs we may trust.

Any member may advertise any URL, and stock Faust sends each request there, headers included. Ours goes to
allowed URLs only (``FAUST_ASSIGNER_URLS``), with ``Authorization`` and ``Cookie`` only to those that
``FAUST_ASSIGNER_CREDENTIALS_TO`` names, follows no redirect, and carries the body along (stock announces its
length and never sends it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from faust.exceptions import SameNode
from faust.web.exceptions import ServiceUnavailable
from mode import get_logger
from yarl import URL

from faust_assigner.app import settings
from faust_assigner.settings import table
from faust_assigner.settings.places import allowed, named

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import RouterBase as Router
else:
    from faust.app.router import Router

logger = get_logger(__name__)

#: Who the caller is: for us alone, unless a setting names the next one.
CREDENTIALS = frozenset({"authorization", "cookie"})
#: Of this connection, not of the next one.
KEPT_BACK = frozenset(
    {
        "proxy-authorization",
        "host",
        "content-length",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
PASSED_BACK = (
    "Content-Type",
    "Location",
    "Retry-After",
    "X-Faust-Assigner-Role",
    "X-Faust-Assigner-Lag",
    "X-Faust-Assigner-Age",
)


class AllowlistRouter(Router):
    """Mixed over the app's router."""

    def __init__(self, app: Any) -> None:
        super().__init__(app)
        self._patterns = settings.read(app, table.URLS)
        self._trusted = settings.read(app, table.CREDENTIALS_TO)
        #: URL -> requests refused so far; each is said once.
        self.refused: Counter[URL] = Counter()

    async def _route_req(self, dest_url: URL, web: Any, request: Any) -> Any:
        return await self.forward(dest_url, web, request)

    async def forward(
        self,
        dest_url: URL,
        web: Any,
        request: Any,
        *,
        also: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Any:
        """The answer of the worker at ``dest_url``, asked with headers ``also`` too; SameNode if it is us.

        ``options`` are the HTTP client's. Raises ServiceUnavailable where the URL is not allowed.
        """
        own = URL(str(self.app.conf.canonical_url))
        host, port = self._urlident(dest_url)
        if (host, port) == self._urlident(own):
            raise SameNode()
        if not allowed(dest_url, own, self._patterns):
            self._refuse(dest_url)
        kept_back = KEPT_BACK if named(dest_url, self._trusted) else KEPT_BACK | CREDENTIALS
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in kept_back
        ]
        async with self.app.http_client.request(
            method=request.method,
            url=request.url.with_host(host).with_port(port),
            headers=[*headers, *(also or {}).items()],
            data=await request.read(),
            allow_redirects=False,
            **options,
        ) as answer:
            return web.bytes(
                await answer.read(),
                status=answer.status,
                headers={
                    name: answer.headers[name] for name in PASSED_BACK if name in answer.headers
                },
            )

    def _refuse(self, url: URL) -> None:
        self.refused[url] += 1
        if self.refused[url] == 1:
            logger.warning(
                "Requests for keys of the worker that calls itself %s are refused: not an allowed "
                "URL (FAUST_ASSIGNER_URLS)",
                url,
            )
        raise ServiceUnavailable()
