"""Closing windows: the due windows, the record that covers the closing, and the deleted rows."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.exceptions import ProducerSendError
from faust.streams import _current_event
from faust.types import TP

from faust_assigner.app.tables import window_closing as closings
from faust_assigner.app.tables import window_sources, windowed_tables
from faust_assigner.app.tables.window_closing import Closing
from faust_assigner.app.tables.windowed_tables import committed, install, restored, revoked
from tests.support.waiting import PATIENCE_S

SOURCE, OTHER, LOG = TP("orders", 0), TP("payments", 0), TP("log", 0)
KEY, LATER = ("a", (0.0, 9.9)), ("b", (10.0, 19.9))


class Window:
    """Windows whose rows expire 100 s after their end."""

    expires = 100.0

    def stale(self, end: float, now: float) -> bool:
        """Whether the window has expired, as in Faust."""
        return end <= now - self.expires


class Table(dict[Any, Any]):
    """A windowed table in memory, with the methods that the closing replaces."""

    name, last_closed_window, should_stop = "counts", 0.0, False
    is_global = use_partitioner = False
    _window_ranges = apply_changelog_batch = _new_changelog_topic = None

    def __init__(self) -> None:
        super().__init__()
        self.data = SimpleNamespace(data=self, get=self.get)
        self.window = Window()
        self.changelog_topic = SimpleNamespace(get_topic_name=lambda: "log")
        self.closed: list[Any] = []
        self.error: Exception | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        #: Key -> partition of its row; default 0.
        self.partition_of: dict[Any, int] = {}
        self._partition_latest_timestamp: Any = defaultdict(int)

    async def on_window_close(self, key: Any, value: Any) -> None:
        """Record the app's callback."""
        self.closed.append((key, value))
        self.meanwhile()
        if self.error is not None:
            raise self.error

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self._maybe_del_key_ttl(key, self.partition_of.get(key, 0))  # type: ignore[attr-defined]


class Consumer:
    """A stub of the app's consumer; ``positions`` and ``ends`` are those of the sources."""

    def __init__(self) -> None:
        self._rounds, self.fetches = 0, True
        self.transactions = SimpleNamespace(is_fenced=False)
        self._active_partitions, self._buffered_partitions = {SOURCE, LOG}, set[TP]()
        self._committed_offset: dict[TP, int | None] = {SOURCE: 5}
        self._unacked_messages: set[Any] = set()
        self._acked: dict[TP, list[int]] = {}
        self.positions, self.ends = {SOURCE: 5, OTHER: 5}, {SOURCE: 5, OTHER: 5}
        self.counts = {"log": 4, "orders": 4, "payments": 4}
        self.ended: list[TP] = []
        self.under_way: list[Any] = []

    @property
    def fetch_rounds(self) -> int:
        """Return one more round at each call."""
        self._rounds += self.fetches
        return self._rounds

    def assignment(self) -> set[TP]:
        """Return the assigned partitions."""
        return {SOURCE, OTHER}

    def topic_partitions(self, topic: str) -> int:
        """Return the partition count."""
        return self.counts[topic]

    async def highwaters(self, *tps: TP) -> dict[TP, int]:
        """Return the end offsets."""
        return {tp: self.ends[tp] for tp in tps}

    async def position(self, tp: TP) -> int:
        """Return the next offset."""
        return self.positions[tp]

    @property
    def boundaries(self) -> Consumer:
        """Return the part that hears of ended records."""
        return self

    def record_ended(self, tp: TP) -> None:
        """Record the end of a record."""
        self.ended.append(tp)


