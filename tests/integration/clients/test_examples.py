"""The single writer and the pool of tasks: processes are killed, frozen and resumed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from examples.single_writer.reader import Turns
from tests.support.clients.topics import create_topics

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0
ON_KAFKA = pytest.param("kafka", marks=pytest.mark.kafka)
pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(params=["embedded", ON_KAFKA])
def broker(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The bootstrap address, and the fence that writers can have there."""
    server: Any = request.getfixturevalue(
        "embedded_broker" if request.param == "embedded" else "kafka"
    )
    return server.bootstrap, "generation" if request.param == "embedded" else "transactions"


class Processes:
    """Several processes of an example, and their output."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        self.folder, self.command = folder, [sys.executable, "-m", module, *arguments]
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Start a process."""
        with (self.folder / name).open("wb") as out:
            self.running[name] = subprocess.Popen(
                [*self.command, "--name", name], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT
            )

    def said(self, name: str) -> str:
        """Return the process's output so far."""
        return (self.folder / name).read_text()

    def ended(self) -> dict[str, str]:
        """Return the processes that have ended, with their last lines."""
        gone = [name for name, process in self.running.items() if process.poll() is not None]
        return {name: self.said(name)[-3_000:] for name in gone}

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until ``holds`` is true, or fail with all lines."""
        end = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < end, f"{what}:\n" + "\n".join(map(self.said, self.running))
            time.sleep(0.05)

    def close(self) -> None:
        """End the processes that still run."""
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.running.values():
            process.wait(30)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    """Make groups of processes and end them after the test."""
    made: list[Processes] = []

    def make(module: str, *arguments: str) -> Processes:
        made.append(Processes(tmp_path, module, *arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


async def records(bootstrap: str, topic: str) -> list[str]:
    """Return the writer of each record that a reader accepts, in order."""
    return [record.value.decode() for record in Turns().passed(await written(bootstrap, topic))]


async def written(bootstrap: str, topic: str) -> list[Any]:
    """Return every committed record, in order."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    try:
        (end,) = (await consumer.end_offsets([TopicPartition(topic, 0)])).values()
        found: list[Any] = []
        while await consumer.position(TopicPartition(topic, 0)) < end:
            batch = await consumer.getmany(timeout_ms=200)
            found += [record for rows in batch.values() for record in rows]
        return found
    finally:
        await consumer.stop()


async def create(bootstrap: str, topic: str) -> None:
    """Create a topic of one partition, so that all records have one order."""
    await create_topics(bootstrap, {topic: 1})


def test_one_writes_the_next_takes_over_and_the_old_one_is_fenced(
    broker: tuple[str, str], processes: Callable[..., Processes]
) -> None:
    """Another process writes while the writer is frozen; the resumed writer writes no more."""
    bootstrap, fence = broker
    topic = f"written-{uuid.uuid4().hex[:8]}"
    asyncio.run(create(bootstrap, topic))
    crowd = processes(
        "examples.single_writer.writer",
        "--bootstrap",
        bootstrap,
        "--topic",
        topic,
        "--fence",
        fence,
        "--group",
        topic,
        "--session",
        "6",
    )
    for name in "abc":
        crowd.start(name)
    crowd.until(
        "all are in the group", lambda: all("generation" in crowd.said(name) for name in "abc")
    )
    crowd.until("one writes", lambda: len(asyncio.run(records(bootstrap, topic))) > 2)
    first = asyncio.run(records(bootstrap, topic))[-1]
    crowd.running[first].send_signal(signal.SIGSTOP)
    crowd.until("another writes", lambda: asyncio.run(records(bootstrap, topic))[-1] != first)
    before = asyncio.run(records(bootstrap, topic))
    crowd.running[first].send_signal(signal.SIGCONT)
    crowd.until(
        "the old one notices",
        lambda: any(word in crowd.said(first) for word in ("fenced", "is no longer in the group")),
    )
    noticed = len(asyncio.run(records(bootstrap, topic)))
    crowd.until(
        "more is written", lambda: len(asyncio.run(records(bootstrap, topic))) > noticed + 2
    )
    after = asyncio.run(records(bootstrap, topic))[len(before) :]
    assert first not in after
    assert len(set(after)) == 1
    assert not (ended := crowd.ended()), ended


