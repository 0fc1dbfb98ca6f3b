"""Operation of the service: probes without TLS, log levels, and limits on a connection's age."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from faust_assigner.service.client import Lost
from faust_assigner.service.client.operator import Operator
from faust_assigner.service.faults import Unimplemented
from tests.integration.served.test_secure import Keys
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    calls_ended,
    consumers,
    instances,
    settled,
    until,
)
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.processes
SERVING = health_pb2.HealthCheckResponse.SERVING
TWO = ("--topic", "orders=2")


async def test_a_probe_needs_neither_tls_nor_a_certificate(tmp_path: Path) -> None:
    """Kubernetes' own probes have no client certificate; the probe port answers only health checks."""
    keys = Keys(tmp_path)
    flags = (*keys.flags(), "--tls-client-ca", str(keys.ca), "--health", "127.0.0.1:0")
    with instances(tmp_path, *QUICK, *flags, *TWO) as (service,):
        target = service.wait(r"health probes on (\S+)")
        async with grpc.aio.insecure_channel(target) as channel:
            health = health_pb2_grpc.HealthStub(channel)

            async def is_serving(role: str) -> bool:
                answer = await health.Check(
                    health_pb2.HealthCheckRequest(service=role), timeout=PATIENCE_S
                )
                return bool(answer.status == SERVING)

            for role in ("readiness", "liveness", "leader"):
                async with asyncio.timeout(PATIENCE_S):
                    while not await is_serving(role):
                        await asyncio.sleep(0.1)
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await is_serving("nonsense")
            assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
            with pytest.raises(grpc.aio.AioRpcError) as watched:
                async for _ in health.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S):
                    pass
            assert watched.value.code() == grpc.StatusCode.UNIMPLEMENTED
        async with Operator(target) as operator:
            with pytest.raises(Unimplemented):
                await operator.state()
        await calls_ended()


@pytest.mark.slow
async def test_an_old_connection_is_closed_and_its_consumer_keeps_everything(
    tmp_path: Path,
) -> None:
    """Load balancers balance connections: the consumer reconnects and keeps its epochs."""
    with instances(tmp_path, *QUICK, *TWO, "--max-connection-age-s", "1") as (service,):
        one = Consumer(service.target, "a")
        async with consumers(one):
            await settled([one], [2])
            before = dict(one.working)
            await until(lambda: one.client.streams >= 2, "the connection is never closed")
            await until(lambda: one.client.may_work(min(before)))
            assert one.working == before
            assert not [told for told in one.told if isinstance(told, Lost)]


@pytest.mark.slow
@pytest.mark.parametrize(("level", "tells"), [("info", True), ("warning", False)])
async def test_the_log_has_the_moves_unless_only_worse_is_asked_for(
    tmp_path: Path, level: str, tells: bool
) -> None:
    """At INFO the log has each move with its reason."""
    with instances(tmp_path, *QUICK, *TWO, "--log-level", level) as (service,):
        one, two = Consumer(service.target, "a"), Consumer(service.target, "b")
        async with consumers(one):
            await settled([one], [2])
            async with consumers(two):
                await settled([one, two], [1, 1])
                handed = "b is the new owner; a handed it over"
                if tells:
                    await until(lambda: handed in service.said)
        assert (handed in service.said) is tells
        assert ("because it had no owner" in service.said) is tells
