"""The scheduler of the tests' processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist")

from tests.support.turns import NICENESS, Turns, niceness

CONFIG: Any = SimpleNamespace(
    option=SimpleNamespace(loadscopereorder=False, verbose=0, debug=False),
    getvalue=lambda name: ["2*popen"],
)
TESTS = ["spark", "a", "b", "more spark", *(f"t{n}" for n in range(20))]


class Worker:
    """A process that runs the numbers it was given when the test says so."""

    def __init__(self, name: str = "worker") -> None:
        self.given: list[int] = []
        self.shutting_down = False
        self.gateway = SimpleNamespace(id=name)

    def send_runtest_some(self, numbers: list[int]) -> None:
        """Take more tests."""
        self.given += numbers

    def shutdown(self) -> None:
        """Take no more tests."""
        self.shutting_down = True


def test_a_unit_is_a_group_a_file_of_unit_tests_or_a_test(tmp_path: Any) -> None:
    """The first worker's file has the groups."""
    (tmp_path / "gw0").write_text('{"tests/unit/a.py::b": "spark", "tests/x.py::y": "kafka"}')
    turns = Turns(SimpleNamespace(**vars(CONFIG), groups_folder=str(tmp_path)))  # type: ignore[arg-type]
    names = ("tests/unit/a.py::b", "tests/unit/a.py::c", "tests/x.py::y", "tests/x.py::z")
    assert [turns._split_scope(name) for name in names] == [
        "spark",
        "tests/unit/a.py",
        "kafka",
        "tests/x.py::z",
    ]


def begun(count: int = 2) -> tuple[Turns, list[Any]]:
    """Return a scheduler that has handed out the first tests to ``count`` workers."""
    config: Any = SimpleNamespace(**vars(CONFIG) | {"getvalue": lambda name: ["popen"] * count})
    turns, workers = Turns(config), [Worker(f"gw{number}") for number in range(count)]
    turns.groups = {"spark": "spark", "more spark": "spark"}
    for worker in workers:
        turns.add_node(worker)
    for worker in workers:
        turns.add_node_collection(worker, TESTS)
    turns.schedule()
    return turns, workers


def test_each_test_is_run_once_and_a_group_by_one_worker() -> None:
    """The first worker gets all tests of the first test's group; at the end both workers stop."""
    turns, workers = begun()
    assert [TESTS[number] for number in workers[0].given[:2]] == ["spark", "more spark"]
    done: list[int] = []
    while any(worker.given for worker in workers):
        for worker in workers:
            if worker.given:
                done.append(worker.given.pop(0))
                turns.mark_test_complete(worker, done[-1])
    assert sorted(done) == list(range(len(TESTS)))
    assert turns.tests_finished
    assert not turns.has_pending
    assert [worker.shutting_down for worker in workers] == [True, True]


@pytest.mark.parametrize(
    ("count", "first"), [(3, [0, 1, 2]), (4, [0, 1, 2, 23]), (5, [0, 1, 2, 23, 22])]
)
def test_workers_after_the_third_take_the_tests_from_the_end(count: int, first: list[int]) -> None:
    """Unit tests are at the end; these workers alone have a low priority; each test is run once."""
    turns, workers = begun(count)
    assert [worker.given[0] for worker in workers] == first
    nice = [niceness(worker.gateway.id, "loadgroup") for worker in workers]
    assert nice == [0, 0, 0, NICENESS, NICENESS][:count]
    done: list[int] = []
    while any(worker.given for worker in workers):
        for worker in workers:
            if worker.given:
                done.append(worker.given.pop(0))
                turns.mark_test_complete(worker, done[-1])
    assert sorted(done) == list(range(len(TESTS)))


@pytest.mark.parametrize(("worker", "dist"), [("gw3", "load"), ("xdist", "loadgroup")])
def test_other_processes_keep_their_priority(worker: str, dist: str) -> None:
    """Other schedulers take the tests from the beginning alone; "xdist" collects for all workers."""
    assert niceness(worker, dist) == 0


def test_finished_tests_are_forgotten() -> None:
    """The work assigned to a worker has only tests that it has still to run."""
    turns, (worker, _) = begun()
    turns.mark_test_complete(worker, worker.given.pop(0))
    assert TESTS.index("spark") not in worker.given
    assert list(turns.assigned_work[worker]["spark"].items()) == [
        ("spark", True),
        ("more spark", False),
    ]
    turns.mark_test_complete(worker, worker.given.pop(0))
    assert "spark" not in turns.assigned_work[worker]


def test_the_tests_of_a_worker_that_crashed_are_run_by_the_other() -> None:
    """The test that crashed is not run again, and no finished test is."""
    turns, (worker, other) = begun()
    turns.mark_test_complete(worker, worker.given.pop(0))
    assert turns.remove_node(worker) == "more spark"
    assert "spark" not in turns.workqueue
    finish(turns, other)
    assert turns.tests_finished


def test_a_test_that_crashed_is_run_again_on_request_alone() -> None:
    """Tests that may fail once have a second try, also after the end of their worker."""
    turns, (worker, other) = begun()
    assert turns.remove_node(worker) == "spark"
    turns.mark_test_pending("spark")
    assert sorted(finish(turns, other)).count(TESTS.index("spark")) == 1
    assert turns.tests_finished


def test_a_replacement_runs_the_only_test_that_is_left() -> None:
    """The other worker has been told to end; the replacement gets its test and its end."""
    turns, (worker, other) = begun()
    finish(turns, other, until=lambda: other.shutting_down)
    finish(turns, worker, until=lambda: len(worker.given) == 2)
    _, left = worker.given
    turns.remove_node(worker)
    replacement: Any = Worker()
    turns.add_node(replacement)
    turns.add_node_collection(replacement, TESTS)
    turns.schedule()
    assert replacement.given == [left]
    assert replacement.shutting_down


def finish(turns: Turns, worker: Any, until: Any = lambda: False) -> list[int]:
    """Let a worker run its tests; return their numbers."""
    done: list[int] = []
    while worker.given and not until():
        done.append(worker.given.pop(0))
        turns.mark_test_complete(worker, done[-1])
    return done


@pytest.mark.slow
def test_the_suite_runs_a_group_in_one_process(tmp_path: Any) -> None:
    """The plugins of the suite, with two processes: a part such as Spark is started once."""
    (tmp_path / "test_it.py").write_text(
        "import os, pathlib, pytest\n"
        "@pytest.mark.xdist_group('part')\n"
        "@pytest.mark.parametrize('n', range(8))\n"
        "def test_it(n): pathlib.Path(f'{n}.{os.getpid()}').touch()\n"
    )
    root = Path(__file__).parents[3]
    plugins = [f"-ptests.support.{name}" for name in ("parts", "groups", "leaks", "costs")]
    command = [sys.executable, "-m", "pytest", "-n2", "--dist=loadgroup", f"--rootdir={tmp_path}"]
    subprocess.run(
        [*command, *plugins, "test_it.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
        check=True,
        capture_output=True,
    )
    found = [path.suffix for path in tmp_path.glob("[0-7].*")]
    assert (len(found), len(set(found))) == (8, 1)
