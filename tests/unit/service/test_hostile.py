"""Limits on a faulty or hostile consumer, to protect all other consumers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import BadRequest, NotFound, StoreUnavailable
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Action, Consumer, Ended
from faust_assigner.service.server.auth import NoAuthentication
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.metrics import PrometheusMetrics
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.requests import partition_of
from faust_assigner.service.server.serve import _open_store
from faust_assigner.service.server.servicer import ConsumerServicer
from faust_assigner.service.serving.acks import PROGRESS_EVERY_S, Answer
from faust_assigner.service.store.base import Event, KeyValue, Put
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.view import View
from tests.support.assigning.consumers import Bench, LoopClock, eventually, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, acks_of, put, store


class _Context:
    """A fake context of a call."""

    async def abort(self, code: Any, details: str) -> None:
        """Raise, like gRPC."""
        raise asyncio.CancelledError


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[MemoryStore, ConsumerServicer, pb.RegisterRequest]]:
    """Yield a store, an instance's service with one partition, and a registration request."""
    kept = store()
    async with Bench(lambda: kept) as b:
        node = await b.node({"t": 1}, consumer_ttl_s=30.0, consumer_keepalive_s=5.0)
        servicer = ConsumerServicer(Groups({"": node}), NoAuthentication())
        yield kept, servicer, pb.RegisterRequest(consumer_name="a", heartbeats=True)
    await kept.close()


def test_a_silent_consumers_registration_ends_with_its_time_to_live() -> None:
    """Its partitions do not wait for a second time to live."""

    async def story() -> None:
        async with served() as (kept, servicer, request):

            async def listen() -> None:
                async for _ in servicer.Register(request, _Context()):
                    pass

            listening = asyncio.create_task(listen())
            await asyncio.sleep(29.0)
            assert await kept.get(ALL.consumer("a")) is not None
            await asyncio.sleep(2.0)
            assert await kept.get(ALL.consumer("a")) is None
            await asyncio.gather(listening, return_exceptions=True)

    virtually(story)


def test_a_registration_promises_two_thirds_of_its_time_to_live() -> None:
    """Its instance stops renewals by then, and the next owner may start after a whole time to live."""

    async def story() -> None:
        async with served() as (_, servicer, request):
            stream = servicer.Register(request, _Context())
            assert (await anext(stream)).assignment.lives_ms == 20_000
            await stream.aclose()

    virtually(story)


def test_a_consumer_whose_connection_breaks_late_is_not_waited_for_once_more() -> None:
    """Pings find a stopped consumer after half a time to live, but its lease is not renewed then."""

    async def story() -> None:
        async with served() as (kept, servicer, request):
            stream = servicer.Register(request, _Context())
            await anext(stream)
            await asyncio.sleep(15.0)
            await stream.aclose()
            await asyncio.sleep(14.0)
            assert await kept.get(ALL.consumer("a")) is not None
            await asyncio.sleep(2.0)
            assert await kept.get(ALL.consumer("a")) is None

    virtually(story)


def test_a_heartbeat_is_told_whether_its_registration_lives_and_how_long() -> None:
    """An expired or unknown session is not known, so the consumer registers again."""

    async def story() -> None:
        async with served() as (_, servicer, request):
            stream = servicer.Register(request, _Context())
            session = (await anext(stream)).assignment.session_id
            beat = pb.HeartbeatRequest(consumer_name="a", session_id=session)
            answer = await servicer.Heartbeat(beat, _Context())
            assert answer.known
            assert 15_000 <= answer.lives_ms <= 30_000
            beat.session_id = "another"
            answer = await servicer.Heartbeat(beat, _Context())
            assert not answer.known
            await stream.aclose()

    virtually(story)


def test_the_end_of_an_older_connection_does_not_touch_who_is_back() -> None:
    """The consumer returned in time, and has a whole time to live again."""

    async def story() -> None:
        async with served() as (kept, servicer, request):
            first, second = (
                servicer.Register(request, _Context()),
                servicer.Register(request, _Context()),
            )
            await anext(first)
            await asyncio.sleep(10.0)
            await first.aclose()
            await asyncio.sleep(10.0)
            await anext(second)
            await asyncio.sleep(25.0)
            assert await kept.get(ALL.consumer("a")) is not None
            await second.aclose()

    virtually(story)


