"""Heartbeats at one instance: the renewed lease, and the repair of differences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.digest import Held, digest_of
from faust_assigner.service.errors import LeaseLost, StoreError, StoreUnavailable, WrongCaller
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.records import HEARTBEATS, Consumer
from faust_assigner.service.serving.beats import Beats
from faust_assigner.service.serving.holdings import ExpectedHoldings
from faust_assigner.service.serving.registrar import fences, may_share
from faust_assigner.service.store.base import Delete, Put
from faust_assigner.settings.service import ServiceSettings
from tests.support.assigning.consumers import LoopClock, virtually
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL

#: A holder stops acting 40 s after a renewal; a difference is repaired after 20 s.
SETTINGS = ServiceSettings(prefix="/g/", consumer_ttl_s=60.0, consumer_keepalive_s=5.0)
A = Consumer(name="a", incarnation="a1", session="s1", capabilities=(HEARTBEATS,))
B = Consumer(name="b", incarnation="b1", session="s9")
T0, T1, T2 = (TopicPartition("t", n) for n in range(3))


class Metered:
    """Counts repairs."""

    def __init__(self) -> None:
        self.repairs = 0

    def holdings_repaired(self) -> None:
        """Count a repair."""
        self.repairs += 1


class Stage:
    """An instance's heartbeats, and the renewals that reach the store."""

    def __init__(self) -> None:
        self.store = Followed()
        self.clock = LoopClock()
        self.metrics: Any = Metered()
        mirror: Any = self.store
        self.beats = Beats(self.store, ALL, SETTINGS, self.clock, mirror, self.metrics)
        self.store.listeners.append(self.beats.on_changes)
        self.renewed: list[int] = []
        self.error: Exception | None = None
        keep_alive = self.store.keep_alive

        async def counted(lease_id: int, *, timeout_s: float | None = None) -> float:
            self.renewed.append(lease_id)
            if self.error is not None:
                raise self.error
            return await keep_alive(lease_id, timeout_s=timeout_s)

        self.store.keep_alive = counted  # type: ignore[method-assign]

    async def beat(
        self,
        held: Held | None = None,
        *,
        name: str = "a",
        identity: str = "",
        incarnation: str = "a1",
        session: str = "s1",
    ) -> float | None:
        """Send a heartbeat of the process a1."""
        return await self.beats.beat(name, identity, incarnation, session, held)

    async def resync(self) -> tuple[bytes, int] | None:
        """Return the stored request for a full assignment, and its lease."""
        kv = await self.store.get(ALL.resync("a"))
        return None if kv is None else (kv.value, kv.lease)


def staged(story: Callable[[Stage], Awaitable[None]]) -> None:
    """Run a scenario."""

    async def whole() -> None:
        stage = Stage()
        await story(stage)
        await stage.store.close()

    virtually(whole)


def test_heartbeats_renew_the_lease_at_most_every_keepalive() -> None:
    """The answer counts from the last renewal, and is two thirds of the time to live."""

    async def story(s: Stage) -> None:
        lease = await s.store.consumer(A, 60.0)
        found = []
        for pause_s in (0.0, 4.9, 0.1, 5.0, 30.0):
            await s.clock.sleep(pause_s)
            found.append(await s.beat())
        assert found == [40.0, pytest.approx(35.1), 40.0, 40.0, 40.0]
        assert s.renewed == [lease] * 4
        await s.clock.sleep(59.0)
        assert await s.store.registered("a") == A

    staged(story)


def test_the_lease_of_a_registration_at_this_instance_is_not_adopted_again() -> None:
    """Its remaining time is known; the lease of a different session is not used."""

    async def story(s: Stage) -> None:
        lease_id = await s.store.consumer(A, 60.0)
        lease = await HeldLease.adopt(s.store, s.clock, lease_id, 60.0)
        s.renewed.clear()
        s.beats.take("a", "s1", lease)
        await s.clock.sleep(3.0)
        assert (await s.beat(), s.renewed) == (37.0, [])
        s.beats.take("a", "s0", lease)
        assert (await s.beat(), s.renewed) == (40.0, [lease_id])

    staged(story)


