"""How long a worker that stops waits for brokers: for all its last requests together, not for each."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from faust_assigner.app.repairs import goodbye
from faust_assigner.app.repairs.goodbye import LEAST_S, Goodbye


async def test_what_one_wait_uses_the_next_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end each has the least time only, and ``over`` is set for whoever waits beside them."""
    now = 100.0
    monkeypatch.setattr(goodbye, "monotonic", lambda: now)
    it = Goodbye(SimpleNamespace(should_stop=True), seconds=4.0)

    async def answered(seconds: float) -> str:
        nonlocal now
        now += seconds
        return "answered"

    assert await it.within("Last flush", answered, 3.0) == "answered"
    assert (it.left, it.over.is_set()) == (1.0, False)
    assert await it.within("Last commit", answered, 1.5) == "answered"
    assert (it.left, it.over.is_set()) == (-0.5, True)
    async with asyncio.timeout(LEAST_S + 20.0):
        assert await it.within("Leaving the group", asyncio.sleep, 3600.0) is None


async def test_a_last_request_has_its_least_time_when_all_is_used_up() -> None:
    """A broker that answers at once is not taken for a silent one."""
    it = Goodbye(SimpleNamespace(should_stop=True), seconds=-1.0)
    assert await it.within("Leaving the group", asyncio.sleep, 0.01, "answered") == "answered"


async def test_an_app_that_goes_on_uses_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits while it works are not the goodbye."""
    now = 100.0
    monkeypatch.setattr(goodbye, "monotonic", lambda: now)
    it = Goodbye(SimpleNamespace(should_stop=False), seconds=4.0)

    async def answered() -> str:
        nonlocal now
        now += 60.0
        return "answered"

    assert await it.within("Commit", answered) == "answered"
    assert (it.left, it.over.is_set()) == (4.0, False)
