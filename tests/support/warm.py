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
import io
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
SCRIPT = str(Path(PYTHON).with_name("faust-assigner"))
#: Kafka's requests and answers of the versions that aiokafka speaks. A broker imports each at its first use.
SPOKEN = (
    *("add_offsets_to_txn.v0", "add_partitions_to_txn.v0", "api_versions.v0", "create_topics.v3"),
    *("describe_configs.v2", "end_txn.v0", "fetch.v11", "find_coordinator.v1", "heartbeat.v1"),
    *("init_producer_id.v0", "join_group.v5", "leave_group.v1", "list_offsets.v3", "metadata.v1"),
    *("metadata.v5", "offset_commit.v3", "offset_fetch.v3", "produce.v7", "sync_group.v3"),
    *("txn_offset_commit.v0",),
)
#: Kind -> the modules that it imports before its first start. They start no thread and open no file,
#: and read no environment but ``_READ_AT_IMPORT``.
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
    "command": (
        *(
            f"faust_assigner.cli.{name}"
            for name in ("commands", "broker", "deploy_check", "doctor")
        ),
        *(f"faust_assigner.cli.{name}" for name in ("groups", "status", "ui", "why")),
        *("faust_assigner.broker.serve", "faust_assigner.clients.groups"),
        *("faust_assigner.status.collect", "faust_assigner.status.render", "rich.table"),
        *(f"kio.schema.{name}.{side}" for name in SPOKEN for side in ("request", "response")),
    ),
    "grpc": (
        *("faust_assigner.cli.commands", "faust_assigner.cli.scaler", "faust_assigner.cli.serve"),
        *(
            "faust_assigner.cli.service",
            "faust_assigner.service.client",
            "faust_assigner.status.collect",
        ),
        *("faust_assigner.service.server.options", "faust_assigner.service.server.serve"),
    ),
}
#: A worker of xdist; ``forked_workers.py`` begins the process of this kind.
XDIST = [PYTHON, "-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
#: Commands of these kinds; another command is rare, or starts Spark.
COMMANDS = {
    **dict.fromkeys(
        ("broker", "deploy-check", "doctor", "groups", "status", "ui", "why"), "command"
    ),
    **dict.fromkeys(("scaler", "serve", "service"), "grpc"),
}
#: The last arguments of a process, without a new session; with others it is started by ``exec``.
_PLAIN = (True, None, None, None, -1, -1)
#: Settings that Python or a library reads only at its start.
_READ_AT_IMPORT = (
    *("PYTHON", "FAUST_", "F_", "NO_CYTHON", "TYPEXPR_"),
    *("AIOHTTP_", "AIOKAFKA_", "GRPC_", "SSL_"),
)
#: Python's settings that a forked process follows.
_FOLLOWED = frozenset({"PYTHONPATH", "PYTHONUNBUFFERED"})
_HEADER = 8


def kind_of(command: Sequence[str]) -> str | None:
    """Return the kind of a program's command line; None for a program of no kind."""
    program, *words = command
    if command == XDIST:
        return "xdist" if "xdist" in _running else None
    if program == SCRIPT:
        return COMMANDS.get(*words[:1]) if words else None
    if program != PYTHON or len(words) < 2 or words[0] != "-m":
        return None
    module = words[1]
    if words[2:3] == ["worker"] or module == "faust_assigner.testing.worker":
        return "worker"
    is_ours = module in ("faust_assigner", "faust_assigner.cli")
    return COMMANDS.get(words[2]) if is_ours and len(words) > 2 else None


def is_alike(environment: Mapping[str, str], folder: str) -> bool:
    """Return whether the environment has this process's settings, and leads to its libraries."""
    if sys.platform != "linux":
        return False

    def settings(of: Mapping[str, str]) -> dict[str, str]:
        names = {name for name in of if name.startswith(_READ_AT_IMPORT)} - _FOLLOWED
        return {name: of[name] for name in names if not name.startswith("FAUST_ASSIGNER_")}

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
        *others, is_session, process_group = rest[14:]
        is_plain = closes and (*others, process_group) == _PLAIN
        if kind is None or not is_plain or not is_alike(environment, folder):
            return None
        files = [own if given == -1 else given for own, given in enumerate(streams)]
        has_terminal = kind != "xdist" and any(map(os.isatty, files))
        if has_terminal or not os.path.isdir(folder):
            return None
        try:
            return _warm(kind).start([command, environment, folder, is_session], files)
        except OSError:  # the warm process has ended
            del _running[kind]
            return None


class Warm:
    """The process of one kind. It ends with this process."""

    def __init__(self, program: str, folder: str | Path) -> None:
        """``program`` is Python's source, with %d for the number of the socket of the requests."""
        self.owner, self._lock = os.getpid(), threading.Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [PYTHON, "-c", program.replace("%d", str(theirs.fileno()), 1)],
                cwd=folder,
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


def begin(kind: str, program: str, folder: str | Path = ROOT) -> None:
    """Start the process of a kind now."""
    _running[kind] = Warm(program, folder)


def _warm(kind: str) -> Warm:
    with _starting:
        if kind not in _running or _running[kind].owner != os.getpid():
            begin(kind, f"from tests.support import warm; warm.serve({kind!r}, %d)")
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
        _cache_shapes_of_the_host()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=number) as source:
        program = wait_for_fork(source)
    if program is not None:
        command, environment, folder, is_session = program
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        if is_session:
            os.setsid()
        open_streams(is_unbuffered=bool(environment.get("PYTHONUNBUFFERED")))
        sys.path[:] = [*filter(None, _python_path()), *path]
        _run(command, folder)


def open_streams(*, is_unbuffered: bool) -> None:
    """Open the three streams as Python does at its start: the old ones know the old files."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        is_raw = is_unbuffered and number > 0
        mode, is_by_line = ("wb" if number else "rb"), number == 2 and not is_raw
        file: Any = open(number, mode, 0 if is_raw else -1, closefd=False)  # noqa: SIM115
        stream = io.TextIOWrapper(
            file,
            old.encoding,
            old.errors,
            "\n",
            line_buffering=is_by_line,
            write_through=is_unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(command: Sequence[str], folder: str) -> None:
    """Run a script by its path, or the module of ``python -m``."""
    program, *words = command
    if program == SCRIPT:
        sys.path.insert(0, str(Path(program).parent))
        sys.argv[:] = [program, *words]
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path.insert(0, folder)
        sys.argv[:] = words[1:]
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]


def _python_path() -> list[str]:
    return os.environ.get("PYTHONPATH", "").split(os.pathsep)


def _load_names_of_faust() -> None:
    """Faust imports its parts at the first use of their names."""
    import faust

    for name in faust.__all__:
        with contextlib.suppress(AttributeError, ImportError):
            getattr(faust, name)


def _cache_shapes_of_the_host() -> None:
    """Compute the shapes of the host's names, which each app compares at its start and a process keeps."""
    from faust_assigner.app.host import check

    for api in check.PRIVATE_APIS:
        check.shape_of(api)


def wait_for_fork(source: socket.socket) -> Any:
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
