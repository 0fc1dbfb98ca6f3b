"""Real workers with windows start, leave and are killed; a model checks the closed windows.

Each (key, window) must close with its last value, never with None. It closes at least once under
``at_least_once`` and exactly once under ``exactly_once``. At the end no expired row is in the
changelog.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 4
#: Keys in each partition; a key has two records in each window.
KEYS = 100
SIZE = 10.0
#: The time of the first record, far behind the machine's clock: only records close windows of a
#: running stream.
FIRST_S = 1_000_000.0
#: The speed of the records' time relative to the machine's clock.
SPEED = 5.0

#: A key and its window's start -> the number of its records, and the last record's number.
Model = dict[tuple[str, float], tuple[int, int]]


class Group:
    """Workers of ``windowed.py`` in ``tests/support/workers``, their records, and the windows they close."""

    def __init__(self, bootstrap: str, folder: Path, guarantee: str, *, keys: int = KEYS) -> None:
        self.app_id, self.bootstrap = f"windows-{uuid.uuid4().hex[:6]}", bootstrap
        self.folder, self.guarantee, self.keys = folder, guarantee, keys
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        names = [f"{self.app_id}-{name}" for name in ("records", "closed")]
        topics = [NewTopic(name, PARTITIONS, 1) for name in names]
        topics.append(
            NewTopic(
                f"{self.app_id}-windows-changelog",
                PARTITIONS,
                1,
                config={"cleanup.policy": "compact,delete"},
            )
        )
        for made in admin.create_topics(topics).values():
            made.result(30)
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.model: Model = {}
        self.numbers: Counter[str] = Counter()
        self.sent = 0
        self._stop = threading.Event()
        self._sending: threading.Thread | None = None

    # -- workers

    def start(self, name: str) -> None:
        """Start a worker with the files of its former lives."""
        environment = os.environ | {
            "WINDOWED_APP_ID": self.app_id,
            "WINDOWED_BOOTSTRAP": self.bootstrap,
            "WINDOWED_DATA": str(self.folder / name),
            "WINDOWED_GUARANTEE": self.guarantee,
        }
        module = "tests.support.workers.windowed"
        with (self.folder / f"{name}.log").open("ab") as log:
            self.workers[name] = subprocess.Popen(
                [sys.executable, "-m", module, "worker", "-l", "info", "--without-web"],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def end(self, name: str, number: int) -> None:
        """Send the signal and wait for the exit."""
        process = self.workers.pop(name)
        process.send_signal(number)
        try:
            process.wait(40.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{name} did not end\n{self.log(name)}") from None

    def check_alive(self) -> None:
        """Check that no worker ended by itself."""
        for name, process in self.workers.items():
            assert process.poll() is None, self.log(name)

    def log(self, name: str) -> str:
        """Return the end of the worker's log over all its lives."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-4000:]

    # -- records

    def send(self, at: float, key: str, partition: int) -> None:
        """Send a record."""
        number = self.numbers[key]
        self.numbers[key] += 1
        window = key, at // SIZE * SIZE
        self.model[window] = self.model.get(window, (0, 0))[0] + 1, number
        value = json.dumps({"number": number, "at": at}).encode()
        self.producer.produce(
            f"{self.app_id}-records", value, json.dumps(key).encode(), partition=partition
        )
        self.producer.poll(0)
        self.sent += 1

    def _send_all(self) -> None:
        began, before = time.monotonic(), self.sent
        records_per_s = 2 * PARTITIONS * self.keys * SPEED / SIZE
        while not self._stop.is_set():
            due = (time.monotonic() - began) * records_per_s
            while self.sent - before < due:
                at = FIRST_S + self.sent / records_per_s * SPEED
                partition = self.sent % PARTITIONS
                number = self.sent // PARTITIONS % self.keys
                self.send(round(at, 2), f"{partition}-{number}", partition)
            time.sleep(0.01)

    def flow(self) -> None:
        """Send until ``dam()``."""
        self._sending = threading.Thread(target=self._send_all, daemon=True)
        self._sending.start()

    def dam(self) -> None:
        """Stop the load, then send a record per partition that closes all windows."""
        self._stop.set()
        if self._sending is not None:
            self._sending.join()
            self._sending = None
        at = max(begin for _, begin in self.model) + 1000.0
        for partition in range(PARTITIONS):
            self.send(at, f"end-{partition}", partition)
            del self.model[f"end-{partition}", at // SIZE * SIZE]
        assert self.producer.flush(60) == 0

    # -- results

    def read(self, topic: str) -> Iterator[tuple[Any, Any]]:
        """Yield all committed records so far, keys and values; None is a deletion."""
        reader = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.app_id}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        try:
            places = [TopicPartition(f"{self.app_id}-{topic}", p, 0) for p in range(PARTITIONS)]
            reader.assign(places)
            ends = 0
            while ends < PARTITIONS:
                message = reader.poll(30.0)
                assert message is not None
                if message.error() is not None:
                    ends += 1
                    continue
                value = message.value()
                yield json.loads(message.key() or b""), None if value is None else json.loads(value)
        finally:
            reader.close()

    def closed(self) -> dict[tuple[str, float], list[Any]]:
        """Return the rows of closed windows."""
        found = defaultdict(list)
        for key, value in self.read("closed"):
            found[key, value["begin"]].append(value["row"])
        return found

    def wait_for_all(self, patience_s: float = 90.0) -> dict[tuple[str, float], list[Any]]:
        """Return the closed windows after all have closed, or after a pause without a close."""
        most, since = -1, time.monotonic()
        while True:
            self.check_alive()
            found = self.closed()
            missing = self.model.keys() - found.keys()
            if not missing:
                return found
            if len(found) > most:
                most, since = len(found), time.monotonic()
            logs = "\n".join(map(self.log, self.workers))
            assert time.monotonic() - since < patience_s, f"{len(missing)} are not closed\n{logs}"
            time.sleep(0.3)

    def left(self) -> set[tuple[str, float]]:
        """Return the windows with a row in the changelog, without the final records' windows."""
        rows: set[tuple[str, float]] = set()
        for (key, (begin, _)), value in self.read("windows-changelog"):
            (rows.discard if value is None else rows.add)((key, begin))
        return {row for row in rows if "end-" not in row[0]}

    def judge(self) -> dict[tuple[str, float], list[Any]]:
        """Compare the closed windows with the model, and check for expired rows."""
        found = self.wait_for_all()
        exactly = self.guarantee == "exactly_once"
        assert found.keys() - self.model.keys() <= {k for k in found if k[0].startswith("end-")}
        wrong = {
            window: (self.model[window], found[window])
            for window in self.model
            if any(
                row is None
                or row["last"] != self.model[window][1]
                or row["count"] < self.model[window][0]
                or (exactly and row["count"] > self.model[window][0])
                for row in found[window]
            )
        }
        assert not wrong, f"{len(wrong)} of {len(self.model)}: {dict(list(wrong.items())[:5])}"
        if exactly:
            assert not {w: rows for w, rows in found.items() if w in self.model and len(rows) > 1}
        deadline = time.monotonic() + 20.0
        while left := self.left():
            assert time.monotonic() < deadline, sorted(left)[:5]
            time.sleep(0.3)
        return found

    def stop(self) -> None:
        """Stop all workers at once."""
        self._stop.set()
        for process in self.workers.values():
            process.kill()
            process.wait()


