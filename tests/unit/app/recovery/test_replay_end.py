"""Changelog records on their way into tables: filters, writes, and the end of a recovery."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from faust.exceptions import DecodeError
from faust.tables.recovery import Recovery as FaustRecovery
from faust.types import TP
from mode.utils.queues import FlowControlEvent

from faust_assigner.app.recovery import loop as recovery_loop
from faust_assigner.app.recovery.loop import RecoveryLoop
from faust_assigner.app.recovery.table_manager import ChangelogQueue
from faust_assigner.app.recovery.unreadable import UnreadableRecords
from tests.support.waiting import PATIENCE_S

A, B, C, D = (TP("log", number) for number in range(4))


def event(tp: TP, offset: int, *, generation: int | None = 3) -> Any:
    """Return a changelog record."""
    return SimpleNamespace(
        message=SimpleNamespace(
            tp=tp, offset=offset, generation_id=generation, key=b"k", value=b"v"
        )
    )


class Host(FaustRecovery):  # type: ignore[misc]
    """A stub of Faust's recovery."""

    should_stop, started = False, True
    signal_recovery_start: Any = None
    signal_recovery_end: Any = None

    def __init__(self, app: Any, tables: Any) -> None:
        self.app, self.tables = app, tables
        self.in_recovery = True
        self.active_tps, self.standby_tps = {A}, {B}
        self.active_offsets, self.standby_offsets = {A: 4, C: None}, {B: 4}
        self.active_highwaters, self.standby_highwaters = {A: 6}, {B: 6}
        self._active_events_received_at: dict[TP, float] = {}
        self.signal_recovery_end = asyncio.Event()
        self.flushes = 0
        self.table = Table()
        self.tp_to_table = defaultdict(lambda: self.table)
        self.buffers: Any = defaultdict(list)
        self.ended = 0

    def _set_recovery_started(self) -> None:
        self.in_recovery = True

    def _set_recovery_ended(self) -> None:
        self.in_recovery = False
        self.ended += 1

    def need_recovery(self) -> bool:
        """Whether an active partition lacks records."""
        return any(self.active_offsets[tp] < end for tp, end in self.active_highwaters.items())

    def active_stats(self) -> dict[TP, Any]:
        """Return the actives that lack records."""
        return {
            tp: SimpleNamespace(offset=self.active_offsets[tp], highwater=end)
            for tp, end in self.active_highwaters.items()
            if self.active_offsets[tp] < end
        }


class Table:
    """A table with a callback."""

    name, recovery_buffer_size, standby_buffer_size = "counts", 3, 5

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.error: Exception | None = None

    async def on_changelog_event(self, event: Any) -> None:
        """Record the offset; raise the error if one is set."""
        self.seen.append(event.message.offset)
        if self.error is not None:
            raise self.error


class Consumer:
    """A stub of the app's consumer; ``positions`` are the next offsets to fetch."""

    fetch_rounds = 1

    def __init__(self) -> None:
        self.positions: dict[TP, int | None] = {A: 7}
        self.fetches = True
        self.meanwhile: Any = lambda: None

    def may_fetch(self, tp: TP) -> bool:
        """Whether the partition is fetched."""
        return self.fetches

    async def position(self, tp: TP) -> int | None:
        """Return the next offset; ``meanwhile`` runs before."""
        self.meanwhile()
        position = self.positions[tp]
        if position == -1:
            raise RuntimeError("lost")
        return position


class Recovery(RecoveryLoop, Host):  # type: ignore[misc]
    """Our recovery over the stub."""

    def flush_buffers(self) -> None:
        """Count a flush."""
        self.flushes += 1


async def look(made: Recovery) -> None:
    """Look for the end, as the loop does when no record comes."""
    await made._end.look(made.active_stats(), made.active_offsets)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Recovery:
    """A recovery with active ``A`` up to offset 6 and standby ``B``; both tables are at 4."""
    unreadable = SimpleNamespace(counts=Counter[TP]())
    monkeypatch.setattr(recovery_loop, "unreadable_of", lambda app: unreadable)
    queue = SimpleNamespace(empty=lambda: True)
    ready: list[str] = []
    tables = SimpleNamespace(
        changelog_queue=queue, standbys_ready=False, on_standbys_ready=lambda: ready.append("x")
    )
    tables.ready = ready
    app = SimpleNamespace(consumer=Consumer(), consumer_generation_id=3, tables=tables)
    return Recovery(app, tables)


