"""Recoveries of the ledger: long ones, and tables of which only small recoveries are known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from faust_assigner.deploy.pauses import FEW, Recoveries, Recovery

START = datetime(2026, 11, 21, 3, 2, tzinfo=UTC)


def row(topic: str, took: timedelta, **more: Any) -> Any:
    """A row of the ledger's table of recoveries."""
    base = {"group_id": "g", "topic": topic, "source": "replay", "records": 7}
    return {**base, "started": START, "ended": START + took, **more}


def test_a_recovery_has_its_whole_time_and_its_own_facts() -> None:
    """A large table may take more than a day, and an empty table a fraction of a second."""
    rows = [
        row("a", timedelta(days=1, seconds=5)),
        row("b", timedelta(milliseconds=250), source="disk", records=0),
        row("c", timedelta(seconds=9), group_id="other"),
    ]
    assert Recoveries.of(rows, "g", "o") == Recoveries(
        known=(
            Recovery(topic="a", source="replay", records=7, seconds=86_405.0),
            Recovery(topic="b", source="disk", records=0, seconds=0.25),
        ),
        origin="o",
    )
    assert Recoveries().expected_s({"a"}, 0, warm=True) is None


def test_the_time_to_open_a_table_is_known_from_small_recoveries_of_any_kind() -> None:
    """A warm table opens as fast as a cold one with few records; other tables count without own ones."""
    small = Recoveries.of([row("a", timedelta(seconds=3))], "g", "o")
    assert [small.expected_s({"a"}, 0, warm=is_warm) for is_warm in (True, False)] == [3.0, 3.0]
    assert small.expected_s({"b"}, 0, warm=False) == 3.0
    assert small.expected_s({"a"}, None, warm=False) is None
    assert small.expected_s({"a"}, FEW, warm=False) is None
