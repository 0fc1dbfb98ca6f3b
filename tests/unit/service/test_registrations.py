"""Registrations at one instance: the stored keys, the leases, and the streams' ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service.commands import Assignment
from faust_assigner.service.errors import Expelled, LeaseLost, Replaced, WrongCaller
from faust_assigner.service.records import MOST_REPLACED, Consumer, Ended, Status
from faust_assigner.service.store.base import Delete
from tests.unit.service.session_stage import T0, A, B, Stage, staged
from tests.unit.service.stories import ALL


def test_a_registration_is_the_request_with_its_session_and_time_under_a_lease() -> None:
    """The stream has the same session; the mirror reaches the write and the request's epoch."""

    async def story(s: Stage) -> None:
        s.clock.wall = lambda: 7_000.5
        known = s.store.revision
        stream = await s.register(replace(A, epoch=55, rack="r"))
        lease = await s.lease()
        session = f"n1-{lease:x}"
        found = await s.store.registered("a")
        assert found == replace(A, rack="r", session=session, registered_at=7_000.0)
        assert s.store._leases[lease].ttl_s == 18.0
        assert s.store.waits == [
            ("begin_epochs", 7_000.5),
            ("past", (known + 1, known)),
            ("pass_epoch", (55, 7_000.5)),
        ]
        assert (stream.consumer_name, stream.session, stream.incarnation, stream.beats) == (
            "a", session, "a1", True,
        )  # fmt: skip
        assert (s.taken, s.metrics) == ([("a", session, lease)], [("streams", 1)])
        assert stream.lives_s == 12.0
        assert [await anext(stream)] == [Assignment(full=True)]
        s.store.waits.clear()
        await s.register(B)
        assert [wait for wait, _ in s.store.waits] == ["past", "pass_epoch"]

    staged(story)


@pytest.mark.parametrize(
    ("consumer", "named"),
    [(replace(A, incarnation=""), "~SESSION"), (replace(B, incarnation=""), ""), (B, "b1")],
)
def test_a_consumer_with_heartbeats_gets_an_incarnation_if_it_sends_none(
    consumer: Consumer, named: str
) -> None:
    """The incarnation is derived from its session."""

    async def story(s: Stage) -> None:
        stream = await s.register(consumer)
        expected = named.replace("SESSION", stream.session)
        found = await s.store.registered(consumer.name)
        assert found is not None
        assert (found.incarnation, stream.incarnation) == (expected, expected)

    staged(story)


def test_only_a_consumer_without_heartbeats_is_kept_alive_by_its_stream() -> None:
    """The stream renews until it is closed; with heartbeats, the lease ends without them."""

    async def story(s: Stage) -> None:
        a, b = await s.register(A), await s.register(B)
        await asyncio.sleep(17.9)
        assert await s.store.registered("a") is not None
        await asyncio.sleep(0.2)
        s.store.follow()
        assert (await s.store.registered("a"), a.ended) == (None, Ended.LEASE_LOST)
        await asyncio.sleep(100.0)
        assert (await s.store.registered("b") is not None, b.ended) == (True, None)
        await b.close()
        await asyncio.sleep(17.9)
        s.store.follow()
        assert (await s.store.registered("b"), b.ended) == (None, Ended.CLOSED)
        assert [count for _, count in s.metrics] == [1, 2, 1, 0]

    staged(story)


def test_a_stream_ends_when_its_lease_could_not_be_renewed() -> None:
    """The stream ends at two thirds of the time to live after the last renewal."""

    async def story(s: Stage) -> None:
        b = await s.register(B)
        await s.store.revoke(await s.lease("b"))
        await asyncio.sleep(3.9)
        assert b.ended is None
        await asyncio.sleep(0.2)
        assert (b.ended, len(s.sessions.registry)) == (Ended.LEASE_LOST, 0)

    staged(story)


# -- the previous registration -------------------------------------------------------------------------


def test_a_process_that_registers_again_keeps_its_lease_and_its_place() -> None:
    """The session is new; the first stream ends as registered again, without a fence."""

    async def story(s: Stage) -> None:
        first = await s.register(A)
        lease, revision = await s.lease(), s.store.revision
        await asyncio.sleep(5.0)
        second = await s.register(replace(A, rack="r"))
        assert (await s.lease(), await s.fences()) == (lease, {})
        assert second.session == f"n1-{lease:x}-{revision:x}"
        found = await s.store.registered("a")
        assert found == replace(A, rack="r", session=second.session, registered_at=1_005.0)
        assert (first.ended, second.ended) == (Ended.AGAIN, None)
        assert s.sessions.registry.get("a") is second

    staged(story)


