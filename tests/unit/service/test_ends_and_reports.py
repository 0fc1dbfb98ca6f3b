"""Reports whose loss does not matter, ends with nothing left to do, and refusals of a leave."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.client import AssignerClient, Retry, TopicPartition, Warm
from faust_assigner.service.client.calls import Calls
from faust_assigner.service.client.leave import Leave
from faust_assigner.service.commands import Assignment, Pulse
from faust_assigner.service.errors import (
    BadRequest,
    Expelled,
    NotFound,
    Replaced,
    StoreUnavailable,
    WrongCaller,
    WrongPhase,
)
from faust_assigner.service.leases import HeldLease
from faust_assigner.service.records import Ended
from faust_assigner.service.server.auth import Caller
from faust_assigner.service.serving.acks import Answer
from faust_assigner.service.serving.answering import Answering
from faust_assigner.service.serving.registry import Stream
from faust_assigner.service.store.base import Put
from faust_assigner.service.store.memory import MemoryStore
from tests.unit.service import test_client_jobs as jobs
from tests.unit.service.stories import ALL, AT, HANDOFF, acks_of, put, store

SILENT = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())


@pytest.mark.parametrize("error", [None, SILENT, NotFound("no hand-off"), WrongPhase("over")])
async def test_a_report_of_progress_is_one_call_whose_errors_do_not_matter(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """The next report replaces it anyway."""
    said: list[Any] = []

    async def once(_: Calls, method: str, request: Any, **how: Any) -> None:
        said.append((method, request.partition.partition, request.handoff_id, request.progress))
        if error is not None:
            raise error

    monkeypatch.setattr(Calls, "once", once)
    client = AssignerClient("127.0.0.1:1", "a", incarnation="a1")
    await client.progress(Warm(TopicPartition("t", 3), "b", 7), 0.25)
    assert said == [("ReportProgress", 3, 7, 0.25)]


def test_a_consumer_without_partitions_does_not_wait_for_an_old_release() -> None:
    """Its partition may be lost already, so nobody waits for the end of this release."""

    async def story(s: jobs.Stage) -> None:
        s.release_s = 50.0
        await s.jobs.take(jobs.RELEASE)
        await asyncio.sleep(1.0)
        await s.jobs.finish((), 30.0)
        s.note("finished")

    assert jobs.staged(story)[:2] == [(0.0, "release", jobs.T0, "b"), (1.0, "finished")]


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [
        (NotFound("x"), False),
        (TimeoutError(), False),
        (Replaced("x"), True),
        (WrongCaller("x"), True),
        (BadRequest("x"), True),
    ],
)
async def test_a_leave_without_a_registration_hands_nothing_over_and_other_refusals_are_raised(
    error: Exception, is_raised: bool
) -> None:
    """A replaced process must learn that it is replaced."""
    acts: list[Any] = []

    async def retried(method: str, request: Any) -> Any:
        acts.append((method, request))
        raise error

    calls: Any = SimpleNamespace(retried=retried)
    requests: Any = SimpleNamespace(farewell=lambda: "farewell")
    rest: Any = SimpleNamespace()
    leave = Leave(
        "a",
        lambda: 0.0,
        Retry(leave_s=40.0),
        lambda work: acts.append("late") or work.close(),  # type: ignore[attr-defined]
        *(calls, requests, rest, rest, rest, rest),
    )
    for _ in range(2):
        if is_raised:
            with pytest.raises(type(error)):
                await leave.ask()
        else:
            assert await leave.ask() is False
    assert acts == ["late", ("Deregister", "farewell"), ("Deregister", "farewell")]


async def test_a_grant_is_over_with_the_next_write_of_its_assignment() -> None:
    """The revision of the first owner's grant is not that of the present one."""
    kept = store()
    key = ALL.assignment(AT)
    first = (await kept.txn([], [Put(key, b"x")])).revision
    answering = Answering(kept, ALL)
    await answering.check_grant(AT, first)
    second = (await kept.txn([], [Put(key, b"y")])).revision
    await answering.check_grant(AT, second)
    for granted in (first, 0, second + 1):
        with pytest.raises(WrongPhase, match="t/0: the epoch of this answer has ended"):
            await answering.check_grant(AT, granted)
    await kept.close()


