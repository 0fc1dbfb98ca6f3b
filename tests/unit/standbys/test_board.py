"""The board of standbys: counts match seats, and a move's cost is a difference of totals."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from faust_assigner.model import NOBODY
from faust_assigner.standbys.board import (
    BALANCE,
    CHANGED,
    FRESH,
    HOME_RACK,
    NEVER,
    OVERLOAD,
    OVERLOAD_WITH_RACKS,
    SAME_RACK,
    UNEVEN,
    Board,
    _Copies,
)
from faust_assigner.standbys.fill import keep_copies, usable
from faust_assigner.standbys.problem import StandbyProblem
from faust_assigner.standbys.refill import _group_alike, _may_hold, _remove_above_limit
from faust_assigner.standbys.shares import fair_shares, settled_racks


def problem(
    rng: Random, *, replicas: int = 2, racks: tuple[int, ...] | None = None, tasks: int = 12
) -> StandbyProblem:
    """Return twelve tasks of two classes on five members, with some copies."""
    members = 5
    owner = np.array([rng.randrange(members) for _ in range(tasks)])
    eligible = np.ones((2, members), dtype=bool)
    eligible[1, rng.randrange(members)] = False
    pairs = sorted(
        (t, m) for t in range(tasks) for m in range(members) if m != owner[t] and rng.random() < 0.3
    )
    return StandbyProblem(
        owner=owner,
        group=np.array([t % 2 for t in range(tasks)]),
        eligible=eligible,
        copy_task=np.array([t for t, _ in pairs], dtype=np.int64),
        copy_member=np.array([m for _, m in pairs], dtype=np.int64),
        copy_was_standby=np.array([rng.random() < 0.5 for _ in pairs], dtype=bool),
        wanted_task=np.zeros(0, dtype=np.int64),
        wanted_member=np.zeros(0, dtype=np.int64),
        rack=np.array(racks if racks is not None else [NOBODY] * members),
        capacity=np.ones(members),
        load=np.bincount(owner, minlength=members).astype(float),
        replicas=replicas,
    )


def filled(rng: Random, **more: object) -> Board:
    """Return a board with a random valid member in every seat."""
    made = problem(rng, **more)  # type: ignore[arg-type]
    board = Board(made, fair_shares(made))
    for task in range(made.tasks):
        may = np.flatnonzero(made.eligible[made.group[task]]).tolist()
        may = [m for m in may if m != made.owner[task]]
        for member in rng.sample(may, int(board.shares.need[task])):
            board.seat(np.array([task]), np.array([member]))
    return board


def agrees(board: Board) -> None:
    """Check that the counts match the seats, and that empty seats come last."""
    members = board.problem.members
    task, column = np.nonzero(board.holder != NOBODY)
    member = board.holder[task, column]
    assert board.load.tolist() == np.bincount(member, minlength=members).tolist()
    pair = np.zeros((members, members), dtype=int)
    np.add.at(pair, (board.problem.owner[task], member), 1)
    assert board.pair.tolist() == pair.tolist()
    assert board.filled.tolist() == (board.holder != NOBODY).sum(axis=1).tolist()
    for row, count in zip(board.holder.tolist(), board.filled.tolist(), strict=True):
        assert NOBODY not in row[:count]
    assert not board.pinned[board.holder == NOBODY].any()


def total(board: Board) -> int:
    """Return a board's cost (no racks, or one standby per task): pairs, copies and balance."""
    found = sum(int(load) ** 2 for load in board.load) * BALANCE
    for owner in range(board.problem.members):
        for member in range(board.problem.members):
            for count in range(1, int(board.pair[owner, member]) + 1):
                over = max(0, count - int(board.limit[owner, member]))
                uneven = max(0, count - int(board.shares.even[owner, member]))
                found += over * board.overload + uneven * UNEVEN
    for task, row in enumerate(board.holder.tolist()):
        for member in row:
            if member != NOBODY:
                found += int(board.copies.cost(np.array([task]), np.array([member]))[0])
                owner = board.problem.owner[task]
                same = board.shares.rack[owner] == board.shares.rack[member]
                found += (HOME_RACK + SAME_RACK) * bool(board.shares.has_racks and same)
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("racks", [None, (0, 0, 1, 1, 2)])
def test_a_move_is_made_only_if_it_lowers_the_cost_of_the_board(
    seed: int, racks: tuple[int, ...] | None
) -> None:
    """A rejected move leaves the board unchanged; the order of moves within a chain matters."""
    rng = Random(seed)
    board = filled(rng, replicas=1 if racks else 2, racks=racks)
    made = 0
    for _ in range(60):
        task, column = rng.randrange(12), rng.randrange(board.columns)
        members = rng.sample(range(5), rng.choice((1, 2)))
        moves = [(task, column, member) for member in members[:1]]
        moves += [((task + 5) % 12, column, member) for member in members[1:]]
        if any(board.holder[t, c] == NOBODY for t, c, _ in moves):
            continue
        before, cost = board.holder.copy(), total(board)
        took = board.try_moves(moves)
        agrees(board)
        if took:
            assert total(board) < cost
            made += 1
        else:
            assert board.holder.tolist() == before.tolist()
            allowed = all(
                board.price(np.array([t]), np.array([c]), np.array([m]))[0] < NEVER
                for t, c, m in moves
            )
            if allowed and len(moves) == 1:
                for t, c, m in moves:
                    board.move(t, c, m)
                assert total(board) >= cost
                for (t, c, _), m in zip(moves, (before[t, c] for t, c, _ in moves), strict=True):
                    board.move(t, c, int(m))
    assert made


