"""Heartbeats at any instance: their renewals, and the digest of the consumer's holdings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.commands import Assignment, Pulse
from faust_assigner.service.digest import Held, digest_of
from faust_assigner.service.errors import Replaced, StoreUnavailable, WrongCaller
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.metrics import Metrics
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import HEARTBEATS, Consumer, Ended
from faust_assigner.service.serving.holdings import ExpectedHoldings
from faust_assigner.service.store.base import Event, KeyValue, Put
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, Helper, LoopClock, eventually, virtually
from tests.unit.service.stories import ALL, AT, HANDOFF, put, store, view_of

TIMES: dict[str, Any] = {
    "consumer_ttl_s": 30.0,
    "consumer_keepalive_s": 5.0,
    "reconcile_s": 5.0,
    "strict": True,
}
#: A third of the time to live: a difference of this age causes a repair.
LASTS_S = 10.0


class Counting(Metrics):
    """Counts the repairs."""

    def __init__(self) -> None:
        self.repairs = 0

    def holdings_repaired(self) -> None:
        """Count a repair."""
        self.repairs += 1


def staged(story: Callable[[Bench, MemoryStore], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with its own store, in virtual time."""

    async def play() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            await story(b, kept)
        await kept.close()

    virtually(play)


def beating(name: str, incarnation: str = "one", identity: str = "") -> Consumer:
    """A consumer that sends heartbeats."""
    return Consumer(
        name=name, incarnation=incarnation, identity=identity, capabilities=(HEARTBEATS,)
    )


async def begin(b: Bench, node: AssignerNode, name: str) -> Helper:
    """Connect a consumer without sending heartbeats."""
    return await b.consumer(node, name, consumer=beating(name))


def says(helper: Helper) -> Held:
    """The digest of the helper's holdings."""
    return digest_of((*at, epoch) for at, epoch in helper.owned.items())


async def beats(
    helper: Helper, *nodes: AssignerNode, seconds: float, every: float = 3.0, **said: Any
) -> float | None:
    """Send heartbeats to these instances in turn, and return the last answer."""
    assert helper.stream is not None
    lives: float | None = None
    for number in range(int(seconds / every)):
        node = nodes[number % len(nodes)]
        lives = await node.heartbeat(
            helper.name,
            helper.stream.session,
            held=said.get("held", says(helper)),
            incarnation="one",
        )
        await asyncio.sleep(every)
    return lives


def test_heartbeats_at_another_instance_keep_a_registration_alive() -> None:
    """A load balancer spreads single calls; the stream's instance receives no heartbeat."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first, second = await b.node({"t": 4}, **TIMES), await b.node(**TIMES)
        one = await begin(b, first, "a")
        await b.settles(4)
        lives = await beats(one, second, seconds=300.0)
        assert one.ended is None
        assert lives is not None
        assert 14.0 < lives <= 20.0
        assert len(one.of(Assignment)) == 2, "it registered once, and was given its partitions"

    staged(story)


def test_a_consumer_that_sends_none_is_dead_a_time_to_live_after_its_last() -> None:
    """Neither its stream nor the instance of its stream keeps it alive."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first, second = await b.node({"t": 4}, **TIMES), await b.node(**TIMES)
        one = await begin(b, first, "a")
        await b.settles(4)
        await beats(one, second, first, seconds=60.0)
        await asyncio.sleep(21.0)
        assert await kept.get(ALL.consumer("a")) is not None
        await asyncio.sleep(7.0)
        assert await kept.get(ALL.consumer("a")) is None
        assert one.ended is Ended.LEASE_LOST

    staged(story)


