"""The records that FairFetcher hands out in a turn, and the time a broker may hold a fetch."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from aiokafka.consumer.fetcher import Fetcher, FetchError, FetchResult
from aiokafka.errors import (
    CorruptRecordException,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import TopicPartition

from faust_assigner.app.consumer import fetcher as fetching
from faust_assigner.app.consumer.fetcher import IDLE_WAIT_MS, WAIT_MS, FairFetcher
from faust_assigner.app.consumer.live_views import PartitionSubset

A, B, C, D = (TopicPartition("t", number) for number in range(4))


class Fetched:
    """Parsed records of a fetch."""

    def __init__(self, first: int, count: int) -> None:
        self.next_fetch_offset, self.end = first, first + count

    def __iter__(self) -> Iterator[int]:
        while self.next_fetch_offset < self.end:
            self.next_fetch_offset += 1
            yield self.next_fetch_offset - 1


class State:
    """A partition's state, compared by identity, as in aiokafka."""

    position, highwater, paused, has_valid_position = 0, 0, False, True

    def consumed_to(self, offset: int) -> None:
        """Set the position to ``offset``."""
        self.position = offset


class Turns:
    """A fetcher without a client: ``tps`` are assigned, tests add records and take turns."""

    def __init__(self, *tps: TopicPartition) -> None:
        self.states = {tp: State() for tp in tps}
        self.assignment = SimpleNamespace(
            active=True, tps=frozenset(tps), state_value=self.states.get
        )
        self.nodes: dict[TopicPartition, int | None] = dict.fromkeys(tps, 0)
        with patch.object(Fetcher, "__init__", return_value=None):
            self.fetcher = fetcher = FairFetcher(None, None)
        fetcher._client = SimpleNamespace(
            cluster=SimpleNamespace(leader_for_partition=self.nodes.get),
            force_metadata_update=lambda: None,
        )
        fetcher._records, fetcher._in_flight, fetcher._pending_tasks = OrderedDict(), set(), set()
        fetcher._subscription_state = fetcher._subscriptions = SimpleNamespace(
            reassignment_in_progress=False,
            is_assigned=self.states.get,
            subscription=SimpleNamespace(assignment=self.assignment),
        )
        fetcher._wait_consume_future = fetcher._closed = None
        fetcher._notify = lambda _: None

    def fetched(self, tp: TopicPartition, count: int) -> None:
        """Add ``count`` records, up to the end of the partition's log."""
        self.states[tp].highwater = self.states[tp].position + count
        self.fetcher._records[tp] = FetchResult(
            tp,
            assignment=self.assignment,
            backoff=0,
            partition_records=Fetched(self.states[tp].position, count),
        )

    async def take(
        self, most: int | None = 10, tps: Any = None, timeout: float = 0
    ) -> dict[int, int]:
        """Return the number of records taken per partition."""
        found = await self.fetcher.fetched_records(tps, timeout, most)
        return {tp.partition: len(records) for tp, records in found.items()}

    async def keeps_up(self, *tps: TopicPartition) -> None:
        """Take the only record of each partition, so that the partition counts as caught up."""
        for tp in tps:
            self.fetched(tp, 1)
            assert await self.take() == {tp.partition: 1}

    def asks(self, monkeypatch: pytest.MonkeyPatch) -> set[TopicPartition]:
        """Return the partitions of which aiokafka requests records."""
        monkeypatch.setattr(
            Fetcher, "_get_actions_per_node", lambda self, assignment: set(assignment.tps)
        )
        found: set[TopicPartition] = self.fetcher._get_actions_per_node(self.assignment)
        return found


def test_a_subset_has_the_partitions_in_both_collections() -> None:
    """None and an empty set stand for all partitions, as in aiokafka."""

    def of(share: PartitionSubset) -> set[int]:
        return {number for number in range(5) if number in share}

    assert of(PartitionSubset({1, 2, 3}, only={2, 4})) == {2}
    assert of(PartitionSubset({1, 2, 3})) == {1, 2, 3}
    for everything in (None, set[int]()):
        assert of(PartitionSubset(everything, only={2, 4})) == {2, 4}
        assert of(PartitionSubset(everything)) == {0, 1, 2, 3, 4}


