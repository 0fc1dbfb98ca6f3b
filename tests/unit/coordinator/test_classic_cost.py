"""A request's cost does not grow with the members, or all members would cost the square."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faust_assigner.coordinator.events import TimersDue
from tests.support.coordination.classic_bench import SESSION_MS, Bench
from tests.support.work import instructions

FEW, MANY = 20, 400


def arriving(members: int) -> tuple[Bench, list[str]]:
    """Return a group whose many newcomers wait for its first member's join, and all member ids."""
    bench = Bench()
    first = bench.join()
    bench.pass_time(0)
    ids = [bench.joined(first).member_id, *(f"n{number}" for number in range(members))]
    for member_id in ids[1:]:
        bench.join(new_member_id=member_id, needs_known_id=True)
        bench.join(member_id, needs_known_id=True)
    return bench, ids


def syncing(members: int) -> tuple[Bench, list[str]]:
    """Return the same group after all joins and before any sync."""
    bench, ids = arriving(members)
    bench.join(ids[0])
    return bench, ids


def asks_for_an_id(members: int) -> Callable[[], object]:
    """Return a newcomer's first request during the join phase."""
    bench, _ = arriving(members)
    event = bench.join_event(needs_known_id=True, new_member_id="new")
    return lambda: bench.group.step(event, bench.now)


def joins_with_it(members: int) -> Callable[[], object]:
    """Return a newcomer's second request."""
    bench, _ = arriving(members)
    bench.join(new_member_id="new", needs_known_id=True)
    event = bench.join_event("new")
    return lambda: bench.group.step(event, bench.now)


def rejoins(members: int) -> Callable[[], object]:
    """Return the repeated join of a waiting member."""
    bench, ids = arriving(members)
    event = bench.join_event(ids[1])
    return lambda: bench.group.step(event, bench.now)


def syncs(members: int) -> Callable[[], object]:
    """Return a follower's sync before the leader's assignment."""
    bench, ids = syncing(members)
    (follower,) = [m for m in ids[:2] if m != bench.group.roster.leader]
    return lambda: bench.sync(follower)


def beats(members: int) -> Callable[[], object]:
    """Return a heartbeat while the group waits for syncs."""
    bench, ids = syncing(members)
    return lambda: bench.heartbeat(ids[-1])


def asks_when(members: int) -> Callable[[], object]:
    """Return the question for the next deadline, which follows every request."""
    bench, _ = syncing(members)
    return lambda: bench.group.next_deadline_ms


def rings_early(members: int) -> Callable[[], object]:
    """Return a tick set before the members' last heartbeats, at which no session has expired."""
    bench, ids = syncing(members)
    bench.now += SESSION_MS - 1
    for member_id in ids:
        bench.heartbeat(member_id)
    assert bench.group.next_deadline_ms
    return lambda: bench.group.step(TimersDue(), bench.now + 1)


@pytest.mark.parametrize(
    "request_of", [asks_for_an_id, joins_with_it, rejoins, syncs, beats, asks_when, rings_early]
)
def test_a_request_costs_the_same_in_a_group_of_twenty_times_the_members(
    request_of: Callable[[int], Callable[[], object]],
) -> None:
    """The limit allows a logarithm; the cost is a number of instructions, not a time."""
    few, many = instructions(request_of(FEW)), instructions(request_of(MANY))
    assert 0 < many <= 2 * few + 50, f"{few} -> {many}"
