"""Where a commit falls under ``exactly_once``: between two records of a partition, or later."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import ProducerSendError
from faust.streams import _current_event
from faust.types import TP

from faust_assigner.app.consumer import whole_records
from faust_assigner.app.consumer.whole_records import RecordBoundaryCommits, RecordsEnd
from tests.support.waiting import PATIENCE_S

ORDERS, PAYMENTS = TP("orders", 0), TP("payments", 0)
IDS = {ORDERS: "shop-1-0", PAYMENTS: "shop-2-0"}
ID, OTHER = IDS.values()


class Transactions:
    """Stand in for the consumer's transactions: sent offsets, and each call in ``acts``."""

    def __init__(self, acts: list[Any]) -> None:
        self.acts = acts
        self.has_waiting_sends = False
        self.is_fenced = False
        #: The last offset of each source with sends, by transactional id.
        self.sent: dict[str, dict[TP, int]] = defaultdict(dict)
        self.settling: set[str] = set()
        self.failed: set[str] = set()

    def id_of(self, tp: TP) -> str | None:
        """Return the transactional id."""
        return IDS.get(tp)

    def reached(self, transactional_id: str) -> dict[TP, int]:
        """Return the sent offsets of the transaction."""
        return self.sent[transactional_id]

    def sources(self) -> dict[TP, int]:
        """Return the sent offsets of all transactions."""
        return {tp: at for reached in self.sent.values() for tp, at in reached.items()}

    @property
    def held(self) -> Transactions:
        """Return the part that holds records back: this object."""
        return self

    def hold(self, transactional_id: str) -> None:
        """Hold back new records."""
        self.settling.add(transactional_id)

    def holds(self, transactional_id: str) -> bool:
        """Return whether new records are held back."""
        return transactional_id in self.settling

    def release(self, transactional_id: str) -> None:
        """Release the held records."""
        self.settling.discard(transactional_id)

    def has_failed(self, transactional_id: str) -> bool:
        """Return whether the transaction failed."""
        return transactional_id in self.failed

    def holds_sends(self) -> bool:
        """Return whether sends wait for the commit."""
        return self.has_waiting_sends

    def close(self, transactional_id: str) -> None:
        """Note the closed transaction."""
        self.acts.append(("close", transactional_id))

    def begin_next(self) -> None:
        """Note the call."""
        self.acts.append("begin next")

    @contextmanager
    def within(self, tp: TP) -> Iterator[None]:
        """Note the entry into and the exit from the partition's transaction."""
        self.acts.append(("within", tp))
        yield
        self.acts.append(("out of", tp))

    async def abandon(self, *, fenced: bool) -> None:
        """Note the abort."""
        self.acts.append(("abandon", fenced))


class Stock:
    """Stand in for the consumer."""

    def __init__(self) -> None:
        self.acts: list[Any] = []
        self.in_transaction = True
        sensors = SimpleNamespace(add=lambda sensor: None)
        self.app = SimpleNamespace(sensors=sensors)
        self.transactions = Transactions(self.acts)
        self._acked: Any = defaultdict(list)
        self._acked_index: Any = defaultdict(set)
        self._gap: Any = defaultdict(list)
        self._committed_offset: Any = defaultdict(lambda: None)
        self._unacked_messages: list[Any] = []
        self.error: BaseException | None = None
        #: Commits wait for this event.
        self.gate = asyncio.Event()
        self.gate.set()

    def begin(self, tp: TP, offset: int) -> Any:
        """Start processing a record."""
        message = SimpleNamespace(tp=tp, offset=offset, acked=False)
        self._unacked_messages.append(message)
        return message

    def end(self, message: Any) -> None:
        """Acknowledge the record."""
        message.acked = True
        self._unacked_messages.remove(message)
        self._acked[message.tp].append(message.offset)
        self._acked_index[message.tp].add(message.offset)

    def _filter_committable_offsets(self, tps: Iterable[TP]) -> dict[TP, int]:
        found = {}
        for tp in tps:
            if self._acked[tp]:
                found[tp] = max(self._acked[tp]) + 1
                self._acked[tp].clear()
                self._acked_index[tp].clear()
                self._gap[tp].clear()
        return found

    async def _handle_attached(self, offsets: Mapping[TP, int]) -> None:
        self.acts.append(("attached", dict(offsets)))

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool) -> bool:
        await self.gate.wait()
        self.acts.append(("commit", dict(offsets)))
        if self.error is not None:
            raise self.error
        return True

    async def crash(self, error: BaseException) -> None:
        """Note the error."""
        self.acts.append(("crash", error))

    async def maybe_wait_for_commit_to_finish(self) -> bool:
        """Note the wait."""
        self.acts.append("waited")
        return False

    async def commit(self) -> None:
        """Note the commit."""
        self.acts.append("commit soon")

    def add_future(self, coro: Any) -> Any:
        """Return a task."""
        return asyncio.ensure_future(coro)


