"""The passes of repair: moves with a gain, detours, relief, and boards without a better move."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

import numpy as np
import pytest

from faust_assigner.model import NOBODY
from faust_assigner.standbys import repair as repair_module
from faust_assigner.standbys.board import Board
from faust_assigner.standbys.rehearsal import _Drill, _measure_all_deaths, rehearse
from faust_assigner.standbys.repair import (
    _distinct_positions,
    _level_loads,
    _move_cheapest,
    _move_over_third,
    _rack_and_class,
    _relieve_pairs,
    _take,
    repair,
)
from faust_assigner.standbys.shares import fair_shares
from tests.support.standby_boards import problem
from tests.unit.standbys.test_board import agrees, filled, total


def board_of(
    owner: Sequence[int],
    holders: Sequence[Sequence[int]],
    members: int,
    *,
    limit: int = 99,
    **more: object,
) -> Board:
    """Return a board with these owners and holders; pairs may have ``limit`` standbys."""
    made = problem(owner, members, **more)  # type: ignore[arg-type]
    board = Board(made, fair_shares(made))
    board.limit = np.full_like(board.limit, limit)
    for task, row in enumerate(holders):
        for member in row:
            board.seat(np.array([task]), np.array([member]))
    return board


def test_one_seat_of_each_donor_and_owner_is_taken_up_to_the_limit() -> None:
    """The seats are taken from the front."""
    donors, owners = [1, 1, 2, 3, 4], [9, 8, 9, 7, 6]
    assert _distinct_positions(donors, owners, 9) == [0, 3, 4]
    assert _distinct_positions(donors, owners, 2) == [0, 3]
    assert _distinct_positions(donors, owners, 1) == [0]
    assert _distinct_positions([], [], 1) == []


def test_a_receiver_takes_only_as_many_standbys_at_a_time_as_pay() -> None:
    """A second standby would make the receiver as heavy as the donor: five donors give one."""
    owner = [(d + 1 + n) % 5 for d in range(5) for n in range(2)]
    board = board_of(owner, [[d] for d in range(5) for _ in range(2)], 7)
    assert _take(board, 6, np.arange(5))
    assert sorted(board.load.tolist()) == [0, 1, 1, 2, 2, 2, 2]
    assert not _take(board, 6, np.arange(0))
    owner = [(d + 1 + n) % 5 for d in range(5) for n in range(3)]
    board = board_of(owner, [[d] for d in range(5) for _ in range(3)], 7)
    assert _take(board, 6, np.arange(5))
    assert board.load[6] == 2
    agrees(board)


def test_a_standby_reaches_a_receiver_over_a_third_member() -> None:
    """The receiver does not subscribe to the topic of the donor's standbys."""
    eligible = [[True, True, False, True], [True, True, True, True]]
    board = board_of([3, 3, 3], [[0], [0], [1]], 4, group=[0, 0, 1], eligible=eligible)
    assert not _take(board, 2, np.array([0]))
    assert _move_over_third(board, 2, np.array([0]))
    assert board.holder[2, 0] == 2
    assert sorted(board.holder[:2, 0].tolist()) == [0, 1]
    assert not _move_over_third(board, 2, np.array([0]))
    agrees(board)


def test_levelling_moves_over_a_third_member_where_no_donor_can_give_directly() -> None:
    """A board of any size is levelled this way, without the chains of a small board."""
    eligible = [[True, True, False, True], [True, True, True, True]]
    board = board_of([3, 3, 3], [[0], [0], [1]], 4, group=[0, 0, 1], eligible=eligible)
    assert _level_loads(board, _rack_and_class(board))
    assert board.load.tolist() == [1, 1, 1, 0]


def test_of_two_standbys_of_a_donor_the_one_without_state_moves() -> None:
    """The standby with state would have to be restored after a move."""
    for kept in (0, 1):
        board = board_of([1, 1], [[0], [0]], 3, standbys=[(kept, 0)])
        assert _take(board, 2, np.array([0]))
        assert board.holder[:, 0].tolist() == ([0, 2] if kept == 0 else [2, 0])


def test_members_of_one_rack_and_equal_subscriptions_are_kin() -> None:
    """Without racks only the subscriptions count."""
    eligible = [[True, True, True, False]]
    racks = board_of([0] * 4, [], 4, eligible=eligible, rack=[0, 0, 1, 1])
    kin = _rack_and_class(racks).tolist()
    assert (kin[0] == kin[1], kin[1] == kin[2], kin[2] == kin[3]) == (True, False, False)
    plain = _rack_and_class(board_of([0] * 4, [], 4, eligible=eligible)).tolist()
    assert (plain[0] == plain[1] == plain[2], plain[2] == plain[3]) == (True, False)


