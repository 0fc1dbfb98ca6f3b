"""The order of the steps in the repaired consumer's methods, and when partitions resume."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from faust_assigner.app.consumer.delivery import Delivery
from faust_assigner.app.consumer.fetching import note_first
from faust_assigner.app.consumer.waits import waits_of
from faust_assigner.app.membership.shutdown import ShutdownBudget
from faust_assigner.app.rebalance import consumer as module
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from faust_assigner.app.rebalance.rounds import Rounds
from tests.support.waiting import PATIENCE_S

SOURCE, STANDBY = TP("orders", 0), TP("log", 0)


class Host(driver.Consumer):  # type: ignore[misc]
    """Stand in for Faust's consumer; note calls and their state at a rebalance."""

    should_stop = in_transaction = False
    flow_active = True
    _unacked_messages: Any = ()

    def __init__(self) -> None:
        self.acts: list[Any] = []
        #: The waits under way at the last step.
        self.waits: list[str] = []
        conf = SimpleNamespace(
            broker_request_timeout=1.0, broker_rebalance_timeout=1.0, broker_max_poll_interval=1.0
        )
        self.app: Any = SimpleNamespace(
            conf=conf,
            should_stop=False,
            client_only=False,
            flow_control=SimpleNamespace(suspend=lambda: self.acts.append("suspend")),
        )
        self._thread: Any = SimpleNamespace(_consumer=None)
        self._active_partitions = set()
        self._reset_state()

    def noting(self, what: str) -> Any:
        """Return a coroutine function that notes its call."""

        async def note(*args: Any, **options: Any) -> bool:
            self.acts.append((what, *args, *options.values()) if args or options else what)
            self.waits = [wait.what for wait in waits_of(self.app).under_way()]
            return True

        return note

    def _reset_state(self) -> None:
        self._buffered_partitions, self._paused_partitions = {SOURCE}, {STANDBY}

    def stop_flow(self) -> None:
        """Note the call."""
        self.acts.append("stop flow")

    async def on_partitions_assigned(self, assigned: Any, generation_id: int) -> None:
        """Note the generation, both sets of partitions, and whether the round has no answer yet."""
        buffered, paused = set(self._buffered_partitions), set(self._paused_partitions)
        is_unanswered = self.rounds.is_unanswered
        await self.noting("assigned")(assigned, generation_id, buffered, paused, is_unanswered)

    def resume_partitions(self, tps: Any) -> None:
        """Note the call."""
        self.acts.append(("resume", tps))

    def on_buffer_drop(self, tp: TP) -> None:
        """Note the call."""
        self.acts.append(("room", tp))

    async def _commit(self, offsets: Any) -> bool:
        self.acts.append(("committed", offsets))
        return True


class Unfinished:
    """A record that a stream has taken."""

    def __init__(self, tp: TP, offset: int, *, acked: bool) -> None:
        self.tp, self.offset, self.acked = tp, offset, acked


class Consumer(RepairedConsumer, Host):  # type: ignore[misc]
    """The repaired consumer over the stand-in, with few parts."""

    def __init__(self) -> None:
        Host.__init__(self)
        self.rounds, self.delivery = Rounds(self.app), Delivery(self)
        self._resumed, self.first_read = asyncio.Event(), {}
        self._on_partitions_revoked = "the app"
        self.fence = SimpleNamespace(lost=False, lose=lambda: self.acts.append("lost"))
        self.changes = SimpleNamespace(
            begin_generation=lambda is_member: self.acts.append(("changes", is_member)),
        )


