"""``faust-assigner why`` as a command: files in, a timeline out."""

from __future__ import annotations

import configparser
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.cli.why import _parse_time
from tests.unit.story.ledgers import told


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return the folder of two workers' ledgers after the death of m1."""
    found = told()
    found.leave("m1").round()
    for name, lines in found.ledgers.items():
        (tmp_path / f"{name}.jsonl").write_bytes(b"".join(lines))
    return tmp_path


def command(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner(env={"COLUMNS": "130"}).invoke(main, ["why", *arguments])


def test_a_partition_and_a_member_are_told_from_files(ledger: Path) -> None:
    """The output has the headline, the day, the rule and the remedies."""
    done = command("orders/2", "--ledger", str(ledger))
    assert done.exit_code == 0, done.output
    first, day, *_ = done.stdout.splitlines()
    assert first.startswith("orders/2 moved from w1 to ")
    assert day.split() == ["2026-11-21", "UTC"]
    assert "rule: it lost its owner and goes to a holder of its state" in done.stdout
    assert "avoided by: w1 still there: it stays with w1" in done.stdout
    done = command("w1", "--ledger", str(ledger))
    assert done.stdout.startswith("w1 is not in the group by the last decision"), done.output


def test_json_has_the_same(ledger: Path) -> None:
    """The JSON is a single object."""
    found = json.loads(command("orders/2", "--ledger", str(ledger), "--json").stdout)
    assert found["subject"] == "orders/2"
    assert found["avoided_by"][0]["change"] == "w1 still there"
    assert [event["at"] for event in found["events"]] == sorted(e["at"] for e in found["events"])


def test_files_are_read_without_an_extra(ledger: Path) -> None:
    """A worker's pod has the base install, without pyarrow, matplotlib, pandas and pyspark."""
    block = (
        "import sys; sys.modules |= dict.fromkeys(('pyarrow', 'matplotlib', 'pandas', 'pyspark'))"
    )
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{block}; from faust_assigner.cli import main; main()",
            *("why", "orders/2", "--ledger", str(ledger)),
        ],
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("orders/2 moved from w1 to ")
    base = configparser.ConfigParser()
    base.read(Path(__file__).parents[3] / "setup.cfg")
    assert "\nfsspec" in base["options.extras_require"]["clients"]


def test_what_is_not_there_is_one_line(ledger: Path) -> None:
    """The exit code is 1 for a subject absent from the ledger and 2 for a wrong time or folder."""
    done = command("orders/99", "--ledger", str(ledger))
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert command("orders/2", "--ledger", str(ledger), "--at", "noon").exit_code == 2
    assert command("orders/2", "--ledger", str(ledger / "nowhere")).exit_code == 2


def test_a_time_of_day_is_the_last_one() -> None:
    """At two o'clock, 03:02 is yesterday's; a full date stays as given; a zone counts."""
    now = datetime(2026, 11, 23, 2, 0, tzinfo=UTC)
    assert (
        datetime.fromtimestamp(_parse_time("03:02", now), UTC).isoformat()[:16]
        == "2026-11-22T03:02"
    )
    assert (
        datetime.fromtimestamp(_parse_time("01:02", now), UTC).isoformat()[:16]
        == "2026-11-23T01:02"
    )
    assert _parse_time("02:00", now) == now.timestamp()
    assert _parse_time("02:00:01", now) == now.timestamp() + 1 - 86_400
    assert _parse_time("2026-11-22T03:02", now) == _parse_time("2026-11-22T05:02+02:00", now)


def test_a_running_group_or_files_must_be_named() -> None:
    """The exit code is 2, and a sentence names both options."""
    done = command("orders/2")
    assert done.exit_code == 2
    assert "--bootstrap HOST:PORT --group APP, or --ledger FOLDER" in done.output
