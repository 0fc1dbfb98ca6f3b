"""A pytest plugin: a test that leaves a thread, task, process or socket fails with the leak's name.

Watched are threads, asyncio tasks, child processes, and TCP sockets that listen or are connected. A
thing is identified by its identity, so the things of a fixture of a wider scope are no leaks while
that fixture lives. Processes and sockets are read from ``/proc``; without it only threads and tasks
are watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import stat
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: Seconds for closing sockets and ending threads; only a test with a leak waits for all of them.
GRACE_S = 30.0
#: (seconds after a test's end, oldest generation to collect), so that garbage does not count as a
#: leak.
COLLECTIONS = ((0.0, 1), (0.25, 2))
PR_SET_CHILD_SUBREAPER = 36
#: Watched states of /proc/net/tcp; sockets in other states are closing.
TCP_STATES = {
    "01": "connected",
    "02": "connecting",
    "08": "not closed after its peer",
    "0A": "listening",
}

_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
_excused: list[Callable[[str, Any], bool]] = []


def excuse(known: Callable[[str, Any], bool]) -> None:
    """Never report a thing for which ``known(kind, thing)`` is true.

    Kinds and things: a "thread", the "pid" of a child, the "port" of a socket. It is for the
    helpers that a library starts at any time and keeps until the process ends.
    """
    _excused.append(known)


def threads() -> Iterator[tuple[Hashable, str]]:
    """The living threads, without threads of C libraries, which Python only registers."""
    for thread in threading.enumerate():
        if not isinstance(thread, threading._DummyThread) and not _is_excused("thread", thread):
            yield thread, f"thread {thread.name!r} ({type(thread).__module__})"


def children() -> Iterator[tuple[Hashable, str]]:
    """The child processes that have not ended, including adopted orphans."""
    if not _has_children():
        return
    # Every test asks; a process that starts others warm has children to the end (warm.py).
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            with open(f"/proc/self/task/{thread}/children", "rb", 0) as listing:
                pids = listing.read().decode().split()
            found = [pid for pid in pids if not _is_excused("pid", int(pid))]
            for pid in found:
                state, started = _status(pid)
                if state != "Z":
                    command = (
                        Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
                    )
                    yield ("process", pid, started), f"process {pid}: {command[:160]}"


def _has_children() -> bool:
    """Whether this process has a child, in one call: every test asks, and many have none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _status(pid: str) -> tuple[str, str]:
    """(state, start time): pids are used again, these pairs are not."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], fields[19]


def open_sockets() -> set[str]:
    """Return the inodes of this process's sockets of any kind."""
    found = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                status = os.fstat(int(fd))
                if stat.S_ISSOCK(status.st_mode):
                    found.add(str(status.st_ino))
    return found


def tcp(inodes: set[str]) -> Iterator[tuple[Hashable, str]]:
    """The TCP sockets in a watched state."""
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6") if inodes else ():
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                local, remote = (int(fields[n].rpartition(":")[2], 16) for n in (1, 2))
                known = _is_excused("port", local) or _is_excused("port", remote)
                if fields[9] in inodes and fields[3] in TCP_STATES and not known:
                    yield (
                        ("socket", fields[9]),
                        f"socket on port {local}, {TCP_STATES[fields[3]]} (peer's port {remote})",
                    )


def tasks() -> Iterator[tuple[Hashable, str]]:
    """The running tasks of every open loop; forget the closed loops, as every test asks again."""
    for loop in list(_loops):
        if loop.is_closed():
            _loops.discard(loop)
        else:
            for task in asyncio.all_tasks(loop):
                yield task, f"task {task.get_name()!r}: {task.get_coro()!r}"


def stuck_tasks() -> Iterator[tuple[Hashable, str]]:
    """Tasks of a loop that does not run: only the loop's close ends them."""
    for task, what in tasks():
        if isinstance(task, asyncio.Task) and not task.get_loop().is_running():
            yield task, what


def _is_excused(kind: str, thing: object) -> bool:
    return any(known(kind, thing) for known in _excused)


