"""The topics of the service: complete writes, and their exact times."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import BadRequest, NotFound, StoreUnavailable
from faust_assigner.service.keys import MAX_PARTITIONS
from faust_assigner.service.leading.catalogue import Catalogue
from faust_assigner.service.leading.election import Deposed
from faust_assigner.service.records import BY_OPERATOR, IN_KAFKA, Consumer, TopicConfig
from faust_assigner.service.store.base import Delete, Event, Put, TxnResult, Write
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.tasks import cancel_and_wait
from faust_assigner.service.view import Change
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.stories import ALL, view_of

SETTINGS = ServiceSettings(prefix="/g/", topic_refresh_s=100.0)


class Kept:
    """A catalogue, its store, and a view that follows the store on request."""

    def __init__(
        self, topics: Mapping[str, int] | None = None, kafka: Mapping[str, Any] | None = None
    ) -> None:
        self.store = MemoryStore(clock=LoopClock())
        self.view = view_of(topics={})
        self.kafka = kafka
        self.asked: list[str] = []
        mirror: Any = SimpleNamespace(view=self.view)
        count = None if kafka is None else self._count
        self.catalogue = Catalogue(
            self.store, ALL, SETTINGS, LoopClock(), mirror, topics or {}, count
        )

    async def _count(self, topic: str) -> int | None:
        self.asked.append(topic)
        assert self.kafka is not None
        found = self.kafka.get(topic)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    async def put(self, **values: bytes) -> None:
        """Write topics and marks: t_orders=..., r_orders=..."""
        for name, value in values.items():
            key = (ALL.topic if name[0] == "t" else ALL.removed)(name[2:])
            await self.store.txn([], [Put(key, value)])

    async def see(self) -> None:
        """Bring the view up to date."""
        listing = await self.store.list("/g/")
        for key in list(self.view.raw):
            self.view.apply(Event(key, listing.revision, None))
        for kv in listing.items:
            self.view.apply(Event(kv.key, kv.mod_revision, kv))

    async def topics(self) -> dict[str, tuple[int, bool]]:
        """Return the stored topics with their counts and whether Kafka has had them."""
        listing = await self.store.list("/g/config/topics/")
        found = [codec.load_topic(kv.value) for kv in listing.items]
        return {one.topic: (one.partition_count, one.in_kafka) for one in found}

    async def marks(self) -> dict[str, bytes]:
        """Return the marks of removed topics."""
        listing = await self.store.list("/g/removed/")
        return {kv.key.rsplit("/", 1)[1]: kv.value for kv in listing.items}


def topic(name: str, count: int, *, in_kafka: bool = False) -> bytes:
    """The value of a topic."""
    return codec.dump_topic(TopicConfig(name, count, in_kafka))


async def test_the_configuration_adds_and_grows_topics_and_neither_shrinks_nor_revives_one() -> (
    None
):
    """A removed topic does not block the others; an unreadable value is replaced."""
    kept = Kept({"a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 7})
    await kept.put(
        t_a=topic("a", 9),
        t_b=topic("b", 1),
        r_c=BY_OPERATOR,
        r_d=IN_KAFKA,
        t_e=b"?",
        t_f=topic("f", 7),
    )
    before = kept.store.revision
    await kept.catalogue.write()
    expected = {"a": (9, False), "b": (3, False), "e": (6, False), "f": (7, False)}
    assert await kept.topics() == expected
    assert await kept.marks() == {"c": BY_OPERATOR, "d": IN_KAFKA}
    assert kept.store.revision == before + 2


@pytest.mark.parametrize(
    ("count", "is_good"),
    [(1, True), (MAX_PARTITIONS, True), (0, False), (-1, False), (MAX_PARTITIONS + 1, False)],
)
async def test_a_topic_has_1_to_a_million_partitions(count: int, is_good: bool) -> None:
    """The limits hold in the configuration and in an operator's order."""
    kept = Kept()
    if is_good:
        Kept({"a": count})
        await kept.catalogue.set("a", count)
        assert await kept.topics() == {"a": (count, False)}
    else:
        with pytest.raises(BadRequest, match="a: 1 to 1000000 partitions, got"):
            Kept({"a": count})
        with pytest.raises(BadRequest, match="a: 1 to 1000000 partitions, got"):
            await kept.catalogue.set("a", count)
        assert await kept.topics() == {}


async def test_an_operator_sets_and_removes_one_topic() -> None:
    """Each change has its own revision, and creates or deletes the topic's mark."""
    kept = Kept()
    await kept.put(t_a=topic("a", 2), t_b=topic("b", 4), r_c=IN_KAFKA, r_d=BY_OPERATOR)
    start = kept.store.revision
    assert await kept.catalogue.set("c", 3) == start + 1
    assert await kept.marks() == {"d": BY_OPERATOR}
    assert await kept.catalogue.set("c", 3) == start + 1
    assert await kept.catalogue.set("b", 1) == start + 2
    assert await kept.catalogue.remove("a") == start + 3
    assert await kept.topics() == {"b": (1, False), "c": (3, False)}
    assert await kept.marks() == {"a": BY_OPERATOR, "d": BY_OPERATOR}
    with pytest.raises(NotFound, match="no topic a"):
        await kept.catalogue.remove("a")
    assert kept.store.revision == start + 3


