"""The ``faust-assigner`` command: a missing extra, a misspelled variable, and how a table shows values."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.cli import operate
from faust_assigner.service.client import operator

WITHOUT_GRPC = "import sys; sys.modules['grpc'] = None; from faust_assigner.cli import main; main()"


@pytest.mark.parametrize(
    "said", [("serve", "--help"), ("consumers",), ("health", "--at", "127.0.0.1:1")]
)
def test_a_package_that_is_missing_is_one_line_with_its_extra(said: tuple[str, ...]) -> None:
    """For a command's options already: there it was a traceback."""
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_GRPC, *said], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert (
        ended.stderr
        == "faust-assigner: grpc is not installed: pip install 'faust-assigner[service]'\n"
    )


def test_a_misspelled_variable_ends_a_command_with_the_nearest_name() -> None:
    """It was ignored; ``serve`` ran with its default."""
    ended = subprocess.run(
        [sys.executable, "-m", "faust_assigner.cli", "serve"],
        capture_output=True,
        text=True,
        env={**os.environ, "FAUST_ASSIGNER_BINDS": "127.0.0.1:x"},
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "FAUST_ASSIGNER_BINDS: did you mean FAUST_ASSIGNER_BIND?" in ended.stderr


class Operator:
    """A caller of a service in which a consumer owns partition 0, and nobody partition 1."""

    def __init__(self, *_: object) -> None:
        pass

    async def __aenter__(self) -> Operator:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def state(self) -> Any:
        """Two assignments."""
        return SimpleNamespace(
            assignments=[
                SimpleNamespace(
                    partition=SimpleNamespace(topic="t", partition=n), owner=owner, epoch=n
                )
                for n, owner in enumerate(("a", ""))
            ]
        )


def test_a_table_shows_a_number_0_and_marks_what_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition 0 is a partition; an owner without a name is none."""
    monkeypatch.setattr(operator, "Operator", Operator)
    shown = CliRunner().invoke(operate.assignments, []).output.splitlines()
    assert [line.split() for line in shown] == [
        ["topic", "partition", "owner", "epoch"],
        ["t", "0", "a", "0"],
        ["t", "1", "-", "1"],
    ]