class Consumer(Stock):
    """The stand-in with its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.boundaries = RecordBoundaryCommits(self)  # type: ignore[arg-type]

    def done(self, tp: TP, *offsets: int, sent: bool = True) -> None:
        """Process records to their end, with sends if ``sent``."""
        for offset in offsets:
            self.end(self.begin(tp, offset))
            if sent:
                self.transactions.sent[IDS[tp]][tp] = offset

    @property
    def commits(self) -> list[dict[TP, int]]:
        """Return the committed offsets."""
        return [act[1] for act in self.acts if act[0] == "commit"]

    async def commit_all(self) -> bool:
        """Commit both partitions."""
        return await self.boundaries.commit(start_new_transaction=True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """A consumer whose commits wait for 0.1 s."""
    monkeypatch.setattr(whole_records, "PATIENCE_S", 0.1)
    return Consumer()


async def test_all_transactions_are_committed_whatever_topics_were_asked_for(
    made: Consumer,
) -> None:
    """The commit closes each transaction; records waiting for the commit continue after it."""
    made.done(ORDERS, 3, 4)
    made.done(PAYMENTS, 8)
    assert await made.boundaries.commit(start_new_transaction=True)
    assert made.commits == [{ORDERS: 5, PAYMENTS: 9}]
    assert {act for act in made.acts if act[0] == "close"} == {("close", ID), ("close", OTHER)}
    assert made.acts[-1] == "begin next"


async def test_a_fenced_consumer_commits_nothing(made: Consumer) -> None:
    """Other members may own the partitions."""
    made.transactions.is_fenced = True
    made.done(ORDERS, 3)
    assert not await made.commit_all()
    assert made.acts == []


async def test_a_commit_goes_on_if_its_caller_is_cancelled(made: Consumer) -> None:
    """Half a commit leaves no transaction open, and the next send fails; the next commit waits."""
    made.gate.clear()
    made.done(ORDERS, 3)
    caller = asyncio.ensure_future(made.commit_all())
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert "begin next" not in made.acts
    made.done(ORDERS, 4)
    following = asyncio.ensure_future(made.commit_all())
    await asyncio.sleep(0.01)
    assert made.acts.count(("close", ID)) == 1
    made.gate.set()
    assert await following
    assert made.commits == [{ORDERS: 4}, {ORDERS: 5}]


async def test_two_commits_that_wait_for_a_third_follow_one_another(made: Consumer) -> None:
    """Concurrent commits would close each other's transactions."""
    made.gate.clear()
    made.done(ORDERS, 3)
    waiting = [asyncio.ensure_future(made.commit_all()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert made.acts.count(("close", ID)) == 1
    made.done(ORDERS, 4)
    made.gate.set()
    await asyncio.gather(*waiting)
    ends = [act for act in made.acts if act in (("close", ID), "begin next")]
    assert ends == [("close", ID), "begin next"] * (len(ends) // 2)
    assert made.commits == [{ORDERS: 4}, {ORDERS: 5}]


async def test_an_error_of_a_commit_without_a_caller_ends_the_worker(
    made: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A future of the consumer raises the error, as with the commit timer."""
    futures: list[Any] = []
    monkeypatch.setattr(
        made, "add_future", lambda coro: futures.append(asyncio.ensure_future(coro))
    )
    made.gate.clear()
    made.error = KeyError("no such producer")
    made.done(ORDERS, 3)
    caller = asyncio.ensure_future(made.commit_all())
    await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.wait({caller})
    made.gate.set()
    with pytest.raises(KeyError):
        await futures[0]


async def test_a_commit_waits_for_a_record_that_has_sent(
    made: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New records are held back meanwhile and continue once the transaction is closed."""
    monkeypatch.setattr(whole_records, "PATIENCE_S", 60.0)
    made.done(ORDERS, 3)
    under_way = made.begin(ORDERS, 4)
    made.transactions.sent[ID][ORDERS] = 4
    committing = asyncio.ensure_future(made.commit_all())
    await asyncio.sleep(0.03)
    assert made.transactions.held.holds(ID)
    made.end(under_way)
    made.boundaries.record_ended(ORDERS)
    assert not made.transactions.held.holds(ID)
    assert await committing
    assert made.commits == [{ORDERS: 5}]


async def test_a_record_that_has_not_sent_yet_holds_up_nothing(made: Consumer) -> None:
    """Sends of that record belong to the next transaction."""
    made.done(ORDERS, 3)
    made.begin(ORDERS, 4)
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 4}]


async def test_a_transaction_that_waits_is_left_to_the_next_commit(made: Consumer) -> None:
    """Other transactions are committed; new records stay held back for the next commit."""
    made.done(PAYMENTS, 8)
    made.done(ORDERS, 3)
    made.begin(ORDERS, 4)
    made.transactions.sent[ID][ORDERS] = 4
    assert await made.commit_all()
    assert made.commits == [{PAYMENTS: 9}]
    assert made.transactions.settling == {ID}


async def test_a_commit_with_waiting_sends_does_not_wait_for_other_transactions(
    made: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent in the send may be the agent that has to finish the other transaction's record."""
    monkeypatch.setattr(whole_records, "PATIENCE_S", 20.0)
    made.done(PAYMENTS, 8)
    made.done(ORDERS, 3)
    made.begin(ORDERS, 4)
    made.transactions.sent[ID][ORDERS] = 4
    committing = asyncio.ensure_future(made.commit_all())
    await asyncio.sleep(0.03)
    assert not committing.done()
    made.transactions.has_waiting_sends = True
    assert await asyncio.wait_for(committing, PATIENCE_S)
    assert made.commits == [{PAYMENTS: 9}]
    assert made.transactions.settling == {ID}


async def test_a_transaction_that_has_failed_is_neither_committed_nor_held_back(
    made: Consumer,
) -> None:
    """Other transactions are committed; the broker aborts the failed transaction."""
    made.done(PAYMENTS, 8)
    made.done(ORDERS, 3)
    made.transactions.failed.add(ID)
    assert await made.commit_all()
    assert made.commits == [{PAYMENTS: 9}]
    assert made.transactions.settling == set()


async def test_a_commit_follows_once_the_record_ends_that_held_it_up(made: Consumer) -> None:
    """A single commit follows the current commit once all senders of the transaction have ended."""
    first, second = made.begin(ORDERS, 4), made.begin(ORDERS, 5)
    made.transactions.sent[ID][ORDERS] = 5
    made.transactions.held.hold(ID)
    made.end(first)
    made.boundaries.record_ended(ORDERS)
    assert made.boundaries._soon is None
    made.end(second)
    made.boundaries.record_ended(ORDERS)
    made.boundaries.record_ended(ORDERS)
    await asyncio.sleep(0.01)
    assert made.acts == ["waited", "commit soon"]
    made.boundaries.record_ended(ORDERS)
    await asyncio.sleep(0.01)
    assert made.acts == ["waited", "commit soon"] * 2


async def test_a_record_that_ends_without_a_commit_begins_none(made: Consumer) -> None:
    """Commits follow the timer."""
    made.done(ORDERS, 4)
    made.boundaries.record_ended(ORDERS)
    await asyncio.sleep(0.01)
    assert made.acts == []


async def test_without_a_moment_for_too_long_a_commit_is_made_anyway(
    made: Consumer, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time counts from the first delayed commit, and the log reports the forced commit."""
    monkeypatch.setattr(whole_records, "LONGEST_S", 0.15)
    made.done(ORDERS, 3)
    made.begin(ORDERS, 4)
    made.transactions.sent[ID][ORDERS] = 3
    made._unacked_messages.insert(0, SimpleNamespace(tp=ORDERS, offset=2, acked=False))
    assert not await made.commit_all()
    assert caplog.text == ""
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 4}]
    assert "records have been in progress without a gap" in caplog.text
    assert "The first unfinished record is orders-0 at offset 2." in caplog.text


async def test_a_commit_that_found_its_moment_ends_the_time_without_one(
    made: Consumer, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two short delays with a commit between them do not add up."""
    monkeypatch.setattr(whole_records, "LONGEST_S", 0.25)
    for offset in (4, 6):
        under_way = made.begin(ORDERS, offset)
        made.transactions.sent[ID][ORDERS] = offset
        made.done(ORDERS, offset - 1, sent=False)
        assert not await made.commit_all()
        made.end(under_way)
        await asyncio.sleep(0.1)
        assert await made.commit_all()
    assert caplog.text == ""
    assert made.boundaries._late_since == {}


async def test_a_gap_before_what_was_sent_leaves_the_books_as_they_were(made: Consumer) -> None:
    """The next commit includes the offsets once the gap is closed."""
    made._gap[ORDERS] = [2]
    made._acked[ORDERS], made._acked_index[ORDERS] = [1], {1}
    made.transactions.sent[ID][ORDERS] = 3
    assert not await made.commit_all()
    assert made.commits == []
    assert ("close", ID) not in made.acts
    assert (made._acked[ORDERS], made._acked_index[ORDERS], made._gap[ORDERS]) == ([1], {1}, [2])


async def test_the_record_at_the_committed_offset_is_not_committed(made: Consumer) -> None:
    """The record has sent; a commit of its offset would split it over two transactions."""
    made.done(ORDERS, 3, sent=False)
    made.transactions.sent[ID][ORDERS] = 4
    assert not await made.commit_all()
    made.done(ORDERS, 4)
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 5}]


async def test_windows_closed_after_their_records_were_committed_are_committed(
    made: Consumer,
) -> None:
    """The window sends with a committed record; the commit repeats the record's offset."""
    made._committed_offset[ORDERS] = 5
    made.transactions.sent[ID][ORDERS] = 4
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 5}]


