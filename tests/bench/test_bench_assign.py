"""benchmarks/assign.py runs and prints; its sizes do not depend on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.assign import Case, OurGroup, StockGroup, measure


@pytest.mark.slow
def test_it_prints_a_row_for_each_case(tmp_path: Path) -> None:
    """The smallest case, our assignor beside stock's, run as a command."""
    out = tmp_path / "figures.json"
    done = subprocess.run(
        [
            sys.executable,
            "benchmarks/assign.py",
            "--repeat",
            "1",
            "--largest",
            "100",
            "--json",
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "100 x 1,000" in done.stdout
    ((ours, stock),) = [(row["ours"], row["stock"]) for row in json.loads(out.read_text())]
    assert ours.keys() == stock.keys() > {"join"}
    assert min(ours["unchanged_ms"], ours["join_ms"]) > 0


@pytest.fixture(autouse=True)
def _keep_logging() -> object:
    """Restore logging, which the benchmark silences for its own process."""
    import logging

    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_a_group_of_300_with_three_tables_fits_into_kafkas_record() -> None:
    """All metadata and all assignments stay below 1 MiB, including the directory of owners."""
    found = measure(Case(300, 1_000, tables=3), OurGroup, 1)
    assert found["record"] <= 2**20
    assert found["sync"] / 301 > 1_000, "the directory was left out"


@pytest.mark.slow
def test_join_metadata_is_twenty_times_smaller_than_stocks() -> None:
    """Measured at 100 members; the factor grows to 122 at 300 x 3,000 and 407 at 1,000 x 10,000."""
    case = Case(100, 1_000)
    assert measure(case, StockGroup, 1)["join"] > 20 * measure(case, OurGroup, 1)["join"]