@pytest.mark.parametrize(
    ("record", "is_taken"),
    [
        (event(A, 5), True),
        (event(B, 5), True),
        (event(C, 5), False),
        (event(A, 5, generation=None), True),
        (event(A, 5, generation=2), False),
    ],
    ids=["owned", "followed", "neither", "no generation", "old generation"],
)
async def test_the_queue_gives_records_of_this_generation_that_are_replayed(
    made: Recovery, record: Any, is_taken: bool
) -> None:
    """A record without a generation comes from a client without a group."""
    made.app.tables = SimpleNamespace(recovery=made)
    flow = FlowControlEvent()
    flow.resume()
    queue = ChangelogQueue(made.app, maxsize=4, flow_control=flow)
    for one in (record, event(A, 99)):
        queue.put_nowait(one)
    found = await asyncio.wait_for(queue.get(), PATIENCE_S)
    assert found.message.offset == (record.message.offset if is_taken else 99)


async def test_a_record_that_a_table_has_counts_for_nothing_but_the_time(made: Recovery) -> None:
    """The next record is applied and passed to the app's callback."""
    for offset in (3, 4, 5):
        await made._take(event(A, offset))
    assert made.table.seen == [5]
    assert [one.message.offset for one in made.buffers[made.table]] == [5]
    assert made.active_offsets[A] == 5
    assert set(made._active_events_received_at) == {A}


async def test_the_first_record_of_an_empty_table_is_applied(made: Recovery) -> None:
    """The table's offset is None."""
    made.active_tps.add(C)
    await made._take(event(C, 0))
    assert made.active_offsets[C] == 0


async def test_a_record_of_a_copy_moves_the_copy(made: Recovery) -> None:
    """It is no record of an active."""
    for offset in (5, 6):
        await made._take(event(B, offset))
    assert made.standby_offsets[B] == 6
    assert made._active_events_received_at == {}


@pytest.mark.parametrize(("tp", "size"), [(A, 3), (B, 5)], ids=["owned", "copy"])
async def test_a_buffer_is_written_when_it_is_full(made: Recovery, tp: TP, size: int) -> None:
    """Actives and standbys have separate buffer sizes."""
    for offset in range(5, 5 + size - 1):
        await made._take(event(tp, offset))
    assert made.flushes == 0
    await made._take(event(tp, 5 + size - 1))
    assert made.flushes == 1


async def test_an_app_whose_callback_fails_gets_its_rows(made: Recovery, caplog: Any) -> None:
    """The failure is logged once a minute."""
    made.table.error = RuntimeError("a bug")
    for offset in (5, 6):
        await made._take(event(A, offset))
    assert len(made.buffers[made.table]) == 2
    assert len(caplog.records) == 1


def test_a_recovery_ends_once_all_that_was_read_is_written(made: Recovery) -> None:
    """It sets the event that other tasks wait for."""
    made._maybe_end()
    assert (made.ended, made.flushes) == (0, 0)
    made.active_offsets[A] = 6
    made._maybe_end()
    assert (made.ended, made.flushes, made.signal_recovery_end.is_set()) == (1, 1, True)
    made._maybe_end()
    assert (made.ended, made.flushes) == (1, 1)


def test_a_recovery_whose_last_write_failed_does_not_end(made: Recovery) -> None:
    """The failure restarts the recovery from the file's offset."""

    def fail() -> None:
        made.active_offsets[A] = 4

    made.active_offsets[A] = 6
    made.flush_buffers = fail  # type: ignore[method-assign]
    made._maybe_end()
    assert made.ended == 0
    assert not made.signal_recovery_end.is_set()


