"""All fair shares of two boards, computed by hand."""

from __future__ import annotations

import pytest

from faust_assigner.standbys.shares import fair_shares
from tests.support.standby_boards import problem


def test_the_shares_of_a_board_with_racks() -> None:
    """The board has three members in a rack, one in another rack, and two copies per task."""
    shares = fair_shares(
        problem(
            [0, 0, 1, 2, 3, 3],
            4,
            replicas=2,
            rack=[5, 5, 5, 7],
            load=[2, 1, 1, 4],
            capacity=[1, 1, 2, 1],
        )
    )
    assert (shares.rack.tolist(), shares.has_racks) == ([0, 0, 0, 1], True)
    assert shares.kind.tolist() == [0] * 6
    assert shares.eligible.tolist() == [[True] * 4]
    assert shares.need.tolist() == [2] * 6
    assert shares.outside.tolist() == [1, 1, 1, 1, 2, 2]
    assert shares.distinct.tolist() == [1] * 6
    # One copy is outside; the other is on either other member of the active's rack.
    assert shares.ratio[0, 0].tolist() == [0.5, 0.5, 0.5, 1.0]
    assert shares.ratio[0, 1].tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0.0])
    assert shares.even.tolist() == [[1, 1, 1, 2], [1, 1, 1, 1], [1, 1, 1, 1], [2, 2, 2, 0]]
    assert shares.lopsided is False
    # Two copies times (the tasks of each peer, and the room below four tasks per unit of capacity).
    others = [6, 8, 14, 2]
    assert shares.cap.tolist() == [[8, 10, 16, 4], others, others, others]
    assert shares.limit.tolist() == shares.cap.tolist()


def test_the_shares_of_a_board_with_two_kinds_of_subscribers() -> None:
    """A task without an owner has no share; a pair above its cap may keep an extra copy."""
    shares = fair_shares(
        problem(
            [0, 0, 1, -1, 2],
            3,
            group=[0, 1, 1, 0, 1],
            eligible=[[1, 1, 1], [0, 1, 1]],
            copies=[(0, 1), (1, 1), (4, 1), (2, 2)],
            load=[1, 1, 1],
        )
    )
    assert shares.kind.tolist() == [1, 0, 0, 1, 0]
    assert shares.eligible.tolist() == [[False, True, True], [True, True, True]]
    assert shares.has_racks is False
    assert shares.need.tolist() == shares.outside.tolist() == [1, 1, 1, 0, 1]
    assert shares.ratio.tolist() == [[[0.0, 1.0, 1.0]], [[0.5, 0.5, 0.5]]]
    assert shares.even.tolist() == [[1, 2, 2], [0, 1, 1], [0, 1, 1]]
    assert shares.lopsided is True
    assert shares.cap.tolist() == [[1, 2, 2], [0, 1, 1], [0, 1, 1]]
    assert shares.limit.tolist() == [[1, 2, 2], [0, 1, 1], [0, 1, 1]]


def test_a_pair_with_more_copies_than_its_cap_may_keep_one_of_them() -> None:
    """The cap is two copies of an owner's tasks on a member; here the member has four."""
    given = problem(
        [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], 3, standbys=[(0, 1), (1, 1), (2, 1), (3, 1), (4, 2)]
    )
    shares = fair_shares(given)
    assert shares.cap.tolist() == [[2, 2, 2]] * 3
    assert shares.limit.tolist() == [[2, 3, 2], [2, 2, 2], [2, 2, 2]]
