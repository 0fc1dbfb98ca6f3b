"""The consumer's steps with revoked and assigned partitions, over a Faust that notes its calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from faust_assigner.app.consumer.delivery import Delivery, drop
from faust_assigner.app.consumer.waits import waits_of
from faust_assigner.app.rebalance import consumer_thread
from faust_assigner.app.rebalance import incremental as handing_over
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from faust_assigner.app.rebalance.consumer_thread import ThreadListener
from faust_assigner.app.rebalance.incremental import IncrementalRebalance
from faust_assigner.app.rebalance.rounds import Rounds

A, B, C, LOG = TP("orders", 0), TP("orders", 1), TP("orders", 2), TP("log", 0)


class Host(driver.Consumer):  # type: ignore[misc]
    """Stand in for Faust's consumer; list each call in ``app.acts``."""

    def __init__(self, app: Any, active: Iterable[TP]) -> None:
        self.app, self.callback = app, self._handed
        self.diag = SimpleNamespace(set_flag=lambda flag: None, unset_flag=lambda flag: None)
        self._active_partitions, self._paused_partitions = set(active), set[TP]()
        self._buffered_partitions, self._unacked_messages = set[TP](), set[Any]()
        self._read_offset: dict[TP, Any] = {}
        self._committed_offset: dict[TP, Any] = {}
        self.first_read: dict[TP, int] = {}
        self.in_transaction, self.flow_active, self.commits_under_way = False, True, 0
        self.found: dict[TP, list[Any]] = {}
        acts = app.acts
        self.transactions = SimpleNamespace(
            revoke=self.noting("part with"), assign=self.noting("begin transactions")
        )
        self.fence = SimpleNamespace(lose=lambda: acts.append("lose"))
        self._thread = SimpleNamespace(
            call_thread=self._call,
            _ensure_consumer=lambda: "client",
            thread_loop=SimpleNamespace(call_soon_threadsafe=lambda wake: wake()),
        )
        self.woken: list[set[TP]] = []
        self.fetcher = SimpleNamespace(wake=lambda: self.woken.append(set(self._active_partitions)))

    def noting(self, what: str) -> Any:
        """Return a coroutine function that notes its call."""

        async def note(*args: Any, **kwargs: Any) -> None:
            self.app.acts.append((what, *args, *kwargs.values()) if args or kwargs else what)

        return note

    async def _call(self, function: Any, *args: Any) -> Any:
        return await function(*args)

    async def _handed(self, message: Any) -> str:
        self.app.acts.append(("handed", message.tp))
        return "done"

    async def _getmany(self, active: Any, timeout: float) -> dict[TP, list[Any]]:
        return dict(self.found)

    def pause_partitions(self, tps: Iterable[TP]) -> None:
        """Pause, as Faust does."""
        self._paused_partitions |= set(tps)
        self._active_partitions -= set(tps)

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Resume, as Faust does."""
        self._paused_partitions -= set(tps)
        self._active_partitions |= set(tps)

    def assignment(self) -> set[TP]:
        """Return the assigned partitions."""
        return {A, B}

    async def maybe_wait_for_commit_to_finish(self) -> bool:
        """Return whether a commit was in progress."""
        self.commits_under_way -= 1
        return self.commits_under_way >= 0

    async def commit(self, topics: Any = None) -> None:
        """Note the commit."""
        self.app.acts.append(
            ("commit", topics, max(0, self.commits_under_way), set(self._paused_partitions))
        )

    def _forget(self, tps: set[TP]) -> None:
        self.app.acts.append(("forget", tps))

    def stop_flow(self) -> None:
        """Note the call."""
        self.app.acts.append("stop flow")


class Consumer(RepairedConsumer, Host):  # type: ignore[misc]
    """The repaired consumer over the stand-in, with the parts of a cooperative round."""

    maybe_wait_for_commit_to_finish = Host.maybe_wait_for_commit_to_finish
    _forget = Host._forget

    def __init__(self, app: Any, active: Iterable[TP]) -> None:
        Host.__init__(self, app, active)
        self.rounds, self.delivery = Rounds(app), Delivery(self)
        self.incremental = IncrementalRebalance(self, self.delivery, self.rounds)
        self.room = SimpleNamespace(holds_back=lambda message: False)
        self.callback = partial(self._deliver, self.callback)
        self._resumed = asyncio.Event()


class Queue:
    """The queue of a stream."""

    def __init__(self, *events: Any) -> None:
        self._queue, self._putters = deque(events), deque[Any]()
        self.waiters: list[asyncio.Future[None]] = []
        self.acts: list[str] = []

    def maybe_endorse_pressure_drop(self) -> None:
        """Note the free room."""
        self.acts.append("room")

    def full(self) -> bool:
        """Return whether both places are taken."""
        return len(self._queue) + [waiter.done() for waiter in self.waiters].count(True) >= 2

    def wait_for_room(self) -> asyncio.Future[None]:
        """Return the future of a task that waits for room."""
        waiter = asyncio.get_running_loop().create_future()
        self._putters.append(waiter)
        return waiter


def event(tp: TP) -> Any:
    """Return a record in a stream."""
    return SimpleNamespace(message=SimpleNamespace(tp=tp))


def consumer_of(*active: TP) -> Any:
    """Return a consumer that reads ``active``."""
    acts: list[Any] = []

    def note(what: str) -> Any:
        return lambda *_: acts.append(what)

    app = SimpleNamespace(
        acts=acts,
        should_stop=False,
        client_only=False,
        rebalancing_count=0,
        rebalancing=False,
        unassigned=True,
        assignor=SimpleNamespace(leaves=False),
        conf=SimpleNamespace(
            broker_rebalance_timeout=60.0, broker_request_timeout=90.0, stream_wait_empty=True
        ),
        flow_control=SimpleNamespace(
            _queues={Queue()}, suspend=note("suspend"), clear=note("clear")
        ),
        tables=SimpleNamespace(changelog_queue=Queue()),
    )
    consumer = Consumer(app, active)
    app.tables.recovery = SimpleNamespace(
        interrupt=consumer.noting("interrupt"),
        flush_buffers=note("flush tables"),
        assign=consumer.noting("take on"),
        stop_assigning=note("stop taking on"),
    )
    app.producer = SimpleNamespace(flush=consumer.noting("flush producer"))
    app.agents = SimpleNamespace(on_rebalance=consumer.noting("agents"))
    app.topics = SimpleNamespace(
        maybe_wait_for_subscriptions=consumer.noting("subscriptions"),
        on_partitions_assigned=consumer.noting("topics"),
    )
    app.on_partitions_assigned = SimpleNamespace(send=consumer.noting("signal"))
    app.on_partitions_revoked = SimpleNamespace(send=consumer.noting("revoked"))
    app._start_span_from_rebalancing = lambda name: contextlib.nullcontext()
    app.rebalancing = False
    app.on_rebalance_return, app.on_rebalance_end = note("return"), note("end")
    app.crash = consumer.noting("crash")
    app._update_assignment = lambda tps: acts.append(("update", tps))
    return consumer


@pytest.fixture(autouse=True)
def _overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Note ``told`` and the pause of the overlay."""

    async def told() -> None:
        TOLD.append("told")

    TOLD.clear()
    monkeypatch.setattr(handing_over, "run_delivery_callbacks", told)
    monkeypatch.setattr(
        handing_over, "pause", lambda app, numbers: app.acts.append(("pause", numbers))
    )


