"""Apache Kafka as a test's server, with fake processes: its files, commands, start and end."""

from __future__ import annotations

import contextlib
import itertools
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.testing import kafka
from faust_assigner.testing.kafka import KafkaServer, KafkaUnavailable, kafka_server


class Java:
    """The machine of the tests: its processes, ports and clock, as one list of events."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.events = folder, list[Any]()
        self.code: int | None = None  # the server's exit code
        self.refusals, self.hangs, self.format_code = 0, 0, 0
        self.now = 0.0
        ports = itertools.count(4001)
        monkeypatch.setattr(kafka, "free_port", lambda: next(ports))
        monkeypatch.setattr(kafka, "kafka_jars", lambda: Path("/cached"))
        monkeypatch.setattr(kafka.tempfile, "mkdtemp", self.mkdtemp)
        monkeypatch.setattr(kafka.uuid, "uuid4", lambda: SimpleNamespace(bytes=b"0123456789abcde?"))
        monkeypatch.setattr(kafka.subprocess, "run", self.run)
        monkeypatch.setattr(kafka.subprocess, "Popen", self.popen)
        monkeypatch.setattr(kafka, "socket", SimpleNamespace(create_connection=self.connect))
        clock = SimpleNamespace(sleep=self.sleep, monotonic=lambda: self.now)
        monkeypatch.setattr(kafka, "time", clock)

    def mkdtemp(self, *, prefix: str) -> str:
        """Make the folder of the server."""
        self.data = self.folder / f"{prefix}1"
        self.data.mkdir()
        return str(self.data)

    def run(self, command: list[str], **more: Any) -> Any:
        """Run a tool to its end."""
        self.events.append((command, more))
        return SimpleNamespace(returncode=self.format_code, stdout="out ", stderr="err")

    def popen(self, command: list[str], **more: Any) -> Any:
        """Start the server, which writes a line into its log."""
        more["stdout"].write(b"line \xff\n")
        assert more.pop("stdout").name == str(self.data / "server.log")
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
        self.now += 80.0

    returncode = property(lambda self: self.code)

    def poll(self) -> int | None:
        """Return the server's exit code."""
        return self.code

    def send_signal(self, number: int) -> None:
        """Note the signal."""
        self.events.append(("signal", number))

    def wait(self, seconds: float | None = None) -> None:
        """Note the wait; time out while the server hangs."""
        self.events.append(("wait", seconds))
        if self.hangs:
            self.hangs -= 1
            raise subprocess.TimeoutExpired("java", seconds or 0.0)

    def kill(self) -> None:
        """Note the kill."""
        self.events.append("kill")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """A machine without processes."""
    return Java(tmp_path, monkeypatch)


def launched(data: Path, jars: str) -> tuple[list[str], dict[str, Any]]:
    """Return the command that starts the server."""
    command = [
        *("java", "-Xmx768m", f"-Dlog4j2.configurationFile={data / 'log4j2.yaml'}"),
        *("-cp", f"{jars}/*", "kafka.Kafka", str(data / "server.properties")),
    ]
    return command, {"stderr": subprocess.STDOUT, "start_new_session": True}


def formatted(data: Path, jars: str, *more: str) -> tuple[list[str], dict[str, Any]]:
    """Return the command that formats the server's storage."""
    command = [
        *("java", "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"),
        *("--cluster-id=MDEyMzQ1Njc4OWFiY2RlPw", "-c", str(data / "server.properties")),
        *("--standalone", *more),
    ]
    return command, {"capture_output": True, "text": True}


def test_a_server_is_formatted_started_awaited_ended_and_forgotten(java: Java) -> None:
    """A test's settings replace the defaults, and None leaves a setting out; the rest is exact."""
    java.refusals = 2
    settings = {"node.id": "8", "log.cleaner.enable": None, "log.dirs": "", "x": "a=b"}
    with kafka_server(settings, jars=Path("/own")) as server:
        written = (java.data / "server.properties").read_text()
        expected = {
            **kafka.SETTINGS,
            "node.id": "8",
            "controller.quorum.bootstrap.servers": "127.0.0.1:4002",
            "listeners": "PLAINTEXT://127.0.0.1:4001,CONTROLLER://127.0.0.1:4002",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:4001",
            "log.dirs": "",
            "x": "a=b",
        }
        del expected["log.cleaner.enable"]
        assert written == "".join(f"{name}={value}\n" for name, value in expected.items())
        log4j = (java.data / "log4j2.yaml").read_text()
        assert "level: WARN" in log4j
        assert server == KafkaServer(
            "127.0.0.1:4001",
            java.data,
            java,
            None,
            "",
            Path("/own"),  # type: ignore[arg-type]
        )
        assert server.log_tail() == "line \ufffd\n"
        assert server.log_tail(3) == " \ufffd\n"
        asked = ("connect", ("127.0.0.1", 4001), 1.0)
        assert java.events == [
            formatted(java.data, "/own"),
            launched(java.data, "/own"),
            *(asked, ("sleep", 0.1), asked, ("sleep", 0.1), asked),
        ]
        java.events.clear()
    assert java.events == [("signal", signal.SIGTERM), ("wait", 30)]
    assert not java.data.exists()


