"""The history as a store: days grow, lines merge in any order, a crash leaves a whole run."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history import plots
from faust_assigner.pipeline.history.job import run_here
from faust_assigner.pipeline.history.store import PENDING, Store
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.one_writer import FolderInUse, only_writer
from faust_assigner.pipeline.sinks import DamagedFile, Folder
from tests.integration.spark.ledgers import (
    ASSIGNMENT,
    DECISION,
    RECOVERY,
    START,
    bad,
    good,
    random_rows,
    stamp,
)
from tests.support.examples import examples
from tests.unit.pipeline.history.made import DAY, NEXT, History, at


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no pictures: they take most of a run's time."""
    monkeypatch.setattr(plots, "draw", lambda report: {})


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A history without a run so far."""
    return History(tmp_path)


def test_days_that_were_pruned_from_the_ledger_stay(history: History) -> None:
    """Later runs may read none or some of the day's lines, or other days."""
    history.run(*at(DAY, 1, 5), *at(DAY, 2))
    before = history.tables()
    for lines in (at(NEXT, 1), at(DAY, 2), at(DAY, 1, 2)):
        history.run(*lines)
        now = history.tables()
        assert {name: now[name] for name in before} == before
    assert [row["decisions"] for row in history.daily("movement")] == [2, 1]


@pytest.mark.slow
def test_a_year_of_which_the_ledger_holds_a_month_at_a_time_loses_nothing(tmp_path: Path) -> None:
    """The result equals the history of a ledger with the whole year."""
    days = [f"2026-{month:02}-{day:02}" for month in range(1, 13) for day in (1, 25)]
    whole, pruned = History(tmp_path / "whole"), History(tmp_path / "pruned")
    whole.run(*(line for day in days for line in at(day, 3)))
    for start in range(0, len(days), 2):
        pruned.run(*(line for day in days[start : start + 2] for line in at(day, 3)))
    assert pruned.tables() == whole.tables()
    assert len(pruned.daily("movement")) == len(days) == 24
    assert pruned.files().keys() == pruned.tables().keys()


@pytest.mark.parametrize("seed", range(examples(3, 1)))
def test_any_order_of_runs_ends_in_the_same_rows(tmp_path: Path, seed: int) -> None:
    """Lines are late or repeated, placements come early, and decisions conflict across days."""
    draw = random.Random(seed)
    lines = [line for each in range(2) for line in random_rows(f"g{each}", seed, decisions=4)]
    decision = lines[0].row
    assert decision is not None
    later = {**decision, "ts": decision["ts"].replace(day=28), "policy": "zombie"}
    lines += [good(later), *draw.sample(lines, 20)]
    whole, parts = History(tmp_path / "whole"), History(tmp_path / "parts")
    whole.run(*lines)
    draw.shuffle(lines)
    size = examples(25, 50)
    for start in range(0, len(lines), size):
        parts.run(*lines[start : start + size])
    assert parts.tables() == whole.tables()
    assert parts.files().keys() >= {"moves 2026-11-21", "owners 2026-11-21"} - {
        name for name in ("moves 2026-11-21", "owners 2026-11-21") if name not in whole.files()
    }


def test_an_earlier_line_moves_its_decision_to_the_earlier_day(history: History) -> None:
    """The placements and the longest recovery move too; the empty later day disappears."""
    history.run(*at(NEXT, 1, 2), good({**RECOVERY, "decision_id": f"{NEXT}-1"}))
    history.run(good({**DECISION, "decision_id": f"{NEXT}-1", "ts": f"{DAY}T05:00:00.000Z"}))
    assert {name for name in history.tables() if NEXT in name} == set()
    (row,) = history.daily("rebalances")
    assert (row["assigned"], row["ts"].hour, row["longest_recovery_s"]) == (2, 5, 0.0)
    assert not list(history.out.glob(f"*/dt={NEXT}"))


