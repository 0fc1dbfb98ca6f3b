"""A slice of ``make walk``: rebalances of random lives, every promise checked."""

from __future__ import annotations

import pytest

from tests.property.walk import live, walk
from tests.support.examples import examples


@pytest.mark.timeout(1500)
def test_random_lives_break_no_promise() -> None:
    """A1-A8 hold after every rebalance; a violation prints its life and round."""
    rounds = examples(1_600, 200)
    played, found = walk(rounds, seed=4)
    assert found == []
    assert played == rounds


@pytest.mark.slow
@pytest.mark.parametrize(("life", "rounds"), [("3002:42", 21), ("3002:914", 121)])
def test_what_waits_may_be_exchanged_for_what_is_nearer(life: str, rounds: int) -> None:
    """A new copy is complete; exchanging two waiting tasks may save a warm-up."""
    assert live(life, rounds) == (rounds, [])
