"""Prometheus metrics; the labels are few and contain neither keys nor values of the store."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from faust_assigner.service.condition import Condition

PHASES: Final = ("Warming", "Ready", "Complete")
LOOK_S: Final = 0.5
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONG: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class PrometheusMetrics:
    """The metrics of an instance, in their own registry.

    If groups have names, the metrics of groups have the label ``group``, and :meth:`of` returns the
    metrics of one group.
    """

    def __init__(self, groups: Sequence[str] = ()) -> None:
        self.registry = CollectorRegistry()
        self._group: dict[str, str] = {}
        by_group = ["group"] if groups else []
        there: Any = {
            "namespace": "faust_assigner",
            "subsystem": "service",
            "registry": self.registry,
        }
        self._leader = Gauge("leader", "1 while this instance leads", by_group, **there)
        self._streams = Gauge("streams", "consumers connected to this instance", by_group, **there)
        self._handoffs = Gauge(
            "handoffs", "hand-offs in progress, by phase", ["phase", *by_group], **there
        )
        self._oldest = Gauge(
            "handoff_oldest_seconds",
            "age of the oldest hand-off in progress",
            ["phase", *by_group],
            **there,
        )
        self._ended = Histogram(
            "handoff_seconds",
            "duration of hand-offs, by outcome",
            ["outcome", *by_group],
            buckets=_LONG,
            **there,
        )
        self._stuck = Gauge(
            "stuck_consumers",
            "consumers that get no partitions ready, by the leader",
            by_group,
            **there,
        )
        self._rebalances = Counter(
            "rebalances", "plans that the leader computed", by_group, **there
        )
        self._moves = Counter("moves", "moves in the leader's plans", by_group, **there)
        self._planning = Histogram(
            "rebalance_seconds",
            "duration of planning and writing",
            by_group,
            buckets=_SECONDS,
            **there,
        )
        self._calls = Histogram(
            "store_seconds",
            "duration of store operations",
            ["operation"],
            buckets=_SECONDS,
            **there,
        )
        self._errors = Counter(
            "store_errors", "failed calls of the store", ["operation", "error"], **there
        )
        self._resyncs = Counter(
            "streams_resynced",
            "streams that overflowed and got a fresh assignment",
            by_group,
            **there,
        )
        self._repairs = Counter(
            "holdings_repaired",
            "consumers that held wrong partitions and got their assignment again",
            by_group,
            **there,
        )
        self._silence = Gauge(
            "store_silence_seconds", "seconds since the store's last answer", by_group, **there
        )
        self._unowned = Gauge(
            "unowned_partitions", "partitions that no registered consumer owns", by_group, **there
        )
        self._paused = Gauge("paused", "1 while moves for balance are paused", by_group, **there)
        self._unreadable = Gauge(
            "unreadable_values", "unreadable values in the store", by_group, **there
        )
        if not groups:
            self.handoffs({})

    def of(self, group: str) -> PrometheusMetrics:
        """Return the same metrics for one group."""
        mine = copy.copy(self)
        mine._group = {"group": group} if group else {}
        mine.handoffs({})
        return mine

    def _mine(self, metric: Any, **labels: str) -> Any:
        found = {**labels, **self._group}
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

    async def follow(self, condition: Condition) -> None:
        """Update the gauges of the instance's condition, forever."""
        while True:
            self._mine(self._silence).set(condition.silence_s)
            self._mine(self._unowned).set(condition.unowned)
            self._mine(self._unreadable).set(condition.unreadable)
            self._mine(self._paused).set(condition.is_paused)
            await asyncio.sleep(LOOK_S)

    def leading(self, leads: bool) -> None:
        """Set whether this instance leads."""
        self._mine(self._leader).set(leads)

    def handoffs(self, ages_s: Mapping[str, Sequence[float]]) -> None:
        """Set the ages of the open handoffs; missing phases have no handoffs."""
        for phase in PHASES:
            ages = ages_s.get(phase, ())
            self._mine(self._handoffs, phase=phase).set(len(ages))
            self._mine(self._oldest, phase=phase).set(max(ages, default=0.0))

    def handoff_ended(self, outcome: str, took_s: float) -> None:
        """Count a handoff that ended."""
        self._mine(self._ended, outcome=outcome).observe(took_s)

    def stuck(self, count: int) -> None:
        """Set how many consumers do not get partitions ready."""
        self._mine(self._stuck).set(count)

    def rebalanced(self, moves: int, took_s: float) -> None:
        """Count a plan of the leader."""
        self._mine(self._rebalances).inc()
        self._mine(self._moves).inc(moves)
        self._mine(self._planning).observe(took_s)

    def store_call(self, operation: str, took_s: float, error: str | None) -> None:
        """Count a call of the store."""
        self._calls.labels(operation).observe(took_s)
        if error is not None:
            self._errors.labels(operation, error).inc()

    def stream_resynced(self, consumer_name: str) -> None:
        """Count a stream that overflowed.

        The consumer's name is not a label: there may be very many names.
        """
        self._mine(self._resyncs).inc()

    def holdings_repaired(self) -> None:
        """Count a consumer that gets its assignment again."""
        self._mine(self._repairs).inc()

    def streams(self, count: int) -> None:
        """Set the number of connected consumers."""
        self._mine(self._streams).set(count)
