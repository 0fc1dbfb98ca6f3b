"""The RocksDB example: its consumers run as processes, are moved and killed, and count exactly."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from examples.warm_counts.store import Counts
from faust_assigner.broker import EmbeddedBroker
from faust_assigner.service.client import TopicPartition
from tests.support.assigning.instances import (
    QUICK,
    ROOT,
    Instance,
    calls_ended,
    instances,
    until,
    until_state,
)

pytestmark = pytest.mark.processes
PARTITIONS = 4


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Start a broker that creates topics of four partitions on demand."""
    with EmbeddedBroker(settings={"num.partitions": PARTITIONS}) as one:
        yield one


@pytest.fixture
def service(tmp_path: Path, broker: EmbeddedBroker) -> Iterator[Instance]:
    """Start a strict service: the old owner stops first."""
    with instances(tmp_path, *QUICK, "--strict", "--topic", f"words={PARTITIONS}") as (one,):
        yield one


class CountingProcess:
    """A process of the example and its journal."""

    def __init__(self, folder: Path, service: Instance, broker: EmbeddedBroker, name: str) -> None:
        self.data = folder / name
        self.journal = folder / f"{name}.jsonl"
        self.journal.touch()
        self.log = (folder / f"{name}.log").open("wb")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "examples.warm_counts.app",
                "--service",
                service.target,
                "--kafka",
                broker.bootstrap,
                "--name",
                name,
                "--data",
                str(self.data),
                "--journal",
                str(self.journal),
            ],
            cwd=ROOT,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def told(self, kind: str) -> list[dict[str, Any]]:
        """The journal's lines of one kind."""
        rows = [
            json.loads(line) for line in self.journal.read_text().splitlines() if line.endswith("}")
        ]
        return [row for row in rows if row["kind"] == kind]

    def stop(self) -> int:
        """Press Ctrl-C: the process hands over and ends."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self.log.close()
        return code

    def kill(self) -> None:
        """Kill the process without a hand-over."""
        self.process.kill()
        self.process.wait()
        self.log.close()


class Words:
    """Sends words continuously; ``sent`` counts the words by partition."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.sent: Counter[tuple[int, str]] = Counter()
        self.ends = [0] * PARTITIONS
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Send until :meth:`stop`."""
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap) as producer:
            number = 0
            while not self._stop.is_set():
                word, at = f"w{number % 7}", number % PARTITIONS
                await producer.send_and_wait("words", word.encode(), partition=at)
                self.sent[at, word] += 1
                self.ends[at] += 1
                number += 1
                await asyncio.sleep(0.002)

    def stop(self) -> None:
        """Stop sending."""
        self._stop.set()


@pytest.mark.slow
async def test_counts_are_exact_while_partitions_move_warm(
    tmp_path: Path, service: Instance, broker: EmbeddedBroker
) -> None:
    """Processes join, crash and leave; each word counts once, and kept partitions are never closed."""
    words = Words(broker.bootstrap)
    sending = asyncio.create_task(words.run())
    first = CountingProcess(tmp_path, service, broker, "first")
    others: list[CountingProcess] = []
    try:
        await until(lambda: len(first.told("counted")) > 200)
        second = CountingProcess(tmp_path, service, broker, "second")
        others.append(second)
        await until(lambda: len(second.told("open")) == 2 and len(second.told("counted")) > 100)
        moved_are_warm(first, second)
        kept_never_stopped(first)
        second.kill()
        await until_owners(service, {"first": 4})
        third = CountingProcess(tmp_path, service, broker, "third")
        others.append(third)
        await until_owners(service, {"first": 2, "third": 2})
        await until(lambda: len(third.told("counted")) > 50)
        words.stop()
        await sending
        await until(lambda: counted([first, *others]) == dict(enumerate(words.ends)))
        assert await asyncio.to_thread(third.stop) == 0, (tmp_path / "third.log").read_text()
        await until_owners(service, {"first": 4})
        await until(lambda: len({row["partition"] for row in first.told("open")[-2:]}) == 2)
        assert await asyncio.to_thread(first.stop) == 0, (tmp_path / "first.log").read_text()
    finally:
        words.stop()
        await asyncio.gather(sending, return_exceptions=True)
        for one in (first, *others):
            if one.process.poll() is None:
                one.kill()
    assert stored(tmp_path / "first") == dict(words.sent)
    await calls_ended()


def moved_are_warm(old: CountingProcess, new: CountingProcess) -> None:
    """The new owner had warmed its partitions, and continued at the old owner's last offset."""
    ended = {row["partition"]: row["counted"] for row in old.told("close")}
    opened = {row["partition"]: row["counted"] for row in new.told("open")}
    assert opened == ended
    warmed = {row["partition"]: row["counted"] for row in new.told("warm")}
    assert warmed.keys() == opened.keys()
    assert all(warmed[number] > 0 for number in warmed)


def kept_never_stopped(one: CountingProcess) -> None:
    """The kept partitions were opened once and counted without a gap."""
    kept = {row["partition"] for row in one.told("open")} - {
        row["partition"] for row in one.told("close")
    }
    assert len(kept) == 2
    for number in kept:
        offsets = [row["offset"] for row in one.told("counted") if row["partition"] == number]
        assert offsets == list(range(len(offsets)))


def counted(members: list[CountingProcess]) -> dict[int, int]:
    """The number of counted records of each partition."""
    offsets: dict[int, set[int]] = {}
    for one in members:
        for row in one.told("counted"):
            offsets.setdefault(row["partition"], set()).add(row["offset"])
    return {number: len(found) for number, found in sorted(offsets.items())}


async def until_owners(service: Instance, loads: dict[str, int]) -> None:
    """Wait until these consumers own the partitions and no hand-off is open."""
    await until_state(
        service.target,
        lambda said: not said.handoffs and loads == Counter(one.owner for one in said.assignments),
    )


def stored(data: Path) -> dict[tuple[int, str], int]:
    """The counts on disk by partition and word."""
    found = {}
    for number in range(PARTITIONS):
        store = Counts(data / f"words-{number}")
        found |= {(number, word): count for word, count in store.items().items()}
        store.close()
    return found


def test_what_a_former_owner_still_sent_counts_nowhere(tmp_path: Path) -> None:
    """A change with a lower epoch, or of an already counted record, is skipped."""
    store = Counts(tmp_path / "words-0")
    for position, (offset, epoch) in enumerate([(0, 5), (1, 5), (2, 9), (3, 5), (2, 9), (3, 9)]):
        change = json.dumps({"count": offset + 1, "offset": offset, "epoch": epoch})
        store.take("word", change.encode(), position)
    assert (store.count("word"), store.next_offset, store.epoch, store.read) == (4, 4, 9, 6)
    store.close()


def test_a_partition_of_ours_is_aiokafkas() -> None:
    """The two types are equal with equal hashes: each finds the other's key in a dict."""
    from aiokafka import TopicPartition as Theirs

    assert {Theirs("words", 1): "x"}[TopicPartition("words", 1)] == "x"  # type: ignore[index]