@pytest.mark.parametrize("state", ["recovering", "lacking", "none", "ready"])
def test_standbys_are_ready_once_the_actives_are_and_nothing_is_lacking(
    made: Recovery, state: str
) -> None:
    """The app is notified once."""
    made.active_offsets[A], made.standby_offsets[B] = 6, 6
    if state == "recovering":
        made.active_offsets[A] = 5
    elif state == "lacking":
        made.standby_offsets[B] = 5
    elif state == "none":
        made.standby_tps.clear()
    made._maybe_end()
    assert made.tables.ready == (["x"] if state == "ready" else [])
    made.tables.standbys_ready = True
    made._maybe_end()
    assert len(made.tables.ready) == (state == "ready")


@pytest.mark.parametrize(
    ("offsets", "lacks"),
    [
        ({B: 6, C: 9}, False),
        ({B: 5, C: 10}, True),
        ({B: 6, C: 30}, False),
        ({B: -1, C: 9}, True),
        ({B: None, C: 9}, True),
    ],
    ids=["complete", "a surplus", "beyond", "no record", "unknown"],
)
def test_each_standby_must_have_its_records(
    made: Recovery, offsets: dict[TP, int | None], lacks: bool
) -> None:
    """Faust adds up the differences, and leaves out standbys without a record."""
    made.standby_offsets, made.standby_highwaters = offsets, {B: 6, C: 9}
    assert made.lacks_standby_records() == lacks
    made.standby_tps, made.active_offsets[A] = {B, C}, 6
    made._maybe_end()
    assert made.tables.ready == ([] if lacks else ["x"])


@pytest.mark.parametrize("role", ["standby", "both"])
async def test_a_standby_is_complete_once_its_changelog_is_fetched_to_the_end(
    made: Recovery, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under exactly_once the last offset is a transaction's marker; a new end is looked for again."""
    monkeypatch.setattr(recovery_loop, "IDLE_S", 0.001)
    made.app.tables.changelog_queue = asyncio.Queue()
    made.in_recovery = False
    made.standby_tps, consumer = {B}, made.app.consumer
    made.active_tps = {B} if role == "both" else set()
    looping = asyncio.ensure_future(made._slurp_changelogs(made))
    for end in (6, 9):
        made.begin_standbys()
        made.standby_highwaters, made.offsets_for(B)[B] = {B: end}, 4
        consumer.positions[B] = end  # the marker is not fetched yet
        await asyncio.sleep(0.02)
        assert made.tables.ready == []
        consumer.positions[B] = end + 1
        await asyncio.sleep(0.02)
        assert made.tables.ready == [], "the last batch may not be in the queue yet"
        consumer.fetch_rounds += 1
        async with asyncio.timeout(PATIENCE_S):
            while not made.tables.ready:
                await asyncio.sleep(0.001)
        made.tables.ready.clear()
        assert made.offsets_for(B)[B] == 4, "no record was applied"
    looping.cancel()


def test_an_active_partition_that_is_followed_has_the_records_of_its_restore(
    made: Recovery,
) -> None:
    """A partition of a global table has both roles; its records are noted as those of an active."""
    made.standby_highwaters, made.standby_offsets = {A: 6}, {A: None}
    for offset in (5, 6):
        made.active_offsets[A] = offset
        assert made.lacks_standby_records() == (offset == 5)


class Span:
    """A tracer's span, false while it has no tags."""

    def __init__(self) -> None:
        self.tags: dict[str, Any] = {}
        self.ends: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.tags)

    def set_tag(self, name: str, value: Any) -> None:
        """Set a tag, as OpenTracing does."""
        self.tags[name] = value

    def finish(self) -> None:
        """Record the end, as OpenTracing's span."""
        self.ends.append("finished")

    def __exit__(self, kind: type, *_: Any) -> None:
        self.ends.append(kind.__name__)


#: The tags of each span of Faust.
TAGS = {"faust_app": "x", "faust_id": "x"}