@pytest.mark.parametrize("seed", range(4))
def test_seats_and_counts_agree_after_every_operation(seed: int) -> None:
    """Seats are vacated in rows with several standbys, and moved together to a single member."""
    rng = Random(seed)
    board = filled(rng)
    agrees(board)
    rows = rng.sample(range(12), 4)
    board.vacate(np.array([*rows, *rows[:2]]), np.array([0] * 4 + [1] * 2))
    agrees(board)
    assert board.filled[rows[0]] == 0
    member = rng.randrange(5)
    free = [
        t
        for t in range(12)
        if board.filled[t] and member not in board.holder[t] and board.problem.owner[t] != member
    ]
    board.move_all(np.array(free, dtype=np.int64), np.zeros(len(free), dtype=np.int64), member)
    agrees(board)
    task, column = board.seats_of(np.array([member]))
    assert set(board.holder[task, column].tolist()) <= {member}
    assert len(task) == board.load[member]


def test_a_seat_may_not_go_to_the_owner_a_holder_or_a_stranger() -> None:
    """The vacated seat does not count; a pinned seat gives no refund."""
    board = filled(Random(1))
    task = 1
    owner, holders = int(board.problem.owner[task]), board.holder[task].tolist()
    stranger = int(np.flatnonzero(~board.problem.eligible[1])[0])
    at = np.array([task])
    cost = board.price(at, np.array([0]), np.arange(5)).tolist()
    for member in {owner, holders[1], stranger}:
        assert cost[member] == NEVER
    if holders[0] != stranger:
        assert cost[holders[0]] < NEVER
    board.pinned[task, 0] = True
    assert board.refund(at, np.array([0]))[0] == -NEVER
    assert board.refund(at, np.array([1]))[0] > -NEVER
    assert not board.try_moves([(task, 0, holders[0])])


def test_two_standbys_in_one_rack_cost_more_than_one_in_the_rack_of_the_active() -> None:
    """The moving seat does not crowd its own target."""
    made = replace(
        problem(Random(3), racks=(0, 0, 1, 1, 2)),
        owner=np.zeros(12, dtype=np.int64),
        eligible=np.ones((2, 5), dtype=bool),
        copy_task=np.zeros(0, dtype=np.int64),
        copy_member=np.zeros(0, dtype=np.int64),
        copy_was_standby=np.zeros(0, dtype=bool),
    )
    board = Board(made, fair_shares(made))
    board.seat(np.array([0]), np.array([2]))
    at = np.array([0])

    def racks(column: int, member: int) -> int:
        return int(board.price(at, np.array([column]), np.array([member]))[0]) // HOME_RACK

    crowded = SAME_RACK // HOME_RACK
    assert [racks(-1, m) for m in (1, 3, 4)] == [1 + crowded, crowded, 0]
    assert racks(0, 3) == 0
    board.seat(np.array([0]), np.array([3]))
    assert int(board.refund(at, np.array([1]))[0]) // HOME_RACK == crowded
    assert board.overload == OVERLOAD_WITH_RACKS


