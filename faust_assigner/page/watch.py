"""Queries a group every few seconds while a browser has the page open, and renders the page.

The queries may run on a different event loop than the web server. Any thread may read the last
result.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from functools import cached_property
from logging import getLogger
from typing import Final, Protocol

from faust_assigner.clients.groups import GroupNotFound
from faust_assigner.page.history import History
from faust_assigner.page.look import Look, Problem, looking, no_answer, no_group, our_bug
from faust_assigner.page.render import page_of, parts_of, story_page, story_part, title_of
from faust_assigner.page.scrub import scrubbed, text_of
from faust_assigner.page.tasks import families_of
from faust_assigner.pipeline.failure import verdict
from faust_assigner.status.build import build
from faust_assigner.status.evidence import Evidence
from faust_assigner.status.report import Report
from faust_assigner.wire.worker_status import RoundTold

logger = getLogger(__name__)

#: Seconds between two queries, and seconds for which queries continue after the last request.
EVERY_S, IDLE_S = 2.0, 20.0
#: The largest share of a core that queries may use: in a separate process, and in a worker.
SHARE, WORKER_SHARE = 0.1, 0.004
#: Seconds without a new query after which a stream sends ``beat``, and the most event streams.
BEAT_S, MOST_STREAMS = 5.0, 64
#: The most seconds that the first request waits for the first query.
FIRST_S: Final = 1.5
_QUICK: Final = 4


class Looker(Protocol):
    """An object that queries a group, such as :class:`faust_assigner.status.collect.Looks`."""

    async def look(self) -> Evidence:
        """Collect the current data of the group."""

    async def rounds(self, evidence: Evidence) -> Sequence[RoundTold]:
        """Return the last rounds from the workers that answered."""


@dataclass(frozen=True)
class Shown:
    """A query's rendered result. ``version`` is the query's number, and ``tag`` its HTTP entity tag."""

    look: Look
    version: int
    tag: str

    @cached_property
    def parts(self) -> dict[str, str]:
        """The HTML of each part of the page, by the part's name."""
        return parts_of(self.look)

    @cached_property
    def page(self) -> bytes:
        """The whole page as HTML."""
        return page_of(self.look, self.parts, self.version).encode()

    @cached_property
    def document(self) -> bytes:
        """The parts as JSON, for an open page."""
        return json.dumps({"title": title_of(self.look), "parts": self.parts}).encode()

    @cached_property
    def packed(self) -> tuple[bytes, bytes]:
        """``page`` and ``document``, compressed by gzip."""
        return gzip.compress(self.page, _QUICK), gzip.compress(self.document, _QUICK)


class TooManyStreams(Exception):
    """Raised if ``MOST_STREAMS`` event streams are open."""