def test_the_best_move_of_a_crowded_pair_goes_to_the_lightest_member() -> None:
    """Between two members with room, the first is heavier."""
    board = board_of([0, 0, 0, 1, 1, 1, 1], [[1], [1], [1], [2], [2], [2], [2]], 4, limit=1)
    task, column = board.seats_of(np.array([1]))
    assert _move_cheapest(board, task, column)
    assert np.flatnonzero(board.holder[:3, 0] == 3).size == 1


def test_a_crowded_pair_is_relieved_by_an_exchange_where_loads_are_even() -> None:
    """A move alone would cost more balance than the pair is worth."""
    owner = [0, 0, 0, 4, 4, 5, 4, 5, 5]
    holders = [[1], [1], [1], [2], [2], [2], [3], [3], [3]]
    board = board_of(owner, holders, 6, limit=2)
    board.load[[0, 4, 5]] = 3  # as heavy as the other members
    assert board.pair[0, 1] == 3
    assert _relieve_pairs(board)
    assert board.pair[0, 1] == 2
    assert not _relieve_pairs(board)


@pytest.mark.parametrize("seed", range(12))
def test_moves_between_members_make_loads_even_without_the_chains_of_polish(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A large board has no chains: levelling alone leaves a difference of at most one."""
    monkeypatch.setattr(repair_module, "POLISHED_CELLS", 0)
    rng = Random(seed)
    owner = [rng.randrange(6) for _ in range(24)]
    holders = [[rng.choice([m for m in range(3) if m != o])] for o in owner]
    board = board_of(owner, holders, 6)
    before = total(board)
    assert _level_loads(board, _rack_and_class(board))
    assert board.load.max() - board.load.min() <= 1
    assert not _level_loads(board, _rack_and_class(board))
    repair(board)
    assert total(board) <= before
    agrees(board)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("replicas", [1, 2])
def test_no_move_and_no_exchange_improves_a_repaired_board(seed: int, replicas: int) -> None:
    """A second repair changes no seat."""
    board = filled(Random(seed), replicas=replicas)
    before = total(board)
    repair(board)
    agrees(board)
    after = total(board)
    assert after <= before
    seats = list(zip(*np.nonzero(board.holder != NOBODY), strict=True))
    for task, column in seats:
        for member in range(5):
            assert not board.try_moves([(int(task), int(column), member)])
    for (task, column), (other, place) in combinations(seats, 2):
        one, two = int(board.holder[task, column]), int(board.holder[other, place])
        if one != two and task != other:
            exchange = [(int(task), int(column), two), (int(other), int(place), one)]
            assert not board.try_moves(exchange)
    holder = board.holder.copy()
    repair(board)
    assert board.holder.tolist() == holder.tolist()
    assert total(board) == after


# -- rehearsal


def test_a_death_is_played_in_task_order_to_the_lightest_holder() -> None:
    """The first of two equally loaded holders promotes; the bound is the even share, rounded up."""
    board = board_of([0, 0, 0, 1, 2, 3], [[2, 1], [1, 2], [3, 1], [0], [0], [0]], 4, replicas=2)
    peak, bound = _measure_all_deaths(board)
    # Loads are 3, 1, 1, 1: task 0 goes to 1, task 1 to 2, task 2 to 3.
    assert peak[0] == 2
    assert bound.tolist() == [4, 4, 4, 4]
    assert peak[1] == 4


def test_an_equal_load_is_promoted_by_the_first_member_whatever_its_seat_is() -> None:
    """Task 0 goes to member 1; task 1 then makes member 1 the heaviest."""
    board = board_of([0, 0, 1, 2], [[2, 1], [1], [0], [0]], 3, replicas=2)
    assert _measure_all_deaths(board)[0][0] == 3


def test_without_a_member_outside_the_rack_all_others_are_peers() -> None:
    """A single rack has no outside."""
    board = board_of([0] * 4, [[1, 2]] * 4, 3, replicas=2, rack=[0, 0, 0])
    assert _measure_all_deaths(board)[1][0] == 4 + 2
    board = board_of([0] * 4, [[1, 2]] * 4, 3, replicas=2, rack=[0, 0, 1])
    assert _measure_all_deaths(board)[1][0] == 4 + 4


def crowded(**more: object) -> Board:
    """Return six tasks of member 0; members 1 and 2 promote all, although 3 and 4 hold copies.

    In task order, the copies on 3 and 4 belong to tasks whose other holder has room.
    """
    holders = [[1, 3], [1, 3], [2, 4], [2, 4], [1, 2], [1, 2]]
    return board_of([0] * 6, holders, 5, replicas=2, **more)


def test_a_trade_changes_no_load_no_pair_and_no_restored_copy() -> None:
    """No death exceeds its bound if a trade prevents the excess."""
    board = crowded()
    before = board.load.tolist(), board.pair.tolist()
    rehearse(board)
    agrees(board)
    assert (board.load.tolist(), board.pair.tolist()) == before
    for row in board.holder.tolist():
        assert len(set(row)) == 2
    held = crowded(
        standbys=[(t, m) for t, row in enumerate(crowded().holder.tolist()) for m in row]
    )
    drill = _Drill(held, 0, 0.0)
    assert not any(any(row) for row in drill.loose)


def test_copies_that_exist_and_wanted_copies_are_not_traded_within_the_bound() -> None:
    """Only fresh, unwished copies are loose."""
    board = crowded(standbys=[(0, 3)], copies=[(1, 1)])
    board.pinned[2, 0] = True
    loose = _Drill(board, 0, 2.0).loose
    assert loose == [
        [True, False],
        [False, True],
        [False, True],
        [True, True],
        [True, True],
        [True, True],
    ]


def test_a_trade_stays_in_a_rack_and_makes_no_double_holder() -> None:
    """Neither task may already have the other task's copy."""
    plain = _Drill(crowded(), 0, 2.0)
    assert plain._may_trade(0, 0, 2, 0)  # 1 for 2
    assert not plain._may_trade(0, 0, 4, 1)  # task 4 has member 1 already
    assert not plain._may_trade(4, 0, 2, 0)  # task 4 has member 2 already
    assert not plain._may_trade(0, 0, 1, 0)  # the same member
    racks = _Drill(crowded(rack=[0, 1, 1, 2, 2]), 0, 2.0)
    assert racks._may_trade(0, 0, 2, 0)
    assert not racks._may_trade(0, 1, 2, 0)  # from rack 2 to rack 1
    assert plain._may_trade(0, 1, 2, 0)


def test_a_pinned_seat_of_either_task_stops_a_trade() -> None:
    """The pinned copy is wanted on its member."""
    for task in (0, 2):
        board = crowded()
        board.pinned[task, 0] = True
        assert not _Drill(board, 0, 2.0)._may_trade(0, 0, 2, 0)


def test_a_drill_in_vain_leaves_every_copy_where_it_is() -> None:
    """Six tasks on four holders cannot be promoted more evenly: each trade is undone."""
    board = crowded()
    drill = _Drill(board, 0, -1.0)
    before = board.holder.tolist()
    assert drill._play()[0] == (2, 10)
    assert drill.run(25) <= 25 + 2 * len(drill.task)
    assert board.holder.tolist() == before
    assert _Drill(crowded(), 0, 99.0).run(1000) == 12


def uneven(**more: object) -> Board:
    """Return three tasks: the first holder promotes two in task order; a trade evens them out."""
    return board_of([0] * 3, [[2, 1], [3, 2], [2, 1]], 4, replicas=2, **more)


KEPT = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 1), (2, 2)]


