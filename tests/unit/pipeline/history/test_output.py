"""What stands in the folder after runs that differ, died, or found it broken."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from faust_assigner.ledger import Row, parse
from faust_assigner.pipeline.history import plots
from faust_assigner.pipeline.history.here import history_of, publish_here
from faust_assigner.pipeline.history.job import HistoryOptions
from faust_assigner.pipeline.history.report import About, Report, _spans, to_html
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.one_writer import FolderInUse, only_writer
from faust_assigner.pipeline.schema import HISTORY
from faust_assigner.pipeline.sinks import PlainFolder
from tests.integration.spark.ledgers import (
    ASSIGNMENT,
    DECISION,
    RECOVERY,
    SAMPLE,
    START,
    Ledger,
    good,
    stamp,
)


def taken(*rows: dict[str, Any]) -> list[Row]:
    """Rows as a ledger would give them."""
    found = [parse(good(row).data) for row in rows]
    assert all(isinstance(row, Row) for row in found)
    return found  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of a run, and only one test looks at them."""
    if "picture" not in request.node.name:
        monkeypatch.setattr(plots, "draw", lambda report: {})


def moved(folder: Path) -> list[int]:
    """Column ``moved`` of the table movement, as it is stored."""
    found: list[int] = (
        ds.dataset(folder / "movement", partitioning="hive").to_table()["moved"].to_pylist()
    )
    return found


@pytest.fixture
def ledgers(tmp_path: Path) -> tuple[HistoryOptions, HistoryOptions]:
    """Two ledgers of one day that differ in what moved, for one folder."""
    found = []
    for name, count in (("one", 1), ("other", 3)):
        ledger = Ledger(tmp_path / name)
        placed = [good({**ASSIGNMENT, "partition": n}) for n in range(count)]
        ledger.write("w.jsonl", [good(DECISION), good(SAMPLE), *placed])
        found.append(HistoryOptions((str(ledger.folder),), str(tmp_path / "out")))
    return found[0], found[1]


