"""Where the figures go: Prometheus and OpenTelemetry ask for them, StatsD and Datadog are sent them.

All read one snapshot of the registry in ``figures.py``. Faust's monitors say which of them an app has. Every
monitor has the figures without labels in its ``metric_counts``, too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from faust.sensors.monitor import Monitor
from mode import get_logger

from faust_assigner.app.metrics.book import Book, Snapshot, Spread
from faust_assigner.app.metrics.figures import BY_NAME, COUNTER, FIGURES, HISTOGRAM, PREFIX, Figure

logger = get_logger(__name__)

#: StatsD takes no others.
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


class Source(Protocol):
    """One app's figures."""

    book: Book
    app: Any

    @property
    def app_id(self) -> str:
        """Its name."""

    def snapshot(self) -> Snapshot:
        """All figures; from any thread."""


class Exporters:
    """Of one source: those that its app has monitors for."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: set[int] = set()
        self._pushed: list[Any] = []
        self._closing: list[Callable[[], None]] = []
        #: Whether anything but Faust's own monitor takes the figures.
        self.is_measured = False
        self._failed: set[int] = set()

    def push(self) -> None:
        """Find new monitors, and hand the figures to those that do not ask."""
        for sensor in tuple(self._source.app.sensors):
            if isinstance(sensor, Monitor) and id(sensor) not in self._known:
                self._known.add(id(sensor))
                self._begin(sensor)
        snapshot = self._source.snapshot() if self._pushed else None
        for sensor in self._pushed:
            try:
                _push(sensor, snapshot)
            except Exception:
                if id(sensor) not in self._failed:
                    logger.exception("The metrics did not reach %r", sensor)
                self._failed.add(id(sensor))

    def _begin(self, sensor: Any) -> None:
        self._pushed.append(sensor)
        kind = type(sensor).__name__
        if kind == "PrometheusMonitor":
            self._closing.append(export_to_prometheus(self._source))
        elif kind == "OpenTelemetryMonitor":
            self._closing.append(export_to_otel(self._source, sensor.meter))
        self.is_measured |= kind != "Monitor"

    def close(self) -> None:
        """Take the series of this source away."""
        while self._closing:
            self._closing.pop()()


# -- StatsD, Datadog, Faust's page of statistics


def _push(sensor: Any, snapshot: Any) -> None:
    client = getattr(sensor, "client", None)
    for name, series in snapshot.series.items():
        exported = BY_NAME[name].exported
        if BY_NAME[name].labels == ():
            sensor.metric_counts.pop(exported, None)
        for labels, value in series.items():
            if not labels:
                sensor.metric_counts[exported] = value
            if client is None:
                continue
            if type(sensor).__name__ == "DatadogMonitor":
                tags = dict(zip(BY_NAME[name].labels, labels, strict=True))
                client.gauge(exported, value, labels=tags)
            else:
                places = (_FOREIGN.sub("_", label) for label in labels)
                client.gauge(".".join((exported, *places)), value)


# -- Prometheus

_COLLECTORS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def export_to_prometheus(source: Source, registry: Any = None) -> Callable[[], None]:
    """Show ``source`` in ``registry``, by default Prometheus' own; returns what takes it away again.

    All apps of one process share one collector, and are told apart by the label ``app``.
    """
    from prometheus_client import REGISTRY

    registry = REGISTRY if registry is None else registry
    collector = _COLLECTORS.get(registry)
    if collector is None:
        collector = _COLLECTORS[registry] = _Collector()
        registry.register(collector)
    collector.sources.append(source)

    def close() -> None:
        with contextlib.suppress(ValueError):
            collector.sources.remove(source)

    return close


class _Collector:
    """Of one registry of Prometheus'; asked at each scrape, on any thread."""

    def __init__(self) -> None:
        self.sources: list[Source] = []

    def describe(self) -> Iterable[Any]:
        """The names, which are then nobody else's."""
        return [_family(figure) for figure in FIGURES]

    def collect(self) -> Iterator[Any]:
        """All figures of all apps."""
        taken = [(source.app_id, source.snapshot()) for source in tuple(self.sources)]
        for figure in FIGURES:
            family = _family(figure)
            for app_id, snapshot in taken:
                if figure.kind == HISTOGRAM:
                    spread = snapshot.spreads[figure.name]
                    family.add_metric([app_id], _buckets(figure, spread), sum_value=spread.total)
                    continue
                for labels, value in sorted(snapshot.series[figure.name].items()):
                    family.add_metric([app_id, *labels], value)
            yield family


def _family(figure: Figure) -> Any:
    from prometheus_client import core

    kinds: Mapping[str, Any] = {
        COUNTER: core.CounterMetricFamily,
        HISTOGRAM: core.HistogramMetricFamily,
    }
    kind = kinds.get(figure.kind, core.GaugeMetricFamily)
    return kind(PREFIX + figure.name, described(figure), labels=["app", *figure.labels])


def described(figure: Figure) -> str:
    """The help of a figure."""
    text = figure.meaning[0].upper() + figure.meaning[1:]
    return f"{text}{' (leader only)' if figure.leader_only else ''}"


def _buckets(figure: Figure, spread: Spread) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in figure.buckets), "+Inf"]
    return list(zip(bounds, map(float, accumulate(spread.counts)), strict=True))


# -- OpenTelemetry


def export_to_otel(source: Source, meter: Any) -> Callable[[], None]:
    """Make an instrument of ``meter`` for each figure; returns what silences them."""
    from opentelemetry.metrics import Observation

    shown = [source]
    own = {"app": source.app_id}

    def callback(figure: Figure) -> Callable[[Any], Iterable[Any]]:
        def observe(_: Any) -> Iterator[Any]:
            for one in shown:
                for labels, value in one.snapshot().series[figure.name].items():
                    yield Observation(value, own | dict(zip(figure.labels, labels, strict=True)))

        return observe

    for figure in FIGURES:
        about = {"unit": _UNITS.get(figure.unit, "1"), "description": described(figure)}
        name = PREFIX + figure.name
        if figure.kind == HISTOGRAM:
            histogram = meter.create_histogram(
                name, explicit_bucket_boundaries_advisory=figure.buckets, **about
            )
            source.book.listen(figure.name, partial(histogram.record, attributes=own))
        elif figure.kind == COUNTER:
            meter.create_observable_counter(name, callbacks=[callback(figure)], **about)
        else:
            meter.create_observable_gauge(name, callbacks=[callback(figure)], **about)
    return shown.clear


_UNITS = {"seconds": "s", "bytes": "By"}
