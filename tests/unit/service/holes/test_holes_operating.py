"""Hole 12 of an assigner: no locks, no health, no metrics (TLS and signals:
integration/served/test_hole_12).

Each test runs a scenario twice in virtual time: the naive variant fails, and ours does not.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from faust_assigner.service.metrics import Metrics
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.auth import Authenticator, NoAuthentication, TokenAuthenticator
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.health import LEADS, SERVES, Health
from faust_assigner.service.server.metrics import PrometheusMetrics
from faust_assigner.service.server.servicer import ConsumerServicer
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, eventually, virtually
from tests.unit.service.stories import store


class _Context:
    """The context of a call with b's token; keeps the status that ends the call."""

    code: grpc.StatusCode | None = None

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the call's headers."""
        return (("authorization", "Bearer of-b"),)

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """Keep the status, like gRPC's context."""
        self.code = code
        raise asyncio.CancelledError


_TOKENS = TokenAuthenticator(
    [(name, hashlib.sha256(f"of-{name}".encode()).digest()) for name in "ab"]
)


@pytest.mark.parametrize(
    ("authenticator", "robbed"), [(_TOKENS, False), (NoAuthentication(), True)]
)
def test_12_nobody_acts_in_the_name_of_another(authenticator: Authenticator, robbed: bool) -> None:
    """The naive service trusts the request's body: b replaces a, and gets a's partitions."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            first = await b.consumer(node, "a")
            await b.settles(2)
            context = _Context()
            servicer = ConsumerServicer(Groups({"": node}), authenticator)
            stream = servicer.Register(pb.RegisterRequest(consumer_name="a"), context)
            taking = asyncio.ensure_future(anext(stream))
            await asyncio.wait([taking], timeout=2.0)
            assert (first.ended is not None) is robbed
            assert (context.code is grpc.StatusCode.PERMISSION_DENIED) is not robbed
            await stream.aclose()
        await kept.close()

    virtually(story)


class _NaiveHealth(Health):
    """Healthy as long as the port answers."""

    async def look(self) -> None:
        for role in ("", SERVES, LEADS):
            await self.servicer.set(role, health_pb2.HealthCheckResponse.SERVING)


class _Lost(MemoryStore):
    """A store that may be lost: then it returns no answers."""

    lost = False

    async def list(self, prefix: str) -> Any:
        while self.lost:
            await asyncio.sleep(1.0)
        return await super().list(prefix)

    async def keep_alive(self, lease_id: int, *, timeout_s: float | None = None) -> float:
        while self.lost:
            await asyncio.sleep(1.0)
        return await super().keep_alive(lease_id)


async def _roles(health: Health) -> list[bool]:
    """Whether the instance is healthy for serving consumers, and as the leader."""
    await health.look()
    found = [
        await health.servicer.Check(health_pb2.HealthCheckRequest(service=role), None)
        for role in (SERVES, LEADS)
    ]
    return [one.status == health_pb2.HealthCheckResponse.SERVING for one in found]


@pytest.mark.parametrize(("kind", "blind"), [(Health, False), (_NaiveHealth, True)])
def test_12_an_instance_says_what_it_is_well_as(kind: type[Health], blind: bool) -> None:
    """A load balancer must exclude a follower as leader, and an instance without its store."""

    async def story() -> None:
        kept = _Lost()
        async with Bench(lambda: kept) as b:
            leader, follower = await b.node({"t": 1}), await b.node()
            await eventually(lambda: leader.leads)
            assert await _roles(kind(Groups({"": leader}))) == [True, True]
            assert await _roles(kind(Groups({"": follower}))) == [True, blind]
            kept.lost = True
            await asyncio.sleep(10.0)
            assert await _roles(kind(Groups({"": leader}))) == [blind, blind]
            kept.lost = False
            await eventually(lambda: leader.serving)
            assert (await _roles(kind(Groups({"": leader}))))[0]
        await kept.close()

    virtually(story)


def _scraped(metrics: PrometheusMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(f"faust_assigner_service_{name}", labels) or 0.0


@pytest.mark.parametrize("sees", [True, False])
def test_12_what_it_does_is_counted(sees: bool) -> None:
    """The counters cover leadership, rebalances, hand-offs and streams; the naive service has none."""

    async def story() -> None:
        kept, scraped = store(), PrometheusMetrics()
        metrics: Metrics = scraped if sees else Metrics()
        async with Bench(lambda: kept) as b:
            node: AssignerNode = await b.node({"t": 2}, metrics=metrics)
            await b.consumer(node, "a")
            await b.settles(2)
            slow = await b.consumer(node, "b", warm_s=3.0)
            await eventually(lambda: slow.told[1:])
            assert (_scraped(scraped, "handoffs", phase="Warming") == 1.0) is sees
            assert (_scraped(scraped, "leader") == 1.0) is sees
            assert (_scraped(scraped, "streams") == 2.0) is sees
            await b.settles(1, 1)
            await asyncio.sleep(1.0)
            assert _scraped(scraped, "handoffs", phase="Warming") == 0.0
            assert (_scraped(scraped, "rebalances_total") >= 2.0) is sees
            assert (_scraped(scraped, "handoff_seconds_count", outcome="handed") == 1.0) is sees
        assert _scraped(scraped, "leader") == 0.0
        await kept.close()

    virtually(story)
