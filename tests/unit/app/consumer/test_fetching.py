"""The consumer thread fetches records of sources and of standbys in the same batch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import IllegalStateError, RecordTooLargeError
from faust.types import TP
from mode.utils.queues import FlowControlEvent

from faust_assigner.app.consumer.commits import FinalCommit
from faust_assigner.app.consumer.fetching import (
    LIVE_BATCH,
    STANDBY_BATCH,
    FlowControl,
    FlowGate,
    KnownPartitions,
    Wanted,
    fetch_or_put_back,
    seek_committed,
    seek_to_committed,
)

SOURCE, STANDBY = TP("orders", 0), TP("log", 0)


class Thread:
    """The consumer thread of an app, with a client that has the records ``at_hand``."""

    def __init__(
        self,
        at_hand: Mapping[TP, int],
        changelogs: frozenset[str] = frozenset({"log"}),
        *,
        in_recovery: bool = False,
    ) -> None:
        self.app = SimpleNamespace(
            in_recovery=in_recovery, tables=SimpleNamespace(changelog_topics=changelogs)
        )
        self.noted: list[Any] = []
        self.consumer = SimpleNamespace(flow_active=True, note_first=self.noted.append)
        self.at_hand, self.asked = at_hand, list[tuple[set[TP], float, int | None]]()
        self.sought: dict[TP, int] = {}

    async def _fetch(self, _: Any, wanted: Any, *, timeout: float, max_records: int | None) -> Any:
        tps = {tp for tp in (SOURCE, STANDBY) if wanted is None or tp in wanted}
        self.asked.append((tps, timeout, max_records))
        return {
            tp: [SimpleNamespace(offset=7 + n) for n in range(self.at_hand[tp])]
            for tp in tps
            if self.at_hand.get(tp)
        }

    def _seek(self, tp: TP, offset: int) -> None:
        self.sought[tp] = offset
        if tp == STANDBY:
            raise IllegalStateError("no longer assigned")

    async def fetch(
        self, active: Any = frozenset({SOURCE, STANDBY}), max_records: int | None = None
    ) -> dict[TP, int]:
        """Return the number of records per partition of a turn."""
        found = await fetch_or_put_back(
            self,
            self._fetch,
            SimpleNamespace(seek=self._seek),
            active,
            timeout=5.0,
            max_records=max_records,
        )
        return {tp: len(batch) for tp, batch in found.items()}


async def test_both_kinds_come_in_one_turn_of_which_each_has_so_much() -> None:
    """The turn does not wait while records are available; a larger limit changes no share."""
    for most, (few, some) in (
        (None, (LIVE_BATCH, STANDBY_BATCH)),
        (100_000, (LIVE_BATCH, STANDBY_BATCH)),
        (10, (10, 10)),
    ):
        thread = Thread({SOURCE: 1, STANDBY: 2})
        assert await thread.fetch(max_records=most) == {SOURCE: 1, STANDBY: 2}
        assert thread.asked == [({SOURCE}, 0, few), ({STANDBY}, 0, some)]
    assert LIVE_BATCH < STANDBY_BATCH < 1000


@pytest.mark.parametrize("at_hand", [{SOURCE: 1}, {STANDBY: 1}])
async def test_nobody_waits_where_one_kind_has_records(at_hand: dict[TP, int]) -> None:
    """The other kind's records come with the next turn."""
    thread = Thread(at_hand)
    assert await thread.fetch() == at_hand
    assert [timeout for _, timeout, _ in thread.asked] == [0, 0]


async def test_where_there_is_nothing_one_waits_for_the_first_of_either_kind() -> None:
    """Without tables the thread waits for the first record of any partition."""
    thread = Thread({})
    assert await thread.fetch() == {}
    assert thread.asked[2:] == [({SOURCE, STANDBY}, 5.0, LIVE_BATCH)]
    alone = Thread({}, frozenset())
    assert await alone.fetch() == {}
    assert alone.asked == [({SOURCE, STANDBY}, 5.0, LIVE_BATCH)]


async def test_a_recovery_takes_all_it_can() -> None:
    """A recovery has no live processing beside it, so there is no limit per kind."""
    thread = Thread({STANDBY: 3}, in_recovery=True)
    assert await thread.fetch(max_records=9) == {STANDBY: 3}
    assert await thread.fetch(None, max_records=9) == {STANDBY: 3}
    assert thread.asked == [({SOURCE, STANDBY}, 5.0, 9)] * 2