def test_a_server_with_users_and_certificates_advertises_three_listeners(
    java: Java, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate exists before the start, and the storage is formatted with the user."""
    monkeypatch.setattr(
        kafka.SecuredListener, "make_certificate", lambda it: java.events.append("certificate")
    )
    with kafka_server(with_secured=True, users={"ann": "p1"}) as server:
        assert server.secured is not None
        assert (server.secured.bootstrap, server.secured.folder) == ("127.0.0.1:4002", java.data)
        assert (server.bootstrap, server.users_bootstrap) == ("127.0.0.1:4001", "127.0.0.1:4003")
        lines = (java.data / "server.properties").read_text().splitlines()
        found = dict(line.split("=", 1) for line in lines)
        advertised = "PLAINTEXT://127.0.0.1:4001,SECURED://127.0.0.1:4002,USERS://127.0.0.1:4003"
        assert found["advertised.listeners"] == advertised
        assert found["listeners"] == f"{advertised},CONTROLLER://127.0.0.1:4004"
        assert found["log.dirs"] == str(java.data / "logs")
        assert 'user_ann="p1"' in found["listener.name.users.plain.sasl.jaas.config"]
        assert found.items() >= server.secured.server_settings().items()
        assert java.events[:3] == [
            "certificate",
            formatted(java.data, "/cached", "--add-scram", server.secured.add_user()),
            launched(java.data, "/cached"),
        ]


def test_a_server_that_ended_by_itself_gets_no_signal(java: Java) -> None:
    """Its data is removed, after a failure of the test too."""

    def fails() -> None:
        with kafka_server():
            java.code = 0
            java.events.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (java.events, java.data.exists()) == ([], False)


def test_a_failed_format_starts_no_server(java: Java) -> None:
    """The error has the tool's output, and the data is removed."""
    java.format_code = 3
    with pytest.raises(KafkaUnavailable) as failure, kafka_server():
        pytest.fail("it has not started")
    assert str(failure.value) == "storage format failed:\nout err"
    assert (len(java.events), java.data.exists()) == (1, False)


@pytest.mark.parametrize("code", [0, 5])
def test_a_server_that_exits_before_it_listens_is_an_error_at_once(java: Java, code: int) -> None:
    """The error has the exit code and the end of the log."""
    java.code, java.refusals = code, 9
    with pytest.raises(KafkaUnavailable) as failure, kafka_server():
        pytest.fail("it has not started")
    assert str(failure.value) == f"Kafka exited with {code}:\nline \ufffd\n"
    assert [one for one in java.events if one == ("sleep", 0.1)] == []


def test_a_server_that_never_listens_is_ended_after_three_minutes(java: Java) -> None:
    """The error has the time and the end of the log."""
    java.refusals = 9
    with pytest.raises(KafkaUnavailable) as failure, kafka_server():
        pytest.fail("it has not started")
    assert str(failure.value) == "Kafka did not listen within 180.0 s:\nline \ufffd\n"
    assert java.events[2:] == [
        *(("connect", ("127.0.0.1", 4001), 1.0), ("sleep", 0.1)) * 3,
        *(("signal", signal.SIGTERM), ("wait", 30)),
    ]


@pytest.fixture
def server(java: Java) -> Iterator[KafkaServer]:
    """A running server, with later events alone."""
    with kafka_server(jars=Path("/own")) as started:
        java.events.clear()
        yield started
        java.code = 0


def test_a_server_that_ignores_its_signal_is_killed(java: Java, server: KafkaServer) -> None:
    """The kill follows 30 seconds."""
    java.hangs = 1
    server.end(signal.SIGINT)
    assert java.events == [*(("signal", signal.SIGINT), ("wait", 30), "kill", ("wait", None))]


@pytest.mark.parametrize(("jars", "used"), [(Path("/own"), "/own"), (None, "/cached")])
def test_a_server_starts_again_on_its_port_and_data(
    java: Java, server: KafkaServer, jars: Path | None, used: str
) -> None:
    """Its storage is not formatted again, and its log is continued."""
    server.jars, server.process = jars, None  # type: ignore[assignment]
    server.start_again()
    assert server.process is java
    assert java.events == [launched(java.data, used), ("connect", ("127.0.0.1", 4001), 1.0)]
    assert server.log_tail() == "line \ufffd\n" * 2


def test_a_tool_runs_with_the_servers_jars(java: Java, server: KafkaServer) -> None:
    """The result is the standard output; an error has both outputs."""
    assert server.tool("a.Tool", "--x", "1", timeout_s=4.0) == "out "
    server.jars = None
    for code in (1, -9):
        java.format_code = code
        with pytest.raises(KafkaUnavailable) as failure:
            server.tool("b.Tool", "y")
        assert str(failure.value) == "b.Tool ('y',): out err"
    assert java.events == [
        (
            ["java", "-Xmx256m", "-cp", f"{jars}/*", *command],
            {"capture_output": True, "text": True, "timeout": timeout_s},
        )
        for jars, command, timeout_s in (
            ("/own", ("a.Tool", "--x", "1"), 4.0),
            *2 * [("/cached", ("b.Tool", "y"), 60.0)],
        )
    ]
