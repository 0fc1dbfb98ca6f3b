"""The lags of this worker's copies (standbys and warm-ups) behind the ends of their changelogs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from faust_assigner.app.queries.freshness import Look, Marks
from faust_assigner.app.rebalance import copy_offsets

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tuples import TP

#: (records that a copy lacks, seconds since the copy was complete).
Lag = tuple[int, float]


class Copies:
    """Measures the lags of all copies with one request; forgets partitions that have no copy."""

    def __init__(self, app: AppT, clock: Callable[[], float]) -> None:
        self._app, self._clock = app, clock
        self._marks: dict[TP, Marks] = {}
        #: Partition -> when its copy was last complete, else when the copy was first measured.
        self._fresh_at: dict[TP, float] = {}
        self._read: Mapping[TP, int] = {}

    async def request_ends(self) -> None:
        """Request the changelog ends of all copies; without an answer the last result stays."""
        app = self._app
        tps = sorted(app.assignor.assigned_standbys())
        self._forget(tps)
        if not tps or app._consumer is None:
            return
        asked_at = self._clock()
        ends = await copy_offsets.ends_of(app, tps)
        self._read = await copy_offsets.read_to(app, ends)
        for tp, end in ends.items():
            self._marks.setdefault(tp, Marks()).note(Look(asked_at, end))
            self._fresh_at.setdefault(tp, asked_at)

    def _forget(self, tps: list[TP]) -> None:
        for tp in self._marks.keys() - set(tps):
            del self._marks[tp], self._fresh_at[tp]

    def lags(self, now: float) -> dict[TP, Lag]:
        """Return the lag of each copy that was measured."""
        self._forget(list(self._app.assignor.assigned_standbys()))
        recovery = self._app.tables.recovery
        found: dict[TP, Lag] = {}
        for tp, marks in self._marks.items():
            offset = recovery.standby_offsets.get(tp)
            restored = getattr(recovery, "progress", None)
            at = max(
                self._read.get(tp, 0),
                0 if offset is None else offset + 1,
                0 if restored is None else restored.next_offset(tp),
            )
            fresh_at = marks.fresh_at(at - 1)
            if fresh_at is not None:
                # The time never goes back: fresh_at() drops older looks.
                self._fresh_at[tp] = fresh_at
            lag = marks.lag(at - 1) or 0
            found[tp] = lag, now - self._fresh_at[tp] if lag else 0.0
        return found
