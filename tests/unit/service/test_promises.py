"""The page that tells what the service promises, and which test shows it."""

from __future__ import annotations

import re

from tests.support.named import ROOT, is_test


def test_every_promise_of_the_service_names_tests_that_exist() -> None:
    """Row by row: the first assigner's tests, where such a service breaks, what always holds, what fails."""
    page = (ROOT / "docs/reference/service-tests.md").read_text()
    rows = [line.split("|")[2].strip() for line in page.splitlines() if line.startswith("| ")]
    named = [re.findall(r"`([^`]+)`", row) for row in rows if row not in ("shown by", "---")]
    assert [test for row in named for test in row if not is_test(f"tests/{test}")] == []
    assert all(named), "a promise that nothing shows"
    assert len(named) == 28 + 13 + 11 + 25 + 12