def test_a_later_line_of_a_decision_leaves_it_on_its_day(history: History) -> None:
    """A writer repeated the decision after midnight; its placements stay on its day."""
    history.run(*at(DAY, 23, moved=2))
    first = history.tables()
    later = at(DAY, 23, moved=2, ts=f"{NEXT}T00:10:00.000Z")
    history.run(*later)
    assert history.tables() == first


def test_placements_wait_for_their_decision(history: History) -> None:
    """Waiting placements are counted, and take effect in the run with the decision."""
    decision, *placed = at(DAY, 1, 3)
    ended = stamp(START.replace(hour=21))
    recovery = good({**RECOVERY, "decision_id": f"{DAY}-1", "ended": ended})
    assert history.run(*at(NEXT, 1), *placed, recovery).without_decision == 3
    assert history.run(decision).without_decision == 0
    first, _ = history.daily("rebalances")
    assert (first["assigned"], first["longest_recovery_s"]) == (3, 3600.0)
    assert PENDING not in Store(str(history.out)).load().days


def test_a_run_without_news_writes_nothing(history: History) -> None:
    """Repeated lines change no file; new lines of a day leave the other days' files."""
    history.run(*at(DAY, 1), *at(NEXT, 1))

    def files() -> dict[str, int]:
        return {str(p): p.stat().st_ino for p in history.out.rglob("*") if p.is_file()}

    before = files()
    history.run(*at(NEXT, 1), *at(DAY, 1), *at(DAY, 1))
    assert files() == before
    history.run(*at(NEXT, 2))
    changed = {name for name in files() if name not in before and "dt=" in name}
    assert changed
    assert all(NEXT in name for name in changed)


