"""A consumer's stream and the registry of streams: the queue, its limit, and the ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faust_assigner.service.commands import AbortWarm, Assignment, Command, Pulse
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.records import Ended
from faust_assigner.service.serving.registry import Registry, Stream, end_reason
from tests.support.waiting import PATIENCE_S

AT = TopicPartition("t", 0)
FULL = Assignment(full=True)


def command(number: int) -> Command:
    """A command with this number."""
    return AbortWarm(AT, number)


class Stage:
    """A stream whose state has a revision, and the calls of its callbacks."""

    def __init__(self, *, limit: int = 3, beats: bool = True, lives: float = 5.0) -> None:
        self.revision = 10
        self.lives = lives
        self.calls: list[str] = []
        self.stream = self.of("a", limit=limit, beats=beats)

    def of(self, name: str, *, limit: int = 3, beats: bool = True, incarnation: str = "") -> Stream:
        """A stream of this stage."""
        return Stream(
            name,
            "s",
            incarnation=incarnation,
            limit=limit,
            lives=lambda: self.lives,
            snapshot=lambda: [FULL, command(self.revision)],
            overflowed=lambda: self.calls.append("overflowed"),
            closed=self._closed,
            now=lambda: self.revision,
            beats=beats,
        )

    async def _closed(self, stream: Stream) -> None:
        self.calls.append(f"closed {stream.consumer_name} {stream.ended}")

    async def next(self) -> tuple[int, Command]:
        """Return the next command and the revision of its state."""
        found = await anext(self.stream)
        return self.stream.revision, found

    async def rest(self) -> list[Command]:
        """Return all commands until the stream ends."""
        return [one async for one in self.stream]

    async def read(self) -> None:
        """Read the snapshot."""
        assert [await self.next(), await self.next()] == [
            (self.revision, FULL),
            (self.revision, command(self.revision)),
        ]


async def test_a_stream_begins_with_the_snapshot_of_the_moment_of_its_first_read() -> None:
    """The snapshot includes earlier commands; later ones follow with the revisions of their states."""
    s = Stage()
    assert s.stream.revision == 0
    s.stream.offer(command(1))
    s.stream.pulse()
    s.revision = 20
    await s.read()
    s.stream.offer(command(2))
    s.revision = 30
    s.stream.offer(command(3))
    s.revision = 40
    assert [await s.next(), await s.next()] == [(20, command(2)), (30, command(3))]


async def test_a_full_queue_is_replaced_by_a_snapshot() -> None:
    """One command above the limit counts one overflow; commands before the read are included."""
    s = Stage(limit=3)
    await s.read()
    for number in (1, 2, 3):
        s.stream.offer(command(number))
    assert s.calls == []
    s.stream.offer(command(4))
    s.stream.offer(command(5))
    assert s.calls == ["overflowed"]
    s.revision = 50
    await s.read()
    s.stream.offer(command(6))
    assert await s.next() == (50, command(6))


async def test_a_snapshot_on_request_replaces_the_queue_and_is_no_overflow() -> None:
    """After the end, the last commands are still sent instead."""
    s = Stage()
    await s.read()
    s.stream.offer(command(1))
    s.stream.resync()
    await s.read()
    s.stream.offer(command(2))
    s.stream.end(Ended.DRAINED)
    s.stream.resync()
    assert (await s.rest(), s.calls) == ([command(2)], [])


async def test_a_reader_that_waits_gets_each_kind_of_news() -> None:
    """A command, a pulse, a snapshot and the end each wake the reader."""
    s = Stage()
    await s.read()
    for news, expected in (
        (lambda: s.stream.offer(command(1)), command(1)),
        (s.stream.pulse, Pulse()),
        (s.stream.resync, FULL),
    ):
        reading = asyncio.create_task(s.next())
        await asyncio.sleep(0)
        news()
        assert (await asyncio.wait_for(reading, PATIENCE_S))[1] == expected
    await s.next()
    ending = asyncio.create_task(s.rest())
    await asyncio.sleep(0)
    s.stream.end(Ended.STOPPING)
    assert await asyncio.wait_for(ending, PATIENCE_S) == []


@pytest.mark.parametrize("beats", [True, False])
async def test_only_an_idle_stream_of_a_consumer_with_heartbeats_pulses(beats: bool) -> None:
    """A pulse is sent once, never before the snapshot, beside a command, or after the end."""
    s = Stage(beats=beats)
    s.stream.pulse()
    await s.read()
    s.stream.pulse()
    s.stream.pulse()
    s.stream.offer(command(1))
    s.stream.pulse()
    s.stream.end(Ended.CLOSED)
    s.stream.pulse()
    assert await s.rest() == [*([Pulse()] if beats else []), command(1)]


@pytest.mark.parametrize("why", list(Ended))
@pytest.mark.parametrize("is_read", [True, False])
async def test_an_end_that_makes_commands_stale_drops_them(why: Ended, is_read: bool) -> None:
    """Other ends first send the queued commands or the snapshot; the first reason stays."""
    s = Stage()
    if is_read:
        await s.read()
        s.stream.offer(command(1))
    s.stream.end(why)
    s.stream.end(Ended.LEASE_LOST)
    s.stream.offer(command(2))
    is_stale = why in (Ended.REPLACED, Ended.AGAIN, Ended.EXPELLED, Ended.LEASE_LOST)
    left: list[Command] = [command(1)] if is_read else [FULL, command(10)]
    assert await s.rest() == ([] if is_stale else left)
    assert s.stream.ended is why


def test_a_stream_lives_as_long_as_its_lease_and_not_after_its_end() -> None:
    """The time is never negative."""
    s = Stage(lives=5.0)
    assert s.stream.lives_s == 5.0
    s.lives = -1.0
    assert s.stream.lives_s == 0.0
    s.lives = 7.0
    s.stream.end(Ended.DRAINED)
    assert s.stream.lives_s == 0.0


async def test_a_closed_stream_ends_before_its_clean_up() -> None:
    """The clean-up gets the stream; an earlier reason stays."""
    s = Stage()
    await s.stream.close()
    other = s.of("b")
    other.end(Ended.DRAINED)
    await other.close()
    assert s.calls == [f"closed a {Ended.CLOSED}", f"closed b {Ended.DRAINED}"]


@pytest.mark.parametrize(
    ("new", "old", "why"),
    [
        ("p1", "p1", Ended.AGAIN),
        ("p2", "p1", Ended.REPLACED),
        ("", "", Ended.REPLACED),
        ("~x", "~x", Ended.REPLACED),
        ("", "p1", Ended.REPLACED),
    ],
)
def test_a_stream_of_the_same_process_ends_as_registered_again(
    new: str, old: str, why: Ended
) -> None:
    """Only an incarnation sent by the process identifies it."""
    s, registry = Stage(), Registry()
    before, after = s.of("a", incarnation=old), s.of("a", incarnation=new)
    other = s.of("b")
    for stream in (before, other, after):
        registry.add(stream)
    assert end_reason(new, old) is why
    assert (before.ended, after.ended, other.ended) == (why, None, None)


def test_the_registry_has_one_stream_for_each_name() -> None:
    """A late removal of an older stream has no effect; streams may be removed during an iteration."""
    s, registry = Stage(), Registry()
    before, after, other = s.of("a"), s.of("a"), s.of("b")
    for stream in (before, other, after):
        registry.add(stream)
    assert (len(registry), registry.get("a"), registry.get("b")) == (2, after, other)
    assert registry.remove(before) is False
    found: list[Any] = []
    for stream in registry:
        found.append(stream)
        assert registry.remove(stream) is True
    assert found == [after, other]
    assert (len(registry), registry.get("a"), registry.remove(after)) == (0, None, False)
