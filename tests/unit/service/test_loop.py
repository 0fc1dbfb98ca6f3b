"""A consumer's long request does not block the loop for other consumers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from faust_assigner.service.errors import MAX_CLAIMS, BadRequest
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Consumer
from faust_assigner.service.server.admin_servicer import AdminServicer
from faust_assigner.service.server.auth import NoAuthentication
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.limits import MAX_SUPPOSED
from faust_assigner.service.server.requests import consumer_of
from faust_assigner.service.server.servicer import ConsumerServicer
from tests.support.assigning.consumers import Bench, eventually
from tests.unit.service.stories import store

COUNT = 60_000
TRIES = 3


@pytest.fixture(autouse=True)
def _without_collections() -> Iterator[None]:
    """Collect the garbage of earlier tests, and disable the collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Callable[[], float]]:
    """Yield a function that returns the longest time between two turns of the loop.

    The time is this thread's processor time, so a busy machine does not count.
    """
    longest = 0.0

    async def turn() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    turning = asyncio.create_task(turn())
    await asyncio.sleep(0)
    try:
        yield lambda: longest
    finally:
        await asyncio.sleep(0)
        turning.cancel()


def control(request: pb.RegisterRequest) -> float:
    """The least processor time for one look at each weight."""
    began = time.thread_time()
    seen = {
        (said.partition.topic, said.partition.partition): said.weight for said in request.weights
    }
    return time.thread_time() - began if seen else 0.0


async def blocked(request: pb.RegisterRequest) -> float:
    """The longest block while a consumer registers twice."""
    kept = store()
    async with Bench(lambda: kept) as b:
        node = await b.node({"t": 4}, consumer_ttl_s=60.0, leader_ttl_s=60.0)
        servicer = ConsumerServicer(Groups({"": node}), NoAuthentication())
        async with watched() as longest:
            for _ in range(2):
                stream: Any = servicer.Register(request, None)
                await anext(stream)
                await stream.aclose()
    await kept.close()
    return longest()


async def test_a_registration_with_many_weights_blocks_no_longer_than_looking_at_them_twice() -> (
    None
):
    """The weights are read in parts; the whole takes many times as long."""
    request = pb.RegisterRequest(
        consumer_name="a",
        weights=[
            pb.PartitionWeight(partition=pb.TopicPartition(topic="t", partition=number), weight=1.5)
            for number in range(COUNT)
        ],
    )
    pairs = [(await blocked(request), control(request)) for _ in range(TRIES)]
    assert min(took for took, _ in pairs) < 2 * min(least for _, least in pairs), pairs


@pytest.mark.parametrize(
    "claims",
    [
        {"weights": [pb.PartitionWeight()] * (MAX_CLAIMS + 1)},
        {"replicas": [pb.TopicPartition()] * (MAX_CLAIMS + 1)},
        {"topics": [""] * (MAX_CLAIMS + 1)},
        {"copartitioned": [pb.TopicGroup()] * (MAX_CLAIMS + 1)},
        {"copartitioned": [pb.TopicGroup(topics=[""] * MAX_CLAIMS)]},
        {"former": [pb.TopicPartitions()] * (MAX_CLAIMS + 1)},
        {"replicas_by_topic": [pb.TopicPartitions()] * (MAX_CLAIMS + 1)},
        {"weights_by_topic": [pb.TopicWeights()] * (MAX_CLAIMS + 1)},
        {"former": [pb.TopicPartitions(partitions=[1] * MAX_CLAIMS)]},
    ],
    ids=[
        "weights",
        "replicas",
        "topics",
        "groups",
        "topics of a group",
        "former topics",
        "topics of replicas",
        "topics of weights",
        "former partitions",
    ],
)
async def test_a_request_of_too_many_parts_is_refused_before_they_are_looked_at(
    claims: Any,
) -> None:
    """An empty part takes two bytes, so a message has room for two million."""
    request = pb.RegisterRequest(consumer_name="a", **claims)
    async with watched() as longest:
        with pytest.raises(BadRequest, match="claims; at most 100000"):
            await consumer_of(request)
    assert longest() < control(pb.RegisterRequest(weights=[pb.PartitionWeight()] * MAX_CLAIMS))


_CLAIMS = [pb.TopicPartitions()] * (MAX_CLAIMS + 1)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("ReportReplicas", pb.ReportReplicasRequest(consumer_name="a", replicas_by_topic=_CLAIMS)),
        ("WatchAssignments", pb.WatchAssignmentsRequest(topics=["t"] * (MAX_CLAIMS + 1))),
        ("Plan", pb.PlanRequest(extra=[pb.RegisterRequest()] * (MAX_SUPPOSED + 1))),
        ("Plan", pb.PlanRequest(without=["a"] * (MAX_SUPPOSED + 1))),
        ("Plan", pb.PlanRequest(extra=[pb.RegisterRequest(former=_CLAIMS[:60_000])] * 2)),
    ],
    ids=["replicas", "watched topics", "added consumers", "left-out consumers", "claims of two"],
)
async def test_every_call_refuses_a_list_of_too_many_entries(method: str, request_: Any) -> None:
    """A dry run counts the claims of all added consumers."""
    kept = store()
    async with Bench(lambda: kept) as b:
        node = await b.node({"t": 4}, consumer_ttl_s=60.0, leader_ttl_s=60.0)
        groups = Groups({"": node})
        servicer: Any = ConsumerServicer(groups, NoAuthentication())
        if method == "Plan":
            servicer = AdminServicer(groups, NoAuthentication())
        context = _Refused()
        async with watched() as longest:
            answer = getattr(servicer, method)(request_, context)
            with pytest.raises(asyncio.CancelledError):
                await (anext(answer) if hasattr(answer, "__anext__") else answer)
    await kept.close()
    assert context.code is grpc.StatusCode.INVALID_ARGUMENT
    assert longest() < control(pb.RegisterRequest(weights=[pb.PartitionWeight()] * MAX_CLAIMS))


class _Refused:
    """The context of a call that keeps the status of a refusal."""

    code: grpc.StatusCode | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call, like gRPC."""
        self.code = code
        raise asyncio.CancelledError

    def invocation_metadata(self) -> tuple[()]:
        """Return no headers."""
        return ()


async def test_many_states_that_are_asked_for_at_once_block_no_longer_than_one() -> None:
    """The group's consumer has long claims; other tasks run in between."""
    kept = store()
    async with Bench(lambda: kept) as b:
        node = await b.node({"t": 4}, consumer_ttl_s=60.0, leader_ttl_s=60.0)
        await node.register(Consumer(name="a", holds={"t": tuple(range(COUNT))}))
        admin = AdminServicer(Groups({"": node}), NoAuthentication())

        async def ask() -> None:
            async for said in admin.GetState(pb.GetStateRequest(), None):
                assert (
                    len(said.consumers[0].replicas[0].partitions) == said.topics[0].partition_count
                )

        async with watched() as one:
            await ask()
        await node.set_topic("t", 5)
        await eventually(lambda: node._mirror.view.topics["t"].value.partition_count == 5)
        async with watched() as many:
            await asyncio.gather(*(ask() for _ in range(40)))
        assert many() < 10 * one()
    await kept.close()