TOLD: list[str] = []


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_what_goes_is_finished_committed_and_written_down_in_this_order(
    in_transaction: bool,
) -> None:
    """The partition is forgotten last; the kept partition is neither paused nor committed."""
    consumer = consumer_of(A, B)
    consumer.in_transaction, consumer.commits_under_way = in_transaction, 2
    batches = {A: [1], B: [2]}
    consumer._buffered_partitions, consumer.delivery._in_hand = {A, B}, dict(batches)
    flush = consumer.app.producer.flush

    async def flush_first() -> None:
        assert TOLD == [], "rows land when their records were delivered"
        await flush()

    consumer.app.producer.flush = flush_first
    await consumer.incremental.revoke({A})
    gone = {A}
    assert consumer.app.acts == [
        "interrupt",
        ("commit", gone, 0, gone),
        *([("part with", gone)] if in_transaction else []),
        "flush producer",
        ("pause", {0}),
        "flush tables",
        ("revoked", gone),
        ("forget", gone),
    ]
    assert TOLD == ["told"]
    assert (consumer._active_partitions, consumer._buffered_partitions) == ({B}, {B})
    assert (batches[A], batches[B]) == ([], [2]), "Faust hands these very lists to the streams"
    assert consumer._paused_partitions == set()
    assert consumer.leaving == frozenset()


