"""The kit for app authors: the cost of an unused plugin, its errors, and leaks of a test."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from aiokafka.client import AIOKafkaClient

from faust_assigner.testing.apps import AppNotFound
from faust_assigner.testing.fleet import Fleet, StartFleet
from faust_assigner.testing.waiting import wait_until
from tests.support.pages import ROOT

CLICKS = "examples.clicks.app"
HEAVY = {"aiokafka", "faust", "faust_assigner.broker", "kio", "mode", "numpy", "rocksdict"}
#: A test of an author in its own folder; ``{end}`` is the way it ends.
STORY = """
import os, signal
from pathlib import Path

def test_story(fleet):
    shop = fleet("examples.clicks.app", workers=2, processes=True)
    pids = [worker.process.pid for worker in shop.workers.values()]
    Path("pids").write_text(" ".join(map(str, pids)))
    shop.freeze("w2")
    {end}
"""
ENDS = {
    "fails": ("assert False", 1),
    "is interrupted": ("raise KeyboardInterrupt", 2),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest as an author does, with this package's plugin."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            ".",
            *arguments,
        ],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_collecting_tests_imports_neither_faust_nor_a_client(tmp_path: Path) -> None:
    """An installed and unused plugin costs no import."""
    (tmp_path / "conftest.py").write_text(
        "import sys\n"
        "def pytest_unconfigure(config):\n"
        "    print('plugin', 'faust_assigner.testing.plugin' in sys.modules)\n"
        "    print('imported', *sorted(sys.modules))\n"
    )
    (tmp_path / "test_nothing.py").write_text("def test_nothing(): pass\n")
    out = run_pytest(tmp_path, "--collect-only").stdout
    assert "plugin True" in out
    [imported] = [line.split()[1:] for line in out.splitlines() if line.startswith("imported ")]
    assert not HEAVY & set(imported)


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("examples.clicks.ap", r"fleet\('examples.clicks.ap'\): no module 'examples.clicks.ap'"),
        ("nowhere.app", r"cannot import 'nowhere.app': No module named 'nowhere'"),
        ("examples.clicks.app:shop", "the module examples.clicks.app has no 'shop'; its apps: app"),
        ("examples.clicks.app:Click", "examples.clicks.app:Click is not a faust.App but a"),
    ],
)
def test_a_wrong_path_is_named(fleet: StartFleet, path: str, message: str, processes: bool) -> None:
    """The error has the wanted path and the existing apps."""
    with pytest.raises(AppNotFound, match=message):
        fleet(path, processes=processes)


def test_a_function_cannot_run_as_a_process(fleet: StartFleet) -> None:
    """The error states that the path of the app is needed."""
    with pytest.raises(AppNotFound, match=r"processes=True\) needs the path of the app"):
        fleet(lambda: None, processes=True)


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("how", ENDS)
def test_no_worker_outlives_a_test(tmp_path: Path, how: str) -> None:
    """Neither a running nor a frozen worker survives, however the test ends."""
    end, code = ENDS[how]
    (tmp_path / "test_story.py").write_text(STORY.format(end=end))
    done = run_pytest(tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    if how == "is killed":
        os.kill(pids[1], signal.SIGCONT)  # a frozen process cannot see that its parent has ended
    wait_until(lambda: not any(map(is_alive, pids)), f"the workers {pids} to end")


def test_time_of_processes_cannot_be_moved(tmp_path: Path) -> None:
    """The error states that a fleet without processes can move its time."""
    with pytest.raises(AssertionError, match="start the fleet without processes=True"):
        Fleet(CLICKS, tmp_path, processes=True).advance(1)


def test_waits_name_what_is_awaited(fleet: StartFleet) -> None:
    """A group that cannot come to rest, a frozen worker, and an unknown worker."""
    shop = fleet(CLICKS)
    shop.freeze("w1")
    with pytest.raises(
        AssertionError, match=r"waited 0.2 s for: the group to be at rest\nw1: generation \d"
    ):
        shop.settle(timeout_s=0.2)
    with pytest.raises(AssertionError, match=r"there is no worker 'w7'; the workers: \['w1'\]"):
        shop.kill("w7")
    shop.bring_back("w1")


def test_what_the_app_sends_bears_the_moved_time(
    fleet: StartFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes an author's own ``time.time()``; after the test the clock is real again.

    A slow send delays no later record: time does not advance while the producer waits for metadata.
    """
    wait_on_metadata = AIOKafkaClient._wait_on_metadata

    async def wait_slowly(self: AIOKafkaClient, topic: str) -> object:
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.1)
        return await wait_on_metadata(self, topic)

    monkeypatch.setattr(AIOKafkaClient, "_wait_on_metadata", wait_slowly)
    shop = fleet(CLICKS)
    began = time.time()
    shop.advance(305)
    assert 305 <= time.time() - began < 360
    times = [record.timestamp for record in shop.records("visitors")]
    pauses = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert len(pauses) == 4, pauses
    assert all(59 < pause < 61 for pause in pauses), pauses
    shop.close()
    assert time.time() - began < 300


@pytest.mark.slow
def test_a_cold_move_is_named(fleet: StartFleet) -> None:
    """Without standbys a dead worker's rows go to a worker that has none of them."""
    shop = fleet(CLICKS, workers=2, settings={"table_standby_replicas": 0})
    shop.send_all("visits", [(f"visitor-{n}", 1) for n in range(40)])
    shop.advance(5)
    shop.kill("w2")
    with pytest.raises(AssertionError, match=r"cold moves: clicks-totals-changelog-\d to w1"):
        shop.assert_no_cold_moves()
    with pytest.raises(
        AssertionError, match=r"tasks moved, expected 0 to 1: task \d+-\d from w2 to w1"
    ):
        shop.assert_moves(max=1)
