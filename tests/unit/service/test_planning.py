"""The leader's plans: only after relevant changes, and in a thread for large groups."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from faust_assigner.errors import PlanInputError
from faust_assigner.service import values as codec
from faust_assigner.service.commands import Warm
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading import rebalancer
from faust_assigner.service.leading.record import NEUTRAL
from faust_assigner.service.leading.targets import Targets, choose
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import Consumer, TopicConfig
from faust_assigner.service.store.base import Event, KeyValue, Listing, TxnResult
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.view import View
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import PATIENCE_S, Bench, LoopClock, eventually, virtually
from tests.unit.service.stories import ALL, store, view_of


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of consumers of each plan."""
    made: list[int] = []

    def counted(view: Any, consumers: Any, **options: Any) -> Targets:
        made.append(len(consumers))
        return choose(view, consumers, **options)

    monkeypatch.setattr(rebalancer, "choose", counted)
    return made


def test_a_group_that_nothing_happens_to_is_not_planned_again(plans: list[int]) -> None:
    """Earlier, a plan of 100,000 partitions took a second of processor time every five seconds."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 8})
            first = await b.consumer(node, "a")
            await b.consumer(node, "b")
            await b.settles(4, 4)
            await asyncio.sleep(10.0)
            plans.clear()
            await asyncio.sleep(600.0)
            assert plans == []
            await first.disconnect()
            b.helpers.remove(first)
            await b.consumer(node, "a")  # returns in time, with the same registration
            await asyncio.sleep(60.0)
            assert plans == []
            await b.consumer(node, "c")
            await b.settles(2, 3, 3)
            assert 3 in plans
        await kept.close()

    virtually(story)


def _moved_at_the_start(joins: int, every_s: float) -> tuple[int, float]:
    """Hand-offs until joining consumers share 24 partitions, and the time of the first ownership."""
    found: list[tuple[int, float]] = []

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 24}, debounce_s=1.0)
            began, first = asyncio.get_running_loop().time(), 0.0
            for number in range(joins):
                await b.consumer(node, f"c{number:02}")
                await asyncio.sleep(every_s)
                if b.owners() and not first:
                    first = asyncio.get_running_loop().time() - began
            await eventually(b.owners)
            first = first or asyncio.get_running_loop().time() - began
            await b.settles(*[24 // joins] * joins)
            found.append((sum(len(helper.of(Warm)) for helper in b.helpers), first))
        await kept.close()

    virtually(story)
    return found[0]


def test_a_group_that_begins_is_planned_once_for_all_that_join_within_a_debounce_of_each_other() -> (
    None
):
    """Earlier, the first consumer got all partitions, and handed most of them over again."""
    handoffs, first = _moved_at_the_start(8, 0.6)
    assert handoffs == 0
    assert 5.0 < first < 6.5, "a debounce after the last one"


def test_a_group_that_begins_waits_for_ten_debounces_at_most() -> None:
    """Even if consumers keep joining, the first partition is assigned in time."""
    handoffs, first = _moved_at_the_start(24, 0.6)
    assert 9.5 < first < 11.5
    assert handoffs > 0


def test_a_consumer_that_joins_a_group_at_work_waits_for_one_debounce() -> None:
    """A series of joins must not delay the plan, as an owner may have died meanwhile."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 24}, debounce_s=1.0)
            await b.consumer(node, "a")
            await b.settles(24)
            for number in range(4):
                await b.consumer(node, f"c{number}")
                await asyncio.sleep(0.6)
            assert sum(len(helper.owned) > 0 for helper in b.helpers) > 1
        await kept.close()

    virtually(story)


class _Failing(MemoryStore):
    """A store that raises errors while ``fails`` is set."""

    fails: type[Exception] | None = None

    async def txn(self, compares: Any, writes: Any) -> TxnResult:
        """Refuse writes of assignments."""
        if self.fails is not None and any("/assignments/" in write.key for write in writes):
            raise self.fails("not now")
        return await super().txn(compares, writes)


@pytest.mark.parametrize("error", ["StoreUnavailable", "QuotaExceeded"])
def test_a_plan_that_could_not_be_written_is_made_again(error: str) -> None:
    """No partition has an owner, and no further change causes a plan."""
    from faust_assigner.service import errors

    async def story() -> None:
        kept = _Failing(clock=LoopClock())
        kept.fails = getattr(errors, error)
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 8})
            await b.consumer(node, "a")
            await asyncio.sleep(20.0)
            assert b.owners() == {}
            kept.fails = None
            await b.settles(8)
        await kept.close()

    virtually(story)