REGISTERED = [
    ("s1", "a1", A, True),
    ("s0", "a1", A, True),
    ("s1", "a9", A, True),
    ("s0", "a9", A, False),
    ("", "a1", A, False),
    ("s0", "", replace(A, incarnation=""), False),
    ("s0", "~x", replace(A, incarnation="~x"), False),
    ("s1", "", replace(A, incarnation=""), True),
]


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize(("session", "incarnation", "registered", "is_known"), REGISTERED)
def test_a_heartbeat_is_for_its_session_or_a_later_one_of_its_process(
    session: str, incarnation: str, registered: Consumer, is_known: bool, is_late: bool
) -> None:
    """The instance may or may not have read the registration."""

    async def story(s: Stage) -> None:
        s.store.is_late = is_late
        lease = await s.store.consumer(registered, 60.0)
        lives = await s.beat(session=session, incarnation=incarnation)
        assert (lives, s.renewed) == ((40.0, [lease]) if is_known else (None, []))

    staged(story)


@pytest.mark.parametrize("value", [None, b"?"])
def test_a_session_without_a_readable_registration_is_over(value: bytes | None) -> None:
    """The consumer must register again."""

    async def story(s: Stage) -> None:
        if value is not None:
            await s.store.put(ALL.consumer("a"), value)
        assert await s.beat() is None

    staged(story)


@pytest.mark.parametrize(("registered", "is_refused"), [("x", True), ("me", False), ("", False)])
def test_only_the_registered_identity_renews(registered: str, is_refused: bool) -> None:
    """A registration without an identity is open to any identity."""

    async def story(s: Stage) -> None:
        await s.store.consumer(replace(A, identity=registered), 60.0)
        if is_refused:
            with pytest.raises(WrongCaller, match="a is registered by another identity"):
                await s.beat(identity="me")
            assert s.renewed == []
        else:
            assert await s.beat(identity="me") == 40.0

    staged(story)


def test_a_lease_that_the_store_lost_ends_the_registration_unless_a_later_one_is_there() -> None:
    """The mirror may be behind, so the process's later lease is read from the store."""

    async def story(s: Stage) -> None:
        first = await s.store.consumer(A, 60.0)
        await s.beat()
        s.store.is_late = True
        await s.store.revoke(first)
        second = await s.store.consumer(replace(A, session="s2"), 60.0)
        await s.clock.sleep(5.0)
        s.renewed.clear()
        assert await s.beat() == 40.0
        assert s.renewed[-1] == second
        await s.store.revoke(second)
        await s.clock.sleep(5.0)
        assert await s.beat() is None

    staged(story)


def test_a_store_without_an_answer_leaves_the_rest_of_the_time_and_then_fails() -> None:
    """The outcome is unknown, so the registration is not reported as ended."""

    async def story(s: Stage) -> None:
        await s.store.consumer(A, 600.0)
        await s.beat()
        s.error = StoreUnavailable("no answer")
        await s.clock.sleep(39.0)
        assert await s.beat() == pytest.approx(1.0)
        await s.clock.sleep(1.0)
        with pytest.raises(StoreError):
            await s.beat()
        s.error = None
        assert await s.beat() == 40.0

    staged(story)


def test_the_end_of_a_registration_is_forgotten_for_this_consumer_alone() -> None:
    """The second consumer's lease is not looked up again."""

    async def story(s: Stage) -> None:
        await s.store.consumer(A, 60.0)
        await s.store.consumer(B, 60.0)
        b: Any = {"name": "b", "incarnation": "b1", "session": "s9"}
        await s.beat()
        await s.beat(**b)
        s.renewed.clear()
        await s.store.txn([], [Delete(ALL.consumer("a"))])
        await s.clock.sleep(1.0)
        assert (await s.beat(**b), await s.beat(), s.renewed) == (39.0, None, [])
        await s.store.consumer(A, 60.0)
        assert (await s.beat(), len(s.renewed)) == (40.0, 1)

    staged(story)


def test_a_registration_that_ends_during_its_heartbeat_leaves_no_lease() -> None:
    """The consumer's name may never return, so its lease would be remembered forever."""

    async def story(s: Stage) -> None:
        await s.store.consumer(A, 60.0)
        keep_alive = s.store.keep_alive

        async def overtaken(lease_id: int, *, timeout_s: float | None = None) -> float:
            left_s = await keep_alive(lease_id, timeout_s=timeout_s)
            await s.store.txn([], [Delete(ALL.consumer("a"))])  # the end of the consumer's drain
            return left_s

        s.store.keep_alive = overtaken  # type: ignore[method-assign]
        assert await s.beat() == 40.0
        assert (await s.beat(), s.beats._leases) == (None, {})

    staged(story)


