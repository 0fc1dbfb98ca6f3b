"""A partition with unreadable records beside readable partitions, which lose no record."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.protocol.fetch import FetchRequest

from faust_assigner.app.consumer import set_aside
from tests.integration.app.membership.test_coordinator import group, load
from tests.support.coordination.cooperative_members import TOPIC, Member, Plan
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(150)

BAD, PARTITIONS = 2, range(4)
Spoil = Callable[[list[Any]], None]


def corrupt(part: list[Any]) -> None:
    """Flip a bit in the last byte of the batch."""
    if part[-1]:
        part[-1] = part[-1][:-1] + bytes([part[-1][-1] ^ 1])


def garbage(part: list[Any]) -> None:
    """Replace the batch by bytes that are no batch."""
    part[-1] = b"\xff" * 61


def cut(part: list[Any]) -> None:
    """Cut the batch, as brokers do if it is larger than the fetch limit."""
    part[-1] = part[-1][:40]


def refused(part: list[Any]) -> None:
    """Answer with a disk error of the broker, for which aiokafka has no handling."""
    part[1], part[-1] = 56, b""


def forbidden(part: list[Any]) -> None:
    """Refuse the right to read the topic."""
    part[1], part[-1] = 29, b""


class Spoiled:
    """A member's fetches; the answers for one partition are damaged while ``spoil`` is set."""

    def __init__(self, member: Member) -> None:
        self.spoil: Spoil | None = None
        self.fetches = self.named = 0
        self._send = member.consumer._client.send
        member.consumer._client.send = self.send

    async def send(self, node: Any, request: Any, **more: Any) -> Any:
        """Send the request and damage the response."""
        answer = await self._send(node, request, **more)
        if isinstance(request, FetchRequest):
            self.fetches += 1
            self.named += any(part[0] == BAD for _, parts in answer.topics for part in parts)
            answer.topics = [
                (topic, [self._of(list(part)) for part in parts]) for topic, parts in answer.topics
            ]
        return answer

    def _of(self, part: list[Any]) -> tuple[Any, ...]:
        if self.spoil is not None and part[0] == BAD:
            self.spoil(part)
        return tuple(part)


@contextlib.asynccontextmanager
async def reader() -> AsyncIterator[tuple[Member, Spoiled]]:
    """A member that reads four partitions under a steady load."""
    async with group(Plan({"a": set(PARTITIONS)}), "a") as (broker, (member,)), load(broker):
        await until(lambda: all(map(member.offsets, PARTITIONS)), "records")
        yield member, Spoiled(member)


async def more(member: Member, *partitions: int, count: int = 30) -> None:
    """Wait until the member has read ``count`` more records of each partition."""
    wanted = {p: len(member.offsets(p)) + count for p in partitions}
    await until(
        lambda: all(len(member.offsets(p)) >= n for p, n in wanted.items()), "records", seconds=20
    )


@pytest.mark.parametrize("spoil", [corrupt, garbage, cut, refused])
async def test_others_flow_without_a_hole_beside_a_partition_that_cannot_be_read(
    spoil: Spoil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka raises and skips the records that the same turn took from other partitions."""
    monkeypatch.setattr(set_aside, "RETRY_S", 0.1)
    async with reader() as (member, spoiled):
        spoiled.spoil = spoil
        await more(member, *(p for p in PARTITIONS if p != BAD), count=100)
        assert not member.reading.done(), "the reader was told"
        spoiled.spoil = None
        await more(member, *PARTITIONS)
        for p in PARTITIONS:
            assert member.offsets(p) == list(range(len(member.offsets(p)))), (
                f"a hole or a repeat in {p}"
            )


async def test_a_partition_that_cannot_be_read_is_named_and_counted_and_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The pause doubles after each attempt and starts anew after a successful read."""
    monkeypatch.setattr(set_aside, "RETRY_S", 0.05)
    monkeypatch.setattr(set_aside, "MOST_RETRY_S", 0.2)
    async with reader() as (member, spoiled):
        fetcher = member.consumer._fetcher
        spoiled.spoil = corrupt
        with caplog.at_level(logging.ERROR, set_aside.__name__):
            await until(lambda: fetcher.counters["unreadable_partitions"] == 4, "tries")
        told = [
            record.getMessage() for record in caplog.records if record.name == set_aside.__name__
        ]
        offset = len(member.offsets(BAD))
        assert all(
            f"{TOPIC}-{BAD} cannot be read from offset {offset}: CorruptRecord" in one
            for one in told
        )
        assert [one.rpartition("attempt is in ")[2] for one in told] == [
            "0.1 s",
            "0.1 s",
            "0.2 s",
            "0.2 s",
        ]
        spoiled.spoil = None
        await more(member, BAD)
        assert not len(fetcher.aside)


async def test_what_may_not_be_read_is_told_and_nothing_is_lost_by_that() -> None:
    """An operator must grant the right; the turn that raises the error drops no record."""
    async with reader() as (member, spoiled):
        member.reading.cancel()
        await asyncio.gather(member.reading, return_exceptions=True)
        spoiled.spoil, raised = forbidden, 0
        while raised < 5:
            try:
                for tp, records in (
                    await member.consumer.getmany(timeout_ms=50, max_records=3)
                ).items():
                    member.read += [(0.0, tp.partition, record.offset) for record in records]
            except TopicAuthorizationFailedError:
                raised += 1
        for p in PARTITIONS:
            assert member.offsets(p) == list(range(len(member.offsets(p))))


async def test_what_a_broker_refuses_is_left_out_of_the_fetches_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With that partition in the fetch the broker does not wait for more records of the others."""
    monkeypatch.setattr(set_aside, "REFUSED_S", 0.3)
    async with reader() as (member, spoiled):
        spoiled.spoil = refused
        fetcher = member.consumer._fetcher
        await until(lambda: len(fetcher.refused), "a refusal")
        named, began = spoiled.named, asyncio.get_running_loop().time()
        await more(member, *(p for p in PARTITIONS if p != BAD))
        assert spoiled.named - named <= 1 + (asyncio.get_running_loop().time() - began) / 0.3
        spoiled.spoil = None
        await more(member, BAD)
        assert not len(fetcher.refused)


@pytest.mark.slow
async def test_a_broker_that_answers_at_once_with_nothing_is_not_asked_again_at_once() -> None:
    """A broker does not hold a fetch that has a partition error; retries need their own pause."""
    async with group(Plan({"a": {BAD}}), "a") as (broker, (member,)):
        spoiled = Spoiled(member)
        spoiled.spoil = refused
        await until(lambda: spoiled.fetches > 5, "fetches")
        spoiled.fetches, began = 0, asyncio.get_running_loop().time()
        await until(lambda: spoiled.fetches > 20, "fetches")
        assert asyncio.get_running_loop().time() - began > 10 * 0.02, "20 fetches of 20 ms each"
        spoiled.spoil = None
        async with load(broker):
            await more(member, BAD)
