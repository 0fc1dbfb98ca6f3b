"""The tutorial, block by block, on the embedded broker: the output is the output on the page."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from faust_assigner.testing.ports import free_port
from tests.integration.docs.stage import Service, Stage
from tests.support.clients.end_offsets import end_offset
from tests.support.pages import ALL, ROOT, Block
from tests.support.waiting import PATIENCE_S

BLOCKS = [block for block in ALL if block.page == "docs/tutorial/first-app.md"
          and block.language in ("sh", "console") and not block.reason]
ASSIGNED = re.compile(r"Highwater - Active.*?Worker ready", re.DOTALL)
TAKEN_ON = re.compile(r"of the active changelogs [1-9].*Assigned [1-9]", re.DOTALL)
OF_THE_ACTIVE = re.compile(r"of the active changelogs (\d+) warm, (\d+) cold")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A folder like the repository's, with its environment and its own ports."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    here = Stage(tmp_path, stands_for={port: str(free_port()) for port in ("9092", "6061", "6062", "6063")},
                 keeps_services=True)
    yield here
    here.close()


def warm_and_cold(service: Service, *, after: int) -> tuple[int, int]:
    """Return how many active changelogs of the last assignment were warm and cold."""
    service.wait_for(TAKEN_ON, after=after)
    warm, cold = OF_THE_ACTIVE.findall(service.said()[after:])[-1]
    return int(warm), int(cold)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_tutorial_word_by_word(stage: Stage) -> None:
    """The dead worker's partitions go to recent copies; it restarts from the end of its files."""
    blocks = iter(BLOCKS)
    activate, broker, *workers = (next(blocks) for _ in range(5))
    stage.run(activate)
    stage.run(broker)
    running = {name: stage.run(block)[0] for name, block in zip(("w1", "w2", "w3"), workers, strict=True)}
    for service in running.values():
        service.wait_for(ASSIGNED)
    orders = stage.run(next(blocks))[0]
    wait_for_records(stage.local("127.0.0.1:9092"))
    before = {name: len(service.said()) for name, service in running.items()}
    stage.run(next(blocks))  # ls: databases of the table

    stage.stands_for["PID"] = str(running["w2"].process.pid)
    stage.run(next(blocks))  # kill -9
    assert running["w2"].process.wait(PATIENCE_S) == -signal.SIGKILL
    assert {name: warm_and_cold(running[name], after=before[name]) for name in ("w1", "w3")} == {
        "w1": (12, 0), "w3": (12, 0)}

    back = stage.run(workers[1])[0]
    back.wait_for(re.compile(r"of the active changelogs 8 warm, 0 cold"))
    finish(stage, orders, next(blocks))
    assert next(blocks, None) is None


def wait_for_records(bootstrap: str, *, each: int = 60) -> None:
    """Wait until each changelog partition has enough records to make a cold start visible."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "watcher"})
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            ends = [end_offset(client, "shop-totals-changelog", p) for p in range(12)]
            if min(ends) >= each:
                time.sleep(3)  # a standby writes every second
                return
            time.sleep(0.5)
    finally:
        client.close()
    raise AssertionError(f"the changelog's partitions end at {ends}")


def finish(stage: Stage, orders: Service, remove: Block) -> None:
    """Stop all with Ctrl-C; only the folders remain, and are removed."""
    assert orders.stop() == 0
    assert re.search(r"^\d+ orders sent$", orders.said(), re.MULTILINE)
    for service in reversed(stage.services):
        if service.process.poll() is None:
            assert service.stop() == 0, service.said()[-2000:]
    stage.run(remove)
    assert not [name for name in ("w1", "w2", "w3", "broker-data") if (stage.folder / name).exists()]
