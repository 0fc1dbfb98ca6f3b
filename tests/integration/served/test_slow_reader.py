"""A consumer that does not read its stream: it finally gets everything and delays no consumer."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from pathlib import Path

import grpc.aio
import pytest

from faust_assigner.service.client.channel import MESSAGE_BYTES
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub
from tests.support.assigning.instances import (
    Consumer,
    calls_ended,
    consumers,
    instances,
    state,
    until,
)

pytestmark = [pytest.mark.processes, pytest.mark.slow]
PARTITIONS = 1000
#: A long name soon fills a stream's window of 64 KiB.
FLAGS = (
    "--no-strict",  # a consumer that never reads its stream releases no partition
    "--topic",
    f"{'o' * 240}={PARTITIONS}",
    "--debounce-s",
    "0.2",
    "--max-handoffs",
    "10000",
    "--max-handoffs-per-consumer",
    "10000",
    "--channel",
    "8",
    "--metrics",
    "127.0.0.1:0",
)
OPTIONS = [
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 65_536),
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
]


def resynced(url: str) -> float:
    """The number of overflowed streams."""
    with urllib.request.urlopen(url, timeout=20) as page:
        found = re.search(
            r"^faust_assigner_service_streams_resynced_total (\S+)$",
            page.read().decode(),
            re.MULTILINE,
        )
    assert found
    return float(found[1])


@pytest.mark.timeout(240)
async def test_who_does_not_read_gets_a_fresh_assignment_and_holds_up_nobody(
    tmp_path: Path,
) -> None:
    """Hundreds of releases overflow the stream; the second consumer still gets its half."""
    with instances(tmp_path, *FLAGS) as (service,):
        async with grpc.aio.insecure_channel(service.target, OPTIONS) as channel:
            stream = KafkaAssignerStub(channel).Register(pb.RegisterRequest(consumer_name="slow"))
            first = await stream.read()
            assert first.assignment.snapshot
            while len((await state(service.target)).assignments) < PARTITIONS:
                await asyncio.sleep(0.1)
            async with consumers(Consumer(service.target, "quick")) as (quick,):
                await until(lambda: len(quick.working) == PARTITIONS // 2, seconds=120)
                url = service.wait(r"metrics on (\S+)")
                assert await asyncio.to_thread(resynced, url) >= 1
                owned: set[int] = set()
                async with asyncio.timeout(60):
                    while True:
                        update = (await stream.read()).assignment
                        if update.snapshot:
                            owned = {at.partition for at in update.assigned}
                            break
                said = await state(service.target)
                assert owned == {
                    one.partition.partition for one in said.assignments if one.owner == "slow"
                }
            stream.cancel()
        await calls_ended()
