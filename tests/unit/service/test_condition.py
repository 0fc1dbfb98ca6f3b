"""The condition of an instance: health roles, metrics, and the log of moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from grpc_health.v1 import health_pb2

from faust_assigner.service import values as codec
from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading import bundles
from faust_assigner.service.leading.bundles import Bundle, lines
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import Assigned, TopicConfig
from faust_assigner.service.server.admin_servicer import AdminServicer
from faust_assigner.service.server.auth import NoAuthentication
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.health import LIVES, READY, SERVES, Health
from faust_assigner.service.server.metrics import LOOK_S, PrometheusMetrics
from faust_assigner.service.store.base import (
    Compare,
    Event,
    KeyValue,
    Listing,
    Put,
    TxnResult,
    Write,
)
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, LoopClock, eventually, quick, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, put, store


class _Failing(MemoryStore):
    """With ``leaderless`` no instance can lead; with ``silent`` the store does not answer."""

    leaderless = silent = False

    def _ask(self) -> None:
        if self.silent:
            raise StoreUnavailable("silent")

    async def get(self, key: str) -> KeyValue | None:
        self._ask()
        return await super().get(key)

    async def list(self, prefix: str) -> Listing:
        self._ask()
        return await super().list(prefix)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        self._ask()
        if self.leaderless and any(isinstance(w, Put) and w.key == ALL.leader for w in writes):
            raise StoreUnavailable("nobody leads")
        return await super().txn(compares, writes)


async def _well_as(node: AssignerNode) -> set[str]:
    """The roles in which the instance is healthy."""
    health = Health(Groups({"": node}))
    await health.look()
    found = set()
    for role in (LIVES, READY, SERVES):
        answer = await health.servicer.Check(health_pb2.HealthCheckRequest(service=role), None)
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            found.add(role)
    return found


def test_readiness_falls_when_nobody_leads_for_long() -> None:
    """A short gap between leaders does not count; meanwhile the instance serves and lives."""

    async def story() -> None:
        kept = _Failing(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            assert READY not in await _well_as(node), "nobody has led yet"
            await eventually(lambda: node.condition.has_leader)
            assert await _well_as(node) == {LIVES, READY, SERVES}
            kept.leaderless = True
            leader = await kept.get(ALL.leader)
            assert leader is not None
            await kept.revoke(leader.lease)
            await asyncio.sleep(node.settings.leader_ttl_s * 0.7)
            assert READY in await _well_as(node)
            await asyncio.sleep(node.settings.leader_ttl_s)
            assert await _well_as(node) == {LIVES, SERVES}
            kept.leaderless = False
            await eventually(lambda: node.condition.has_leader)
            assert READY in await _well_as(node)
        await kept.close()

    virtually(story)


def test_readiness_falls_when_the_store_is_silent_and_liveness_does_not() -> None:
    """A restart of an instance does not repair etcd; the silence is measured in seconds."""

    async def story() -> None:
        kept = _Failing(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await eventually(lambda: node.leads)
            assert node.condition.silence_s < 2.0
            kept.silent = True
            await asyncio.sleep(20.0)
            assert await _well_as(node) == {LIVES}
            assert 18.0 < node.condition.silence_s < 22.0
            kept.silent = False
            await eventually(lambda: node.leads and node.condition.hears_store)
            assert await _well_as(node) == {LIVES, READY, SERVES}
        await kept.close()

    virtually(story)


def test_an_operators_state_has_the_age_of_the_instances_view() -> None:
    """Without the age, a state from before etcd's silence would look current."""

    async def story() -> None:
        kept = _Failing(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await eventually(lambda: node.leads)
            servicer = AdminServicer(Groups({"": node}), NoAuthentication())

            async def age_s() -> float:
                parts = [part async for part in servicer.GetState(pb.GetStateRequest(), None)]
                return parts[-1].age_s

            assert await age_s() < 2.0
            kept.silent = True
            for silent_s in (20.0, 40.0):  # the second answer is computed anew
                await asyncio.sleep(20.0)
                assert silent_s - 2.0 < await age_s() < silent_s + 2.0
            kept.silent = False
            await eventually(lambda: node.condition.hears_store)
            assert await age_s() < 2.0
        await kept.close()

    virtually(story)


def test_a_screen_is_told_again_and_again_that_the_store_is_silent() -> None:
    """Without any change, only the age shows that the state is old."""

    async def story() -> None:
        kept = _Failing(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await eventually(lambda: node.leads)
            servicer = AdminServicer(Groups({"": node}), NoAuthentication())
            states = servicer.WatchState(pb.GetStateRequest(), None)
            assert (await anext(states)).age_s < 2.0
            kept.silent = True
            ages = [(await anext(states)).age_s for _ in range(4)]
            assert ages[-1] > ages[-2] > 10.0
            await states.aclose()
        await kept.close()

    virtually(story)


async def test_a_screen_misses_no_change_right_after_its_first_state() -> None:
    """Earlier, a change before the first listener appeared only with the next change."""
    kept = MemoryStore()
    node = AssignerNode(kept, quick("/g/"), node_id="n", topics={"t": 1})
    await node._mirror.load()
    servicer = AdminServicer(Groups({"": node}), NoAuthentication())
    states = servicer.WatchState(pb.GetStateRequest(), None)
    assert not (await anext(states)).topics
    new = await put(kept, ALL.topic("t"), codec.dump_topic(TopicConfig("t", 1)))
    node._mirror._apply([Event(new.key, new.mod_revision, new)], new.mod_revision)
    async with asyncio.timeout(20):
        assert [one.topic for one in (await anext(states)).topics] == ["t"]
    listening = len(node._mirror.listeners)
    await states.aclose()
    assert len(node._mirror.listeners) == listening - 1
    await kept.close()


def test_the_age_of_a_hand_off_does_not_depend_on_the_leaders_clock() -> None:
    """With a leader an hour ahead, the age was an hour below 0."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node(start=False)
            await node._mirror.load()
            handoff = codec.dump_handoff(replace(HANDOFF, started_at=1e6))
            kv = await put(kept, ALL.handoff(AT), handoff)
            node._mirror._apply([Event(kv.key, kv.mod_revision, kv)], kv.mod_revision)
            await asyncio.sleep(7.0)
            [shown] = await node.overview.handoffs()
            assert shown.age_s == pytest.approx(7.0)
        await kept.close()

    virtually(story)


def test_liveness_falls_when_a_task_of_the_instance_has_ended() -> None:
    """A bug ended the task, and only a restart repairs the instance."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            await eventually(lambda: node.leads)
            node._tasks[0].cancel()
            await asyncio.sleep(0.1)
            assert LIVES not in await _well_as(node)
        await kept.close()

    virtually(story)


def _value(metrics: PrometheusMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"faust_assigner_service_{name}", labels)


async def _measured(metrics: PrometheusMetrics, node: AssignerNode) -> None:
    """Let the metrics look at the instance once."""
    following = asyncio.ensure_future(metrics.follow(node.condition))
    await asyncio.sleep(0.1)
    following.cancel()


def test_what_is_unowned_unreadable_and_silent_is_measured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Alerts need partitions without an owner, and values that a newer release wrote."""

    async def story() -> None:
        kept, metrics = store(), PrometheusMetrics()
        await put(kept, ALL.handoff(AT), b"{}")
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 3, "u": 2}, metrics=metrics)
            await eventually(lambda: node._mirror.view.topics)
            await _measured(metrics, node)
            assert _value(metrics, "unowned_partitions") == 5
            assert _value(metrics, "unreadable_values") == 1
            one = await b.consumer(node, "a")
            await b.settles(5)
            await _measured(metrics, node)
            assert _value(metrics, "unowned_partitions") == 0
            assert _value(metrics, "unreadable_values") == 0, "the leader wrote over it"
            assert (_value(metrics, "store_silence_seconds") or 9.9) < 2.0
            await one.disconnect()
            await eventually(lambda: not node._mirror.view.consumers)
            await _measured(metrics, node)
            assert _value(metrics, "unowned_partitions") == 5, "the owner is gone"
        await kept.close()

    virtually(story)
    assert f"1 values in the store cannot be read and count as absent: {ALL.handoff(AT)}" in (
        caplog.text
    )


def test_the_gauge_of_a_pause_rises_and_falls_with_the_pause() -> None:
    """A single task measures throughout: an alert that never ends would be ignored."""

    async def story() -> None:
        kept, metrics = store(), PrometheusMetrics()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1}, metrics=metrics)
            following = asyncio.ensure_future(metrics.follow(node.condition))
            await eventually(lambda: node.leads)
            await node.orders.pause("a release")
            await eventually(lambda: node.condition.is_paused)
            await asyncio.sleep(2 * LOOK_S)
            assert _value(metrics, "paused") == 1
            await node.orders.resume()
            await eventually(lambda: not node.condition.is_paused)
            await asyncio.sleep(2 * LOOK_S)
            assert _value(metrics, "paused") == 0
            following.cancel()
        await kept.close()

    virtually(story)


@pytest.mark.parametrize(
    ("name", "labels", "observe", "short_s", "long_s"),
    [
        ("rebalance", {}, lambda m, took_s: m.rebalanced(1, took_s), 0.004, 0.02),
        ("store", {"operation": "get"}, lambda m, s: m.store_call("get", s, None), 0.004, 0.02),
        ("handoff", {"outcome": "handed"}, lambda m, s: m.handoff_ended("handed", s), 50, 500),
    ],
)
def test_buckets_tell_a_usual_duration_from_a_long_one(
    name: str,
    labels: dict[str, str],
    observe: Callable[[PrometheusMetrics, float], None],
    short_s: float,
    long_s: float,
) -> None:
    """A plan and a store call take milliseconds; a hand-off takes minutes."""
    metrics = PrometheusMetrics()
    observe(metrics, short_s)
    observe(metrics, long_s)
    counts = {
        sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"faust_assigner_service_{name}_seconds_bucket"
        and labels.items() <= sample.labels.items()
    }
    assert counts == {0, 1, 2}


def test_a_partition_of_an_earlier_process_counts_as_unowned() -> None:
    """Its successor of the same name has no grant yet."""

    async def story() -> None:
        kept = store()
        for number, incarnation in enumerate(("p1", "p2")):
            at = TopicPartition("t", number)
            owned = Assigned(at, "a", incarnation=incarnation)
            await put(kept, ALL.assignment(at), codec.dump_assigned(owned))
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2}, start=False)
            await node._mirror.load()
            assert node.condition.unowned == 0, "the topic is not known yet"
            await node._catalogue.write()
            consumer = codec.dump_consumer(codec.Consumer(name="a", incarnation="p2"))
            await put(kept, ALL.consumer("a"), consumer)
            await node._mirror._relist()
            assert node.condition.unowned == 1
        await kept.close()

    virtually(story)


def test_the_handoffs_under_way_have_ages_by_phase() -> None:
    """Warm-ups may take minutes, releases may not, so each phase needs its own age."""

    async def story() -> None:
        kept, metrics = store(), PrometheusMetrics()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2}, metrics=metrics, strict=True)
            one = await b.consumer(node, "a", releases=False)
            await b.settles(2)
            await b.consumer(node, "b", warm_s=4.0)
            await eventually(b.open_handoffs)
            await asyncio.sleep(3.0)
            assert 2.0 < (_value(metrics, "handoff_oldest_seconds", phase="Warming") or 0) < 4.0
            assert _value(metrics, "handoff_oldest_seconds", phase="Ready") == 0
            await asyncio.sleep(4.0)
            assert _value(metrics, "handoff_oldest_seconds", phase="Warming") == 0
            assert (_value(metrics, "handoff_oldest_seconds", phase="Ready") or 0) > 5.0
            assert one.ended is None
        await kept.close()

    virtually(story)


@pytest.mark.parametrize(
    ("trouble", "outcome"), [("fails", "failed"), ("slow", "late"), ("gone", "target_gone")]
)
def test_a_handoff_that_does_not_come_about_is_counted_by_its_reason(
    trouble: str, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log line has the reason and the old owner, as the partition stays there."""
    caplog.set_level(logging.INFO)

    async def story() -> None:
        kept, metrics = store(), PrometheusMetrics()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2}, metrics=metrics, handoff_timeout_s=3.0)
            await b.consumer(node, "a")
            await b.settles(2)
            two = await b.consumer(node, "b", fails=trouble == "fails", warm_s=0.0)
            two.warm_s = 0.0 if trouble == "fails" else None
            if trouble == "gone":
                await eventually(b.open_handoffs)
                await two.expire()
            await eventually(
                lambda: _value(metrics, "handoff_seconds_count", outcome=outcome), outcome
            )
        await kept.close()

    virtually(story)
    assert "stays with a, because b " in caplog.text