class Made:
    """A closing of a table with partition 0 active; the machine's clock is at 1,000 s."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.restored, self.flushes = {LOG}, list[Any]()
        self.consumer, self.table = Consumer(), Table()
        self.flush_error: Exception | None = None
        #: Whether the source topic has acknowledgements.
        self.acks = True
        recovery = SimpleNamespace(
            active_tps={LOG, TP("log", 1)}, is_restored=lambda tp: tp in self.restored
        )
        self.app = SimpleNamespace(
            consumer=self.consumer,
            consumer_generation_id=3,
            in_transaction=False,
            tables=SimpleNamespace(recovery=recovery, changelog_topics={"log"}),
            topics=SimpleNamespace(acks_enabled_for=lambda topic: self.acks),
            conf=SimpleNamespace(broker_request_timeout=0.05),
            producer=SimpleNamespace(flush=self._flush),
        )
        self.it = Closing(self.app, self.table, lambda: self.now, lambda: self.now)

    async def _flush(self) -> None:
        self.flushes.append(set(self.table))
        if self.flush_error is not None:
            raise self.flush_error

    def row(self, key: Any = KEY, value: Any = 1) -> None:
        """Add a row of partition 0 without a record of this worker."""
        self.table[key] = value
        self.it.windows.add(key, 0)

    def change(self, key: Any, offset: int, tp: TP = SOURCE, *, at: float | None = None) -> None:
        """Change a row by a record of this worker."""
        event = SimpleNamespace(message=SimpleNamespace(tp=tp, offset=offset))
        token = _current_event.set(lambda: event)  # type: ignore[arg-type]
        self.it._timestamp = at
        try:
            self.table[key] = offset
            self.it._changed(key, 0)
        finally:
            self.it._timestamp = None
            _current_event.reset(token)

    async def close(self) -> list[Any]:
        """Run the closing once; return the closed rows."""
        before = len(self.table.closed)
        await asyncio.wait_for(self.it.close_windows(), PATIENCE_S)
        return self.table.closed[before:]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """A closing with short pauses."""
    monkeypatch.setattr(window_sources, "LOOK_S", 0.001)
    monkeypatch.setattr(window_sources, "HANDED_OVER_S", 0.02)
    return Made()


# -- ownership of windows


async def closes(made: Made) -> bool:
    """Whether a window closes when the partition's committed time is far beyond its end."""
    made.change(KEY, 3)
    made.change(LATER, 4, at=115.0)
    made.it.times.commit({SOURCE: 5})
    return await made.close() == [(KEY, 3)]


async def test_a_window_is_closed_with_its_last_value_and_its_row_is_deleted(made: Made) -> None:
    """A later window stays open, and Faust's own mark moves."""
    assert await closes(made)
    assert set(made.table) == {LATER}
    assert made.it.windows.first(0) == 19.9
    assert made.table.last_closed_window == 0.0
    assert await made.close() == []


@pytest.mark.parametrize("reason", ["not restored", "no source", "fenced", "stopping"])
async def test_no_window_is_closed_of_a_partition_that_is_not_here(made: Made, reason: str) -> None:
    """The partition's owner closes it."""
    if reason == "not restored":
        made.restored.clear()
    elif reason == "no source":
        made.consumer._active_partitions.discard(SOURCE)
    elif reason == "fenced":
        made.consumer.transactions.is_fenced = True
    else:
        made.table.should_stop = True
    assert not await closes(made)


async def test_rows_of_a_partition_that_is_not_restored_are_not_looked_through(made: Made) -> None:
    """A scan would open its database beside the restore."""
    looked: list[int] = []

    async def look_through(partition: int, goes_on: Callable[[], bool]) -> bool:
        looked.append(partition)
        return goes_on()

    made.it.windows.look_through = look_through  # type: ignore[method-assign]
    await made.close()
    made.restored.clear()
    await made.close()
    assert looked == [0]


async def test_a_source_whose_queue_is_full_flows(made: Made) -> None:
    """Such a source is paused only briefly."""
    made.consumer._active_partitions.discard(SOURCE)
    made.consumer._buffered_partitions.add(SOURCE)
    assert await closes(made)


async def test_a_topic_with_other_partitions_is_no_source(made: Made) -> None:
    """Its partition 0 has other keys."""
    made.consumer._active_partitions.add(OTHER)
    assert made.it.sources.of(0) == [SOURCE, OTHER]
    made.consumer.counts["payments"] = 8
    assert made.it.sources.of(0) == [SOURCE]


async def test_once_a_record_has_changed_the_table_its_topic_alone_is_a_source(made: Made) -> None:
    """Other topics count only while no such topic is known."""
    made.consumer._active_partitions.add(OTHER)
    made.change(KEY, 3, OTHER)
    assert made.it.sources.of(0) == [OTHER]


async def test_a_restored_partition_begins_without_what_was_noted_of_it(made: Made) -> None:
    """Other workers may have changed it meanwhile; a revoked partition loses its rows."""
    made.change(KEY, 3, at=115.0)
    committed([made.it], {SOURCE: 5})
    assert made.it.times.time(0) == 115.0
    restored([made.it], {TP("log", 1), TP("another", 0)})
    assert made.it.times.time(0) == 115.0
    restored([made.it], {LOG})
    assert made.it.times.time(0) is None
    made.change(KEY, 6, at=115.0)
    committed([made.it], {SOURCE: 7})
    revoked([made.it], TP("another", 0))
    assert made.it.times.time(0) == 115.0
    revoked([made.it], LOG)
    assert made.it.times.time(0) is None
    assert made.it.windows.first(0) is None


# -- the partition's time