def test_the_answer_never_promises_more_than_the_lease_has() -> None:
    """The promise leaves a third of the time to live, after any renewal at any instance."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        nodes = [await b.node({"t": 1}, **TIMES), await b.node(**TIMES)]
        one = await begin(b, nodes[0], "a")
        await b.settles(1)
        for number in range(200):
            lives = await beats(one, nodes[number % 3 % 2], seconds=0.7, every=0.7)
            kv = await kept.get(ALL.consumer("a"))
            assert kv is not None
            assert lives is not None
            left = kept._leases[kv.lease].expires_at - LoopClock().monotonic()
            assert lives - 0.7 <= left - 9.9

    staged(story)


def test_heartbeats_of_a_new_session_renew_its_own_lease() -> None:
    """An instance that renewed the previous session must switch to the new session's lease."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first, second = await b.node({"t": 1}, **TIMES), await b.node(**TIMES)
        one = await begin(b, first, "a")
        await b.settles(1)
        await beats(one, second, seconds=12.0)
        again = await begin(b, first, "a")
        assert again.stream is not None
        assert one.stream is None or again.stream.session != one.stream.session
        await asyncio.sleep(1.0)
        assert await beats(again, second, seconds=120.0) is not None
        assert again.ended is None
        assert await kept.get(ALL.consumer("a")) is not None

    staged(story)


def test_heartbeats_of_the_session_before_renew_the_next_registration() -> None:
    """While the registration's answer is pending, the process keeps its partitions at any instance."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first, second = await b.node({"t": 1}, **TIMES), await b.node(**TIMES)
        one = await begin(b, first, "a")
        await b.settles(1)
        assert one.stream is not None
        before = one.stream.session
        unanswered = await first.register(beating("a"))
        assert unanswered.session != before
        for number in range(20):
            lives = await (first, second)[number % 2].heartbeat("a", before, incarnation="one")
            assert lives is not None
            assert 14.0 < lives <= 20.0
            await asyncio.sleep(3.0)
        assert await kept.get(ALL.consumer("a")) is not None

    staged(story)


@pytest.mark.parametrize(
    ("session", "incarnation"), [("", "one"), ("n0-7", ""), ("n0-7", "two"), ("n0-7", "~n0-7")]
)
def test_a_session_of_no_registered_process_is_unknown(session: str, incarnation: str) -> None:
    """Its consumer must register again; no lease is renewed."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        await begin(b, node, "a")
        assert await node.heartbeat("a", session, incarnation=incarnation) is None
        assert await node.heartbeat("nobody", session, incarnation="one") is None

    staged(story)


def test_an_instance_that_has_not_heard_of_a_registration_asks_the_store() -> None:
    """The first heartbeat may arrive before the registration's event."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        late = await b.node(**TIMES)
        late._mirror.listeners.clear()
        one = await begin(b, node, "a")
        late._mirror.view.consumers.clear()
        assert await beats(one, late, seconds=3.0) is not None

    staged(story)


def test_nobody_keeps_the_registration_of_another_identity_alive() -> None:
    """The instance may have received the registration's event or not."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        helper = await b.consumer(node, "a", consumer=beating("a", identity="a"))
        assert helper.stream is not None
        for _ in range(2):
            with pytest.raises(WrongCaller):
                await node.heartbeat("a", helper.stream.session, identity="b", incarnation="one")
            node._mirror.view.consumers.clear()

    staged(story)


def test_a_replaced_process_is_not_kept_alive() -> None:
    """The successor waits for the end of the old lease, so it must not be renewed."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        old = await begin(b, node, "a")
        await b.settles(1)
        new = await b.consumer(node, "a", consumer=beating("a", "two"))
        assert old.stream is not None
        assert new.stream is not None
        for _ in range(12):
            with pytest.raises(Replaced):
                await node.heartbeat("a", old.stream.session, incarnation="one")
            await node.heartbeat("a", new.stream.session, incarnation="two")
            await asyncio.sleep(3.0)
        assert len(new.owned) == 1

    staged(story)


def test_a_store_that_does_not_answer_is_no_end_of_a_registration() -> None:
    """The outcome is unknown, so the consumer retries at any instance until its fence."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        one = await begin(b, node, "a")
        await b.settles(1)
        await beats(one, node, seconds=9.0)
        renew = kept.keep_alive

        async def silent(lease_id: int, *, timeout_s: float | None = None) -> float:
            raise StoreUnavailable("no answer in time")

        kept.keep_alive = silent  # type: ignore[method-assign]
        lives = await beats(one, node, seconds=6.0)
        assert lives is not None
        assert lives > 0
        await asyncio.sleep(15.0)
        with pytest.raises(StoreUnavailable):
            await beats(one, node, seconds=3.0)
        kept.keep_alive = renew  # type: ignore[method-assign]

    staged(story)


