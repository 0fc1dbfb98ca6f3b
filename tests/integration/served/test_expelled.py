"""Failed releases on real instances and a real etcd: the new owner's start, and the refused calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc.aio
import pytest

from faust_assigner.service.client import Lost, Release, Warm
from faust_assigner.service.errors import Expelled
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub
from tests.integration.served.group import DEBOUNCE_S, TTL_S, group, within, writing
from tests.support.assigning.instances import Consumer, calls_ended, consumers, settled, until
from tests.support.assigning.proofs import HeardClient
from tests.support.etcd import EtcdServer

pytestmark = [pytest.mark.processes, pytest.mark.slow]

RELEASE_S = 2.0


class _Unable(Consumer):
    """A consumer that stops processing and cannot flush."""

    async def release(self, command: Release) -> int | None:
        """Fail as with a full disk."""
        await super().release(command)
        raise OSError("disk full")


def _old_owner(targets: list[str], how: str) -> Consumer:
    if how == "raises":
        return _Unable(targets, "a", kind=HeardClient)
    return Consumer(targets, "a", kind=HeardClient, release_s=1_000.0)


@pytest.mark.parametrize("how", ["raises", "never answers"])
async def test_a_failed_release_costs_one_time_to_live(
    tmp_path: Path, etcd: EtcdServer, how: str
) -> None:
    """The new owner then works on all partitions; every instance refuses the old process."""
    with group(tmp_path, etcd, 2, options=("--release-timeout-s", f"{RELEASE_S:g}")) as g:
        old, new = _old_owner(g.targets, how), Consumer(g.targets, "b", kind=HeardClient)
        async with consumers(old), writing([old, new]):
            await settled([old], [32])
            new.start()
            asked = RELEASE_S if how == "never answers" else 0.0
            async with within(asked + TTL_S + DEBOUNCE_S + 2.0, f"an owner that {how}", g.ids()):
                await settled([new], [32])
            assert old.task is not None
            with pytest.raises(Expelled, match="did not release a partition"):
                await old.task
            assert isinstance(old.told[-1], Lost)
            warmed = [told.partition for told in new.told if isinstance(told, Warm)]
            assert len(warmed) == len(set(warmed)), "nobody was asked twice"
            assert await _refused(g.targets, old) == [grpc.StatusCode.ABORTED] * 6
            again = Consumer(g.targets, "a", kind=HeardClient)
            async with consumers(again):
                await settled([again, new], [16, 16])
                await g.is_sound(g.targets[0])
            await new.stop()
        await calls_ended()


async def _refused(targets: list[str], old: Consumer) -> list[grpc.StatusCode]:
    """The status codes of three calls by the expelled process to each instance."""
    who = {"consumer_name": old.name, "incarnation": old.client.incarnation}
    found = []
    for target in targets:
        async with grpc.aio.insecure_channel(target) as channel:
            stub = KafkaAssignerStub(channel)
            register = stub.Register(pb.RegisterRequest(**who, heartbeats=True, returns=True))
            for call in (
                register.read(),
                stub.Heartbeat(pb.HeartbeatRequest(**who, session_id="x")),
                stub.Deregister(pb.DeregisterRequest(**who)),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as refusal:
                    await call
                found.append(refusal.value.code())
    return found


async def test_a_consumer_that_leaves_and_cannot_release_ends(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """Its process ends with Expelled, and the remaining consumer owns all within a time to live."""
    with group(tmp_path, etcd, 1) as g:
        old, new = (
            _Unable(g.targets, "a", kind=HeardClient),
            Consumer(g.targets, "b", kind=HeardClient),
        )
        async with consumers(old), writing([old, new]):
            await settled([old], [32])
            async with consumers(new):
                assert old.task is not None
                async with within(TTL_S + DEBOUNCE_S + 4.0, "leave", g.ids()):
                    await until(lambda: any(isinstance(told, Warm) for told in new.told))
                    await old.client.leave()
                    await asyncio.wait([old.task])
                    await settled([new], [32])
                with pytest.raises(Expelled):
                    old.task.result()
                await g.is_sound(g.targets[0])
        await calls_ended()
