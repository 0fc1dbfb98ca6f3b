"""Which Delta tables a visit writes, and which days of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.pipeline.history.delta import DeltaTables
from faust_assigner.pipeline.history.store import PENDING, Day, Manifest, Store


class Recorded(DeltaTables):
    """Tables that record each call of their writer, and fail at the table ``fails_at``."""

    def __init__(self, folder: Path, fails_at: str = "") -> None:
        super().__init__(None, Store(str(folder)))  # type: ignore[arg-type]
        self.fails_at = fails_at
        self.written: list[tuple[str, Any, Any]] = []

    def _bring(self, table: str, stands: Mapping[str, str], wanted: Mapping[str, str]) -> None:
        if table == self.fails_at:
            raise ConnectionError(table)
        self.written.append((table, dict(stands), dict(wanted)))


FIRST = Manifest(
    days={
        "2026-01-01": Day("a", {"decisions": 1, "moves": 2}),
        PENDING: Day("p", {"placements": 1}),
    },
    quarantine="q",
)
SECOND = Manifest(
    days={**FIRST.days, "2026-01-02": Day("b", {"decisions": 1})},
    quarantine="q",
)


def test_only_tables_whose_days_changed_are_written_again(tmp_path: Path) -> None:
    """The second visit has decisions of a new day, and nothing else; the third has no news."""
    first, second, third = (Recorded(tmp_path) for _ in range(3))
    first.publish(FIRST)
    second.publish(SECOND)
    third.publish(SECOND)
    by_table = {table: wanted for table, _, wanted in first.written}
    assert by_table["moves"] == by_table["decisions"] == {"2026-01-01": "a"}
    assert (by_table["placements"], by_table["quarantine"]) == ({}, {"all": "q"})
    before, after = {"2026-01-01": "a"}, {"2026-01-01": "a", "2026-01-02": "b"}
    assert second.written == [("decisions", before, after)]
    assert third.written == []


def test_the_next_visit_completes_an_interrupted_one(tmp_path: Path) -> None:
    """The tables before the failure are not written twice, the others are."""
    whole, broken, next_one = (
        Recorded(tmp_path / "whole"),
        Recorded(tmp_path / "out", fails_at="moves"),
        Recorded(tmp_path / "out"),
    )
    whole.publish(FIRST)
    with pytest.raises(ConnectionError):
        broken.publish(FIRST)
    next_one.publish(FIRST)
    assert broken.written
    assert next_one.written[0][0] == "moves"
    assert broken.written + next_one.written == whole.written


def test_a_format_is_refused_without_spark(tmp_path: Path) -> None:
    """A process without Spark cannot write Delta's tables."""
    asked = ["history", "--ledger", str(tmp_path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*asked, "--no-spark", "--format", "delta"])
    assert done.exit_code == 2
    assert "--format delta needs Spark" in done.output
    assert not (tmp_path / "out").exists()
