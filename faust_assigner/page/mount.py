"""The page in a worker, at ``/assignor/`` of Faust's web server.

A separate thread with its own event loop and its own connections queries the group and renders the
page. The worker's event loop only copies the bytes into a response. While the
worker's loop is blocked, the thread answers requests for the page itself, on the same port; see
:mod:`faust_assigner.page.takeover`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web as aiohttp_web
from faust import web
from mode import Service, get_logger

from faust_assigner.app import settings
from faust_assigner.app.metrics.install import add_pages
from faust_assigner.app.metrics.probes import MARK as METRICS
from faust_assigner.app.metrics.probes import PREFIX
from faust_assigner.app.weights.provider import connection_of
from faust_assigner.page.answers import EVENTS, PATHS
from faust_assigner.page.server import application, respond
from faust_assigner.page.takeover import Takeover
from faust_assigner.page.watch import WORKER_SHARE, Watch
from faust_assigner.settings.table import PAGE, URLS
from faust_assigner.status.collect import Looks, Where

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.web.base import Web

logger = get_logger(__name__)

MARK: Final = "_faust_assigner_page"
#: Time limits in seconds: a worker's answer to a request for its status; the thread's end at a
#: stop.
DEADLINE_S, STOP_S = 2.0, 5.0
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
    metrics.add_dependency(
        service
    )  # no separate sensor, because each sensor costs time for every record
    add_pages(app, service.add_to)
    return service


def where_of(app: AppT) -> Where:
    """Return the app's own group, with separate connections for the page."""
    return Where(
        connection={**connection_of(app), "client_id": f"{app.conf.broker_client_id}-page"},
        group_id=str(app.conf.id),
        workers=(str(app.conf.canonical_url),),
        patterns=settings.read_or_default(app, URLS),
        deadline_s=DEADLINE_S,
    )


class PageService(Service):  # type: ignore[misc]
    """A service that starts and stops the page's thread, together with the app's metrics."""

    def __init__(self, app: AppT, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.page = PageThread(app)

    @property
    def watch(self) -> Watch:
        """The queries of the group, with the page's content."""
        return self.page.watch

    def add_to(self, server: Web) -> None:
        """Add the page to Faust's web server during its setup."""
        self.page.server = server
        blueprint.register(server.app, url_prefix=PREFIX)
        server.app.page(PREFIX, name="faust_assigner_page:home")(_Home)

    async def on_start(self) -> None:
        """Start the thread, which makes no query until a browser opens the page."""
        self.page.start(asyncio.get_running_loop())

    async def on_stop(self) -> None:
        """End the thread and its connections."""
        if not await asyncio.to_thread(self.page.stop, STOP_S):
            logger.warning(
                "The thread of the page did not end within %g s; the worker stops without it",
                STOP_S,
            )

    @Service.task  # type: ignore[untyped-decorator]
    async def _turn(self) -> None:
        while not self.should_stop:
            self.page.turned_at = time.monotonic()
            await self.sleep(TURN_S)


class PageThread:
    """The thread that makes the page.

    ``turned_at`` is the monotonic time at which the worker's event loop last ran our task.
    """

    def __init__(self, app: AppT) -> None:
        self._app = app
        self.watch = Watch(
            str(app.conf.id), lambda: Looks(where_of(app), time.time), share=WORKER_SHARE
        )
        self.turned_at = time.monotonic()
        #: Faust's web server; None before its setup.
        self.server: Any = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._is_ended = threading.Event()

    def start(self, their_loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread. ``their_loop`` is the worker's event loop."""
        self.turned_at = time.monotonic()
        self._is_ended.clear()
        self._thread = threading.Thread(
            target=self._run, args=(their_loop,), name="assignor-page", daemon=True
        )
        self._thread.start()

    def stop(self, seconds: float) -> bool:
        """End the thread; return whether the thread ended within ``seconds``."""
        self._is_ended.set()
        loop, ended, thread = self._loop, self._ended, self._thread
        if loop is not None and ended is not None:
            with contextlib.suppress(RuntimeError):  # the thread has closed its loop
                loop.call_soon_threadsafe(ended.set)
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()

    def _run(self, their_loop: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(self._serve(their_loop))
        except Exception:
            logger.exception(
                "The page of this worker has failed; the worker continues without the page"
            )

    async def _serve(self, their_loop: asyncio.AbstractEventLoop) -> None:
        self._ended, self._loop = asyncio.Event(), asyncio.get_running_loop()
        runner = aiohttp_web.AppRunner(
            application(self.watch, prefix=PREFIX, closes=True),
            access_log=None,
            shutdown_timeout=0.1,
            handler_cancellation=True,
        )
        await runner.setup()
        tasks = [asyncio.create_task(self.watch.run())]
        conf = self._app.conf
        if not conf.web_in_thread and conf.web_ssl_context is None:
            tasks.append(asyncio.create_task(self._takeover(runner, their_loop).run()))
        try:
            if not self._is_ended.is_set():
                await self._ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await runner.cleanup()

    def _takeover(self, runner: Any, their_loop: asyncio.AbstractEventLoop) -> Takeover:
        return Takeover(
            sockets=self._listening,
            turned_at=lambda: self.turned_at,
            clock=time.monotonic,
            is_ours=_is_of_page,
            ours=lambda: runner.server(),
            theirs=lambda: self.server._runner.server(),
            their_loop=their_loop,
        )

    def _listening(self) -> list[object]:
        """Return the listening sockets of the worker's web server; empty before its start."""
        return [
            one
            for site in (() if self.server is None else tuple(self.server._runner.sites))
            for one in getattr(getattr(site, "_server", None), "sockets", None) or ()
        ]


def _is_of_page(target: str) -> bool:
    path = target.partition("?")[0]
    return path.startswith(f"{PREFIX}/") and path.removeprefix(f"{PREFIX}/") in (*PATHS, EVENTS)