def test_a_row_without_a_time_of_its_own_counts_from_its_windows_begin(made: Made) -> None:
    """This applies if the app sets a window's row directly."""
    made.change(LATER, 4)
    made.it.times.commit({SOURCE: 5})
    assert made.it.times.time(0) == 10.0


def test_the_time_of_a_record_is_noted_for_its_rows_alone(made: Made) -> None:
    """The time is set only during Faust's request for the record's windows."""
    made.it._ranges = lambda timestamp: iter([made.it._timestamp])
    assert list(made.it._note_timestamp(42.0)) == [42.0]
    assert made.it._timestamp is None


def test_what_the_app_changes_while_it_closes_windows_moves_no_time(made: Made) -> None:
    """Such a change belongs to no received record."""
    with made.it._under_way(SOURCE, 5) as event:
        made.it._changed(LATER, 0)
        assert event.message.offset == 4
    made.it.times.commit({SOURCE: 9})
    assert made.it.times.time(0) is None
    assert made.it.times.topics == set()


async def test_a_partitions_time_is_never_beyond_the_machines(made: Made) -> None:
    """A record from the future does not close windows early."""
    made.now = 100.0
    assert not await closes(made)
    made.now = 111.0
    assert await made.close() == [(KEY, 3)]


async def test_a_record_from_the_future_closes_what_the_machines_clock_closes(made: Made) -> None:
    """Windows between the two clocks stay open."""
    made.row(LATER)
    made.change(KEY, 4, at=900.0)
    made.it.times.commit({SOURCE: 5})
    made.now = 111.0
    assert await made.close() == [(KEY, 4)]


async def at_the_end(made: Made) -> bool:
    """Whether a window closes because no record is left."""
    made.change(KEY, 4, at=5.0)
    made.it.times.commit({SOURCE: 5})
    made.now = 2_000.0
    return bool(await made.close())


async def test_at_the_end_of_the_log_time_goes_on(made: Made) -> None:
    """All records have been read, processed and committed."""
    assert await at_the_end(made)


@pytest.mark.parametrize(
    "reason", ["more records", "more meanwhile", "no round", "under way", "acknowledged", "silent"]
)
async def test_no_time_goes_by_while_records_may_be_left(made: Made, reason: str) -> None:
    """Each stage of the source's records is checked."""
    consumer = made.consumer
    if reason == "more records":
        consumer.ends[SOURCE] = 6
    elif reason == "more meanwhile":
        asked = consumer.highwaters

        async def highwaters(*tps: TP) -> dict[TP, int]:
            found = await asked(*tps)
            consumer.ends[SOURCE] += 1
            return found

        consumer.highwaters = highwaters  # type: ignore[method-assign]
    elif reason == "no round":
        consumer.fetches = False
    elif reason == "under way":
        consumer._unacked_messages = {Message(SOURCE)}
    elif reason == "acknowledged":
        consumer._acked[SOURCE] = [7]
    else:
        consumer.positions.clear()
    assert not await at_the_end(made)


class Message:
    """A record in progress."""

    acked = False

    def __init__(self, tp: TP) -> None:
        self.tp = tp


async def test_a_record_that_was_changed_and_not_committed_is_not_the_end(made: Made) -> None:
    """The record may be processed again."""
    made.change(KEY, 4, at=5.0)
    made.it.times.commit({SOURCE: 4})
    made.now = 2_000.0
    assert await made.close() == []


async def test_a_record_that_is_done_is_not_under_way(made: Made) -> None:
    """Faust removes it from its books a moment later."""
    done = Message(SOURCE)
    done.acked = True
    made.consumer._unacked_messages = {done}
    assert await at_the_end(made)


# -- the covering record


async def test_windows_are_closed_as_part_of_the_last_committed_record(made: Made) -> None:
    """Commits and revocations wait for this record during the closing; then it is acknowledged."""
    seen: list[Any] = []

    def look() -> None:
        (message,) = made.consumer._unacked_messages
        event = _current_event.get()()
        assert event is not None
        seen.append((message.tp, message.offset, message.generation_id, message.acked, event.key))
        seen.append(message)

    made.table.meanwhile = look
    assert await closes(made)
    assert seen[0] == (SOURCE, 4, 3, False, KEY)
    assert seen[1].acked
    assert made.consumer._unacked_messages == set()
    assert made.consumer.ended == []


