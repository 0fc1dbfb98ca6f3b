"""A snapshot of all metrics, and the counters updated between snapshots.

This module does not import Faust.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from faust_assigner.app.metrics.figure import HISTOGRAM
from faust_assigner.app.metrics.figures import FIGURES

#: Values of a figure's labels -> its value.
Series: TypeAlias = Mapping[tuple[str, ...], float]


@dataclass(frozen=True)
class Spread:
    """A histogram: the observations in each bucket, and the sum of the observed values.

    The last bucket takes values beyond all bounds.
    """

    counts: tuple[int, ...]
    total: float = 0.0

    def plus(self, bounds: tuple[float, ...], value: float) -> Spread:
        """Return the histogram with one more observation."""
        at = bisect_left(bounds, value)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return Spread(counts, self.total + value)


@dataclass(frozen=True)
class Snapshot:
    """The values at one time: the series of each figure, and the histogram of each figure."""

    series: Mapping[str, Series]
    spreads: Mapping[str, Spread]


def zeros() -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values of all figures at the start."""
    return {f.name: dict.fromkeys(f.starts, 0.0) for f in FIGURES if f.kind != HISTOGRAM}


class Book:
    """Counts events as they happen, on any thread, so that no event between scrapes is missed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[tuple[str, ...], float]] = {}
        self._spreads = {
            f.name: Spread((0,) * (len(f.buckets) + 1)) for f in FIGURES if f.kind == HISTOGRAM
        }
        self._listeners: dict[str, list[Callable[[float], object]]] = {}
        self._bounds = {f.name: f.buckets for f in FIGURES if f.kind == HISTOGRAM}

    def count(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Add ``by`` to the count of ``name``."""
        with self._lock:
            series = self._counts.setdefault(name, {})
            series[labels] = series.get(labels, 0.0) + by

    def observe(self, name: str, value: float) -> None:
        """Add an observation to a histogram."""
        with self._lock:
            self._spreads[name] = self._spreads[name].plus(self._bounds[name], value)
        for listener in self._listeners.get(name, ()):
            listener(value)

    def listen(self, name: str, listener: Callable[[float], object]) -> None:
        """Call ``listener`` with each observation of a histogram."""
        self._listeners.setdefault(name, []).append(listener)

    def snapshot(self, read: Mapping[str, Series]) -> Snapshot:
        """Return all figures. A figure's zero is replaced by its value in ``read``, and then by its count."""
        with self._lock:
            counted = {name: dict(series) for name, series in self._counts.items()}
            spreads = dict(self._spreads)
        series = zeros()
        for found in (read, counted):
            for name, values in found.items():
                series[name].update(values)
        return Snapshot(series, spreads)
