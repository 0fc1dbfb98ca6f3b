"""The streams of an instance: their commands, their pulses, and the reasons of their ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.commands import Assignment, Owned, Pulse
from faust_assigner.service.handoff import Handoff, Phase
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.records import Consumer, Ended, Status
from faust_assigner.service.store.base import Delete, Put
from tests.unit.service.session_stage import T0, T1, A, B, Stage, staged
from tests.unit.service.stories import ALL


def test_changes_are_told_to_the_consumers_connected_here() -> None:
    """The cases: commands, an overflow, a request for a full assignment, and a raised base."""

    async def story(s: Stage) -> None:
        stream, b = await s.register(A), await s.register(B)
        await anext(stream)
        await anext(b)
        epoch = await s.store.owner(T0, "a", "a1")
        assert await anext(stream) == Assignment((Owned(T0, epoch),))
        for other in (b.session, "x", stream.session):
            await s.store.put(ALL.resync("a"), other.encode())
            s.sessions.registry.get("a").pulse()  # type: ignore[union-attr]
            command = await anext(stream)
            full = Assignment((Owned(T0, epoch),), full=True)
            assert command == (full if other == stream.session else Pulse())
        await s.store.put(ALL.epochs, codec.dump_base(1_000))
        assert await anext(stream) == Assignment((Owned(T0, 1_000 + epoch),), full=True)
        assert await anext(b) == Assignment(full=True)
        handoff = Handoff(
            T0, "a", "b", Phase.WARMING, 1.0, old_incarnation="a1", new_incarnation="b1"
        )
        for _ in range(2):
            await s.store.handoff(handoff)
            await s.store.txn([], [Delete(ALL.handoff(T0))])
        assert ("resynced", "b") in s.metrics
        assert await anext(b) == Assignment(full=True)

    staged(story)


@pytest.mark.parametrize(
    ("status", "is_expelled", "why"),
    [
        (Status.READY, False, Ended.LEASE_LOST),
        (Status.DRAINING, False, Ended.DRAINED),
        (Status.READY, True, Ended.EXPELLED),
        (Status.DRAINING, True, Ended.EXPELLED),
    ],
)
def test_a_deleted_registration_ends_its_stream_with_its_reason(
    status: Status, is_expelled: bool, why: Ended
) -> None:
    """The lease is no longer renewed; the second consumer's stream continues."""

    async def story(s: Stage) -> None:
        other = await s.register(replace(B, name="c"))
        stream = await s.register(B)
        entry = s.store.view.consumers["b"]
        drained = replace(entry.value, status=status)
        await s.store.put(entry.kv.key, codec.dump_consumer(drained), entry.kv.lease)
        if is_expelled:
            await s.store.put(ALL.expelled("b", "b1"), b"x")
        await s.store.txn([], [Delete(entry.kv.key)])
        assert (stream.ended, other.ended) == (why, None)
        await asyncio.sleep(18.1)
        assert s.lives(entry.kv.lease) is False

    staged(story)


def test_a_registration_at_another_instance_ends_the_stream_here() -> None:
    """The stream ends as registered again, or as replaced."""

    async def story(s: Stage) -> None:
        a, b = await s.register(A), await s.register(B)
        for consumer in (replace(A, session="x"), replace(B, incarnation="b2", session="y")):
            await s.store.put(ALL.consumer(consumer.name), codec.dump_consumer(consumer))
        assert (a.ended, b.ended, len(s.sessions.registry)) == (Ended.AGAIN, Ended.REPLACED, 0)

    staged(story)


def test_streams_pulse_nine_times_in_a_time_to_live_until_the_store_is_silent() -> None:
    """Only streams with heartbeats pulse, and end when the store is silent."""

    async def story(s: Stage) -> None:
        a, b = await s.register(A), await s.register(B)
        await anext(a)
        await anext(b)
        s.store.heard_at = s.clock.monotonic()
        pulsing = asyncio.create_task(s.sessions.pulse())
        for _ in range(7):
            await asyncio.sleep(2.01)
            assert (list(a._queue) != [], list(b._queue)) == (True, [])
            assert await anext(a) == Pulse()
        assert a.ended is None
        await asyncio.sleep(2.0)
        assert (a.ended, b.ended) == (Ended.LEASE_LOST, None)
        pulsing.cancel()

    staged(story)


def test_a_stopped_instance_ends_present_and_later_streams() -> None:
    """Their registrations live exactly until their leases end."""

    async def story(s: Stage) -> None:
        b = await s.register(B)
        lease = await s.lease("b")
        await asyncio.sleep(10.0)
        await s.sessions.stop()
        late = await s.register(replace(B, name="late"))
        assert (b.ended, late.ended) == (Ended.STOPPING, Ended.STOPPING)
        assert await s.store.registered("late") is not None
        await asyncio.sleep(15.9)
        assert s.lives(lease)
        await asyncio.sleep(2.2)
        assert not s.lives(lease)

    staged(story)


