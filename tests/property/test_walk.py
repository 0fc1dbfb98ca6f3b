"""A slice of ``make walk``: twenty thousand rebalances of random lives, every promise checked."""

from __future__ import annotations

import pytest

from tests.property.walk import walk


@pytest.mark.timeout(1500)
def test_twenty_thousand_rebalances_break_no_promise() -> None:
    """A1-A8 after every one; any line names the life and the round that replay it."""
    played, found = walk(20_000, seed=4, processes=2)
    assert found == []
    assert played == 20_000
