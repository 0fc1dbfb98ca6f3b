"""The hours of a day, its longest standstills, and the rounds with warm-ups."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.pipeline.history.job import run_here
from faust_assigner.pipeline.history.timeline import STANDSTILLS_KEPT
from tests.integration.spark.ledgers import ASSIGNMENT, DECISION, RECOVERY, SAMPLE, START, stamp
from tests.support.pictures import no_pictures as no_pictures
from tests.unit.pipeline.history.made import History, at
from tests.unit.pipeline.history.test_output import rows_of

HOUR = START.replace(minute=0, second=0)


@pytest.fixture(autouse=True)
def _no_pictures(no_pictures: None) -> None:
    """Draw no pictures: they take most of a run's time."""


def members(*names: str) -> list[dict[str, Any]]:
    """Return members with these ids, each with an instance id."""
    told = {"rack": None, "capacity": 1.0, "epoch": 1}
    return [{"member_id": name, "instance_id": f"worker-{name}", **told} for name in names]


def placed(partition: int, **more: Any) -> dict[str, Any]:
    """Return an active placement of the odd decision."""
    return {**ASSIGNMENT, "partition": partition, **more}


def recovered(partition: int, seconds: float, **more: Any) -> dict[str, Any]:
    """Return a recovery of ``seconds``."""
    ended = stamp(START + timedelta(seconds=seconds))
    return {**RECOVERY, "partition": partition, "ended": ended, **more}


def test_an_hour_has_its_members_moves_by_cause_and_longest_standstill() -> None:
    """Of two decisions the later has the members; two partitions of a topic are two tasks."""
    later = {**DECISION, "decision_id": "later", "ts": stamp(START + timedelta(minutes=5))}
    found = rows_of(
        {**DECISION, "members": members("m", "n", "o")},
        placed(0, prev_member_id="n"),
        placed(1, prev_member_id="gone", cold=False),
        placed(2, prev_member_id=None, cold=False),
        placed(3, prev_member_id="m", moved=False, cold=False),
        {**later, "members": members("m", "n")},
        recovered(0, 3.0),
        recovered(1, 8.0),
        recovered(2, 5.0),
    )["timeline"]
    (row,) = found
    assert row["hour"] == HOUR
    assert (row["rebalances"], row["members"], row["recoveries"]) == (2, 2, 3)
    causes = ("tasks_gone", "tasks_balance", "tasks_new", "tasks_cold")
    assert [row[name] for name in causes] == [2, 1, 0, 1]
    assert row["standstill_s"] == 8.0


def test_a_lag_is_the_highest_of_the_hour_and_sums_over_partitions() -> None:
    """A partition without a commit has no lag; a commit beyond an outdated end is no lag."""
    told = [(0, 0, 100, 60), (0, 1, 100, 90), (1, 0, 50, 45), (2, 0, 900, -1), (3, 0, 10, 12)]
    rows = [
        {
            **SAMPLE,
            "partition": partition,
            "ts": stamp(START + timedelta(minutes=minute)),
            "end_offset": end,
            "committed_offset": committed,
        }
        for partition, minute, end, committed in told
    ]
    (row,) = rows_of(*rows)["timeline"]
    assert (row["lag_max"], row["lag_sum"]) == (40, 45)
    assert (row["members"], row["standstill_s"]) == (None, None)


def test_a_sum_of_lags_beyond_a_long_is_the_largest_long() -> None:
    """A writer reports the largest lag for two partitions."""
    most = 2**63 - 1
    rows = [
        {**SAMPLE, "partition": number, "end_offset": most, "committed_offset": 0}
        for number in range(2)
    ]
    (row,) = rows_of(*rows)["timeline"]
    assert (row["lag_max"], row["lag_sum"]) == (most, most)


def test_a_standstill_has_its_member_trigger_and_cause() -> None:
    """The longest comes first; another day's decision gives neither trigger nor cause."""
    found = rows_of(
        {**DECISION, "members": members("m")},
        placed(0, prev_member_id="gone"),
        recovered(0, 3.0),
        recovered(1, 2.0, decision_id="yesterday"),
    )["standstills"]
    assert [
        (row["partition"], row["member"], row["seconds"], row["trigger"], row["cause"])
        for row in found
    ] == [(0, "worker-m", 3.0, "join", "owner gone"), (1, "worker-m", 2.0, None, None)]


def test_each_group_has_its_own_standstills() -> None:
    """A long standstill of a busy group does not hide a short one of a quiet group."""
    found = rows_of(DECISION, recovered(0, 9.0), recovered(0, 1.0, group_id="quiet"))["standstills"]
    assert sorted((row["group_id"], row["seconds"]) for row in found) == [
        (DECISION["group_id"], 9.0),
        ("quiet", 1.0),
    ]


def test_the_longest_standstills_are_kept() -> None:
    """The first standstills are dropped."""
    count = STANDSTILLS_KEPT + 5
    found = rows_of(DECISION, *(recovered(n, float(n)) for n in range(count)))["standstills"]
    assert sorted(row["seconds"] for row in found) == [float(n) for n in range(5, count)]


def test_a_round_with_warm_ups_is_in_no_spread() -> None:
    """The new member of such a round is empty on purpose; the round counts separately."""
    both = members("m", "n")
    waiting = {"decision_id": "waiting", "prev_member_id": "m", "moved": False, "cold": False}
    found = rows_of(
        {**DECISION, "members": both},
        placed(0),
        placed(1, member_id="n"),
        {**DECISION, "decision_id": "waiting", "members": both},
        *(placed(n, **waiting) for n in range(4)),
        {**placed(0, **waiting), "role": "warmup", "member_id": "n"},
    )["balance"]
    (row,) = found
    assert (row["max_spread"], row["idle_members"], row["warmup_rounds"]) == (0.0, 0, 1)


def test_a_day_of_warm_ups_alone_has_no_spread() -> None:
    """Zero would mean an even group."""
    warm = {**placed(0), "role": "warmup", "member_id": "n"}
    (row,) = rows_of({**DECISION, "members": members("m", "n")}, placed(0), warm)["balance"]
    assert (row["max_spread"], row["mean_spread"], row["warmup_rounds"]) == (None, None, 1)


def test_daily_tables_of_an_earlier_version_are_computed_again_from_the_facts(
    tmp_path: Path,
) -> None:
    """Days no longer in the ledger are included; facts and refused lines stay."""
    history = History(tmp_path, fail_if_empty=False)
    history.run(*at("2026-11-20", 1), *at("2026-11-21", 2))
    wanted = history.tables()
    manifest = history.out / "manifest.json"
    told = json.loads(manifest.read_text())
    del told["derived"]
    for day in told["days"].values():
        day["rows"].pop("timeline")
    for path in history.out.glob("timeline/*/*.parquet"):
        path.unlink()
    manifest.write_text(json.dumps(told))
    (history.ledger.folder / "w.jsonl").write_bytes(b"")
    run_here(history.options)
    assert history.tables() == wanted
    assert history.files() == wanted
    generation = json.loads(manifest.read_text())["generation"]
    run_here(history.options)
    assert json.loads(manifest.read_text())["generation"] == generation


def test_hours_are_in_utc() -> None:
    """Half-hour time zones move no line to another hour."""
    moment = datetime(2026, 11, 21, 20, 59, 59, tzinfo=UTC)
    (row,) = rows_of({**SAMPLE, "ts": stamp(moment)})["timeline"]
    assert row["hour"] == HOUR