class Killed(BaseException):
    """The process has been killed."""


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_run_killed_at_any_write_leaves_the_store_of_the_run_before_or_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Each write or removal fails in turn; the next run equals a run from nothing."""
    lines = [*at(DAY, 1, 2), *at(DAY, 2), *at(NEXT, 1), bad(b"x", "JSON")]
    more = [*at(DAY, 3, 2), *at("2026-11-23", 1), good({**ASSIGNMENT, "decision_id": "none"})]
    wanted = History(tmp_path / "wanted", stream=stream)
    wanted.run(*lines, *more)
    first = History(tmp_path / "first", stream=stream)
    first.run(*lines)
    before, after = first.tables(), wanted.tables()
    kills = 0
    while True:
        mine = History(tmp_path / "first", f"killed-{kills}", stream=stream)
        shutil.copytree(first.out, mine.out)
        with monkeypatch.context() as patch:
            for name in ("_create", "remove"):
                patch.setattr(Folder, name, _countdown(getattr(Folder, name), left := [kills]))
            try:
                mine.run(*lines, *more)
                break
            except Killed:
                assert mine.tables() in (before, after)
        mine.run(*lines, *more)
        assert mine.tables() == after
        assert mine.files() == {n: r for n, r in mine.tables().items() if PENDING not in n}
        assert not (mine.out / "_REPLACING").exists()
        assert (mine.out / "report.json").exists()
        kills += 1
    assert kills > 10
    assert left


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_without_news_completes_one_that_died_behind_its_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """No file has two versions, no mark remains, and a table without a day has an empty file."""
    history = History(tmp_path, stream=stream)
    history.run(*at(DAY, 1))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "_sweep", Mock(side_effect=Killed))
        patch.setattr(Folder, "remove", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            history.run(*at(DAY, 1), *at(DAY, 2, 2))
    assert history.files() != history.tables()
    shutil.rmtree(history.out / "samples")  # a crash before this table's empty file
    run_here(history.options)
    assert history.files() == history.tables()
    assert not (history.out / "_REPLACING").exists()
    assert (history.out / "samples" / "empty.parquet").exists()


def _countdown(act: Any, left: list[int]) -> Any:
    """Return ``act``, which fails at the call with ``left`` below zero."""

    def counted(*given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        return act(*given)

    return counted


def test_a_stream_reads_each_line_once_and_knows_its_number(tmp_path: Path) -> None:
    """The second visit reads appended lines; a refused line has its number in the whole file."""
    history = History(tmp_path, stream=True)
    first = [*at(DAY, 1), bad(b"x", "JSON")]
    history.run(*first)
    report = history.run(*first, *at(NEXT, 1), bad(b"y", "JSON"))
    assert [row["line"] for row in report.tables["quarantine"]] == [3, 6]
    assert report.refused == 2
    manifest = Store(str(history.out)).load()
    (progress,) = manifest.sources["files"].values()
    assert progress["lines"] == 6
    again = run_here(history.options)
    assert Store(str(history.out)).load() == manifest
    assert again.tables == report.tables


def test_a_stream_does_not_refuse_the_line_that_is_being_written(tmp_path: Path) -> None:
    """A half-written line is not refused; the line counts once it is whole."""
    history = History(tmp_path, stream=True)
    (line,) = at(DAY, 1, 0)
    history.ledger.write("w.jsonl", at(NEXT, 1), end=b"\n" + line.data[:30])
    assert run_here(history.options).refused == 0
    history.ledger.write("w.jsonl", [*at(NEXT, 1), line])
    assert run_here(history.options).refused == 0
    assert len(history.daily("decisions")) == 2


def test_a_period_adds_what_is_in_it_and_removes_nothing(tmp_path: Path) -> None:
    """A partly covered day keeps its stored lines."""
    history = History(tmp_path)
    history.run(*at(DAY, 1))
    since = Period.parse(f"{DAY}T02:00", f"{DAY}T03:00", now=START)
    cut = History(tmp_path, period=since)
    cut.run(*at(DAY, 1, 9), *at(DAY, 2), *at(DAY, 4))
    assert [(row["decisions"], row["assigned"]) for row in cut.daily("movement")] == [(2, 2)]


def test_a_history_of_an_earlier_version_is_left_alone(history: History) -> None:
    """Its rows cannot be extended; the error names a remedy."""
    history.out.mkdir()
    (history.out / "report.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"earlier version.*empty --out"):
        history.run(*at(DAY, 1))
    assert [path.name for path in history.out.iterdir()] == ["report.json"]


@pytest.mark.parametrize("text", ['{"format": 1}', "[1]", "7", "{", '{"format": 1, "extra": 2}'])
def test_a_damaged_manifest_is_an_error_that_names_it(history: History, text: str) -> None:
    """The run overwrites no file."""
    history.run(*at(DAY, 1))
    (history.out / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match=r"manifest\.json is damaged"):
        history.run(*at(DAY, 2))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("generation", None),
        ("days", []),
        ("days", {DAY: {"token": "a", "rows": {"decisions": "1"}}}),
        ("days", {"yesterday": {"token": "a", "rows": {}}}),
        ("index", {"2026-11": 7}),
        ("sources", []),
        ("refused", 1 << 70),
    ],
)
def test_a_manifest_with_a_value_of_another_type_is_damaged(
    history: History, name: str, value: object
) -> None:
    """The message names the file; there is no traceback from the run's middle."""
    history.run(*at(DAY, 1))
    path = history.out / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(ConfigError, match=r"manifest\.json is damaged"):
        history.run(*at(DAY, 2))


@pytest.mark.parametrize("field", ["generation", "days", "index", "quarantine", "sources"])
def test_a_manifest_without_a_field_is_damaged(history: History, field: str) -> None:
    """With a default in place of the field, the run would remove the files of all days."""
    history.run(*at(DAY, 1))
    path = history.out / "manifest.json"
    told = json.loads(path.read_text())
    del told[field]
    path.write_text(json.dumps(told))
    before = sorted(history.out.rglob("*"))
    with pytest.raises(ConfigError, match=field):
        history.run(*at(DAY, 2))
    assert sorted(history.out.rglob("*")) == before


