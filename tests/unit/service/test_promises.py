"""The page that lists the service's promises with the tests that show them."""

from __future__ import annotations

import re

from tests.support.named import ROOT, is_test


def test_every_promise_of_the_service_names_tests_that_exist() -> None:
    """The rows are the first assigner's tests, its holes, the invariants, and the faults."""
    page = (ROOT / "docs/reference/service-tests.md").read_text()
    rows = [line.split("|")[2].strip() for line in page.splitlines() if line.startswith("| ")]
    named = [re.findall(r"`([^`]+)`", row) for row in rows if row not in ("shown by", "---")]
    assert [test for row in named for test in row if not is_test(f"tests/{test}")] == []
    assert all(named), "a promise that nothing shows"
    assert len(named) == 28 + 13 + 11 + 25 + 12