def deleted(name: str) -> Change:
    """The deletion of a topic."""
    return Change("topics", name, None, None)


ADDED: Any = Change("topics", "x", None, "an entry")  # type: ignore[arg-type]
LEFT = Change("consumers", "a", None, None)


@pytest.mark.parametrize(
    ("changes", "is_at_once"),
    [
        ([LEFT, deleted("a")], True),
        ([deleted("a"), ADDED], True),
        ([LEFT, ADDED], False),
        ([], False),
    ],
)
def test_a_lost_topic_is_written_again_at_once_and_without_news_at_the_next_refresh(
    changes: Sequence[Change], is_at_once: bool
) -> None:
    """The loss may follow a refresh without changes, or a store failure."""

    async def story() -> None:
        kept = Kept({"a": 2, "b": 3, "c": 4})
        await kept.put(r_c=BY_OPERATOR)
        await kept.catalogue.write()
        await kept.see()
        keeping = asyncio.create_task(kept.catalogue.keep())
        await asyncio.sleep(250.0)
        for names in (("a",), ("a", "b")):
            await kept.store.txn([], [Delete(ALL.topic(name)) for name in names])
            await kept.see()
            kept.catalogue.on_changes(changes)
            await asyncio.sleep(10.0)
            assert (await kept.topics() != {}) is (is_at_once or names == ("a",))
            assert ("a" in await kept.topics()) is is_at_once
            await asyncio.sleep(90.0)
            assert await kept.topics() == {"a": (2, False), "b": (3, False)}
            await kept.see()
        await cancel_and_wait(keeping)

    virtually(story)


def test_a_lost_topic_is_written_when_the_store_answers_again() -> None:
    """The failed write is repeated at the next refresh."""

    async def story() -> None:
        kept = Kept({"a": 2})
        txn, fails = kept.store.txn, [True]

        async def failing(compares: Any, writes: Any) -> TxnResult:
            if fails:
                fails.pop()
                raise StoreUnavailable("no answer")
            return await txn(compares, writes)

        kept.store.txn = failing  # type: ignore[method-assign]
        keeping = asyncio.create_task(kept.catalogue.keep())
        await asyncio.sleep(101.0)
        assert (fails, await kept.topics()) == ([], {})
        await asyncio.sleep(100.0)
        assert await kept.topics() == {"a": (2, False)}
        await cancel_and_wait(keeping)

    virtually(story)


# -- Kafka -------------------------------------------------------------------------------------------


async def test_an_unknown_topic_of_a_subscription_comes_from_kafka() -> None:
    """The topic gets Kafka's count, and the mark of its deletion is removed."""
    kept = Kept(kafka={"a": 3, "b": 4, "x": 9, "y": 9, "z": 9})
    await kept.put(r_b=IN_KAFKA, t_y=b"?", t_seen=topic("seen", 1))
    await kept.see()
    await kept.put(t_x=topic("x", 1))
    await kept.store.txn([], [Delete(ALL.topic("seen"))])
    for name in ("a", "b", "x", "y", "seen"):
        await kept.catalogue.need(name)
    expected = {"a": (3, True), "b": (4, True), "x": (1, False), "y": (9, True)}
    assert await kept.topics() == expected
    assert (await kept.marks(), kept.asked) == ({}, ["a", "b", "y"])


@pytest.mark.parametrize(
    ("kafka", "error", "text"),
    [
        ({}, NotFound, "no topic a"),
        (None, NotFound, "no topic a"),
        ({"a": OSError("down")}, StoreUnavailable, "a: could not read .* from Kafka: down"),
    ],
)
async def test_a_topic_that_kafka_does_not_give_is_refused(
    kafka: Mapping[str, Any] | None, error: type[Exception], text: str
) -> None:
    """Kafka does not know the topic, is not configured, or does not answer."""
    kept = Kept(kafka=kafka)
    with pytest.raises(error, match=text):
        await kept.catalogue.need("a")
    assert kept.store.revision == (await Kept().store.list("/g/")).revision


async def test_a_topic_that_an_operator_removed_is_not_asked_for() -> None:
    """Kafka still has the topic."""
    kept = Kept(kafka={"a": 3})
    await kept.put(r_a=BY_OPERATOR)
    with pytest.raises(NotFound, match="an operator removed it"):
        await kept.catalogue.need("a")
    assert (kept.asked, await kept.topics()) == ([], {})


async def test_a_count_from_kafka_does_not_shrink_a_topic_that_was_added_meanwhile() -> None:
    """An operator added more partitions during the request to Kafka."""
    kept = Kept(kafka={"a": 3})
    count = kept.catalogue.count_partitions
    assert count is not None

    async def slow(name: str) -> int | None:
        await kept.put(t_a=topic("a", 9))
        return await count(name)

    kept.catalogue.count_partitions = slow
    await kept.catalogue.need("a")
    assert await kept.topics() == {"a": (9, False)}


