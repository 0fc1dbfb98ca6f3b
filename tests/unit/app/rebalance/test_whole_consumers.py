"""The repaired consumer as a whole: its parts, and steps that several partitions pass."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import get_logger
from mode.utils.logging import CompositeLogger

from faust_assigner.app.consumer.waits import committing, waits_of
from faust_assigner.app.membership.fence import HeartbeatFence
from faust_assigner.app.membership.shutdown import BoundedShutdown, ShutdownBudget
from faust_assigner.app.rebalance import consumer as module
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from tests.support.waiting import PATIENCE_S
from tests.unit.app.rebalance.test_consumer import SOURCE, STANDBY, Consumer, Host

A, B, C = TP("orders", 1), TP("bills", 2), TP("orders", 3)


async def test_a_commit_waits_for_the_changes_of_tables_as_a_step_of_its_own() -> None:
    """The watchdog's line then names the changes, and no longer the sent records."""
    consumer, steps = Consumer(), list[Any]()

    async def wait_for_delivery() -> bool:
        steps.extend((wait.what, wait.step) for wait in waits_of(consumer.app).under_way())
        return True

    consumer.changes = SimpleNamespace(wait_for_delivery=wait_for_delivery)
    with committing(consumer.app):
        assert await consumer._commit({SOURCE: 4})
    assert steps == [("The commit", "changes of tables, and the group's answer")]
    assert consumer.acts == [("committed", {SOURCE: 4})]


def test_each_partition_that_leaves_is_forgotten_in_each_book() -> None:
    """The books of kept partitions stay; a partition without a first record is no error."""
    books = ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset")
    consumer = object.__new__(RepairedConsumer)
    consumer.app = SimpleNamespace(_attachments=SimpleNamespace(_pending={}))
    consumer._unacked_messages = set()
    for number, book in enumerate(books):
        setattr(consumer, book, {A: number, B: 10 + number, C: 20 + number, STANDBY: 5})
    consumer.first_read = {A: 7, C: 3, STANDBY: 9}
    consumer._forget({A, B, C, SOURCE})
    assert consumer.first_read == {STANDBY: 9}
    assert [getattr(consumer, book) for book in books] == [{STANDBY: 5}] * 5


def test_a_commit_of_some_partitions_stops_before_their_unfinished_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The partitions may come as an iterator; Faust's books are whole again afterwards."""
    consumer, seen = Consumer(), list[Any]()
    consumer.app.consumer_generation_id = 7

    def unfinished(tp: TP, offset: int, generation: int = 7) -> Any:
        return SimpleNamespace(tp=tp, offset=offset, acked=False, generation_id=generation)

    consumer._unacked_messages = [unfinished(A, 5), unfinished(B, 2), unfinished(C, 1, 6)]
    consumer._acked = {A: [4, 6, 8], B: [1, 3], C: [2, 9]}
    consumer._gap = {A: (), B: (), C: ()}

    def committable(self: Any, tps: Any) -> dict[TP, int]:
        seen.append((tps, {tp: list(offsets) for tp, offsets in self._acked.items()}))
        return {A: 5}

    monkeypatch.setattr(Host, "_filter_committable_offsets", committable, raising=False)
    assert consumer._filter_committable_offsets(iter([A, C])) == {A: 5}
    assert seen == [((A, C), {A: [4], B: [1, 3], C: [2, 9]})]
    assert consumer._acked == {A: [4, 6, 8], B: [1, 3], C: [2, 9]}


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_generation_begins_with_the_fence_and_its_changes(
    monkeypatch: pytest.MonkeyPatch, is_watched: bool
) -> None:
    """A consumer without a group has no membership, and surely owns its partitions."""
    consumer, fence = Consumer(), SimpleNamespace(is_sure=lambda: False)
    fence.join = lambda: consumer.acts.append("join")
    consumer.fence = fence
    consumer._thread._consumer = SimpleNamespace(_coordinator="coordinator")

    def watch(*what: Any) -> bool:
        assert what == ("coordinator", fence)
        return is_watched

    monkeypatch.setattr(module, "watch", watch)
    consumer._begin_generation()
    assert consumer.acts == [*(["join"] if is_watched else []), ("changes", is_watched)]
    assert consumer.is_surely_member() is not is_watched
    fence.is_sure = lambda: True
    assert consumer.is_surely_member()


