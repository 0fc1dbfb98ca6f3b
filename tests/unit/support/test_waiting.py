"""The time limits of tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.waiting import PATIENCE_S

TESTS = Path(__file__).resolve().parents[2]


def test_a_tests_limit_is_longer_than_its_waits() -> None:
    """Otherwise pytest-timeout ends the test before the wait reports its condition."""
    short = {
        f"{path.relative_to(TESTS)}: {limit} s"
        for path in TESTS.rglob("*.py")
        for limit in re.findall(r"mark\.timeout\((\d+)\)", path.read_text())
        if int(limit) < 2 * PATIENCE_S
    }
    assert not short