def test_moves_are_logged_with_their_reason(caplog: pytest.LogCaptureFixture) -> None:
    """The INFO lines have the partition, both owners and the reason."""
    caplog.set_level(logging.INFO)

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 2})
            first = await b.consumer(node, "a")
            await b.settles(2)
            await b.consumer(node, "b")
            await b.settles(1, 1)
            await node.drain("a")
            await eventually(lambda: first.ended)
            await b.helpers[1].expire()
            await b.consumer(node, "c")
            await eventually(lambda: set(b.owners().values()) == {"c"})
        await kept.close()

    virtually(story)
    said = [record.message for record in caplog.records if record.levelno == logging.INFO]
    for line in (
        "t/0, t/1: given to a at once, because it had no owner",
        "t/1: a hand-off from a to b begins, because the plan balances the loads",
        "t/1: b is the new owner; a handed it over",
        "t/0: a hand-off from a to b begins, because a leaves",
        "a: drained: it owns no partitions any longer, and its stream ends",
        "t/0, t/1: given to c at once, because b is gone",
    ):
        assert line in said, said


def test_a_line_names_some_of_many_partitions() -> None:
    """A group of 100,000 partitions does not fill the log, and each reason has a line."""
    many = [Bundle((), (), ((f"t/{n}", "given to a"),)) for n in range(bundles.NAMED + 30)]
    first, second = lines([*many, Bundle((), (), (("u/0", "given to b"),))])
    assert first.startswith("t/0, t/1, ")
    assert first.endswith(f"t/{bundles.NAMED - 1} and 30 more: given to a")
    assert second == "u/0: given to b"
