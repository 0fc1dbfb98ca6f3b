"""The ``faust-assigner`` command where the extra of a command is not installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