@pytest.mark.parametrize("fails", [True, False])
def test_the_span_of_actives_tells_whether_they_are_ready(made: Recovery, fails: bool) -> None:
    """It is a child of the recovery's span, and an error ends it."""
    begun, span = list[Any](), Span()
    tracer = SimpleNamespace(
        start_span=lambda name, **details: begun.append((name, details)) or span
    )
    made.app.tracer = SimpleNamespace(get_tracer=lambda name: tracer)
    made.app.conf = SimpleNamespace(name="x", id="x")
    made.spans.tag_actives({A: 2})  # without a span
    with contextlib.suppress(KeyError), made.spans.actives("parent"):
        assert made.spans._actives is span
        made.spans.tag_actives({A: 3})
        if fails:
            raise KeyError
    assert begun == [("recovery-actives", {"child_of": "parent"})]
    ready = {} if fails else {"Actives-Ready": True}
    assert span.tags == TAGS | {"Active-Stats": {A: 3}} | ready
    assert span.ends == ["KeyError" if fails else "finished"]
    assert made.spans._actives is None


def test_the_span_of_standbys_tells_what_they_lack(made: Recovery) -> None:
    """The previous span has ended by then."""
    before, span = Span(), Span()
    made.app.tracer = SimpleNamespace(
        get_tracer=lambda _: SimpleNamespace(start_span=lambda name, **_: span)
    )
    made.app.conf = SimpleNamespace(name="x", id="x")
    made.spans._standbys = before
    made.spans.begin_standbys(None, {B: 3})
    assert (before.ends, made.spans._standbys) == (["finished"], span)
    assert span.tags == TAGS | {"Standby-Stats": {B: 3}}


def test_the_span_of_standbys_ends_once(made: Recovery) -> None:
    """It ends after each round that had a span."""
    ends: list[str] = []
    made.active_offsets[A], made.standby_offsets[B] = 6, 6
    made.tables.standbys_ready = True
    made.spans._standbys = SimpleNamespace(finish=lambda: ends.append("x"))
    for _ in range(3):
        made._maybe_end()
    assert (ends, made.tables.ready) == (["x"], ["x"])


def test_a_new_recovery_knows_nothing_of_the_last(made: Recovery) -> None:
    """It forgets the fetched positions and the former end."""
    made._end._fetched[A] = 1
    made.signal_recovery_end.set()
    made._set_recovery_started()
    assert made._end._fetched == {}
    assert not made.signal_recovery_end.is_set()


async def test_offsets_without_records_are_passed_over_one_round_after_the_fetch(
    made: Recovery, caplog: Any
) -> None:
    """In the fetch's own round the last batch may still be in flight."""
    for rounds, offset in ((1, 4), (1, 4), (2, 6)):
        made.app.consumer.fetch_rounds = rounds
        await look(made)
        assert made.active_offsets[A] == offset
    assert "restored" not in caplog.text, "markers of transactions are no trouble"


@pytest.mark.parametrize(
    "reason", ["queued", "not fetched", "before the end", "no position", "lost"]
)
async def test_a_partition_is_not_passed_over_while_records_may_come(
    made: Recovery, reason: str
) -> None:
    """The number of checks does not matter."""
    consumer = made.app.consumer
    if reason == "queued":
        made.tables.changelog_queue.empty = lambda: False
    elif reason == "not fetched":
        consumer.fetches = False
    else:
        consumer.positions[A] = {"before the end": 6, "no position": None, "lost": -1}[reason]
    for consumer.fetch_rounds in range(1, 5):
        await look(made)
    assert made.active_offsets[A] == 4


async def test_a_round_that_was_fetched_while_the_position_was_asked_for_counts(
    made: Recovery,
) -> None:
    """That round's batch may still be in flight."""
    consumer = made.app.consumer

    def fetch() -> None:
        consumer.fetch_rounds += 1

    consumer.meanwhile = fetch
    await look(made)
    await look(made)
    assert made.active_offsets[A] == 4
    consumer.fetch_rounds += 1
    await look(made)
    assert made.active_offsets[A] == 6


async def test_a_position_of_the_recovery_before_counts_for_nothing(made: Recovery) -> None:
    """The recovery restarted during the request of the position."""

    def restart_recovery() -> None:
        made._set_recovery_started()

    made.app.consumer.meanwhile = restart_recovery
    await look(made)
    assert made._end._fetched == {}