async def test_a_record_at_the_committed_offset_is_waited_for_by_no_commit(
    made: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record has no offset to commit yet, so a wait would only delay the commit."""
    monkeypatch.setattr(whole_records, "PATIENCE_S", 10 * PATIENCE_S)
    made._committed_offset[ORDERS] = 5
    made.transactions.sent[ID][ORDERS] = 5
    made.begin(ORDERS, 5)
    assert not await asyncio.wait_for(made.commit_all(), PATIENCE_S)
    assert made.transactions.settling == set()


async def test_what_is_published_on_commit_is_of_the_records_before_the_offset(
    made: Consumer,
) -> None:
    """The attached messages are sent in the partition's transaction."""
    made.done(ORDERS, 4)
    await made.commit_all()
    at = made.acts.index(("within", ORDERS))
    assert made.acts[at : at + 3] == [
        ("within", ORDERS),
        ("attached", {ORDERS: 4}),
        ("out of", ORDERS),
    ]


@pytest.mark.parametrize("is_fenced", [True, False])
async def test_a_send_that_failed_ends_the_worker_unless_it_was_fenced(
    made: Consumer, is_fenced: bool
) -> None:
    """A fenced worker joins again; in both cases no record waits for ever."""

    async def commit(offsets: Any, start_new_transaction: bool) -> bool:
        made.transactions.is_fenced = is_fenced
        raise ProducerSendError("no broker")

    made._commit_offsets = commit  # type: ignore[method-assign]
    made.done(ORDERS, 4)
    assert not await made.commit_all()
    assert bool([act for act in made.acts if act[0] == "crash"]) is not is_fenced
    assert made.acts[-1] == "begin next"


@pytest.mark.parametrize("is_lost", [True, False])
async def test_what_the_final_commit_left_is_abandoned(made: Consumer, is_lost: bool) -> None:
    """After a lost membership the transactions count as fenced; the next generation starts over."""
    made.boundaries._late_since[ID] = 1.0
    await made.boundaries.abandon_open(fenced=is_lost)
    assert made.acts == [("abandon", is_lost)]
    assert made.boundaries._late_since == {}


def test_the_end_of_each_record_is_reported_with_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sensor reports the record; only an app with transactions has the sensor."""
    ended: list[TP] = []
    for in_transaction in (True, False):
        sensors = list[Any]()
        ended.clear()
        consumer: Any = SimpleNamespace(
            app=SimpleNamespace(sensors=SimpleNamespace(add=sensors.append)),
            in_transaction=in_transaction,
            transactions=None,
        )
        with monkeypatch.context() as patch:
            patch.setattr(RecordBoundaryCommits, "record_ended", lambda _, tp: ended.append(tp))
            assert RecordBoundaryCommits(consumer)._late_since == {}
            assert [type(sensor) for sensor in sensors] == [RecordsEnd] * in_transaction
            for sensor in sensors:
                sensor.on_stream_event_out(PAYMENTS, 7, "stream", "event", "state")
        assert ended == [PAYMENTS] * in_transaction


async def test_a_last_commit_starts_no_new_transaction(made: Consumer) -> None:
    """The commit passes on the caller's flag and returns Faust's result."""
    asked: list[bool] = []

    async def commit(offsets: Any, start_new_transaction: bool) -> bool:
        asked.append(start_new_transaction)
        return start_new_transaction

    made._commit_offsets = commit  # type: ignore[method-assign]
    for starts in (False, True):
        made.done(ORDERS, 4)
        assert await made.boundaries.commit(start_new_transaction=starts) is starts
    assert asked == [False, True]


async def test_topics_of_one_transaction_are_committed_together(
    made: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit includes each topic's attached messages; a partition without an id is left out."""
    bills, foreign = TP("bills", 0), TP("other", 0)
    monkeypatch.setitem(IDS, bills, ID)
    made.done(ORDERS, 3)
    made.done(bills, 9)
    made._acked[foreign].append(4)
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 4, bills: 10}]
    assert [act for act in made.acts if act[0] == "close"] == [("close", ID)]
    attached = [act[1] for act in made.acts if act[0] == "attached"]
    assert sorted(attached, key=str) == sorted([{ORDERS: 3}, {bills: 9}], key=str)