@pytest.mark.parametrize(
    ("ttl_s", "is_kept"), [(17.9, False), (18.0, True), (19.9, True), (20.0, False)]
)
def test_a_lease_of_a_different_time_to_live_is_replaced(ttl_s: float, is_kept: bool) -> None:
    """The old lease is revoked; otherwise a late instance would keep renewing it."""

    async def story(s: Stage) -> None:
        before = await s.store.consumer(replace(A, session="x"), ttl_s)
        await s.register(A)
        assert ((await s.lease()) == before, s.lives(before)) == (is_kept, is_kept)
        fence = {} if ttl_s <= 18.0 or is_kept else {ALL.fence("a", "a1")}
        assert (await s.fences()).keys() == set(fence)

    staged(story)


@pytest.mark.parametrize("strict", [True, False])
def test_a_replaced_process_is_fenced_by_its_lease_and_named(strict: bool) -> None:
    """The names are newest first, at most sixteen; without strict mode there is no fence."""

    async def story(s: Stage) -> None:
        first = await s.register(A)
        lease = await s.lease()
        second = await s.register(replace(A, incarnation="a2"))
        found = await s.store.registered("a")
        assert found is not None
        assert (found.replaced, first.ended) == (("a1",), Ended.REPLACED)
        assert await s.lease() != lease
        fence = {ALL.fence("a", "a1"): (first.session.encode(), lease)}
        assert await s.fences() == (fence if strict else {})
        assert s.lives(lease)
        for number in range(3, 21):
            await s.register(replace(A, incarnation=f"a{number}"))
        found = await s.store.registered("a")
        assert found is not None
        assert found.replaced == tuple(f"a{number}" for number in range(19, 3, -1))
        assert len(found.replaced) == MOST_REPLACED
        again = await s.register(replace(A, incarnation="a20"))
        found = await s.store.registered("a")
        assert found is not None
        assert (len(found.replaced), second.ended, again.ended) == (16, Ended.REPLACED, None)

    staged(story, strict=strict)


@pytest.mark.parametrize(
    ("before", "request_", "error"),
    [
        (replace(A, incarnation="a2", replaced=("a1", "a0")), A, Replaced),
        (replace(A, incarnation="a2", replaced=("a0", "a1")), A, Replaced),
        (replace(A, incarnation="a2"), replace(A, returns=True), Replaced),
        (replace(A, identity="x"), replace(A, identity="y"), WrongCaller),
        (replace(A, identity="x"), A, WrongCaller),
        (A, replace(A, returns=True), None),
        (A, replace(A, identity="y"), None),
        (replace(A, identity="x"), replace(A, identity="x"), None),
        (replace(A, incarnation="a2"), A, None),
    ],
)
def test_a_registration_that_may_not_follow_is_refused_and_leaves_no_lease(
    before: Consumer, request_: Consumer, error: type[Exception] | None
) -> None:
    """The cases: a replaced process, a return after a replacement, a different identity."""

    async def story(s: Stage) -> None:
        lease = await s.store.consumer(before, 18.0)
        if error is None:
            await s.register(request_)
            return
        with pytest.raises(error):
            await s.register(request_)
        assert await s.store.registered("a") == before
        assert set(s.store._leases) == {lease}
        assert len(s.sessions.registry) == 0

    staged(story)


def test_an_expelled_process_is_refused_as_such_even_if_it_was_replaced() -> None:
    """A new process may still register."""

    async def story(s: Stage) -> None:
        await s.store.put(ALL.expelled("a", "a1"), b"x")
        with pytest.raises(Expelled, match="a: incarnation a1"):
            await s.register(A)
        await s.register(replace(A, incarnation="a2"))
        await s.store.consumer(replace(A, incarnation="a2", replaced=("a1",)), 18.0)
        with pytest.raises(Expelled):
            await s.register(A)

    staged(story)