def test_who_was_told_to_stop_though_nobody_relieves_it_may_start_again() -> None:
    """A restart within the time to live is a new process, unaffected by the leave of the last."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2}, consumer_ttl_s=30.0, consumer_keepalive_s=5.0)
            first = await b.consumer(node, "a")
            await b.settles(2)
            assert await node.deregister("a") is Action.SHUTDOWN_NOW
            await eventually(lambda: first.ended is Ended.DRAINED)
            await first.disconnect()
            again = await b.consumer(node, "a")
            await asyncio.sleep(3.0)
            assert (again.ended, len(again.owned)) == (None, 2)
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("strict", [False, True])
def test_many_topics_that_travel_together_are_more_than_one_transaction(strict: bool) -> None:
    """The store takes 128 operations, but 70 co-partitioned partitions still move."""

    async def story() -> None:
        kept = store()
        topics = {f"t{number:02}": 2 for number in range(70)}
        together = Consumer(name="a", co_partitioned=(tuple(topics),))
        async with Bench(lambda: kept) as b:
            node = await b.node(topics, strict=strict)
            await b.consumer(node, "a", consumer=together)
            await b.settles(140)
            await b.consumer(node, "b")
            await b.settles(70, 70)
        await kept.close()

    virtually(story)


@pytest.mark.parametrize(
    "claims",
    [
        {"weights": {"t": {0: 1e308, 1: 1e308}}},
        {"weights": {"t": {0: 5e-324}}},
        {"weights": {"t": {0: 1.0, 1: float("nan")}}},
        {"capacity": 5e-324},
        {"capacity": 1e308},
        {"holds": {"t": (4_294_967_295,)}},
        {"holds": {"t": tuple(range(1_000, 60_000))}},
        {"rack": "r" * 100_000},
        {"weights": {"x" * 100_000: {0: 1.0}}},
        {"co_partitioned": tuple((f"x{number}", f"y{number}") for number in range(100_000))},
    ],
    ids=[
        "huge weights",
        "tiny weight",
        "no number",
        "tiny capacity",
        "huge capacity",
        "high replica",
        "many replicas",
        "rack",
        "long weight key",
        "many bonds",
    ],
)
def test_no_claim_keeps_the_others_from_their_partitions(claims: dict[str, Any]) -> None:
    """A harmful claim is refused; otherwise the next consumer gets its share."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4})
            try:
                bad = await b.consumer(node, "bad", consumer=Consumer(name="bad", **claims))
            except BadRequest:
                bad = None
            await b.consumer(node, "good")
            await eventually(lambda: sum(len(one.owned) for one in b.helpers) == 4)
            assert bad is None or len(kept._keys[ALL.consumer("bad")].value) < 600_000
        await kept.close()

    virtually(story)


def test_that_kafka_does_not_answer_is_no_refusal() -> None:
    """The topic may exist, so the consumer retries instead of giving up."""

    async def story() -> None:
        async def asked(topic: str) -> int | None:
            raise OSError("no broker")

        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({}, count=asked)
            with pytest.raises(StoreUnavailable):
                await node.register(Consumer(name="a", topics=("t",)))
        await kept.close()

    virtually(story)


async def test_the_memory_of_large_values_is_bounded() -> None:
    """Repeated registrations leave only the last value, and some history for watches."""
    kept = MemoryStore(history_bytes=1_000_000)
    for number in range(100):
        await kept.txn([], [Put("/g/a", bytes([number]) * 100_000)])
    assert sum(len(event.kv.value) for event in kept._log if event.kv is not None) <= 1_000_000
    async with contextlib.aclosing(kept.watch("/g/", kept.revision)) as batches:  # type: ignore[type-var]
        assert [event.revision for event in (await anext(batches)).events] == [kept.revision]
    await kept.close()


def test_epochs_rise_over_a_restart_without_etcd() -> None:
    """Consumers and sinks refuse lower epochs."""

    async def revision() -> int:
        async with contextlib.AsyncExitStack() as ends:
            opened = _open_store(Options.read({}, {}), PrometheusMetrics(), ends)
            assert isinstance(opened, MemoryStore)
            await put(opened, "/g/a", b"1")
            return opened.revision

    first = asyncio.run(revision())
    time.sleep(0.01)
    assert asyncio.run(revision()) > first + 1


