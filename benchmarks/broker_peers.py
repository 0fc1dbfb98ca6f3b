"""The brokers of ``benchmarks.broker`` as processes, with a plain listener and one with TLS and SCRAM."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from faust_assigner.pipeline.maven import fetch_jars
from faust_assigner.testing.kafka import kafka_server
from faust_assigner.testing.ports import free_port
from tests.support.certificates import Authority

KAFKA_VERSION = "4.4.0"
POM = Path(__file__).with_name("kafka-pom.xml")
MECHANISM, USER, PASSWORD = "SCRAM-SHA-512", "bench", "only-on-loopback"


@dataclass(frozen=True)
class Peer:
    """A running broker: librdkafka's settings for both listeners, and its start time in seconds."""

    bootstrap: str
    tls: Mapping[str, str]
    start_s: float
    plain: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", {"bootstrap.servers": self.bootstrap})


def login(bootstrap: str, authority: Path, user: str, password: str) -> Mapping[str, str]:
    """Return librdkafka's settings for the listener with TLS."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(authority),
    }


@contextlib.contextmanager
def embedded(data: Path | None) -> Iterator[Peer]:
    """Start the embedded broker by its command; ``data`` None keeps records in memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = Authority(folder)
        pair = authority.sign("127.0.0.1")
        (folder / "broker.pem").write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())
        (folder / "users").write_text(f"{USER}={PASSWORD}\n")
        plain, secured = (f"127.0.0.1:{free_port()}" for _ in range(2))
        settings = {
            "listeners": f"PLAINTEXT://{plain},SASL_SSL://{secured}",
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.users.file": folder / "users",
            "ssl.keystore.location": folder / "broker.pem",
            "group.initial.rebalance.delay.ms": 0,
        }
        command = [sys.executable, "-m", "faust_assigner.cli", "broker"]
        command += ["--data", str(data)] if data is not None else []
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on "), line
            start_s = time.monotonic() - began
            yield Peer(plain, login(secured, authority.ca, USER, PASSWORD), start_s)
        finally:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def kafka() -> Iterator[Peer]:
    """Start a single-node Apache Kafka with its data on disk; the start time includes formatting."""
    jars = fetch_jars(POM, f"kafka-{KAFKA_VERSION}")
    began = time.monotonic()
    with kafka_server(with_secured=True, jars=jars) as server:
        secured = server.secured
        assert secured is not None
        tls = login(secured.bootstrap, secured.certificate, secured.user, secured.password)
        yield Peer(server.bootstrap, tls, time.monotonic() - began)