# -- holdings -----------------------------------------------------------------------------------------------


def test_the_digest_is_what_the_protocol_says() -> None:
    """Clients in other languages compute the same digest."""
    first, second = (
        int.from_bytes(sha256(text).digest()[:8], "big") for text in (b"a.b/0/7", b"a.b/10/18000")
    )
    expected = Held(2, (first + second) % 2**64)
    assert digest_of([("a.b", 0, 7), ("a.b", 10, 18_000)]) == expected
    assert Held().plus("a.b", 10, 18_000).plus("a.b", 0, 7) == expected
    assert expected.minus("a.b", 0, 7).minus("a.b", 10, 18_000) == Held()


async def _differs(b: Bench, node: AssignerNode, where: str) -> Helper:
    one = await begin(b, node, "a")
    await b.settles(4)
    at = TopicPartition("t", 1)
    if where == "lost":
        del one.owned[at]
    elif where == "extra":
        one.owned[TopicPartition("t", 99)] = 5
    elif where == "epoch":
        one.owned[at] -= 1
    return one


@pytest.mark.parametrize("where", ["lost", "extra", "epoch"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_consumer_that_holds_something_else_is_told_everything_again(
    where: str, elsewhere: bool
) -> None:
    """The stream's instance repairs and counts, whichever instance receives the heartbeat."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        counted = Counting()
        node = await b.node({"t": 4}, metrics=counted, **TIMES)
        other = await b.node(metrics=counted, **TIMES)
        one = await _differs(b, node, where)
        owned = {said.at: said.epoch for said in await node.overview.assignments()}
        assert one.owned != owned
        await beats(one, other if elsewhere else node, seconds=LASTS_S + 6.0)
        assert one.owned == owned
        assert counted.repairs == 1
        await beats(one, node, other, seconds=100.0)
        assert counted.repairs == 1

    staged(story)


def test_what_is_on_its_way_is_no_difference() -> None:
    """Consumers come and go, and no command is repeated."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        counted = Counting()
        node = await b.node({"t": 12}, metrics=counted, **TIMES)
        one = await begin(b, node, "a")
        await b.settles(12)
        for number in range(6):
            await b.consumer(node, f"c{number}", warm_s=2.0)
            await beats(one, node, seconds=12.0)
        assert counted.repairs == 0
        assert len([c for c in one.of(Assignment) if c.full]) == 1

    staged(story)


def test_differences_that_change_all_the_time_are_news_on_their_way() -> None:
    """A consumer with constantly changing partitions is always slightly behind."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        counted = Counting()
        node = await b.node({"t": 4}, metrics=counted, **TIMES)
        one = await begin(b, node, "a")
        await b.settles(4)
        for number in range(20):
            await beats(one, node, seconds=3.0, held=Held(3, number))
        assert counted.repairs == 0

    staged(story)


def test_a_partition_that_is_being_released_is_not_held() -> None:
    """Its owner may take long, and is not given the partition again."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        counted = Counting()
        node = await b.node({"t": 2}, metrics=counted, release_timeout_s=60.0, **TIMES)
        one = await begin(b, node, "a")
        one.releases = False
        await b.settles(2)
        await b.consumer(node, "b")
        await eventually(b.open_handoffs)
        [leaving] = node._mirror.view.handoffs
        await asyncio.sleep(1.0)
        del one.owned[leaving]
        await beats(one, node, seconds=40.0)
        assert counted.repairs == 0

    staged(story)


def test_a_partition_that_is_being_released_is_left_out_under_its_raised_epoch() -> None:
    """Under a different epoch its digest would stay in the sum, and each release would need a repair."""
    handoff = replace(HANDOFF, phase=Phase.READY, strict=True)
    kept = AT._replace(partition=1)
    view = view_of(
        *(Consumer(name=name) for name in ("old", "new")),
        topics={"t": 2},
        owners={AT: "old", kept: "old"},
        handoffs=[handoff],
    )
    view.apply(Event(ALL.epochs, 90, KeyValue(ALL.epochs, codec.dump_base(1_000), 90, 90)))
    epoch = 1_000 + view.assignments[kept].value.epoch
    assert ExpectedHoldings().of(view, "old") == digest_of([(*kept, epoch)])


def test_raised_epochs_are_held_under_their_new_numbers() -> None:
    """All epochs change at once, and no consumer differs."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        counted = Counting()
        node = await b.node({"t": 4}, metrics=counted, **TIMES)
        one = await begin(b, node, "a")
        await b.settles(4)
        await kept.txn([], [Put(ALL.epochs, codec.dump_base(10**15))])
        await beats(one, node, seconds=40.0)
        assert min(one.owned.values()) > 10**15
        assert counted.repairs == 0
        await b.consumer(node, "b")
        await beats(one, node, seconds=40.0)
        assert (len(one.owned), counted.repairs) == (2, 0)

    staged(story)


def test_only_the_session_that_is_named_gets_its_assignment_again() -> None:
    """The previous session's mark may still be in the store after the new registration."""

    async def story() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            node = await b.node({"t": 1})
            one = await b.consumer(node, "a")
            await b.settles(1)
            assert one.stream is not None
            before = len(one.of(Assignment))
            for session, told in (("another", before), (one.stream.session, before + 1)):
                await put(kept, ALL.resync("a"), session.encode())
                await asyncio.sleep(1.0)
                assert len(one.of(Assignment)) == told
        await kept.close()

    virtually(story)


def test_a_consumer_that_goes_on_differing_is_told_once_in_a_time_to_live() -> None:
    """With a wrong digest, every heartbeat would cause a large assignment."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        counted = Counting()
        node = await b.node({"t": 4}, metrics=counted, **TIMES)
        other = await b.node(metrics=counted, **TIMES)
        one = await begin(b, node, "a")
        await b.settles(4)
        await beats(one, node, other, seconds=120.0, held=Held(4, 7))
        assert 3 <= counted.repairs <= 5

    staged(story)


def test_a_consumer_that_says_nothing_of_what_it_holds_is_not_compared() -> None:
    """Older consumers send no digest."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        counted = Counting()
        node = await b.node({"t": 4}, metrics=counted, **TIMES)
        one = await begin(b, node, "a")
        await b.settles(4)
        await beats(one, node, seconds=60.0, held=None)
        assert counted.repairs == 0

    staged(story)


# -- signs of life on streams -------------------------------------------------------------------------------


def test_an_idle_stream_says_that_it_lives() -> None:
    """Only consumers with heartbeats know this message."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 4}, **TIMES)
        one, plain = await begin(b, node, "a"), await b.consumer(node, "plain")
        await beats(one, node, seconds=60.0)
        assert 15 <= len(one.of(Pulse)) <= 20
        assert plain.of(Pulse) == []

    staged(story)


def test_an_instance_that_hears_no_news_ends_its_streams() -> None:
    """Heartbeats at a second instance keep the consumers alive, but without commands."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 4}, **TIMES)
        one = await begin(b, node, "a")
        await b.settles(4)
        stamp = node._mirror._note_answer
        node._mirror._note_answer = lambda: None  # type: ignore[method-assign]
        await asyncio.sleep(24.0)
        node._mirror._note_answer = stamp  # type: ignore[method-assign]
        assert one.ended is Ended.LEASE_LOST

    staged(story)
