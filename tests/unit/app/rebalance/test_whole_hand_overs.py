"""Hand-overs and assignments at their edges: nothing gained, a slow delivery, a late handler."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.rebalance import incremental
from tests.unit.app.rebalance.test_incremental import (
    LOG,
    A,
    B,
    C,
    Queue,
    _overlay,
    consumer_of,
    event,
)

__all__ = ["_overlay"]


@pytest.mark.parametrize(
    ("assigned", "gained", "unassigned"),
    [({A, B}, set(), False), ({A, C}, {C}, False), (set(), set(), True)],
)
async def test_a_worker_is_unassigned_without_any_partition_kept_or_new(
    assigned: Set[TP], gained: Set[TP], unassigned: bool
) -> None:
    """Faust's page and its leader election ask whether the worker has a partition."""
    consumer = consumer_of(A, B)
    consumer.app.unassigned = not unassigned
    consumer._looked_at, consumer._buffered_partitions = {A, B, C}, {B}
    await consumer.assign(assigned, {A, B} - assigned, gained, ({A}, {LOG}), 9)
    assert consumer.app.unassigned is unassigned
    assert consumer._paused_partitions == gained
    assert consumer._looked_at == {A, B, C} - gained
    assert consumer._buffered_partitions == {B} & assigned
    assert consumer._active_partitions == assigned - gained - {B}
    gone = {A, B} - assigned
    assert consumer.app.acts == [
        "interrupt",
        ("update", assigned),
        ("agents", gone, gained),
        "subscriptions",
        ("topics", assigned),
        ("take on", {A}, {LOG}, gone),
        ("signal", assigned),
    ]


async def test_a_changelog_s_record_under_way_is_waited_for_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each record that reaches the queue meanwhile is dropped; other records stay, in order."""
    other = TP("log", 1)
    consumer = consumer_of(A, LOG, other)
    queue = consumer.app.tables.changelog_queue = Queue(event(other), event(LOG))
    consumer._buffered_partitions, consumer._delivering = {LOG, other}, LOG
    batches = {LOG: [1, 2], other: [3]}
    consumer._in_hand = dict(batches)
    looks: list[Any] = []

    async def sleep(seconds: float) -> None:
        looks.append((seconds, [one.message.tp for one in queue._queue]))
        queue._queue.extend([event(LOG), event(A)])
        if len(looks) == 3:
            consumer._delivering = A

    monkeypatch.setattr(incremental.asyncio, "sleep", sleep)
    await consumer.pause_and_drop([LOG])
    look_s = incremental.LOOK_S
    assert looks == [(look_s, [other, *[A] * number]) for number in range(3)]
    assert [one.message.tp for one in queue._queue] == [other, A, A, A]
    assert (consumer._paused_partitions, consumer._buffered_partitions) == ({LOG}, {other})
    assert batches == {LOG: [], other: [3]}


@pytest.mark.parametrize("end", ["cancelled", "failed", "returned"])
async def test_only_the_failure_of_a_late_handler_is_logged(end: str, caplog: Any) -> None:
    """The worker may stop and cancel the handler."""
    late: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    if end == "cancelled":
        late.cancel()
    elif end == "failed":
        late.set_exception(ValueError("late"))
    else:
        late.set_result(None)
    incremental._log_late(late)
    assert caplog.messages == (
        ["A handler of on_partitions_revoked failed after its round: ValueError('late')"]
        if end == "failed"
        else []
    )


async def test_a_second_hand_over_starts_like_the_first() -> None:
    """Nothing of the first is left: neither its partitions nor a wait, whatever was revoked."""
    consumer = consumer_of(A, B, C)
    for revoked in ({A, C}, {B}):
        consumer.app.acts.clear()
        await consumer.revoke(set(revoked))
        assert consumer.app.acts == [
            "interrupt",
            ("commit", revoked, 0, revoked),
            "flush producer",
            ("pause", {tp.partition for tp in revoked}),
            "flush tables",
            ("revoked", revoked),
            ("forget", revoked),
        ]
        assert (consumer.leaving, consumer._paused_partitions) == (frozenset(), set())
    assert consumer._active_partitions == set()