async def test_handlers_are_told_of_what_goes_while_it_is_still_here() -> None:
    """Its records are committed by then; a failed handler ends the worker, as in Faust."""
    consumer = consumer_of(A, B)
    seen: list[Any] = []

    async def handler(revoked: set[TP]) -> None:
        seen.append((revoked, consumer.leaving, consumer._paused_partitions.copy()))
        raise ValueError("handler")

    consumer.app.on_partitions_revoked.send = handler
    await consumer.incremental.revoke({A})
    assert seen == [({A}, {A}, {A})]
    assert [act[0] for act in consumer.app.acts[-2:]] == ["crash", "forget"]


async def test_a_handler_that_awaits_a_cancelled_task_ends_no_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else the handler's cancellation would end aiokafka's coordination task."""
    consumer = consumer_of(A, B)

    async def handler(revoked: set[TP]) -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    consumer.app.on_partitions_revoked.send = handler
    await consumer.incremental.revoke({A})
    assert consumer.app.acts[-1] == ("forget", {A})
    assert "crash" not in [act[0] for act in consumer.app.acts]
    assert "on_partitions_revoked was cancelled" in caplog.text


async def test_a_handler_that_does_not_return_holds_up_a_round_for_half_of_its_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler continues beside the round, and its late error is logged."""
    consumer, may_end = consumer_of(A, B), asyncio.Event()

    async def wait(tasks: set[Any], *, timeout: float) -> tuple[set[Any], set[Any]]:
        assert timeout == 30.0
        await asyncio.sleep(0)
        return set(), tasks

    async def handler(revoked: set[TP]) -> None:
        await may_end.wait()
        raise ValueError("late")

    consumer.app.on_partitions_revoked.send = handler
    with monkeypatch.context() as patch:
        patch.setattr(handing_over.asyncio, "wait", wait)
        await consumer.incremental.revoke({A})
    assert "has not returned after 30 s; 1 partitions" in caplog.text
    assert consumer.app.acts[-1] == ("forget", {A})
    may_end.set()
    await asyncio.sleep(0.01)
    assert "failed after its round: ValueError('late')" in caplog.text


async def test_what_goes_is_forgotten_though_it_cannot_be_committed() -> None:
    """The next owner processes the records again."""
    consumer = consumer_of(A, B)
    seen: list[Any] = []

    async def refused(topics: Any = None) -> None:
        seen.append(consumer.leaving)
        raise ConnectionError

    consumer.commit = refused
    with pytest.raises(ConnectionError):
        await consumer.incremental.revoke({A})
    assert consumer.app.acts[-1] == ("forget", {A})
    assert (seen, consumer.leaving, consumer._paused_partitions) == ([{A}], frozenset(), set())


@pytest.mark.parametrize(("leaves", "acts"), [(False, 0), (True, 7)])
async def test_a_worker_that_stops_hands_over_only_where_it_leaves_so(
    leaves: bool, acts: int
) -> None:
    """Otherwise all partitions end at once."""
    consumer = consumer_of(A)
    consumer.app.should_stop, consumer.app.assignor.leaves = True, leaves
    await consumer.incremental.revoke({A})
    assert len(consumer.app.acts) == acts