async def test_an_assignment_pauses_each_partition_of_the_client_in_fausts_type() -> None:
    """Partitions that a restore has paused already stay paused; nothing is buffered any more."""
    consumer = Consumer()
    consumer._buffered_partitions, consumer._paused_partitions = {A, B, SOURCE}, {STANDBY, B}
    await consumer.on_partitions_assigned({tuple(A), tuple(C)}, 9)  # type: ignore[arg-type]
    assert consumer._paused_partitions == {STANDBY, A, B, C}
    assert {type(tp) for tp in consumer._paused_partitions} == {TP}
    assert consumer._buffered_partitions == set()
    assert consumer.acts[-1] == ("assigned", {A, C}, 9, set(), {STANDBY, A, B, C}, True)


def test_resumed_partitions_reach_faust_in_its_type_and_wake_the_fetcher() -> None:
    """The fetcher runs on the consumer's thread, whose loop may be closed; it may not exist yet."""
    consumer, woken = Consumer(), list[Any]()
    consumer.resume_partitions(iter([tuple(A), tuple(B)]))  # type: ignore[arg-type]
    assert consumer.acts == [("resume", {A, B})]
    consumer.fetcher = SimpleNamespace(wake="wake")  # type: ignore[assignment]
    consumer._thread.thread_loop = SimpleNamespace(call_soon_threadsafe=woken.append)
    consumer.between_generations = True
    consumer.resume_partitions([A])
    assert woken == []
    consumer.between_generations = False
    consumer.resume_partitions([C])
    assert (woken, consumer.acts[1:]) == (["wake"], [("resume", {C})])

    def closed(what: object) -> None:
        raise RuntimeError("Event loop is closed")

    consumer._thread.thread_loop = SimpleNamespace(call_soon_threadsafe=closed)
    consumer.wake_fetcher()


async def test_all_offsets_are_committed_after_the_commit_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faust's commit alone would only wait for the end of that commit."""
    consumer, acts = Consumer(), list[str]()

    async def budget(what: str, step: Any) -> None:
        acts.append(what)
        await step()

    async def under_way(self: Any) -> bool:
        acts.append("wait")
        return True

    async def commit_all(self: Any) -> None:
        acts.append("commit")

    consumer.shutdown = SimpleNamespace(budget=SimpleNamespace(within=budget))
    monkeypatch.setattr(Host, "maybe_wait_for_commit_to_finish", under_way, raising=False)
    monkeypatch.setattr(Host, "commit_and_end_transactions", commit_all, raising=False)
    await consumer.commit_and_end_transactions()
    assert acts == ["Commit under way", "wait", "commit"]


async def test_a_cancelled_wait_for_a_commit_ends_no_other_wait() -> None:
    """Faust cancels the shared future: a revocation would go on before the running commit ends."""
    consumer: Any = object.__new__(RepairedConsumer)
    app = SimpleNamespace(should_stop=False)
    consumer.shutdown = SimpleNamespace(budget=ShutdownBudget(app))  # type: ignore[arg-type]
    assert await consumer.maybe_wait_for_commit_to_finish() is False
    consumer._commit_fut = asyncio.get_running_loop().create_future()
    waits = [asyncio.ensure_future(consumer.maybe_wait_for_commit_to_finish()) for _ in range(2)]
    await asyncio.sleep(0.01)
    waits[0].cancel()
    await asyncio.wait({waits[0]}, timeout=PATIENCE_S)
    await asyncio.sleep(0.01)
    assert (waits[0].cancelled(), waits[1].done()) == (True, False)
    consumer._commit_fut.set_result(None)
    assert await waits[1] is True


