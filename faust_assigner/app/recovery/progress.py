"""How far the restores of this worker are: records that remain, records per second, the end to expect."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: Seconds until the first line, and between two.
SILENT_S, BETWEEN_S = 2.0, 5.0
#: The rate is that of so many seconds.
WINDOW_S = 10.0


@dataclass(frozen=True)
class Figures:
    """Of all partitions that are restored now, standbys among them. Records are counted as offsets."""

    partitions: int = 0
    remaining: int = 0
    records_per_s: float = 0.0
    #: Seconds until nothing remains at this rate; None while nothing moves.
    eta_s: float | None = 0.0


class Progress:
    """Told by any thread where each partition stands; says it every few seconds, and at any time if asked."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        #: Records that were restored since the worker started.
        self.total = 0
        self._clear()

    def _clear(self) -> None:
        #: Partition -> the next offset to read, and the one to reach.
        self._at: dict[Any, int] = {}
        self._ends: dict[Any, int] = {}
        #: (time, records so far), oldest first.
        self._samples: deque[tuple[float, int]] = deque()
        self._began: float | None = None
        self._said: float | None = None
        self._passed = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is restored."""
        return not self._ends

    @property
    def passed(self) -> int:
        """Records that were restored since it was idle."""
        return self._passed

    def next_offset(self, tp: Any) -> int:
        """The next offset to read of a partition that is being restored; 0 of any other."""
        return self._at.get(tp, 0)

    def begin(self, spans: Mapping[Any, tuple[int, int]]) -> None:
        """Partitions are to be restored: (next offset, end) of each; the done ones are left out."""
        for tp, (at, end) in spans.items():
            if at < end:
                self._at[tp], self._ends[tp] = at, end
        if self._ends and self._began is None:
            self._began = self._now()
            self._samples.append((self._began, self._passed))

    def move(self, tp: Any, at: int) -> None:
        """``tp`` is restored up to ``at``, the next offset; known partitions only, and never back."""
        before = self._at.get(tp)
        if before is not None and at > before:
            at = min(at, self._ends[tp])
            self._at[tp] = at
            self._passed += max(0, at - before)
            self.total += max(0, at - before)

    def finish(self, tp: Any) -> None:
        """Nothing remains to do for ``tp``."""
        self._ends.pop(tp, None)
        self._at.pop(tp, None)

    def give_up(self) -> None:
        """Nothing is restored any more; whoever goes on with a partition begins it anew."""
        self._ends.clear()
        self._at.clear()

    def end(self) -> str | None:
        """All is restored or given up; the last line, where there was one before."""
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
        """As it stands."""
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
        """What to log now, or None: the first line is due after two seconds, the next ones every five."""
        now = self._now()
        if (
            self._began is None
            or now - (self._said or self._began + SILENT_S - BETWEEN_S) < BETWEEN_S
        ):
            return None
        self._said = now
        found = self.figures()
        end = "not to be foreseen" if found.eta_s is None else f"in about {found.eta_s:.0f} s"
        return (
            f"Restoring {found.partitions} partitions: {found.remaining:,} records remain, "
            f"{found.records_per_s:,.0f} records/s, the end is {end}"
        )