async def test_what_keeps_up_takes_no_more_than_half_beside_a_backlog() -> None:
    """The fetch order is irrelevant; the odd record and the unused half go to the backlog."""
    turns = Turns(A, B)
    await turns.keeps_up(A)
    turns.fetched(A, 100)
    turns.fetched(B, 100)
    assert await turns.take(9) == {0: 4, 1: 5}
    turns = Turns(A, B)
    await turns.keeps_up(A)
    turns.fetched(A, 3)
    turns.fetched(B, 100)
    assert await turns.take(10) == {0: 3, 1: 7}


async def test_what_kept_up_and_has_nothing_now_takes_no_part() -> None:
    """The backlogs get the whole turn."""
    turns = Turns(A, B, C)
    await turns.keeps_up(A)
    turns.fetched(B, 100)
    turns.fetched(C, 100)
    assert await turns.take() == {1: 5, 2: 5}


async def test_backlogs_share_a_turn_and_leave_what_they_do_not_need_to_the_later_ones() -> None:
    """A busy worker needs seconds for a turn's records, so each backlog has a part in each turn."""
    turns = Turns(A, B, C)
    for tp, count in ((A, 100), (B, 1), (C, 100)):
        turns.fetched(tp, count)
    assert await turns.take(9) == {0: 3, 1: 1, 2: 5}
    assert await turns.take(3) == {0: 1, 2: 2}
    assert [await turns.take(1) for _ in range(4)] == [{0: 1}, {2: 1}, {0: 1}, {2: 1}]


async def test_a_turn_of_many_backlogs_passes_over_no_partition() -> None:
    """Else a worker with 1,000 partitions would make 50,000 checks for 50 records."""
    turns = Turns(*(TopicPartition("t", number) for number in range(40)))
    for tp in turns.states:
        turns.fetched(tp, 100)
    passed_over: list[TopicPartition] = []
    turns.fetcher._subscriptions.is_assigned = lambda tp: passed_over.append(tp) or True
    assert await turns.take(20) == dict.fromkeys(range(20), 1)
    assert await turns.take(20) == dict.fromkeys(range(20, 40), 1)
    assert passed_over == []


async def test_who_kept_up_counts_among_those_that_have_records() -> None:
    """The number of caught-up partitions without records is irrelevant."""
    turns = Turns(A, B, C, D)
    await turns.keeps_up(A, B, C)
    turns.fetched(D, 100)
    turns.fetched(A, 100)
    assert await turns.take() == {0: 5, 3: 5}


async def test_nobody_waits_beside_records_nor_leaves_room_for_what_nobody_asks_for() -> None:
    """A turn of sources has the whole limit although copies have records, and the reverse."""
    turns = Turns(A, B)
    turns.fetcher._create_fetch_waiter = None
    await turns.keeps_up(A)
    turns.fetched(A, 100)
    turns.fetched(B, 100)
    assert await turns.take(10, {B}, timeout=60) == {1: 10}
    assert await turns.take(10, {A}, timeout=60) == {0: 10}


@pytest.mark.parametrize(("sought", "taken"), [(A, {1: 10}), (B, {0: 3})])
async def test_nobody_waits_beside_records_of_before_a_seek(
    sought: TopicPartition, taken: dict[int, int]
) -> None:
    """The fetcher drops those records and returns the records of the other partition at once."""
    turns = Turns(A, B)
    turns.fetcher._create_fetch_waiter = None
    await turns.keeps_up(A)
    turns.fetched(A, 3)
    turns.fetched(B, 100)
    turns.states[sought].position = 50
    assert await turns.take(10, timeout=60) == taken


async def test_what_keeps_up_alone_takes_all_in_turns() -> None:
    """Without a backlog the caught-up partitions share the whole turn."""
    turns = Turns(A, B)
    await turns.keeps_up(A, B)
    turns.fetched(A, 30)
    turns.fetched(B, 4)
    assert [await turns.take() for _ in range(3)] == [{0: 5, 1: 4}, {0: 10}, {0: 10}]


async def test_only_what_is_asked_for_is_taken() -> None:
    """The filter covers both kinds of partitions; without a limit the turn takes all records."""
    turns = Turns(A, B, C, D)
    await turns.keeps_up(A, C)
    for tp in (A, B, C, D):
        turns.fetched(tp, 20)
    assert await turns.take(10, {A, B}) == {0: 5, 1: 5}
    assert await turns.take(None, {A, B}) == {0: 15, 1: 15}
    assert turns.fetcher._records.keys() == {C, D}


