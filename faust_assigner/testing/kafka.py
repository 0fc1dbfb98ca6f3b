"""A real Apache Kafka for tests: one KRaft node on loopback, temporary data, stopped by its owner.

Maven fetches the jars once into a cache folder, so that a second run needs no registry:

    python -m faust_assigner.testing.kafka        # fetch the jars, start, say hello, stop

>>> with kafka_server() as server:                                        # doctest: +SKIP
...     print(server.bootstrap)                                           # '127.0.0.1:40123'
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faust_assigner.pipeline.maven import fetch_jars
from faust_assigner.testing.kafka_security import (
    LISTENER,
    USERS_LISTENER,
    SecuredListener,
    plain_settings,
)
from faust_assigner.testing.ports import free_port

KAFKA_VERSION = "4.3.1"
POM = Path(__file__).with_name("kafka-pom.xml")
START_TIMEOUT_S = 180.0

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.enable": "true",
}


class KafkaUnavailable(RuntimeError):
    """Raised if Kafka did not start, or one of its tools failed; the message has the reason."""


def kafka_jars() -> Path:
    """Return the folder of Apache Kafka's jars; fetch missing jars."""
    return fetch_jars(POM, f"kafka-{KAFKA_VERSION}")


@dataclass
class KafkaServer:
    """A running broker: its address, its folder with data and log, and its current process."""

    bootstrap: str
    data: Path
    process: subprocess.Popen[bytes]
    #: A second listener for clients with TLS and a password, if requested.
    secured: SecuredListener | None = None
    #: The address of a listener with log-ins by PLAIN and without TLS, if requested.
    users_bootstrap: str = ""
    #: The folder with Kafka's jars; None for the folder of :func:`kafka_jars`.
    jars: Path | None = None

    def log_tail(self, characters: int = 4000) -> str:
        """Return the end of the server's log, for error messages."""
        return (self.data / "server.log").read_text(errors="replace")[-characters:]

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal and wait until the process ends; send SIGKILL after 30 s."""
        self.process.send_signal(number)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def start_again(self) -> None:
        """Start again after :meth:`end`, on the same port and data. Raises KafkaUnavailable."""
        self.process = _launch(
            self.jars or kafka_jars(), self.data / "server.properties", self.data
        )
        _wait_until_listening(self, int(self.bootstrap.rpartition(":")[2]))

    def tool(self, main_class: str, *arguments: str, timeout_s: float = 60.0) -> str:
        """Run one of Kafka's command-line tools (``org.apache.kafka.tools.TopicCommand``, ...)."""
        done = subprocess.run(
            ["java", "-Xmx256m", "-cp", f"{self.jars or kafka_jars()}/*", main_class, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if done.returncode != 0:
            raise KafkaUnavailable(f"{main_class} {arguments}: {done.stdout}{done.stderr}")
        return done.stdout


@contextlib.contextmanager
def kafka_server(
    settings: Mapping[str, str | None] | None = None,
    *,
    with_secured: bool = False,
    users: Mapping[str, str] | None = None,
    jars: Path | None = None,
) -> Iterator[KafkaServer]:
    """Start one KRaft node; stop it and remove its data at the end of the block.

    ``settings`` have priority over ``SETTINGS``; a setting of None keeps Kafka's own default.
    ``with_secured`` adds a listener with TLS and SCRAM (it needs keytool, a part of Java).
    ``users`` (passwords by name) adds a listener with PLAIN and without TLS. ``jars`` is a folder
    with another version of Kafka. Raises KafkaUnavailable.
    """
    jars = jars or kafka_jars()
    data = Path(tempfile.mkdtemp(prefix="faust-assigner-kafka-"))
    port = free_port()
    secured = SecuredListener(f"127.0.0.1:{free_port()}", data) if with_secured else None
    if secured is not None:
        secured.make_certificate()
    users_bootstrap = f"127.0.0.1:{free_port()}" if users else ""
    advertised = [
        f"PLAINTEXT://127.0.0.1:{port}",
        *([f"{LISTENER}://{secured.bootstrap}"] if secured else []),
        *([f"{USERS_LISTENER}://{users_bootstrap}"] if users else []),
    ]
    properties = {
        **SETTINGS,
        **(plain_settings(users) if users else {}),
        **(secured.server_settings() if secured else {}),
        **_addresses(advertised, data),
        **(settings or {}),
    }
    config = data / "server.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in properties.items() if v is not None))
    server: KafkaServer | None = None
    try:
        _format_storage(jars, config, secured)
        process = _launch(jars, config, data)
        server = KafkaServer(f"127.0.0.1:{port}", data, process, secured, users_bootstrap, jars)
        _wait_until_listening(server, port)
        yield server
    finally:
        if server is not None and server.process.poll() is None:
            server.end()
        shutil.rmtree(data, ignore_errors=True)


def _addresses(advertised: Sequence[str], data: Path) -> dict[str, str]:
    """Return the settings for the listeners, the controller's address and the folder of logs."""
    controller = f"127.0.0.1:{free_port()}"
    return {
        "controller.quorum.bootstrap.servers": controller,
        "listeners": ",".join([*advertised, f"CONTROLLER://{controller}"]),
        "advertised.listeners": ",".join(advertised),
        "log.dirs": str(data / "logs"),
    }


def _format_storage(jars: Path, config: Path, secured: SecuredListener | None) -> None:
    users = ["--add-scram", secured.add_user()] if secured else []
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    done = subprocess.run(
        [
            "java",
            "-cp",
            f"{jars}/*",
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            "-c",
            str(config),
            "--standalone",
            *users,
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise KafkaUnavailable(f"storage format failed:\n{done.stdout}{done.stderr}")


def _launch(jars: Path, config: Path, data: Path) -> subprocess.Popen[bytes]:
    log4j = data / "log4j2.yaml"
    log4j.write_text(
        "Configuration:\n  Appenders:\n    Console:\n      name: STDOUT\n"
        "      PatternLayout:\n        pattern: '%d %p %c: %m%n'\n"
        "  Loggers:\n    Root:\n      level: WARN\n      AppenderRef:\n        - ref: STDOUT\n"
    )
    with open(data / "server.log", "ab") as log:
        return subprocess.Popen(
            [
                "java",
                "-Xmx768m",
                f"-Dlog4j2.configurationFile={log4j}",
                "-cp",
                f"{jars}/*",
                "kafka.Kafka",
                str(config),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _wait_until_listening(server: KafkaServer, port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise KafkaUnavailable(
                f"Kafka exited with {server.process.returncode}:\n{server.log_tail()}"
            )
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        time.sleep(0.1)
    raise KafkaUnavailable(f"Kafka did not listen within {START_TIMEOUT_S} s:\n{server.log_tail()}")


if __name__ == "__main__":
    with kafka_server() as _server:
        print(
            f"Apache Kafka {KAFKA_VERSION} answered on {_server.bootstrap}; jars in {kafka_jars()}"
        )