async def test_what_arrives_while_the_flow_is_stopped_is_put_back_whole() -> None:
    """Only assigned partitions are set back; their records do not count as first read."""
    thread = Thread({SOURCE: 2, STANDBY: 2})
    assert await thread.fetch() == {SOURCE: 2, STANDBY: 2}
    assert [set(noted) for noted in thread.noted] == [{SOURCE, STANDBY}]
    thread.consumer.flow_active = False
    assert await thread.fetch() == {}
    assert thread.sought == {SOURCE: 7, STANDBY: 7}
    assert len(thread.noted) == 1


@pytest.mark.parametrize("asked", [None, [TP("orders", p) for p in (0, 1, 2, 3, 9)]])
async def test_one_seeks_what_is_committed_else_what_was_read_first(asked: list[TP] | None) -> None:
    """The answer covers partitions assigned before and after the request; 0 is a valid offset."""
    a, b, c, d, other = (TP("orders", p) for p in (0, 1, 2, 3, 4))
    assigned, sought, named = {a, b, c, d, other}, dict[TP, int](), list[TP]()

    async def committed(tps: list[TP]) -> dict[TP, Any]:
        named.extend(tps)
        assigned.discard(d)
        offsets = {a: 0, b: -1, d: 5, other: 8}
        return {tp: SimpleNamespace(offset=offset) for tp, offset in offsets.items() if tp in tps}

    consumer = SimpleNamespace(
        assignment=lambda: set(assigned),
        seek=sought.__setitem__,
        _coordinator=SimpleNamespace(fetch_committed_offsets=committed),
    )
    found = await seek_committed(consumer, {a: 70, b: 0}, asked)
    of_others = {} if asked else {other: 8}
    assert named == sorted({a, b, c, d} | of_others.keys())
    assert found == {a: 0, b: None, c: None, d: None} | of_others
    assert sought == {a: 0, b: 0} | of_others


async def test_a_partition_that_is_given_up_holds_up_no_other_with_its_offset() -> None:
    """An open transaction delays the offset; the former owner stops asking for it."""
    stays, goes = TP("orders", 0), TP("orders", 1)
    assigned, sought, asked = {stays, goes}, dict[TP, int](), list[list[TP]]()

    async def committed(tps: list[TP]) -> dict[TP, Any]:
        asked.append(list(tps))
        while goes in tps:
            await asyncio.sleep(0.01)
            assigned.discard(goes)
        return {tp: SimpleNamespace(offset=5) for tp in tps}

    consumer = SimpleNamespace(
        assignment=lambda: set(assigned),
        seek=sought.__setitem__,
        _coordinator=SimpleNamespace(fetch_committed_offsets=committed),
    )
    found = await asyncio.wait_for(seek_committed(consumer, {}), 5.0)
    assert (found, sought) == ({stays: 5, goes: None}, {stays: 5})
    assert asked == [[stays, goes], [stays]]


async def test_all_partitions_given_up_end_the_wait_for_their_offsets() -> None:
    """The consumer seeks no partition."""
    only = TP("orders", 0)
    assigned = {only}

    async def committed(tps: list[TP]) -> dict[TP, Any]:
        assigned.clear()
        await asyncio.sleep(60.0)
        return {}

    consumer = SimpleNamespace(
        assignment=lambda: set(assigned),
        _coordinator=SimpleNamespace(fetch_committed_offsets=committed),
    )
    assert await asyncio.wait_for(seek_committed(consumer, {}), 5.0) == {only: None}


def test_the_first_record_of_a_source_is_noted_once() -> None:
    """A new assignment starts over; tables track their changelogs themselves."""
    consumer = object.__new__(FlowGate)
    consumer.first_read = {}
    consumer._is_changelog_tp = lambda tp: tp == STANDBY
    for offset in (7, 9):
        consumer.note_first(
            {SOURCE: [SimpleNamespace(offset=offset)], STANDBY: [SimpleNamespace(offset=offset)]}
        )
    assert consumer.first_read == {SOURCE: 7}


async def test_an_error_of_a_standby_costs_no_record_of_a_source() -> None:
    """aiokafka has already moved the source's position; it is set back, and the error is raised."""
    sought: dict[TP, int] = {}

    async def fetch(_: Any, wanted: Any, **limits: Any) -> Any:
        if STANDBY in wanted:
            raise RecordTooLargeError("log")
        return {SOURCE: [SimpleNamespace(offset=7), SimpleNamespace(offset=8)]}

    thread = SimpleNamespace(
        app=SimpleNamespace(in_recovery=False, tables=SimpleNamespace(changelog_topics={"log"}))
    )
    with pytest.raises(RecordTooLargeError):
        await fetch_or_put_back(
            thread, fetch, SimpleNamespace(seek=sought.__setitem__), {SOURCE, STANDBY}
        )
    assert sought == {SOURCE: 7}