def test_progress_that_is_no_number_is_none() -> None:
    """JSON has no NaN."""

    async def story() -> None:
        kept = store()
        await put(kept, ALL.handoff(AT), codec.dump_handoff(HANDOFF))
        acks = acks_of(kept)
        await acks.progress(Answer("new", AT), float("nan"))
        found = await kept.get(ALL.handoff(AT))
        assert found is not None
        assert b"NaN" not in found.value
        with pytest.raises(NotFound):
            await acks.progress(Answer("new", TopicPartition("made up", 1)), 0.5)
        assert list(acks._reported) == [(AT, "new")]

    virtually(story)


def test_reports_of_progress_are_forgotten_when_their_time_is_over() -> None:
    """A report is remembered only until the next report may be stored."""
    other = TopicPartition(AT.topic, AT.partition + 1)

    async def story() -> None:
        kept, clock = store(), LoopClock()
        for at in (AT, other):
            await put(kept, ALL.handoff(at), codec.dump_handoff(replace(HANDOFF, at=at)))
        acks = acks_of(kept, clock)
        await acks.progress(Answer("new", AT), 0.1)
        await clock.sleep(PROGRESS_EVERY_S)
        await acks.progress(Answer("new", other), 0.1)
        assert list(acks._reported) == [(other, "new")]

    virtually(story)


@pytest.mark.parametrize("offset", [-1, 2**64 - 1])
def test_an_offset_that_kafka_does_not_have_is_refused(offset: int) -> None:
    """The next owner would start at this offset."""

    async def story() -> None:
        with pytest.raises(BadRequest):
            await acks_of(store()).released(Answer("old", AT), offset)

    virtually(story)


def test_a_name_as_long_as_a_message_is_refused_in_few_words() -> None:
    """The name becomes no key, and the error does not repeat it."""
    with pytest.raises(BadRequest) as refused:
        partition_of(pb.TopicPartition(topic="x" * 1_000_000, partition=1))
    assert len(str(refused.value)) < 500


def test_garbage_of_any_depth_is_set_aside() -> None:
    """Values of other programs under the prefix do not end an instance."""
    found = View(ALL)
    found.apply(Event(ALL.topic("t"), 1, KeyValue(ALL.topic("t"), b"[" * 100_000, 1, 1)))
    assert (len(found.unreadable), found.topics) == (1, {})


def test_a_registration_that_no_store_takes_is_refused_at_once() -> None:
    """etcd would refuse it with a retriable error, over and over."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            weights = {f"{number:0200}": {0: 1.0} for number in range(10_000)}
            with pytest.raises(BadRequest):
                await node.register(Consumer(name="a", weights=weights))
            assert len(kept._leases) <= 1  # the leader's
        await kept.close()

    virtually(story)


@pytest.mark.parametrize("incarnation", ["i" * 3_000_000, "a/b", "line\nbreak"])
def test_no_call_takes_an_incarnation_that_is_no_part_of_a_key(incarnation: str) -> None:
    """The incarnation is part of the keys that the call reads, and of the answer."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await b.consumer(node, "a")
            for call in (
                node.heartbeat("a", "no session", incarnation=incarnation),
                node.acks.ready(Answer("a", AT, incarnation=incarnation)),
                node.deregister("a", incarnation=incarnation),
            ):
                with pytest.raises(BadRequest) as refused:
                    await call
                assert len(str(refused.value)) < 500
        await kept.close()

    virtually(story)


def test_a_dry_run_without_a_long_name_is_refused_in_few_words() -> None:
    """gRPC breaks the stream of an error text beyond its header limit."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            with pytest.raises(BadRequest) as refused:
                await node.overview.plan(without=["x" * 3_000_000])
            assert len(str(refused.value)) < 500
        await kept.close()

    virtually(story)


def test_a_reason_forges_no_line_of_the_log() -> None:
    """Its control characters become spaces before it is stored."""

    async def story() -> None:
        kept = store()
        await put(kept, ALL.handoff(AT), codec.dump_handoff(HANDOFF))
        said = "no disk\n2026 ERROR\x1b[31m forged" + "x" * 1_000
        await acks_of(kept).warm_failed(Answer("new", AT), said)
        found = await kept.get(ALL.handoff(AT))
        assert found is not None
        reason = codec.load_handoff(found.value).failed
        assert reason == ("no disk 2026 ERROR [31m forged" + "x" * 1_000)[:500]

    virtually(story)