# -- holdings --------------------------------------------------------------------------------------


def digest(*grants: tuple[TopicPartition, int]) -> Held:
    """The digest of these partitions and epochs."""
    return digest_of((*at, epoch) for at, epoch in grants)


def test_a_lasting_difference_is_repaired_after_a_third_of_the_time_to_live() -> None:
    """The request has the consumer's lease and session, and is repeated after a time to live."""

    async def story(s: Stage) -> None:
        lease = await s.store.consumer(A, 60.0)
        epoch = await s.store.owner(T0, "a", "a1")
        wrong = digest((T0, epoch + 1))
        for moment in range(0, 100, 4):
            await s.beat(wrong)
            repaired = s.metrics.repairs
            assert repaired == (0 if moment < 20 else 1 if moment < 80 else 2), moment
            await s.clock.sleep(4.0)
        assert await s.resync() == (b"s1", lease)

    staged(story)


def test_no_difference_and_a_changed_difference_begin_the_time_again() -> None:
    """A change on either side restarts the time."""

    async def story(s: Stage) -> None:
        await s.store.consumer(A, 60.0)
        epoch = await s.store.owner(T0, "a", "a1")
        right, wrong = digest((T0, epoch)), digest((T1, epoch))

        async def beats(what: Held | None) -> None:
            await s.beat(what)
            await s.clock.sleep(19.0)

        await beats(wrong)
        await beats(right)
        await beats(wrong)
        await beats(None)
        await beats(digest((T2, epoch)))
        await s.store.owner(T2, "a", "a1")
        await beats(digest((T2, epoch)))
        await beats(digest())
        assert s.metrics.repairs == 0
        await s.clock.sleep(1.0)
        await s.beat(digest())
        assert s.metrics.repairs == 1

    staged(story)


def test_a_digest_of_another_session_is_not_compared() -> None:
    """The mirror has a later registration of the process."""

    async def story(s: Stage) -> None:
        await s.store.consumer(replace(A, session="s2"), 60.0)
        await s.store.owner(T0, "a", "a1")
        for _ in range(10):
            assert await s.beat(digest()) == 40.0
            await s.clock.sleep(10.0)
        assert (s.metrics.repairs, await s.resync()) == (0, None)

    staged(story)


def test_a_repair_that_could_not_be_written_is_not_counted_and_tried_again() -> None:
    """The cases: a concurrent registration, and a silent store."""

    async def story(s: Stage) -> None:
        await s.store.consumer(A, 60.0)
        await s.store.owner(T0, "a", "a1")
        await s.beat(digest())
        await s.clock.sleep(20.0)
        kv = await s.store.get(ALL.consumer("a"))
        assert kv is not None
        s.store.meanwhile = [[Put(kv.key, kv.value, kv.lease)]]
        assert await s.beat(digest()) == 40.0
        assert (s.metrics.repairs, await s.resync()) == (0, None)
        txn = s.store.txn

        async def fails(*_: Any) -> Any:
            raise StoreUnavailable("no answer")

        s.store.txn = fails  # type: ignore[method-assign]
        assert await s.beat(digest()) == 40.0
        s.store.txn = txn  # type: ignore[method-assign]
        assert s.metrics.repairs == 0
        await s.beat(digest())
        assert s.metrics.repairs == 1

    staged(story)