class Snapshot:
    """The things alive now; ``loops`` tells older loops from those of later tests."""

    def __init__(self) -> None:
        self.loops = weakref.WeakSet(_loops)
        self.things: dict[Hashable, str] = dict([*threads(), *children(), *tasks()])
        self.sockets = open_sockets()

    def newer_than(self, other: Snapshot) -> dict[Hashable, str]:
        """Return the things that are alive now and were not in ``other``."""
        fresh = {
            key: what
            for key, what in self.things.items()
            if key not in other.things
            and not (isinstance(key, asyncio.Task) and key.get_loop() in other.loops)
        }
        return fresh | dict(tcp(self.sockets - other.sockets))


class Watch:
    """The plugin's hooks; ``kept`` has the things of fixtures of a wider scope, by fixture."""

    def __init__(self) -> None:
        self.kept: dict[object, set[Hashable]] = {}
        self.before = Snapshot()
        self.after: Snapshot | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Keep the things of a fixture that outlives its first test."""
        if fixturedef.scope == "function":
            return (yield)
        before = Snapshot()
        try:
            return (yield)
        finally:
            self.kept.setdefault(fixturedef, set()).update(Snapshot().newer_than(before))

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """From now on the fixture's things are leaks."""
        self.kept.pop(fixturedef, None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Exclude things that exist before the test."""
        self.before, self.after = self.after or Snapshot(), None
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """Check tasks at once: the end of the test's loop would cancel them and hide a leak."""
        before = dict(stuck_tasks())
        result = yield
        if left := [what for task, what in stuck_tasks() if task not in before]:
            pytest.fail("the test left running:\n  " + "\n  ".join(left), pytrace=False)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """Check all other things after the fixtures' end."""
        result = yield
        if left := self.left():
            pytest.fail("the test left running:\n  " + "\n  ".join(left), pytrace=False)
        return result

    def left(self) -> list[str]:
        """Return the leaks that remain after the grace period."""
        began, collected = time.monotonic(), 0
        while True:
            kept = set().union(*self.kept.values())
            now = Snapshot()
            found = {
                key: what for key, what in now.newer_than(self.before).items() if key not in kept
            }
            waited_s = time.monotonic() - began
            if not found or waited_s > GRACE_S:
                self.after = now  # the next test's start
                return sorted(found.values())
            del now, found  # they keep garbage alive
            # The test's own garbage is young; a full collection takes a quarter of a second.
            if collected < len(COLLECTIONS) and waited_s >= COLLECTIONS[collected][0]:
                gc.collect(COLLECTIONS[collected][1])
                collected += 1
            else:
                time.sleep(0.02)


def _excuse_helpers_of_libraries() -> None:
    """Excuse fsspec's threads and multiprocessing's resource tracker; both live to the end."""

    def known(kind: str, thing: object) -> bool:
        fsspec, tracker = map(sys.modules.get, ("fsspec.asyn", "multiprocessing.resource_tracker"))
        if kind == "pid":
            return tracker is not None and bool(thing == tracker._resource_tracker._pid)
        if kind != "thread" or fsspec is None:
            return False
        executor = getattr(fsspec.loop[0], "_default_executor", None)
        return thing is fsspec.iothread[0] or thing in getattr(executor, "_threads", ())

    excuse(known)


def pytest_configure(config: pytest.Config) -> None:
    """Register event loops, adopt orphaned processes, and start to watch."""
    begin = asyncio.BaseEventLoop.__init__
    if not getattr(begin, "watched", False):

        def watched(loop: asyncio.BaseEventLoop) -> None:
            begin(loop)
            _loops.add(loop)

        watched.watched = True  # type: ignore[attr-defined]
        asyncio.BaseEventLoop.__init__ = watched  # type: ignore[method-assign]
        _excuse_helpers_of_libraries()
    adopt_orphans()
    config.pluginmanager.register(Watch(), "leaks")


def adopt_orphans() -> None:
    """Let a process whose parent was killed become our child, and be watched; forks do not inherit this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
