"""Takes one worker's figures: counts what happens as it happens, and reads the rest once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faust
from mode import Service, get_logger

from faust_assigner.app.metrics import exporters, readings
from faust_assigner.app.metrics.book import Book, Series, Snapshot
from faust_assigner.app.metrics.copies import Copies
from faust_assigner.app.metrics.figures import SEVERAL
from faust_assigner.app.metrics.probes import Restores, ready_problems
from faust_assigner.app.metrics.standing import StandingStill
from faust_assigner.app.round.outcome import moved_tasks

if TYPE_CHECKING:
    from faust_assigner.app.round.observers import DecisionInputs
    from faust_assigner.planner import Plan

logger = get_logger(__name__)

#: Seconds between two looks at the worker, and between two questions to the broker and the disk.
LOOK_S, ASK_S = 1.0, 5.0
#: The broker has so many seconds to answer.
ASK_TIMEOUT_S = 4.0


class MetricsSensor(faust.Sensor):  # type: ignore[misc]
    """One app's figures. It has no hook in the path of records.

    ``snapshot()`` may be called from any thread: a look replaces what was read as a whole, so that no series
    of a former assignment stays.
    """

    def __init__(
        self, app: Any, *, clock: Callable[[], float] = time.monotonic, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.book = Book()
        self._clock = clock
        self._still, self._copies, self._restores = (
            StandingStill(app),
            Copies(app, clock),
            Restores(app),
        )
        self._exporters = exporters.Exporters(self)
        self._read: Mapping[str, Series] = {}
        self._disk: Mapping[str, Series] = {}
        #: The generation that this member decided last, and what it knows of that.
        self._led: tuple[int, Mapping[str, Series]] = -1, {}
        self._round_began: float | None = None
        self._has_failed = False

    @property
    def app_id(self) -> str:
        """The label ``app`` of every series."""
        return str(self.app.conf.id)

    def snapshot(self) -> Snapshot:
        """All figures, as of the last look; what is counted, as of now."""
        return self.book.snapshot(self._read)

    def not_ready(self) -> list[str]:
        """Why this worker is not ready; nothing where it is."""
        now = self._clock()
        return ready_problems(
            self.app,
            self._still.look(now),
            now=now,
            stalled_s=self._restores.stalled_s(now),
        )

    # -- as it happens

    async def on_start(self) -> None:
        """The app's assignor exists by now."""
        connect = getattr(self.app.assignor, "on_decision", None)
        if connect is not None:
            connect(self.on_decision)
        self._look_once()

    async def on_stop(self) -> None:
        """Take the series of this app away."""
        self._exporters.close()

    def on_decision(self, inputs: DecisionInputs, plan: Plan) -> None:
        """Called by the assignor's own thread after each decision of this leader."""
        self.book.count("rounds_led", SEVERAL if "+" in inputs.trigger else inputs.trigger)
        self.book.count("moves", by=moved_tasks(plan))
        self.book.count("cold_moves", by=int(plan.flat_cold.sum()))
        self.book.observe("plan_seconds", inputs.solve_ms / 1000)
        self._led = inputs.generation, readings.decision(inputs, plan)

    def on_rebalance_start(self, app: Any) -> Any:
        """A round begins."""
        self.book.count("rounds")
        self._round_began = self._clock()
        return self._round_began

    def on_rebalance_return(self, app: Any, state: Any) -> None:
        """Its answer has been taken."""
        self.book.observe("round_answer_seconds", self._clock() - state)

    def on_rebalance_end(self, app: Any, state: Any) -> None:
        """All that is owned has been restored."""
        self.book.observe("round_seconds", self._clock() - state)
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
            if not self._exporters.is_measured:
                continue
            folder = Path(self.app.conf.tabledir)
            try:
                self._disk = await asyncio.wait_for(
                    asyncio.to_thread(readings.disk, folder), ASK_TIMEOUT_S
                )
                await asyncio.wait_for(self._copies.look(), ASK_TIMEOUT_S)
            except (
                Exception
            ) as exc:  # a broker that does not answer: lags in seconds grow meanwhile
                logger.debug("No look at the ends of changelogs: %r", exc)

    def _look_once(self) -> None:
        """Read everything, and hand it to exporters that are pushed to; a failure is logged once."""
        try:
            self.look()
            self._exporters.push()
        except Exception:
            if not self._has_failed:
                logger.exception("The metrics of this worker could not be read")
            self._has_failed = True

    def look(self) -> None:
        """Read everything; on the app's thread."""
        now, app = self._clock(), self.app
        not_ready = self.not_ready()
        read: dict[str, Series] = {
            **readings.worker(app),
            **readings.standing(self._still.look(now), now),
            **readings.copies(self._copies.lags(now)),
            **self._disk,
            "ready": {(): 0.0 if not_ready else 1.0},
        }
        if self._round_began is not None and app.rebalancing:
            read["round_age_seconds"] = {(): now - self._round_began}
        generation, led = self._led
        if generation >= max(0, app.assignor.generation):
            read |= {**led, "leads": {(): 1.0}}
        self._read = read