@pytest.mark.parametrize("event", ["no time is left", "stopped meanwhile", "cancelled"])
async def test_the_wait_for_a_stuck_stream_ends(event: str) -> None:
    """Faust's wait for an acknowledgement ignores a cancellation; the last commit is not made then."""
    consumer: Any = object.__new__(RepairedConsumer)
    app = SimpleNamespace(
        should_stop=event == "no time is left",
        producer=SimpleNamespace(flush=None, on_stop=None),
        agents=SimpleNamespace(human_tracebacks=str),
        conf=SimpleNamespace(
            broker_max_poll_interval=60.0, broker_request_timeout=1.0, broker_rebalance_timeout=2.0
        ),
    )
    steps = list[str]()

    async def commit(step: str) -> None:
        steps.append(step)

    consumer.app, consumer.loop, consumer.diag = app, None, Mock()
    consumer._stopped, consumer._crashed = asyncio.Event(), asyncio.Event()
    consumer.log = CompositeLogger(get_logger(__name__))
    consumer._unacked_messages = {Mock(acked=False)}
    consumer.commit = partial(commit, "commit")
    consumer.commit_and_end_transactions = partial(commit, "last commit")
    consumer.shutdown = BoundedShutdown(app, None)  # type: ignore[arg-type]
    waiting = asyncio.ensure_future(consumer.wait_empty())
    await asyncio.sleep(0.01)
    if event == "cancelled":
        waiting.cancel()
    else:
        app.should_stop = True
        consumer.shutdown.budget.over.set()
    await asyncio.wait({waiting}, timeout=PATIENCE_S)
    left = len(asyncio.all_tasks())
    consumer._unacked_messages.clear()  # so that a wait that goes on ends with the test
    assert (waiting.done(), waiting.cancelled()) == (True, event == "cancelled")
    assert steps == ["commit"]
    assert left == 1


class Bare(driver.Consumer):  # type: ignore[misc]
    """Stand in for Faust's consumer at its creation."""

    in_transaction = False

    def __init__(self, *args: Any, callback: Any, app: Any, **options: Any) -> None:
        self.given, self.callback, self.app = (args, options), callback, app
        self._thread, self.transactions = "thread", SimpleNamespace()


async def test_each_part_of_a_new_consumer_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts report to the consumer's app and share one fence; Faust delivers through ours."""
    made: list[Any] = []
    for name in ("Delivery", "RecordBoundaryCommits", "BackPressure", "Rounds"):
        monkeypatch.setattr(module, name, lambda owner, name=name: (name, owner))
    for name in ("IncrementalRebalance", "ChangelogGuard", "BoundedShutdown"):
        monkeypatch.setattr(module, name, lambda *parts, name=name: (name, *parts))
    monkeypatch.setattr(
        module, "HeartbeatFence", lambda seconds: made.append(seconds) or HeartbeatFence(seconds)
    )

    class New(RepairedConsumer, Bare):  # type: ignore[misc]
        """The repaired consumer over the stand-in."""

    app: Any = SimpleNamespace(conf=SimpleNamespace(broker_session_timeout=61.5))
    new: Any = New("transport", callback="deliver", app=app, loop="loop")
    assert new.given == (("transport",), {"loop": "loop"})
    assert isinstance(new.callback, partial)
    assert (new.callback.func, new.callback.args) == (new._deliver, ("deliver",))
    assert (new.left.is_set(), new._resumed.is_set(), new.first_read) == (False, False, {})
    assert isinstance(new.left, asyncio.Event)
    assert new.rounds == ("Rounds", app)
    assert new.delivery == ("Delivery", new)
    assert new.incremental == ("IncrementalRebalance", new, new.delivery, new.rounds)
    assert new.boundaries == ("RecordBoundaryCommits", new)
    assert made == [61.5]
    assert new.changes == ("ChangelogGuard", app, new.fence)
    assert new.shutdown == ("BoundedShutdown", app, "thread")
    assert new.room == ("BackPressure", new)
    assert (new.between_generations, new.fetch_rounds, new.fetcher) == (False, 0, None)
    assert new.is_surely_member()