def test_the_cost_of_a_copy_is_the_same_in_a_table_and_in_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large board uses a list instead of a table."""
    made = problem(Random(5))
    table = _Copies(made)
    monkeypatch.setattr("faust_assigner.standbys.board._TABLE_CELLS", 0)
    listed = _Copies(made)
    task, member = np.divmod(np.arange(60), 5)
    expected = {
        (int(t), int(m)): 0 if was else CHANGED
        for t, m, was in zip(made.copy_task, made.copy_member, made.copy_was_standby, strict=True)
    }
    costs = [expected.get((int(t), int(m)), FRESH) for t, m in zip(task, member, strict=True)]
    assert table.cost(task, member).tolist() == listed.cost(task, member).tolist() == costs
    nothing = replace(
        made,
        copy_task=made.copy_task[:0],
        copy_member=made.copy_member[:0],
        copy_was_standby=made.copy_was_standby[:0],
    )
    assert set(_Copies(nothing).cost(task, member).tolist()) == {FRESH}


def test_the_room_above_the_cap_shrinks_to_the_kept_copies() -> None:
    """The limit never grows, and a pair above its limit is reported."""
    board = filled(Random(2))
    board.limit = board.shares.cap + 3
    kept = np.zeros_like(board.pair)
    for task, row in enumerate(board.holder.tolist()):
        for member in row:
            if (
                member != NOBODY
                and board.copies.cost(np.array([task]), np.array([member]))[0] < FRESH
            ):
                kept[board.problem.owner[task], member] += 1
    told = board.tighten()
    expected = np.minimum(board.shares.cap + 3, np.maximum(board.shares.cap, kept))
    assert board.limit.tolist() == expected.tolist()
    assert told is bool((board.pair > expected).any())
    board.limit = np.zeros_like(board.limit)
    board.tighten()
    assert not board.limit.any()
    assert board.overload == OVERLOAD


def test_wanted_standbys_come_first_and_are_pinned_then_previous_standbys() -> None:
    """A task takes as many copies as needed; a standby wanted twice has one seat."""
    base = problem(Random(0), replicas=1)
    made = replace(
        base,
        owner=np.zeros(12, dtype=np.int64),
        eligible=np.ones((2, 5), dtype=bool),
        copy_task=np.array([0, 0, 1, 1, 2]),
        copy_member=np.array([1, 2, 1, 2, 3]),
        copy_was_standby=np.array([False, True, True, True, False]),
        wanted_task=np.array([1, 2]),
        wanted_member=np.array([4, 3]),
    )
    board = Board(made, fair_shares(made))
    keep_copies(board)
    agrees(board)
    assert board.holder[:3, 0].tolist() == [2, 4, 3]
    assert board.pinned[:3, 0].tolist() == [False, True, True]
    assert board.filled.tolist() == [1, 1, 1] + [0] * 9
    task, member = np.array([0, 0, 1]), np.array([0, 3, 1])
    assert usable(made, task, member).tolist() == [False, True, True]


def test_the_highest_tasks_leave_a_crowded_pair_and_pinned_seats_stay() -> None:
    """The number of remaining seats is the pair's limit."""
    base = problem(Random(0), replicas=1)
    made = replace(base, owner=np.zeros(12, dtype=np.int64), eligible=np.ones((2, 5), dtype=bool))
    board = Board(made, fair_shares(made))
    board.seat(np.arange(5), np.full(5, 1))
    board.seat(np.array([5]), np.array([1]), pinned=True)
    board.limit = np.full_like(board.limit, 2)
    _remove_above_limit(board)
    agrees(board)
    assert np.flatnonzero(board.filled).tolist() == [0, 1, 5]


def test_tasks_are_alike_with_one_owner_one_class_and_the_same_racks() -> None:
    """The order of standbys does not matter; a member of a used rack may hold no further copy."""
    base = problem(Random(0), racks=(0, 0, 1, 1, 2))
    made = replace(
        base,
        owner=np.array([0, 0, 0, 1] + [0] * 8),
        group=np.zeros(12, dtype=np.int64),
        eligible=np.ones((1, 5), dtype=bool),
    )
    board = Board(made, fair_shares(made))
    for task, row in enumerate(((2, 4), (4, 3), (2,), (2, 4))):
        for member in row:
            board.seat(np.array([task]), np.array([member]))
    found = _group_alike(board, np.arange(4))
    assert sorted(map(list, found)) == [[0, 1], [2], [3]]
    assert np.flatnonzero(_may_hold(board, 2, 0)).tolist() == [4]
    assert _group_alike(board, np.arange(0)) == []


@pytest.mark.parametrize(
    ("racks", "settled", "matters"),
    [
        ((0, 0, 1), [0, 0, 1], True),
        ((7, 7, 3), [1, 1, 0], True),
        ((0, 0, 0), [0, 1, 2], False),
        ((0, 1, 2), [0, 1, 2], False),
        ((NOBODY, NOBODY, NOBODY), [0, 1, 2], False),
        ((0, 0, NOBODY), [0, 0, 1], True),
        ((0, NOBODY, NOBODY), [0, 1, 2], False),
    ],
)
def test_racks_matter_if_two_members_share_one_and_there_are_two(
    racks: tuple[int, ...], settled: list[int], matters: bool
) -> None:
    """A member without a rack counts as its own rack."""
    found, has_racks = settled_racks(np.array(racks))
    assert (found.tolist(), has_racks) == (settled, matters)
