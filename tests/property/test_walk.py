"""A slice of ``make walk``: rebalances of random lives, every promise checked."""

from __future__ import annotations

import pytest

from tests.property.walk import live, walk
from tests.support.examples import examples


@pytest.mark.timeout(1500)
def test_random_lives_break_no_promise() -> None:
    """A1-A8 after every rebalance; any line names the life and the round that replay it."""
    rounds = examples(20_000, 400)
    played, found = walk(rounds, seed=4)
    assert found == []
    assert played == rounds


def test_a_task_may_move_again_where_others_are_on_their_way() -> None:
    """In this life a warm-up begins and another task's copy has nothing to read: that one goes first."""
    assert live("3002:42", 21) == (21, [])
