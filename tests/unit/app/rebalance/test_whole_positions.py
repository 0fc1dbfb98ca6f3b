"""The positions in a member's metadata: of which partitions they are asked, and when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from faust.types import TP

from faust_assigner.app.rebalance import member
from faust_assigner.app.rebalance.positions import positions_of
from faust_assigner.wire.runs import Runs
from tests.support.faust_group import make_app


def test_positions_are_asked_of_all_that_a_member_has_of_the_subscribed_changelogs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Owned, followed and stored partitions count; only the owned are read to their end at least."""
    asked: list[Any] = []

    def positions_of(*given: Any) -> Any:
        asked.append(given)
        return "the positions"

    monkeypatch.setattr(member, "positions_of", positions_of)
    app: Any = object()
    actives = {"a": Runs.of([1, 4]), "c": Runs.of([5]), "source": Runs.of([1, 4])}
    standbys = {"a": Runs.of([2]), "b": Runs.of([6, 7])}
    on_disk = {"a": [2, 3], "b": [0], "d": [9]}
    found = member._table_positions(app, (actives, standbys, on_disk), ["a", "b", "c", "e"])
    assert found == "the positions"
    assert asked == [
        (
            app,
            {"a": {1, 2, 3, 4}, "b": {0, 6, 7}, "c": {5}, "e": set()},
            {"a": {1, 4}, "b": set(), "c": {5}, "e": set()},
        )
    ]


@pytest.mark.parametrize("error", [OSError, KeyError, RuntimeError, ZeroDivisionError])
def test_positions_that_cannot_be_read_are_unknown_and_not_empty(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    """With empty positions the leader would wait for copies; with unknown ones it does not."""
    monkeypatch.setattr(member, "positions_of", Mock(side_effect=error))
    app: Any = object()
    assert member._table_positions(app, ({"a": [1]}, {}, {}), ["a"]) is None
    assert "move without warm-ups" in caplog.text


def test_claims_that_cannot_be_read_are_unknown_positions_too() -> None:
    """The metadata of the join are sent without positions."""
    app: Any = object()
    assert member._table_positions(app, ({"a": 7}, {}, {}), ["a"]) is None  # type: ignore[dict-item]


def test_a_table_of_which_nothing_is_asked_is_left_out(tmp_path: Path) -> None:
    """So is a changelog without a table here; a table in memory has no position."""
    app = make_app("http://w", tables=["a", "b"], datadir=str(tmp_path), store="rocksdb://")
    logs = [f"shop-{name}-changelog" for name in ("a", "b")]
    for log in logs:
        app.tables.recovery.standby_offsets[TP(log, 3)] = 9
    assert positions_of(app, {logs[1]: {3}, "other": {3}}) == {logs[1]: {3: 10}}
    assert positions_of(app, {}) == {}
