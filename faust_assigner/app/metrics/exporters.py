"""Exports the figures: Prometheus and OpenTelemetry read them, StatsD and Datadog are sent them.

All exporters read one snapshot of the registry in ``figures.py``. The app's Faust monitors
determine its exporters. The figures without labels are also stored in the ``metric_counts`` of
every monitor.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from faust.sensors.monitor import Monitor
from mode import get_logger

from faust_assigner.app.metrics.book import Book, Snapshot, Spread
from faust_assigner.app.metrics.figure import COUNTER, HISTOGRAM, PREFIX, Figure
from faust_assigner.app.metrics.figures import BY_NAME, FIGURES

if TYPE_CHECKING:
    from faust.types.app import AppT
    from opentelemetry.metrics import CallbackOptions, Meter
    from prometheus_client import CollectorRegistry, Metric

logger = get_logger(__name__)

#: Characters that StatsD does not accept in names.
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


class FigureSource(Protocol):
    """One app's figures."""

    book: Book
    app: AppT

    @property
    def app_id(self) -> str:
        """The app's id."""

    def snapshot(self) -> Snapshot:
        """Return the values of all metrics; callable from any thread."""


class Exporters:
    """The exporters of one source, one for each monitor of its app."""

    def __init__(self, source: FigureSource) -> None:
        self._source = source
        self._known: set[int] = set()
        self._pushed: list[Monitor] = []
        self._closing: list[Callable[[], None]] = []
        #: Whether a monitor other than Faust's own takes the figures.
        self.is_measured = False
        self._failed: set[int] = set()

    def push(self) -> None:
        """Find new monitors, and send the figures to all monitors."""
        for sensor in tuple(self._source.app.sensors):
            if isinstance(sensor, Monitor) and id(sensor) not in self._known:
                self._known.add(id(sensor))
                self._begin(sensor)
        if not self._pushed:
            return
        snapshot = self._source.snapshot()
        for sensor in self._pushed:
            try:
                _push_to_monitor(sensor, snapshot)
            except Exception:
                if id(sensor) not in self._failed:
                    logger.exception("Could not send the metrics to %r", sensor)
                self._failed.add(id(sensor))

    def _begin(self, sensor: Monitor) -> None:
        self._pushed.append(sensor)
        if _is_a(sensor, "PrometheusMonitor"):
            self._closing.append(export_to_prometheus(self._source))
        elif _is_a(sensor, "OpenTelemetryMonitor"):
            self._closing.append(export_to_otel(self._source, sensor.meter))
        self.is_measured |= type(sensor) is not Monitor

    def close(self) -> None:
        """Remove the series of this source."""
        while self._closing:
            self._closing.pop()()


def _is_a(sensor: Monitor, kind: str) -> bool:
    """Whether a monitor is of this class of Faust or of a subclass; the class's packages may be missing."""
    return any(base.__name__ == kind for base in type(sensor).__mro__)


# -- StatsD, Datadog, Faust's page of statistics


def _push_to_monitor(sensor: Monitor, snapshot: Snapshot) -> None:
    client, is_datadog = getattr(sensor, "client", None), _is_a(sensor, "DatadogMonitor")
    for name, series in snapshot.series.items():
        exported = BY_NAME[name].exported
        if BY_NAME[name].labels == ():
            sensor.metric_counts.pop(exported, None)
        for labels, value in series.items():
            if not labels:
                sensor.metric_counts[exported] = value
            if client is None:
                continue
            if is_datadog:
                tags = dict(zip(BY_NAME[name].labels, labels, strict=True))
                client.gauge(exported, value, labels=tags)
            else:
                places = (_FOREIGN.sub("_", label) for label in labels)
                client.gauge(".".join((exported, *places)), value)


# -- Prometheus

_COLLECTORS: WeakKeyDictionary[CollectorRegistry, _Collector] = WeakKeyDictionary()


def export_to_prometheus(
    source: FigureSource, registry: CollectorRegistry | None = None
) -> Callable[[], None]:
    """Export ``source`` to ``registry`` (default: Prometheus' own); return a function to remove it.

    All apps of one process share one collector, and differ in the label ``app``.
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
    """The collector of one Prometheus registry, called at each scrape, on any thread."""

    def __init__(self) -> None:
        self.sources: list[FigureSource] = []

    def describe(self) -> Iterable[Metric]:
        """Return all metrics, so that no other collector can register their names."""
        return [_metric_family(figure) for figure in FIGURES]

    def collect(self) -> Iterator[Metric]:
        """Yield all figures of all apps."""
        taken = [(source.app_id, source.snapshot()) for source in tuple(self.sources)]
        for figure in FIGURES:
            family = _metric_family(figure)
            for app_id, snapshot in taken:
                if figure.kind == HISTOGRAM:
                    spread = snapshot.spreads[figure.name]
                    family.add_metric(
                        [app_id], _bucket_counts(figure, spread), sum_value=spread.total
                    )
                    continue
                for labels, value in sorted(snapshot.series[figure.name].items()):
                    family.add_metric([app_id, *labels], value)
            yield family


def _metric_family(figure: Figure) -> Any:
    from prometheus_client import core

    kinds: Mapping[str, Any] = {
        COUNTER: core.CounterMetricFamily,
        HISTOGRAM: core.HistogramMetricFamily,
    }
    kind = kinds.get(figure.kind, core.GaugeMetricFamily)
    return kind(PREFIX + figure.name, help_text(figure), labels=["app", *figure.labels])


def help_text(figure: Figure) -> str:
    """Return the help text of a figure."""
    text = figure.meaning[0].upper() + figure.meaning[1:]
    return f"{text}{' (leader only)' if figure.leader_only else ''}"


def _bucket_counts(figure: Figure, spread: Spread) -> list[tuple[str, float]]:
    bounds = [*(str(bound) for bound in figure.buckets), "+Inf"]
    return list(zip(bounds, map(float, accumulate(spread.counts)), strict=True))


# -- OpenTelemetry


def export_to_otel(source: FigureSource, meter: Meter) -> Callable[[], None]:
    """Create an instrument of ``meter`` for each figure; return a function to stop them."""
    from opentelemetry.metrics import Observation

    shown = [source]
    own = {"app": source.app_id}

    def callback(figure: Figure) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_: CallbackOptions) -> Iterator[Observation]:
            for one in shown:
                for labels, value in one.snapshot().series[figure.name].items():
                    yield Observation(value, own | dict(zip(figure.labels, labels, strict=True)))

        return observe

    for figure in FIGURES:
        about = {"unit": _UNITS.get(figure.unit, "1"), "description": help_text(figure)}
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
