"""Tests of one xdist group run in one process, as a second process would start a second server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILE = """
import pytest

@pytest.mark.xdist_group("one server")
@pytest.mark.parametrize("n", range(6))
def test_of_one_server(n):
    pass

@pytest.mark.parametrize("n", range(6))
def test_alone(n):
    pass
"""


@pytest.mark.slow
def test_a_group_stays_in_one_process_and_the_rest_is_dealt_out(tmp_path: Path) -> None:
    """Parsed from the worker names in pytest's verbose output."""
    (tmp_path / "test_it.py").write_text(FILE)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-p",
            "tests.support.groups",
            "-p",
            "no:cacheprovider",
            "-n2",
            "--dist",
            "loadgroup",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    ran = re.findall(r"\[(gw\d)\].*PASSED.*::test_(of_one_server|alone)", done.stdout)
    assert len(ran) == 12, done.stdout + done.stderr
    assert len({worker for worker, test in ran if test == "of_one_server"}) == 1
    assert len({worker for worker, _ in ran}) == 2