DRAINING = replace(A, status=Status.DRAINING)
INHERITED: list[tuple[Consumer, Consumer, Consumer]] = [
    (replace(DRAINING, leaves=True), A, replace(DRAINING, leaves=True)),
    (replace(DRAINING, by_operator=True), A, replace(DRAINING, by_operator=True)),
    (
        replace(DRAINING, by_operator=True, leaves=True),
        replace(A, incarnation="a2"),
        replace(DRAINING, incarnation="a2", by_operator=True, replaced=("a1",)),
    ),
    (
        replace(DRAINING, leaves=True),
        replace(A, incarnation="a2"),
        replace(A, incarnation="a2", replaced=("a1",)),
    ),
    (replace(DRAINING, leaves=True, dismissed=True), A, A),
    (
        replace(DRAINING, by_operator=True, dismissed=True),
        replace(A, incarnation="a2"),
        replace(A, incarnation="a2", replaced=("a1",)),
    ),
    (replace(A, replaced=("a0",), rack="r", former={"t": (1,)}), A, replace(A, replaced=("a0",))),
    (
        replace(A, replaced=("a0",)),
        replace(A, incarnation="a2"),
        replace(A, incarnation="a2", replaced=("a1", "a0")),
    ),
]


@pytest.mark.parametrize(("before", "request_", "after"), INHERITED)
def test_a_registration_inherits_a_drain_and_the_replaced_processes(
    before: Consumer, request_: Consumer, after: Consumer
) -> None:
    """An operator's drain passes to the next process; a leave does not."""

    async def story(s: Stage) -> None:
        await s.store.consumer(before, 18.0)
        stream = await s.register(request_)
        found = await s.store.registered("a")
        assert found == replace(after, session=stream.session, registered_at=1_000.0)

    staged(story)


def test_a_draining_process_that_waits_in_vain_comes_back_to_be_dismissed() -> None:
    """Its new stream ends at once as drained."""

    async def story(s: Stage) -> None:
        await s.store.consumer(replace(A, status=Status.DRAINING, leaves=True), 18.0)
        await s.store.owner(T0, "a", "a1")
        stream = await s.register(A)
        found = await s.store.registered("a")
        assert found is not None
        assert (found.dismissed, stream.ended) == (True, Ended.DRAINED)

    staged(story)


# -- after an outage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "former", "delay_s", "mark"),
    [
        ("gone", {}, 25.0, b"known"),
        ("gone", {"t": (1,)}, 25.0, b"known"),
        (None, {"t": (1,)}, 25.0, b"forgotten"),
        (None, {}, 25.0, None),
        ("a", {}, 25.0, None),
        ("a", {"t": (1,)}, 25.0, b"known"),
        ("gone", {"t": (1,)}, 0.0, None),
    ],
)
def test_the_first_consumer_after_an_outage_marks_that_others_are_awaited(
    owner: str | None, former: dict[str, tuple[int, ...]], delay_s: float, mark: bytes | None
) -> None:
    """The mark's lease lasts for the delay; former partitions are stored only with a mark."""

    async def story(s: Stage) -> None:
        if owner is not None:
            await s.store.owner(T0, owner, f"{owner}1")
        await s.store.put(ALL.departed("a"), b"dismissed")
        await s.register(replace(A, former=former))
        assert set(s.store.view.departed) == set()
        kv = await s.store.get(ALL.awaiting)
        assert (None if kv is None else kv.value) == mark
        if kv is not None:
            assert s.store._leases[kv.lease].ttl_s == 25.0
        first = await s.store.registered("a")
        await s.register(replace(B, former={"t": (0,)}))
        second = await s.store.registered("b")
        assert first is not None
        assert second is not None
        kept = (former, {"t": (0,)}) if mark else ({}, {})
        assert (first.former, second.former) == kept

    staged(story, rebalance_delay_s=delay_s)


def test_a_registration_deletes_the_mark_of_its_leave() -> None:
    """Marks of different names stay."""

    async def story(s: Stage) -> None:
        for name in "ab":
            await s.store.put(ALL.departed(name), b"dismissed")
        await s.register(A)
        assert set(s.store.view.departed) == {"b"}

    staged(story)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (B, B),
        (replace(A, capabilities=()), A),
        (A, replace(A, capabilities=())),
        (replace(A, incarnation="~x"), replace(A, incarnation="")),
    ],
)
def test_only_registrations_of_one_process_with_heartbeats_share_a_lease(
    before: Consumer, after: Consumer
) -> None:
    """The previous lease of any other registration runs out on its own."""

    async def story(s: Stage) -> None:
        lease = await s.store.consumer(before, 18.0)
        await s.register(after)
        assert await s.lease(after.name) not in (0, lease)
        assert s.lives(lease)

    staged(story)