async def test_the_loop_goes_on_while_a_large_group_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan waits for the loop, and consumers register meanwhile."""
    begun, free = threading.Event(), threading.Event()
    seen: list[Any] = []

    def waits(view: Any, consumers: Any, **options: Any) -> Targets:
        seen.append(view)
        begun.set()
        assert free.wait(PATIENCE_S), "the loop stood still meanwhile"
        return choose(view, consumers, **options)

    monkeypatch.setattr(rebalancer, "choose", waits)
    monkeypatch.setattr(rebalancer, "LARGE", 8)
    kept = store()
    async with Bench(lambda: kept) as b:
        node = await b.node({"t": 8}, consumer_ttl_s=60.0, leader_ttl_s=60.0)
        await b.consumer(node, "a")
        async with asyncio.timeout(PATIENCE_S):
            while not begun.is_set():
                await asyncio.sleep(0.01)
        await b.consumer(node, "b")
        free.set()
        await b.settles(4, 4)
        assert all(view is not node._mirror.view for view in seen)
    await kept.close()


@pytest.mark.parametrize(("partitions", "is_beside"), [(3_999, False), (4_000, True)])
async def test_from_4000_partitions_on_a_thread_plans(partitions: int, is_beside: bool) -> None:
    """Such a plan takes about 50 ms."""
    view, key = View(ALL), ALL.topic("t")
    value = codec.dump_topic(TopicConfig("t", partitions))
    view.apply(Event(key, 1, KeyValue(key, value, 1, 1)))
    thread = await rebalancer._run_beside_loop(view, lambda view: threading.get_ident())
    assert (thread != threading.get_ident()) is is_beside


class _Slow(MemoryStore):
    """A store whose listings take two seconds, as for a large group."""

    listings = 0

    async def list(self, prefix: str) -> Listing:
        """List after a delay."""
        self.listings += 1
        await asyncio.sleep(2.0)
        return await super().list(prefix)


def test_listings_that_take_long_are_made_less_often_and_the_instance_stays_well() -> None:
    """Listings take a twentieth of the time; in between the store is asked for one key."""

    async def story() -> None:
        kept = _Slow(clock=LoopClock())
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 4}, reconcile_s=5.0)
            await b.consumer(node, "a")
            await b.settles(4)
            kept.listings = 0
            for _ in range(400):
                await asyncio.sleep(1.0)
                assert node.serving
            assert 7 <= kept.listings <= 10
        await kept.close()

    virtually(story)


class _Deposing(Metrics):
    """Ends the leader's term between its first plan and the write of this plan."""

    node: AssignerNode | None = None
    ended = 0

    def rebalanced(self, moves: int, took_s: float) -> None:
        """Treat the lease as lost, as after a pause of the process."""
        if self.node is not None and self.node._election.term is not None and not self.ended:
            self.ended += 1
            self.node._election.term.lease.give_up()


def test_a_leader_whose_term_ended_before_it_wrote_its_plan_plans_anew_in_the_next() -> None:
    """No input of the plan has changed since, and no other instance leads."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            metrics = _Deposing()
            metrics.node = await b.node({"t": 2}, metrics=metrics)
            await b.consumer(metrics.node, "a")
            await b.settles(2)
            assert metrics.ended == 1
        await kept.close()

    virtually(story)


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.mark.parametrize(
    ("busy", "keys"),
    [
        (set(), {ALL.handoff(T0), ALL.assignment(T2)}),
        ({ALL.handoff(T0)}, {ALL.assignment(T2)}),
        ({ALL.assignment(T0)}, {ALL.assignment(T2)}),
        ({ALL.assignment(T2)}, {ALL.handoff(T0)}),
        ({ALL.consumer("b")}, {ALL.handoff(T0)}),
        ({ALL.handoff(T1)}, {ALL.handoff(T0), ALL.assignment(T2)}),
    ],
)
def test_a_bundle_with_any_busy_key_waits(
    monkeypatch: pytest.MonkeyPatch, busy: set[str], keys: set[str]
) -> None:
    """It still counts as a move, and its partition still waits; without busy keys all go."""
    consumers = [Consumer(name="a"), Consumer(name="b")]
    view = view_of(*consumers, topics={"t": 3}, owners={T0: "a", T1: "a"})
    targets = Targets({T0: "b", T1: "a", T2: "b"}, {})
    monkeypatch.setattr(rebalancer, "choose", lambda *_, **__: targets)
    made = rebalancer._decide_moves(view, ServiceSettings(prefix="/g/"), NEUTRAL, 7.0, busy)
    assert {write.key for bundle in made.bundles for write in bundle.writes} == keys
    assert (made.moves, made.waiting) == (2, 1)


def test_a_planner_that_fails_moves_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault is logged with its trace; other errors are not hidden."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    view = view_of(Consumer(name="a"), topics={"t": 1})
    monkeypatch.setattr(rebalancer, "choose", fails)
    error: Exception = PlanInputError("bad input")
    made = rebalancer._decide_moves(view, ServiceSettings(prefix="/g/"), NEUTRAL, 7.0, ())
    assert (list(made.bundles), made.moves, made.waiting) == ([], 0, 0)
    assert [one.exc_info is not None for one in caplog.records] == [True]
    error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        rebalancer._decide_moves(view, ServiceSettings(prefix="/g/"), NEUTRAL, 7.0, ())


@pytest.mark.parametrize(
    ("owned", "partitions", "is_large"), [(2, 2, False), (3, 2, True), (0, 5, True), (4, 0, False)]
)
async def test_assignments_and_partitions_together_make_a_group_large(
    monkeypatch: pytest.MonkeyPatch, owned: int, partitions: int, is_large: bool
) -> None:
    """A large one is planned in a thread, from a copy that no change reaches."""
    monkeypatch.setattr(rebalancer, "LARGE", 5)
    owners = {TopicPartition("t", number): "a" for number in range(owned)}
    view = view_of(topics={"t": partitions} if partitions else {}, owners=owners)
    found, thread = await rebalancer._run_beside_loop(
        view, lambda seen: (seen, threading.get_ident())
    )
    assert (found is not view, thread != threading.get_ident()) == (is_large, is_large)
    assert found.assignments == view.assignments
