"""The consumer thread's fetch: records of sources and of standbys in one batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import RecordTooLargeError
from faust.types import TP

from faust_assigner.app.repairs.fetching import fetch_or_put_back

SOURCE, STANDBY = TP("orders", 0), TP("log", 0)


async def test_an_error_of_a_standby_costs_no_record_of_a_source() -> None:
    """aiokafka has moved the source's position by then: it is set back, and the error is passed on."""
    sought: dict[TP, int] = {}

    async def fetch(_: Any, wanted: Any, **limits: Any) -> Any:
        if STANDBY in wanted:
            raise RecordTooLargeError("log")
        return {SOURCE: [SimpleNamespace(offset=7), SimpleNamespace(offset=8)]}

    thread = SimpleNamespace(app=SimpleNamespace(
        in_recovery=False, tables=SimpleNamespace(changelog_topics={"log"})))
    with pytest.raises(RecordTooLargeError):
        await fetch_or_put_back(thread, fetch, SimpleNamespace(seek=sought.__setitem__), {SOURCE, STANDBY})
    assert sought == {SOURCE: 7}
