"""Starts Python processes of tests from a process that has done their imports.

Half of the computing of a story on real workers was the import of Faust and of this package, anew
for each start of a worker. Here one process for each kind of program imports the kind's libraries
and then waits; each start forks it. The new process has its own environment, arguments, folder and
files. It runs the module that ``python -m`` would run, and it is a child of the test's process. The
kernel hands it over as an orphan, because ``leaks.py`` makes the test's process the reaper.

A start is done by ``exec``, as ever, if the program is of no kind, or if it differs from this
process in a setting of Python, or could import another copy of the libraries.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: A test may replace ``sys.executable``.
PYTHON = sys.executable
#: Kind -> the modules that it imports before its first start. They read no environment, start no
#: thread and open no file.
KINDS: Mapping[str, tuple[str, ...]] = {
    "worker": (
        *(
            "faust",
            "faust.app.base",
            "faust.cli.faust",
            "faust.fixups.base",
            "faust.stores.rocksdb",
        ),
        *("faust.transport.drivers.aiokafka", "faust.web.drivers.aiohttp", "faust.worker"),
        *("faust_assigner.app.assignor", "faust_assigner.app.compose", "faust_assigner.app.fixup"),
        *("faust_assigner.page.mount", "croniter", "colorlog", "cramjam", "rocksdict"),
    ),
    "broker": (
        "faust_assigner.cli.commands",
        "faust_assigner.cli.broker",
        "faust_assigner.broker.serve",
    ),
}
#: The arguments of a process that differ from ``exec``: none of them may be given.
_PLAIN = (True, None, None, None, -1, False, -1)
_HEADER = 8


def kind_of(command: Sequence[str]) -> str | None:
    """Return the kind of ``python -m MODULE ARGUMENTS``; None for any other program."""
    if len(command) < 3 or command[0] != PYTHON or command[1] != "-m":
        return None
    module = command[2]
    if module.startswith("tests.support.workers.") or module == "faust_assigner.testing.worker":
        return "worker"
    return "broker" if [module, *command[3:4]] == ["faust_assigner.cli", "broker"] else None


def is_alike(environment: Mapping[str, str], folder: str) -> bool:
    """Return whether a process has this process's Python settings, and the same libraries."""
    if sys.platform != "linux":
        return False

    def settings(of: Mapping[str, str]) -> dict[str, str]:
        return {k: v for k, v in of.items() if k.startswith("PYTHON") and k != "PYTHONPATH"}

    places = [folder, *environment.get("PYTHONPATH", "").split(os.pathsep)]
    others = {place for place in places if place and Path(place).resolve() != ROOT}
    return settings(environment) == settings(os.environ) and not any(
        os.path.isdir(os.path.join(place, name))
        for place in others - set(sys.path)
        for name in ("faust_assigner", "faust")
    )


class Popen(subprocess.Popen[Any]):
    """``subprocess.Popen`` that forks a warm process where it can."""

    def _execute_child(self, args: Any, executable: Any, *rest: Any) -> None:
        pid = self._forked(args, executable, rest)
        if pid is None:
            super()._execute_child(args, executable, *rest)  # type: ignore[misc]
            return
        self.pid, self._child_created = pid, True
        self._close_pipe_fds(*rest[8:14])  # type: ignore[attr-defined]

    def _forked(self, args: Any, executable: Any, rest: tuple[Any, ...]) -> int | None:
        preexec, closes, passed, cwd, env, _, _, shell = rest[:8]
        if isinstance(args, str | bytes | os.PathLike) or any((executable, preexec, passed, shell)):
            return None
        command, folder = [os.fsdecode(one) for one in args], os.fsdecode(cwd or os.getcwd())
        environment = dict(os.environ if env is None else env)
        kind, streams = kind_of(command), (rest[8], rest[11], rest[13])
        if kind is None or not closes or rest[14:] != _PLAIN or not is_alike(environment, folder):
            return None
        files = [own if given == -1 else given for own, given in enumerate(streams)]
        if any(map(os.isatty, files)) or not os.path.isdir(folder):
            return None
        try:
            return _warm(kind).start([command[2:], environment, folder], files)
        except OSError:  # the warm process has ended
            del _running[kind]
            return None


class Warm:
    """The process of one kind. It ends with this process."""

    def __init__(self, kind: str) -> None:
        self.owner, self._lock = os.getpid(), threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            program = f"from tests.support import warm; warm.serve({kind!r}, {theirs.fileno()})"
            self._process = subprocess.Popen(
                [PYTHON, "-c", program],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        from tests.support import leaks  # imports pytest

        pid = self._process.pid
        leaks.excuse(lambda kind, thing: (kind, thing) == ("pid", pid))

    def start(self, program: object, files: Sequence[int]) -> int:
        """Start a process with these three files; return its number."""
        body = json.dumps(program).encode()
        with self._lock:
            socket.send_fds(self._socket, [len(body).to_bytes(_HEADER)], files)
            self._socket.sendall(body)
            if len(answer := _read(self._socket, _HEADER)) < _HEADER:
                raise BrokenPipeError(f"the warm process {self._process.pid} has ended")
        return int.from_bytes(answer)


_running: dict[str, Warm] = {}
_starting = threading.Lock()


def _warm(kind: str) -> Warm:
    with _starting:
        if kind not in _running or _running[kind].owner != os.getpid():
            _running[kind] = Warm(kind)
        return _running[kind]


def _read(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (part := source.recv(count - len(data))):
        data += part
    return data


def serve(kind: str, number: int) -> None:
    """Import the kind's modules; fork for each request, and run its program in the new process."""
    path = [place for place in sys.path[1:] if place not in _python_path()]
    for module in KINDS.get(kind, ()):
        importlib.import_module(module)
    if kind == "worker":
        _load_names_of_faust()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as source:
        program = _wait_for_fork(source)
    if program is not None:
        (module, *arguments), environment, folder = program
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        sys.path[:] = [folder, *filter(None, _python_path()), *path]
        sys.argv[:] = [module, *arguments]
        runpy._run_module_as_main(module)  # type: ignore[attr-defined]


def _python_path() -> list[str]:
    return os.environ.get("PYTHONPATH", "").split(os.pathsep)


def _load_names_of_faust() -> None:
    """Faust imports its parts at the first use of their names."""
    import faust

    for name in faust.__all__:
        with contextlib.suppress(AttributeError, ImportError):
            getattr(faust, name)


def _wait_for_fork(source: socket.socket) -> Any:
    """Return the program in a new process; return None after the last request."""
    while True:
        header, files, _, _ = socket.recv_fds(source, _HEADER, 3)
        if not header:
            return None
        body = _read(source, int.from_bytes(header))
        reading, writing = os.pipe()
        if (between := os.fork()) == 0:
            if (pid := os.fork()) == 0:
                for target, file in enumerate(files):
                    os.dup2(file, target)
                for file in (reading, writing, *files):
                    os.close(file)
                return json.loads(body)
            os.write(writing, pid.to_bytes(_HEADER))
            os._exit(0)
        os.waitpid(between, 0)
        source.sendall(os.read(reading, _HEADER))
        for file in (reading, writing, *files):
            os.close(file)
