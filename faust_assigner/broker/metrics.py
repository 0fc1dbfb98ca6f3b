"""The broker's metrics for Prometheus, at ``--metrics-port`` of the loopback address.

A scrape takes one snapshot on the event loop and formats it in a separate thread. Names of groups, members
and topics are never labels, because clients could create any number of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from faust_assigner.broker.groups.meter import Spread

if TYPE_CHECKING:
    from faust_assigner.broker.server import BrokerServer

PREFIX: Final = "faust_assigner_broker_"
SNAPSHOT_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All values of one scrape, taken at one instant."""

    events: Mapping[str, int]
    rebalances: Mapping[str, int]
    fenced: Mapping[str, int]
    groups: Mapping[tuple[str, str], int]
    members: Mapping[str, int]
    connections: int
    topics: int
    spreads: Mapping[str, tuple[list[tuple[str, float]], float]]


def take(server: BrokerServer) -> Snapshot:
    """Take a snapshot, on the event loop; cost O(groups)."""
    node, meter = server.node, server.node.groups.meter
    groups: Counter[tuple[str, str]] = Counter()
    members: Counter[str] = Counter({"classic": 0, "consumer": 0})
    for group in node.groups:
        groups[group.group_type, group.state_name] += 1
        members.update(group.member_counts)
    spreads = {"rebalance": meter.rebalance_s} | dict(meter.heartbeat_s)
    return Snapshot(
        dict(node.counters),
        dict(meter.rebalances),
        dict(meter.fenced),
        groups,
        members,
        server.connections,
        len(node.catalogue),
        {name: _histogram_values(spread) for name, spread in spreads.items()},
    )


def _histogram_values(spread: Spread) -> tuple[list[tuple[str, float]], float]:
    return spread.cumulative(), spread.total


class BrokerCollector(Collector):
    """A Prometheus collector that queries the running broker at each scrape."""

    def __init__(self, server: BrokerServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        """Return the metric families of one snapshot."""

        async def snapshot() -> Snapshot:
            return take(self._server)

        asked = asyncio.run_coroutine_threadsafe(snapshot(), self._loop)
        yield from _metric_families(asked.result(SNAPSHOT_TIMEOUT_S))

    def describe(self) -> Iterator[Metric]:
        """Return no families: registration runs on the event loop, so a query would deadlock."""
        return iter(())


def _metric_families(seen: Snapshot) -> Iterator[Metric]:
    yield _counter_family(
        "group_rebalances", "Rebalances begun, by reason", "reason", seen.rebalances
    )
    yield _counter_family(
        "group_fenced_requests",
        "Requests of members that are no longer in their group",
        "error",
        seen.fenced,
    )
    yield _counter_family("events", "Events of the broker, by name", "event", seen.events)
    groups = GaugeMetricFamily(PREFIX + "groups", "Groups now", labels=("type", "state"))
    for labels, count in sorted(seen.groups.items()):
        groups.add_metric(labels, count)
    yield groups
    members = GaugeMetricFamily(PREFIX + "group_members", "Members now", labels=("protocol",))
    for protocol, count in sorted(seen.members.items()):
        members.add_metric((protocol,), count)
    yield members
    yield GaugeMetricFamily(PREFIX + "connections", "Peers connected now", value=seen.connections)
    yield GaugeMetricFamily(PREFIX + "topics", "Topics now", value=seen.topics)
    buckets, total = seen.spreads["rebalance"]
    yield HistogramMetricFamily(
        PREFIX + "group_rebalance_seconds",
        "Time from the start of a rebalance until the group is Stable again",
        buckets=buckets,
        sum_value=total,
    )
    beats = HistogramMetricFamily(
        PREFIX + "group_heartbeat_seconds",
        "Time from the arrival of a heartbeat to its answer",
        labels=("protocol",),
    )
    for protocol in ("classic", "consumer"):
        buckets, total = seen.spreads[protocol]
        beats.add_metric((protocol,), buckets, total)
    yield beats


def _counter_family(name: str, meaning: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(PREFIX + name, meaning, labels=(label,))
    for word, count in sorted(counts.items()):
        family.add_metric((word,), count)
    return family


class MetricsPort:
    """The HTTP listener at ``port`` (0: any free port). Raises OSError if the port is taken."""

    def __init__(
        self, server: BrokerServer, loop: asyncio.AbstractEventLoop, port: int = 0
    ) -> None:
        registry = CollectorRegistry()
        registry.register(BrokerCollector(server, loop))
        self._listener, self._thread = start_http_server(port, "127.0.0.1", registry)
        self.port = int(self._listener.server_port)

    def close(self) -> None:
        """Stop listening and wait for the listener's thread, but not for scrapes in progress."""
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()