async def test_the_expected_partitions_follow_each_change() -> None:
    """Gains, losses, new owners, new epochs, a strict release, a raised base, a new process."""
    store, holdings = Followed(), ExpectedHoldings()
    store.listeners.append(lambda changes: holdings.on_changes(store.view, changes))
    await store.consumer(A)
    await store.consumer(B)
    assert holdings.of(store.view, "a") == Held()
    e0 = await store.owner(T0, "a", "a1")
    assert holdings.of(store.view, "a") == digest((T0, e0))
    e1 = await store.owner(T1, "a", "a1")
    await store.owner(T2, "a", "a0")
    assert holdings.of(store.view, "a") == digest((T0, e0), (T1, e1))
    e2 = await store.owner(T0, "a", "a1")
    assert holdings.of(store.view, "a") == digest((T0, e2), (T1, e1))
    release = Handoff(
        T1, "a", "b", Phase.READY, 1.0, strict=True, old_incarnation="a1", new_incarnation="b1"
    )
    await store.handoff(release)
    assert holdings.of(store.view, "a") == digest((T0, e2))
    await store.handoff(replace(release, phase=Phase.WARMING))
    assert holdings.of(store.view, "a") == digest((T0, e2), (T1, e1))
    await store.put(ALL.epochs, codec.dump_base(1_000))
    assert holdings.of(store.view, "a") == digest((T0, 1_000 + e2), (T1, 1_000 + e1))
    e3 = 1_000 + await store.owner(T1, "b", "b1")
    assert holdings.of(store.view, "a") == digest((T0, 1_000 + e2))
    assert holdings.of(store.view, "b") == digest((T1, e3))
    await store.consumer(replace(A, incarnation="a0"))
    assert holdings.of(store.view, "a") == digest((T2, 1_000 + e1 + 1))
    await store.txn([], [Delete(ALL.assignment(T2))])
    assert holdings.of(store.view, "a") == Held()
    e4 = 1_000 + await store.owner(T2, "a", "a0")
    assert holdings.of(store.view, "a") == digest((T2, e4))


# -- fences --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "shares"),
    [
        (A, A, True),
        (A, replace(A, session="s2"), True),
        (A, replace(A, incarnation="a2"), False),
        (replace(A, incarnation="~a"), replace(A, incarnation="~a"), False),
        (replace(A, incarnation=""), replace(A, incarnation=""), False),
        (replace(A, capabilities=()), A, False),
        (A, replace(A, capabilities=()), False),
    ],
)
def test_two_registrations_share_a_lease_if_heartbeats_of_one_process_renew_it(
    before: Consumer, after: Consumer, shares: bool
) -> None:
    """The two registrations send heartbeats, and the process has an incarnation."""
    assert may_share(before, after) is shares


@pytest.mark.parametrize(
    ("after", "former_s", "now_s", "fence"),
    [
        (replace(A, incarnation="a2"), 60.0, 60.0, "its lease"),
        (replace(A, incarnation="a2"), 30.0, 60.0, "its lease"),
        (replace(A, session="s2"), 60.0, 30.0, "a new lease of 60 s"),
        (replace(A, session="s2"), 60.0, 60.0, None),
        (replace(A, session="s2"), 30.0, 60.0, None),
        (replace(A, session="s2", capabilities=()), 60.0, 30.0, None),
    ],
)
def test_a_fence_lasts_as_long_as_the_former_process_may_work(
    after: Consumer, former_s: float, now_s: float, fence: str | None
) -> None:
    """A replaced process keeps its lease; the same process its former lease, if that is longer."""

    async def story(s: Stage) -> None:
        former = await s.store.consumer(A, former_s)
        kv = await s.store.get(ALL.consumer("a"))
        assert kv is not None
        lease = await HeldLease.grant(s.store, s.clock, now_s)
        found = await fences(s.store, ALL, kv, A, after, lease)
        if fence is None:
            assert found == []
            return
        [put] = found
        assert isinstance(put, Put)
        assert (put.key, put.value) == (ALL.fence("a", "a1"), b"s1")
        if fence == "its lease":
            assert put.lease == former
        else:
            assert put.lease not in (former, lease.lease_id)
            assert s.store._leases[put.lease].ttl_s == 60.0
        assert await fences(s.store, ALL, replace(kv, lease=lease.lease_id), A, A, lease) == []
        assert await fences(s.store, ALL, replace(kv, lease=0), A, after, lease) == []

    staged(story)


def test_a_former_lease_that_is_gone_needs_no_fence() -> None:
    """The former process's time is over."""

    async def story(s: Stage) -> None:
        former = await s.store.consumer(A, 60.0)
        kv = await s.store.get(ALL.consumer("a"))
        assert kv is not None
        await s.store.revoke(former)
        lease = await HeldLease.grant(s.store, s.clock, 30.0)
        assert await fences(s.store, ALL, kv, A, replace(A, session="s2"), lease) == []
        s.error = LeaseLost(5)
        assert await fences(s.store, ALL, kv, A, replace(A, session="s2"), lease) == []

    staged(story)
