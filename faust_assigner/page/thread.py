"""The thread of a worker's page. Its imports take longer than all others of a worker together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from aiohttp import web as aiohttp_web
from mode import get_logger

from faust_assigner.app import settings
from faust_assigner.app.metrics.probes import PREFIX
from faust_assigner.app.weights.provider import connection_of
from faust_assigner.page.paths import EVENTS, PATHS
from faust_assigner.page.server import application
from faust_assigner.page.takeover import Takeover
from faust_assigner.page.watch import WORKER_SHARE, Watch
from faust_assigner.settings.table import URLS
from faust_assigner.status.collect import Looks, Where

if TYPE_CHECKING:
    from faust.types.app import AppT

logger = get_logger(__name__)

#: The time limit in seconds for a worker's answer to a request for its status.
DEADLINE_S = 2.0


def where_of(app: AppT) -> Where:
    """Return the app's own group, with separate connections for the page."""
    return Where(
        connection={**connection_of(app), "client_id": f"{app.conf.broker_client_id}-page"},
        group_id=str(app.conf.id),
        workers=(str(app.conf.canonical_url),),
        patterns=settings.read_or_default(app, URLS),
        deadline_s=DEADLINE_S,
    )


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
