"""The day of each fact: its storage, its move to an earlier day, and dropped facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history import merge, plots, refused
from faust_assigner.pipeline.history.store import PENDING, TABLES, Store
from tests.integration.spark.ledgers import ASSIGNMENT, DECISION, RECOVERY, bad, good
from tests.unit.pipeline.history.made import DAY, NEXT, History, at

EARLIER = ("2026-09-20", "2026-10-20")


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no pictures: they take most of a run."""
    monkeypatch.setattr(plots, "draw", lambda report: {})


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A history without a run so far."""
    return History(tmp_path)


def decision(decision_id: str, day: str) -> Any:
    """Return a line of a decision at five o'clock of the day."""
    return good({**DECISION, "decision_id": decision_id, "ts": f"{day}T05:00:00.000Z"})


def test_the_day_of_a_decision_is_found_in_the_index_of_any_month(history: History) -> None:
    """The index has a file for each month with a day, and none for pending facts."""
    orphan = good({**ASSIGNMENT, "decision_id": "none"})
    days = (*EARLIER, DAY)
    history.run(*(line for day in days for line in at(day, 1)), orphan)
    store = Store(str(history.out))
    manifest = store.load()
    found = store.day_of(manifest, pa.array([f"{day}-1" for day in days], pa.string()))
    assert found == {("g", f"{day}-1"): day for day in days}
    assert list(manifest.index) == ["2026-09", "2026-10", "2026-11"]
    assert PENDING in manifest.days


def test_decisions_of_one_day_move_to_the_day_of_the_earlier_line_of_each(history: History) -> None:
    """The placements move too; a day without facts disappears from the history."""
    history.run(*at(NEXT, 1, 1), *at(NEXT, 2, 2))
    history.run(decision(f"{NEXT}-1", EARLIER[0]), decision(f"{NEXT}-2", EARLIER[1]))
    assert Store(str(history.out)).load().dates == list(EARLIER)
    rows = [(row["decision_id"], row["assigned"]) for row in history.daily("rebalances")]
    assert rows == [(f"{NEXT}-1", 1), (f"{NEXT}-2", 2)]


def test_a_recovery_is_of_the_day_on_which_it_began(history: History) -> None:
    """The end and the decision's day do not matter."""
    night = {"started": f"{DAY}T23:59:00.000Z", "ended": f"{NEXT}T00:01:00.000Z"}
    history.run(*at(NEXT, 1), good({**RECOVERY, **night, "decision_id": f"{NEXT}-1"}))
    assert len(history.tables()[f"recoveries {DAY}"]) == 1
    assert f"recoveries {NEXT}" not in history.tables()


@pytest.mark.parametrize("in_one_run", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
def test_of_lines_that_disagree_about_a_decision_the_earliest_and_then_the_smallest_stands(
    history: History, reverse: bool, in_one_run: bool
) -> None:
    """The order of the lines does not matter."""
    said = [("05", "b"), ("05", "a"), ("04", "c"), ("06", "0")]
    for lines in (said[:2], said):
        told = [
            good({**DECISION, "ts": f"{DAY}T{hour}:00:00.000Z", "policy": policy})
            for hour, policy in (lines[::-1] if reverse else lines)
        ]
        for visit in [told] if in_one_run else [[line] for line in told]:
            history.run(*visit)
        (row,) = history.daily("decisions")
        expected = (5, "a") if lines is not said else (4, "c")
        assert (row["ts"].hour, row["policy"]) == expected


@pytest.mark.parametrize("in_one_run", [True, False])
@pytest.mark.parametrize("minutes", [(10, 20, 30), (30, 20, 10)])
def test_a_decision_keeps_its_longest_recovery(
    history: History, minutes: tuple[int, ...], in_one_run: bool
) -> None:
    """The order of the lines does not matter."""
    ended = [
        good(
            {
                **RECOVERY,
                "partition": n,
                "started": f"{DAY}T20:00:00.000Z",
                "ended": f"{DAY}T20:{m}:00.000Z",
            }
        )
        for n, m in enumerate(minutes)
    ]
    for visit in [ended] if in_one_run else [[line] for line in ended]:
        history.run(good(DECISION), *visit)
    (row,) = history.daily("decisions")
    assert row["longest_recovery_s"] == 1800.0


def test_placements_that_wait_are_bounded_and_those_that_sort_first_are_dropped(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger with missing decisions does not fill the disk."""
    monkeypatch.setattr(merge, "PENDING_KEPT", 2)
    history.run(*(good({**ASSIGNMENT, "partition": n}) for n in range(4)))
    assert [row["partition"] for row in history.tables()[f"placements {PENDING}"]] == [2, 3]


def test_the_same_placements_that_wait_are_not_written_again(history: History) -> None:
    """The second run adds a day and leaves the file of pending placements unchanged."""
    orphan = good({**ASSIGNMENT, "decision_id": "none"})
    history.run(*at(DAY, 1), orphan)
    before = Store(str(history.out)).load().days[PENDING]
    history.run(*at(NEXT, 1), orphan)
    assert Store(str(history.out)).load().days[PENDING] == before


def test_a_table_without_a_day_has_an_empty_file_until_it_has_one(history: History) -> None:
    """A reader of the folder finds the columns, and later only the days' files."""
    history.run(decision("lonely", DAY))
    empty = history.out / "moves" / "empty.parquet"
    found = pq.ParquetFile(empty).read()
    assert (found.num_rows, found.schema.names) == (0, [column.name for column in TABLES["moves"]])
    history.run(*at(NEXT, 1, 2))
    assert history.tables()[f"moves {NEXT}"]
    assert not empty.exists()


def test_a_history_of_a_later_format_is_an_error_that_names_both_formats(history: History) -> None:
    """The manifest stays unchanged."""
    history.run(*at(DAY, 1))
    manifest = history.out / "manifest.json"
    later = manifest.read_text().replace('"format": 1', '"format": 2')
    manifest.write_text(later)
    with pytest.raises(ConfigError, match="has format 2, this version reads 1"):
        history.run(*at(DAY, 2))
    assert manifest.read_text() == later


def test_files_of_a_run_that_was_killed_go_also_from_days_that_later_runs_do_not_touch(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run reads a ledger without the killed run's lines."""
    history.run(*at(DAY, 1))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            history.run(*at(NEXT, 1))
    assert any(NEXT in name for name in history.files())
    history.run(*at(DAY, 2))
    assert history.files() == history.tables()


def test_refused_lines_beyond_those_that_are_kept_are_counted(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the report and the manifest have the count."""
    monkeypatch.setattr(refused, "KEPT", 2)
    report = history.run(*at(DAY, 1), *(bad(b"x", "JSON") for _ in range(4)))
    assert (report.refused, len(report.tables["quarantine"])) == (4, 2)
    assert Store(str(history.out)).load().refused == 4
