"""Which offsets a commit may include, and the last commit at a revocation."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from faust.app._attached import Attachment, Attachments
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from intervaltree import IntervalTree
from mode.utils.objects import Unordered

from faust_assigner.app.consumer import commits
from faust_assigner.app.consumer.commits import KeptBack, notify_and_commit, run_delivery_callbacks
from faust_assigner.app.consumer.delivery import Delivery
from faust_assigner.app.consumer.whole_records import RecordBoundaryCommits
from faust_assigner.app.rebalance.consumer import RepairedConsumer

SOURCE, OTHER = TP("orders", 0), TP("orders", 1)


class Stock(driver.Consumer):  # type: ignore[misc]
    """Stand in for Faust's consumer: the offset after the last acknowledged record."""

    def _filter_committable_offsets(self, tps: Iterable[Any]) -> dict[Any, int]:
        return {tp: max(self._acked[tp]) + 1 for tp in tps if self._acked[tp]}  # type: ignore[attr-defined]


class Consumer(RepairedConsumer, Stock):  # type: ignore[misc]
    """Record 4 is in progress; records 3 and 5 are acknowledged."""

    def __init__(self) -> None:
        self.app = SimpleNamespace(consumer_generation_id=1)
        self._acked, self._gap = {SOURCE: [3, 5]}, defaultdict(IntervalTree)
        self.under_way = SimpleNamespace(tp=SOURCE, offset=4, acked=False, generation_id=1)
        self._unacked_messages = [self.under_way]


def test_what_was_done_beyond_a_record_under_way_is_committed_once_that_is_done() -> None:
    """The filter hides offsets 5 and 6 from the first commit and keeps them for the next."""
    consumer = Consumer()
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 4}
    consumer.under_way.acked = True
    consumer._acked[SOURCE].append(4)
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 6}


def test_a_record_of_the_generation_before_holds_back_no_commit() -> None:
    """The partition's current owner processes the record again."""
    consumer = Consumer()
    consumer.under_way.generation_id = 0
    assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 6}


def test_the_first_of_several_records_under_way_is_the_bound() -> None:
    """The order of the unacknowledged records does not matter."""
    consumer = Consumer()
    later = SimpleNamespace(tp=SOURCE, offset=6, acked=False, generation_id=1)
    for under_way in ([consumer.under_way, later], [later, consumer.under_way]):
        consumer._unacked_messages = under_way
        assert consumer._filter_committable_offsets([SOURCE]) == {SOURCE: 4}
        assert sorted(consumer._acked[SOURCE]) == [3, 5]


class Revoking(RepairedConsumer):
    """A consumer that notes each call with the state of the offset books."""

    _unacked_messages: Any = ()

    def __init__(self, *, waits: bool) -> None:
        span = contextlib.nullcontext()
        self.acts: list[Any] = []
        self.app: Any = SimpleNamespace(
            should_stop=False,
            _start_span_from_rebalancing=lambda name: span,
            conf=SimpleNamespace(stream_wait_empty=waits),
            _attachments=SimpleNamespace(_pending={SOURCE: ["attached"], OTHER: ["kept"]}),
        )
        self.diag = SimpleNamespace(set_flag=lambda flag: None, unset_flag=lambda flag: None)
        self._active_partitions, self._paused_partitions = {SOURCE, OTHER}, {SOURCE}
        for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
            setattr(self, book, {SOURCE: 1, OTHER: 2})
        self.first_read = {SOURCE: 1, OTHER: 8}

    async def notify(self, revoked: Any) -> None:
        """Note the call of the app."""
        self.acts.append(("app", set(self._active_partitions), dict(self._acked)))

    async def commit_and_end_transactions(self) -> None:
        """Note the last commit."""
        self.acts.append(("commit", dict(self._acked)))


