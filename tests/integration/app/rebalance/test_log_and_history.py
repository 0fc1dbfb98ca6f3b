"""The leader's log line, the ledger's rows and the command ``history`` report the same rounds."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from faust_assigner.app.ledger.files import LedgerFiles
from faust_assigner.app.ledger.rows import decision_rows
from faust_assigner.cli import main
from faust_assigner.ledger import Row, parse
from tests.support.faust_group import WireGroup, make_app
from tests.support.pictures import no_pictures as no_pictures

LOG = "shop-totals-changelog"
TOPICS = {"orders": 6, LOG: 6, "clicks": 3}
LINE = re.compile(
    r"Generation \d+ \(([a-z+]+)\): (\d+) members, \d+ tasks, (\d+) moved, (\d+) cold"
)
PROMOTED = re.compile(r"(\d+) promoted")
#: The trigger, and the numbers of members, moved, cold and promoted tasks.
Told = tuple[str, int, int, int, int]


def led(found: WireGroup, leader: str, folder: Path, at: float) -> None:
    """Play a round; its leader writes the decision to its own ledger file, as a worker does."""
    found.rebalance(leader)
    made = found.apps[leader].assignor.last_round
    ledger = LedgerFiles(folder, leader)
    ledger.put(lambda: decision_rows(made.inputs, made.plan, at=at, config={}))
    ledger.close(30.0)
    assert ledger.counts.dropped == ledger.counts.failed == ledger.counts.skipped == 0


def by_log(lines: list[str]) -> list[Told]:
    """Return the rounds in the leaders' log lines."""
    told = []
    for line in lines:
        if (said := LINE.match(line)) is not None:
            promoted = PROMOTED.search(line)
            numbers = [*map(int, said.groups()[1:]), int(promoted[1]) if promoted else 0]
            told.append((said[1], numbers[0], numbers[1], numbers[2], numbers[3]))
    return told


def by_ledger(folder: Path) -> list[Told]:
    """Return the rounds in the rows of the ledger files; a task is counted once for all its topics."""
    rows = [parse(line) for file in folder.iterdir() for line in file.read_bytes().splitlines()]
    assert all(isinstance(row, Row) for row in rows)
    raw = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    told = []
    for made in sorted((r for r in raw if r["table"] == "decision"), key=lambda r: r["ts"]):
        placed = [
            row
            for row in raw
            if row["table"] == "assignment"
            and row["role"] == "active"
            and row["decision_id"] == made["decision_id"]
        ]
        moved, cold, promoted = (
            tasks_of(row for row in placed if is_meant(row))
            for is_meant in (
                lambda row: row["moved"],
                lambda row: row["moved"] and row["cold"],
                lambda row: row["rule"] == "promoted",
            )
        )
        assert made["moves"] == moved
        told.append((made["trigger"], len(made["members"]), moved, cold, promoted))
    return told


def tasks_of(rows: Any) -> int:
    """Return the number of tasks: topics with one number of partitions move together."""
    return len({(TOPICS[row["topic"]], row["partition"]) for row in rows})


def by_history(out: Path) -> list[Told]:
    """Return the rounds in the report and in the table of moves that the command wrote."""
    moves = [
        row for file in out.glob("moves/*/*.parquet") for row in pq.read_table(file).to_pylist()
    ]
    report: Mapping[str, list[Mapping[str, Any]]] = json.loads((out / "report.json").read_text())
    return [
        (
            row["trigger"],
            row["members"],
            row["tasks_moved"],
            row["tasks_cold"],
            tasks_of(
                move
                for move in moves
                if move["decision_id"] == row["decision_id"] and move["standby_hit"]
            ),
        )
        for row in sorted(report["rebalances"], key=lambda row: row["ts"])
    ]


@pytest.mark.usefixtures("no_pictures")
def test_log_ledger_and_history_tell_of_a_death_and_of_a_new_leader_alike(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker dies, then the leader dies and another worker joins under the next leader."""
    caplog.set_level(logging.INFO, "faust_assigner")
    found, ledger, out = WireGroup(TOPICS), tmp_path / "ledger", tmp_path / "out"
    for name in ("m0", "m1", "m2", "m3"):
        found.add(name, make_app(f"http://{name}:6066", tables=["totals"]), TOPICS)
    led(found, "m0", ledger, 1_000.0)
    found.remove("m3")
    led(found, "m0", ledger, 1_060.0)
    found.remove("m0")
    found.add("m4", make_app("http://m4:6066", tables=["totals"]), TOPICS)
    led(found, "m1", ledger, 1_120.0)
    done = CliRunner().invoke(
        main, ["history", "--no-spark", "--ledger", str(ledger), "--out", str(out)]
    )
    assert done.exit_code == 0, done.output

    told = by_log([record.getMessage() for record in caplog.records])
    assert by_ledger(ledger) == told
    assert by_history(out) == told
    assert [trigger for trigger, *_ in told] == ["first", "leave", "join+leave"]
    (_, _, after_death, _, promoted), (_, _, after_leader, _, taken_over) = told[1:]
    assert 0 < promoted <= after_death
    assert 0 < taken_over <= after_leader
    moved = sum(moves for _, _, moves, _, _ in told)
    cold = sum(colds for _, _, _, colds, _ in told)
    assert f"3 rebalances; {moved} tasks moved, {cold} of them cold" in done.output
