"""A second registration, stream or heartbeat: what is forgotten, closed and refused before it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service.client import Grant, worker
from faust_assigner.service.client.worker import Worker
from faust_assigner.service.errors import WrongCaller
from faust_assigner.service.store.base import Delete
from tests.unit.service import test_client_heart as client
from tests.unit.service.stories import ALL
from tests.unit.service.test_heartbeats import T0, T1, A, Stage, digest, staged


@pytest.mark.parametrize("identity", ["", "eve"])
def test_a_heartbeat_without_the_registered_identity_is_refused(identity: str) -> None:
    """The registration's own identity renews it; without one, any identity does."""

    async def story(s: Stage) -> None:
        await s.store.consumer(replace(A, identity="adam"), 60.0)
        with pytest.raises(WrongCaller, match="a is registered by another identity"):
            await s.beat(identity=identity)
        assert s.renewed == []
        assert await s.beat(identity="adam") == 40.0
        await s.store.consumer(A, 60.0)
        assert await s.beat(identity=identity) == 40.0

    staged(story)


def test_a_difference_from_a_former_life_of_a_consumer_is_not_repaired_at_once() -> None:
    """The new registration's difference has to last by itself."""

    async def story(s: Stage) -> None:
        await s.store.owner(T0, "a", "a1")
        wrong = digest((T0, 7_777))
        await s.store.consumer(A, 60.0)
        await s.beat(wrong)
        await s.store.txn([], [Delete(ALL.consumer("a"))])
        await s.clock.sleep(30.0)
        await s.store.consumer(A, 60.0)
        await s.beat(wrong)
        await s.clock.sleep(19.0)
        await s.beat(wrong)
        assert s.metrics.repairs == 0
        await s.clock.sleep(1.0)
        await s.beat(wrong)
        assert s.metrics.repairs == 1

    staged(story)


def test_a_difference_lasts_only_while_the_expected_partitions_stay_the_same() -> None:
    """The consumer reports the same partitions all the time."""

    async def story(s: Stage) -> None:
        await s.store.consumer(A, 60.0)
        await s.store.owner(T0, "a", "a1")
        wrong = digest((T0, 7_777))
        for moment in range(0, 36, 4):
            if moment == 12:
                await s.store.owner(T1, "a", "a1")
            await s.beat(wrong)
            assert s.metrics.repairs == int(moment >= 32), moment
            await s.clock.sleep(4.0)

    staged(story)


def test_each_stream_begins_without_the_connection_of_the_one_before() -> None:
    """A close ends an open stream once, and always the connection."""
    events: list[Any] = []

    async def story(i: client.Instances) -> None:
        streams = i.streamed
        calls: Any = streams.calls
        register = calls.register

        async def close() -> None:
            events.append("close")

        def registered(target: str, request: Any) -> Any:
            events.append(target)
            return register(target, request)

        calls.close, calls.register = close, registered
        for _ in range(2):
            assert await streams.hold_one(50.0)
        assert events == ["close", "x:1", "close", "y:1"]
        assert streams.is_open
        ended: list[str] = []

        async def code() -> None:
            ended.append("code")

        streams._stream = SimpleNamespace(cancel=lambda: ended.append("cancel"), code=code)
        await streams.close()
        assert (streams.is_open, ended) == (False, ["cancel", "code"])
        await streams.close()
        streams.cancel()
        assert (ended, events[4:]) == (["cancel", "code"], ["close", "close"])

    client.held(story, (0.0, [client.first()], None), (0.0, [client.first("s2")], None))


@pytest.mark.parametrize(("patience_s", "limit_s"), [(1.5, 1.5), (0.0, 0.0), (-4.0, 0.0)])
async def test_a_commit_that_is_due_is_not_delayed_by_a_missing_record(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, limit_s: float
) -> None:
    """A wait ends with a record, with the stop or with its time; it takes no record too many."""
    limits: list[Any] = []

    async def wait(tasks: Any, *, timeout: float, return_when: str) -> None:
        limits.append((timeout, return_when))
        await asyncio.sleep(0)

    async def begin(owned: Any) -> None:
        await asyncio.Event().wait()

    partitions: Any = SimpleNamespace(begin=begin)
    made = Worker(Grant(T0, 5), partitions, 9)
    stopping = asyncio.create_task(asyncio.sleep(1e6))
    monkeypatch.setattr(worker, "asyncio", SimpleNamespace(**{**vars(asyncio), "wait": wait}))
    record = SimpleNamespace(offset=3)
    try:
        assert await made._next(stopping, patience_s) is None  # type: ignore[arg-type]
        made._queue.put_nowait(record)
        assert await made._next(stopping, patience_s) is record  # type: ignore[arg-type]
        assert made._queue.empty()
        assert limits == [(limit_s, asyncio.FIRST_COMPLETED)] * 2
    finally:
        for task in (stopping, made.task):
            task.cancel()
        await asyncio.gather(stopping, made.task, return_exceptions=True)
