"""A process that registers again keeps its lease, so no instance can renew a wrong lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import WrongCaller
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import HEARTBEATS, Consumer
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import Bench, eventually, virtually
from tests.unit.service.stories import ALL, store

TIMES: dict[str, Any] = {"consumer_ttl_s": 30.0, "consumer_keepalive_s": 5.0, "strict": True}


def staged(story: Callable[[Bench, MemoryStore], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario with its own store, in virtual time."""

    async def play() -> None:
        kept = store()
        async with Bench(lambda: kept) as b:
            await story(b, kept)
        await kept.close()

    virtually(play)


def beating(identity: str = "") -> Consumer:
    """A consumer that sends heartbeats."""
    return Consumer(name="a", incarnation="one", identity=identity, capabilities=(HEARTBEATS,))


async def stored(kept: MemoryStore) -> tuple[int, str]:
    """Return the lease and the session of the registration."""
    kv = await kept.get(ALL.consumer("a"))
    assert kv is not None, "the registration has ended"
    return kv.lease, codec.load_consumer(kv.value).session


async def _late(b: Bench) -> AssignerNode:
    """An instance that answers, but whose mirror reads no further events."""
    node = await b.node(**TIMES)
    node._mirror._apply = lambda *said, **more: None  # type: ignore[method-assign]
    return node


def test_a_late_instance_keeps_the_next_registration_alive() -> None:
    """The instance knows only the previous session, while the process waits for its answer."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first = await b.node({"t": 1}, **TIMES)
        before = (await first.register(beating())).session
        late = await _late(b)
        unanswered = (await first.register(beating())).session
        assert late._mirror.view.consumers["a"].value.session == before != unanswered
        for _ in range(40):
            assert await late.heartbeat("a", before, incarnation="one") is not None
            await asyncio.sleep(3.0)
            assert (await stored(kept))[1] == unanswered

    staged(story)


def test_each_registration_of_a_process_is_a_session_of_its_own_under_one_lease() -> None:
    """The process registers at the same and at a second instance."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first, second = await b.node({"t": 1}, **TIMES), await b.node(**TIMES)
        found = []
        for node in (first, first, second, second):
            await node.register(beating())
            found.append(await stored(kept))
        leases, sessions = zip(*found, strict=True)
        assert (len(set(leases)), len(set(sessions))) == (1, 4)

    staged(story)


@pytest.mark.parametrize("ttl_s", [15.0, 45.0])
def test_a_changed_time_to_live_holds_from_the_next_registration(ttl_s: float) -> None:
    """A lease keeps the time of its grant, so it is not used again."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first = await b.node({"t": 1}, **TIMES)
        second = await b.node(**{**TIMES, "consumer_ttl_s": ttl_s})
        await first.register(beating())
        await second.register(beating())
        assert kept._leases[(await stored(kept))[0]].ttl_s == ttl_s

    staged(story)


@pytest.mark.parametrize("ttl_s", [15.0, 45.0])
@pytest.mark.parametrize("is_renewed_before", [False, True])
def test_a_late_instance_renews_the_new_lease_after_a_changed_time_to_live(
    is_renewed_before: bool, ttl_s: float
) -> None:
    """With the old lease the consumer would work on, while its registration ends."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first = await b.node({"t": 1}, **TIMES)
        before = (await first.register(beating())).session
        late = await _late(b)
        if is_renewed_before:
            assert await late.heartbeat("a", before, incarnation="one") is not None
        changed = await b.node(**{**TIMES, "consumer_ttl_s": ttl_s})
        unanswered = (await changed.register(beating())).session
        for _ in range(40):
            assert await late.heartbeat("a", before, incarnation="one") is not None
            await asyncio.sleep(3.0)
            assert (await stored(kept))[1] == unanswered

    staged(story)


def test_a_registration_that_is_overtaken_keeps_the_lease_too() -> None:
    """A call that the client gave up may be executed beside the next call."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        await node.register(beating())
        lease, _ = await stored(kept)
        renew, ahead = kept.keep_alive, list[str]()

        async def overtaken(lease_id: int, *, timeout_s: float | None = None) -> float:
            left = await renew(lease_id, timeout_s=timeout_s)
            if not ahead:
                ahead.append("registers now")
                ahead.append((await node.register(beating())).session)
            return left

        kept.keep_alive = overtaken  # type: ignore[method-assign]
        stream = await node.register(beating())
        kept.keep_alive = renew  # type: ignore[method-assign]
        assert await stored(kept) == (lease, stream.session)
        assert stream.session not in ahead

    staged(story)


def test_a_process_whose_registration_is_over_gets_a_new_lease() -> None:
    """The lease may also end between its check and the registration."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        await node.register(beating())
        lease, _ = await stored(kept)
        renew = kept.keep_alive

        async def last(lease_id: int, *, timeout_s: float | None = None) -> float:
            left = await renew(lease_id, timeout_s=timeout_s)
            if lease_id == lease:
                await kept.revoke(lease)
            return left

        kept.keep_alive = last  # type: ignore[method-assign]
        await node.register(beating())
        kept.keep_alive = renew  # type: ignore[method-assign]
        assert (await stored(kept))[0] != lease

    staged(story)


def test_a_refused_registration_does_not_end_the_present_one() -> None:
    """A process with a different identity must not revoke the lease."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        await node.register(beating(identity="a"))
        before = await stored(kept)
        with pytest.raises(WrongCaller):
            await node.register(beating(identity="b"))
        assert await stored(kept) == before

    staged(story)


def test_a_process_registers_again_by_three_calls_of_the_store() -> None:
    """The calls are a read, a renewal and a write; after an instance's end a thousand processes register."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        node = await b.node({"t": 1}, **TIMES)
        await node.register(beating())
        calls: list[str] = []

        def counted(name: str) -> None:
            call = getattr(kept, name)

            async def called(*said: Any, **options: Any) -> Any:
                calls.append(name)
                return await call(*said, **options)

            setattr(kept, name, called)

        for name in ("get", "list", "txn", "grant", "keep_alive", "revoke"):
            counted(name)
        await node.register(beating())
        assert calls == ["get", "keep_alive", "txn"]

    staged(story)


def test_a_lowered_time_to_live_ends_no_promise_of_the_longer_lease() -> None:
    """Without the answer, the process relies on the longer time of the previous answer."""

    async def story(b: Bench, kept: MemoryStore) -> None:
        first = await b.node({"t": 1}, **TIMES)
        changed = await b.node(**{**TIMES, "consumer_ttl_s": 6.0, "consumer_keepalive_s": 1.0})
        stream = await first.register(beating())
        await eventually(lambda: first.view.owned.get("a") is not None)
        lives_s = await first.heartbeat("a", stream.session, incarnation="one")
        assert lives_s is not None
        await (await changed.register(beating())).close()
        other = await b.consumer(first, "b")
        await asyncio.sleep(lives_s)
        assert not other.owned
        await eventually(lambda: bool(other.owned))

    staged(story)
