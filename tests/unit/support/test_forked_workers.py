"""xdist's workers that are forks of one collection run and report the tests as xdist's own workers do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import warm

pytestmark = pytest.mark.processes

TOLD = """
import json, os, pathlib, threading, time
import pytest

COLLECTED = os.getpid()

@pytest.fixture
def begun():
    time.sleep(0.02)

@pytest.mark.parametrize("number", range(8))
def test_told(begun, number, worker_id, tmp_path):
    print("printed by", number)
    told = [COLLECTED, os.getpid(), os.getppid(), worker_id, str(tmp_path)]
    pathlib.Path(f"told-{number}").write_text(json.dumps(told))
    assert number != 5, "five"

"""


#: Only pytest's import of this file leads to the repository, as in a run by ``make``.
PLUGINS = f"""
import sys

sys.path.insert(0, {str(warm.ROOT)!r})
pytest_plugins = ["tests.support.leaks", "tests.support.costs"]
"""


def run(folder: Path, source: str) -> tuple[int, str, str]:
    """Run the tests of a file with two workers; return the code and what pytest prints."""
    (folder / "conftest.py").write_text(PLUGINS)
    (folder / "test_it.py").write_text(source)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"),
            *("-o", "asyncio_default_fixture_loop_scope=function", "--durations", "99"),
        ],
        cwd=folder,
        env={name: os.environ[name] for name in os.environ if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def told(folder: Path) -> list[list[str]]:
    """Return what the tests have written."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob("told-*"))]


@pytest.mark.slow
def test_two_workers_run_the_tests_that_one_process_has_collected(tmp_path: Path) -> None:
    """Each has its own name, folder and output; a test's failure is reported with its own output."""
    code, out, errors = run(tmp_path, TOLD)
    assert (code, errors) == (1, "")
    assert "1 failed, 7 passed" in out
    assert [f"printed by {n}" in out for n in range(8)] == [n == 5 for n in range(8)]
    assert out.count("s setup ") == 8, "a setup of 20 ms is listed"
    collected, pids, parents, workers, folders = map(list, zip(*told(tmp_path), strict=True))
    assert len(set(collected)) == len(set(parents)) == 1
    assert len(set(pids)) == len(set(workers)) == len({*zip(pids, workers, strict=True)}) == 2
    assert not {*collected, *parents} & set(pids)
    assert all(f"popen-{gw}/" in one for gw, one in zip(workers, folders, strict=True))


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_by_a_fork(tmp_path: Path) -> None:
    """The test that killed it is reported, and the others are run."""
    code, out, _ = run(tmp_path, TOLD + "    if number == 2: os._exit(9)")
    assert code == 1
    assert "2 failed, 6 passed" in out
    assert len({collected for collected, *_ in told(tmp_path)}) == 1


@pytest.mark.slow
def test_after_a_thread_began_each_worker_collects(tmp_path: Path) -> None:
    """A fork would not have the thread, and a line says so."""
    begin = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
    code, out, errors = run(tmp_path, TOLD + begin)
    assert code == 1
    assert "1 failed, 7 passed" in out
    assert "no fork is safe" in errors
    assert all(collected == pid for collected, pid, *_ in told(tmp_path))


@pytest.mark.slow
def test_an_error_of_the_collection_is_reported_as_ever(tmp_path: Path) -> None:
    """The workers collect for themselves and report it."""
    code, out, _ = run(tmp_path, TOLD + "raise ValueError('no test')")
    assert code == 1
    assert "ValueError: no test" in out
    assert not told(tmp_path)
