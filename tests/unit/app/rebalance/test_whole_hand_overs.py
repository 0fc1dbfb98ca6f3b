"""Hand-overs and assignments at their edges: nothing gained, a slow delivery, a late handler."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Set
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.consumer.waits import waits_of
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


class Unfinished:
    """A record that a stream has begun."""

    acked, offset = False, 7

    def __init__(self, tp: TP) -> None:
        self.tp = tp


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
    consumer.delivery._looked_at, consumer._buffered_partitions = {A, B, C}, {B}
    await consumer.incremental.assign(assigned, {A, B} - assigned, gained, ({A}, {LOG}), 9)
    assert consumer.app.unassigned is unassigned
    assert consumer._paused_partitions == gained
    assert consumer.delivery._looked_at == {A, B, C} - gained
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
    consumer._buffered_partitions, consumer.delivery._handing_out = {LOG, other}, LOG
    batches = {LOG: [1, 2], other: [3]}
    consumer.delivery._in_hand = dict(batches)
    looks: list[Any] = []

    async def sleep(seconds: float) -> None:
        looks.append((seconds, [one.message.tp for one in queue._queue]))
        queue._queue.extend([event(LOG), event(A)])
        if len(looks) == 3:
            consumer.delivery._handing_out = A

    clock = iter([100.0, 100.01, 100.2, 107.0])
    monkeypatch.setattr(incremental, "monotonic", lambda: next(clock))
    monkeypatch.setattr(incremental.asyncio, "sleep", sleep)
    await consumer.incremental.pause_and_drop([LOG])
    pauses = [0.002, pytest.approx(0.025), 0.05]
    assert looks == [(pauses[number], [other, *[A] * number]) for number in range(3)]
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
    incremental._log_late_error(late)
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
        await consumer.incremental.revoke(set(revoked))
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


async def test_transactions_begin_before_tables_are_restored() -> None:
    """A restored partition flows at once, and its first send needs its transaction."""
    consumer = consumer_of(A)
    consumer.in_transaction = True
    await consumer.incremental.assign({A, C}, set(), {C}, ({A, LOG}, {B}), 9)
    names = [act if isinstance(act, str) else act[0] for act in consumer.app.acts]
    assert names == [
        "interrupt",
        "update",
        "agents",
        "subscriptions",
        "topics",
        "begin transactions",
        "take on",
        "signal",
    ]
    assert consumer.app.acts[5] == ("begin transactions", {A, C})


async def test_each_committed_offset_but_none_and_zero_is_where_commits_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faust takes a committed offset of 0 for none."""
    consumer = consumer_of(A)
    consumer._committed_offset = {C: 9}

    async def committed(client: str, first_read: Any, tps: Any) -> dict[TP, int | None]:
        assert (client, first_read, tps) == ("client", {B: 4}, {A, B, C, LOG})
        return {A: 1, B: None, C: 0, LOG: 7}

    consumer.first_read = {B: 4}
    monkeypatch.setattr(incremental, "seek_committed", committed)
    await consumer.incremental.seek_some({A, B, C, LOG})
    assert consumer._read_offset == {A: 1, B: None, C: 0, LOG: 7}
    assert consumer._committed_offset == {A: 1, C: 9, LOG: 7}


async def test_a_consumer_that_stands_still_pauses_all_that_is_assigned() -> None:
    """Also partitions that a full buffer or a restore holds back at the moment."""
    consumer = consumer_of(A, C)
    await consumer.incremental.stand_still()
    assert consumer._paused_partitions == {A, B}, "the assignment of the client"
    assert consumer.app.acts == ["stop taking on", "stop flow", "suspend", "clear"]


def test_a_partition_is_verified_at_each_look_after_its_first() -> None:
    """A partition that is not wanted meanwhile starts again."""
    consumer, seen = consumer_of(A, B), list[Any]()
    for now in (1.0, 2.0, 3.0):
        consumer.delivery.verify(lambda *look: seen.append(look), now, A)
    consumer._paused_partitions = {A}
    for now in (4.0, 5.0):
        consumer.delivery.verify(lambda *look: seen.append(look), now, A)
        consumer.delivery.verify(lambda *look: seen.append(look), now, B)
        consumer._paused_partitions = set()
    consumer.delivery.verify(lambda *look: seen.append(look), 6.0, A)
    assert seen == [(2.0, A), (3.0, A), (5.0, B), (6.0, A)]


async def test_the_wait_of_a_hand_over_counts_the_partitions_that_go() -> None:
    """The watchdog's line and the limit are of the hand-over; nothing waits afterwards."""
    consumer, seen = consumer_of(A, B, C), list[Any]()
    consumer.app.conf.broker_rebalance_timeout = 45.0

    async def interrupt() -> None:
        seen.extend((w.what, w.step, w.limit_s) for w in waits_of(consumer.app).under_way())

    consumer.app.tables.recovery.interrupt = interrupt
    await consumer.incremental.revoke({A, C})
    assert seen == [("The hand-over of 2 partitions", "the recovery to pause", 45.0)]
    assert waits_of(consumer.app).under_way() == ()


async def test_the_line_about_unfinished_records_counts_those_that_go(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Records of kept partitions are not counted; each queue loses the records that go."""
    consumer, clock = consumer_of(A, B, C), iter([100.0, 130.0, 130.25])
    queues = [Queue(event(A), event(B)), Queue(event(C), event(C), event(B))]
    consumer.app.flow_control._queues = queues
    consumer._unacked_messages = {Unfinished(tp) for tp in (A, B, C, A, B)}
    monkeypatch.setattr(incremental, "monotonic", lambda: next(clock))
    monkeypatch.setattr(incremental, "MOST_LOOK_S", 0)
    await consumer.incremental._finish({A, C})
    assert caplog.messages == [
        "Partitions are revoked with 3 unfinished records after 30 s; the next owner processes "
        "these records again"
    ]
    assert [[one.message.tp for one in queue._queue] for queue in queues] == [[B], [B]]


@pytest.mark.parametrize("step", ["revoke", "assign"])
async def test_a_step_of_a_round_has_its_span_and_its_state(step: str) -> None:
    """The span has the app's part alone; mode shows the state from begin to end."""
    consumer, acts = consumer_of(A, B), list[Any]()

    @contextlib.contextmanager
    def span(name: str) -> Iterator[None]:
        acts.append(("span", name, consumer.leaving))
        yield
        acts.append("span ends")

    async def send(tps: set[TP]) -> None:
        acts.append(("signal", tps))

    consumer.app._start_span_from_rebalancing = span
    consumer.app.on_partitions_revoked = consumer.app.on_partitions_assigned = SimpleNamespace(
        send=send
    )
    consumer.incremental.diag = SimpleNamespace(
        set_flag=lambda flag: acts.append(("set", flag)),
        unset_flag=lambda flag: acts.append(("unset", flag)),
    )
    if step == "revoke":
        await consumer.incremental.revoke({A})
        flag, name, told, leaving = "PARTITIONS_REVOKED", "on_partitions_revoked", {A}, {A}
    else:
        await consumer.incremental.assign({A, C}, {B}, {C}, ({A}, {LOG}), 9)
        flag, name, told, leaving = "PARTITIONS_ASSIGNED", "on_partitions_assigned", {A, C}, set()
    assert acts == [
        ("set", flag),
        ("span", name, leaving),
        ("signal", told),
        "span ends",
        ("unset", flag),
    ]
