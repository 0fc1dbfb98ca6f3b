"""What one request costs does not grow with the members: a thousand at once would pay it squared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faust_assigner.coordinator.events import Tick
from tests.support.coordination.classic_bench import SESSION_MS, Bench
from tests.support.work import instructions

FEW, MANY = 20, 400


def arriving(members: int) -> tuple[Bench, list[str]]:
    """A group of one that so many others wait to join, until the one joins again; and their ids."""
    bench = Bench()
    first = bench.join()
    bench.pass_time(0)
    ids = [bench.joined(first).member_id, *(f"n{number}" for number in range(members))]
    for member_id in ids[1:]:
        bench.join(new_member_id=member_id, needs_known_id=True)
        bench.join(member_id, needs_known_id=True)
    return bench, ids


def syncing(members: int) -> tuple[Bench, list[str]]:
    """The same, all joined, and no sync sent yet."""
    bench, ids = arriving(members)
    bench.join(ids[0])
    return bench, ids


def asks_for_an_id(members: int) -> Callable[[], object]:
    """The first request of a newcomer while the others wait."""
    bench, _ = arriving(members)
    event = bench.join_event(needs_known_id=True, new_member_id="new")
    return lambda: bench.group.step(event, bench.now)


def joins_with_it(members: int) -> Callable[[], object]:
    """Its second request."""
    bench, _ = arriving(members)
    bench.join(new_member_id="new", needs_known_id=True)
    event = bench.join_event("new")
    return lambda: bench.group.step(event, bench.now)


def rejoins(members: int) -> Callable[[], object]:
    """A member that waits joins once more."""
    bench, ids = arriving(members)
    event = bench.join_event(ids[1])
    return lambda: bench.group.step(event, bench.now)


def syncs(members: int) -> Callable[[], object]:
    """A follower's sync before the leader has assigned."""
    bench, ids = syncing(members)
    (follower,) = [m for m in ids[:2] if m != bench.group.roster.leader]
    return lambda: bench.sync(follower)


def beats(members: int) -> Callable[[], object]:
    """A heartbeat while the group waits for syncs."""
    bench, ids = syncing(members)
    return lambda: bench.heartbeat(ids[-1])


def asks_when(members: int) -> Callable[[], object]:
    """After each of them the surroundings ask when to ring next."""
    bench, _ = syncing(members)
    return lambda: bench.group.next_deadline_ms


def rings_early(members: int) -> Callable[[], object]:
    """An alarm that was set before the members' last heartbeats finds nothing due."""
    bench, ids = syncing(members)
    bench.now += SESSION_MS - 1
    for member_id in ids:
        bench.heartbeat(member_id)
    assert bench.group.next_deadline_ms
    return lambda: bench.group.step(Tick(), bench.now + 1)


@pytest.mark.parametrize(
    "request_of", [asks_for_an_id, joins_with_it, rejoins, syncs, beats, asks_when, rings_early]
)
def test_a_request_costs_the_same_in_a_group_of_twenty_times_the_members(
    request_of: Callable[[int], Callable[[], object]],
) -> None:
    """Beyond a logarithm: counted in instructions, not in time."""
    few, many = instructions(request_of(FEW)), instructions(request_of(MANY))
    assert 0 < many <= 2 * few + 50, f"{few} -> {many}"
