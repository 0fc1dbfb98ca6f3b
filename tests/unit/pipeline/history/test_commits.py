"""The steps of a commit, its files, and the index of decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from faust_assigner.pipeline.history.store import (
    PENDING,
    TABLES,
    Day,
    Manifest,
    Store,
    table_schema,
)
from faust_assigner.pipeline.one_writer import FolderInUse
from tests.unit.pipeline.history.made import stored


def rows(table: str, *names: str, group: str = "g") -> pa.Table:
    """Return rows of decisions without values in other columns."""
    schema = table_schema(table)
    empty: dict[str, Any] = dict.fromkeys(schema.names)
    told = [{**empty, "group_id": group, "decision_id": name} for name in names]
    return pa.Table.from_pylist(told, schema=schema)


def commit(store: Store, days: dict[str, Day | None], **more: Any) -> Manifest:
    """Commit days upon the present manifest."""
    before = store.load()
    refused = (store.read_refused(before), more.pop("refused", 0))
    return store.commit(before, days, refused=refused, sources=more.pop("sources", {}))


def decided(store: Store, day: str, *names: str, group: str = "g") -> Day:
    """Write the decisions of a day."""
    return store.write(day, {"decisions": rows("decisions", *names, group=group)})


def files(store: Store, folder: Path) -> dict[str, int]:
    """Return the data files and their rows, without empty files."""
    found = {
        str(path.relative_to(folder)): pq.ParquetFile(path).metadata.num_rows
        for path in folder.rglob("*.parquet")
    }
    return {name: count for name, count in found.items() if count and "_index" not in name}


def where(store: Store, *names: str) -> dict[tuple[str, str], str]:
    """Return the days of decisions, from the index."""
    return store.day_of(store.load(), pa.array(names, pa.string()))


def test_a_commit_writes_its_manifest_after_its_files_and_removes_the_mark_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark warns readers while files of the former version remain."""
    store = Store(str(tmp_path))
    commit(store, {"2026-11-01": decided(store, "2026-11-01", "a")})
    before = store.load()
    store.begin(before)
    steps: list[str] = []
    for name in ("write", "write_parquet", "remove"):
        act = getattr(store.folder, name)

        def noted(*given: Any, name: str = name, act: Any = act) -> Any:
            place = [part for part in given if isinstance(part, str)]
            steps.append(f"{name} {'/'.join(place)}")
            return act(*given)

        monkeypatch.setattr(store.folder, name, noted)
    commit(store, {"2026-11-01": decided(store, "2026-11-01", "a", "b")})
    kinds = [step.partition("/")[0] for step in steps]
    at = kinds.index("write manifest.json")
    assert kinds[:at] == [
        "write_parquet decisions",
        "write_parquet _index",
        "write_parquet quarantine",
    ]
    assert kinds[-1] == "remove _REPLACING"
    old = f"remove decisions/dt=2026-11-01/{before.days['2026-11-01'].token}.parquet"
    assert at < steps.index(old) < len(steps) - 1


def test_a_commit_has_the_files_of_its_days_alone(tmp_path: Path) -> None:
    """A day is replaced, another removed, another kept, and pending rows are removed."""
    store = Store(str(tmp_path))
    first = {
        **{f"2026-11-0{day}": decided(store, f"2026-11-0{day}", "a") for day in (1, 2, 3)},
        PENDING: store.write(PENDING, {"placements": rows("placements", "p")}),
    }
    commit(store, dict(first))
    second = store.write("2026-11-02", {"samples": pa.Table.from_pylist(
        [{**dict.fromkeys(table_schema("samples").names), "group_id": "g"}],
        schema=table_schema("samples"),
    )})  # fmt: skip
    made = commit(store, {"2026-11-02": second, "2026-11-01": None, PENDING: None}, refused=4)
    assert made.days == {"2026-11-02": second, "2026-11-03": first["2026-11-03"]}
    assert list(made.days) == ["2026-11-02", "2026-11-03"]
    assert (made.generation, made.refused, made.derived) == (2, 4, 3)
    assert files(store, tmp_path) == {
        f"samples/dt=2026-11-02/{second.token}.parquet": 1,
        f"decisions/dt=2026-11-03/{first['2026-11-03'].token}.parquet": 1,
    }
    assert not (tmp_path / "_pending").exists()
    for day in ("2026-11-01", "2026-11-02"):
        assert not (tmp_path / "decisions" / f"dt={day}").exists()
    assert store.load() == made
    assert commit(store, {}, sources={"files": {}}).generation == 3


