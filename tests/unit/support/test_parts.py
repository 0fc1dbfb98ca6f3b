"""The report and the exit code of a run without Java, and the tests that are repeated once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import parts
from tests.support.parts import why_not

ROOT = Path(__file__).resolve().parents[3]
FILE = """
import pytest
tries = []

@pytest.mark.kafka
@pytest.mark.parametrize("n", [1, 2, 3])
def test_with_kafka(n):
    raise AssertionError("it cannot run")

@pytest.mark.spark
def test_with_spark():
    raise AssertionError("it cannot run")

@pytest.mark.slow
@pytest.mark.kafka
def test_left_out():
    raise AssertionError("nobody asked for it")

@pytest.mark.processes
def test_of_processes():
    tries.append(1)
    assert len(tries) == 2

def test_of_nothing_real():
    assert len(tries) == 2

def test_that_fails_the_first_time(once=[]):
    once.append(1)
    assert len(once) == 2
"""


def run(folder: Path, *arguments: str, ci: str = "") -> subprocess.CompletedProcess[str]:
    """Run pytest over the file on a machine whose PATH is empty."""
    (folder / "test_it.py").write_text(FILE)
    marks = "\n  ".join(("kafka:", "spark:", "slow:", "processes:"))
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = -raR\nmarkers =\n  {marks}\n")
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.support.parts",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            folder,
            *arguments,
            folder,
        ],
        cwd=ROOT,
        env=os.environ | {"PATH": "", "CI": ci},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_first_and_the_last_line_count_what_cannot_run(tmp_path: Path, workers: str) -> None:
    """The counts are by part, with the reason; deselected tests do not count."""
    done = run(tmp_path, "-m", "not slow", "-n", workers)
    lines = done.stdout.splitlines()
    said = "CANNOT RUN HERE: 3 tests of kafka (java is not on PATH), 1 tests of spark (java is not on PATH)"
    assert (lines[0], lines[-1]) == (said, said), done.stdout
    assert "4 skipped" in done.stdout


@pytest.mark.slow
def test_under_ci_that_is_an_error(tmp_path: Path) -> None:
    """In CI, a skipped part could pass unnoticed."""
    done = run(tmp_path, ci="true")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stdout.startswith("CANNOT RUN HERE: 4 tests of kafka")
    assert "passed" not in done.stdout


@pytest.mark.slow
def test_only_tests_of_real_parts_and_processes_are_tried_twice(tmp_path: Path) -> None:
    """The report lists the repeated test as RERUN."""
    done = run(tmp_path, "-n", "0")
    assert re.search(r"^RERUN .*::test_of_processes", done.stdout, re.M), done.stdout
    assert re.search(r"^FAILED .*::test_that_fails_the_first_time", done.stdout, re.M)
    assert "2 passed" in done.stdout
    assert "1 rerun" in done.stdout


def test_a_browser_and_a_prometheus_are_named_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program on PATH, an unpacked one in the cache, or apt-get to fetch it: each is enough."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FAUST_ASSIGNER_CACHE", str(tmp_path / "cache"))
    assert why_not("browser") == "no Chromium is on PATH"
    assert why_not("prometheus") == "prometheus is not on PATH, and there is no apt-get"
    for name in ("google-chrome", "apt-get", "dpkg-deb"):
        assert why_not("prometheus")
        (tmp_path / name).touch(mode=0o755)
    assert why_not("browser") is None
    assert why_not("prometheus") is None
    (tmp_path / "apt-get").unlink()
    assert why_not("prometheus")
    (tmp_path / "cache/prometheus").mkdir(parents=True)
    assert why_not("prometheus") is None


def item(nodeid: str, *marks: str) -> Any:
    """Return a test with these marks."""
    found = [SimpleNamespace(name=mark) for mark in marks]
    return SimpleNamespace(
        nodeid=nodeid,
        fixturenames=(),
        iter_markers=lambda: iter(found),
        get_closest_marker=lambda name: next((m for m in found if m.name == name), None),
    )


def test_long_tests_begin_first_and_unit_tests_end_the_run() -> None:
    """A worker that ends early must find short tests, not wait for a long one of another worker."""
    in_order = [
        item("tests/unit/test_a.py::test_of_spark", "spark", "slow"),
        item("tests/property/test_a.py::test_of_kafka", "kafka"),
        item("tests/unit/test_a.py::test_of_processes", "processes"),
        item("tests/unit/test_a.py::test_that_is_slow", "slow"),
        item("tests/property/test_a.py::test_of_a_property"),
        item("tests/unit/test_a.py::test_of_a_fact"),
    ]
    items = in_order[::-1]
    parts.pytest_collection_modifyitems(SimpleNamespace(workerinput={}), items)  # type: ignore[arg-type]
    assert [one.nodeid for one in items] == [one.nodeid for one in in_order]
