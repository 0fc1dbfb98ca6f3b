"""Workers that answer for keys over HTTP, the numbers to read, and the model of the answers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner

from tests.support.clients.topics import create_topics

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 30.0
KEYS = tuple(f"key-{n}" for n in range(24))


@dataclass(frozen=True)
class Answer:
    """An answer, and the time before its request."""

    asked_at: float
    key: str
    status: int
    headers: Mapping[str, str]
    number: int | None = None
    by: int = 0
    body: str = ""

    @property
    def role(self) -> str:
        """The role of the answering worker."""
        return self.headers.get("X-Faust-Assigner-Role", "")


@dataclass
class Readers:
    """Worker processes by name."""

    app_id: str
    bootstrap: str
    folder: Path
    partitions: int = 4
    replicas: int = 1
    session_s: float = 3.0
    assignor: str = "ours"
    settings: Mapping[str, Any] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a worker with the files and at the port of its earlier run."""
        if name not in self.ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.ports[name] = free.getsockname()[1]
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        environment = {
            "READER_APP_ID": self.app_id,
            "READER_BOOTSTRAP": self.bootstrap,
            "READER_PARTITIONS": str(self.partitions),
            "READER_REPLICAS": str(self.replicas),
            "READER_PORT": str(self.ports[name]),
            "READER_SESSION_S": str(self.session_s),
            "READER_ASSIGNOR": self.assignor,
            "READER_DATA": str(folder / "data"),
            "READER_SETTINGS": json.dumps(dict(self.settings)),
        }
        with (folder / "log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.support.workers.reader", "worker", "-l", "info"],
                cwd=ROOT,
                env=os.environ | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def kill(self, name: str) -> None:
        """SIGKILL the worker."""
        self.processes[name].kill()
        self.processes[name].wait()

    def stop(self) -> None:
        """SIGKILL all workers, stopped workers too."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def ask(
        self, name: str, key: str, path: str = "/latest/{key}", *, only_here: bool = False
    ) -> Answer:
        """Ask a worker, ``only_here`` as another worker does; status 0 if no server listens."""
        asked_at = time.monotonic()
        url = f"http://127.0.0.1:{self.ports[name]}" + path.format(key=key)
        headers = {"X-Faust-Assigner-Hop": "1"} if only_here else {}
        try:
            with urlopen(Request(url, headers=headers), timeout=TIMEOUT_S) as answer:
                row = json.load(answer)
                return Answer(
                    asked_at, key, answer.status, dict(answer.headers), row["number"], row["port"]
                )
        except HTTPError as error:
            with error:
                return Answer(
                    asked_at, key, error.code, dict(error.headers), body=error.read().decode()
                )
        except OSError:
            return Answer(asked_at, key, 0, {})

    def until(self, name: str, ready: Any, timeout_s: float = 60.0, **how: Any) -> list[Answer]:
        """Ask for all keys until ``ready(answers)``; return the answers of all rounds."""
        deadline, found = time.monotonic() + timeout_s, list[Answer]()
        while time.monotonic() < deadline:
            now = [self.ask(name, key, **how) for key in KEYS]
            found += now
            if ready(now):
                return found
            time.sleep(0.05)
        said = {(a.status, a.role) for a in found[-len(KEYS) :]}
        raise TimeoutError(
            f"{name} still says {said}\n{(self.folder / name / 'log').read_text()[-3000:]}"
        )


def all_known(answers: list[Answer]) -> bool:
    """Return whether each answer has a row, of its owner or of a standby."""
    return all(a.status == 200 and a.number for a in answers)


def all_by_owners(answers: list[Answer]) -> bool:
    """Return whether each answer has a row of its owner."""
    return all((a.status, a.role) == (200, "owner") and a.number for a in answers)


@dataclass
class Numbers:
    """Rising numbers for every key, and the numbers seen in the table's changelog."""

    bootstrap: str
    app_id: str
    partitions: int
    every_s: float = 0.2
    #: Key -> the highest sent number, noted before the send.
    sent: dict[str, int] = field(default_factory=dict)
    #: Key -> (time of its arrival in the changelog, the number).
    logged: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def prepare(self) -> None:
        """Create both topics."""
        asyncio.run(self._prepare())

    async def _prepare(self) -> None:
        await create_topics(
            self.bootstrap,
            {f"{self.app_id}-numbers": self.partitions},
            compacted={f"{self.app_id}-latest-changelog": self.partitions},
        )

    def fill(self, number: int) -> None:
        """Write the changelog of a table in which each key has risen to ``number``, one by one."""
        asyncio.run(self._fill(number))

    async def _fill(self, number: int) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        await producer.start()
        try:
            partitioner = DefaultPartitioner()
            every = list(range(self.partitions))
            for n in range(1, number + 1):
                key = (
                    KEYS[n % len(KEYS)].encode()
                    if n <= number - len(KEYS)
                    else KEYS[number - n].encode()
                )
                value = n if n <= number - len(KEYS) else number
                await producer.send(
                    f"{self.app_id}-latest-changelog",
                    json.dumps(value).encode(),
                    json.dumps(key.decode()).encode(),
                    partition=partitioner(key, every, every),
                )
        finally:
            await producer.stop()

    def start(self) -> None:
        """Start to send in a new thread."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    async def _run(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap)
        watcher = AIOKafkaConsumer(
            f"{self.app_id}-latest-changelog",
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await producer.start()
        await watcher.start()
        try:
            number = 0
            while not self._stop.is_set():
                number += 1
                for key in KEYS:
                    self.sent[key] = number
                    await producer.send(
                        f"{self.app_id}-numbers", json.dumps(number).encode(), key.encode()
                    )
                for records in (await watcher.getmany(timeout_ms=0)).values():
                    for record in records:
                        self.logged.setdefault(record.key.decode(), []).append(
                            (time.monotonic(), json.loads(record.value))
                        )
                await asyncio.sleep(self.every_s)
        finally:
            await watcher.stop()
            await producer.stop()

    def wrong(self, answers: list[Answer], bound_s: float) -> list[str]:
        """Return answers newer than the sent numbers, or older than allowed or than their header
        states.

        An owner's answer has all changelog records at the time of the request. A copy's answer has
        those that are older by its stated age.
        """
        found = []
        for a in (a for a in answers if a.status == 200):
            age_s = 0.0 if a.role == "owner" else float(a.headers["X-Faust-Assigner-Age"])
            if age_s > bound_s:
                found.append(f"{a}: older than {bound_s} s")
            until = a.asked_at - age_s
            least = max((n for at, n in self.logged.get(a.key, []) if at <= until), default=0)
            if not least <= (a.number or 0) <= self.sent[a.key]:
                found.append(f"{a}: {least} to {self.sent[a.key]}")
        return found