@pytest.mark.parametrize("holds_back", [True, False])
async def test_a_record_waits_for_room_before_it_is_delivered(holds_back: bool) -> None:
    """The outcome is the streams' own."""
    consumer = Consumer()
    consumer.app.client_only = True
    consumer.room = SimpleNamespace(
        holds_back=lambda message: holds_back, wait_for_room=consumer.noting("room")
    )
    message: Any = SimpleNamespace(tp=SOURCE)
    assert await consumer._deliver(consumer.noting("given"), message)
    assert consumer.acts == [*(["room"] if holds_back else []), ("given", message)]


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_revocation_ends_the_generation_its_transactions_and_its_changes(
    monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    """Rows of the final commit land before the consumer discards the other rows."""
    consumer = Consumer()
    consumer.in_transaction = in_transaction
    consumer.fence.lost = True
    consumer.boundaries = SimpleNamespace(abandon_open=consumer.noting("abandon"))

    async def commit(revoking: Any, notify: Any, tps: Any) -> None:
        assert (revoking.between_generations, notify) == (True, "the app")
        await consumer.noting("commit")(tps)
        consumer._buffered_partitions.add(STANDBY)  # as Faust may during the wait for streams

    def forget(revoking: Any, tps: Any) -> None:
        consumer.acts.append(("forget", tps))

    monkeypatch.setattr(module, "notify_and_commit", commit)
    monkeypatch.setattr(module, "forget", forget)
    monkeypatch.setattr(module, "run_delivery_callbacks", consumer.noting("told"))
    monkeypatch.setattr(module, "discard", lambda app: consumer.acts.append("given up"))
    consumer.first_read = {SOURCE: 7, STANDBY: 3}
    unfinished = Unfinished(SOURCE, 5, acked=False)
    others = (Unfinished(SOURCE, 4, acked=True), Unfinished(STANDBY, 6, acked=False))
    consumer._unacked_messages = {unfinished, *others}
    await consumer.on_partitions_revoked({SOURCE})
    assert consumer.acts == [
        ("commit", {SOURCE}),
        ("forget", {SOURCE}),
        *([("abandon", True)] if in_transaction else []),
        "told",
        "given up",
    ]
    assert consumer._buffered_partitions == set()
    left = {(one.offset, one.acked) for one in consumer._unacked_messages}
    assert left == {(4, True), (6, False)}
    assert consumer.kept_back.first == {}
    assert unfinished.acked
    assert unfinished in consumer.kept_back.given_up


async def test_a_revocation_and_a_commit_are_waits_with_deadlines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wait lasts until the step has ended."""
    consumer = Consumer()
    monkeypatch.setattr(
        module, "notify_and_commit", lambda *said: consumer.noting("commit")(said[-1])
    )
    monkeypatch.setattr(module, "forget", lambda *_: None)
    monkeypatch.setattr(module, "discard", lambda app: None)
    await consumer.on_partitions_revoked({SOURCE})
    assert consumer.waits == ["The revocation of 1 partitions"]
    consumer.shutdown = SimpleNamespace(commit=consumer.noting("force"))
    assert await consumer.force_commit({"orders"}, False)
    assert consumer.waits == ["The commit"]
    assert consumer.acts[-1][2:] == ({"orders"}, False)
    assert waits_of(consumer.app).under_way() == ()


@pytest.mark.parametrize("wait_for_delivery", [True, False])
async def test_a_commit_waits_for_its_changes_and_lacks_none(wait_for_delivery: bool) -> None:
    """A record whose change is lost is processed again."""
    consumer = Consumer()

    async def wait() -> bool:
        consumer.acts.append("changes")
        return wait_for_delivery

    consumer.changes = SimpleNamespace(wait_for_delivery=wait)
    assert await consumer._commit({SOURCE: 1}) is wait_for_delivery
    assert consumer.acts == [
        "changes",
        *([("committed", {SOURCE: 1})] if wait_for_delivery else []),
    ]


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_without_transactions_a_commit_is_fausts_own(
    monkeypatch: pytest.MonkeyPatch, in_transaction: bool
) -> None:
    """Faust commits the requested partitions; transactions are committed as a whole."""
    consumer = Consumer()
    consumer.in_transaction = in_transaction
    consumer.boundaries = SimpleNamespace(commit=consumer.noting("boundaries"))

    async def stock(self: Any, tps: Any, *, start_new_transaction: bool) -> str:
        consumer.acts.append((tps, start_new_transaction))
        return "Faust's"

    monkeypatch.setattr(Host, "_commit_tps", stock, raising=False)
    for starts in (True, False):
        outcome = await consumer._commit_tps([SOURCE], start_new_transaction=starts)
        assert outcome == (True if in_transaction else "Faust's")  # type: ignore[comparison-overlap]
    first = "boundaries" if in_transaction else [SOURCE]
    assert consumer.acts == [(first, True), (first, False)]


@pytest.mark.parametrize(("waited", "found"), [(True, True), (False, False), (None, False)])
async def test_a_commit_under_way_is_waited_for_within_what_is_left(
    monkeypatch: pytest.MonkeyPatch, waited: bool | None, found: bool
) -> None:
    """A commit that a silent broker delays counts as absent."""
    consumer = Consumer()
    consumer.app.should_stop = True
    consumer.shutdown = SimpleNamespace(budget=ShutdownBudget(consumer.app, 0.02))

    committed = asyncio.Event()

    async def wait(self: Any) -> bool:
        if waited is None:
            await committed.wait()
        return bool(waited)

    monkeypatch.setattr(Host, "maybe_wait_for_commit_to_finish", wait, raising=False)
    assert await consumer.maybe_wait_for_commit_to_finish() is found
    committed.set()
    await asyncio.sleep(0.01)


async def test_the_steps_of_the_shutdown_are_those_of_the_parts() -> None:
    """The shutdown gets the final commit and Faust's wait for the streams."""
    consumer = Consumer()
    consumer.shutdown = SimpleNamespace(
        leave_group=consumer.noting("leave"), wait_for_streams=consumer.noting("streams")
    )
    await consumer.leave_group()
    await consumer.wait_empty()
    assert consumer.acts[0] == ("leave", consumer.commit_and_end_transactions)
    assert consumer.acts[1][0] == "streams"
    assert consumer.acts[1][1].__func__ is driver.Consumer.wait_empty
    assert consumer.acts[2:] == []


@pytest.mark.parametrize("is_cooperative", [True, False])
async def test_a_member_that_is_fenced_joins_again_without_what_it_had(
    is_cooperative: bool,
) -> None:
    """The consumer thread requests the join; the fence closes at once."""
    consumer = Consumer()
    coordinator = SimpleNamespace(request_rejoin="rejoin")
    if is_cooperative:
        coordinator.revoke_all_and_rejoin = "give up"
    loop = SimpleNamespace(call_soon_threadsafe=consumer.acts.append)
    consumer._thread = SimpleNamespace(
        thread_loop=loop, _consumer=SimpleNamespace(_coordinator=coordinator)
    )
    consumer.lose_membership()
    assert consumer.acts == ["lost", "give up" if is_cooperative else "rejoin"]


def test_the_first_record_of_a_source_is_noted_once() -> None:
    """A new assignment starts over; tables track their changelogs themselves."""
    consumer = object.__new__(RepairedConsumer)
    consumer.first_read = {}
    consumer.app = SimpleNamespace(tables=SimpleNamespace(changelog_topics={"log"}))
    for offset in (7, 9):
        note_first(
            consumer,
            {SOURCE: [SimpleNamespace(offset=offset)], STANDBY: [SimpleNamespace(offset=offset)]},
        )
    assert consumer.first_read == {SOURCE: 7}


async def test_nothing_of_the_last_generation_wakes_anything_in_the_next() -> None:
    """All partitions are paused and all streams stopped before agents get the assignment."""
    consumer = Consumer()
    await consumer.on_partitions_assigned({SOURCE}, 7)
    assert consumer.acts == [
        ("changes", False),
        "stop flow",
        "suspend",
        ("assigned", {SOURCE}, 7, set(), {SOURCE, STANDBY}, True),
    ]
    assert consumer.waits == ["The assignment of 1 partitions"]
    assert consumer.between_generations
    assert not consumer.rounds.is_unanswered


def test_what_is_paused_is_resumed_by_its_recovery_alone() -> None:
    """A queue with free room does not resume the partition, nor does a call before the recovery."""
    consumer = Consumer()
    consumer._buffered_partitions, consumer._paused_partitions = {SOURCE, STANDBY}, {STANDBY}
    for tp in (SOURCE, STANDBY):
        consumer.on_buffer_drop(tp)
    assert consumer.acts == [("room", SOURCE)]
    assert consumer._buffered_partitions == {SOURCE}
    consumer.between_generations = True
    consumer.resume_partitions({SOURCE})
    consumer.begin_generation()
    consumer.resume_partitions({STANDBY})
    assert consumer.acts[1:] == [("resume", {STANDBY})]


async def test_what_was_read_first_is_forgotten_at_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new assignment has its own first records; Faust resets the rest."""
    consumer = Consumer()
    monkeypatch.setattr(driver.Consumer, "on_restart", lambda _: consumer.noting("restart")())
    consumer.first_read, consumer._resumed = {SOURCE: 7}, asyncio.Event()
    consumer._resumed.set()
    await consumer.on_restart()
    assert (consumer.first_read, consumer._resumed.is_set()) == ({}, False)
    assert consumer.acts == ["restart"]


def test_what_was_read_first_of_a_partition_that_left_is_forgotten() -> None:
    """A different owner may have processed records; the old offset would repeat them."""
    consumer = object.__new__(RepairedConsumer)
    consumer.app = SimpleNamespace(_attachments=SimpleNamespace(_pending={}))
    consumer._unacked_messages = set()
    for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
        setattr(consumer, book, {SOURCE: 1, STANDBY: 2})
    consumer.first_read = {SOURCE: 7, STANDBY: 3}
    consumer._forget({SOURCE})
    assert consumer.first_read == {STANDBY: 3}
    assert consumer._acked == {STANDBY: 2}


def test_the_recovery_asks_whether_records_are_fetched_at_all() -> None:
    """Records are fetched neither while the flow is stopped nor for paused partitions."""
    consumer = Consumer()
    consumer._active_partitions, consumer.flow_active = {SOURCE}, True
    assert consumer.may_fetch(SOURCE)
    assert not consumer.may_fetch(STANDBY)
    consumer.flow_active = False
    assert not consumer.may_fetch(SOURCE)


class Idle(RepairedConsumer):
    """A consumer without active partitions."""

    def __init__(self) -> None:
        self.app: Any = SimpleNamespace(client_only=False)
        self._active_partitions, self.flow_active = set[TP](), True
        self._resumed, self.can_resume_flow = asyncio.Event(), asyncio.Event()

    async def wait(self, event: asyncio.Event, timeout: float | None = None) -> None:
        """Wait for the event, as in mode."""
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            pass


async def test_a_fetch_without_active_partitions_waits_until_some_are_resumed() -> None:
    """Faust sleeps for a second; without a resume the fetch returns no records."""
    consumer = Idle()
    assert await consumer._wait_next_records(0.01) == ({}, set())
    waiting = asyncio.ensure_future(consumer._wait_next_records(10 * PATIENCE_S))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    consumer._resumed.set()
    assert await asyncio.wait_for(waiting, PATIENCE_S) == ({}, set())


async def test_a_fetch_waits_while_the_flow_is_stopped() -> None:
    """A fetch that returned would seek all partitions to their committed offsets."""
    consumer = Idle()
    consumer.flow_active = False
    waiting = asyncio.ensure_future(consumer._wait_next_records(0.01))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    consumer.can_resume_flow.set()
    assert await asyncio.wait_for(waiting, PATIENCE_S) == ({}, set())


async def test_a_seek_to_committed_offsets_is_made_again_while_the_broker_is_silent() -> None:
    """Faust mistakes the timeout for a stop."""
    answers: list[Any] = [TimeoutError(), None]

    class Stock(driver.Consumer):  # type: ignore[misc]
        should_stop = False

        async def perform_seek(self) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

        async def sleep(self, seconds: float) -> None:
            """Return at once."""

    class Seeking(RepairedConsumer, Stock):  # type: ignore[misc]
        """The repaired consumer over the stand-in."""

        def __init__(self) -> None:
            """Set no attributes."""

    await Seeking().perform_seek()
    assert answers == []


async def test_ends_are_asked_of_the_broker_on_the_consumers_thread() -> None:
    """A single request covers all partitions."""
    consumer, asked = Consumer(), list[Any]()
    client = SimpleNamespace(end_offsets="end offsets")

    async def call_thread(*call: Any) -> dict[TP, int]:
        asked.append(call)
        return {SOURCE: 5, STANDBY: 8}

    consumer._thread = SimpleNamespace(_ensure_consumer=lambda: client, call_thread=call_thread)
    assert await consumer.highwaters(SOURCE, STANDBY) == {SOURCE: 5, STANDBY: 8}
    assert asked == [("end offsets", (SOURCE, STANDBY))]


async def test_each_fetch_is_counted_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous fetch's records have reached their queues by then."""
    consumer, seen = Consumer(), list[Any]()

    async def getmany(self: Any, active: Any, timeout: float) -> dict[TP, list[Any]]:
        seen.append((self.fetch_rounds, active, timeout))
        return {SOURCE: [1]}

    monkeypatch.setattr(Host, "_getmany", getmany, raising=False)
    consumer.app.client_only = True
    for _ in range(2):
        assert await consumer._getmany({SOURCE}, 1.5) == {SOURCE: [1]}
    assert seen == [(1, {SOURCE}, 1.5), (2, {SOURCE}, 1.5)]


@pytest.mark.parametrize(
    ("active", "client_only"), [({SOURCE}, False), (set(), True), ({SOURCE}, True)]
)
async def test_a_fetch_with_partitions_or_of_a_client_alone_is_fausts_own(
    monkeypatch: pytest.MonkeyPatch, active: set[TP], client_only: bool
) -> None:
    """The fetch begins at once, with the caller's timeout."""
    consumer, asked = Consumer(), list[float]()
    consumer.app.client_only, consumer._active_partitions = client_only, active

    async def wait_next(self: Any, timeout: float) -> str:
        asked.append(timeout)
        return "records"

    monkeypatch.setattr(Host, "_wait_next_records", wait_next, raising=False)
    assert await consumer._wait_next_records(2.5) == "records"  # type: ignore[comparison-overlap]
    assert asked == [2.5]


def test_a_flow_starts_only_once_the_recovery_of_its_generation_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recovery of an earlier generation does not start the flow."""
    consumer = Consumer()
    monkeypatch.setattr(
        Host, "resume_flow", lambda self: self.acts.append("resume flow"), raising=False
    )
    consumer.resume_flow()
    consumer.between_generations = True
    consumer.resume_flow()
    assert consumer.acts == ["resume flow"]
    consumer.begin_generation()
    consumer.resume_flow()
    assert consumer.acts == ["resume flow"] * 2
    assert not consumer.between_generations


def test_the_first_record_of_each_source_in_a_batch_is_noted() -> None:
    """The first of several records counts; a later source gets its own entry."""
    other = TP("bills", 3)
    consumer = object.__new__(RepairedConsumer)
    consumer.first_read = {}
    consumer.app = SimpleNamespace(tables=SimpleNamespace(changelog_topics={"log"}))

    def batch(*offsets: int) -> list[Any]:
        return [SimpleNamespace(offset=offset) for offset in offsets]

    note_first(consumer, {SOURCE: batch(4, 5), STANDBY: batch(1)})
    note_first(consumer, {SOURCE: batch(6), other: batch(0, 1)})
    assert consumer.first_read == {SOURCE: 4, other: 0}


async def test_a_resume_of_an_earlier_wait_ends_no_later_one() -> None:
    """Else the fetch would loop while no partition is active."""
    consumer = Idle()
    consumer._resumed.set()
    waiting = asyncio.ensure_future(consumer._wait_next_records(3600.0))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


def test_partitions_that_are_resumed_end_the_wait_for_some() -> None:
    """Between generations no partition is resumed, and the wait continues."""
    consumer = Consumer()
    consumer.between_generations = True
    consumer.resume_partitions({SOURCE})
    assert not consumer._resumed.is_set()
    consumer.begin_generation()
    consumer.resume_partitions({SOURCE})
    assert consumer._resumed.is_set()