def test_a_registration_that_changed_meanwhile_is_decided_again() -> None:
    """The lease of the process's present registration is read again."""

    async def story(s: Stage) -> None:
        await s.register(A)
        other = (await HeldLease.grant(s.store, s.clock, 18.0)).lease_id
        moved = replace(A, session="elsewhere")
        s.store.meanwhile = [[Put(ALL.consumer("a"), codec.dump_consumer(moved), other)]]
        stream = await s.register(A)
        assert await s.lease() == other
        assert stream.session.startswith(f"n1-{other:x}-")

    staged(story)


def test_every_change_of_one_batch_is_heard() -> None:
    """A base, a request for an assignment, two ends and two vain drains come at one revision."""

    async def story(s: Stage) -> None:
        names = ("a", "c", "d", "e", "f")
        streams = [await s.register(replace(A, name=name)) for name in names]
        plain = await s.register(B)
        for stream in (*streams, plain):
            await anext(stream)
        a, c, d, e, f = streams
        for number, name in enumerate("de"):
            await s.store.owner((T0, T1)[number], name, "a1")
        draining = [
            Put(
                entry.kv.key,
                codec.dump_consumer(replace(entry.value, status=status)),
                entry.kv.lease,
            )
            for name, status in (("d", Status.DRAINING), ("e", Status.DRAINING))
            for entry in (s.store.view.consumers[name],)
        ]
        ready = replace(B, topics=("u",), session=plain.session)
        await s.store.txn(
            [],
            [
                Put(ALL.resync("f"), f.session.encode()),
                Put(ALL.resync("gone"), b"x"),
                *(Delete(ALL.consumer(name)) for name in "ac"),
                *draining,
                Put(
                    ALL.consumer("f"),
                    codec.dump_consumer(replace(A, name="f", topics=("u",), session=f.session)),
                ),
                Put(ALL.consumer("b"), codec.dump_consumer(ready)),
                Put(ALL.topic("v"), b"?"),
            ],
        )
        ends = [stream.ended for stream in (a, c, d, e, f, plain)]
        lost, drained = Ended.LEASE_LOST, Ended.DRAINED
        assert ends == [lost, lost, drained, drained, None, None]
        assert await anext(f) == Assignment(full=True)

    staged(story)


def test_a_stop_ends_the_renewal_of_every_registration() -> None:
    """Each lease runs out a time to live after its last renewal."""

    async def story(s: Stage) -> None:
        for name in ("x", "y", "z"):
            await s.register(replace(B, name=name))
        await asyncio.sleep(5.0)
        await s.sessions.stop()
        await asyncio.sleep(18.1)
        s.store.follow()
        assert s.store.view.consumers == {}

    staged(story)


def test_a_command_has_the_revision_of_its_state_on_the_scale_of_epochs() -> None:
    """The snapshot has that of its reading, a later command that of its change."""

    async def story(s: Stage) -> None:
        await s.store.put(ALL.epochs, codec.dump_base(5_000))
        stream = await s.register(A)
        await s.store.topic("u", 1)
        await anext(stream)
        assert stream.revision == s.store.dated > 5_000
        changed = 5_000 + await s.store.owner(T0, "a", "a1")
        await s.store.topic("u", 2)
        await anext(stream)
        assert (stream.revision, s.store.dated) == (changed, changed + 1)

    staged(story)


@pytest.mark.parametrize(("consumer", "other"), [(A, B), (B, A)])
def test_a_closed_stream_is_gone_at_once_and_its_registration_is_not(
    consumer: Consumer, other: Consumer
) -> None:
    """Nobody renews its lease at this instance any more; a second close changes nothing."""

    async def story(s: Stage) -> None:
        await s.register(other)
        stream = await s.register(consumer)
        lease = await s.lease(consumer.name)
        s.metrics.clear()
        await asyncio.sleep(5.0)
        await stream.close()
        await stream.close()
        assert (stream.ended, s.metrics) == (Ended.CLOSED, [("streams", 1)])
        assert [one.consumer_name for one in s.sessions.registry] == [other.name]
        assert stream not in s.sessions._keeping
        assert (s.lives(lease), await s.lease(consumer.name)) == (True, lease)
        await asyncio.sleep(18.0)
        assert (s.lives(lease), await s.lease(consumer.name)) == (False, 0)

    staged(story)
