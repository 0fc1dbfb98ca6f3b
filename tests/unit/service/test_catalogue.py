"""The topics of the service: from the configuration, from operators and from Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import NotFound, StoreUnavailable
from faust_assigner.service.keys import Keys
from faust_assigner.service.leading.catalogue import Catalogue
from faust_assigner.service.leading.election import Deposed
from faust_assigner.service.records import BY_OPERATOR, Consumer, TopicConfig
from faust_assigner.service.server.discovery import KafkaTopics
from faust_assigner.service.store.base import Delete, KeyValue
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.tasks import cancel_and_wait
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import Bench, LoopClock, eventually, virtually
from tests.unit.service.stories import ALL, put, store, view_of

KEYS = Keys("/x/")


def catalogue(kept: MemoryStore, **topics: int) -> Catalogue:
    """The catalogue of an instance that is configured with these topics."""
    anything: Any = None
    return Catalogue(kept, KEYS, anything, anything, anything, topics, None)


async def count(kept: MemoryStore) -> int:
    """The partition count of ``orders`` as stored for every instance."""
    found = await kept.get(KEYS.topic("orders"))
    assert found is not None
    return codec.load_topic(found.value).partition_count


@pytest.mark.parametrize(("grown", "started", "after"), [(5, 2, 5), (5, 5, 5), (5, 7, 7)])
async def test_an_instance_that_starts_shrinks_no_topic(
    grown: int, started: int, after: int
) -> None:
    """Earlier, an old count on the command line took the owners of the last partitions away."""
    kept = store()
    await catalogue(kept, orders=2).write()
    await catalogue(kept).set("orders", grown)
    await catalogue(kept, orders=started).write()
    assert await count(kept) == after


async def test_an_operator_may_shrink_one() -> None:
    """An explicit count of an operator has priority."""
    kept = store()
    await catalogue(kept, orders=5).write()
    await catalogue(kept).set("orders", 2)
    assert await count(kept) == 2


class RemovedMeanwhile(MemoryStore):
    """An operator removes ``orders`` just before a starting instance reads the topic."""

    is_started = False

    async def get(self, key: str) -> KeyValue | None:
        """Remove the topic first, then read."""
        if key == KEYS.topic("orders") and self.is_started:
            self.is_started = False
            await catalogue(self).remove("orders")
        return await super().get(key)


async def test_a_removal_beside_the_start_of_an_instance_holds() -> None:
    """Earlier, the instance wrote the topic despite the mark, and it was assigned again."""
    kept = RemovedMeanwhile(clock=LoopClock())
    await catalogue(kept, orders=2).write()
    kept.is_started = True
    await catalogue(kept, orders=2).write()
    assert await kept.get(KEYS.removed("orders")) is not None
    assert await kept.get(KEYS.topic("orders")) is None


async def test_a_removal_beside_a_subscription_holds() -> None:
    """Kafka still has the topic, and a consumer requests it at the same moment."""
    kept = RemovedMeanwhile(clock=LoopClock())
    mirror: Any = SimpleNamespace(view=view_of(topics={}))

    async def partitions(topic: str) -> int:
        await catalogue(kept, orders=2).write()
        kept.is_started = True
        return 3

    anything: Any = None
    subscribed = Catalogue(kept, KEYS, anything, anything, mirror, {}, partitions)
    with pytest.raises(NotFound, match="an operator removed it"):
        await subscribed.need("orders")
    assert await kept.get(KEYS.topic("orders")) is None


def test_consumers_that_wait_for_a_silent_kafka_wait_beside_each_other() -> None:
    """Earlier, calls waited in turn: the tenth consumer got its answer after a hundred seconds."""

    async def story() -> None:
        topics = KafkaTopics("nowhere:1", timeout_s=10.0)

        async def silent(topic: str) -> int | None:
            await asyncio.sleep(1e6)
            return None

        topics._count = silent  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        found = await asyncio.gather(*map(topics.count, "abcdefghij"), return_exceptions=True)
        assert [type(one) for one in found] == [StoreUnavailable] * 10
        assert asyncio.get_running_loop().time() < began + 11.0

    virtually(story)


def test_a_leader_that_was_deposed_asks_kafka_no_more() -> None:
    """Otherwise each topic would be queried by two instances."""
    asked: list[str] = []

    async def partitions(topic: str) -> int:
        asked.append(topic)
        return 9

    class Term:
        async def commit(self, compares: object, writes: object) -> None:
            raise Deposed

    async def story() -> None:
        anything: Any = None
        term: Any = Term()
        mirror: Any = SimpleNamespace(view=view_of(topics={"a": 1, "b": 1}))
        settings = ServiceSettings(topic_refresh_s=60.0)
        found = Catalogue(anything, KEYS, settings, LoopClock(), mirror, {}, partitions)
        await asyncio.wait_for(found.refresh(term), 200.0)
        assert asked == ["a"]

    virtually(story)


def test_a_check_of_an_earlier_term_does_not_count_as_the_last_one() -> None:
    """A topic is removed after two consecutive checks without it; another leader found it between."""
    kafka: dict[str, int] = {}
    written: list[object] = []

    async def partitions(topic: str) -> int | None:
        return kafka.get(topic)

    class Term:
        async def commit(self, compares: object, writes: object) -> None:
            written.append(writes)

    async def story() -> None:
        anything: Any = None
        term: Any = Term()
        topic = replace(view_of(topics={"a": 1}).topics["a"], value=TopicConfig("a", 1, True))
        view = view_of(topics={})
        view.topics["a"] = topic
        mirror: Any = SimpleNamespace(view=view)
        settings = ServiceSettings(topic_refresh_s=60.0)
        found = Catalogue(anything, KEYS, settings, LoopClock(), mirror, {}, partitions)
        for checks, removals in ((1, 0), (1, 0), (2, 1)):
            refreshing = asyncio.create_task(found.refresh(term))
            await asyncio.sleep(60.0 * checks + 1.0)
            await cancel_and_wait(refreshing)
            assert len(written) == removals

    virtually(story)


# -- removed and recreated topics ---------------------------------------------------------------------------


class Kafka:
    """Kafka's topics; with ``answers`` false, it does not answer."""

    def __init__(self, **topics: int) -> None:
        self.topics: dict[str, int] = topics
        self.answers = True

    async def count(self, topic: str) -> int | None:
        """Answer a query of the service."""
        if not self.answers:
            raise OSError("no broker")
        return self.topics.get(topic)