@pytest.mark.parametrize(
    ("where", "value"),
    [("files", []), ("files", {"w.jsonl": {"at": 1}}), ("topics", {"ledger": {"0": "7"}})],
)
def test_a_damaged_position_is_an_error_that_says_so(
    tmp_path: Path, where: str, value: object
) -> None:
    """The positions belong to the ledgers, so the store does not check them."""
    history = History(tmp_path, stream=True)
    history.run(*at(DAY, 1))
    path = history.out / "manifest.json"
    told = json.loads(path.read_text())
    told["sources"][where] = value
    path.write_text(json.dumps(told))
    with pytest.raises(ConfigError, match="positions in the history's manifest are damaged"):
        history.run(*at(DAY, 2))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _fewer_rows(path: Path) -> None:
    pq.write_table(pq.ParquetFile(path).read().slice(1), path)


def _other_columns(path: Path) -> None:
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.rename_columns([f"{name}2" for name in rows.column_names]), path)


def _other_type(path: Path) -> None:
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.set_column(0, rows.column_names[0], pa.array([1] * len(rows))), path)


@pytest.mark.parametrize(
    "damage", [_cut, _empty, _pipe, _fewer_rows, _other_columns, _other_type, Path.unlink]
)
def test_a_damaged_file_of_rows_is_an_error_that_names_it(history: History, damage: Any) -> None:
    """The run neither ends with a traceback nor writes a report without the rows."""
    history.run(*at(DAY, 1, 2))
    (path,) = (history.out / "placements" / f"dt={DAY}").iterdir()
    damage(path)
    with pytest.raises((DamagedFile, FileNotFoundError), match=path.name):
        history.run(*at(DAY, 2))


def test_a_manifest_that_another_run_wrote_meanwhile_is_not_replaced(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store has no lock against the other run."""
    history.run(*at(DAY, 1))
    begin = Store.begin

    def overtaken(store: Store, manifest: Any) -> None:
        begin(store, manifest)
        text = (history.out / "manifest.json").read_text()
        (history.out / "manifest.json").write_text(
            text.replace('"generation": 1', '"generation": 2')
        )

    monkeypatch.setattr(Store, "begin", overtaken)
    with pytest.raises(FolderInUse, match="meanwhile"):
        history.run(*at(DAY, 2))


def test_a_run_during_another_run_changes_no_file(history: History) -> None:
    """The rows, the manifest and the page stay those of the other run."""
    history.run(*at(DAY, 1))
    before = {file: file.read_bytes() for file in history.out.rglob("*") if file.is_file()}
    with only_writer(str(history.out)), pytest.raises(FolderInUse):
        history.run(*at(DAY, 2))
    assert before == {f: f.read_bytes() for f in history.out.rglob("*") if f.is_file()}
    assert history.run(*at(DAY, 2)).tables


def test_moves_name_their_cause(history: History) -> None:
    """The owner was gone or alive, or there was no owner; a ledger has no name of a dead owner."""
    members = [{"member_id": m, "capacity": 1.0, "epoch": 1} for m in ("a", "b")]
    before = {"t": "gone", "u": "b", "v": None}
    start = {**DECISION, "members": members, "decision_id": "d0", "trigger": "first"}
    new = {
        **ASSIGNMENT,
        "decision_id": "d0",
        "topic": "s",
        "member_id": "a",
        "prev_member_id": None,
    }
    placed = [
        good({**ASSIGNMENT, "topic": topic, "member_id": "a", "prev_member_id": owner})
        for topic, owner in before.items()
    ]
    history.run(good(start), good(new), good({**DECISION, "members": members}), *placed)
    assert [(row["topic"], row["cause"]) for row in history.daily("moves")] == [
        ("s", "no owner before"),
        ("t", "owner gone"),
        ("u", "balance"),
        ("v", "owner gone"),
    ]


def test_an_amount_beyond_a_long_is_cut_and_does_not_wrap(history: History) -> None:
    """The two samples have the largest long."""
    from tests.integration.spark.ledgers import SAMPLE

    most = 2**63 - 1
    two = [good({**SAMPLE, "records_in": most, "ts": f"{DAY}T0{n}:00:00.000Z"}) for n in (1, 2)]
    history.run(*two)
    assert [(row["records_in"], row["share"]) for row in history.daily("skew")] == [(most, 1.0)]
