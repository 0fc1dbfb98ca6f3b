"""``faust-assigner ui`` as a process beside a broker."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from faust_assigner.testing.broker import broker_process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of the page, the command's process, and its log."""
    log = tmp_path / "log"
    with broker_process() as broker, log.open("wb") as out:
        command = [sys.executable, "-m", "faust_assigner", "ui", "--port", "0"]
        process = subprocess.Popen(
            [*command, "--bootstrap", broker.bootstrap, "--group", "shop"],
            stdout=out,
            stderr=out,
            env={"PYTHONUNBUFFERED": "1", "PATH": ""},
        )
        try:
            wait_until(lambda: "Ctrl-C" in log.read_text(), log.read_text, seconds=90)
            found = re.search(r"http://\S+", log.read_text())
            assert found is not None
            yield found[0], process
        finally:
            process.kill()
            process.wait()


def get(url: str, **headers: str) -> tuple[int, str]:
    """(status, text)."""
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=30
        ) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_command_serves_a_page_until_it_is_ended(
    served: tuple[str, subprocess.Popen[bytes]],
) -> None:
    """The page reports an unknown group. A request under another host name is refused."""
    url, process = served
    wait_until(lambda: "No such group" in get(url)[1], lambda: get(url)[1][:2000], seconds=60)
    assert get(url, Host="evil.example:80")[0] == 403
    assert get(f"{url}page.css", Host="localhost")[0] == 200
    assert get(f"{url}no/such")[0] == get(f"{url}nothing")[0] == 404
    with urllib.request.urlopen(f"{url}events", timeout=30) as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert b"retry" in stream.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