def test_days_that_a_dead_run_replaced_are_written_again(
    ledgers: tuple[HistoryOptions, HistoryOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """report.json is of the run before and its rows are ours again: under the mark nothing is believed."""
    one, other = ledgers
    publish_here(one)
    with monkeypatch.context() as patch:
        publish = PlainFolder.publish
        patch.setattr(
            PlainFolder,
            "publish",
            lambda folder, name: 1 / 0 if name == "report.html" else publish(folder, name),
        )
        with pytest.raises(ZeroDivisionError):
            publish_here(other)
    assert moved(tmp_path / "out") == [3]
    publish_here(one)
    assert moved(tmp_path / "out") == [1]


@pytest.mark.parametrize("too_large", ["report.html", "report.json", "movement.png"])
def test_a_disk_that_is_full_leaves_the_history_of_the_run_before(
    ledgers: tuple[HistoryOptions, HistoryOptions],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    too_large: str,
) -> None:
    """Pages and pictures are larger than tables: where one has no room, no table is replaced either."""
    one, other = ledgers
    monkeypatch.setattr(plots, "draw", lambda report: {"movement": b"a picture"})
    publish_here(one)
    out = tmp_path / "out"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    create = PlainFolder._create

    def full(folder: PlainFolder, content: bytes, *names: str) -> None:
        if names[-1] == too_large:
            raise OSError(28, "No space left on device")
        create(folder, content, *names)

    with monkeypatch.context() as patch:
        patch.setattr(PlainFolder, "_create", full)
        with pytest.raises(OSError, match="No space"):
            publish_here(other)
    assert {path: path.read_bytes() for path in before} == before
    assert not (out / "_REPLACING").exists()
    publish_here(other)
    assert moved(out) == [3]


@pytest.mark.parametrize(
    "broken", [b"{oops", b"[]", b'{"movement": 5}', b'{"movement": [5]}', b"{}"]
)
def test_a_report_that_is_broken_is_replaced(
    ledgers: tuple[HistoryOptions, HistoryOptions], tmp_path: Path, broken: bytes
) -> None:
    """Whatever stands in report.json, the next run writes all tables."""
    one, other = ledgers
    publish_here(one)
    (tmp_path / "out" / "report.json").write_bytes(broken)
    publish_here(other)
    assert moved(tmp_path / "out") == [3]


DAY, NEXT = "2026-11-21", "2026-11-22"


def at(day: str, hour: int, moved: int = 1, **more: Any) -> list[Any]:
    """A decision of that hour, and its placements."""
    identity = {"decision_id": f"{day}-{hour}"}
    said = {**DECISION, **identity, "ts": f"{day}T{hour:02}:00:00.000Z", **more}
    return [good(said), *(good({**ASSIGNMENT, **identity, "partition": n}) for n in range(moved))]


@pytest.mark.parametrize(
    ("since", "until", "hours", "kept"),
    [
        (None, None, (1, 2, 3), False),
        (None, None, (1, 2), False),
        (None, None, (2,), True),
        (None, None, (), True),
        (DAY, NEXT, (1, 2, 3), False),
        (f"{DAY}T00:00:01", None, (1, 2, 3), True),
        (None, f"{DAY}T23:59:59", (1, 2, 3), True),
        (NEXT, None, (1, 2, 3), True),
    ],
)
def test_a_day_is_replaced_by_a_run_that_covers_it_and_kept_otherwise(
    tmp_path: Path, since: str | None, until: str | None, hours: tuple[int, ...], kept: bool
) -> None:
    """Fewer decisions than stand, or a period that begins or ends within the day."""
    ledger, period = Ledger(tmp_path / "ledger"), Period.parse(since, until, now=START)
    options = HistoryOptions((str(ledger.folder),), str(tmp_path / "out"), period=period)
    full = replace(options, period=Period())
    ledger.write("w.jsonl", [*at(DAY, 1), *at(DAY, 2), *at(NEXT, 1)])
    publish_here(full)
    ledger.write("w.jsonl", [line for hour in hours for line in at(DAY, hour, 5)] + at(NEXT, 1))
    report = publish_here(options)
    day = date.fromisoformat(DAY)
    assert (day in report.about.kept) == kept
    found = {row["dt"]: row["moved"] for row in report.tables["movement"]}
    assert found[day] == (2 if kept else 5 * len(hours))
    assert moved(tmp_path / "out")[0] == found[day]
    assert [row["dt"] for row in report.tables["balance"]] == sorted(found)


def test_a_day_with_fewer_placements_than_stand_is_kept(tmp_path: Path) -> None:
    """All its decisions are still there, but a part of their lines has been pruned."""
    ledger = Ledger(tmp_path / "ledger")
    options = HistoryOptions((str(ledger.folder),), str(tmp_path / "out"))
    ledger.write("w.jsonl", at(DAY, 1, 5))
    publish_here(options)
    ledger.write("w.jsonl", at(DAY, 1, 2))
    (row,) = publish_here(options).tables["movement"]
    assert (row["decisions"], row["assigned"]) == (1, 5)


def test_a_group_keeps_its_day_while_anothers_is_replaced(tmp_path: Path) -> None:
    """Each group prunes its own ledger."""
    ledger = Ledger(tmp_path / "ledger")
    options = HistoryOptions((str(ledger.folder),), str(tmp_path / "out"))
    ledger.write("a.jsonl", [good({**each.row, "group_id": "a"}) for each in at(DAY, 1)])
    ledger.write("b.jsonl", at(DAY, 1))
    publish_here(options)
    (ledger.folder / "a.jsonl").unlink()
    ledger.write("b.jsonl", [*at(DAY, 1), *at(DAY, 2)])
    report = publish_here(options)
    found = {row["group_id"]: row["decisions"] for row in report.tables["movement"]}
    assert found == {"a": 1, "g": 2}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "1 days of earlier runs (2026-11-21 to 2026-11-21)" in page


@pytest.mark.parametrize("lost", ["recovery", "partition_sample"])
def test_recoveries_and_samples_are_kept_by_their_own_counts(tmp_path: Path, lost: str) -> None:
    """Each worker's file holds them, the leader's the decisions: one may go without the other."""
    ledger = Ledger(tmp_path / "ledger")
    options = HistoryOptions((str(ledger.folder),), str(tmp_path / "out"))
    lines = [good(DECISION), good(ASSIGNMENT), good(RECOVERY), good(SAMPLE)]
    ledger.write("w.jsonl", lines)
    before = publish_here(options)
    ledger.write("w.jsonl", [each for each in lines if each.row["table"] != lost])
    after = publish_here(options)
    assert after.tables == before.tables


def test_the_history_of_a_run_that_died_while_it_was_replaced_is_kept(tmp_path: Path) -> None:
    """The old report.json then lies beside its place."""
    ledger = Ledger(tmp_path / "ledger")
    options = HistoryOptions((str(ledger.folder),), str(tmp_path / "out"))
    ledger.write("w.jsonl", [*at(DAY, 1), *at(NEXT, 1)])
    before = publish_here(options)
    (tmp_path / "out" / "_staging").mkdir()
    (tmp_path / "out" / "report.json").rename(tmp_path / "out" / "_staging" / "old-report.json")
    ledger.write("w.jsonl", at(NEXT, 1))
    assert publish_here(options).tables["movement"] == before.tables["movement"]


def test_all_days_that_are_kept_are_named_in_order(tmp_path: Path) -> None:
    """Also where the report that stands is damaged and the one before it is not."""
    ledger = Ledger(tmp_path / "ledger")
    options = HistoryOptions((str(ledger.folder),), str(tmp_path / "out"))
    days = (DAY, NEXT, "2026-11-23")
    ledger.write("w.jsonl", [line for day in days for line in at(day, 1)])
    publish_here(options)
    out = tmp_path / "out"
    (out / "_staging").mkdir()
    (out / "_staging" / "old-report.json").write_bytes((out / "report.json").read_bytes())
    (out / "report.json").write_text("{")
    ledger.write("w.jsonl", at("2026-11-23", 1))
    report = publish_here(options)
    assert report.about.kept == (date.fromisoformat(DAY), date.fromisoformat(NEXT))


def test_a_picture_of_a_table_that_is_empty_now_goes(
    ledgers: tuple[HistoryOptions, HistoryOptions], tmp_path: Path
) -> None:
    """Nothing stands that could be kept and no sample is left, so no heaviest partitions are drawn."""
    one, _ = ledgers
    publish_here(one)
    assert (tmp_path / "out" / "skew.png").exists()
    Ledger(tmp_path / "one").write("w.jsonl", [good(DECISION), good(ASSIGNMENT)])
    (tmp_path / "out" / "report.json").write_bytes(b"{oops")
    publish_here(one)
    assert not (tmp_path / "out" / "skew.png").exists()


# -- folders ---------------------------------------------------------------------------------


def test_a_file_that_is_replaced_is_there_all_the_while(tmp_path: Path) -> None:
    """The old one is moved aside and goes last: at each step one of them can be read."""
    folder = PlainFolder(str(tmp_path))
    folder.write("report.json", b"old")
    seen: list[bool] = []
    rename = folder._rename

    def look() -> None:
        seen.append(any(path.read_bytes() in (b"old", b"new") for path in tmp_path.glob("**/*report.json")
                        if path.parent == tmp_path or path.name.startswith("old-")))  # fmt: skip

    def watched(source: tuple[str, ...], target: tuple[str, ...]) -> None:
        look()
        rename(source, target)
        look()

    folder._rename = watched  # type: ignore[method-assign]
    folder.write("report.json", b"new")
    assert seen
    assert all(seen)
    assert (tmp_path / "report.json").read_bytes() == b"new"


def test_days_that_were_staged_before_are_not_published(tmp_path: Path) -> None:
    """A run that died left days of its own beside."""
    folder = PlainFolder(str(tmp_path))
    row = {"group_id": "g", "policy": "p", "decisions": 1, "assigned": 1, "moved": 1, "cold_moves": 0,
           "standby_hits": 0}  # fmt: skip
    for day in (1, 2):
        folder.stage_rows("movement", [{**row, "dt": datetime(2026, 11, day, tzinfo=UTC).date()}])
    folder.publish("movement")
    assert folder.children("movement") == ["dt=2026-11-02"]


def test_lines_that_were_set_aside_have_no_days(tmp_path: Path) -> None:
    """Their table is one file, with rows and without."""
    folder = PlainFolder(str(tmp_path))
    refused = {"file": "a.jsonl", "line": 7, "reason": "no JSON"}
    for rows in ([refused, refused], []):
        folder.stage_rows("quarantine", rows)
        folder.publish("quarantine")
        (file,) = (tmp_path / "quarantine").iterdir()
        assert pq.read_table(file).to_pylist() == rows


def test_a_day_that_was_not_staged_is_gone(tmp_path: Path) -> None:
    """Its rows are no part of what the table says now."""
    folder = PlainFolder(str(tmp_path))
    (tmp_path / "movement" / "dt=2026-11-01").mkdir(parents=True)
    folder.publish_day("movement", "2026-11-01")
    assert folder.children("movement") == []


def test_a_run_that_fails_leaves_its_mark(tmp_path: Path) -> None:
    """Until one that succeeds takes it away."""
    folder = PlainFolder(str(tmp_path))
    with pytest.raises(ZeroDivisionError), folder.replacing():
        raise ZeroDivisionError
    assert folder.exists("_REPLACING")
    with folder.replacing():
        pass
    assert not folder.exists("_REPLACING")


def test_a_run_that_writes_nothing_leaves_no_folder_behind(tmp_path: Path) -> None:
    """The lock is on the folder itself; one that stood there before stays."""
    with (
        only_writer(str(tmp_path / "new")),
        pytest.raises(FolderInUse),
        only_writer(str(tmp_path / "new")),
    ):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "mine").mkdir()
    with only_writer(f"file://{tmp_path}/mine"):
        pass
    assert (tmp_path / "mine").exists()


# -- tables ----------------------------------------------------------------------------------


def test_of_decisions_that_disagree_under_one_id_the_earliest_stands() -> None:
    """Whoever wrote first, and in whatever order they are read."""
    later = {**DECISION, "ts": stamp(START.replace(hour=22)), "policy": "later"}
    for rows in ((DECISION, later), (later, DECISION)):
        assert [row["policy"] for row in history_of(taken(*rows)).tables["movement"]] == ["p"]


def test_a_member_that_is_told_twice_is_one() -> None:
    """It is idle once, and its load is counted once."""
    member = DECISION["members"][0]  # type: ignore[index]
    found = history_of(taken({**DECISION, "members": [member, member]}))
    assert found.tables["balance"][0]["idle_members"] == 1


def test_a_counter_that_was_reset_takes_nothing_away() -> None:
    """An amount below zero is none."""
    rows = [
        {**SAMPLE, "records_in": 10},
        {**SAMPLE, "records_in": -7, "ts": stamp(START.replace(minute=1))},
    ]
    assert [row["records_in"] for row in history_of(taken(*rows)).tables["skew"]] == [10]


def test_recoveries_and_placements_that_are_told_twice_count_once() -> None:
    """And standbys are no placements of actives."""
    standby = {**ASSIGNMENT, "role": "standby", "member_id": "n", "partition": 5}
    found = history_of(taken(DECISION, ASSIGNMENT, ASSIGNMENT, standby, RECOVERY, RECOVERY)).tables
    assert [(row["assigned"], row["moved"]) for row in found["movement"]] == [(1, 1)]
    assert [row["recoveries"] for row in found["recovery"]] == [1]


# -- the page --------------------------------------------------------------------------------


def report(**tables: list[dict[str, Any]]) -> Report:
    """A report with these tables and nothing in the others."""
    return Report({name: tables.get(name, []) for name in HISTORY}, about=About(version="1"))


def test_the_newest_rebalance_leads_the_page_and_times_are_utc() -> None:
    """Rows are in order of time; the page turns them round."""
    times = [START, START.replace(hour=22)]
    told = Report(
        report().tables, {"rebalances": [{"time": at} for at in times]}, about=About(version="1")
    )
    page = to_html(told, {}, title="t").decode()
    assert page.index("2026-11-21 22:00:00") < page.index("2026-11-21 20:00:00")


def test_refused_lines_that_are_not_shown_are_counted() -> None:
    """Also those beyond what the table holds."""
    row = {"file": "f", "line": 1, "reason": "r"}
    told = Report(report(quarantine=[row]).tables, refused=5_001, about=About(version="1"))
    assert "5,000" in to_html(told, {}, title="t").decode()


@pytest.mark.parametrize(
    ("numbers", "said"), [([0, 1, 2, 3, 7], "0-3, 7"), ([2, 0], "0, 2"), ([5], "5"), ([], "")]
)
def test_partition_numbers_are_told_as_spans(numbers: list[int], said: str) -> None:
    """Neighbours together, others apart."""
    assert _spans(numbers) == said