def test_a_process_whose_lease_is_gone_registers_under_a_new_one() -> None:
    """The lease ends before the registration, or at the moment of its write."""

    async def story(s: Stage) -> None:
        await s.store.consumer(A)
        await s.register(A)
        first = await s.lease()
        assert first > 0
        txn = s.store.txn

        async def late(compares: Any, writes: Any) -> Any:
            s.store.txn = txn  # type: ignore[method-assign]
            await s.store.revoke(first)
            return await txn(compares, writes)

        s.store.txn = late  # type: ignore[method-assign]
        stream = await s.register(A)
        second = await s.lease()
        assert second not in (0, first)
        assert (stream.session, stream.ended) == (f"n1-{second:x}", None)
        assert s.taken[-1] == ("a", stream.session, second)

    staged(story)


@pytest.mark.parametrize(("name", "why"), [("a", Ended.LEASE_LOST), ("b", None)])
def test_a_registration_that_is_over_before_its_stream_begins_ends_the_stream(
    name: str, why: Ended | None
) -> None:
    """The mirror has read the end already, and no further change would end the stream."""

    async def story(s: Stage) -> None:
        await s.register(B)

        async def passed(epoch: int, wall: float) -> None:
            await s.store.txn([], [Delete(ALL.consumer(name))])

        s.store.surpass = passed  # type: ignore[method-assign]
        stream = await s.register(A)
        assert stream.ended is why

    staged(story)


@pytest.mark.parametrize("is_own_gone", [False, True])
def test_a_write_whose_lease_is_gone_is_repeated_while_its_own_lease_lives(
    is_own_gone: bool,
) -> None:
    """The replaced process's lease ended meanwhile; for its own ended lease, etcd answers 0 s."""

    async def story(s: Stage) -> None:
        first = await s.store.consumer(A, 18.0)
        txn, keep_alive = s.store.txn, s.store.keep_alive

        async def late(compares: Any, writes: Any) -> Any:
            s.store.txn = txn  # type: ignore[method-assign]
            await s.store.revoke(first)
            raise LeaseLost(first)

        async def gone(lease_id: int, *, timeout_s: float | None = None) -> float:
            return 0.0 if is_own_gone else await keep_alive(lease_id)

        s.store.txn, s.store.keep_alive = late, gone  # type: ignore[method-assign]
        after = replace(A, incarnation="a2")
        if is_own_gone:
            with pytest.raises(LeaseLost):
                await s.register(after)
            assert await s.store.registered("a") is None
        else:
            await s.register(after)
            assert (await s.store.registered("a") or A).incarnation == "a2"
            assert await s.fences() == {}

    staged(story)


@pytest.mark.parametrize("is_awaiting", [True, False])
def test_former_partitions_are_inherited_while_consumers_are_awaited(is_awaiting: bool) -> None:
    """Former partitions in the request replace the inherited ones."""

    async def story(s: Stage) -> None:
        await s.store.consumer(B)
        if is_awaiting:
            await s.store.put(ALL.awaiting, b"known")
        await s.store.consumer(replace(A, former={"t": (1,)}), 18.0)
        for said, kept in (({}, {"t": (1,)}), ({"t": (0,)}, {"t": (0,)})):
            await s.register(replace(A, former=said))
            found = await s.store.registered("a")
            assert found is not None
            assert found.former == (kept if is_awaiting else {})

    staged(story)


def test_a_registration_that_a_later_process_overtakes_leaves_the_later_stream_open() -> None:
    """The store's answer to the first process comes after the second process has registered."""

    async def story(s: Stage) -> None:
        txn = s.store.txn
        delays = [1.0, 0.0]

        async def late(*said: Any) -> Any:
            delay_s = delays.pop(0)
            result = await txn(*said)
            await asyncio.sleep(delay_s)
            return result

        s.store.txn = late  # type: ignore[method-assign]
        first = asyncio.create_task(s.register(A))
        await asyncio.sleep(0.5)
        second = await s.register(replace(A, incarnation="a2"))
        assert (await first).ended is Ended.REPLACED
        assert second.ended is None
        assert s.sessions.registry.get("a") is second
        assert [session for _, session, _ in s.taken] == [second.session]

    staged(story)
