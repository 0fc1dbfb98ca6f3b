"""The costs of a standby: the sum of a lower term never reaches the next term."""

from __future__ import annotations

from faust_assigner.standbys import board, repair

#: A handover is at most two moves.
MOVES = 2 * repair._CHAIN


def test_a_chain_of_lower_terms_never_reaches_the_next() -> None:
    """The case computes the table of algorithms.md#the-ladder-of-costs from the constants."""
    uneven = MOVES * board._MOST * board.UNEVEN
    changed = MOVES * board.CHANGED + uneven
    fresh = MOVES * board.FRESH + changed
    overload = MOVES * board._MOST * board.OVERLOAD + fresh
    assert uneven < board.CHANGED
    assert changed < board.FRESH
    assert fresh < board.OVERLOAD
    assert overload < board.BALANCE
    assert 2 * board._STEEPEST * board.BALANCE < board.HOME_RACK
    assert MOVES * board._MOST * board.OVERLOAD_WITH_RACKS < board.HOME_RACK
    assert MOVES * board.HOME_RACK <= board.SAME_RACK
    assert MOVES * (board.SAME_RACK + board.HOME_RACK) < board.NEVER


def test_what_is_not_allowed_is_told_apart_from_every_sum_of_what_is() -> None:
    """try_moves stops at half of NEVER; no allowed move reaches that cost."""
    allowed = (
        board.SAME_RACK + board.HOME_RACK + board._MOST * board.OVERLOAD_WITH_RACKS + board.FRESH
    )
    assert allowed + board._STEEPEST * board.BALANCE < board.NEVER // 2
