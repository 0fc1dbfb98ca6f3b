"""Ledgers in a topic are closed in the test's call, because their event loops stop after it."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Close the ledgers that the test's ``ledger`` made."""
    try:
        return (yield)
    finally:
        for one in getattr(item.funcargs.get("ledger"), "made", ()):  # type: ignore[attr-defined]
            one.close(2.0)
