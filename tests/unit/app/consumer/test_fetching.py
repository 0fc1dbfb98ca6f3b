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

from faust_assigner.app.consumer.fetching import (
    LIVE_BATCH,
    STANDBY_BATCH,
    FlowControl,
    Wanted,
    fetch_or_put_back,
    seek_committed,
    seek_to_committed,
)
from tests.support.waiting import PATIENCE_S

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
        self.consumer = SimpleNamespace(flow_active=True, first_read={}, app=self.app)
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
    assert thread.consumer.first_read == {SOURCE: 7}
    thread.consumer.flow_active, thread.consumer.first_read = False, {}
    assert await thread.fetch() == {}
    assert thread.sought == {SOURCE: 7, STANDBY: 7}
    assert thread.consumer.first_read == {}


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
    found = await asyncio.wait_for(seek_committed(consumer, {}), PATIENCE_S)
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
    assert await asyncio.wait_for(seek_committed(consumer, {}), PATIENCE_S) == {only: None}


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


def test_streams_take_nothing_while_all_must_stand_still() -> None:
    """A former resume has no effect: a different member may own the partition."""
    flow = FlowControl()
    flow.resume()
    assert flow.is_active()
    flow.must_skip_records = lambda: True
    assert not flow.is_active()


def test_a_flow_that_runs_drops_nothing_when_it_is_asked_to_run() -> None:
    """Faust resumes up to four times per recovery; each resume would empty the queues."""

    cleared: list[str] = []

    class Queue:
        def __init__(self) -> None:
            self._queue = SimpleNamespace(clear=lambda: cleared.append("records"))
            self._putters = [SimpleNamespace(cancel=lambda: cleared.append("put"))]

    flow, queue = FlowControl(), Queue()
    flow.manage_queue(queue)  # type: ignore[arg-type]
    flow.suspend()
    for _ in range(3):
        flow.resume()
    assert cleared == ["records", "put"]


def test_nothing_wanted_is_not_everything() -> None:
    """aiokafka takes an empty collection for "all partitions"; Wanted reads the live set."""
    active: set[TP] = set()
    wanted = Wanted(active, but_not={"log"})
    assert bool(wanted)
    assert (list(wanted), len(wanted), SOURCE in wanted) == ([], 0, False)
    active |= {SOURCE, STANDBY}
    assert (list(wanted), len(wanted), STANDBY in wanted) == ([SOURCE], 1, False)


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
    assert after.must_skip_records() is False


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