def test_a_table_without_any_day_has_an_empty_file_also_beside_pending_rows(tmp_path: Path) -> None:
    """The file shows the columns; it goes with the first day and returns after the last."""
    store = Store(str(tmp_path))
    pending = store.write(PENDING, {"placements": rows("placements", "p")})
    day = decided(store, "2026-11-01", "a")
    commit(store, {"2026-11-01": day, PENDING: pending})
    empty = {path.parent.name for path in tmp_path.glob("*/empty.parquet")}
    assert empty == set(TABLES) - {"decisions"}
    found = pq.ParquetFile(tmp_path / "placements" / "empty.parquet").schema_arrow
    assert found.names == [column.name for column in TABLES["placements"]]
    commit(store, {"2026-11-01": None})
    assert (tmp_path / "decisions" / "empty.parquet").exists()
    assert store.load().dates == []


def test_the_index_follows_decisions_over_days_and_months(tmp_path: Path) -> None:
    """Each month has a file; a decision id in two groups has two days."""
    store = Store(str(tmp_path))
    commit(
        store,
        {
            "2026-10-31": decided(store, "2026-10-31", "a", "b"),
            "2026-11-01": decided(store, "2026-11-01", "a", group="h"),
            "2026-11-02": decided(store, "2026-11-02", "c"),
        },
    )
    assert where(store, "a", "b", "c", "x") == {
        ("g", "a"): "2026-10-31",
        ("g", "b"): "2026-10-31",
        ("h", "a"): "2026-11-01",
        ("g", "c"): "2026-11-02",
    }
    before = store.load().index
    commit(
        store,
        {
            "2026-10-31": decided(store, "2026-10-31", "b"),
            "2026-10-30": decided(store, "2026-10-30", "a"),
        },
    )
    after = store.load().index
    assert list(after) == ["2026-10", "2026-11"]
    assert (after["2026-11"], after["2026-10"] == before["2026-10"]) == (before["2026-11"], False)
    assert where(store, "a", "c") == {
        ("g", "a"): "2026-10-30",
        ("h", "a"): "2026-11-01",
        ("g", "c"): "2026-11-02",
    }
    commit(store, {"2026-11-02": None, PENDING: None})
    assert where(store, "c", "b") == {("g", "b"): "2026-10-31"}
    names = {path.stem for path in (tmp_path / "_index").iterdir()}
    assert names == set(store.load().index.values())


def test_a_mark_is_tidied_with_the_files_that_no_manifest_names(tmp_path: Path) -> None:
    """Without a mark a folder stays unchanged."""
    store = Store(str(tmp_path))
    made = commit(store, {"2026-11-01": decided(store, "2026-11-01", "a")})
    decided(store, "2026-11-05", "left")
    store.write(PENDING, {"placements": rows("placements", "left")})
    store.tidy(made)
    assert len(files(store, tmp_path)) == 3
    store.begin(made)
    assert (tmp_path / "_REPLACING").exists()
    assert len(files(store, tmp_path)) == 3
    store.tidy(made)
    assert len(files(store, tmp_path)) == 1
    assert not (tmp_path / "_REPLACING").exists()
    store.abandon()


@pytest.mark.parametrize("ahead", [1, 2, -1])
def test_another_generation_than_the_one_before_stops_a_commit(tmp_path: Path, ahead: int) -> None:
    """The manifest of the other run stays."""
    store = Store(str(tmp_path))
    for name in ("a", "b"):
        commit(store, {"2026-11-01": decided(store, "2026-11-01", name)})
    before = store.load()
    path = tmp_path / "manifest.json"
    other = path.read_text().replace('"generation": 2', f'"generation": {2 + ahead}')
    path.write_text(other)
    nothing = store.read_refused(before)
    with pytest.raises(FolderInUse, match="another run has written to"):
        store.commit(before, {}, refused=(nothing, 0), sources={})
    assert path.read_text() == other


def test_only_tables_with_rows_have_files_and_counts(tmp_path: Path) -> None:
    """Reading a table without rows yields its columns, or the requested columns."""
    store = Store(str(tmp_path))
    entry = store.write(
        "2026-11-01", {"decisions": rows("decisions", "a", "b"), "placements": rows("placements")}
    )
    assert entry.rows == {"decisions": 2}
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    found = store.read("decisions", "2026-11-01", entry, ["decision_id"])
    assert found.to_pylist() == [{"decision_id": "a"}, {"decision_id": "b"}]
    for day in (None, entry):
        empty = store.read("placements", "2026-11-01", day)
        assert (empty.num_rows, empty.schema) == (0, table_schema("placements"))
        assert store.read("placements", "2026-11-01", day, ["role"]).schema.names == ["role"]


def test_drafts_of_a_dead_run_are_removed_and_replaced(tmp_path: Path) -> None:
    """A kill before the rename of an empty file left its draft, and the table kept no columns."""
    store = stored(tmp_path, {})
    (tmp_path / "movement" / "empty.parquet").unlink()
    drafts = [tmp_path / "movement" / ".empty.parquet.1.tmp", tmp_path / ".manifest.json.1.tmp"]
    for path in drafts:
        path.touch()
    (tmp_path / "_REPLACING").touch()
    store.tidy(store.load())
    assert not any(path.exists() for path in drafts)
    assert (tmp_path / "movement" / "empty.parquet").exists()
