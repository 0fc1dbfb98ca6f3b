"""The order among equal candidates: each step, compared with the order in algorithms.md."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from faust_assigner.model import NOBODY
from faust_assigner.standbys import refill
from faust_assigner.standbys.board import Board
from faust_assigner.standbys.fill import _keeps_rack_spread, deal_rows, fill_gaps, keep_copies
from faust_assigner.standbys.shares import fair_shares
from tests.support.standby_boards import problem

MEMBERS = 7
OWNER = 3
SEEDS = range(30)


def seats(board: Board, pairs: list[tuple[int, int]]) -> None:
    """Seat each (task, member) in order."""
    for task, member in pairs:
        board.seat(np.array([task]), np.array([member]))


def crowded(seed: int, open_tasks: int, taken: int, replicas: int = 1) -> tuple[Board, list[int]]:
    """Return a board: OWNER has tasks without a standby, and ``taken`` tasks have theirs."""
    draw = np.random.default_rng(seed)
    owner = [OWNER] * open_tasks + draw.integers(0, MEMBERS, taken).tolist()
    given = problem(owner, MEMBERS, replicas=replicas)
    board = Board(given, fair_shares(given))
    for task in range(open_tasks, open_tasks + taken):
        others = [member for member in range(MEMBERS) if member != owner[task]]
        # A few members hold most standbys, so some loads and pairs differ and some are equal.
        seats(board, [(task, int(m)) for m in draw.permutation(others[: 2 + seed % 4])[:replicas]])
    return board, list(range(open_tasks))


def given_to(board: Board, tasks: list[int]) -> Counter[int]:
    """Return each member's number of standbys of ``tasks``."""
    held = board.holder[tasks]
    return Counter(held[held != NOBODY].tolist())


