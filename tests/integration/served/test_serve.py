"""``faust-assigner serve`` as a process, with consumers over real sockets and the state in memory."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from faust_assigner.service.client import AbortWarm, Assigned, Release, TopicPartition, Warm
from faust_assigner.service.errors import BadRequest, NotFound
from faust_assigner.service.faults import Replaced
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    Instance,
    consumers,
    instances,
    settled,
    state,
    until,
    until_state,
)
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.processes
EIGHT = ("--topic", "orders=8")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Instance]:
    """Start an instance with one topic of eight partitions."""
    with instances(tmp_path, *QUICK, *EIGHT, "--metrics", "127.0.0.1:0", "--cooldown-s", "1") as (
        one,
    ):
        yield one


async def test_one_consumer_gets_all_and_two_share(service: Instance) -> None:
    """The second consumer warms its half before the assignment."""
    async with consumers(Consumer(service.target, "a")) as (first,):
        await settled([first], [8])
        assert first.warmed == []
        async with consumers(Consumer(service.target, "b")) as (second,):
            await settled([first, second], [4, 4])
            assert sorted(second.warmed) == sorted(second.working)
            assert [type(told) for told in first.told].count(Release) == 4


@pytest.mark.slow
async def test_a_download_that_takes_long_stays_warming(service: Instance) -> None:
    """The old owner keeps processing, and the state lists the hand-offs as warming."""
    async with consumers(Consumer(service.target, "a")) as (first,):
        await settled([first], [8])
        async with consumers(Consumer(service.target, "b", warm_s=1000)) as (second,):
            await until(lambda: sum(isinstance(told, Warm) for told in second.told) == 4)
            await asyncio.sleep(0.5)
            said = await state(service.target)
            assert {(h.old_owner, h.new_owner, h.phase) for h in said.handoffs} == {
                ("a", "b", pb.HANDOFF_PHASE_WARMING)
            }
            assert (len(first.working), len(second.working)) == (8, 0)


@pytest.mark.slow
async def test_a_warm_up_that_fails_is_said_and_leaves_the_partition(service: Instance) -> None:
    """The hand-off is aborted, so the consumer does not become the owner of an empty store."""
    broken = frozenset(TopicPartition("orders", number) for number in range(8))
    async with consumers(Consumer(service.target, "a")) as (first,):
        await settled([first], [8])
        async with consumers(Consumer(service.target, "b", fails=broken)) as (second,):
            await until(lambda: any(isinstance(told, AbortWarm) for told in second.told))
            assert (len(first.working), len(second.working)) == (8, 0)


@pytest.mark.slow
async def test_who_leaves_hands_over_first(service: Instance) -> None:
    """WAIT_FOR_DRAIN: all partitions are handed over, then the stream ends."""
    async with consumers(Consumer(service.target, "a"), Consumer(service.target, "b")) as (
        first,
        second,
    ):
        await settled([first, second], [4, 4])
        await second.leave()
        await settled([first], [8])
        assert sorted(
            told.partition for told in second.told if isinstance(told, Release)
        ) == sorted(told.partition for told in first.told if isinstance(told, Warm))


@pytest.mark.slow
async def test_a_second_process_of_the_name_takes_the_first_ones_place(service: Instance) -> None:
    """The first process ends with Replaced, and does not register again."""
    async with consumers(Consumer(service.target, "a")) as (first,):
        await settled([first], [8])
        async with consumers(Consumer(service.target, "a")) as (second,):
            await settled([second], [8])
            assert first.task is not None
            with pytest.raises(Replaced):
                await first.task


@pytest.mark.slow
async def test_what_cannot_be_is_refused_for_good(service: Instance) -> None:
    """The client raises for a bad name or topic, without retries."""
    for name, topics, error in (("a b", [], BadRequest), ("a", ["unheard"], NotFound)):
        one = Consumer(service.target, name, topics=topics)
        with pytest.raises(error):
            await one.client.run(one)


@pytest.mark.slow
async def test_a_killed_consumers_partitions_go_straight_to_the_living(service: Instance) -> None:
    """The partitions move without a hand-off, after the time to live and the debounce."""
    async with consumers(Consumer(service.target, "a"), Consumer(service.target, "b")) as (
        first,
        second,
    ):
        await settled([first, second], [4, 4])
        warmed = len(first.warmed)
        await second.stop()
        assert await settled([first], [8]) < 3 + 0.2 + 2
        assert len(first.warmed) == warmed


@pytest.mark.slow
async def test_a_short_absence_moves_nothing(service: Instance) -> None:
    """A restarted process gets its partitions back in its first message, under new epochs."""
    async with consumers(Consumer(service.target, "a"), Consumer(service.target, "b")) as (
        first,
        second,
    ):
        await settled([first, second], [4, 4])
        held = dict(second.working)
        await second.stop()
        back = Consumer(service.target, "b")
        async with consumers(back):
            await settled([first, back], [4, 4])
            assert back.working.keys() == held.keys()
            assert all(back.working[at] > epoch for at, epoch in held.items())
            assert isinstance(back.told[0], Assigned)


async def test_the_stop_is_clean_and_healthy_until_then(service: Instance) -> None:
    """Each role is healthy before SIGTERM; the exit code is 0 although consumers are connected."""
    async with consumers(Consumer(service.target, "a")) as (first,):
        await settled([first], [8])
        async with grpc.aio.insecure_channel(service.target) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            names = ("", "kafka_assigner.v1.KafkaAssigner", "leader", "readiness", "liveness")
            for role in names:
                answer = await health.Check(health_pb2.HealthCheckRequest(service=role))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING, role
        assert await asyncio.to_thread(service.stop, signal.SIGTERM) == 0
        assert "Traceback" not in service.said


@pytest.mark.slow
async def test_an_interrupt_is_a_clean_stop_too(service: Instance) -> None:
    """Ctrl-C also ends with code 0."""
    async with consumers(Consumer(service.target, "a")) as (first,):
        await settled([first], [8])
        assert await asyncio.to_thread(service.stop, signal.SIGINT) == 0


@pytest.mark.slow
async def test_what_it_serves_can_be_asked_of_it(service: Instance) -> None:
    """Reflection lists the services."""
    async with grpc.aio.insecure_channel(service.target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        async for answer in stub.ServerReflectionInfo(iter([asked])):
            names = {one.name for one in answer.list_services_response.service}
    assert {
        "kafka_assigner.v1.KafkaAssigner",
        "kafka_assigner.v1.KafkaAssignerAdmin",
        "grpc.health.v1.Health",
    } <= names


@pytest.mark.slow
async def test_metrics_are_for_prometheus(service: Instance) -> None:
    """The page has the leader, hand-offs by phase and age, rebalances, the store and streams."""
    url = service.wait(r"metrics on (\S+)")
    async with consumers(Consumer(service.target, "a")) as (first,):
        await settled([first], [8])
        async with consumers(Consumer(service.target, "b")) as (second,):
            await settled([first, second], [4, 4])
            await until_state(service.target, lambda said: not said.handoffs)
            page = await asyncio.to_thread(read, url)
    values = dict(re.findall(r"^(faust_assigner_service_\S+) (\S+)$", page, re.MULTILINE))
    assert values["faust_assigner_service_leader"] == "1.0"
    assert values["faust_assigner_service_streams"] == "2.0"
    assert float(values["faust_assigner_service_rebalances_total"]) >= 1
    assert values['faust_assigner_service_handoff_seconds_count{outcome="handed"}'] == "4.0"
    assert values["faust_assigner_service_unowned_partitions"] == "0.0"
    assert values["faust_assigner_service_unreadable_values"] == "0.0"
    assert 0 <= float(values["faust_assigner_service_store_silence_seconds"]) < 10
    for name in ('handoffs{phase="Warming"}', 'handoff_oldest_seconds{phase="Ready"}'):
        assert f"faust_assigner_service_{name}" in values
    assert "faust_assigner_service_streams_resynced_total" in values
    assert "orders" not in page


def read(url: str) -> str:
    """Fetch a page."""
    with urllib.request.urlopen(url, timeout=10) as page:
        return str(page.read().decode())


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``faust-assigner`` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "faust_assigner.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
async def test_an_operator_sees_plans_and_drains(service: Instance) -> None:
    """Each command of ``faust-assigner service`` is run, also with --json."""
    async with consumers(Consumer(service.target, "a"), Consumer(service.target, "b")) as (
        first,
        second,
    ):
        await settled([first, second], [4, 4])

        async def ask(*words: str) -> str:
            done = await asyncio.to_thread(cli, "service", *words, "--at", service.target)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert [one["consumer"] for one in json.loads(await ask("consumers", "--json"))] == [
            "a",
            "b",
        ]
        owners = {
            one["partition"]: one["owner"] for one in json.loads(await ask("assignments", "--json"))
        }
        assert sorted(owners.values()) == ["a"] * 4 + ["b"] * 4
        assert await ask("handoffs") == "no handoffs\n"
        moves = json.loads(await ask("plan", "--dry-run", "--without", "b", "--json"))
        assert {one["partition"] for one in moves} == {
            n for n, owner in owners.items() if owner == "b"
        }
        assert (
            await ask("health", "--role", "leader")
            == f"{service.target}: the check leader passed\n"
        )
        assert await ask("set-topic", "clicks", "2") == "clicks: 2 partitions\n"
        assert {"topic": "clicks", "partitions": 2} in json.loads(await ask("topics", "--json"))
        assert await ask("remove-topic", "clicks") == "clicks: removed\n"
        assert "clicks" not in await ask("topics")
        mine = min(n for n, owner in owners.items() if owner == "a")
        assert await ask("pause", "--reason", "a release") == "paused\n"
        assert await ask("move", f"orders/{mine}", "b") == f"orders/{mine}: goes to b\n"
        await until(lambda: len(second.working) == 5, "the move is made")
        said = json.loads(await ask("status", "--json"))
        assert (said["paused"], said["reason"]) == (True, "a release")
        assert (said["owned"], said["consumers"], said["pins"]) == (8, 2, 0)
        assert await ask("resume") == "not paused\n"
        await settled([first, second], [4, 4])
        assert await ask("pin", "orders/0", "b") == "orders/0: pinned to b\n"
        assert json.loads(await ask("pins", "--json")) == [
            {"topic": "orders", "partition": 0, "consumer": "b", "once": ""}
        ]
        assert await ask("unpin", "orders/0") == "orders/0: not pinned\n"
        assert (await ask("drain", "b")).startswith("b: hands its partitions over;")
        await settled([first, second], [8, 0])
        assert second.task is not None
        await asyncio.wait_for(second.task, PATIENCE_S)
    for order, reason in (
        (("drain", "nobody"), "no consumer nobody"),
        (("remove-topic", "clicks"), "no topic clicks"),
        (("abort", "orders/0"), "orders/0: no hand-off"),
        (("undrain", "nobody"), "no consumer nobody"),
    ):
        refused = await asyncio.to_thread(cli, "service", *order, "--at", service.target)
        assert (refused.returncode, refused.stderr) == (2, f"faust-assigner: {reason}\n")


@pytest.mark.slow
async def test_a_taken_port_is_said_in_one_line(service: Instance, tmp_path: Path) -> None:
    """The second instance logs one line and ends with code 1."""
    done = await asyncio.to_thread(cli, "serve", "--bind", service.target)
    assert done.returncode == 1
    assert f"cannot listen on {service.target}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
async def test_too_many_calls_are_refused(tmp_path: Path) -> None:
    """A crowd of callers does not disturb registered consumers."""
    with instances(tmp_path, *QUICK, *EIGHT, "--max-calls", "3") as (service,):
        async with consumers(Consumer(service.target, "a")) as (first,):
            await settled([first], [8])
            async with grpc.aio.insecure_channel(service.target) as channel:
                health = health_pb2_grpc.HealthStub(channel)
                watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(4)]
                codes = [
                    await asyncio.gather(watch.read(), return_exceptions=True) for watch in watches
                ]
                refused = [one for (one,) in codes if isinstance(one, grpc.aio.AioRpcError)]
                assert {one.code() for one in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            await asyncio.sleep(1)
            assert len(first.working) == 8


@pytest.mark.slow
async def test_a_request_that_is_too_long_is_refused(service: Instance) -> None:
    """The service keeps serving normal requests."""
    request = pb.RegisterRequest(
        consumer_name="a", topics=[f"{number:0200d}" for number in range(30_000)]
    )
    async with grpc.aio.insecure_channel(service.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await anext(aiter(KafkaAssignerStub(channel).Register(request)))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    async with consumers(Consumer(service.target, "b")) as (other,):
        await settled([other], [8])
