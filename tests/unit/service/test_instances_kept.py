"""What an instance keeps between two events: leases, doubts, changed routes and connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.errors import LeaseLost, QuotaExceeded, StoreError, StoreUnavailable
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.records import Consumer
from faust_assigner.service.serving import routes
from faust_assigner.service.serving.routes import Route, RouteUpdate
from faust_assigner.service.store import access, etcd
from faust_assigner.service.store.access import CHANNEL_OPTIONS, Connections, EtcdAccess
from faust_assigner.service.store.base import Delete, Event, KeyValue
from faust_assigner.service.store.etcd_api import etcd_pb2 as pb
from tests.unit.service import session_stage, test_heartbeats
from tests.unit.service.followed import Followed
from tests.unit.service.stories import ALL
from tests.unit.service.test_heartbeats import T0, B, digest
from tests.unit.service.test_heartbeats import A as BEATING
from tests.unit.service.test_route_updates import E_T0, E_T1, E_U0, T1, U0, A, seen

# -- heartbeats


def test_an_instance_keeps_the_lease_and_the_doubts_of_registered_consumers_alone() -> None:
    """A new registration keeps its lease; the end of one forgets both, and no other consumer's."""

    async def story(s: test_heartbeats.Stage) -> None:
        await s.store.owner(T0, "a", "a1")
        for consumer in (BEATING, B):
            await s.store.consumer(consumer, 60.0)
        b: Any = {"name": "b", "incarnation": "b1", "session": "s9"}
        wrong = digest((T0, 7))
        await s.beat(wrong)
        await s.beat(wrong, **b)
        assert (sorted(s.beats._leases), sorted(s.beats._doubts)) == (["a", "b"], ["a", "b"])
        await s.store.consumer(replace(BEATING, session="s2"), 60.0)
        assert (sorted(s.beats._leases), sorted(s.beats._doubts)) == (["a", "b"], ["a", "b"])
        await s.store.txn([], [Delete(ALL.consumer("a"))])
        assert (sorted(s.beats._leases), sorted(s.beats._doubts)) == (["b"], ["b"])

    test_heartbeats.staged(story)


def test_a_repair_of_another_instance_delays_the_next_one_by_a_time_to_live() -> None:
    """A third of it passes before each repair anyway, so two thirds are added."""

    async def story(s: test_heartbeats.Stage) -> None:
        ttl_s = test_heartbeats.SETTINGS.consumer_ttl_s
        lease = await s.store.consumer(BEATING, 100 * ttl_s)
        await s.store.owner(T0, "a", "a1")
        wrong = digest((T0, 7))
        await s.beat(wrong)
        await s.clock.sleep(ttl_s / 4)
        await s.store.put(ALL.resync("a"), b"s1", lease)
        await s.store.put(ALL.resync("b"), b"s9")
        await s.store.txn([], [Delete(ALL.resync("a"))])
        since = s.clock.monotonic()
        while s.metrics.repairs == 0:
            await s.clock.sleep(ttl_s / 16)
            await s.beat(wrong)
        assert s.clock.monotonic() - since == pytest.approx(ttl_s)

    test_heartbeats.staged(story)


def test_a_renewal_that_is_late_is_an_error_and_no_end() -> None:
    """The registration may live on at the store; a negative time would be no promise at all."""

    async def story(s: test_heartbeats.Stage) -> None:
        await s.store.consumer(BEATING, 90.0)
        await s.beat()
        await s.clock.sleep(test_heartbeats.SETTINGS.consumer_keepalive_s)

        async def silent(lease_id: int, *, timeout_s: float | None = None) -> float:
            assert timeout_s is not None
            await s.clock.sleep(timeout_s)
            raise StoreUnavailable("silent")

        s.store.keep_alive = silent  # type: ignore[method-assign]
        with pytest.raises(StoreError, match=r"^a: the registration could not be renewed$"):
            await s.beat()

    test_heartbeats.staged(story)


def test_a_lease_that_is_gone_is_the_end_even_if_the_copy_is_late() -> None:
    """The store has no later registration of the process."""

    async def story(s: test_heartbeats.Stage) -> None:
        lease = await s.store.consumer(BEATING, 90.0)
        await s.beat()
        s.store.is_late = True
        await s.clock.sleep(test_heartbeats.SETTINGS.consumer_keepalive_s)
        await s.store.revoke(lease)
        assert await s.beat() is None
        assert await s.beat() is None

    test_heartbeats.staged(story)


# -- routes


def _watch(store: Followed, *topics: str) -> Any:
    watch = routes._Watch(store, topics)  # type: ignore[arg-type]
    store.listeners.append(watch.on_changes)
    return watch


