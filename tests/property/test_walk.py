"""A slice of ``make walk``: rebalances of random lives, every promise checked."""

from __future__ import annotations

import pytest

from tests.property.walk import walk
from tests.support.examples import examples


@pytest.mark.timeout(1500)
def test_random_lives_break_no_promise() -> None:
    """A1-A8 after every rebalance; any line names the life and the round that replay it."""
    rounds = examples(20_000, 400)
    played, found = walk(rounds, seed=4)
    assert found == []
    assert played == rounds
