"""The page in a worker, at ``/assignor/`` of Faust's web server.

A separate thread with its own event loop and its own connections queries the group and renders the
page. The worker's event loop only copies the bytes into a response. While the
worker's loop is blocked, the thread answers requests for the page itself, on the same port; see
:mod:`faust_assigner.page.takeover`.
"""

from __future__ import annotations

import asyncio
import time
from functools import cached_property
from typing import TYPE_CHECKING, Final

from aiohttp import web as aiohttp_web
from faust import web
from mode import Service, get_logger

from faust_assigner.app import settings
from faust_assigner.app.metrics.install import add_pages
from faust_assigner.app.metrics.probes import MARK as METRICS
from faust_assigner.app.metrics.probes import PREFIX
from faust_assigner.page.paths import EVENTS, PATHS
from faust_assigner.settings.table import PAGE

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.web.base import Web

    from faust_assigner.page.thread import PageThread
    from faust_assigner.page.watch import Watch

logger = get_logger(__name__)

MARK: Final = "_faust_assigner_page"
#: The time limit in seconds for the thread's end at a stop.
STOP_S = 5.0
#: The interval in seconds at which the worker's event loop shows that it is not blocked.
TURN_S: Final = 0.3

blueprint = web.Blueprint("faust_assigner_page")


def _page_view(path: str) -> type[object]:
    """Return the view for a path of the page."""

    class Page(web.View):  # type: ignore[misc]
        """---
        description: The page of the group: tasks by members, rounds, a task's history. Read-only.
        produces:
        - text/html
        """

        async def get(self, request: aiohttp_web.Request) -> aiohttp_web.StreamResponse:
            """Answer with the content that the page's thread made last."""
            from faust_assigner.page.server import respond

            return await respond(getattr(self.app, MARK).watch, path, request)

    return Page


class _Home(web.View):  # type: ignore[misc]
    """---
    description: The page of the group, at its address with a slash.
    """

    async def get(self, request: aiohttp_web.Request) -> aiohttp_web.StreamResponse:
        """Redirect to the address with a slash, to which the page's links are relative."""
        raise aiohttp_web.HTTPFound(f"{PREFIX}/")


for _path in (*PATHS, EVENTS):
    blueprint.route(f"/{_path}", name=_path or "page")(_page_view(_path))


def install(app: AppT) -> PageService | None:
    """Add the page to the app's web server, unless the setting disables the page.

    A second call has no effect. Returns the page's service, None without a page.
    """
    present: PageService | None = getattr(app, MARK, None)
    metrics = getattr(app, METRICS, None)
    # Without the metrics this worker has no status, so the page would be empty.
    if present is not None or metrics is None or not settings.read_or_default(app, PAGE):
        return present
    service = PageService(app)
    setattr(app, MARK, service)
    # no separate sensor, because each sensor costs time for every record
    metrics.add_dependency(service)
    add_pages(app, service.add_to)
    return service


class PageService(Service):  # type: ignore[misc]
    """A service that starts and stops the page's thread, together with the app's metrics.

    The thread starts with a worker that has a web server, or at the first request of an ASGI
    application.
    """

    def __init__(self, app: AppT, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self._app = app
        #: The worker's event loop between the start and the stop of this service.
        self._their_loop: asyncio.AbstractEventLoop | None = None
        self._is_thread_started = False
        #: Faust's web server, which the command line sets up in every worker; None before.
        self._server: Web | None = None

    @cached_property
    def page(self) -> PageThread:
        """The thread. Its imports take half a second, which a worker without a page does not pay."""
        from faust_assigner.page.thread import PageThread

        page = PageThread(self._app)
        page.server = self._server
        return page

    @property
    def watch(self) -> Watch:
        """The queries of the group, with the page's content. The thread runs from now on."""
        self._start_thread()
        return self.page.watch

    def add_to(self, server: Web) -> None:
        """Add the page to Faust's web server during its setup."""
        self._server = server
        if "page" in vars(self):
            self.page.server = server
        blueprint.register(server.app, url_prefix=PREFIX)
        server.app.page(PREFIX, name="faust_assigner_page:home")(_Home)

    async def on_start(self) -> None:
        """Start the thread, which makes no query until a browser opens the page."""
        self._their_loop = asyncio.get_running_loop()
        if self._app.conf.web_enabled:
            self._start_thread()

    async def on_stop(self) -> None:
        """End the thread and its connections."""
        self._their_loop, self._is_thread_started = None, False
        if "page" in vars(self) and not await asyncio.to_thread(self.page.stop, STOP_S):
            logger.warning(
                "The thread of the page did not end within %g s; the worker stops without it",
                STOP_S,
            )

    def _start_thread(self) -> None:
        if self._their_loop is not None and not self._is_thread_started:
            self._is_thread_started = True
            self.page.start(self._their_loop)

    @Service.task  # type: ignore[untyped-decorator]
    async def _turn(self) -> None:
        while not self.should_stop:
            if self._is_thread_started:
                self.page.turned_at = time.monotonic()
            await self.sleep(TURN_S)