async def test_what_a_whole_table_has_is_not_told_again() -> None:
    """A change before the first table, or before the table after raised epochs, is part of it."""
    store = await seen()
    watch = _watch(store, "t")
    await store.consumer(replace(A, endpoint="host:2"))
    assert watch.wake.is_set()
    routed = (Route(TopicPartition("t", 0), "a", E_T0, "host:2"), Route(T1, "b", E_T1))
    assert list(watch.updates()) == [RouteUpdate(1_000 + store.revision, routed, (), True)]
    assert not watch.wake.is_set()
    nothing = RouteUpdate(1_000 + store.revision, (), (), False)
    assert list(watch.updates()) == [nothing]
    await store.put(ALL.epochs, codec.dump_base(2_000))
    await store.txn([], [Delete(ALL.assignment(T1))])
    first = Route(TopicPartition("t", 0), "a", E_T0 + 1_000, "host:2")
    assert list(watch.updates()) == [RouteUpdate(2_000 + store.revision, (first,), (), True)]
    assert list(watch.updates()) == [RouteUpdate(2_000 + store.revision)]


async def test_changes_are_told_once_sorted_with_those_that_have_no_owner() -> None:
    """A renewed registration changes no route; one of another topic wakes nobody."""
    store = await seen()
    watch = _watch(store, "t", "u")
    list(watch.updates())
    await store.consumer(replace(A, session="another", capacity=3.0))
    await store.owner(TopicPartition("v", 0), "b", "b1")
    assert not watch.wake.is_set()
    await store.owner(U0, "b", "b1")
    await store.txn([], [Delete(ALL.consumer("a"))])
    assert watch.wake.is_set()
    moved = Route(U0, "b", 1_000 + store.view.assignments[U0].value.epoch)
    told = RouteUpdate(1_000 + store.revision, (moved,), (TopicPartition("t", 0),))
    assert list(watch.updates()) == [told]
    assert list(watch.updates()) == [RouteUpdate(1_000 + store.revision)]
    await store.consumer(Consumer(name="a", incarnation="a2", endpoint="host:1"))
    assert next(iter(watch.updates())).unowned == (TopicPartition("t", 0),)
    assert moved.epoch > E_U0


@pytest.mark.parametrize(
    ("after", "routed"),
    [
        (replace(A, incarnation="a2"), False),
        (replace(A, endpoint="host:9"), True),
        (replace(A, incarnation="a0"), False),
    ],
)
async def test_a_new_process_at_the_same_address_does_not_own_the_partitions(
    after: Consumer, routed: bool
) -> None:
    """The partition of its earlier process has a route again if that process is back."""
    store = await seen()
    watch = _watch(store, "t", "v")
    list(watch.updates())
    await store.consumer(after)
    assert watch.wake.is_set()
    [update] = watch.updates()
    t0 = TopicPartition("t", 0)
    assert [route.at for route in update.routes if route.at == t0] == ([t0] if routed else [])
    assert (t0 in update.unowned) is not routed
    v0 = TopicPartition("v", 0)
    assert (v0 in [route.at for route in update.routes]) is (after.incarnation == "a0")


# -- registrations


@pytest.mark.parametrize("error", [StoreUnavailable("silent"), QuotaExceeded("full"), LeaseLost(7)])
def test_a_former_lease_that_cannot_be_revoked_is_no_error(error: Exception) -> None:
    """The registration is written; the former lease runs out."""

    async def story(s: session_stage.Stage) -> None:
        before = await s.store.consumer(session_stage.A, 60.0)
        revoked: list[int] = []

        async def revoke(lease_id: int) -> None:
            revoked.append(lease_id)
            raise error

        s.store.revoke = revoke  # type: ignore[method-assign]
        stream = await s.register(session_stage.A)
        assert (revoked, stream.ended) == ([before], None)
        assert await s.lease() not in (0, before)
        assert s.lives(before)

    session_stage.staged(story)


def test_a_former_lease_is_revoked_after_the_registration_is_written() -> None:
    """Its keys would end the registration otherwise."""

    async def story(s: session_stage.Stage) -> None:
        before = await s.store.consumer(session_stage.A, 60.0)
        found: list[bool] = []
        revoke = s.store.revoke

        async def noted(lease_id: int) -> None:
            found.append((await s.lease()) != lease_id == before)
            await revoke(lease_id)

        s.store.revoke = noted  # type: ignore[method-assign]
        await s.register(session_stage.A)
        assert (found, s.lives(before)) == ([True], False)

    session_stage.staged(story)


