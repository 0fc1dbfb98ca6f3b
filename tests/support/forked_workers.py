"""The workers of xdist as forks of one process that has collected the tests; ``costs.py`` begins it.

Each worker of xdist imports and collects all tests. For 22,000 tests this takes a processor 18 s.
Here one process does so, as a worker would. It forks for each worker that xdist starts, and the fork
sends the events that xdist expects. The workers collect the tests themselves if that process reports
an error or has more than one thread after its collection.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm

#: The shortest duration that ``--durations`` lists.
SHOWN_S = 0.005


def serve(number: int, workerinput: dict[str, Any], arguments: list[str]) -> None:
    """Collect the tests, then fork for each request; this function returns in the forks only."""
    from _pytest.config import _prepareconfig

    config: Any = _prepareconfig(arguments, None)  # imports the plugins
    from xdist.remote import setup_config

    setup_config(config, None)
    config.workerinput, config.workeroutput = workerinput, {}
    collected = Collected(socket.socket(fileno=number))
    config.pluginmanager.register(collected)
    config.hook.pytest_cmdline_main(config=config)
    collected.end()


class Collected:
    """The hooks of the collecting process and of its forks."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._is_fork = False
        self._interactor: Any = None
        self._is_ready, self._is_done = threading.Event(), threading.Event()
        self._link = threading.Thread(target=self._talk, name="xdist's link", daemon=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Wait for the requests; run the tests of one worker in each fork."""
        if session.testsfailed:
            return None  # ends this process; the workers report the errors
        if len(alive := threading.enumerate()) > 1:
            print(
                f"The workers collect the tests: {alive} are alive, so no fork is safe",
                file=sys.stderr,
            )
            os._exit(1)
        capture = session.config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # else the forks share one file
        sys.stdout.flush()
        if warm.wait_for_fork(self._requests) is None:
            os._exit(0)
        self._is_fork = True
        self._requests.close()
        from tests.support import leaks  # a plugin, which pytest imports

        leaks.adopt_orphans()
        self._connect(session.config)
        capture.start_global_capturing()
        capture.suspend_global_capture()
        if session.config.option.verbose <= 0 and not session.config.getoption("xmlpath", None):
            self._interactor.sendevent = partial(_send, self._interactor.sendevent)
        self._interactor.pytest_sessionstart(session)
        self._interactor.pytest_collection_modifyitems(session.config, session.items)
        session.config.hook.pytest_collection_finish(session=session)
        return bool(self._interactor.pytest_runtestloop(session))

    def _connect(self, config: Any) -> None:
        """Let xdist's code for a worker use the collected tests, and wait until it is about to begin."""
        import _pytest.config

        path = sys.path
        _pytest.config._prepareconfig = lambda *_: config
        self._link.start()
        self._is_ready.wait()
        if self._interactor is None:
            os._exit(1)
        sys.path = path
        if config.option.basetemp is not None:
            config._tmp_path_factory._given_basetemp = Path(config.option.basetemp)
        if "sock_port" in config.workerinput:  # of pytest-rerunfailures
            config.failures_db = type(config.failures_db)(
                config.workerinput["sock_port"], config.workerinput["statusdb_token"]
            )

    def _talk(self) -> None:
        """Do what execnet's process does; its code of xdist calls ``pytest_cmdline_main``."""
        warm.open_streams(is_unbuffered=False)
        try:
            exec(eval(sys.stdin.readline()))
        finally:
            self._is_ready.set()  # also if the controller has ended

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int | None:
        """In xdist's thread: let the main thread run the tests, and wait for their end."""
        if not self._is_fork:
            return None
        plugins = config.pluginmanager.get_plugins()
        self._interactor = next(one for one in plugins if type(one).__name__ == "WorkerInteractor")
        self._is_ready.set()
        self._is_done.wait()
        return 0

    def end(self) -> None:
        """End xdist's code in a fork; wait until the controller closes the connection.

        The fork ends without Python's cleanup, which visits and copies all objects of the collection.
        """
        self._is_done.set()
        if self._is_fork:
            self._link.join()
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)


def _send(send: Callable[..., None], name: str, **event: Any) -> None:
    """Leave out the events that show nothing: xdist's controller takes a millisecond for a test's."""
    report = event.get("data", {})
    is_plain = (
        report.get("when") in ("setup", "teardown")
        and report["outcome"] == "passed"
        and report["duration"] < SHOWN_S
        and not report["sections"]
    )
    if name != "logstart" and not is_plain:
        send(name, **event)