@pytest.mark.parametrize(
    ("broker", "step"),
    [("embedded", "write"), *(pytest.param("kafka", step, marks=pytest.mark.kafka)
                              for step in ("begin", "write", "commit"))],
    indirect=["broker"],
)  # fmt: skip
def test_a_writer_that_freezes_before_its_write_is_not_read_when_it_wakes(
    broker: tuple[str, str], step: str, processes: Callable[..., Processes], tmp_path: Path
) -> None:
    """The writer freezes after it learns that it is the writer and before it writes.

    With transactions its record is refused; otherwise the record is in the topic, and readers skip
    it.
    """
    bootstrap, fence = broker
    topic, ice = f"written-{uuid.uuid4().hex[:8]}", tmp_path / "ice"
    asyncio.run(create(bootstrap, topic))
    crowd = processes(
        "tests.support.clients.frozen_writer",
        step,
        "--ice",
        str(ice),
        "--bootstrap",
        bootstrap,
        "--topic",
        topic,
        "--fence",
        fence,
        "--group",
        topic,
        "--session",
        "6",
    )
    for name in "ab":
        crowd.start(name)
    crowd.until(
        "both are in the group", lambda: all("generation" in crowd.said(name) for name in "ab")
    )
    crowd.until("one writes", lambda: len(asyncio.run(records(bootstrap, topic))) > 2)
    ice.touch()
    crowd.until("the writer is frozen", lambda: not ice.exists())
    (first,) = [name for name in "ab" if "freezes" in crowd.said(name)]
    (second,) = set("ab") - {first}
    crowd.until("the other writes", lambda: asyncio.run(records(bootstrap, topic))[-1] == second)
    crowd.running[first].send_signal(signal.SIGCONT)
    crowd.until(
        "the old one notices",
        lambda: any(word in crowd.said(first) for word in ("fenced", "is no longer in the group")),
    )
    time.sleep(1)
    late = [record.value.decode() for record in asyncio.run(written(bootstrap, topic))]
    taken = asyncio.run(records(bootstrap, topic))
    assert first not in taken[taken.index(second) :]
    assert late[taken.index(second) :].count(first) == (1 if fence == "generation" else 0)
    assert not (ended := crowd.ended()), ended


def test_tasks_are_shared_out_once_and_stay_where_they_run(
    broker: tuple[str, str], processes: Callable[..., Processes]
) -> None:
    """Seven tasks on three workers, of which one is killed; no task ever runs twice at a time."""
    bootstrap, _ = broker
    tasks = [f"task-{number}" for number in range(7)]
    pool = processes(
        "examples.task_pool.worker",
        "--bootstrap",
        bootstrap,
        "--tasks",
        ",".join(tasks),
        "--group",
        f"pool-{uuid.uuid4().hex[:8]}",
        "--session",
        "6",
    )

    def running(name: str) -> list[str]:
        open_: list[str] = []
        for line in pool.said(name).splitlines():
            _, _, what, *task = line.split()
            if what == "begins":
                open_ += task
            elif what == "ends":
                open_ = [t for t in open_ if t not in task]
        return open_

    def shared_by(*names: str) -> bool:
        here = [task for name in names for task in running(name)]
        return (
            sorted(here) == tasks
            and max(len(running(n)) for n in names) - min(len(running(n)) for n in names) <= 1
        )

    for name in "abc":
        pool.start(name)
    pool.until("all tasks run", lambda: shared_by("a", "b", "c"))
    had = {name: set(running(name)) for name in "ac"}
    pool.running.pop("b").kill()
    pool.until("all tasks run again", lambda: shared_by("a", "c"))
    assert all(had[name] <= set(running(name)) for name in "ac")
    assert no_task_twice("".join(map(pool.said, "ac")))


def no_task_twice(lines: str) -> bool:
    """Return whether no task begins again before it ends."""
    running: dict[str, str] = {}
    for line in sorted(lines.splitlines(), key=lambda line: float(line.split()[0])):
        _, name, what, *task = line.split()
        if what == "begins" and running.setdefault(task[0], name) != name:
            return False
        if what == "ends":
            running.pop(task[0], None)
    return True