class Host:
    """Stand in for Faust's consumer; note calls and their state at a rebalance."""

    def __init__(self) -> None:
        self.acts: list[Any] = []
        self.app = SimpleNamespace(
            flow_control=SimpleNamespace(suspend=lambda: self.acts.append("suspend"))
        )
        self._reset_state()

    def _reset_state(self) -> None:
        self._buffered_partitions, self._paused_partitions = {SOURCE}, {STANDBY}

    def stop_flow(self) -> None:
        """Note the call."""
        self.acts.append("stop flow")

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Mark a full queue during the wait for streams, as Faust may."""
        self._buffered_partitions.add(STANDBY)

    async def on_partitions_assigned(self, assigned: Any, generation_id: int) -> None:
        """Note the generation and both sets of partitions."""
        self.acts.append(
            (generation_id, set(self._buffered_partitions), set(self._paused_partitions))
        )

    def resume_partitions(self, tps: Any) -> None:
        """Note the call."""
        self.acts.append(("resume", tps))

    def on_buffer_drop(self, tp: TP) -> None:
        """Note the call."""
        self.acts.append(("room", tp))


class Steady(FlowGate, Host):  # type: ignore[misc]
    """FlowGate over the stand-in."""


async def test_nothing_of_the_last_generation_wakes_anything_in_the_next() -> None:
    """All partitions are paused and all streams stopped before agents get the assignment."""
    consumer = Steady()
    await consumer.on_partitions_revoked({SOURCE})
    assert consumer._buffered_partitions == set()
    consumer._buffered_partitions.add(SOURCE)
    await consumer.on_partitions_assigned({SOURCE}, 7)
    assert consumer.acts == ["stop flow", "suspend", (7, set(), {SOURCE, STANDBY})]
    assert consumer.between_generations


def test_what_is_paused_is_resumed_by_its_recovery_alone() -> None:
    """A queue with free room does not resume the partition, nor does a call before the recovery."""
    consumer = Steady()
    consumer._buffered_partitions, consumer._paused_partitions = {SOURCE, STANDBY}, {STANDBY}
    for tp in (SOURCE, STANDBY):
        consumer.on_buffer_drop(tp)
    assert consumer.acts == [("room", SOURCE)]
    assert consumer._buffered_partitions == {SOURCE}
    consumer._between_generations = True
    consumer.resume_partitions({SOURCE})
    consumer.begin_generation()
    consumer.resume_partitions({STANDBY})
    assert consumer.acts[1:] == [("resume", {STANDBY})]


def test_what_was_read_first_is_forgotten_with_all_else() -> None:
    """A new assignment has its own first records."""
    consumer = Steady()
    consumer.first_read = {SOURCE: 7}
    consumer._reset_state()
    assert consumer.first_read == {}


def test_what_was_read_first_of_a_partition_that_left_is_forgotten() -> None:
    """A different owner may have processed records; the old offset would repeat them."""
    consumer = object.__new__(FinalCommit)
    for book in ("_gap", "_acked", "_acked_index", "_read_offset", "_committed_offset"):
        setattr(consumer, book, {SOURCE: 1, STANDBY: 2})
    consumer.first_read = {SOURCE: 7, STANDBY: 3}
    consumer._forget({SOURCE})
    assert consumer.first_read == {STANDBY: 3}
    assert consumer._acked == {STANDBY: 2}


def test_streams_take_nothing_while_all_must_stand_still() -> None:
    """A former resume has no effect: a different member may own the partition."""
    flow = FlowControl()
    flow.resume()
    assert flow.is_active()
    flow.must_stand_still = lambda: True
    assert not flow.is_active()


def test_a_flow_that_runs_drops_nothing_when_it_is_asked_to_run() -> None:
    """Faust resumes up to four times per recovery; each resume would empty the queues."""

    class Queue:
        cleared = 0

        def clear(self) -> None:
            self.cleared += 1

    flow, queue = FlowControl(), Queue()
    flow.manage_queue(queue)  # type: ignore[arg-type]
    flow.suspend()
    for _ in range(3):
        flow.resume()
    assert queue.cleared == 1


def test_nothing_wanted_is_not_everything() -> None:
    """aiokafka takes an empty collection for "all partitions"; Wanted reads the live set."""
    active: set[TP] = set()
    wanted = Wanted(active, but_not={"log"})
    assert bool(wanted)
    assert (list(wanted), len(wanted), SOURCE in wanted) == ([], 0, False)
    active |= {SOURCE, STANDBY}
    assert (list(wanted), len(wanted), STANDBY in wanted) == ([SOURCE], 1, False)


def test_the_recovery_asks_whether_records_are_fetched_at_all() -> None:
    """Records are fetched neither while the flow is stopped nor for paused partitions."""
    consumer = Steady()
    consumer._active_partitions, consumer.flow_active = {SOURCE}, True
    assert consumer.may_fetch(SOURCE)
    assert not consumer.may_fetch(STANDBY)
    consumer.flow_active = False
    assert not consumer.may_fetch(SOURCE)


class Idle(FlowGate):
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
    waiting = asyncio.ensure_future(consumer._wait_next_records(0.5))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    consumer._resumed.set()
    assert await asyncio.wait_for(waiting, 0.4) == ({}, set())


async def test_a_fetch_waits_while_the_flow_is_stopped() -> None:
    """A fetch that returned would seek all partitions to their committed offsets."""
    consumer = Idle()
    consumer.flow_active = False
    waiting = asyncio.ensure_future(consumer._wait_next_records(0.01))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    consumer.can_resume_flow.set()
    assert await asyncio.wait_for(waiting, 5.0) == ({}, set())


def test_the_partitions_of_an_unknown_topic_are_unknown() -> None:
    """A topic with no partitions would count as a partition mismatch."""

    class Stock:
        def topic_partitions(self, topic: str) -> int | None:
            return {"orders": 4, "young": 0}.get(topic)

    class Known(KnownPartitions, Stock):  # type: ignore[misc]
        """KnownPartitions over the stand-in."""

    assert [Known().topic_partitions(t) for t in ("orders", "young", "gone")] == [4, None, None]


async def test_a_seek_to_committed_offsets_is_made_again_while_the_broker_is_silent() -> None:
    """Faust mistakes the timeout for a stop."""
    answers: list[Any] = [TimeoutError(), None]

    class Stock:
        should_stop = False

        async def perform_seek(self) -> None:
            if (answer := answers.pop(0)) is not None:
                raise answer

        async def sleep(self, seconds: float) -> None:
            """Return at once."""

    class Seeking(FlowGate, Stock):  # type: ignore[misc]
        """FlowGate over the stand-in."""

        def __init__(self) -> None:
            """Set no attributes."""

    await Seeking().perform_seek()
    assert answers == []


@pytest.mark.parametrize("has_group", [True, False])
async def test_the_client_of_a_group_seeks_all_partitions_by_one_request(
    monkeypatch: pytest.MonkeyPatch, has_group: bool
) -> None:
    """A client without a group has no committed offsets: Faust seeks each partition by itself."""
    calls: list[Any] = []
    coordinator = SimpleNamespace(fetch_committed_offsets=None) if has_group else SimpleNamespace()
    client = SimpleNamespace(_coordinator=coordinator)

    async def call_thread(*call: Any) -> dict[TP, int]:
        calls.append(call)
        return {SOURCE: 5}

    async def one_by_one() -> dict[TP, int]:
        return {STANDBY: 6}

    thread = SimpleNamespace(
        _ensure_consumer=lambda: client,
        call_thread=call_thread,
        consumer=SimpleNamespace(first_read={SOURCE: 3}),
    )
    found = await seek_to_committed(thread, one_by_one)
    assert found == ({SOURCE: 5} if has_group else {STANDBY: 6})
    assert calls == ([(seek_committed, client, {SOURCE: 3})] if has_group else [])


async def test_ends_are_asked_of_the_broker_on_the_consumers_thread() -> None:
    """A single request covers all partitions."""
    consumer, asked = Steady(), list[Any]()
    client = SimpleNamespace(end_offsets="end offsets")

    async def call_thread(*call: Any) -> dict[TP, int]:
        asked.append(call)
        return {SOURCE: 5, STANDBY: 8}

    consumer._thread = SimpleNamespace(_ensure_consumer=lambda: client, call_thread=call_thread)
    assert await consumer.highwaters(SOURCE, STANDBY) == {SOURCE: 5, STANDBY: 8}
    assert asked == [("end offsets", (SOURCE, STANDBY))]


async def test_each_fetch_is_counted_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous fetch's records have reached their queues by then."""
    consumer, seen = Steady(), list[Any]()

    async def getmany(self: Any, active: Any, timeout: float) -> dict[TP, list[Any]]:
        seen.append((self.fetch_rounds, active, timeout))
        return {SOURCE: [1]}

    monkeypatch.setattr(Host, "_getmany", getmany, raising=False)
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
    consumer, asked = Steady(), list[float]()
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
    consumer = Steady()
    monkeypatch.setattr(
        Host, "resume_flow", lambda self: self.acts.append("resume flow"), raising=False
    )
    consumer.resume_flow()
    consumer._between_generations = True
    consumer.resume_flow()
    assert consumer.acts == ["resume flow"]
    consumer.begin_generation()
    consumer.resume_flow()
    assert consumer.acts == ["resume flow"] * 2
    assert not consumer.between_generations


