"""Unit tests run in a time zone that is hours and a half from UTC."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _far_from_utc() -> Iterator[None]:
    """Let a local time in place of a time in UTC fail a test, whatever the machine's zone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()
