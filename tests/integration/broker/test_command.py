"""``faust-assigner broker``: its output, its stop and its refusals."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from faust_assigner.broker.settings import Settings
from faust_assigner.testing.broker import BrokerProcess, broker_process
from tests.support.clients.raw_client import RawClient, batch

pytestmark = pytest.mark.processes


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    whole = [sys.executable, "-m", "faust_assigner.cli", "broker", *arguments]
    return subprocess.run(whole, capture_output=True, text=True, timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_listens_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    """Port 0 picks a free port; SIGTERM and SIGINT exit with 0, even during a long poll."""
    with (
        broker_process(tmp_path, "num.partitions=3") as broker,
        RawClient(broker.bootstrap) as client,
    ):
        made = client.call(3, 12, topics=[{"name": "t"}], allow_auto_topic_creation=True).topics[0]
        assert len(made.partitions) == 3
        assert client.produce("t", 0, batch()).error_code == 0
        part = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 10**6}
        client.send(
            1, 11, max_bytes=10**7, min_bytes=1, topics=[{"topic": "t", "partitions": [part]}]
        )
        assert broker.stop(number) == 0
    again = BrokerProcess(tmp_path, port=broker.port)
    assert again.bootstrap == broker.bootstrap
    with RawClient(again.bootstrap) as client:
        assert [t.name for t in client.call(3, 12, topics=None).topics] == ["t"]
    assert again.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "num.partition=3"), ("num.partition", "num.partitions")),
        (("--set", "num.partitions=none"), ("num.partitions", "none")),
        (("--set", "num.partitions=0"), ("num.partitions", "0")),
        (("--set", "num.partitions"), ("NAME=VALUE",)),
        (("--port", "70000"), ("70000",)),
        (("--set", "nothing.like.it=1"), ("nothing.like.it", "broker --settings lists")),
    ],
)
def test_a_bad_setting_is_named_and_the_exit_code_is_2(
    arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """No listener opens, and stderr has no traceback."""
    done = command(*arguments)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words)
    assert "Traceback" not in done.stderr
    assert "listening" not in done.stdout


def test_a_host_without_an_address_is_named() -> None:
    """The resolver's own error does not contain the host."""
    done = command("--port", "0", "--host", "no host")
    assert (done.returncode, "the host 'no host' has no address" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_said_in_one_line() -> None:
    """Exit code 1: the request was fine, the machine was not."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = command("--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_settings_are_listed_with_their_defaults() -> None:
    """--settings is the reference at hand."""
    listed = command("--settings").stdout
    for name, value in Settings().by_kafka_name().items():
        assert f"{name}={value or '(empty)'}\n" in listed