async def test_records_that_were_not_read_are_an_error_in_the_log(
    made: Recovery, caplog: Any
) -> None:
    """They do not decode, so rows lack their changes."""
    made.unreadable.counts[A] = 1
    for made.app.consumer.fetch_rounds in (1, 2):
        await look(made)
    assert [(r.levelname, "offset 4 and the end 6" in r.message) for r in caplog.records] == [
        ("ERROR", True)
    ]


async def test_outside_of_a_recovery_nothing_is_passed_over(made: Recovery) -> None:
    """Its offsets are those of the worker's own changes."""
    made.in_recovery = False

    async def get() -> Any:
        made.should_stop = True
        raise TimeoutError

    made.tables.changelog_queue.get = get
    made._end.look = None  # type: ignore[method-assign, assignment]
    await made._slurp_changelogs(made)
    assert made.active_offsets[A] == 4


async def test_the_loop_takes_what_comes_and_looks_for_the_end_when_nothing_does(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An undecodable record was already reported; after each step the recovery may end."""
    acts: list[Any] = []
    steps: list[Any] = [event(A, 5), DecodeError("bad"), None, event(A, 6)]

    async def get() -> Any:
        step = steps.pop(0)
        made.should_stop = not steps
        if step is None:
            raise TimeoutError
        if isinstance(step, Exception):
            raise step
        return step

    class Limit:
        def __init__(self, seconds: float) -> None:
            acts.append(seconds)

        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_: object) -> None:
            pass

    async def take(record: Any) -> None:
        acts.append(record.message.offset)

    async def look_for_the_end(*_: Any) -> None:
        acts.append("look")

    monkeypatch.setattr(asyncio, "timeout", Limit)
    made.tables.changelog_queue.get = get
    made._take, made._end.look = take, look_for_the_end  # type: ignore[method-assign]
    made._maybe_end = lambda: acts.append("end?")  # type: ignore[method-assign]
    await made._slurp_changelogs(made)
    wait = recovery_loop.IDLE_S
    assert acts == [wait, 5, "end?", wait, "end?", wait, "look", "end?", wait, 6, "end?"]


async def test_a_record_of_an_active_is_noted_in_the_books_of_actives_alone(
    made: Recovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arrival time is recorded, for Faust's warnings."""
    now = 100.0
    monkeypatch.setattr(recovery_loop, "monotonic", lambda: now)
    made.standby_tps.add(A)
    made.standby_offsets[A] = 77
    await made._take(event(A, 5))
    now = 103.0
    await made._take(event(B, 5))
    await made._take(event(A, 6))
    now = 104.0
    await made._take(event(A, 6))
    assert made._active_events_received_at == {A: 104.0}
    assert (made.active_offsets[A], made.standby_offsets) == (6, {A: 77, B: 5})
    assert [one.message.offset for one in made.buffers[made.table]] == [5, 5, 6]
    assert made.table.seen == [5, 5, 6]


async def test_a_buffer_that_is_full_is_written_after_the_callback(made: Recovery) -> None:
    """A failing callback does not delay the write; the offset is set before both."""
    acts: list[Any] = []

    async def callback(record: Any) -> None:
        acts.append(("callback", record.message.offset, made.active_offsets[A]))
        raise RuntimeError("a bug")

    made.table.on_changelog_event = callback  # type: ignore[method-assign]
    made.flush_buffers = lambda: acts.append("flush")  # type: ignore[method-assign]
    for offset in (5, 6, 9):
        await made._take(event(A, offset))
    assert acts == [("callback", 5, 5), ("callback", 6, 6), ("callback", 9, 9), "flush"]


async def test_a_record_that_does_not_decode_is_named_with_all_of_it(
    monkeypatch: pytest.MonkeyPatch, made: Recovery
) -> None:
    """The report names its own partition."""
    named: list[Any] = []

    class Named(UnreadableRecords):
        def __init__(self) -> None:
            """Omit the app."""

        def __call__(self, tp: TP, records: Any) -> None:
            named.append((tp, records))

    error = DecodeError("bad")
    await Named().add_undecoded(error, event(B, 7).message)
    assert named == [(B, [(7, b"k", b"v", error)])]


def test_without_a_tracer_nothing_is_traced(made: Recovery) -> None:
    """Neither actives nor standbys have a span."""
    made.app.tracer = None
    with made.spans.actives(None):
        assert made.spans._actives is None
        made.spans.tag_actives({A: 1})
    made.spans.begin_standbys(None, {})
    assert (made.spans._actives, made.spans._standbys) == (None, None)


def test_standbys_are_ready_without_a_span_and_not_while_they_lack_records(made: Recovery) -> None:
    """Then the span ends and the app is notified; without standbys neither happens."""
    ends: list[str] = []
    span = SimpleNamespace(finish=lambda: ends.append("x"))
    made.in_recovery, made.tables.standbys_ready, made.spans._standbys = False, True, span
    made._maybe_end()
    made.standby_tps, made.standby_offsets[B] = set(), 6
    made._maybe_end()
    made.standby_tps, made.in_recovery, made.active_offsets[A] = {B}, True, 5
    made._maybe_end()
    assert (ends, made.tables.ready, made.spans._standbys) == ([], [], span)
    made.in_recovery = False
    made._maybe_end()
    assert (ends, made.tables.ready, made.spans._standbys) == (["x"], ["x"], None)


def test_a_last_write_that_brings_no_end_is_the_only_one(made: Recovery) -> None:
    """The buffers are written once at the recovery's end, not before."""
    made.active_highwaters = {A: 6, C: 9}
    made.active_offsets.update({A: 6, C: 8})
    made._maybe_end()
    assert (made.flushes, made.ended) == (0, 0)
    made.active_offsets[C] = 9
    made._maybe_end()
    assert (made.flushes, made.ended, made.in_recovery) == (1, 1, False)


async def test_each_partition_is_passed_over_by_itself(made: Recovery) -> None:
    """In order: a later fetch waits for a later round, and an unfetched partition is skipped."""
    consumer, asked = made.app.consumer, list[TP]()
    made.active_highwaters = {C: 3, A: 6, D: 2}
    made.active_offsets.update({C: 1, D: 0})
    consumer.positions = {A: 7, C: 3, D: 3}
    consumer.may_fetch = lambda tp: asked.append(tp) or tp != D  # type: ignore[method-assign]
    await look(made)
    assert (asked, made._end._fetched) == ([A, C, D], {A: 1})
    consumer.fetch_rounds, consumer.positions[C] = 2, 4
    await look(made)
    assert asked[3:] == [C, D]
    assert made._end._fetched == {A: 1, C: 2}
    assert made.active_offsets == {A: 6, C: 1, D: 0}
    consumer.fetch_rounds = 3
    await look(made)
    assert made.active_offsets == {A: 6, C: 3, D: 0}


async def test_a_recovery_that_begins_amid_a_look_ends_the_look(made: Recovery) -> None:
    """The remaining partitions are not checked."""
    asked: list[TP] = []
    made.active_highwaters = {A: 6, C: 3}
    made.active_offsets[C] = 1
    consumer = made.app.consumer
    consumer.positions[C] = 9
    consumer.may_fetch = lambda tp: asked.append(tp) or True  # type: ignore[method-assign]

    def restart_recovery() -> None:
        made._set_recovery_started()

    consumer.meanwhile = restart_recovery
    await look(made)
    assert (asked, made._end._fetched) == ([A], {})


async def test_a_recovery_that_begins_amid_a_failed_look_voids_the_marks(made: Recovery) -> None:
    """The first partition was revoked meanwhile; the second had been fetched before."""
    made.active_highwaters = {A: 6, C: 3}
    made.active_offsets[C] = 1
    consumer = made.app.consumer
    consumer.fetch_rounds, made._end._fetched = 5, {C: 1}
    consumer.may_fetch = lambda tp: True  # type: ignore[method-assign]

    async def revoked(tp: TP) -> int:
        made._set_recovery_started()
        raise OSError("revoked")

    consumer.position = revoked  # type: ignore[method-assign]
    await look(made)
    assert made.active_offsets[C] == 1
    assert made._end._fetched == {}