@pytest.mark.parametrize(
    ("waits", "done", "is_late"), [(True, False, True), (True, True, False), (False, False, False)]
)
async def test_records_under_way_have_half_of_the_rebalances_time(
    waits: bool,
    done: bool,
    is_late: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Records begun by streams are awaited if the app waits; the next owner repeats the rest."""
    consumer, clock = consumer_of(A, B), iter(range(0, 1000, 10))
    monkeypatch.setattr(handing_over, "monotonic", lambda: next(clock))
    monkeypatch.setattr(handing_over, "MOST_LOOK_S", 0)
    consumer.app.conf.stream_wait_empty = waits
    record = SimpleNamespaceOf(tp=A, offset=7, acked=done)
    consumer._unacked_messages = {record, SimpleNamespaceOf(tp=B, acked=False)}
    await consumer.incremental._finish({A})
    assert set(consumer.kept_back.given_up) == (set() if done else {record})
    assert record.acked, "its end is no acknowledgement"
    assert consumer.kept_back.first == ({} if done else {A: 7}), "no commit includes it"
    assert ("with 1 unfinished records after 30 s" in caplog.text) == is_late
    assert next(clock) == (50 if is_late else 10)


def test_the_pause_between_two_checks_grows_with_the_wait() -> None:
    """A short wait ends within 2 ms; a slow record of half a minute costs 20 checks a second."""
    waits = (0.0, 0.01, 0.08, 0.2, 0.4, 30.0)
    assert [handing_over._pause_s(s) for s in waits] == [0.002, 0.002, 0.01, 0.025, 0.05, 0.05]


class SimpleNamespaceOf(SimpleNamespace):
    """A hashable namespace."""

    __hash__ = object.__hash__


async def test_a_record_that_is_being_handed_over_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record is in no stream yet; queued records are dropped."""
    consumer = consumer_of(A, B)
    (queue,) = consumer.app.flow_control._queues
    queue._queue.extend([event(A), event(B)])
    consumer.delivery._handing_out = A

    async def sleep(_: float) -> None:
        queue._queue.append(event(A))
        consumer.delivery._handing_out = None

    monkeypatch.setattr(handing_over.asyncio, "sleep", sleep)
    await consumer.incremental._finish({A})
    assert consumer.delivery._handing_out is None
    assert [one.message.tp for one in queue._queue] == [B]


async def test_what_comes_is_paused_and_told_to_agents_topics_and_tables() -> None:
    """Kept partitions stay unchanged; a partition with a full queue stays buffered."""
    consumer = consumer_of(A, B, C)
    consumer._paused_partitions, consumer._buffered_partitions = {C}, {B, C}
    assigned, gone, gained = {A, B, LOG}, {C}, {LOG}
    await consumer.incremental.assign(assigned, gone, gained, ("actives", "standbys"), 7)
    assert consumer.app.acts == [
        "interrupt",
        ("update", assigned),
        ("agents", gone, gained),
        "subscriptions",
        ("topics", assigned),
        ("take on", "actives", "standbys", gone),
        ("signal", assigned),
    ]
    assert consumer._paused_partitions == {LOG}
    assert consumer._buffered_partitions == {B}
    assert consumer._active_partitions == {A}
    assert not consumer.app.unassigned
    assert consumer.woken


async def test_a_partition_that_is_given_again_is_paused_even_if_its_revocation_failed() -> None:
    """A revocation that failed at its first step has left the partition active."""
    consumer = consumer_of(A, B)
    await consumer.incremental.assign({A, B}, {A}, {A}, ("actives", "standbys"), 7)
    assert (consumer._paused_partitions, consumer._active_partitions) == ({A}, {B})


async def test_a_round_is_answered_once_the_app_knows_what_it_has() -> None:
    """The handlers of the signal are part of the round."""
    consumer = consumer_of(A)
    consumer.rounds.is_unanswered = True
    await consumer.incremental.assign({A}, set(), {A}, ({A}, set()), 7)
    assert consumer.app.acts[-2:] == [("signal", {A}), "return"]


async def test_transactions_learn_of_all_that_is_assigned() -> None:
    """The transactions find the new partitions themselves."""
    consumer = consumer_of(A)
    consumer.in_transaction = True
    await consumer.incremental.assign({A, B}, set(), {B}, (), 7)
    begun = [act for act in consumer.app.acts if act[0] == "begin transactions"]
    assert begun == [("begin transactions", {A, B})]


async def test_a_worker_that_stops_takes_nothing_on_and_one_that_fails_crashes() -> None:
    """Else the worker would run on without its partitions."""
    consumer = consumer_of(A)
    consumer.app.agents.on_rebalance = None
    await consumer.incremental.assign({A}, set(), {A}, (), 7)
    assert consumer.app.acts[-1][0] == "crash"
    consumer.app.acts.clear()
    consumer.app.should_stop = True
    await consumer.incremental.assign({A}, set(), {A}, (), 7)
    assert not consumer.app.acts


@pytest.mark.parametrize("delivering", [LOG, A, None])
async def test_what_is_read_again_is_paused_and_nothing_of_it_waits(
    delivering: TP | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may be buffered, fetched, queued, or on its way into the queue."""
    consumer, queue = consumer_of(A, LOG), Queue(event(LOG), event(A))
    consumer.app.tables.changelog_queue = queue
    consumer._buffered_partitions, consumer.delivery._in_hand = {A, LOG}, {A: [1], LOG: [2, 3]}
    consumer.delivery._handing_out = delivering

    async def sleep(_: float) -> None:
        queue._queue.append(event(LOG))
        consumer.delivery._handing_out = None

    monkeypatch.setattr(handing_over.asyncio, "sleep", sleep)
    await consumer.incremental.pause_and_drop({LOG})
    assert consumer.delivery._handing_out == (A if delivering == A else None)
    assert (consumer._paused_partitions, consumer._buffered_partitions) == ({LOG}, {A})
    assert consumer.delivery._in_hand == {A: [1], LOG: []}
    assert [one.message.tp for one in queue._queue] == [A]


async def test_records_of_what_does_not_flow_are_neither_kept_at_hand_nor_handed_over() -> None:
    """The partition may restart from an earlier offset before these records are delivered."""
    consumer = consumer_of(A)
    consumer._buffered_partitions, consumer._paused_partitions = {B}, {C}
    consumer.found = {A: [1], B: [2], C: [3]}
    assert await consumer._getmany(None, 1.0) == {A: [1], B: [2]}
    for tp in (A, B, C):
        handed = await consumer.callback(SimpleNamespace(tp=tp))
        assert handed == (None if tp == C else "done")
    assert [act[1] for act in consumer.app.acts] == [A, B]
    assert consumer.delivery._handing_out is None


def test_what_is_paused_is_not_wanted_though_its_queue_was_full() -> None:
    """The partition resumes from a different offset."""
    consumer = consumer_of(A)
    consumer._buffered_partitions, consumer._paused_partitions = {B, C}, {C}
    assert [tp for tp in (A, B, C, LOG) if consumer.delivery.is_wanted(tp)] == [A, B]


async def test_committed_offsets_are_where_commits_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets count for the sought partitions; a partition without a commit has none."""

    consumer = consumer_of()

    async def sought(client: str, first_read: Any, tps: set[TP]) -> dict[TP, int | None]:
        assert (client, first_read, tps) == ("client", {C: 4}, {A, B, C, LOG})
        (wait,) = waits_of(consumer.app).under_way()
        assert (wait.what, wait.step) == ("The recovery", "committed offsets")
        assert wait.limit_s == 90.0 + 60.0 + 60.0, "after an open transaction has ended"
        return {A: 7, B: None, C: None, LOG: 0}

    consumer.first_read, consumer._committed_offset = {C: 4}, {B: 3}
    consumer._read_offset = {A: 2, B: 9}
    monkeypatch.setattr(handing_over, "seek_committed", sought)
    consumer.kept_back.first = {A: 7, TP("bills", 0): 1}
    await consumer.incremental.seek_some({A, B, C, LOG})
    assert consumer.kept_back.sought == {A}
    assert consumer._read_offset == {A: 7, B: None, C: None, LOG: 0}
    assert consumer._committed_offset == {A: 7, B: 3}


async def test_who_may_have_been_given_up_stops_at_once() -> None:
    """The calling thread closes the fence and the flow first; the app's loop does the rest."""
    consumer = consumer_of(A, B)
    consumer.incremental.stop_flow_now()
    assert (consumer.flow_active, consumer.app.acts) == (False, ["lose"])
    await consumer.incremental.stand_still()
    assert consumer.app.acts == ["lose", "stop taking on", "stop flow", "suspend", "clear"]
    assert consumer._paused_partitions == {A, B}


def test_a_partition_that_was_paused_has_its_time_for_records_again() -> None:
    """Faust warns about missing records; the first check after a pause reports nothing."""
    consumer, complaints = consumer_of(A), list[float]()
    for now, is_paused in ((1.0, False), (2.0, False), (3.0, True), (4.0, False), (5.0, False)):
        consumer._paused_partitions = {A} if is_paused else set()
        consumer.delivery.verify(lambda at, tp: complaints.append(at), now, A)
    assert complaints == [2.0, 5.0]


async def test_a_partition_that_comes_back_has_its_time_for_records_again() -> None:
    """The last check was before the revocation."""
    consumer, complaints = consumer_of(A), list[float]()
    consumer.delivery.verify(lambda at, tp: complaints.append(at), 1.0, A)
    await consumer.incremental.assign({A}, set(), {A}, ({A}, set()), 7)
    consumer._paused_partitions.clear()
    consumer._active_partitions.add(A)
    for now in (2.0, 3.0):
        consumer.delivery.verify(lambda at, tp: complaints.append(at), now, A)
    assert complaints == [3.0]


def test_the_fetcher_is_woken_once_there_is_something_to_fetch() -> None:
    """An earlier wake-up would find no partition to fetch."""
    consumer = consumer_of(A)
    consumer.resume_partitions({B})
    assert consumer.woken == [{A, B}]


async def test_who_waits_for_room_is_woken_where_there_is_some() -> None:
    """As many waiters are woken as there are places, and only after a drop; cancelled ones are skipped."""
    queue = Queue(event(A), event(A))
    queue.wait_for_room().cancel()
    queue.waiters = [queue.wait_for_room() for _ in range(3)]
    drop(queue, {B})
    assert (queue.acts, [waiter.done() for waiter in queue.waiters]) == ([], [False] * 3)
    drop(queue, {A})
    assert queue.acts == ["room"]
    assert [waiter.done() for waiter in queue.waiters] == [True, True, False]
    assert list(queue._putters) == queue.waiters[2:]


@pytest.mark.parametrize("cooperative", [True, False])
async def test_a_client_that_has_started_is_told_whom_to_ask(
    monkeypatch: pytest.MonkeyPatch, cooperative: bool
) -> None:
    """The fetcher gets ``is_wanted`` and ``is_hurried``; the flow gets ``must_skip_records``."""
    fetcher = SimpleNamespace()
    coordinator = SimpleNamespace(
        membership=SimpleNamespace(fetcher=fetcher, must_skip_records="still")
    )

    taken: list[Any] = []

    async def take_over(
        client: Any, assignor: Any, listener: Any, fence: Any, *, offers: bool
    ) -> Any:
        taken.append((client, assignor, listener._thread, fence, offers))
        return coordinator

    monkeypatch.setattr(consumer_thread, "take_over", take_over)
    monkeypatch.setattr(
        consumer_thread,
        "read_or_default",
        lambda _, setting: setting is consumer_thread.COOPERATIVE and cooperative,
    )
    recovery = SimpleNamespace(is_taking_on=False)
    app = SimpleNamespace(
        assignor=SimpleNamespace(counters=Counter()),
        flow_control=SimpleNamespace(),
        tables=SimpleNamespace(recovery=recovery),
    )
    thread = SimpleNamespace(
        app=app,
        consumer=SimpleNamespace(delivery=SimpleNamespace(is_wanted="wanted"), fence="fence"),
    )
    replace = consumer_thread.RepairedThread._replace_parts
    await replace(thread, SimpleNamespace(_coordinator=SimpleNamespace()))  # type: ignore[arg-type]
    assert not hasattr(thread.consumer, "fetcher"), "a client without a group stays as it is"
    client = SimpleNamespace(_coordinator=SimpleNamespace(ensure_active_group=None))
    await replace(thread, client)  # type: ignore[arg-type]
    assert taken == [(client, app.assignor, thread, "fence", cooperative)]
    assert thread.consumer.fetcher is fetcher
    assert (fetcher.is_wanted, app.flow_control.must_skip_records) == ("wanted", "still")
    assert fetcher.counters is app.assignor.counters
    for is_taking_on in (False, True):
        recovery.is_taking_on = is_taking_on
        assert fetcher.is_hurried() == is_taking_on


# -- from the consumer's thread to the app's thread


class Relay:
    """A consumer's thread with its app and consumer; ``acts`` lists the calls to the app's loop."""

    def __init__(self) -> None:
        self.acts: list[Any] = []
        self.recovery = SimpleNamespace(is_flowing=True, is_taking_on=False)
        conf = SimpleNamespace(
            broker_max_poll_interval=300.0,
            broker_request_timeout=90.0,
            broker_rebalance_timeout=60.0,
        )
        app = SimpleNamespace(conf=conf, tables=SimpleNamespace(recovery=self.recovery))
        self.closed = False
        consumer = SimpleNamespace(
            loop=SimpleNamespace(call_soon_threadsafe=self._soon),
            rounds=SimpleNamespace(begin="begin", end="end"),
            left=SimpleNamespace(set="left"),
            _method_queue=SimpleNamespace(call=self._call),
            incremental=SimpleNamespace(
                stop_flow_now=lambda: self.acts.append("stopped at once"),
                **{name: named(name) for name in ("give_up", "revoke", "assign", "stand_still")},
            ),
        )
        thread = SimpleNamespace(app=app, consumer=consumer, thread_loop=asyncio.get_running_loop())
        self.waits: list[tuple[str, str, float]] = []
        self.app, self.listener = app, ThreadListener(thread)

    def _soon(self, what: str) -> None:
        if self.closed:
            raise RuntimeError("the loop is closed")
        self.acts.append(what)

    async def _call(self, promise: Any, method: Any, *args: Any) -> Any:
        self.waits += [(w.what, w.step, w.limit_s) for w in waits_of(self.app)._waits]
        self.acts.append((method.__name__, *args))
        promise.set_result(None)
        return promise


def named(name: str) -> Any:
    """Return a method with this name."""

    def method() -> None:
        """Do nothing."""

    method.__name__ = name
    return method


async def test_each_step_of_a_round_is_carried_to_the_app_with_what_it_needs() -> None:
    """Each step is a wait of the rebalance with the agents' time limit."""
    relay = Relay()
    listener = relay.listener
    await listener.prepare_full_revocation()
    await listener.revoke([A])
    await listener.assigned([A, B], [C], [B], "roles", 7)
    assert relay.acts == [("give_up",), ("revoke", {A}), ("assign", {A, B}, {C}, {B}, "roles", 7)]
    assert relay.waits[1] == ("A rebalance", "the app's revoke()", 300.0)
    assert waits_of(relay.app)._waits == []


async def test_streams_stop_before_the_app_is_told_to_stand_still() -> None:
    """The app's thread may be busy."""
    relay = Relay()
    await relay.listener.stand_still()
    assert relay.acts == ["stopped at once", ("stand_still",)]


@pytest.mark.parametrize("everything", [True, False])
async def test_a_member_that_was_told_what_it_gives_away_ends_its_round(everything: bool) -> None:
    """The worker's stop waits for the answer; with partitions left there is no hand-over."""
    relay = Relay()
    relay.listener.note_hand_over(everything)
    assert relay.acts == ["left", "end"]


async def test_a_round_that_begins_is_noted_unless_the_worker_has_stopped() -> None:
    """A stopped worker's loop is closed."""
    relay = Relay()
    relay.listener.round_started()
    assert relay.acts == ["begin"]
    relay.closed = True
    relay.listener.round_started()


@pytest.mark.parametrize("is_so", [True, False])
async def test_the_coordinator_knows_what_the_recovery_does(is_so: bool) -> None:
    """The listener reports flowing partitions and a restore in progress."""
    relay = Relay()
    relay.recovery.is_flowing, relay.recovery.is_taking_on = is_so, not is_so
    assert relay.listener.is_flowing() is is_so
    assert relay.listener.is_taking_on() is not is_so
    with relay.listener.waiting("an answer") as wait:
        assert (wait.what, wait.limit_s) == ("A rebalance", 150.0)


# -- further state and notes of a hand-over


async def test_each_step_of_a_hand_over_is_a_wait_with_the_rebalances_time() -> None:
    """The watchdog names the step, and the topics of undelivered batches during the flush."""
    consumer = consumer_of(A, B)
    consumer.in_transaction = True
    seen: list[Any] = []

    def noted(name: str, call: Any) -> Any:
        async def note(*args: Any, **kwargs: Any) -> Any:
            (wait,) = waits_of(consumer.app)._waits
            seen.append((name, wait.what, wait.step, wait.limit_s))
            return await call(*args, **kwargs)

        return note

    recovery = consumer.app.tables.recovery
    recovery.interrupt = noted("interrupt", recovery.interrupt)
    consumer.incremental._finish = noted("finish", consumer.incremental._finish)
    consumer.maybe_wait_for_commit_to_finish = noted(
        "wait", consumer.maybe_wait_for_commit_to_finish
    )
    consumer.commit = noted("commit", consumer.commit)
    consumer.transactions.revoke = noted("part", consumer.transactions.revoke)
    consumer.app.producer.flush = noted("flush", consumer.app.producer.flush)
    await consumer.incremental.revoke({A, B})
    what = "The hand-over of 2 partitions"
    assert seen == [
        ("interrupt", what, "the recovery to pause", 60.0),
        ("finish", what, "records under way", 60.0),
        ("wait", what, "a commit under way", 60.0),
        ("commit", what, "its commit", 60.0),
        ("part", what, "the end of its transactions", 60.0),
        ("flush", what, "the delivery of sent records", 60.0),
    ]
    assert waits_of(consumer.app)._waits == []


async def test_a_record_that_fails_in_its_stream_is_no_longer_on_its_way() -> None:
    """Else a hand-over would wait for the record."""
    consumer = consumer_of(A)

    async def fail(message: Any) -> None:
        assert consumer.delivery._handing_out == A
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await consumer.delivery.hand_out(fail, SimpleNamespace(tp=A))
    assert consumer.delivery._handing_out is None


async def test_a_fetch_is_fausts_own_with_its_arguments() -> None:
    """A client-only app has no assignment and gets all records."""
    consumer, asked = consumer_of(A), list[Any]()

    async def getmany(self: Any, active: Any, timeout: float) -> Any:
        asked.append((active, timeout))
        return {A: [1], C: [2]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "_getmany", getmany)
        assert await consumer._getmany({A}, 1.5) == {A: [1]}
        consumer.app.client_only = True
        assert await consumer._getmany(None, 2.5) == {A: [1], C: [2]}
    assert asked == [({A}, 1.5), (None, 2.5)]


def test_a_consumer_that_has_no_fetcher_or_no_loop_any_more_wakes_nobody() -> None:
    """This holds before the client's start and after the worker's stop."""
    consumer = consumer_of(A)
    consumer.fetcher = None
    consumer.wake_fetcher()

    def closed(wake: Any) -> None:
        raise RuntimeError("the loop is closed")

    consumer.fetcher = SimpleNamespace(wake=None)
    consumer._thread.thread_loop.call_soon_threadsafe = closed
    consumer.resume_partitions({C})
    assert consumer._active_partitions == {A, C}


@pytest.mark.parametrize("step", ["agents", "subscriptions", "topics", "take on", "signal"])
async def test_a_step_that_fails_ends_the_worker_and_the_round_has_no_answer(step: str) -> None:
    """The crash reason is the error itself; later steps are skipped."""
    consumer = consumer_of(A)
    error, crashes = ValueError("a bug"), list[Any]()

    async def fail(*_: Any) -> None:
        raise error

    async def crash(reason: Any) -> None:
        crashes.append(reason)

    app = consumer.app
    app.crash = crash
    place, name = {
        "agents": (app.agents, "on_rebalance"),
        "subscriptions": (app.topics, "maybe_wait_for_subscriptions"),
        "topics": (app.topics, "on_partitions_assigned"),
        "take on": (app.tables.recovery, "assign"),
        "signal": (app.on_partitions_assigned, "send"),
    }[step]
    setattr(place, name, fail)
    consumer.rounds.is_unanswered = True
    await consumer.incremental.assign({A}, set(), {A}, ({A}, set()), 7)
    assert crashes == [error]
    taken = [act if isinstance(act, str) else act[0] for act in app.acts]
    order = ["interrupt", "update", "agents", "subscriptions", "topics", "take on", "signal"]
    assert taken == order[: order.index(step)]
    assert consumer.rounds.is_unanswered


async def test_a_round_that_is_given_up_has_no_answer() -> None:
    """A complete revocation needs an answer."""
    consumer = consumer_of(A)
    await consumer.incremental.give_up()
    assert consumer.rounds.is_unanswered


async def test_no_more_than_the_partitions_that_go_are_taken_from_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This covers every stream's queue; plain values stay."""
    consumer = consumer_of(A, B)
    queues = [Queue(event(A), "a value", event(B)), Queue(event(B), event(A), event(A))]
    consumer.app.flow_control._queues = set(queues)
    await consumer.incremental._finish({A})
    kept = [[getattr(getattr(one, "message", None), "tp", one) for one in q._queue] for q in queues]
    assert kept == [["a value", B], [B]]
