"""``faust-assigner scaler`` as a command: refusals, output, and a run without gRPC."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from faust_assigner.cli import main
from faust_assigner.scaler import render
from faust_assigner.scaler.case import GROW, Recommendation

NOWHERE = ("--bootstrap", "127.0.0.1:1", "--group", "shop")
FOUND = Recommendation(
    size=6,
    present=4,
    decision=GROW,
    reasons=("500 records/s arrive; 4 workers process at most 400", "and so on"),
    tasks=12,
    useful=(1, 2, 3, 4, 6, 12),
    arrival=500.0,
    backlog=1234,
    worker_rate=100.0,
    notes=("orders 3: no offset is committed yet",),
)


def command(*arguments: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["scaler", *arguments])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--json",), "--json requires --once"),
        (("--set", "max"), "must be KEY=VALUE"),
        (("--set", "maximum=3"), "'maximum': unknown key"),
        (("--set", "max=x", "--once"), "max: must be a whole number"),
        (("--bind", "nowhere"), "must be HOST:PORT"),
        (("--bind", "0.0.0.0:0"), "is not loopback"),
    ],
)
def test_what_it_refuses(more: tuple[str, ...], words: str) -> None:
    """The exit code is 2, and no broker or worker is asked."""
    done = command(*NOWHERE, *more)
    assert done.exit_code == 2
    assert words in done.output


def test_where_nobody_answers_it_may_be_tried_again() -> None:
    """The exit code is 75 with a single line, as in other commands."""
    done = command(*NOWHERE, "--once")
    assert done.exit_code == 75
    assert done.output.count("\n") == 1


def test_the_text_has_the_size_first_and_then_why() -> None:
    """The output is the text for people."""
    assert render.as_text("shop", FOUND).splitlines() == [
        "shop: 6 workers (grow; 4 now)",
        "  why          500 records/s arrive; 4 workers process at most 400",
        "  why          and so on",
        "  tasks        12; sizes that help: 1, 2, 3, 4, 6, 12",
        "  load         500 records/s arrive, 1,234 records wait",
        "  one worker   processes at most 100 records/s",
        "  not known    orders 3: no offset is committed yet",
    ]


def test_the_json_has_the_same_facts() -> None:
    """The document has a version."""
    found = json.loads(render.as_json("shop", FOUND))
    assert (found["version"], found["group"], found["size"], found["decision"]) == (
        1,
        "shop",
        6,
        "grow",
    )
    assert found["useful"] == [1, 2, 3, 4, 6, 12]


@pytest.mark.slow
def test_once_needs_no_grpc() -> None:
    """Only serving needs the extra; without gRPC the error line names the extra."""
    code = "import sys; sys.modules['grpc'] = None; from faust_assigner.cli import main; main()"
    run = [sys.executable, "-c", code, "scaler", *NOWHERE]
    once = subprocess.run([*run, "--once"], capture_output=True, text=True)
    assert once.returncode == 75
    serving = subprocess.run(run, capture_output=True, text=True)
    assert serving.returncode == 1
    assert "pip install 'faust-assigner[service]'" in serving.stderr