def test_a_new_process_deletes_the_mark_of_a_leave_and_fences_its_predecessor() -> None:
    """Both belong to the same write: after an outage in between the mark would count."""

    async def story(s: session_stage.Stage) -> None:
        before = replace(session_stage.A, incarnation="a0", session="s0")
        lease = await s.store.consumer(before, 60.0)
        await s.store.put(ALL.departed("a"), b"dismissed")
        await s.register(session_stage.A)
        assert await s.fences() == {ALL.fence("a", "a0"): (b"s0", lease)}
        assert set(s.store.view.departed) == set()
        [writes] = [writes for _, writes in s.store.txns if len(writes) > 1]
        keys = {ALL.consumer("a"), ALL.departed("a"), ALL.fence("a", "a0")}
        assert {write.key for write in writes} == keys

    session_stage.staged(story, strict=True)


# -- connections to etcd


class Channel:
    """A channel that records its end."""

    def __init__(self, how: tuple[Any, ...]) -> None:
        self.how = how
        self.closed: list[float | None] = []
        self.over = asyncio.Event()

    async def close(self, grace: float | None = None) -> None:
        """Wait for the calls, if there is a grace."""
        self.closed.append(grace)
        if grace is not None:
            await self.over.wait()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    """Replace gRPC's channels, and the check of their files."""
    channels: list[Channel] = []

    def channel(*how: Any, options: Any = None) -> Channel:
        channels.append(Channel((*how, options)))
        return channels[-1]

    monkeypatch.setattr(access.grpc.aio, "insecure_channel", channel)
    monkeypatch.setattr(access.grpc.aio, "secure_channel", channel)
    monkeypatch.setattr(access.grpc, "ssl_channel_credentials", lambda *files: ("TLS", *files))
    monkeypatch.setattr("faust_assigner.service.certificates.check_pair", lambda *_: None)
    monkeypatch.setattr("faust_assigner.service.certificates.check_authorities", lambda *_: None)
    return channels


async def test_each_endpoint_has_one_connection_with_all_credentials(
    made: list[Channel], tmp_path: Path
) -> None:
    """The scheme is no part of the address; numbers wrap; both kinds have the pings' options."""
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name.upper())
    plain = Connections(EtcdAccess(endpoints=("a:1", "http://b:2")))
    assert plain.of(1) is plain.of(3) is not plain.of(0)
    secure = Connections(
        EtcdAccess(
            endpoints=("https://c:3",),
            ca=tmp_path / "ca",
            certificate=tmp_path / "cert",
            key=tmp_path / "key",
        )
    )
    secure.of(5)
    Connections(EtcdAccess(endpoints=("https://d:4",))).of(0)
    assert [channel.how for channel in made] == [
        ("b:2", CHANNEL_OPTIONS),
        ("a:1", CHANNEL_OPTIONS),
        ("c:3", ("TLS", b"CA", b"KEY", b"CERT"), CHANNEL_OPTIONS),
        ("d:4", ("TLS", None, None, None), CHANNEL_OPTIONS),
    ]
    await plain.close()
    assert [channel.closed for channel in made] == [[None], [None], [], []]
    assert plain.of(0) is made[4]


async def test_changed_files_retire_each_connection_until_its_calls_have_ended(
    made: list[Channel], tmp_path: Path
) -> None:
    """The files are looked at every two seconds; a close ends retired connections, too."""
    now = [100.0]
    (tmp_path / "ca").write_text("ONE")
    asked = EtcdAccess(endpoints=("a:1", "b:2"), ca=tmp_path / "ca")
    connections = Connections(asked, clock=lambda: now[0])
    first = [connections.of(0), connections.of(1)]
    (tmp_path / "ca").write_text("THE SECOND")
    now[0] += 1.875
    assert connections.of(0) is first[0]
    now[0] += 0.125
    assert connections.of(0) is made[2]
    assert [channel.how[1][1] for channel in made] == [b"ONE", b"ONE", b"THE SECOND"]
    await asyncio.sleep(0)
    assert [channel.closed for channel in made] == [[access.RETIRED_S], [access.RETIRED_S], []]
    made[1].over.set()
    await asyncio.sleep(0.001)
    assert list(connections._retired) == [first[0]]
    now[0] += 5.0
    assert connections.of(0) is made[2]
    await connections.close()
    assert [channel.closed for channel in made] == [
        [access.RETIRED_S, None],
        [access.RETIRED_S],
        [None],
    ]


@pytest.mark.parametrize("value", [b"", b"x"])
def test_a_key_without_a_value_is_no_deletion(value: bytes) -> None:
    """The kind of the event tells a deletion, whose message has a key and no value, too."""
    message = pb.KeyValue(
        key=b"/k", value=value, create_revision=3, mod_revision=7, version=2, lease=9
    )
    read_ = KeyValue("/k", value, 3, 7, 2, 9)
    assert etcd._event(pb.Event(type=pb.Event.PUT, kv=message)) == Event("/k", 7, read_)
    assert etcd._event(pb.Event(type=pb.Event.DELETE, kv=message)) == Event("/k", 7, None)