def told(story: Callable[[Bench, MemoryStore], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in virtual time."""

    async def run() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            await story(b, kept)
        await kept.close()

    virtually(run)


@pytest.mark.parametrize("lost", [["orders"], ["orders", "bills"]])
def test_a_topic_that_is_lost_from_the_store_comes_back_from_the_configuration(
    lost: list[str],
) -> None:
    """Owners keep their partitions; earlier, the topic was missing until the next restart."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        await b.node({"orders": 4, "bills": 2}, topic_refresh_s=1_000.0)
        one = await b.consumer(b.nodes[0], "a")
        await b.settles(6)
        before = dict(one.owned)
        await kept.txn([], [Delete(ALL.topic(topic)) for topic in lost])
        await asyncio.sleep(5.0)
        assert set(b.nodes[0]._mirror.view.topics) == {"orders", "bills"}
        assert one.owned == before

    told(story)


def test_a_store_that_was_wiped_has_its_topics_again() -> None:
    """All keys of the group are deleted."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"orders": 4})
        await b.consumer(node, "a")
        await b.settles(4)
        await kept.txn([], [Delete(key) for key in list(kept._keys)])
        await eventually(lambda: "orders" in node._mirror.view.topics)

    told(story)


def test_a_topic_that_an_operator_removed_is_nobodys_and_stays_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only an operator restores the topic, not an instance with an old command line."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"orders": 4, "bills": 2})
        one = await b.consumer(node, "a", consumer=Consumer(name="a", topics=("orders", "bills")))
        await b.settles(6)
        await node.remove_topic("orders")
        await eventually(lambda: {at.topic for at in one.owned} == {"bills"})
        await b.node({"orders": 4})
        await asyncio.sleep(5.0)
        assert {at.topic for at in one.owned} == {"bills"}
        with pytest.raises(NotFound, match="an operator removed it"):
            await node.register(Consumer(name="b", topics=("orders",)))
        assert "was missing in the store" not in caplog.text
        await node.set_topic("orders", 3)
        await eventually(lambda: len(one.owned) == 5)

    told(story)


@pytest.mark.parametrize(
    "fault", ["an operator removed it", "Kafka has it no more", "Kafka is down"]
)
def test_a_process_registers_again_without_a_topic_that_is_gone(fault: str) -> None:
    """A registered process keeps its other topics; only new processes are refused."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        kafka = Kafka(orders=4)
        node = await b.node({"orders": 4, "bills": 2}, count=kafka.count)
        wishes = Consumer(
            name="a", topics=("bills", "gone", "orders"), incarnation="i1", returns=True
        )
        if fault == "an operator removed it":
            await put(kept, ALL.removed("gone"), BY_OPERATOR)
        kafka.answers = fault != "Kafka is down"
        one = await b.consumer(node, "a", consumer=wishes)
        await b.settles(6)
        assert {at.topic for at in one.owned} == {"bills", "orders"}
        with pytest.raises((NotFound, StoreUnavailable)):
            await node.register(replace(wishes, name="b", returns=False))

    told(story)


def test_a_topic_that_an_operator_sets_again_has_no_mark_of_its_removal() -> None:
    """With the mark, the topic would neither grow with Kafka nor be restored from the configuration."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 2})
        await node.remove_topic("t")
        await node.set_topic("t", 2)
        assert await kept.get(ALL.removed("t")) is None
        await kept.txn([], [Delete(ALL.topic("t"))])
        await b.consumer(node, "a")
        await b.settles(2)

    told(story)


def test_a_topic_that_is_removed_and_set_again_has_higher_epochs() -> None:
    """A frozen owner may write until its lease ends: a sink can refuse it by its epoch."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 2}, strict=True)
        frozen = await b.consumer(node, "a")
        await b.settles(2)
        before = dict(frozen.owned)
        await node.remove_topic("t")
        await eventually(lambda: not frozen.owned)
        await node.set_topic("t", 2)
        other = await b.consumer(await b.node(strict=True), "b")
        await b.settles(1, 1)
        for owner in (frozen, other):
            assert all(epoch > before[at] for at, epoch in owner.owned.items())

    told(story)


def test_an_unknown_topic_is_not_removed() -> None:
    """A mark would block the topic before it exists."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"orders": 4})
        with pytest.raises(NotFound, match="no topic bills"):
            await node.remove_topic("bills")
        assert await kept.get(ALL.removed("bills")) is None

    told(story)


@pytest.mark.parametrize("named", ["by a consumer", "by the configuration"])
def test_a_topic_that_was_deleted_in_kafka_is_unassigned_until_kafka_has_it_again(
    named: str,
) -> None:
    """Earlier, its partitions kept their owners."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        kafka = Kafka(orders=4, bills=2)
        configured = {"orders": 4} if named == "by the configuration" else {}
        node = await b.node(configured, count=kafka.count)
        wanted = Consumer(name="a", topics=("orders", "bills"))
        one = await b.consumer(node, "a", consumer=wanted)
        await b.settles(6)
        await asyncio.sleep(1.0)
        del kafka.topics["orders"]
        await eventually(lambda: {at.topic for at in one.owned} == {"bills"})
        await asyncio.sleep(2.0)
        assert {at.topic for at in one.owned} == {"bills"}
        kafka.topics["orders"] = 5
        await eventually(lambda: len(one.owned) == 7)

    told(story)


def test_a_topic_that_kafka_never_had_is_kept() -> None:
    """An operator configured it: its partitions are not Kafka's."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"shards": 4}, count=Kafka().count)
        one = await b.consumer(node, "a")
        await asyncio.sleep(5.0)
        assert len(one.owned) == 4

    told(story)


def test_a_kafka_that_does_not_answer_or_errs_once_takes_no_topic_away() -> None:
    """A broker that has just started may not know the topic yet."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        kafka = Kafka(orders=4)
        node = await b.node(count=kafka.count)
        one = await b.consumer(node, "a", consumer=Consumer(name="a", topics=("orders",)))
        await b.settles(4)
        before = dict(one.owned)
        kafka.answers = False
        await asyncio.sleep(3.0)
        kafka.answers = True
        looks = 0

        async def once(topic: str) -> int | None:
            nonlocal looks
            looks += 1
            return None if looks == 1 else 4

        node._catalogue.count_partitions = once
        await asyncio.sleep(3.0)
        assert looks > 2
        assert one.owned == before

    told(story)


def test_two_misses_with_an_answer_between_them_take_no_topic_away() -> None:
    """Only consecutive misses count: a broker may restart once a day."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        looks = 0

        async def every_second(topic: str) -> int | None:
            nonlocal looks
            looks += 1
            return None if looks % 2 == 0 else 4

        node = await b.node(count=every_second)
        one = await b.consumer(node, "a", consumer=Consumer(name="a", topics=("orders",)))
        await b.settles(4)
        before = dict(one.owned)
        await asyncio.sleep(5.0)
        assert looks > 6
        assert one.owned == before

    told(story)


def test_a_topic_that_a_consumer_wants_is_found_in_kafka_again_when_the_store_lost_it() -> None:
    """The topic returns without any new registration."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node(count=Kafka(orders=4).count)
        one = await b.consumer(node, "a", consumer=Consumer(name="a", topics=("orders",)))
        await b.settles(4)
        await kept.txn([], [Delete(ALL.topic("orders"))])
        await asyncio.sleep(5.0)
        assert len(one.owned) == 4
        assert set(node._mirror.view.topics) == {"orders"}

    told(story)