@pytest.mark.parametrize("waits", [True, False])
async def test_books_are_closed_after_the_final_commit(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """With stream_wait_empty the app makes the last commit, else the consumer does."""
    monkeypatch.setattr(commits, "traced_from_parent_span", lambda span: traced)
    consumer = Revoking(waits=waits)
    await notify_and_commit(consumer, consumer.notify, {SOURCE})
    consumer._forget({SOURCE})
    told = ("app", {OTHER}, {SOURCE: 1, OTHER: 2})
    assert consumer.acts == [told, *([] if waits else [("commit", {SOURCE: 1, OTHER: 2})])]
    assert consumer._paused_partitions == set()
    for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
        assert getattr(consumer, book) == {OTHER: 2}
    assert consumer.first_read == {OTHER: 8}
    assert consumer.app._attachments._pending == {OTHER: ["kept"]}


async def test_messages_of_uncommitted_records_do_not_outlive_their_partition() -> None:
    """With stream_publish_on_commit a partition that came back published them a second time."""
    consumer, published = Revoking(waits=True), list[Any]()
    attached = consumer.app._attachments = Attachments(consumer.app)

    async def publish(future: Any, wait: bool) -> None:
        published.append(future.message.value)

    for tp, offset in ((SOURCE, 5), (OTHER, 5)):
        channel: Any = SimpleNamespace(publish_message=publish)
        message = SimpleNamespace(channel=channel, value=f"of {tp.topic}")
        future: Any = SimpleNamespace(message=message)
        attached._pending[tp].append(Attachment(offset, Unordered(future)))
    consumer._forget({SOURCE})
    for tp in (SOURCE, OTHER):
        await attached.publish_for_tp_offset(tp, 9)
    assert published == [f"of {OTHER.topic}"]


def test_all_partitions_that_go_are_forgotten() -> None:
    """Each book drops the partitions, including partitions it never had."""
    consumer = Revoking(waits=True)
    del consumer._gap[OTHER]  # type: ignore[attr-defined]
    consumer._forget({SOURCE, OTHER, TP("bills", 0)})
    for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
        assert getattr(consumer, book) == {}
    assert consumer.first_read == {}


def traced(function: Any, **told: Any) -> Any:
    """Check the partitions and return the function without a span, in place of Faust's helper."""
    assert told == {"partitions": {SOURCE}}
    return function


async def test_the_last_commit_comes_after_one_that_is_under_way() -> None:
    """Else the last commit does nothing, and records acknowledged meanwhile are processed twice."""
    acts: list[str] = []

    class Faust(driver.Consumer):  # type: ignore[misc]
        async def commit_and_end_transactions(self) -> None:
            acts.append("committed")

    class Ending(RepairedConsumer, Faust):  # type: ignore[misc]
        """The repaired consumer over the stand-in."""

        def __init__(self) -> None:
            """Set no attributes."""

        async def maybe_wait_for_commit_to_finish(self) -> bool:
            acts.append("waited")
            return False

    await Ending().commit_and_end_transactions()
    assert acts == ["waited", "committed"]


def test_each_partition_is_bounded_by_its_own_records() -> None:
    """The bound holds for a generator, for a subset, and for a partition without open records."""
    third = TP("bills", 0)

    def made() -> Consumer:
        consumer = Consumer()
        consumer._acked = {SOURCE: [3, 5], OTHER: [7, 9, 8], third: [1]}
        consumer._unacked_messages = [
            consumer.under_way,
            SimpleNamespace(tp=OTHER, offset=9, acked=False, generation_id=1),
            SimpleNamespace(tp=OTHER, offset=2, acked=True, generation_id=1),
        ]
        return consumer

    consumer = made()
    found = consumer._filter_committable_offsets(tp for tp in (SOURCE, OTHER, third))
    assert found == {SOURCE: 4, OTHER: 9, third: 2}
    assert {tp: sorted(acked) for tp, acked in consumer._acked.items()} == {
        SOURCE: [3, 5],
        OTHER: [7, 8],
        third: [1],
    }
    consumer = made()
    assert consumer._filter_committable_offsets([third]) == {third: 2}
    assert consumer._acked == made()._acked


def test_what_was_hidden_comes_back_though_the_commit_fails() -> None:
    """The next commit includes the hidden offsets."""

    class Failing(driver.Consumer):  # type: ignore[misc]
        def _filter_committable_offsets(self, tps: Any) -> dict[Any, int]:
            assert self._acked == {SOURCE: [3]}
            raise RuntimeError("a bug")

    class Committing(RepairedConsumer, Failing):  # type: ignore[misc]
        def __init__(self) -> None:
            vars(self).update(vars(Consumer()))

    consumer: Any = Committing()
    with pytest.raises(RuntimeError):
        consumer._filter_committable_offsets([SOURCE])
    assert consumer._acked == {SOURCE: [3, 5]}


async def test_the_last_commit_is_within_the_span_and_the_state_of_a_revocation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tracer shows the app's part and the commit; mode shows the state until both are done."""
    consumer, acts = Revoking(waits=False), list[Any]()

    class Span:
        """A span of the tracer."""

        def __enter__(self) -> None:
            acts.append("span begins")

        def __exit__(self, *_: object) -> None:
            acts.append("span ends")

    span = Span()

    def start(name: str) -> Span:
        acts.append(("start", name))
        return span

    def trace(parent: Any) -> Any:
        assert parent is span

        def wrap(notify: Any, **tags: Any) -> Any:
            acts.append((notify.__name__, tags))
            return notify

        return wrap

    consumer.acts = acts
    consumer.app._start_span_from_rebalancing = start
    consumer.diag.set_flag = lambda flag: acts.append(("set", flag))
    consumer.diag.unset_flag = lambda flag: acts.append(("unset", flag))
    monkeypatch.setattr(commits, "traced_from_parent_span", trace)
    await notify_and_commit(consumer, consumer.notify, {SOURCE})
    books = {SOURCE: 1, OTHER: 2}
    assert acts == [
        ("set", "PARTITIONS_REVOKED"),
        ("start", "on_partitions_revoked"),
        ("notify", {"partitions": {SOURCE}}),
        "span begins",
        ("app", {OTHER}, books),
        ("commit", books),
        "span ends",
        ("unset", "PARTITIONS_REVOKED"),
    ]


class Record:
    """A record of ``SOURCE`` in the present generation."""

    def __init__(self, offset: int) -> None:
        self.tp, self.topic, self.offset, self.generation_id = SOURCE, SOURCE.topic, offset, 1
        self.acked = False


class Books(RepairedConsumer):
    """A consumer with Faust's books: records up to offset 3 are committed."""

    in_transaction = False

    def __init__(self) -> None:
        topics = SimpleNamespace(acks_enabled_for=lambda topic: True)
        #: The messages that wait for the commit of their records.
        self.attached = {SOURCE: ["of 4", "of 5"], OTHER: ["kept"]}
        self.app: Any = SimpleNamespace(
            consumer_generation_id=1,
            topics=topics,
            client_only=True,
            _attachments=SimpleNamespace(_pending=self.attached),
        )
        self._acked, self._acked_index = defaultdict(list), defaultdict(set)
        self._gap, self._committed_offset = defaultdict(IntervalTree), {SOURCE: 4}
        self._unacked_messages: set[Any] = set()
        self._waiting_for_ack = None
        self.room = SimpleNamespace(holds_back=lambda message: False)
        self.delivery = Delivery(self)

    async def delivers(self, message: Any) -> None:
        """Deliver the record to a stream's queue."""

    def take(self, *records: Any) -> None:
        """Note that a stream has taken the records."""
        self._unacked_messages.update(records)

    def committed(self) -> int | None:
        """Commit and return the offset."""
        offset = self._filter_committable_offsets([SOURCE]).get(SOURCE)
        self._committed_offset[SOURCE] = offset or self._committed_offset[SOURCE]
        return offset


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_a_commit_learns_of_a_record_that_its_agent_acknowledges(
    in_transaction: bool,
) -> None:
    """At once, before the agent begins the next record; from a thread, in the app's loop."""
    books, ended = Books(), list[TP]()
    books.in_transaction, books.loop = in_transaction, asyncio.get_running_loop()
    books.boundaries = RecordBoundaryCommits.__new__(RecordBoundaryCommits)
    books.boundaries._consumer, books.boundaries.record_ended = books, ended.append
    first, second = Record(4), Record(5)
    books.take(first, second)
    assert books.ack(first)
    assert ended == [SOURCE] * in_transaction
    assert not books.ack(first), "a second time"
    assert await asyncio.to_thread(books.ack, second)
    await asyncio.sleep(0)
    assert ended == [SOURCE, SOURCE] * in_transaction


async def test_no_commit_passes_a_record_whose_table_failed() -> None:
    """Another actor finishes record 5; record 4 is read again after the tables work."""
    books, failed, later = Books(), Record(4), Record(5)
    books.take(failed, later)
    books.kept_back.keep(failed)
    assert (failed.acked, books._unacked_messages) == (True, {later})
    assert not books.ack(failed), "Faust acknowledges a record whose agent failed"
    assert books.ack(later)
    assert books.committed() is None
    await books._deliver(books.delivers, Record(6))
    assert books.committed() is None, "the flow goes on until the tables' recovery stops it"
    books.kept_back.seek({SOURCE})
    assert books.committed() is None
    assert books.attached.keys() == {SOURCE, OTHER}
    again = Record(4)
    await books._deliver(books.delivers, again)
    assert books.attached == {OTHER: ["kept"]}, "these records attach their messages again"
    books.take(again)
    assert books.committed() is None
    books.ack(again)
    assert books.committed() == 5
    fifth = Record(5)
    books.take(fifth)
    books.ack(fifth)
    assert books.committed() == 6


async def test_a_commit_includes_the_records_on_both_sides_of_a_transactions_end() -> None:
    """Faust counts the record after the end as a part of the gap; it must not count twice."""
    books = Books()
    for before, offsets in ((4, [5, 6]), (7, [8]), (9, [10, 11])):
        await books._add_gap(SOURCE, before, offsets[0])
        records = [Record(offset) for offset in offsets]
        books.take(*records)
        for record in records:
            books.ack(record)
        assert books.committed() == offsets[-1] + 1
        assert books._acked[SOURCE] == []


async def test_a_record_after_a_transactions_end_is_committed_once_it_is_done() -> None:
    """The end before it counts as done, the record itself does not."""
    books = Books()
    first, second = Record(5), Record(7)
    await books._add_gap(SOURCE, 4, 5)
    await books._add_gap(SOURCE, 6, 7)
    books.take(first, second)
    books.ack(first)
    assert books.committed() == 6
    books.ack(second)
    assert books.committed() == 8


def test_the_end_of_a_record_whose_partition_was_revoked_is_no_acknowledgement() -> None:
    """Else the next assignment would count it, although the record is processed again."""
    books = Books()
    books._read_offset, books.first_read = {}, {}
    former, again = Record(4), Record(4)
    books.take(former)
    books._forget({OTHER})
    assert (set(books.kept_back.given_up), books._unacked_messages) == (set(), {former})
    books._forget({SOURCE})
    assert (set(books.kept_back.given_up), books._unacked_messages) == ({former}, set())
    books._committed_offset[SOURCE] = 4
    assert not books.ack(former)
    assert books.committed() is None
    books.take(again)
    assert books.ack(again)
    assert books.committed() == 5


def test_the_first_record_that_failed_is_the_bound_until_its_partition_is_read_again() -> None:
    """A second failure after the seek keeps back again; a partition that moves away is forgotten."""
    kept = KeptBack(Revoking(waits=True))
    kept.seek({SOURCE})
    assert (kept.first, kept.sought) == ({}, set())
    for offset in (5, 4, 6):
        kept.add(SOURCE, offset)
    kept.add(OTHER, 9)
    kept.seek({SOURCE})
    assert (kept.first, kept.sought) == ({SOURCE: 4, OTHER: 9}, {SOURCE})
    kept.add(SOURCE, 7)
    assert (kept.first, kept.sought) == ({SOURCE: 4, OTHER: 9}, set())
    kept.seek({SOURCE, OTHER})
    kept.forget({SOURCE, TP("bills", 0)})
    assert (kept.first, kept.sought) == ({OTHER: 9}, {OTHER})


async def test_a_seek_of_all_partitions_and_a_restart_end_what_is_kept_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the seek the records are read again; after the restart the consumer has no partitions."""

    async def silent(self: Any) -> None:
        """Do what Faust does."""

    monkeypatch.setattr(driver.Consumer, "perform_seek", silent)
    monkeypatch.setattr(driver.Consumer, "on_restart", silent)
    books = Books()
    books.kept_back.keep(Record(4))
    books.kept_back.keep(Record(4))
    await books.perform_seek()
    assert (books.kept_back.first, books.kept_back.sought) == ({SOURCE: 4}, {SOURCE})
    await books.on_restart()
    assert (books.kept_back.first, books.kept_back.sought) == ({}, set())
    done = Record(3)
    done.acked = True
    books.kept_back.keep(done)
    assert books.kept_back.first == {}
    books.kept_back.keep(Record(4))
    books._read_offset, books.first_read = {}, {}
    books._forget({SOURCE})
    assert books.kept_back.first == {}


class Stopping(Revoking):
    """A consumer of a stopping app, for which Faust's revocation does nothing."""

    def __init__(self, *, waits: bool) -> None:
        super().__init__(waits=waits)
        self.app.should_stop = True
        self.app.flow_control = SimpleNamespace(
            suspend=lambda: self.acts.append("suspend"), clear=lambda: self.acts.append("clear")
        )
        self.app.producer = SimpleNamespace(flush=self.flush)

    async def flush(self) -> None:
        """Note the flush."""
        self.acts.append("flush")

    async def wait_empty(self) -> None:
        """Note the wait, which commits."""
        self.acts.append(("wait and commit", dict(self._acked)))

    def stop_flow(self) -> None:
        """Note the call."""
        self.acts.append("stop flow")

    def assignment(self) -> set[TP]:
        """Return the partitions."""
        return {SOURCE}

    def pause_partitions(self, tps: Any) -> None:
        """Note the partitions."""
        self.acts.append(("pause", set(tps)))


@pytest.mark.parametrize("waits", [True, False])
async def test_a_revocation_of_a_stopping_worker_waits_for_its_records(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """The next owner would process them again, and after the round they cannot be committed."""
    monkeypatch.setattr(commits, "traced_from_parent_span", lambda span: traced)
    consumer = Stopping(waits=waits)
    await notify_and_commit(consumer, consumer.notify, {SOURCE})
    books = {SOURCE: 1, OTHER: 2}
    assert consumer.acts == [
        ("app", {OTHER}, books),
        "stop flow",
        "suspend",
        ("pause", {SOURCE}),
        "clear",
        ("wait and commit" if waits else "commit", books),
        "flush",
    ]


async def test_what_is_told_in_two_turns_of_the_loop_has_been_told() -> None:
    """A future's callback runs in the next turn, and its own ``call_soon`` in the turn after."""
    acts: list[str] = []
    loop, future = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _: loop.call_soon(acts.append, "landed"))
    future.set_result(None)
    await run_delivery_callbacks()
    assert acts == ["landed"]
