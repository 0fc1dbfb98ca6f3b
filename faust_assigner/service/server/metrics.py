"""Prometheus metrics; the labels are few and contain neither keys nor values of the store."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from faust_assigner.service.instance_state import InstanceState
from faust_assigner.service.metrics import Metrics

PHASES: Final = ("Warming", "Ready", "Complete")
LOOK_S: Final = 0.5
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


@dataclass(frozen=True)
class _MetricSpec:
    """The specification of a metric.

    ``buckets``   the upper bounds of a histogram
    ``is_store``  whether the metric is about the store, which all groups share
    """

    kind: type[Counter] | type[Gauge] | type[Histogram]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    is_store: bool = False

    def create(self, name: str, registry: CollectorRegistry, *, by_group: bool) -> Any:
        """Create the metric of this name in ``registry``."""
        labels = (*self.labels, "group") if by_group and not self.is_store else self.labels
        more: dict[str, Any] = {"buckets": self.buckets} if self.buckets else {}
        return self.kind(
            name,
            self.help,
            labels,
            namespace="faust_assigner",
            subsystem="service",
            registry=registry,
            **more,
        )


#: Name of a metric -> its specification.
METRICS: Final[Mapping[str, _MetricSpec]] = {
    "leader": _MetricSpec(Gauge, "1 while this instance leads"),
    "streams": _MetricSpec(Gauge, "consumers connected to this instance"),
    "handoffs": _MetricSpec(Gauge, "hand-offs in progress, by phase", ("phase",)),
    "handoff_oldest_seconds": _MetricSpec(
        Gauge, "age of the oldest hand-off in progress", ("phase",)
    ),
    "handoff_seconds": _MetricSpec(
        Histogram, "duration of hand-offs, by outcome", ("outcome",), _LONG
    ),
    "stuck_consumers": _MetricSpec(Gauge, "consumers that get no partitions ready, by the leader"),
    "rebalances": _MetricSpec(Counter, "plans that the leader computed"),
    "moves": _MetricSpec(Counter, "moves in the leader's plans"),
    "rebalance_seconds": _MetricSpec(Histogram, "duration of planning and writing", (), _SECONDS),
    "store_seconds": _MetricSpec(
        Histogram, "duration of store operations", ("operation",), _SECONDS, is_store=True
    ),
    "store_errors": _MetricSpec(
        Counter, "failed calls of the store", ("operation", "error"), is_store=True
    ),
    "streams_resynced": _MetricSpec(Counter, "streams that overflowed and got a fresh assignment"),
    "holdings_repaired": _MetricSpec(
        Counter, "consumers that held wrong partitions and got their assignment again"
    ),
    "store_silence_seconds": _MetricSpec(Gauge, "seconds since the store's last answer"),
    "unowned_partitions": _MetricSpec(Gauge, "partitions that no registered consumer owns"),
    "paused": _MetricSpec(Gauge, "1 while moves for balance are paused"),
    "unreadable_values": _MetricSpec(Gauge, "unreadable values in the store"),
}


class PrometheusMetrics(Metrics):
    """The metrics of an instance, in their own registry.

    If groups have names, every metric except those of the store has the label ``group``, and
    :meth:`of` returns the metrics of one group.
    """

    def __init__(self, groups: Sequence[str] = ()) -> None:
        self.registry = CollectorRegistry()
        self._group: dict[str, str] = {}
        self._metrics = {
            name: spec.create(name, self.registry, by_group=bool(groups))
            for name, spec in METRICS.items()
        }
        if not groups:
            self.handoffs({})

    def of(self, group: str) -> PrometheusMetrics:
        """Return the same metrics for one group."""
        mine = copy.copy(self)
        mine._group = {"group": group} if group else {}
        mine.handoffs({})
        return mine

    def _mine(self, name: str, **labels: str) -> Any:
        """Return the metric with these labels and the group's label."""
        metric, found = self._metrics[name], {**labels, **self._group}
        return metric.labels(**found) if found else metric

    @contextlib.contextmanager
    def served(self, host: str, port: int) -> Iterator[int]:
        """Serve ``/metrics`` within the context; yield the port. Raises OSError."""
        server, thread = start_http_server(port, host, self.registry)
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    async def follow(self, condition: InstanceState) -> None:
        """Update the gauges of the instance's condition, forever."""
        while True:
            self._mine("store_silence_seconds").set(condition.silence_s)
            self._mine("unowned_partitions").set(condition.unowned)
            self._mine("unreadable_values").set(condition.unreadable)
            self._mine("paused").set(condition.is_paused)
            await asyncio.sleep(LOOK_S)

    def leading(self, leads: bool) -> None:
        """Set whether this instance leads."""
        self._mine("leader").set(leads)

    def handoffs(self, ages_s: Mapping[str, Sequence[float]]) -> None:
        """Set the ages of the open handoffs; missing phases have no handoffs."""
        for phase in PHASES:
            ages = ages_s.get(phase, ())
            self._mine("handoffs", phase=phase).set(len(ages))
            self._mine("handoff_oldest_seconds", phase=phase).set(max(ages, default=0.0))

    def handoff_ended(self, outcome: str, took_s: float) -> None:
        """Count a handoff that ended."""
        self._mine("handoff_seconds", outcome=outcome).observe(took_s)

    def stuck(self, count: int) -> None:
        """Set the number of consumers that the leader regards as stuck."""
        self._mine("stuck_consumers").set(count)

    def rebalanced(self, moves: int, took_s: float) -> None:
        """Count a plan of the leader, and its moves; ``took_s``: seconds."""
        self._mine("rebalances").inc()
        self._mine("moves").inc(moves)
        self._mine("rebalance_seconds").observe(took_s)

    def store_call(self, operation: str, took_s: float, error: str | None) -> None:
        """Count a call of the store."""
        self._metrics["store_seconds"].labels(operation).observe(took_s)
        if error is not None:
            self._metrics["store_errors"].labels(operation, error).inc()

    def stream_resynced(self, consumer_name: str) -> None:
        """Count a stream that overflowed and gets a fresh snapshot.

        The consumer's name is not a label, because there may be very many names.
        """
        self._mine("streams_resynced").inc()

    def holdings_repaired(self) -> None:
        """Count a consumer that gets its assignment again."""
        self._mine("holdings_repaired").inc()

    def streams(self, count: int) -> None:
        """Set the number of connected consumers."""
        self._mine("streams").set(count)