async def test_of_several_sources_the_one_that_was_committed_furthest_is_taken(made: Made) -> None:
    """A new topic has no committed record yet."""
    made.consumer._active_partitions.add(OTHER)
    made.consumer._committed_offset = {OTHER: 9, SOURCE: 5}
    made.change(LATER, 8, OTHER, at=115.0)
    seen: list[TP] = []
    made.table.meanwhile = lambda: seen.extend(
        message.tp for message in made.consumer._unacked_messages
    )
    assert await closes(made)
    assert seen == [OTHER]


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_transaction_needs_a_committed_offset(made: Made, is_committed: bool) -> None:
    """The transaction commits this offset; its record is then reported as ended."""
    made.app.in_transaction = True
    made.consumer._committed_offset = {SOURCE: 5} if is_committed else {}
    assert await closes(made) == is_committed
    assert made.consumer.ended == ([SOURCE] if is_committed else [])
    assert made.flushes == [], "the transaction has both"


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_windows_of_a_topic_without_acks_close_without_commits(
    made: Made, in_transaction: bool
) -> None:
    """No offset of a topic with ``acks=False`` is ever committed, so nothing may wait for a commit."""
    made.app.in_transaction, made.acks = in_transaction, False
    made.consumer._committed_offset[SOURCE] = None
    made.change(KEY, 3)
    made.change(LATER, 4, at=115.0)
    assert await made.close() == [(KEY, 3)]


async def test_without_transactions_what_the_app_sent_arrives_before_rows_are_deleted(
    made: Made,
) -> None:
    """After a crash in between, the window is closed again."""
    assert await closes(made)
    assert made.flushes == [{KEY, LATER}]


async def test_rows_stay_where_the_broker_does_not_answer(made: Made, caplog: Any) -> None:
    """The window is closed again later, and a warning is logged."""
    made.flush_error = TimeoutError()
    assert await closes(made)
    assert set(made.table) == {KEY, LATER}
    assert "windows stay open" in caplog.text
    made.flush_error = None
    assert await made.close() == [(KEY, 3)]
    assert set(made.table) == {LATER}


async def test_rows_stay_and_the_error_is_raised_if_the_producer_fails(made: Made) -> None:
    """Unlike a broker that is late, a failed producer ends the worker."""
    made.flush_error = BufferError("the producer is fenced")
    with pytest.raises(BufferError, match="fenced"):
        await closes(made)
    assert set(made.table) == {KEY, LATER}


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_a_row_that_changes_while_it_is_closed_is_closed_again(
    made: Made, in_transaction: bool
) -> None:
    """The second closing has the new value."""
    made.app.in_transaction = in_transaction

    def change() -> None:
        made.table.meanwhile = lambda: None
        made.table[KEY] = 77
        made.it._changed(KEY, 0)

    made.table.meanwhile = change
    made.change(KEY, 3)
    made.change(LATER, 4, at=115.0)
    made.it.times.commit({SOURCE: 5})
    assert await made.close() == [(KEY, 3), (KEY, 77)]
    assert set(made.table) == {LATER}


async def test_a_row_that_changes_while_a_later_one_is_closed_is_closed_again(made: Made) -> None:
    """Rows are deleted after all callbacks, so the change came in between."""
    for name in "axz":
        made.row((name, KEY[1]))
    made.it.times._times[0] = 900.0
    closed: list[Any] = []

    def change() -> None:
        first = made.table.closed[0][0]
        if len(made.table.closed) == 2:
            closed.append(first)
            made.table[first] = 77
            made.it._changed(first, 0)

    made.table.meanwhile = change
    await made.close()
    assert made.table.closed[3:] == [(closed[0], 77)]
    assert not made.table


async def test_a_transaction_whose_callback_failed_is_never_committed(made: Made) -> None:
    """Its row stays; the record in progress still ends, because commits wait for it."""
    made.app.in_transaction = True
    failed: list[Any] = []
    made.consumer.transactions.fail = lambda tp, error: failed.append((tp, error))
    made.table.error = ValueError("the app's")
    with pytest.raises(ValueError, match="the app's"):
        await closes(made)
    assert failed == [(SOURCE, made.table.error)]
    assert made.consumer.ended == [SOURCE]
    assert KEY in made.table


async def test_a_window_without_a_row_is_forgotten(made: Made) -> None:
    """The app's code may delete the row from the data directly."""
    made.row()
    del made.table.data.data[KEY]
    made.it.windows.add(KEY, 0)
    made.it.times._times[0] = 900.0
    assert await made.close() == []
    assert made.it.windows.first(0) is None


@pytest.mark.parametrize("goes", [True, False])
async def test_a_send_that_fails_ends_the_worker_unless_the_partition_has_gone(
    made: Made, goes: bool
) -> None:
    """The next owner closes the window."""
    made.table.error = ProducerSendError("fenced")
    if goes:
        made.table.meanwhile = made.restored.clear
        assert await closes(made)
    else:
        with pytest.raises(ProducerSendError):
            await closes(made)
    assert KEY in made.table
    assert made.consumer._unacked_messages == set()
    assert not made.it._is_closing