class Term:
    """A leader's term that records its commits, and ends at one of them."""

    def __init__(self, kept: Kept, *, ends_at: int = 99) -> None:
        self.kept, self.left = kept, ends_at
        self.commits: list[tuple[float, int, tuple[Write, ...]]] = []

    async def commit(self, compares: Sequence[Any], writes: Sequence[Write]) -> TxnResult:
        """Write, unless the term is over."""
        self.left -= 1
        if not self.left:
            raise Deposed
        now = asyncio.get_running_loop().time() - 1_000.0
        self.commits.append((now, len(compares), tuple(writes)))
        result = await self.kept.store.txn(compares, writes)
        await self.kept.see()
        return result


def test_the_leader_follows_kafka_at_every_refresh() -> None:
    """Growth, first sight, return and a second miss in a row; one failure delays no topic."""

    async def story() -> None:
        kafka: dict[str, Any] = {
            "grows": 5, "same": 2, "shrinks": 1, "first": 3, "back": 4, "fails": OSError("x"), "sub": 6
        }  # fmt: skip
        kept = Kept(kafka=kafka)
        await kept.put(
            t_grows=topic("grows", 3, in_kafka=True),
            t_same=topic("same", 2, in_kafka=True),
            t_shrinks=topic("shrinks", 2, in_kafka=True),
            t_first=topic("first", 3),
            t_gone=topic("gone", 7, in_kafka=True),
            t_fails=topic("fails", 7, in_kafka=True),
            t_own=topic("own", 7),
            r_back=IN_KAFKA,
            r_out=BY_OPERATOR,
            r_out2=BY_OPERATOR,
        )
        wants = Consumer(name="c", topics=("out", "out2", "sub", "same"))
        await kept.store.txn([], [Put(ALL.consumer("c"), codec.dump_consumer(wants))])
        await kept.see()
        term: Any = Term(kept)
        refreshing = asyncio.create_task(kept.catalogue.refresh(term))
        await asyncio.sleep(99.9)
        assert kept.asked == []
        await asyncio.sleep(0.2)
        everything = ["back", "fails", "first", "gone", "grows", "own", "same", "shrinks", "sub"]
        assert kept.asked == everything

        def put(name: str, count: int) -> Put:
            return Put(ALL.topic(name), topic(name, count, in_kafka=True))

        assert term.commits == [
            (100.0, 2, (put("back", 4), Delete(ALL.removed("back")))),
            (100.0, 2, (put("first", 3),)),
            (100.0, 2, (put("grows", 5),)),
            (100.0, 2, (put("sub", 6),)),
        ]
        term.commits.clear()
        await asyncio.sleep(100.0)
        gone = ALL.topic("gone")
        assert term.commits == [(200.0, 1, (Delete(gone), Put(ALL.removed("gone"), IN_KAFKA)))]
        assert kept.asked == everything * 2
        term.commits.clear()
        kafka["gone"] = 8
        await asyncio.sleep(100.0)
        assert term.commits == [(300.0, 2, (put("gone", 8), Delete(ALL.removed("gone"))))]
        del kafka["gone"]
        await asyncio.sleep(100.0)
        assert len(term.commits) == 1
        await cancel_and_wait(refreshing)

    virtually(story)


def test_a_topic_that_an_operator_removes_during_a_refresh_stays_removed() -> None:
    """Earlier, Kafka's answer to an earlier question added the topic again, without its mark."""

    async def story() -> None:
        kept = Kept(kafka={"a": 3, "b": 3})
        await kept.put(t_a=topic("a", 2, in_kafka=True), t_b=topic("b", 2, in_kafka=True))
        await kept.see()
        count = kept.catalogue.count_partitions
        assert count is not None

        async def slow(name: str) -> int | None:
            if name == "a":  # the leader has listed both topics already
                await kept.catalogue.remove("a")
                await kept.catalogue.remove("b")
                await kept.see()
            return await count(name)

        kept.catalogue.count_partitions = slow
        refreshing = asyncio.create_task(kept.catalogue.refresh(Term(kept)))  # type: ignore[arg-type]
        await asyncio.sleep(100.1)
        assert await kept.topics() == {}
        assert await kept.marks() == {"a": BY_OPERATOR, "b": BY_OPERATOR}
        await cancel_and_wait(refreshing)

    virtually(story)


def test_the_refresh_of_a_deposed_leader_ends() -> None:
    """The refresh ends at the refused commit; without Kafka it ends at once."""

    async def story() -> None:
        kept = Kept(kafka={"a": 2, "b": 2})
        await kept.put(t_a=topic("a", 1), t_b=topic("b", 1))
        await kept.see()
        term: Any = Term(kept, ends_at=1)
        await asyncio.wait_for(kept.catalogue.refresh(term), 101.0)
        assert (kept.asked, term.commits) == (["a"], [])
        await asyncio.wait_for(Kept().catalogue.refresh(term), 1.0)

    virtually(story)
