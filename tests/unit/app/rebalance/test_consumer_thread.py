"""The consumer's thread with our parts: the limits of a fetch."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.app.rebalance import consumer_thread
from faust_assigner.app.rebalance.consumer_thread import RepairedThread


async def test_a_fetch_keeps_its_time_and_its_number_of_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Faust's own fetch gets both limits, and the client and the partitions."""
    asked: list[Any] = []

    async def put_back(thread: Any, fetch: Any, consumer: Any, active: Any, **limits: Any) -> Any:
        asked.append((thread, fetch.__name__, consumer, active, limits))
        return {"a batch": []}

    monkeypatch.setattr(consumer_thread, "fetch_or_put_back", put_back)
    thread = object.__new__(RepairedThread)
    client: Any = object()
    found = await thread._fetch_records(client, {"tp"}, timeout=0.3, max_records=7)
    assert found == {"a batch": []}
    limits = {"timeout": 0.3, "max_records": 7}
    assert asked == [(thread, "_fetch_records", client, {"tp"}, limits)]
