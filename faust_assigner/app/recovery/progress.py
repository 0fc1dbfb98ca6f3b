"""Progress of this worker's restores: remaining records, records per second, expected end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faust.types.tuples import TP

#: Seconds until the first log line, and between two log lines.
SILENT_S, BETWEEN_S = 2.0, 5.0
#: Seconds over which the rate is measured.
WINDOW_S = 10.0


@dataclass(frozen=True)
class Figures:
    """Figures of all restores, standbys included. Record counts are offset differences."""

    partitions: int = 0
    remaining: int = 0
    records_per_s: float = 0.0
    #: Seconds until the end at this rate; None while the rate is 0.
    eta_s: float | None = 0.0


class Progress:
    """The position of each restore, set by any thread; formats a log line every few seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        #: Records restored since the worker started.
        self.total = 0
        #: Downloaded blocks of snapshots: the records of a snapshot are restored only at its end.
        self.blocks = 0
        self._clear()

    def _clear(self) -> None:
        #: Partition -> the next offset to read, and the end offset.
        self._at: dict[TP, int] = {}
        self._ends: dict[TP, int] = {}
        #: (time, records restored so far), the oldest first.
        self._samples: deque[tuple[float, int]] = deque()
        self._began: float | None = None
        self._said: float | None = None
        self._passed = 0

    @property
    def is_idle(self) -> bool:
        """Whether no partition is being restored."""
        return not self._ends

    @property
    def passed(self) -> int:
        """Records restored since the last ``end()``."""
        return self._passed

    def next_offset(self, tp: TP) -> int:
        """Return the next offset to read of a partition under restore; 0 for any other partition."""
        return self._at.get(tp, 0)

    def begin(self, spans: Mapping[TP, tuple[int, int]]) -> None:
        """Add partitions to restore, with (next offset, end) of each; ignore partitions that are complete."""
        for tp, (at, end) in spans.items():
            if at < end:
                self._at[tp], self._ends[tp] = at, end
        if self._ends and self._began is None:
            self._began = self._now()
            self._samples.append((self._began, self._passed))

    def move(self, tp: TP, at: int) -> None:
        """Set the next offset of ``tp`` to ``at``; ignore unknown partitions and lower offsets."""
        before = self._at.get(tp)
        if before is not None and at > before:
            at = min(at, self._ends[tp])
            self._at[tp] = at
            self._passed += at - before
            self.total += at - before

    def finish(self, tp: TP) -> None:
        """Remove ``tp``, whose restore has ended."""
        self._ends.pop(tp, None)
        self._at.pop(tp, None)

    def give_up(self) -> None:
        """Remove all partitions after an interrupt; a later restore adds its partitions again."""
        self._ends.clear()
        self._at.clear()

    def end(self) -> str | None:
        """Reset after the last restore; return a final log line if ``line()`` returned a line."""
        line, began = None, self._began
        if began is not None and self._said is not None:
            spent_s = self._now() - began
            line = (
                f"Restored {self._passed:,} records in {spent_s:.1f} s, "
                f"{self._passed / max(spent_s, 1e-9):,.0f} records/s"
            )
        self._clear()
        return line

    def figures(self) -> Figures:
        """Return the current figures."""
        now, passed = self._now(), self._passed
        if self._began is None:
            return Figures()
        while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()
        since, before = self._samples[0]
        self._samples.append((now, passed))
        rate = (passed - before) / (now - since) if now > since else 0.0
        remaining = sum(
            max(0, end - self._at.get(tp, end)) for tp, end in tuple(self._ends.items())
        )
        eta_s = 0.0 if not remaining else remaining / rate if rate > 0 else None
        return Figures(len(self._ends), remaining, rate, eta_s)

    def line(self) -> str | None:
        """Return the line to log now: the first after two seconds, then every five; else None."""
        now = self._now()
        if (
            self._began is None
            or now - (self._said or self._began + SILENT_S - BETWEEN_S) < BETWEEN_S
        ):
            return None
        self._said = now
        found = self.figures()
        end = "not predictable yet" if found.eta_s is None else f"in about {found.eta_s:.0f} s"
        return (
            f"Restoring {found.partitions} partitions: {found.remaining:,} records remain, "
            f"{found.records_per_s:,.0f} records/s, the end is {end}"
        )
