"""Planted leaks: the plugin fails exactly the tests that leave threads, tasks or processes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import leaks

pytestmark = pytest.mark.xdist_group("planted leaks")  # all tests here share a single pytest run
ROOT = Path(__file__).resolve().parents[3]
PLANTED = '''
import asyncio, atexit, os, signal, socket, subprocess, sys, threading
import pytest
from tests.support import leaks

leaks.GRACE_S = 0.3
SLEEP = "import time; time.sleep(60)"
kept, stop = [], threading.Event()


@atexit.register
def end():
    """This run's leaks end with it, the orphan too."""
    for (_, pid, _), _ in leaks.children():
        os.kill(int(pid), signal.SIGKILL)


@pytest.fixture(scope="module")
def shared():
    """A server that many tests share."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=stop.wait, name="shared")
        thread.start()
        yield server.getsockname()
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def unstopped():
    """A server that nobody stops."""
    kept.append(subprocess.Popen([sys.executable, "-c", SLEEP]))


@pytest.fixture
def own():
    """A process that its test's end kills."""
    process = subprocess.Popen([sys.executable, "-c", SLEEP])
    yield
    process.kill()
    process.wait()


def test_tidy_with_a_shared_server(shared, own):
    socket.create_connection(shared).close()


def test_leaves_a_thread():
    threading.Thread(target=stop.wait, name="forgotten thread", daemon=True).start()


def test_leaves_a_process():
    kept.append(subprocess.Popen([sys.executable, "-c", SLEEP]))


def test_leaves_an_orphan():
    parent = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', %r])" % SLEEP
    subprocess.run([sys.executable, "-c", parent], check=True)


def test_leaves_a_listening_socket():
    kept.append(socket.create_server(("127.0.0.1", 0)))


def test_leaves_a_connected_socket(shared):
    kept.append(socket.create_connection(shared))


async def test_leaves_a_task():
    kept.append(asyncio.create_task(asyncio.sleep(60), name="forgotten task"))


def test_leaves_nothing_after_others_did():
    subprocess.run([sys.executable, "-c", ""], check=True)
    thread = threading.Thread(target=str)
    thread.start()
    thread.join()


def test_is_last_to_use_a_server_that_nobody_stops(unstopped):
    pass
'''


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run the planted file and return pytest's report."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "test_planted.py").write_text(PLANTED)
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.support.leaks",
            "-rA",
            "-v",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            folder,
            folder,
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("test", "what"),
    [
        ("leaves_a_thread", r"thread 'forgotten thread'"),
        ("leaves_a_process", r"process \d+: .*time\.sleep"),
        ("leaves_an_orphan", r"process \d+: .*time\.sleep"),
        ("leaves_a_listening_socket", r"socket on port \d+, listening"),
        ("leaves_a_connected_socket", r"socket on port \d+, connected"),
        ("leaves_a_task", r"task 'forgotten task': .*sleep"),
        ("is_last_to_use_a_server_that_nobody_stops", r"process \d+: .*time\.sleep"),
    ],
)
@pytest.mark.slow
def test_a_planted_leak_is_named_in_the_test_that_left_it(
    outcome: str, test: str, what: str
) -> None:
    """The test's own section of the report lists the leak."""
    title = rf"^_+ (?:ERROR at teardown of )?test_{test} _+$"
    section = re.search(rf"{title}(.*?)^[_=]{{5}}", outcome, re.M | re.S)
    assert section, outcome
    assert re.search(rf"the test left running:\n +{what}", section[1]), section[0]


@pytest.mark.parametrize("test", ["tidy_with_a_shared_server", "leaves_nothing_after_others_did"])
@pytest.mark.slow
def test_a_tidy_test_is_not_blamed(outcome: str, test: str) -> None:
    """Neither its module's fixtures nor leaks of earlier tests count."""
    assert re.search(rf"^PASSED .*::test_{test}$", outcome, re.M), outcome
    assert not re.search(rf"^ERROR .*::test_{test}\b", outcome, re.M), outcome


def test_a_closed_loop_is_asked_once() -> None:
    """The loops of thousands of tests may wait for the collector, and every test asks all loops."""
    loop = asyncio.new_event_loop()
    list(leaks.tasks())
    was_watched = loop in leaks._loops
    loop.close()
    list(leaks.tasks())
    assert (was_watched, loop in leaks._loops) == (True, False)