def test_a_flow_control_takes_the_queues_and_the_state_of_the_one_before() -> None:
    """Existing queues follow the new flow control."""
    before = FlowControlEvent()
    queue: Any = asyncio.Queue[int]()
    before.manage_queue(queue)
    before.suspend()
    after = FlowControl(before)
    assert not after.is_active()
    assert set(after._queues) == {queue}
    assert after._resume is before._resume
    assert after.must_stand_still() is False


def test_live_partitions_are_of_the_topics_that_are_wanted() -> None:
    """Each bound works alone and together with the other bound."""
    other = TP("bills", 1)
    active = {SOURCE, STANDBY, other}
    for bounds, found in (
        ({}, {SOURCE, STANDBY, other}),
        ({"only": {"log", "bills"}}, {STANDBY, other}),
        ({"but_not": {"log"}}, {SOURCE, other}),
        ({"only": {"log", "bills"}, "but_not": {"log"}}, {other}),
        ({"only": set()}, set()),
    ):
        wanted = Wanted(active, **bounds)  # type: ignore[arg-type]
        assert (set(wanted), len(wanted)) == (found, len(found))
        assert TP("bills", 2) not in wanted


async def test_an_answer_after_the_partitions_have_left_seeks_none_of_them() -> None:
    """A failed request raises its error from the seek."""
    stays, goes = TP("orders", 0), TP("orders", 1)
    assigned, sought = {stays, goes}, dict[TP, int]()

    async def committed(tps: list[TP]) -> dict[TP, Any]:
        if goes in assigned:
            assigned.discard(goes)
            return {tp: SimpleNamespace(offset=5 + tp.partition) for tp in tps}
        raise TimeoutError("silent")

    consumer = SimpleNamespace(
        assignment=lambda: set(assigned),
        seek=sought.__setitem__,
        _coordinator=SimpleNamespace(fetch_committed_offsets=committed),
    )
    assert await seek_committed(consumer, {goes: 3}) == {stays: 5, goes: None}
    assert sought == {stays: 5}
    with pytest.raises(TimeoutError):
        await seek_committed(consumer, {})


