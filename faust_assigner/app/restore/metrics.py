"""A restore's figures where the app is measured: Faust's monitor, StatsD, Datadog, Prometheus."""

from __future__ import annotations

import contextlib
from typing import Any

from faust.sensors.monitor import Monitor
from mode import get_logger

from faust_assigner.app.restore.progress import Figures

logger = get_logger(__name__)

#: Name -> what it is.
REMAINING, RATE, ETA = (
    "restore_remaining_records",
    "restore_records_per_second",
    "restore_eta_seconds",
)
MEANINGS = {
    REMAINING: "Changelog records that this worker has still to restore, standbys' and warm-ups' among them",
    RATE: "Changelog records that this worker restored a second, lately",
    ETA: "Seconds until this worker has restored what it has; -1 while nothing moves",
}
PREFIX = "faust_assigner_"


def values_of(figures: Figures) -> dict[str, int]:
    """Name -> value, as whole numbers: all that every one of the metrics takes."""
    return {
        REMAINING: figures.remaining,
        RATE: round(figures.records_per_s),
        ETA: -1 if figures.eta_s is None else round(figures.eta_s),
    }


class Gauges:
    """Sets the figures as gauges wherever ``app`` is measured; what fails is said once, and harms nobody."""

    def __init__(self, app: Any) -> None:
        self._app, self._has_failed = app, False
        self._prometheus: dict[str, Any] = {}

    def set(self, figures: Figures) -> None:
        """The figures as they stand."""
        for sensor in tuple(self._app.sensors):
            try:
                self._tell(sensor, values_of(figures))
            except Exception:
                if not self._has_failed:
                    logger.exception("The figures of a restore did not reach %r", sensor)
                self._has_failed = True

    def _tell(self, sensor: Any, values: dict[str, int]) -> None:
        if not isinstance(sensor, Monitor):
            return
        client = getattr(sensor, "client", None)  # StatsD's and Datadog's
        for name, value in values.items():
            sensor.metric_counts[PREFIX + name] = (
                value  # in /stats, and for whoever reads the monitor
            )
            if client is not None:
                client.gauge(PREFIX + name, value)
            if type(sensor).__name__ == "PrometheusMonitor":
                self._gauge(name).set(value)

    def _gauge(self, name: str) -> Any:
        """Prometheus' gauge in the default registry; another app of this process may have made it."""
        from prometheus_client import REGISTRY, Gauge

        if name not in self._prometheus:
            with contextlib.suppress(ValueError):
                Gauge(PREFIX + name, MEANINGS[name], ["app"])
            made: Any = REGISTRY._names_to_collectors[PREFIX + name]
            self._prometheus[name] = made.labels(self._app.conf.id)
        return self._prometheus[name]
