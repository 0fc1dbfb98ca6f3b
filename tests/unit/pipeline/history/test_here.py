"""``history --no-spark`` yields the model's answers in a process without Spark."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.pipeline.history.job import run_here
from faust_assigner.pipeline.history.options import HistoryOptions
from tests.integration.spark.ledgers import (
    ASSIGNMENT,
    DECISION,
    Ledger,
    bad,
    bad_lines,
    expected,
    good,
    random_rows,
)
from tests.support.pictures import no_pictures as no_pictures
from tests.support.waiting import wait_until

TABLES = ("movement", "balance", "recovery", "skew")
#: The command with only the packages of extra ``ledger``, without those of extra ``spark``.
WITHOUT_SPARK = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
from faust_assigner.cli import main
main()
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Groups over days, bad lines, repeated lines, and a compressed file."""
    ledger = Ledger(tmp_path / "ledger")
    lines = [line for seed in range(3) for line in random_rows(f"group-{seed}", seed)]
    lines += [good({**ASSIGNMENT, "decision_id": "nowhere"}), *bad_lines()]
    random.Random(1).shuffle(lines)
    ledger.write("a.jsonl.1.gz", lines[:300])
    ledger.write("a.jsonl", [*lines[300:], *lines[250:300]])
    return ledger


def run(*arguments: str) -> Result:
    """Run ``faust-assigner history --no-spark``."""
    return CliRunner().invoke(main, ["history", "--no-spark", *arguments])


def read(out: Path) -> dict[str, Any]:
    """Return the report of report.json."""
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    return found


@pytest.mark.slow
def test_without_pyspark_installed_the_tables_are_the_models(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Every table matches row for row, and every refused line has its place."""
    out = tmp_path / "out"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            WITHOUT_SPARK,
            "history",
            "--no-spark",
            "--ledger",
            str(ledger.folder),
            "--out",
            str(out),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    report, wanted = read(out), expected(ledger.lines)
    for table in TABLES:
        assert len(report[table]) == len(wanted[table])
        for row, model in zip(report[table], wanted[table], strict=True):
            assert list(row) == list(model)
            assert row == {
                key: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
                for key, value in model.items()
            }
        stored = ds.dataset(out / table, partitioning="hive").to_table()
        assert stored.num_rows == len(report[table])
        assert set(stored.column_names) == set(report[table][0])
    assert {(row["file"], row["line"]) for row in report["quarantine"]} == ledger.refused
    assert "placements without decision      1" in done.stdout
    page = (out / "report.html").read_text()
    wanted = {
        "members",
        "standstill",
        "causes",
        "releases",
        "owners",
        "balance",
        "recovery",
        "skew",
    }
    assert wanted <= set(re.findall(r'id="picture-(\w+)"', page))
    assert page.count("<svg") == page.count('id="picture-')


@pytest.mark.slow
@pytest.mark.processes
def test_of_two_runs_into_one_folder_the_second_says_so_and_the_first_is_whole(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The second run could remove files of the first; its exit code asks for a retry (75)."""
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "faust_assigner.cli",
        "history",
        "--no-spark",
        "--ledger",
        str(ledger.folder),
        "--out",
        str(out),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as first:
        try:
            wait_until(lambda: (out / "_REPLACING").exists() or first.poll() is not None)
            first.send_signal(signal.SIGSTOP)
            assert (out / "_REPLACING").exists(), "the first was done before it could be stopped"
            second = subprocess.run(command, capture_output=True, text=True)
            first.send_signal(signal.SIGCONT)
            said = first.communicate()[1]
        finally:
            first.kill()
    assert (second.returncode, second.stderr.count("\n")) == (75, 1), second.stderr
    assert f"another run writes to {out}" in second.stderr
    assert first.returncode == 0, said
    assert {row["file"] for row in read(out)["quarantine"]} == {file for file, _ in ledger.refused}
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["weights", "--no-spark", "--out", "w.json"],
        ["simulate", "--no-spark", "--out", "s", "--scenarios", "2", "--jobs", "1"],
    ],
)
def test_the_other_commands_need_no_pyspark_either(
    command: list[str], ledger: Ledger, tmp_path: Path
) -> None:
    """The extra ``ledger`` is enough."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *command, "--ledger", str(ledger.folder)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("no_pictures")
def test_empty_and_refused_ledgers_are_held_to_the_same(ledger: Ledger, tmp_path: Path) -> None:
    """The exit code is 1 and no file is written, as on Spark."""
    out = str(tmp_path / "out")
    assert run("--ledger", str(ledger.folder), "--out", out).exit_code == 0
    (tmp_path / "empty").mkdir()
    before = (tmp_path / "out" / "report.json").read_bytes()
    assert run("--ledger", str(tmp_path / "empty"), "--out", out).exit_code == 1
    assert run("--ledger", str(ledger.folder), "--out", out, "--max-refused", "3").exit_code == 1
    assert (tmp_path / "out" / "report.json").read_bytes() == before


def test_the_page_tells_each_rebalance_and_who_owns_what(tmp_path: Path) -> None:
    """The page has the period, sources, version, moves with causes, and members by instance id."""
    ledger = Ledger(tmp_path / "ledger")
    members = [
        {
            "member_id": f"id-{n}",
            "rack": None,
            "capacity": 1.0,
            "epoch": 1,
            "instance_id": f"worker-{n}",
        }
        for n in (1, 2)
    ]
    placed = [
        {
            **ASSIGNMENT,
            "decision_id": "d2",
            "topic": topic,
            "partition": p,
            "member_id": f"id-{p % 2 + 1}",
            "prev_member_id": "gone" if p == 0 else "id-1",
            "moved": p != 2,
            "cold": p == 1,
        }
        for topic in ("orders", "orders-changelog")
        for p in range(4)
    ]
    placed.append(
        {
            **ASSIGNMENT,
            "decision_id": "d2",
            "topic": "g-__assignor-__leader",
            "partition": 0,
            "member_id": "id-1",
        }
    )
    ledger.write(
        "w.jsonl",
        [
            good(
                {
                    **DECISION,
                    "decision_id": "d2",
                    "members": members,
                    "trigger": "join",
                    "solve_ms": 12.5,
                }
            ),
            *map(good, placed),
            bad(b"x", "JSON"),
        ],
    )
    report = run_here(HistoryOptions((str(ledger.folder),), str(tmp_path / "out")))
    (rebalance,) = report.tables["rebalances"]
    assert (
        rebalance["trigger"],
        rebalance["members"],
        rebalance["tasks_moved"],
        rebalance["tasks_cold"],
    ) == ("join", 2, 3, 1)
    assert (rebalance["tasks_orphaned"], rebalance["moved"], rebalance["solve_ms"]) == (1, 7, 12.5)
    owners = report.tables["owners"]
    assert [(row["member"], row["tasks"], row["active"]) for row in owners] == [
        ("worker-1", 2, "orders 0, 2; orders-changelog 0, 2"),
        ("worker-2", 2, "orders 1, 3; orders-changelog 1, 3"),
    ]
    assert dict(report.headline())["tasks moved"] == "3"
    page = (tmp_path / "out" / "report.html").read_text()
    for said in (
        "period: 2026-11-21 20:00:00 to",
        f"read from: {ledger.folder}",
        "written by: faust-assigner ",
        "Who owns what now",
        "worker-2",
        "1 without a living owner, 2 for balance",
    ):
        assert said in page