def lives(group: Group, events: int, seed: int, tell: Callable[[str], None], most: int = 4) -> None:
    """Start, SIGTERM and SIGKILL workers; each event starts in the state after the last event."""
    rng = random.Random(seed)
    for number in range(1, events + 1):
        time.sleep(rng.uniform(1.5, 5.0))
        group.check_alive()
        free = sorted({f"worker-{n}" for n in range(most)} - group.workers.keys())
        if free and (len(group.workers) < 2 or rng.random() < 0.5):
            name = rng.choice(free)
            tell(f"{time.strftime('%H:%M:%S')} {number:4d} start {name}")
            group.start(name)
        else:
            name, how = rng.choice(sorted(group.workers)), rng.choice(["SIGKILL", "SIGTERM"])
            tell(f"{time.strftime('%H:%M:%S')} {number:4d} {how} {name}")
            group.end(name, getattr(signal, how))


@dataclass(frozen=True)
class Closed:
    """The outcome of a story: its windows, the windows closed during events, and repeats."""

    events: int
    windows: int
    meanwhile: int
    repeats: int
    records: int
    seconds: float

    def line(self) -> str:
        """The printed line."""
        return (
            f"{self.events} events; {self.records} records, {self.windows} windows closed, "
            f"{self.meanwhile} of them before the last event, {self.repeats} closed again; "
            f"no expired row is left; {self.seconds:.0f} s"
        )


def story(
    bootstrap: str,
    folder: Path,
    guarantee: str,
    events: int,
    seed: int,
    tell: Callable[[str], None] = print,
    *,
    keys: int = KEYS,
) -> Closed:
    """Run a group through ``events`` and compare; raise AssertionError for a wrong window."""
    group, began = Group(bootstrap, folder, guarantee, keys=keys), time.monotonic()
    try:
        for number in range(2):
            group.start(f"worker-{number}")
        group.flow()
        lives(group, events, seed, tell)
        meanwhile = len(group.closed())
        group.dam()
        found = group.judge()
    finally:
        group.stop()
    repeats = sum(len(found[window]) - 1 for window in group.model)
    return Closed(
        events, len(group.model), meanwhile, repeats, group.sent, time.monotonic() - began
    )