async def test_a_window_of_one_transaction_is_committed_beside_records_of_another(
    made: Consumer,
) -> None:
    """The commit covers each source with sends since its last commit."""
    for tp, of in ((ORDERS, ID), (PAYMENTS, OTHER)):
        made._committed_offset[tp] = 5
        made.transactions.sent[of][tp] = 4
    made.done(PAYMENTS, 7)
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 5, PAYMENTS: 8}]


async def test_a_commit_that_fails_leaves_no_transaction_open_to_be_closed(
    made: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later record end would close the transaction outside of a commit."""

    def fail(tp: TP) -> None:
        raise ValueError("a bug")

    made.done(ORDERS, 3)
    with monkeypatch.context() as patch:
        patch.setattr(made.boundaries, "close_settled", fail)
        with pytest.raises(ValueError, match="a bug"):
            await made.commit_all()
    made.acts.clear()
    made.boundaries.record_ended(ORDERS)
    assert made.acts == []
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 4}]


async def test_a_transaction_that_was_left_to_the_next_commit_is_closed_by_it_alone(
    made: Consumer,
) -> None:
    """The record ends between the two commits and starts the second commit."""
    made.done(ORDERS, 3)
    under_way = made.begin(ORDERS, 4)
    made.transactions.sent[ID][ORDERS] = 4
    assert not await made.commit_all()
    made.end(under_way)
    made.boundaries.record_ended(ORDERS)
    await asyncio.sleep(0.01)
    assert made.acts == ["waited", "commit soon"]
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 5}]


async def test_a_failed_transaction_that_is_held_back_is_let_go(made: Consumer) -> None:
    """Its held records would wait for a commit that never comes."""
    made.done(ORDERS, 3)
    made.transactions.held.hold(ID)
    made.transactions.failed.add(ID)
    assert not await made.commit_all()
    assert made.transactions.settling == set()


@pytest.mark.parametrize("reached", [0, 4])
async def test_a_source_without_its_offset_keeps_the_books_of_all_of_its_transaction(
    made: Consumer, monkeypatch: pytest.MonkeyPatch, reached: int
) -> None:
    """Not even offset 0 is committed without an offset of its own."""
    bills = TP("bills", 0)
    monkeypatch.setitem(IDS, bills, ID)
    for tp, offset in ((ORDERS, reached), (bills, 3)):
        made.transactions.sent[ID][tp] = offset
    made._acked[bills], made._acked_index[bills], made._gap[bills] = [3], {3}, [1]
    made._acked[ORDERS], made._acked_index[ORDERS], made._gap[ORDERS] = [], set(), [reached]
    assert not await made.commit_all()
    assert made.commits == []
    assert (made._acked, made._acked_index) == (
        {bills: [3], ORDERS: []},
        {bills: {3}, ORDERS: set()},
    )
    assert made._gap == {bills: [1], ORDERS: [reached]}


class Clock:
    """A loop clock that the sleeps of commits advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 1000.0, list[float]()
        sleep = asyncio.sleep

        async def moved(seconds: float) -> None:
            self.slept.append(seconds)
            self.now += 0.25 if seconds else 0.0
            await sleep(0)

        monkeypatch.setattr(whole_records, "PATIENCE_S", 1.0)
        monkeypatch.setattr(whole_records, "LONGEST_S", 30.0)
        monkeypatch.setattr(
            whole_records.asyncio,
            "get_running_loop",
            lambda: SimpleNamespace(time=lambda: self.now),
        )
        monkeypatch.setattr(whole_records.asyncio, "sleep", moved)


async def test_two_transactions_that_find_no_moment_are_both_closed_after_the_longest_time(
    made: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The time counts from the first delayed commit, to the second; each has a log line."""
    clock = Clock(monkeypatch)
    for tp, of in ((ORDERS, ID), (PAYMENTS, OTHER)):
        made.begin(tp, 2)
        made.done(tp, 3)
        made.transactions.sent[of][tp] = 3
    for now in (1000.0, 1029.0):
        clock.now = now
        assert not await made.commit_all()
        assert clock.now == now + 1.0, "each commit has its whole patience"
    assert made.boundaries._late_since == {ID: 1000.0, OTHER: 1000.0}
    assert caplog.text == ""
    clock.now = 1029.25
    assert await made.commit_all()
    assert made.commits == [{ORDERS: 4, PAYMENTS: 4}]
    assert caplog.text.count("records have been in progress without a gap for 30.0 s") == 2
    assert made.boundaries._late_since == {}


async def test_what_a_commit_publishes_belongs_to_no_record_at_hand(made: Consumer) -> None:
    """The caller's record may be in the next transaction, which waits for this commit."""
    seen: list[Any] = []

    async def attached(offsets: Mapping[TP, int]) -> None:
        seen.append(_current_event.get(None))

    made._handle_attached = attached  # type: ignore[method-assign]
    made.done(ORDERS, 4)
    token = _current_event.set(lambda: "a record")  # type: ignore[arg-type]
    try:
        assert await made.commit_all()
    finally:
        _current_event.reset(token)
    assert seen == [None]