def ring_behind(owner: int) -> list[int]:
    """Return the other members in ring order, from the member behind the owner."""
    return [(owner + step) % MEMBERS for step in range(1, MEMBERS)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deal_gives_to_the_smallest_pair_then_the_lowest_load_then_round_the_ring(
    seed: int,
) -> None:
    """With fewer tasks than peers, the order of peers decides the receivers."""
    board, tasks = crowded(seed, open_tasks=1 + seed % 5, taken=25)
    order = sorted(ring_behind(OWNER), key=lambda m: (board.pair[OWNER, m], board.load[m]))
    deal_rows(board)
    assert given_to(board, tasks) == Counter(order[: len(tasks)])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deal_of_two_each_takes_the_same_order(seed: int) -> None:
    """The first peers in the order get one standby each; no peer gets two of the same task."""
    board, tasks = crowded(seed, open_tasks=1 + seed % 3, taken=25, replicas=2)
    order = sorted(ring_behind(OWNER), key=lambda m: (board.pair[OWNER, m], board.load[m]))
    deal_rows(board)
    assert given_to(board, tasks) == Counter(order[: 2 * len(tasks)])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_deal_with_racks_looks_at_the_days_a_rack_dies_before_the_load(seed: int) -> None:
    """The order is: no pair above its share, the rack's fewest standbys, the lowest load."""
    draw = np.random.default_rng(seed)
    rack = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    owner = [OWNER, *draw.integers(0, len(rack), 30).tolist()]
    given = problem(owner, len(rack), rack=rack)
    board = Board(given, fair_shares(given))
    for task in range(1, len(owner)):
        others = [m for m in range(len(rack)) if rack[m] != rack[owner[task]]]
        seats(board, [(task, int(draw.choice(others[: 2 + seed % 5])))])
    assert not board.shares.lopsided
    of_rack = [
        sum(int(board.pair[o, m]) for o in range(len(rack)) if rack[o] == rack[OWNER])
        for m in range(len(rack))
    ]
    due = np.floor(board.shares.ratio[0, rack[OWNER]] + 1e-9)
    peers = [m for m in [*range(OWNER + 1, len(rack)), *range(OWNER)] if rack[m] != rack[OWNER]]
    first = min(
        peers, key=lambda m: (max(board.pair[OWNER, m] - due[m], 0), of_rack[m], board.load[m])
    )
    deal_rows(board)
    assert board.holder[0].tolist() == [first]


def test_a_deal_with_racks_looks_at_the_pair_before_the_days_a_rack_dies() -> None:
    """A peer with a standby of this owner comes last, even with the fewest of the rack."""
    rack = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    peers = [member for member in range(len(rack)) if rack[member] != rack[OWNER]]
    held = [(OWNER, peers[0]), *((0, peer) for peer in peers[1:] for _ in range(2))]
    given = problem([OWNER, *(owner for owner, _ in held)], len(rack), rack=rack)
    board = Board(given, fair_shares(given))
    seats(board, [(task, peer) for task, (_, peer) in enumerate(held, 1)])
    deal_rows(board)
    assert board.holder[0, 0] in peers[1:]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_refill_gives_to_who_is_within_its_share_then_to_the_lowest_load_then_the_smallest_pair(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The common holder of all those tasks stays; the other seats follow the order of peers."""
    monkeypatch.setattr(refill, "_BULK", 1)
    board, tasks = crowded(seed, open_tasks=8 + seed % 9, taken=40, replicas=2)
    board.limit = np.full_like(board.limit, 1_000)  # a copy above the limit would be removed first
    keeper = ring_behind(OWNER)[seed % 6]
    seats(board, [(task, keeper) for task in tasks])
    peers = [member for member in range(MEMBERS) if member != OWNER]
    pair, load = board.pair[OWNER].copy(), board.load.copy()
    order = sorted(
        peers, key=lambda m: (max(pair[m] + 1 - board.shares.even[OWNER, m], 0), load[m], pair[m])
    )
    base, extra = divmod(len(tasks), len(peers))
    wanted = Counter({member: base + (place < extra) for place, member in enumerate(order)})
    refill.refill(board)
    gained = Counter({m: int(board.pair[OWNER, m] - pair[m]) for m in peers})
    # A task's holder cannot take another copy of the task; the next step handles the seat.
    assert +gained == +Counter({m: n for m, n in wanted.items() if m != keeper})


def test_a_refill_takes_the_smallest_of_pairs_where_loads_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All members hold two within their shares; two of them hold no standby of this owner."""
    monkeypatch.setattr(refill, "_BULK", 1)
    keeper, *others = ring_behind(OWNER)
    held = [
        (OWNER if place < 3 else keeper, member)
        for place, member in enumerate(others)
        for _ in range(2)
    ]
    owner = [OWNER] * 2 + [giver for giver, _ in held]
    given = problem(owner, MEMBERS, replicas=2)
    board = Board(given, fair_shares(given))
    seats(board, [(task, member) for task, (_, member) in enumerate(held, 2)])
    board.shares.need[2:] = 1  # the held standbys are complete: only the first two tasks are dealt
    seats(board, [(0, keeper), (1, keeper)])
    assert (board.pair[OWNER, others] < board.shares.even[OWNER, others]).all()
    assert set(board.load[ring_behind(OWNER)].tolist()) == {2}
    refill.refill(board)
    assert {int(member) for member in board.holder[:2, 1]} == set(others[3:])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gap_goes_to_the_cheapest_then_round_the_ring(seed: int) -> None:
    """The sum of a pair's cost and a load's cost decides each seat; ties start behind the owner."""
    board, tasks = crowded(seed, open_tasks=1, taken=3 + seed % 20)
    everyone = np.arange(MEMBERS)
    cost = board.price(np.array(tasks), -1, everyone) + board.balance(1)
    fill_gaps(board)
    assert board.holder[0].tolist() == [min(ring_behind(OWNER), key=lambda m: int(cost[m]))]


@pytest.mark.parametrize("seed", SEEDS)
def test_wishes_are_kept_before_standbys_before_warm_copies_and_the_first_member_of_each(
    seed: int,
) -> None:
    """There are more copies than seats, so the stated order decides for each task."""
    draw = np.random.default_rng(seed)
    owner = [OWNER] * 6
    kinds: dict[tuple[int, int], int] = {}
    for task in range(len(owner)):
        for member in draw.permutation(ring_behind(OWNER))[: 2 + seed % 5].tolist():
            kinds[task, member] = int(draw.integers(0, 3))
    wanted, standbys, copies = (
        [pair for pair, kind in kinds.items() if kind == n] for n in range(3)
    )
    given = problem(owner, MEMBERS, replicas=2, wanted=wanted, standbys=standbys, copies=copies)
    board = Board(given, fair_shares(given))
    keep_copies(board)
    for task in range(len(owner)):
        first = sorted((kind, member) for (t, member), kind in kinds.items() if t == task)[:2]
        assert board.holder[task].tolist() == [member for _, member in first]
        assert board.pinned[task].tolist() == [kind == 0 for kind, _ in first]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copy_is_of_use_where_the_free_seats_can_still_reach_all_racks(seed: int) -> None:
    """Counts are of racks besides the active's, and of seats outside the active's rack."""
    draw = np.random.default_rng(seed)
    rack = draw.integers(0, 3, 9)
    given = problem(draw.integers(0, 9, 12).tolist(), 9, replicas=4, rack=rack.tolist())
    board = Board(given, fair_shares(given))
    shares, seen = board.shares, set[bool]()
    for task in np.repeat(np.arange(12), 4).tolist():
        here = board.holder[task][board.holder[task] != NOBODY].tolist()
        owner, need = int(given.owner[task]), int(shares.need[task])
        fitting = []
        for member in sorted(set(range(9)) - {owner, *here}):
            racks = [rack[one] for one in (*here, member)]
            free = need - len(racks)
            distinct = len(set(racks) - {rack[owner]}) + free
            outside = sum(one != rack[owner] for one in racks) + free
            expected = bool(distinct >= shares.distinct[task] and outside >= shares.outside[task])
            found = _keeps_rack_spread(board, np.array([task]), np.array([member]))
            assert found.tolist() == [expected], (task, member)
            seen.add(expected)
            fitting += [member] * expected
        if fitting and len(here) < need:
            seats(board, [(task, int(draw.choice(fitting)))])
    assert seen == {True, False}


def test_a_refill_passes_over_a_member_that_is_at_its_share_although_it_holds_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A further standby would exceed the share; the other members hold none of this owner."""
    monkeypatch.setattr(refill, "_BULK", 1)
    keeper, *others = ring_behind(OWNER)
    held = [(OWNER, others[0]), *((keeper, member) for member in others[1:] for _ in range(2))]
    given = problem([OWNER] * 2 + [giver for giver, _ in held], MEMBERS, replicas=2)
    board = Board(given, fair_shares(given))
    seats(board, [(task, member) for task, (_, member) in enumerate(held, 2)])
    board.shares.need[2:] = 1  # the held standbys are complete: only the first two tasks are dealt
    seats(board, [(0, keeper), (1, keeper)])
    board.shares.even[OWNER] = 1
    refill.refill(board)
    assert {int(member) for member in board.holder[:2, 1]} <= set(others[1:])
