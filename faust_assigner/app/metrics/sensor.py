"""Collects one worker's metrics: counts events as they happen, and reads all other values once a second."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import faust
from mode import Service, get_logger

from faust_assigner.app.metrics import exporters, readings
from faust_assigner.app.metrics.book import Book, Series, Snapshot
from faust_assigner.app.metrics.copies import Copies
from faust_assigner.app.metrics.document import peers_of, status_of
from faust_assigner.app.metrics.figure import COUNTER
from faust_assigner.app.metrics.figures import BY_NAME, SEVERAL
from faust_assigner.app.metrics.probes import Restores, ready_problems
from faust_assigner.app.metrics.recent_rounds import RecentRounds
from faust_assigner.app.metrics.stalled import StalledPartitions
from faust_assigner.app.rebalance.outcome import moved_tasks
from faust_assigner.app.tables.disk import state_sizes
from faust_assigner.wire.worker_status import Peers, Rounds, WorkerStatus

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tuples import TP

    from faust_assigner.app.rebalance.observers import DecisionInputs
    from faust_assigner.planner import Plan

logger = get_logger(__name__)

#: Seconds between two readings of the worker, and between two requests to the broker and the disk.
LOOK_S, ASK_S = 1.0, 5.0
#: Seconds between two requests for the ends of changelogs if neither an exporter nor a tool uses the
#: answers. The requests continue, because the age of a copy's lag is computed from earlier answers.
IDLE_ASK_S = 30.0
#: A request for the document waits for the broker's answer for the first number of seconds. After the
#: request, the worker asks the broker every ``ASK_S`` for the second number of seconds.
DOCUMENT_ASK_S, WATCHED_S = 1.0, 60.0
#: The maximum number of consecutive failed readings for which the last readings stay: a rebalance may
#: disturb a reading.
BRIDGED_LOOKS = 5
#: Seconds that the broker has to answer.
ASK_TIMEOUT_S = 4.0


class MetricsSensor(faust.Sensor):  # type: ignore[misc]
    """The sensor that collects one app's figures. It has no hook for single records.

    ``snapshot()`` may be called from any thread. Each reading replaces the former reading as a
    whole, so that no series of a former assignment stays.
    """

    def __init__(
        self,
        app: AppT,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.book, self.recent_rounds = Book(), RecentRounds()
        self._clock, self._wall = clock, wall
        self._still, self._copies, self._restores = (
            StalledPartitions(app),
            Copies(app, clock),
            Restores(app),
        )
        self._exporters = exporters.Exporters(self)
        self._read: Mapping[str, Series] = {}
        #: Free bytes and size of the tables' file system; bytes of each changelog partition kept.
        self._disk: tuple[int, int] | None = None
        self._sizes: Mapping[TP, int] = {}
        #: The time of the last request to the broker, and the time until which the worker repeats this
        #: request because a tool reads the document.
        self._asked_at: float | None = None
        self._watched_until = -math.inf
        self._is_asking = False
        #: The last generation that this member decided, and the leader's series for this generation.
        self._led: tuple[int, Mapping[str, Series]] = -1, {}
        self._round_began: float | None = None
        self._has_failed = False
        self._failed_looks = 0

    @property
    def app_id(self) -> str:
        """The label ``app`` of every series."""
        return str(self.app.conf.id)

    def snapshot(self) -> Snapshot:
        """Return all figures: readings of the last second, and current counts."""
        return self.book.snapshot(self._read)

    def not_ready(self) -> list[str]:
        """Return the reasons why this worker is not ready; empty if it is ready."""
        now = self._clock()
        return ready_problems(
            self.app, self._still.state_at(now), now=now, stalled_s=self._restores.stalled_s(now)
        )

    # -- on request

    async def document(self) -> WorkerStatus:
        """Return this worker's answer to ``faust-assigner status``, after at most a second."""
        now = self._clock()
        self._watched_until = now + WATCHED_S
        if self._asked_at is None or now - self._asked_at > ASK_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DOCUMENT_ASK_S):
                    await self._ask()
        now, began = self._clock(), self._round_began
        return status_of(
            self.app,
            now=now,
            still=self._still.state_at(now),
            lags=self._copies.lags(now),
            not_ready=self.not_ready(),
            is_leader=self._leads(),
            round_age_s=now - began if began is not None and self.app.rebalancing else None,
            disk=self._disk,
            sizes=self._sizes,
        )

    def peers(self) -> Peers:
        """Return all members of the last round."""
        return peers_of(self.app)

    def rounds(self) -> Rounds:
        """Return the last rounds as this worker saw them."""
        url = str(self.app.conf.canonical_url)
        seen = tuple(replace(one, url=url) for one in self.recent_rounds.rounds())
        return Rounds(app=self.app_id, rounds=seen)

    def _leads(self) -> bool:
        return bool(self._led[0] >= max(0, self.app.assignor.generation))

    # -- on events

    async def on_start(self) -> None:
        """Connect to the app's assignor, which exists by now."""
        connect = getattr(self.app.assignor, "on_decision", None)
        if connect is not None:
            connect(self.on_decision)
        self._look_once()

    async def on_stop(self) -> None:
        """Remove the series of this app."""
        self._exporters.close()

    def on_decision(self, inputs: DecisionInputs, plan: Plan) -> None:
        """Count a decision of this leader; called in the assignor's own thread."""
        self.book.count("rounds_led", SEVERAL if "+" in inputs.trigger else inputs.trigger)
        self.book.count("moves", by=moved_tasks(plan))
        self.book.count("cold_moves", by=int(plan.flat_cold.sum()))
        self.book.observe("plan_seconds", inputs.solve_ms / 1000)
        self._led = inputs.generation, readings.decision(inputs, plan)
        self.recent_rounds.decided(inputs, plan)

    def on_rebalance_start(self, app: AppT) -> float:
        """Count a round that begins; return the time."""
        self.book.count("rounds")
        self._round_began = self._clock()
        return self._round_began

    def on_rebalance_return(self, app: AppT, state: float) -> None:
        """Record the seconds until the round's answer was taken."""
        self.book.observe("round_answer_seconds", self._clock() - state)
        assignor = self.app.assignor
        answer = assignor._memory.answer
        outcome = None if answer is None else answer.outcome
        self.recent_rounds.answered(assignor.generation, outcome, at=self._wall())

    def on_rebalance_end(self, app: AppT, state: float) -> None:
        """Record the seconds until all owned partitions were restored."""
        self.book.observe("round_seconds", self._clock() - state)
        self.recent_rounds.ended(self.app.assignor.generation, seconds=self._clock() - state)
        self._round_began = None

    # -- regularly

    @Service.task  # type: ignore[untyped-decorator]
    async def _look_regularly(self) -> None:
        while not self.should_stop:
            await self.sleep(LOOK_S)
            self._look_once()

    @Service.task  # type: ignore[untyped-decorator]
    async def _ask_regularly(self) -> None:
        while not self.should_stop:
            await self.sleep(ASK_S)
            if self._is_due():
                await self._ask()

    def _is_due(self) -> bool:
        now = self._clock()
        if self._exporters.is_measured or now < self._watched_until or self._asked_at is None:
            return True
        return now - self._asked_at >= IDLE_ASK_S

    async def _ask(self) -> None:
        """Read the disk's figures and the lags of copies, unless a request is in progress."""
        if self._is_asking:
            return
        self._is_asking = True
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self._look_at_disk()
            async with asyncio.timeout(ASK_TIMEOUT_S):
                await self._copies.request_ends()
            self._asked_at = self._clock()
        except Exception as exc:  # the broker does not answer: lags in seconds keep growing
            logger.debug(
                "Could not read the end offsets of changelogs; lags are out of date: %r", exc
            )
        finally:
            self._is_asking = False

    async def _look_at_disk(self) -> None:
        app, tables = self.app, dict(self.app.tables._changelogs)
        held = app.assignor.assigned_actives() | app.assignor.assigned_standbys()
        self._disk = await asyncio.to_thread(readings.disk, Path(app.conf.tabledir))
        if self._clock() < self._watched_until:
            self._sizes = await asyncio.to_thread(state_sizes, held, tables)

    def _look_once(self) -> None:
        """Read all figures and push them to exporters; a failure is logged once.

        After more than :data:`BRIDGED_LOOKS` failures in a row gauges are dropped, and ``ready``
        is 0. Counters keep their values: a counter that went back to 0 would count all events
        twice.
        """
        try:
            self.read_figures()
            self._failed_looks = 0
        except Exception:
            self._failed_looks += 1
            if self._failed_looks > BRIDGED_LOOKS:
                self._read = {n: s for n, s in self._read.items() if BY_NAME[n].kind == COUNTER}
            self._log_failure()
        try:
            self._exporters.push()
        except Exception:
            self._log_failure()

    def _log_failure(self) -> None:
        if not self._has_failed:
            logger.exception("Could not read the metrics of this worker")
        self._has_failed = True

    def read_figures(self) -> None:
        """Read all figures; runs on the app's thread."""
        now, app = self._clock(), self.app
        not_ready = self.not_ready()
        read: dict[str, Series] = {
            **readings.worker(app),
            **readings.standing(self._still.state_at(now), now),
            **readings.copies(self._copies.lags(now)),
            **({} if self._disk is None else readings.disk_figures(*self._disk)),
            "ready": {(): 0.0 if not_ready else 1.0},
        }
        if self._round_began is not None and app.rebalancing:
            read["round_age_seconds"] = {(): now - self._round_began}
        if self._leads():
            read |= {**self._led[1], "leads": {(): 1.0}}
        self._read = read
