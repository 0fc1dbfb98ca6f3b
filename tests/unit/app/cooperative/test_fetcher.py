"""What the prompt fetcher hands out in a turn, and how long a broker may hold what it asks for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.fetcher import READ_UNCOMMITTED, Fetcher, FetchResult
from aiokafka.structs import TopicPartition

from faust_assigner.app.cooperative.fetcher import IDLE_WAIT_MS, WAIT_MS, Share, make_prompt

A, B, C, D = (TopicPartition("t", number) for number in range(4))


class Fetched:
    """Parsed records of one fetch."""

    def __init__(self, first: int, count: int) -> None:
        self.next_fetch_offset, self.end = first, first + count

    def __iter__(self) -> Iterator[int]:
        while self.next_fetch_offset < self.end:
            self.next_fetch_offset += 1
            yield self.next_fetch_offset - 1


class State:
    """Of a partition; by identity, as aiokafka's."""

    position, highwater, paused, has_valid_position = 0, 0, False, True

    def consumed_to(self, offset: int) -> None:
        """All before it has been taken."""
        self.position = offset


class Turns:
    """A fetcher without a client that owns ``tps``; what is fetched, and what each turn takes."""

    def __init__(self, *tps: TopicPartition) -> None:
        self.states = {tp: State() for tp in tps}
        self.assignment = SimpleNamespace(
            active=True, tps=frozenset(tps), state_value=self.states.get
        )
        self.nodes: dict[TopicPartition, int | None] = dict.fromkeys(tps, 0)
        self.fetcher = fetcher = object.__new__(Fetcher)
        fetcher._client = SimpleNamespace(
            cluster=SimpleNamespace(leader_for_partition=self.nodes.get),
            force_metadata_update=lambda: None,
        )
        fetcher._isolation_level = READ_UNCOMMITTED
        fetcher._records, fetcher._in_flight, fetcher._pending_tasks = OrderedDict(), set(), set()
        fetcher._subscriptions = SimpleNamespace(
            reassignment_in_progress=False,
            is_assigned=self.states.get,
            subscription=SimpleNamespace(assignment=self.assignment),
        )
        fetcher._wait_consume_future = fetcher._closed = None
        fetcher._notify = lambda _: None
        make_prompt(fetcher)

    def fetched(self, tp: TopicPartition, count: int) -> None:
        """So many records are there, to the end of its log."""
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
        """Partition -> how many records of it are taken."""
        found = await self.fetcher.fetched_records(tps, timeout, most)
        return {tp.partition: len(records) for tp, records in found.items()}

    async def keeps_up(self, *tps: TopicPartition) -> None:
        """All that was there of them has been taken."""
        for tp in tps:
            self.fetched(tp, 1)
            assert await self.take() == {tp.partition: 1}

    def asks(self, monkeypatch: pytest.MonkeyPatch) -> set[TopicPartition]:
        """What aiokafka is shown, which asks for it."""
        monkeypatch.setattr(
            Fetcher, "_get_actions_per_node", lambda self, assignment: set(assignment.tps)
        )
        found: set[TopicPartition] = self.fetcher._get_actions_per_node(self.assignment)
        return found


def test_a_share_is_a_part_of_what_is_asked_for() -> None:
    """None and nothing at all mean everything there, as aiokafka has it."""

    def of(share: Share) -> set[int]:
        return {number for number in range(5) if number in share}

    assert of(Share({1, 2, 3}, only={2, 4})) == {2}
    assert of(Share({1, 2, 3}, but_not={2, 4})) == {1, 3}
    for everything in (None, set[int]()):
        assert of(Share(everything, only={2, 4})) == {2, 4}
        assert of(Share(everything, but_not={2, 4})) == {0, 1, 3}


async def test_what_keeps_up_takes_no_more_than_half_beside_a_backlog() -> None:
    """Whichever was fetched first; the odd record, and what the other half has no use for, is its own."""
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
    """A whole turn is for the backlogs."""
    turns = Turns(A, B, C)
    await turns.keeps_up(A)
    turns.fetched(B, 100)
    turns.fetched(C, 100)
    assert await turns.take() == {1: 10}
    assert await turns.take() == {2: 10}


async def test_who_kept_up_counts_among_those_that_have_records() -> None:
    """However many others keep up and have none."""
    turns = Turns(A, B, C, D)
    await turns.keeps_up(A, B, C)
    turns.fetched(D, 100)
    turns.fetched(A, 100)
    assert await turns.take() == {0: 5, 3: 5}


async def test_nobody_waits_beside_records_nor_leaves_room_for_what_nobody_asks_for() -> None:
    """Sources are asked for beside copies that have records, and copies beside sources."""
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
    """They are dropped; the others are there."""
    turns = Turns(A, B)
    turns.fetcher._create_fetch_waiter = None
    await turns.keeps_up(A)
    turns.fetched(A, 3)
    turns.fetched(B, 100)
    turns.states[sought].position = 50
    assert await turns.take(10, timeout=60) == taken


async def test_what_keeps_up_alone_takes_all_in_turns() -> None:
    """There is no backlog to be fair to."""
    turns = Turns(A, B)
    await turns.keeps_up(A, B)
    turns.fetched(A, 30)
    turns.fetched(B, 4)
    assert [await turns.take() for _ in range(3)] == [{0: 10}, {1: 4, 0: 6}, {0: 10}]


async def test_only_what_is_asked_for_is_taken() -> None:
    """Of both kinds; and without a limit all of it."""
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
    """Else only for a moment, and what is left out is asked for with the next one."""
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
    """Else it would look all the time; a look-up that is under way is no fetch."""
    turns, looks = Turns(A, B), list[object]()
    fetcher = turns.fetcher
    fetcher._notify = looks.append
    fetcher._in_flight, fetcher._pending_tasks = {0}, {"look-up"} if ended else {"fetch", "look-up"}
    fetcher._looked_up = {turns.states[B]: "look-up"}
    turns.asks(monkeypatch)
    await asyncio.sleep(0)
    assert len(looks) == ended


async def test_a_look_up_under_way_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a partition looked up whose node is not known; once it has ended it may be."""
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
