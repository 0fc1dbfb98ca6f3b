"""Facts of decisions, records and a client that show only with a second value or a second life."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.client import Assigned, Grant, Release
from faust_assigner.service.client.handlers import Jobs
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.handoff import Effect, Handoff, HandoffEvent, Phase, TopicPartition
from faust_assigner.service.leading.advance import _outcome
from faust_assigner.service.leading.copartitioned import bound_topics
from faust_assigner.service.leading.moves import beginning, held_back
from faust_assigner.service.leading.record import NEUTRAL
from faust_assigner.service.leading.targets import claimants
from faust_assigner.service.records import FORGOTTEN, KNOWN, Consumer
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import Change, Entry, View, _is_input
from tests.unit.service import test_advance as given
from tests.unit.service.stories import ALL, SETTINGS, view_of
from tests.unit.service.test_jobs import Heard

T = [TopicPartition("t", number) for number in range(6)]
U = [TopicPartition("u", number) for number in range(6)]


def written(view: View, key: str, value: bytes, revision: int = 900) -> View:
    """Apply the write of a key."""
    view.apply(Event(key, revision, KeyValue(key, value, revision, revision)))
    return view


# -- the leader -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handoff", "event", "effect", "outcome"),
    [
        (replace(given.EXPELLED, unreleased=""), HandoffEvent.OLD_GONE, Effect.GIVE, "expelled"),
        (given.READY, HandoffEvent.OLD_GONE, Effect.GIVE, "orphan"),
        (given.READY, HandoffEvent.LOOK, Effect.GIVE, "handed"),
        (given.FAILED, HandoffEvent.LOOK, Effect.COOL, "failed"),
        (given.WARMING, HandoffEvent.LATE, Effect.COOL, "late"),
        (given.WARMING, HandoffEvent.UNWANTED, Effect.NOTHING, "unwanted"),
        (given.READY, HandoffEvent.NEW_GONE, Effect.NOTHING, "target_gone"),
        (given.COMPLETE, HandoffEvent.LATE, Effect.NOTHING, ""),
        (given.HANDED, HandoffEvent.NEW_GONE, Effect.NOTHING, ""),
    ],
)
def test_each_step_has_its_outcome(
    handoff: Handoff, event: HandoffEvent, effect: Effect, outcome: str
) -> None:
    """An empty reason is a reason; a complete hand-off has reported its outcome before."""
    assert _outcome(handoff, event, effect) == outcome


def outage(mark: bytes | None, *, departed: bool = False) -> View:
    """ "here" owns t/0, the missing "gone" t/1, and "here" reports its former t/0, t/1 and t/2."""
    view = view_of(
        Consumer(name="here", former={"t": (0, 1, 2)}),
        topics={"t": 5},
        owners={T[0]: "here", T[1]: "gone"},
    )
    if departed:
        written(view, ALL.departed("gone"), b"dismissed")
    return view if mark is None else written(view, ALL.awaiting, mark)


def test_after_an_outage_the_partitions_of_missing_consumers_are_held_back() -> None:
    """If the store forgot the assignments, so are partitions without an owner and a claim."""
    assert held_back(outage(None)) == set()
    assert held_back(outage(KNOWN)) == {T[1]}
    assert held_back(outage(FORGOTTEN)) == {T[1], T[3], T[4]}
    assert held_back(outage(KNOWN, departed=True)) == set()
    assert held_back(outage(FORGOTTEN, departed=True)) == {T[3], T[4]}


def test_a_hand_offs_new_owner_goes_before_a_former_owner() -> None:
    """Former ownership counts only while consumers are awaited, the first name first."""
    former = {"t": (2, 3, 9)}
    consumers = [Consumer(name=name, former=former) for name in ("b", "a")]
    moving = Handoff(T[2], "x", "b", Phase.WARMING, 1.0)
    ended = [
        Handoff(T[4], "x", "b", Phase.COMPLETE, 1.0),
        Handoff(T[5], "x", "b", Phase.WARMING, 1.0, failed="no"),
    ]
    view = view_of(*consumers, topics={"t": 6}, owners={T[1]: "a"}, handoffs=[moving, *ended])
    assert claimants(view, ["a", "b"]) == {T[1]: "a", T[2]: "b"}
    written(view, ALL.awaiting, KNOWN)
    assert claimants(view, ["a", "b"]) == {T[1]: "a", T[2]: "b", T[3]: "a"}
    assert claimants(view, ["b"]) == {T[2]: "b", T[3]: "b"}


def test_each_partition_of_a_pair_takes_a_place() -> None:
    """A pair may exceed the places of one consumer only if it is its first."""
    bound = (("t", "u"),)
    names = ("a", "b", "c")
    view = view_of(
        *(Consumer(name=name, co_partitioned=bound) for name in names),
        topics={"t": 6, "u": 6},
        owners=dict.fromkeys((*T, *U), "a"),
    )
    wanted = {at: "bc"[at.partition % 2] for at in (*T, *U)}
    settings = replace(SETTINGS, max_handoffs=8, max_handoffs_per_consumer=3)
    due = {*T, *U}
    found = list(beginning(view, wanted, due, set(), bound_topics(view), NEUTRAL, settings))
    # Six places are for all moves: three pairs. A second pair does not fit into three places.
    assert found == [("b", [T[0], U[0]]), ("c", [T[1], U[1]])]


# -- records --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "is_input"),
    [
        ({}, False),
        ({"session": "later"}, False),
        ({"registered_at": 77.0}, False),
        ({"session": "later", "registered_at": 77.0}, False),
        ({"capacity": 2.0}, True),
        ({"dismissed": True}, True),
    ],
)
def test_a_new_session_of_an_equal_registration_is_no_input(
    changes: dict[str, Any], is_input: bool
) -> None:
    """Its begin and its end are inputs."""
    before = Consumer(name="a", session="s", registered_at=5.0)
    entries = [Entry(KeyValue("k", b"", 1, 1), one) for one in (before, replace(before, **changes))]
    assert _is_input(Change("consumers", "a", *entries)) is is_input
    assert _is_input(Change("consumers", "a", None, entries[0]))
    assert _is_input(Change("consumers", "a", entries[0], None))
    assert not _is_input(Change("consumers", "a", None, None))


@pytest.mark.parametrize(
    ("base", "is_readable"), [(0, True), (codec.MAX_BASE, True), (-1, False), (2**62 + 1, False)]
)
def test_the_bounds_of_the_base_of_epochs(base: int, is_readable: bool) -> None:
    """A base of 0 is one."""
    if is_readable:
        assert codec.load_base(codec.dump_base(base)) == base
    else:
        with pytest.raises(ValueError, match="the base of epochs is"):
            codec.load_base(codec.dump_base(base))


# -- a client -------------------------------------------------------------------------------------


def test_a_grant_under_a_lower_epoch_is_another_ownership() -> None:
    """The store has lost its data; the highest epoch is remembered."""
    holdings = Holdings()
    holdings.begin(10.0)
    holdings.update([Grant(T[0], 9), Grant(T[1], 9)], (), snapshot=True)
    change = holdings.update([Grant(T[0], 3)], ())
    assert change == Assigned(
        {T[0]: Grant(T[0], 3), T[1]: Grant(T[1], 9)}, (Grant(T[0], 3),), (T[0],)
    )
    assert (holdings.highest, holdings.epoch(T[0])) == (9, 3)


async def test_a_partition_that_came_back_is_released_once_more_at_the_end() -> None:
    """Its earlier release was called off by the grant, or had ended before it."""
    released: list[Release] = []
    hangs = asyncio.Event()

    class Work:
        async def assigned(self, command: Assigned) -> None:
            """Return."""

        async def release(self, command: Release) -> None:
            released.append(command)
            if command == Release(T[0], "new", 8):
                await hangs.wait()

        async def lost(self, command: Any) -> None:
            raise AssertionError(command)

    jobs = Jobs(Heard(), Work())  # type: ignore[arg-type]
    for number in (0, 1):
        await jobs.take(Release(T[number], "new", 8))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    grants = [Grant(T[0], 5), Grant(T[1], 5)]
    await jobs.take(Assigned({grant.partition: grant for grant in grants}, tuple(grants)))
    await jobs.finish(T[:2], 5.0)
    assert released[2:] == [Release(T[0], new_owner=""), Release(T[1], new_owner="")]
    await jobs.close()