async def test_a_fetch_while_no_partition_is_active_asks_for_none() -> None:
    """None stands for all partitions; an empty set stands for no partition."""
    thread = Thread({SOURCE: 3, STANDBY: 3})
    assert await thread.fetch(frozenset()) == {}
    assert [asked for asked, _, _ in thread.asked] == [set(), set(), set()]
    assert await thread.fetch(None) == {SOURCE: 3, STANDBY: 3}
    assert thread.asked[3:] == [({SOURCE, STANDBY}, 5.0, None)]


def test_the_first_record_of_each_source_in_a_batch_is_noted() -> None:
    """The first of several records counts; a later source gets its own entry."""
    other = TP("bills", 3)
    consumer = object.__new__(FlowGate)
    consumer.first_read = {}
    consumer._is_changelog_tp = lambda tp: tp == STANDBY

    def batch(*offsets: int) -> list[Any]:
        return [SimpleNamespace(offset=offset) for offset in offsets]

    consumer.note_first({SOURCE: batch(4, 5), STANDBY: batch(1)})
    consumer.note_first({SOURCE: batch(6), other: batch(0, 1)})
    assert consumer.first_read == {SOURCE: 4, other: 0}


async def test_a_generation_is_over_before_faust_acts_on_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recovery ending meanwhile starts no flow; an assignment alone ends the generation, too."""
    consumer, seen = Steady(), list[Any]()

    async def note(self: Any, tps: Any, generation_id: int | None = None) -> None:
        seen.append((tps, generation_id, self.between_generations))

    monkeypatch.setattr(Host, "on_partitions_revoked", note)
    monkeypatch.setattr(Host, "on_partitions_assigned", note)
    await consumer.on_partitions_revoked({SOURCE})
    consumer.begin_generation()
    await consumer.on_partitions_assigned({SOURCE}, 7)
    await consumer.on_partitions_assigned({STANDBY})
    assert seen == [({SOURCE}, None, True), ({SOURCE}, 7, True), ({STANDBY}, 0, True)]


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
    consumer = Steady()
    consumer._between_generations = True
    consumer.resume_partitions({SOURCE})
    assert not consumer._resumed.is_set()
    consumer.begin_generation()
    consumer.resume_partitions({SOURCE})
    assert consumer._resumed.is_set()