@pytest.mark.parametrize(
    ("at_hand", "wait_ms"),
    [
        ("nothing", IDLE_WAIT_MS),
        ("a hurry", WAIT_MS),
        ("a look-up", WAIT_MS),
        ("records", WAIT_MS),
        ("records that nobody takes", IDLE_WAIT_MS),
    ],
)
async def test_a_broker_may_hold_a_fetch_while_no_partition_is_left_out(
    at_hand: str, wait_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a partition is left out, the broker holds the fetch for WAIT_MS only."""
    turns = Turns(A, B)
    if at_hand.startswith("records"):
        turns.fetched(B, 1)
    turns.fetcher.is_hurried = lambda: at_hand == "a hurry"
    turns.fetcher.is_wanted = lambda tp: tp == A or at_hand != "records that nobody takes"
    if at_hand == "a look-up":
        turns.fetcher._looked_up = {turns.states[B]: None}
    assert turns.asks(monkeypatch) == ({A, B} if at_hand in ("nothing", "a hurry") else {A})
    assert turns.fetcher._fetch_max_wait_ms == wait_ms
    assert WAIT_MS < IDLE_WAIT_MS


@pytest.mark.parametrize("ended", [False, True])
async def test_the_fetcher_looks_again_only_where_a_fetch_has_been_dealt_with(
    ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the fetcher would loop; a pending offset look-up does not count as a fetch."""
    turns, looks = Turns(A, B), list[object]()
    fetcher = turns.fetcher
    fetcher.wake = lambda: looks.append(None)
    fetcher._in_flight, fetcher._pending_tasks = {0}, {"look-up"} if ended else {"fetch", "look-up"}
    fetcher._looked_up = {turns.states[B]: "look-up"}
    turns.asks(monkeypatch)
    await asyncio.sleep(0)
    assert len(looks) == ended


async def test_a_look_up_under_way_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition without a known node is not looked up; a finished look-up may repeat."""
    turns, begun, may_end = Turns(A, B, C), list[Any](), asyncio.Event()
    turns.nodes.update({B: -1, C: None})

    async def look_up(*asked: Any) -> None:
        begun.append(asked[1:])
        await may_end.wait()

    turns.fetcher._update_fetch_positions = look_up
    for state in turns.states.values():
        state.has_valid_position = False
    for _ in range(3):
        assert turns.asks(monkeypatch) == {B, C}, "aiokafka finds their nodes"
        await asyncio.sleep(0)
    assert begun == [(0, [A])]
    may_end.set()
    await asyncio.gather(*turns.fetcher._pending_tasks)
    await asyncio.sleep(0)
    assert not turns.fetcher._looked_up


# -- returning partitions, offset look-ups and unreadable records


async def test_a_partition_that_comes_back_is_a_backlog_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A different member owned the partition in between."""
    turns = Turns(A, B)
    await turns.keeps_up(A, B)
    turns.assignment.tps = frozenset({B})
    turns.asks(monkeypatch)
    turns.assignment.tps = frozenset({A, B})
    turns.fetched(A, 100)
    turns.fetched(B, 100)
    assert await turns.take(9) == {1: 4, 0: 5}


async def test_what_is_taken_without_reaching_its_end_keeps_up_no_more() -> None:
    """The partition has a backlog now and gets the share of a backlog."""
    turns = Turns(A, B, C)
    await turns.keeps_up(A)
    turns.fetched(A, 100)
    assert await turns.take(4) == {0: 4}
    turns.fetched(B, 100)
    assert await turns.take(8) == {0: 4, 1: 4}
    turns.fetched(C, 100)
    assert await turns.take(9) == {0: 3, 1: 3, 2: 3}


async def test_under_transactions_the_end_is_that_of_what_is_committed() -> None:
    """Records of an open transaction cannot be read yet."""
    turns = Turns(A)
    turns.fetcher._reads_committed = True
    turns.fetched(A, 1)
    turns.states[A].lso, turns.states[A].highwater = 1, 9
    await turns.take()
    assert turns.fetcher._at_end == {A}


@pytest.mark.parametrize("found", [True, False])
async def test_cluster_metadata_is_asked_for_where_a_position_was_not_found(found: bool) -> None:
    """The partition's leader may have moved to a different broker."""
    turns, asked = Turns(A), list[str]()
    turns.states[A].has_valid_position = False
    turns.fetcher._client.force_metadata_update = lambda: asked.append("x")

    async def update(*_: Any) -> None:
        turns.states[A].has_valid_position = found

    turns.fetcher._update_fetch_positions = update
    turns.fetcher._look_up(turns.assignment, [A])
    (task,) = turns.fetcher._looked_up.values()
    assert task in turns.fetcher._pending_tasks, "the fetcher waits for it as for a fetch"
    await task
    await asyncio.sleep(0)
    assert turns.fetcher._looked_up == {}
    assert bool(asked) is not found


class Unreadable(Fetched):
    """Records with a corrupt second record."""

    def __iter__(self) -> Iterator[int]:
        yield self.next_fetch_offset
        raise CorruptRecordException("crc")


def corrupt(turns: Turns, tp: TopicPartition) -> None:
    """Make the fetched records of ``tp`` unreadable."""
    turns.fetcher._records[tp] = FetchResult(
        tp,
        assignment=turns.assignment,
        backoff=0,
        partition_records=Unreadable(turns.states[tp].position, 5),
    )


class Seeking(State):
    """A state with a ``seek`` method."""

    def seek(self, offset: int) -> None:
        """Set the position, as in aiokafka."""
        self.position = offset


async def test_a_partition_that_cannot_be_read_costs_the_others_nothing() -> None:
    """The fetcher sets the partition aside, counts it, and fetches the other records again."""
    turns = Turns(A, B)
    turns.states.update({A: Seeking(), B: Seeking()})
    turns.fetched(A, 2)
    corrupt(turns, B)
    assert await turns.take() == {}
    assert turns.states[A].position == turns.states[B].position == 0
    assert turns.fetcher._records == {}
    assert turns.fetcher.aside.partitions() == [B]
    assert turns.fetcher.counters["unreadable_partitions"] == 1
    turns.fetched(A, 2)
    assert await turns.take() == {0: 2}
    turns.fetched(B, 1)
    await turns.take()
    assert turns.fetcher.aside.partitions() == [], "it could be read again"


async def test_an_error_that_people_have_to_mend_is_raised() -> None:
    """The fetcher sets no partition aside: the worker ends."""
    turns = Turns(A)
    turns.fetcher._records[A] = FetchError(error=TopicAuthorizationFailedError("t"), backoff=0)
    with pytest.raises(TopicAuthorizationFailedError):
        await turns.take()
    assert turns.fetcher.aside.partitions() == []


async def test_a_record_that_was_cut_off_is_tried_again_from_its_offset() -> None:
    """aiokafka alone would skip the record."""
    turns = Turns(A)
    state = turns.states[A] = Seeking()
    state.position = 7
    turns.fetcher._set_error(A, RecordTooLargeError("t"))
    assert turns.fetcher.aside.partitions() == [A]
    state.position = 8  # aiokafka's next statement
    await asyncio.sleep(0)
    assert state.position == 7
    assert A not in turns.fetcher._records


async def test_a_wait_for_records_ends_with_what_went_wrong_in_the_group() -> None:
    """At its timeout the wait returns no records."""
    turns = Turns(A)
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    turns.fetcher._create_fetch_waiter = lambda: waiter
    assert await turns.take(timeout=0.01) == {}
    assert waiter.cancelled()
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failed.set_exception(ValueError("in the group"))
    turns.fetcher._create_fetch_waiter = lambda: failed
    with pytest.raises(ValueError, match="in the group"):
        await turns.take(timeout=5.0)
    turns.fetcher._closed = True
    assert await turns.take(timeout=5.0) == {}, "a closed client ends its wait without an error"


def refused(
    turns: Turns, *well: TopicPartition, asked: int = 0, stale: int | None = None
) -> set[TopicPartition]:
    """Return the refused partitions after a fetch from ``asked`` with answers for ``well`` only."""
    for tp, state in turns.states.items():
        state.timestamp = 1_000 if tp in well else stale
    turns.fetcher._note_refusals(turns.assignment, [(tp, asked) for tp in turns.states], 1_000)
    return set(turns.fetcher.refused.partitions())


def test_a_partition_that_a_broker_refuses_beside_others_is_left_alone() -> None:
    """The pause lasts until an answer comes; if the broker refuses all, aiokafka waits itself."""
    turns = Turns(A, B)
    assert refused(turns) == set()
    assert refused(turns, A) == {B}
    assert refused(turns, A, B) == set()
    assert refused(turns, A, stale=999) == {B}, "its last good answer is of an earlier fetch"
    assert refused(turns, stale=999) == {B}, "no answer tells nothing new"


@pytest.mark.parametrize("reason", ["sought", "no position", "records", "not assigned"])
def test_a_partition_that_was_answered_by_then_or_went_is_not_refused(reason: str) -> None:
    """A partition is refused only if the request had no effect on it."""
    turns = Turns(A, B)
    if reason == "sought":
        turns.states[B].position = 5
    elif reason == "no position":
        turns.states[B].has_valid_position = False
    elif reason == "records":
        turns.fetched(B, 1)
    else:
        turns.assignment.tps = frozenset({A})
    assert refused(turns, A) == set()


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_fetch_that_was_cancelled_is_given_up_at_once(
    monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    """aiokafka swallows the cancellation; the fetch then reports on no partition."""
    turns, noted, may_end = Turns(A), list[Any](), asyncio.Event()

    async def fetch(*_: Any) -> bool:
        with contextlib.suppress(asyncio.CancelledError):
            await may_end.wait()
        return False

    monkeypatch.setattr(Fetcher, "_proc_fetch_request", fetch)
    turns.fetcher._note_refusals = lambda _, asked, __: noted.extend(asked)
    request = SimpleNamespace(topics=[("t", [(0, 7, 1024)])])
    task = asyncio.ensure_future(turns.fetcher._proc_fetch_request(turns.assignment, 1, request))
    await asyncio.sleep(0)
    if is_cancelled:
        task.cancel()
    else:
        may_end.set()
    assert not await task
    assert noted == ([] if is_cancelled else [(A, 7)])


async def test_what_is_left_of_a_partition_that_was_put_back_is_fetched_again() -> None:
    """The remaining records lie behind the position after the reset."""
    turns = Turns(A, B)
    turns.states.update({A: Seeking(), B: Seeking()})
    await turns.keeps_up(A)
    turns.fetched(A, 100)
    corrupt(turns, B)
    assert await turns.take(10) == {}
    assert turns.states[A].position == 1
    assert turns.fetcher._records == {}


async def test_a_turn_waits_for_an_assignment_that_is_changing() -> None:
    """After the wait the turn takes the available records."""
    turns, waits = Turns(A), list[str]()

    async def wait_for_assignment() -> None:
        waits.append("x")

    turns.fetcher._subscriptions.reassignment_in_progress = True
    turns.fetcher._subscriptions.wait_for_assignment = wait_for_assignment
    turns.fetched(A, 2)
    assert await turns.take() == {0: 2}
    assert waits


class Clock:
    """A clock that sleeps advance; ``slept`` lists their seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.slept = 500.0, list[float]()
        monkeypatch.setattr(fetching, "monotonic", lambda: self.now)
        monkeypatch.setattr(fetching, "time", lambda: self.now + 0.0625)

    async def sleep(self, seconds: float) -> None:
        """Advance the clock, in place of asyncio's sleep."""
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    ("brought", "took_s", "slept"),
    [
        (False, 0.0, [0.02]),
        (False, 0.005, [0.015]),
        (False, 0.02, []),
        (False, 0.5, []),
        (True, 0.005, []),
    ],
)
async def test_a_fetch_that_ends_early_without_records_has_the_rest_of_its_time_to_wait(
    monkeypatch: pytest.MonkeyPatch, brought: bool, took_s: float, slept: list[float]
) -> None:
    """After an error aiokafka would fetch at once; the note has each partition and its offset."""
    turns, clock, noted = Turns(A, B), Clock(monkeypatch), list[Any]()

    async def fetch(_: Any, assignment: Any, node: Any, request: Any) -> bool:
        assert (assignment, node) == (turns.assignment, 3)
        clock.now += took_s
        return brought

    monkeypatch.setattr(Fetcher, "_proc_fetch_request", fetch)
    monkeypatch.setattr(fetching.asyncio, "sleep", clock.sleep)
    turns.fetcher._note_refusals = lambda *said: noted.append(said)
    request = SimpleNamespace(topics=[("t", [(0, 7, 1024), (1, 9, 2048)]), ("u", [(4, 2, 1)])])
    assert await turns.fetcher._proc_fetch_request(turns.assignment, 3, request) is brought
    asked = [(A, 7), (B, 9), (TopicPartition("u", 4), 2)]
    assert noted == [(turns.assignment, asked, 500_062)]
    assert clock.slept == pytest.approx(slept)


async def test_partitions_that_are_set_aside_are_not_asked_for_until_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This covers unreadable and refused partitions; an offset look-up waits as well."""
    turns, clock, begun = Turns(A, B, C), Clock(monkeypatch), list[Any]()

    async def look_up(*asked: Any) -> None:
        begun.append(asked[2])

    turns.fetcher._update_fetch_positions = look_up
    turns.states[A].has_valid_position = False
    turns.fetcher.aside.unreadable(A, turns.states[A], ValueError("corrupt"), 500.0)
    turns.fetcher.refused.refused(B, turns.states[B], 500.0)
    assert turns.asks(monkeypatch) == {C}
    clock.now = 500.1
    assert turns.asks(monkeypatch) == {B, C}
    await asyncio.sleep(0)
    assert begun == []
    clock.now = 501.0
    assert turns.asks(monkeypatch) == {B, C}, "A is looked up first"
    await asyncio.sleep(0)
    assert begun == [[A]]


async def test_records_that_arrive_during_a_wait_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that brings no wanted records continues for the remaining time."""
    turns, clock, waits = Turns(A, B), Clock(monkeypatch), list[float]()

    async def wait(waiters: list[Any], *, timeout: float) -> tuple[list[Any], list[Any]]:
        waits.append(timeout)
        clock.now += 2.0
        if len(waits) == 2:
            turns.fetched(A, 4)
            turns.fetched(B, 4)
        waiters[0].set_result(None)
        return waiters, []

    monkeypatch.setattr(fetching.asyncio, "wait", wait)
    turns.fetcher._create_fetch_waiter = asyncio.get_running_loop().create_future
    assert await turns.take(3, {A}, timeout=5.0) == {0: 3}
    assert waits == [5.0, 3.0]
    assert await turns.take(3, {A}, timeout=5.0) == {0: 1}
    assert await turns.take(3, {A}, timeout=6.0) == {}
    assert waits[2:] == [6.0, 4.0, 2.0]


async def test_a_partition_that_is_not_asked_for_is_not_blamed_for_an_error() -> None:
    """The partition is first in the queue, and its records stay."""
    turns = Turns(A, B, C)
    turns.states.update({tp: Seeking() for tp in (A, B, C)})
    turns.fetched(A, 2)
    corrupt(turns, B)
    turns.fetched(C, 2)
    assert await turns.take(10, {B, C}) == {}
    assert turns.fetcher.aside.partitions() == [B]
    assert await turns.take(10, {A, B, C}) == {0: 2, 2: 2}


async def test_records_of_a_position_that_did_not_move_stay_after_an_error_elsewhere() -> None:
    """Only records taken in the failed turn are fetched again."""
    turns = Turns(A, B, C)
    turns.states.update({tp: Seeking() for tp in (A, B, C)})
    turns.fetched(A, 2)
    corrupt(turns, B)
    turns.fetched(C, 2)
    turns.states[A].has_valid_position = False
    assert await turns.take(9) == {}
    assert turns.fetcher._records.keys() == {C}
    assert turns.states[C].position == 0
    assert turns.states[A].position == 2, "it had no position to go back to"
    assert turns.fetcher.counters == {"unreadable_partitions": 1}


async def test_an_error_of_a_partition_that_is_no_longer_assigned_is_raised() -> None:
    """An unassigned partition has no state to set aside."""
    turns = Turns(A, B)
    corrupt(turns, B)
    turns.assignment.tps = frozenset({A})
    with pytest.raises(CorruptRecordException):
        await turns.take()
    assert turns.fetcher.aside.partitions() == []
    turns.fetcher._subscriptions.subscription = None
    with pytest.raises(CorruptRecordException):
        await turns.take()


async def test_each_partition_that_was_read_is_well_again() -> None:
    """The third partition stays set aside."""
    turns = Turns(A, B, C)
    for tp in (A, B, C):
        turns.fetcher.aside.unreadable(tp, turns.states[tp], ValueError("corrupt"), 0.0)
    turns.fetched(A, 1)
    turns.fetched(C, 1)
    assert await turns.take() == {0: 1, 2: 1}
    assert turns.fetcher.aside.partitions() == [B]


async def test_other_errors_of_a_partition_are_left_to_the_fetcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error is raised when records are taken; no partition is set aside."""
    turns, errors = Turns(A), list[Any]()
    monkeypatch.setattr(Fetcher, "_set_error", lambda self, tp, error: errors.append((tp, error)))
    error = OffsetOutOfRangeError({A: 7})
    turns.fetcher._set_error(A, error)
    assert errors == [(A, error)]
    assert (turns.fetcher.aside.partitions(), turns.fetcher.counters) == ([], {})


@pytest.mark.parametrize(
    ("position", "highwater", "is_at_end"),
    [(5, None, True), (5, 6, False), (5, 5, True), (6, 5, True), (0, 0, True)],
)
def test_a_partition_is_at_its_end_where_its_position_is_no_earlier(
    position: int, highwater: int | None, is_at_end: bool
) -> None:
    """A partition with an unknown end counts as caught up and delays no other partition."""
    turns = Turns(A)
    turns.states[A].position, turns.states[A].highwater = position, highwater  # type: ignore[assignment]
    assert turns.fetcher._is_at_end(A) is is_at_end


async def test_a_look_up_that_found_nothing_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition has its own look-up; a partition with a position has none."""
    turns, begun = Turns(A, B, C), list[Any]()
    turns.nodes[B] = 5

    async def look_up(assignment: Any, node: Any, tps: Any) -> None:
        assert assignment is not None
        begun.append((node, tps))

    turns.fetcher._update_fetch_positions = look_up
    turns.states[A].has_valid_position = turns.states[B].has_valid_position = False
    for _ in range(2):
        assert turns.asks(monkeypatch) == {C}
        await asyncio.gather(*turns.fetcher._pending_tasks)
        await asyncio.sleep(0)
    assert sorted(begun) == [(0, [A]), (0, [A]), (5, [B]), (5, [B])]


async def test_a_partition_that_the_app_does_not_want_is_neither_asked_for_nor_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fetcher requests the partition once the app wants it again."""
    turns, begun = Turns(A, B), list[Any]()

    async def look_up(*asked: Any) -> None:
        begun.append(asked[2])

    turns.fetcher._update_fetch_positions = look_up
    turns.states[A].has_valid_position = False
    for wanted, shown in (({B}, {B}), (set(), set()), ({A, B}, {B})):
        turns.fetcher.is_wanted = wanted.__contains__  # type: ignore[attr-defined]
        assert turns.asks(monkeypatch) == shown
        await asyncio.sleep(0)
    assert begun == [[A]]


async def test_a_turn_without_a_time_to_wait_takes_what_there_is() -> None:
    """A timeout of None means no wait."""
    turns = Turns(A)
    turns.fetcher._create_fetch_waiter = None
    assert await turns.fetcher.fetched_records(None, None, 5) == {}
    turns.fetched(A, 2)
    assert len((await turns.fetcher.fetched_records(None, None, 5))[A]) == 2


async def test_even_the_smallest_turn_of_two_is_shared() -> None:
    """The caught-up partition and the backlog get a record each."""
    turns = Turns(A, B)
    await turns.keeps_up(A)
    turns.fetched(A, 9)
    turns.fetched(B, 9)
    assert await turns.take(2) == {0: 1, 1: 1}


@pytest.mark.parametrize(
    "error",
    [
        TopicAuthorizationFailedError("t"),
        NoOffsetForPartitionError({A}),
        OffsetOutOfRangeError({A: 7}),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_for_people_blames_no_other_partition(error: Exception) -> None:
    """aiokafka has already removed the failed partition; the next partition is healthy."""
    turns = Turns(A, B)
    turns.fetcher._records[A] = FetchError(error=error, backoff=0)
    turns.fetched(B, 2)
    with pytest.raises(type(error)):
        await turns.take(None)
    assert turns.fetcher.aside.partitions() == []
    assert await turns.take(None) == {1: 2}