@pytest.mark.parametrize(
    ("bound", "standbys", "peak"),
    [
        (2.0, [], 2),  # the bound is met
        (1.0, [], 1),
        (1.0, KEPT, 2),  # one more is permitted if a trade would restore a copy
        (0.0, KEPT, 1),
    ],
)
def test_a_drill_trades_fresh_copies_for_its_bound_and_others_for_one_more(
    bound: float, standbys: list[tuple[int, int]], peak: int
) -> None:
    """The first of two equally loaded holders promotes, in any order of seats."""
    board = uneven(standbys=standbys)
    drill = _Drill(board, 0, bound)
    assert drill._play() == ((2, 5), [1, 2, 1])
    drill.run(1000)
    assert drill._play()[0][0] == peak
    assert (board.holder.tolist() == uneven().holder.tolist()) is (peak == 2)
    agrees(board)


def test_only_tasks_with_equal_subscribers_trade() -> None:
    """A member may subscribe to one topic and not to the other."""
    eligible = [[True] * 5, [True, True, True, True, False]]
    board = board_of(
        [0] * 4,
        [[1, 2], [3, 4], [1, 2], [3, 1]],
        5,
        replicas=2,
        group=[0, 0, 1, 1],
        eligible=eligible,
    )
    drill = _Drill(board, 0, 0.0)
    score, takers = drill._play()
    trades = list(drill._trades(takers, score[0]))
    assert trades
    assert {(row < 2) == (other < 2) for row, _, other, _ in trades} == {True}