async def test_a_history_of_exactly_its_most_bytes_is_kept() -> None:
    """One more byte ends the older half."""
    kept = MemoryStore(history_bytes=30)
    for value in (b"0123456789", b"abcdefghij", b"ABCDEFGHIJ"):
        await kept.txn([], [Put("/a", value)])
    assert kept.compacted == 0
    await kept.txn([], [Put("/b", b"-")])
    assert kept.compacted == 4
    await kept.close()


async def test_a_stream_that_has_ended_sends_no_pulse() -> None:
    """The commands from before the end are sent; an idle stream sends one pulse at a time."""

    async def closed(_: Stream) -> None:
        """Do nothing."""

    revisions = iter(range(7, 20))
    stream = Stream(
        "a",
        "s1",
        limit=5,
        lives=lambda: 3.0,
        snapshot=lambda: [Assignment(())],
        overflowed=lambda: None,
        closed=closed,
        now=lambda: next(revisions),
        beats=True,
    )
    stream.pulse()
    assert (await anext(stream), stream.revision) == (Assignment(()), 7)
    stream.pulse()
    stream.pulse()
    assert (await anext(stream), stream.revision) == (Pulse(), 8)
    stream.end(Ended.DRAINED)
    stream.pulse()
    assert [command async for command in stream] == []
    assert (stream.ended, stream.lives_s) == (Ended.DRAINED, 0.0)


async def test_a_process_without_an_incarnation_of_its_own_is_refused_when_it_is_expelled() -> None:
    """The mark has the incarnation that the service made for the process."""
    kept = store()
    handoff = replace(HANDOFF, new_incarnation="~s-1")
    before = await put(kept, ALL.handoff(AT), codec.dump_handoff(handoff))
    await put(kept, ALL.expelled("new", "~s-1"), b"late")
    with pytest.raises(Expelled, match="new: incarnation ~s-1 is expelled"):
        await acks_of(kept).ready(Answer("new", AT))
    assert await kept.get(ALL.handoff(AT)) == before
    await kept.close()


@pytest.mark.parametrize(
    ("ttl_s", "every_s", "slept"), [(9.0, 4.0, [4.0, 0.8, 0.8, 0.4]), (0.3, 0.1, [0.1, 0.05, 0.05])]
)
async def test_a_lease_without_an_answer_is_tried_five_times_as_often_until_its_end(
    ttl_s: float, every_s: float, slept: list[float]
) -> None:
    """The last wait ends with two thirds of the time to live; no wait is below 50 ms."""
    now, waits, limits = [100.0], list[float](), list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    async def keep_alive(lease_id: int, *, timeout_s: float) -> float:
        assert lease_id == 7
        limits.append(timeout_s)
        raise StoreUnavailable("no answer")

    clock: Any = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    kept: Any = SimpleNamespace(keep_alive=keep_alive)
    lease = HeldLease(kept, clock, 7, granted_s=ttl_s, ttl_s=2 * ttl_s, sent=100.0)
    await lease.hold(every_s)
    assert waits[: len(slept)] == pytest.approx(slept)
    assert sum(waits) == pytest.approx(ttl_s * 2 / 3)
    assert limits[0] == pytest.approx(ttl_s * 2 / 3 - every_s)
    assert (lease.is_held, lease.is_lost) == (False, False)


def test_a_caller_without_any_name_acts_as_nobody() -> None:
    """Only a service without authentication lets every caller act under every name."""
    for refused in (
        lambda: Caller(frozenset()).acting_as("a", "g"),
        lambda: Caller(frozenset()).watching("g"),
        lambda: Caller(frozenset()).administering(),
    ):
        with pytest.raises(WrongCaller):
            refused()
    assert Caller(None).acting_as("a", "g") == ""
