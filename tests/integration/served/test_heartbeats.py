"""Heartbeats that reach any instance, as behind a load balancer for single calls, on a real etcd."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from faust_assigner.service.client import Access, Lost, TopicPartition
from tests.integration.served.conftest import on
from tests.support.assigning.instances import QUICK, Consumer, consumers, instances, settled, until
from tests.support.etcd import EtcdServer

pytestmark = pytest.mark.processes

TTL_S = 3.0
BALANCED = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})


class Mesh(Access):
    """Access with round-robin calls; a stream stays at its first instance."""

    def open(self, target: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.aio.Channel:
        """Open a channel to all addresses of ``ipv4:HOST:PORT,HOST:PORT``."""
        return super().open(target, [*options, ("grpc.service_config", BALANCED)])


def metric(where: str, name: str) -> float:
    """The sum of an instance's metric."""
    page = urllib.request.urlopen(where, timeout=5).read().decode()
    return sum(float(line.split()[1]) for line in page.splitlines() if line.startswith(name))


@pytest.mark.slow
async def test_calls_that_are_balanced_one_by_one_lose_no_session(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """Two consumers register once and process without a break for four times to live."""
    with instances(tmp_path, *QUICK, *on(etcd), "--topic", "orders=4", count=2) as running:
        target = "ipv4:" + ",".join(one.target for one in running)
        members = [Consumer(target, name, access=Mesh()) for name in ("a", "b")]
        async with consumers(*members):
            await settled(members, [2, 2])
            streams = [one.client.streams for one in members]
            for _ in range(int(4 * TTL_S / 0.1)):
                await asyncio.sleep(0.1)
                assert all(one.client.may_work(at) for one in members for at in one.working)
            assert [one.client.streams for one in members] == streams
            assert not any(isinstance(told, Lost) for one in members for told in one.told)


@pytest.mark.slow
async def test_a_stream_at_a_stopped_instance_is_left_though_heartbeats_are_answered(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """Otherwise the consumer would live on without any commands, so it leaves the silent stream."""
    with instances(tmp_path, *QUICK, *on(etcd), "--topic", "orders=4", count=2) as running:
        stopped, other = running
        one = Consumer(stopped.target, "a")
        async with consumers(one):
            await settled([one], [4])
            # The stream stays; heartbeats go to the other instance.
            channel = Access().open(other.target)
            beat = channel.unary_unary(
                "/kafka_assigner.v1.KafkaAssigner/Heartbeat",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=_heartbeat,
            )
            one.client._streams.targets = (other.target,)
            first = one.client._calls.once

            async def elsewhere(method: str, request: Any, **options: Any) -> Any:
                if method == "Heartbeat":
                    return await beat(request, timeout=2.0)
                return await first(method, request, **options)

            one.client._calls.once = elsewhere  # type: ignore[method-assign]
            streams = one.client.streams
            stopped.send(signal.SIGSTOP)
            try:
                async with asyncio.timeout(4 * TTL_S):
                    while one.client.streams == streams:
                        assert one.client.may_work(("orders", 0)), "it lives all the while"
                        await asyncio.sleep(0.05)
                await settled([one], [4])
            finally:
                stopped.send(signal.SIGCONT)
                await channel.close()


def _heartbeat(data: bytes) -> Any:
    from faust_assigner.service.proto import kafka_assigner_pb2 as pb

    return pb.HeartbeatResponse.FromString(data)


@pytest.mark.slow
async def test_a_partition_that_a_consumer_has_lost_sight_of_comes_back(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """Earlier the loss stayed unnoticed until the next rebalance."""
    with instances(
        tmp_path, *QUICK, *on(etcd), "--topic", "orders=4", "--metrics", "127.0.0.1:0"
    ) as (service,):
        page = service.wait(r"metrics on (\S+)")
        one = Consumer(service.target, "a")
        async with consumers(one):
            await settled([one], [4])
            at = TopicPartition("orders", 2)
            grant = one.client.holdings.owned[at]
            one.client.holdings.update((), [at])
            del one.working[at]
            await until(lambda: one.working.get(at) == grant.epoch, seconds=10 * TTL_S)
            assert metric(page, "faust_assigner_service_holdings_repaired_total") == 1.0
            assert one.client.streams == 1