@pytest.mark.parametrize("what", ["the changelog", "the sources"])
async def test_windows_that_end_together_are_closed_until_the_partition_goes(
    made: Made, what: str
) -> None:
    """Closed rows are deleted, the other rows stay."""
    made.app.in_transaction = True
    other = ("c", KEY[1])
    made.row(), made.row(other)
    made.it.times._times[0] = 900.0
    made.table.meanwhile = (
        made.restored.clear if what == "the changelog" else made.consumer._active_partitions.clear
    )
    assert len(await made.close()) == 1
    assert len(made.table) == 1


async def test_many_windows_are_closed_some_at_a_time(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit waits only for the windows of one record; the earliest windows close first."""
    monkeypatch.setattr(closings, "MOST", 2)
    keys = [(str(n), KEY[1]) for n in range(5)]
    for key in [LATER, *keys]:
        made.row(key)
    made.it.times._times[0] = 900.0
    closed = [key for key, _ in await made.close()]
    assert (set(closed[:5]), closed[5]) == (set(keys), LATER)
    assert [len(rows) for rows in made.flushes] == [6, 4, 2, 1]
    assert made.table.last_closed_window == 10.0


@pytest.mark.parametrize("is_assigned", [True, False])
def test_rows_of_a_partition_whose_source_was_revoked_meanwhile_stay(
    made: Made, is_assigned: bool
) -> None:
    """The next owner closes these windows; a deletion here would remove the rows for it."""
    made.row()
    if not is_assigned:
        made.consumer.assignment = lambda: {OTHER}  # type: ignore[method-assign]
    with made.it._under_way(SOURCE, 5):
        made.it._delete([KEY])
    assert (KEY not in made.table) == is_assigned


def test_rows_whose_deletion_is_refused_stay(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """The revocation of their source has not waited for the end of a long callback."""

    def refused(*_: Any) -> None:
        raise ProducerSendError("revoked")

    made.row()
    monkeypatch.setattr(type(made.table), "__delitem__", refused)
    with made.it._under_way(SOURCE, 5):
        assert not made.it._delete([KEY])
    assert KEY in made.table


def test_faust_is_told_of_the_latest_window_that_was_closed(made: Made) -> None:
    """Partitions have separate times; Faust's mark never goes back."""
    made.row(), made.row(LATER)
    with made.it._under_way(SOURCE, 5):
        made.it._delete([LATER, KEY])
    assert made.table.last_closed_window == 10.0


# -- supported tables


class Sets(Table):
    """A windowed table of sets."""


@pytest.mark.parametrize("kind", ["its owner", "everybody", "a partitioner", "sets"])
async def test_windows_of_sets_and_of_tables_that_others_write_are_left_to_faust(
    made: Made, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """In every table the callback gets values only, including 0 but not None."""
    monkeypatch.setattr(windowed_tables, "SetTable", Sets)
    table = Sets() if kind == "sets" else Table()
    table.is_global, table.use_partitioner = kind == "everybody", kind == "a partitioner"
    assert (install(made.app, table) is not None) == (kind == "its owner")
    for value in (None, 0, 5):
        await table.on_window_close(KEY, value)
    assert table.closed == [(KEY, 0), (KEY, 5)]


@pytest.mark.parametrize(
    ("expires", "given", "said", "kept"),
    [
        (600.0, None, None, 600.0 + 86_400.0),
        (timedelta(minutes=10), None, "30", 630.0),
        (600.0, None, "0", 600.0),
        (600.0, 5.0, None, 5.0),
        (None, None, None, 0.0),
    ],
    ids=["a day more", "a setting", "as Faust", "asked for", "never expires"],
)
def test_a_changelog_keeps_windows_longer_than_they_are_open(
    expires: Any, given: float | None, said: str | None, kept: float | None
) -> None:
    """A group that stops for the time of ``expires`` finds its open windows again."""
    settings = {} if said is None else {"faust_assigner_window_retention_s": said}
    app = faust.App("kept", broker="kafka://127.0.0.1:1", store="memory://", **settings)
    table = app.Table("counts", default=int)
    install(app, table)
    table.tumbling(10.0, expires=expires)
    if given is not None:
        table.changelog_topic = table._new_changelog_topic(retention=given)
    assert table.changelog_topic.retention == kept
    assert table.changelog_topic.deleting


def test_a_table_without_windows_keeps_its_changelog_for_ever() -> None:
    """It sets no retention: compaction alone removes rows."""
    app = faust.App("forever", broker="kafka://127.0.0.1:1", store="memory://")
    table = app.Table("counts", default=int)
    install(app, table)
    assert table.changelog_topic.retention is None


def test_a_changelog_of_sets_with_windows_is_not_compacted() -> None:
    """Faust compacts it: of each set one added and one removed element would remain."""
    app = faust.App("sets", broker="kafka://127.0.0.1:1", store="memory://")
    table = app.SetTable("seen")
    install(app, table)
    assert (table.changelog_topic.compacting, table.changelog_topic.deleting) == (False, None)
    table.tumbling(10.0, expires=600.0)
    assert (table.changelog_topic.compacting, table.changelog_topic.deleting) == (False, True)


# -- several partitions, sources and tables


async def test_each_owned_partition_is_closed_by_its_own_time(made: Made) -> None:
    """In order; partitions of other topics and partitions without due windows are skipped."""
    tps = [TP("log", number) for number in (2, 0, 1)]
    made.app.tables.recovery.active_tps = {*tps, TP("another", 3)}
    made.restored = set(tps)
    made.consumer._active_partitions = {TP("orders", number) for number in range(4)}
    made.consumer.assignment = lambda: made.consumer._active_partitions  # type: ignore[method-assign]
    made.consumer._committed_offset = {TP("orders", number): 5 for number in range(4)}
    times = {0: 120.0, 1: 105.0, 2: 120.0, 3: 500.0}
    for partition, reached in times.items():
        key = (f"k{partition}", (0.0, 9.9))
        made.table[key] = made.table.partition_of[key] = partition
        made.it.windows.add(key, partition)
        made.it.times._times[partition] = reached
        made.it.times._newest[partition] = reached, made.now
    assert [value for _, value in await made.close()] == [0, 2]
    assert set(made.table.values()) == {1, 3}


@pytest.mark.parametrize(("reached", "is_due"), [(109.8, False), (109.9, True)])
async def test_a_window_is_due_when_it_has_expired_to_the_moment(
    made: Made, reached: float, is_due: bool
) -> None:
    """The partition's time counts, limited by the machine's clock."""
    made.row()
    made.it.times._times[0] = reached
    made.it.times._newest[0] = reached, made.now
    assert await made.it._closing_time(0) == (reached if is_due else None)
    made.now = 100.0
    assert await made.it._closing_time(0) is None


async def test_a_partition_without_windows_is_due_at_no_time(made: Made) -> None:
    """A partition of unknown time is not due either; the log's end is not requested."""
    asked: list[int] = []

    async def is_at_its_end(partition: int) -> bool:
        asked.append(partition)
        return True

    made.it.sources.are_at_their_end = is_at_its_end  # type: ignore[method-assign]
    made.it.times._times[0] = 900.0
    assert await made.it._closing_time(0) is None
    assert not made.it._is_due(0, 900.0)
    made.row()
    assert not made.it._is_due(0, None)
    made.it.times._times.clear()
    assert await made.it._closing_time(0) is None, "it waits for its first record"
    assert asked == []
    made.now += made.table.window.expires
    assert await made.it._closing_time(0) == made.now
    assert asked == [0]


async def test_the_end_of_the_log_is_that_of_all_sources(made: Made) -> None:
    """Each source must be read and committed; without a source there is no end."""
    third = TP("refunds", 0)
    consumer = made.consumer
    consumer._active_partitions |= {OTHER, third}
    consumer.counts["refunds"] = 4
    consumer.positions[third] = consumer.ends[third] = 7
    assert await made.it.sources.are_at_their_end(0)
    for tp in (SOURCE, OTHER, third):
        for books in ("positions", "ends", "under way", "acknowledged", "unknown"):
            position, end = consumer.positions[tp], consumer.ends[tp]
            if books == "positions":
                consumer.positions[tp] -= 1
            elif books == "ends":
                consumer.ends[tp] += 1
            elif books == "under way":
                consumer._unacked_messages = {Message(tp)}
            elif books == "acknowledged":
                consumer._acked = {tp: [3]}
            else:
                consumer.positions[tp] = None  # type: ignore[assignment]
            assert not await made.it.sources.are_at_their_end(0), (tp, books)
            consumer.positions[tp], consumer.ends[tp] = position, end
            consumer._unacked_messages, consumer._acked = set(), {}
    assert await made.it.sources.are_at_their_end(0)
    consumer._active_partitions.clear()
    assert not await made.it.sources.are_at_their_end(0)


async def test_records_handed_over_get_two_seconds(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch round must begin after the check; the closing waits in short intervals."""
    slept: list[float] = []
    rounds = iter([5, 5, 5, 5, 6])
    monkeypatch.setattr(window_sources, "LOOK_S", 0.5)
    monkeypatch.setattr(window_sources, "HANDED_OVER_S", 2.0)
    monkeypatch.setattr(Consumer, "fetch_rounds", property(lambda self: next(rounds)))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert await made.it.sources.are_at_their_end(0)
    assert slept == [0.5] * 3
    slept.clear()
    rounds = iter([5] * 9)
    assert not await made.it.sources.are_at_their_end(0)
    assert slept == [0.5] * 4


def test_sources_are_of_the_partition_s_number_and_of_no_changelog(made: Made) -> None:
    """Paused sources count too; they come in order."""
    consumer = made.consumer
    consumer.counts |= {"clicks": 4, "other-log": 4}
    made.app.tables.changelog_topics = {"log", "other-log"}
    consumer._active_partitions = {SOURCE, LOG, TP("orders", 1), TP("other-log", 0)}
    consumer._buffered_partitions = {OTHER, TP("clicks", 0), TP("clicks", 2)}
    assert made.it.sources.of(0) == [TP("clicks", 0), SOURCE, OTHER]
    assert made.it.sources.of(1) == [TP("orders", 1)]
    made.it.times.topics = {"payments", "clicks"}
    assert made.it.sources.of(0) == [TP("clicks", 0), OTHER]
    assert made.it.sources.of(1) == [TP("orders", 1)]
    assert made.it.sources.of(3) == []


async def test_of_sources_committed_equally_far_the_last_one_is_taken(made: Made) -> None:
    """The record before the committed offset covers the windows; the lowest offset is 0."""
    seen: list[Any] = []

    async def close(keys: Any, partition: int, event: Any) -> bool:
        seen.append((keys, partition, event.message.tp, event.message.offset))
        return True

    made.it._close = close  # type: ignore[method-assign]
    made.consumer._active_partitions = {SOURCE, OTHER}
    made.row()
    for offsets in ({SOURCE: 7, OTHER: 7}, {SOURCE: None, OTHER: 0}, {}):
        made.consumer._committed_offset = offsets  # type: ignore[assignment]
        assert await made.it._close_some(0, 900.0)
    assert seen == [([KEY], 0, OTHER, 6), ([KEY], 0, OTHER, 0), ([KEY], 0, OTHER, 0)]
    assert not await made.it._close_some(0, 100.0), "nothing is due"
    assert len(seen) == 3


def test_the_record_under_way_is_one_of_this_generation_now(made: Made) -> None:
    """The record has the machine's time; afterwards the previous event is current again."""
    before = SimpleNamespace(message="before")
    token = _current_event.set(lambda: before)  # type: ignore[arg-type]
    try:
        with made.it._under_way(SOURCE, 0) as event:
            message = event.message
            assert made.it._is_closing
            assert made.it._message_at_hand() is None
            assert made.consumer._unacked_messages == {message}
            made.it._late.add(KEY)
        assert made.it._message_at_hand() == "before"
    finally:
        _current_event.reset(token)
    assert (message.topic, message.partition, message.offset) == ("orders", 0, 0)
    assert (message.timestamp, message.timestamp_type, message.generation_id) == (1_000.0, 0, 3)
    assert type(message.tp).__name__ == "TopicPartition"
    assert (made.it._is_closing, made.it._late) == (False, set())
    assert (message.acked, made.consumer._unacked_messages) == (True, set())
    assert made.it._message_at_hand() is None


async def test_each_row_is_passed_with_its_key_and_value(made: Made) -> None:
    """A row changed by a late record stays; the other rows are deleted together."""
    rows = {("a", KEY[1]): 1, ("b", KEY[1]): 0, ("c", KEY[1]): 3}
    for key, value in rows.items():
        made.row(key, value)
    gone = ("d", KEY[1])
    made.it.windows.add(gone, 0)
    event = SimpleNamespace(key=None, value=None)
    seen: list[Any] = []

    async def on_close(key: Any, value: Any) -> None:
        seen.append((key, value, event.key, event.value))
        if key == ("b", KEY[1]):
            made.it._changed(key, 0)

    made.table.on_window_close = on_close  # type: ignore[method-assign]
    with made.it._under_way(SOURCE, 5):
        assert await made.it._close([*rows, gone], 0, event)
    assert seen == [(key, value, key, value) for key, value in rows.items()]
    assert dict(made.table) == {("b", KEY[1]): 0}
    assert made.flushes == [set(rows)]
    assert made.it.windows.some(0, 9.9, 9) == [("b", KEY[1])]


async def test_without_a_closed_row_the_broker_is_not_waited_for(made: Made) -> None:
    """Each row was changed late or is missing."""
    made.row()
    made.table.meanwhile = lambda: made.it._changed(KEY, 0)
    made.flush_error = AssertionError()
    with made.it._under_way(SOURCE, 5):
        assert await made.it._close([KEY], 0, SimpleNamespace())
    assert KEY in made.table


def test_changes_of_records_are_noted_in_windows_and_times(made: Made) -> None:
    """The record's time counts if Faust requested its windows; a deletion removes its row."""
    made.now = 77.0
    reached: list[Any] = []
    made.it.times.reach = lambda *given: reached.append(given)  # type: ignore[method-assign]
    made.change(KEY, 7, OTHER, at=4.5)
    made.change(LATER, 8)
    assert reached == [(OTHER, 7, 0, 4.5, 77.0), (SOURCE, 8, 0, 10.0, 77.0)]
    made.it._changed(("c", (20.0, 29.9)), 3)
    assert len(reached) == 2, "outside of any stream"
    assert [made.it.windows.first(partition) for partition in (0, 3)] == [9.9, 29.9]
    made.it._deleted(KEY, 0)
    assert made.it.windows.first(0) == 19.9
    assert made.it._late == set()


def test_a_table_whose_windows_never_expire_notes_nothing(made: Made) -> None:
    """Its records are still applied."""
    applied: list[Any] = []
    made.it._apply = applied.append
    made.table.window = None  # type: ignore[assignment]
    made.change(KEY, 7)
    made.it.windows.applied = None  # type: ignore[assignment]
    made.it._applied(iter(["record"]))
    made.it._deleted(KEY, 0)
    assert (applied, made.it.windows.first(0), made.it.times.topics) == ([["record"]], None, set())


def test_applied_records_are_noted_after_the_table_has_them(made: Made) -> None:
    """The batch may be an iterator."""
    acts: list[Any] = []
    made.it._apply = lambda batch: acts.append(("applied", batch))
    made.it.windows.applied = lambda batch: acts.append(("noted", batch))  # type: ignore[method-assign]
    made.it._applied(iter(["one", "two"]))
    assert acts == [("applied", ["one", "two"]), ("noted", ["one", "two"])]


def test_calls_of_a_recovery_reach_the_tables_of_their_changelogs(made: Made) -> None:
    """Each partition is reported; commits reach every table."""
    acts: list[Any] = []

    def closing(name: str) -> Any:
        def note(what: str) -> Any:
            return lambda *given: acts.append((name, what, *given))

        return SimpleNamespace(
            changelog=f"{name}-log",
            windows=SimpleNamespace(restored=note("restored"), forget=note("forget windows")),
            times=SimpleNamespace(forget=note("forget times"), commit=note("commit")),
        )

    both = [closing("a"), closing("b")]
    restored(both, [TP("a-log", 3), TP("b-log", 5), TP("a-log", 4), TP("c-log", 1)])
    assert acts == [
        (name, what, number)
        for name, number in (("a", 3), ("a", 4), ("b", 5))
        for what in ("restored", "forget times")
    ]
    acts.clear()
    revoked(both, TP("b-log", 7))
    assert acts == [("b", "forget windows", 7), ("b", "forget times", 7)]
    acts.clear()
    committed(both, {SOURCE: 8})
    assert acts == [(name, "commit", {SOURCE: 8}) for name in "ab"]


@pytest.mark.parametrize("in_transaction", [True, False])
async def test_a_source_revoked_meanwhile_ends_the_closing(
    made: Made, in_transaction: bool
) -> None:
    """Its windows stay open for the next owner; otherwise they would close here repeatedly."""
    made.app.in_transaction = in_transaction
    made.row(), made.row(("b", KEY[1]))
    made.it.times._times[0] = 900.0
    made.consumer.assignment = lambda: {OTHER}  # type: ignore[method-assign]
    closed = await made.close()
    assert len(closed) == (1 if in_transaction else 2)
    assert len(made.table) == 2


@pytest.mark.parametrize("committed_offset", [None, 0])
async def test_nothing_committed_is_no_offset_of_a_transaction(
    made: Made, committed_offset: int | None
) -> None:
    """The window closes after a commit of a record."""
    made.app.in_transaction = True
    made.consumer._committed_offset = {SOURCE: committed_offset}
    made.row()
    assert not await made.it._close_some(0, 900.0)
    made.consumer._committed_offset = {SOURCE: 1}
    assert await made.it._close_some(0, 900.0)
    assert made.table.closed == [(KEY, 1)]


def test_the_first_moment_is_a_time_of_a_record(made: Made) -> None:
    """Time 0.0 is not replaced by the window's begin."""
    made.change(LATER, 4, at=0.0)
    made.it.times.commit({SOURCE: 5})
    assert made.it.times.time(0) == 0.0
