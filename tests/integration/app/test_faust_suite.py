"""The plugin that swaps our assignor into Faust's own tests: it swaps, or it fails the run.

The suite itself (2,585 tests, fetched from the package index) runs with all tests, and as `make
faust-suite`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites import faust as faust_suite_run
from tests.suites.plugins import suite_faust

SWAPPED = """
import faust
from faust.assignor import PartitionAssignor
from faust_assigner.app.assignor import PartitionAssignor as Ours

def test_the_default_is_ours():
    app = faust.App("x")
    assert app.conf.PartitionAssignor is PartitionAssignor
    assert issubclass(PartitionAssignor, Ours)
    assert isinstance(app.assignor, Ours)
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Pytest with the plugin over one file."""
    (folder / "test_it.py").write_text(text)
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "suite_faust",
            "-p",
            "no:cacheprovider",
            *arguments,
            "test_it.py",
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(faust_suite_run.PLUGINS), str(faust_suite_run.ROOT)]
            ),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_apps_get_ours_where_they_would_get_fausts(tmp_path: Path) -> None:
    """The swap covers the setting's default and the name that tests import."""
    done = run(tmp_path, SWAPPED)
    assert done.returncode == 0, done.stdout
    assert "created 1 times" in done.stdout


@pytest.mark.slow
def test_a_run_in_which_nobody_asked_for_ours_fails(tmp_path: Path) -> None:
    """Otherwise a swap that no longer works would look like success."""
    done = run(tmp_path, "def test_nothing():\n    pass\n")
    assert done.returncode == 1
    assert "created 0 times" in done.stdout


def test_every_exception_has_a_reason() -> None:
    """Each test that cannot apply, or applies in part, is listed with its reason."""
    listed = {**suite_faust.NOT_APPLICABLE, **suite_faust.ASSIGNOR_ALONE}
    assert all("::" in end and len(reason) > 20 for end, reason in listed.items())


def test_downloads_go_to_the_named_cache(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The cache is beside the project's other downloads, or at the environment's path."""
    monkeypatch.setenv("FAUST_ASSIGNER_CACHE", str(tmp_path))
    assert faust_suite_run.cache_folder() == tmp_path / "faust-suite"
    monkeypatch.delenv("FAUST_ASSIGNER_CACHE")
    assert faust_suite_run.cache_folder().parts[-3:] == (".cache", "faust-assigner", "faust-suite")


#: Seconds; two minutes on two cores, and half a minute to build the environment.
LONGEST_S = 900


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_S + 60)
def test_fausts_own_tests_pass_with_ours_installed() -> None:
    """Faust's promises to its users hold with every part of ours in place."""
    done = subprocess.run(
        [sys.executable, "-m", faust_suite_run.__name__],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 2500  # type: ignore[index]
