"""The rows of a simulation in a file, with and without pyarrow."""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from faust_assigner.pipeline.simulate.output import write_rows
from faust_assigner.pipeline.simulate.sim_result import SimRow

DAY = dt.date(2026, 11, 21)
FIRST = (
    "shop",
    DAY,
    "000012",
    2**40,
    3,
    24,
    1,
    "ours",
    5,
    1.25,
    6.5,
    2,
    1.75,
    7.5,
    8.0,
    9,
    4,
    11,
    "small",
)
SECOND = (
    "bank",
    DAY,
    "000002",
    7,
    30,
    240,
    0,
    "stock",
    50,
    2.5,
    65.0,
    20,
    3.5,
    75.0,
    80.0,
    90,
    40,
    1,
    "none",
)
ROWS = [SimRow(*FIRST), SimRow(*SECOND)]


def test_rows_without_pyarrow_are_lines_of_json_in_their_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each line has all columns by name; files of a former run and of a dead one are gone."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    folder, dead = tmp_path / "sim_result", tmp_path / ".sim_result.new"
    for stale in (folder, dead):
        stale.mkdir()
        (stale / "part-00009.parquet").touch()
    write_rows(ROWS, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["sim_result"]
    assert [path.name for path in folder.iterdir()] == ["part-00000.jsonl"]
    text = (folder / "part-00000.jsonl").read_text()
    assert text.endswith("}\n")
    told = [json.loads(line) for line in text.splitlines()]
    assert told == [{**row._asdict(), "dt": "2026-11-21"} for row in ROWS]
    assert list(told[0]) == list(SimRow._fields)


def test_rows_with_pyarrow_have_the_types_of_the_table(tmp_path: Path) -> None:
    """A seed needs 64 bits, a count 32, and a day is a date."""
    write_rows(ROWS, tmp_path / "made" / "sim_result")
    (path,) = (tmp_path / "made" / "sim_result").iterdir()
    with pq.ParquetFile(path) as file:
        found = file.read()
    assert found.to_pylist() == [row._asdict() for row in ROWS]
    kinds = {field.name: str(field.type) for field in found.schema}
    names = ("group_id", "dt", "seed", "members", "imbalance", "racks", "state")
    assert [kinds[name] for name in names] == [
        "string", "date32[day]", "int64", "int32", "double", "int32", "string",
    ]  # fmt: skip