class Watch:
    """Queries a group as long as :meth:`touch` is called; :meth:`run` makes the queries.

    With ``saved`` instead of ``looks``, the page shows the saved statuses. Queries are at least
    ``every_s`` seconds apart, and so far apart that they take at most ``share`` of a core.
    """

    def __init__(
        self,
        group: str,
        looks: Callable[[], AbstractAsyncContextManager[Looker]] | None = None,
        *,
        saved: Look | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        every_s: float = EVERY_S,
        share: float = SHARE,
    ) -> None:
        self.group, self.share = group, share
        self._looks, self._clock, self._monotonic, self._every_s = looks, clock, monotonic, every_s
        self._history, self._lock = History(), threading.Lock()
        #: At the last request for rounds: the generation, and the number of workers that answered.
        self._told_at: tuple[int | None, int] | None = None
        self._touched_at = -IDLE_S
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted: asyncio.Event | None = None
        self._listeners: set[Callable[[], object]] = set()
        self._streams = 0
        self._started = f"{clock() * 1000:.0f}"
        self.shown = self._drawn(None, None, 0) if saved is None else self._tagged(saved, 1)

    # -- from any thread

    def touch(self) -> None:
        """Note the time of a request for the page, so that queries begin or continue."""
        self._touched_at = self._monotonic()
        loop, wanted = self._loop, self._wanted
        if loop is not None and wanted is not None and not wanted.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(wanted.set)

    def story(self, key: str, *, is_part: bool) -> str | None:
        """Return the history of a task, as a page or as a part of a page; None for an unknown task."""
        with self._lock:
            part = story_part(self.shown.look, key)
        return part if part is None or is_part else story_page(self.shown.look, part)

    @contextlib.contextmanager
    def _listening(self, listener: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            self._listeners.add(listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.discard(listener)

    # -- on the loop of the web server

    async def first(self) -> Shown:
        """Return the current content, after a short wait for the first query."""
        self.touch()
        if not self.shown.version:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_S), aclosing(self._changes(FIRST_S)) as changes:
                    async for _ in changes:
                        if self.shown.version:
                            break
        return self.shown

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events: ``look`` for a new query, else ``beat``.

        Raises :class:`TooManyStreams`.
        """
        if self._streams >= MOST_STREAMS:
            raise TooManyStreams
        self._streams += 1
        seen = -1
        try:
            yield b"retry: 2000\n\n"
            async with aclosing(self._changes(BEAT_S)) as changes:
                async for _ in changes:
                    self.touch()
                    version = self.shown.version
                    word = "beat" if version == seen else "look"
                    seen = version
                    yield f"event: {word}\nid: {version}\ndata: {version}\n\n".encode()
        finally:
            self._streams -= 1

    async def _changes(self, beat_s: float) -> AsyncGenerator[None, None]:
        """Yield at once, at each new query, and after each ``beat_s`` seconds without a query."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        with self._listening(lambda: loop.call_soon_threadsafe(changed.set)):
            while True:
                changed.clear()
                yield
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(beat_s):
                        await changed.wait()

    # -- on its own loop

    async def run(self) -> None:
        """Query the group while the page is in use, until cancelled.

        While the page is not in use, the connections are closed.
        """
        if self._looks is None:
            return
        self._loop, self._wanted = asyncio.get_running_loop(), asyncio.Event()
        if self._is_wanted():
            self._wanted.set()
        try:
            while True:
                await self._wanted.wait()
                try:
                    async with self._looks() as looks:
                        while self._is_wanted():
                            await asyncio.sleep(await self._once(looks))
                except Exception:
                    logger.exception(
                        "Could not open or close the connections of the page of group %s; the page "
                        "opens them again in %g s",
                        self.group,
                        self._every_s,
                    )
                    await asyncio.sleep(self._every_s)
                self._wanted.clear()
                if self._is_wanted():
                    self._wanted.set()
        finally:
            self._loop = self._wanted = None

    def _is_wanted(self) -> bool:
        return self._monotonic() - self._touched_at < IDLE_S

    async def _once(self, looks: Looker) -> float:
        """Query once; return the seconds until the next query."""
        began = time.thread_time()
        report, problem = await self._look_again(looks)
        version = self.shown.version + 1
        try:
            shown = self._drawn(report, problem, version)
        except Exception:
            logger.exception("Could not render the page of group %s", self.group)
            shown = self._drawn(None, our_bug("Could not render the page"), version)
        self.shown = shown
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                listener()
        spent_s = time.thread_time() - began
        return max(self._every_s, spent_s / self.share - spent_s)

    async def _look_again(self, looks: Looker) -> tuple[Report | None, Problem | None]:
        """Return a new report, or the last report and the problem that prevented a new report."""
        try:
            evidence = await looks.look()
            report = scrubbed(build(evidence))
            await self._ask_rounds(looks, evidence, report)
            return report, None
        except GroupNotFound:
            return None, no_group(self.group)
        except Exception as error:
            before, said = self.shown.look.report, verdict(error)
            if said is None:
                logger.exception(
                    "Could not query the group %s; its page shows the last report", self.group
                )
                return before, our_bug("Could not look at the group")
            return before, no_answer(text_of(said[0]), before is not None)

    async def _ask_rounds(self, looks: Looker, evidence: Evidence, report: Report) -> None:
        """Ask the workers for their rounds if there is a new round or another number of answers."""
        generation = None if report.decision is None else report.decision.generation
        now = generation, report.totals.answered
        if now != self._told_at and report.is_settled:
            told = await looks.rounds(evidence)
            self._told_at = now
            with self._lock:
                self._history.note_reported([scrubbed(one) for one in told], report)

    def _drawn(self, report: Report | None, problem: Problem | None, version: int) -> Shown:
        families = families_of(report) if report is not None else ()
        with self._lock:
            if report is not None and problem is None:
                self._history.note(report, families)
            look = Look(
                group=self.group,
                report=report,
                families=families,
                history=self._history,
                problem=problem if version else looking(),
                every_s=self._every_s,
            )
            shown = self._tagged(look, version)
            if version:
                shown.packed  # noqa: B018 - rendered here, so that requests do not wait for it
        return shown

    def _tagged(self, look: Look, version: int) -> Shown:
        return Shown(look, version, f'"{self._started}-{version}"')
