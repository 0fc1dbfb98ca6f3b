"""Run a benchmark as a command."""

from __future__ import annotations

import subprocess
import sys

from tests.support.pages import ROOT


def printed(module: str, *arguments: str) -> str:
    """The output of ``python -m module``; asserts that the command exits with 0."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout
