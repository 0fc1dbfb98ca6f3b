"""The processes of a chaos run: etcd, three instances, consumers, and the consumers' sink."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.chaos.book import Book, Written
from tests.soak.chaos.cluster import MEMBERS, Cluster
from tests.soak.chaos.worker import REPLACED
from tests.support.assigning.instances import ROOT, Instance
from tests.support.clients.tcp_proxy import Proxy, proxy_to

PREFIX = "/kafka-assigner/chaos/"
TTL_S = 9.0
PARTITIONS = 24
#: Seconds for a process to start, and to register while members of etcd are stopped.
KNOWN_S = 90.0
FLAGS = (
    *("--topic", f"orders={PARTITIONS}", "--prefix", PREFIX, "--election-retry-s", "1"),
    *("--consumer-ttl-s", f"{TTL_S:g}", "--leader-ttl-s", f"{TTL_S:g}", "--debounce-s", "0.3"),
    *("--handoff-timeout-s", "15", "--cooldown-s", "5", "--rebalance-delay-s", "5"),
)


@dataclass(eq=False)
class Process:
    """A process of a consumer's name; ``number`` counts them. ``doors`` are its proxies."""

    name: str
    number: int
    popen: subprocess.Popen[bytes]
    doors: list[Proxy]

    def send(self, what: signal.Signals) -> None:
        """Send a signal unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(what)

    def close_doors(self) -> None:
        """Close the process's proxies."""
        for door in self.doors:
            threading.Thread(target=door.close, daemon=True).start()
        self.doors = []

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has stopped the process."""
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{self.popen.pid}/stat").read_text()
            return stat.rpartition(")")[2].split()[0] == "T"
        return False


@dataclass(eq=False)
class World:
    """The whole system. ``processes`` has each name's processes, oldest first."""

    folder: Path
    etcd: Cluster
    instances: list[Instance]
    doors: list[Proxy]  # from the consumers to each instance
    cables: list[list[Proxy]]  # from each instance to the members of etcd
    book: Book = field(default_factory=lambda: Book(range(PARTITIONS)))
    processes: dict[str, list[Process]] = field(default_factory=dict)
    sink_port: int = 0
    _begun: set[tuple[str, int]] = field(default_factory=set)
    _registered: set[tuple[str, int]] = field(default_factory=set)
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    # -- the sink ------------------------------------------------------------------------------------

    async def listen(self) -> asyncio.Server:
        """Accept writes from now on."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.sink_port = server.sockets[0].getsockname()[1]
        return server

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._take(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the writes of a process."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            name, number = (await reader.readuntil()).split()
            self._begun.add((name.decode(), int(number)))
            await reader.readuntil()
            self._registered.add((name.decode(), int(number)))
            while line := await reader.readline():
                partition, epoch, checked = line.split()
                self.book.write(
                    Written(
                        name.decode(),
                        int(number),
                        int(partition),
                        int(epoch),
                        float(checked),
                        time.monotonic(),
                    )
                )
        writer.close()

    # -- consumers -----------------------------------------------------------------------------------

    def spawn(self, name: str) -> Process:
        """Start another process with the name."""
        mine = self.processes.setdefault(name, [])
        number = len(mine) + 1
        for process in mine:
            if process.popen.poll() is not None:
                process.close_doors()
        doors = [Proxy("127.0.0.1", door.port) for door in self.doors]
        targets = [door.endpoint for door in doors]
        turn = number % len(targets)
        arguments = [",".join(targets[turn:] + targets[:turn]), name, str(number)]
        with (self.folder / f"{name}-{number}.log").open("wb") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.chaos.worker", *arguments, str(self.sink_port)],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            )
        mine.append(Process(name, number, popen, doors))
        return mine[-1]

    async def begun(self, process: Process) -> Process:
        """Wait until the process handles signals or has ended."""
        return await self._once_in(self._begun, process)

    async def registered(self, process: Process) -> Process:
        """Wait until the service has registered the process, or the process has ended.

        If neither of two processes was registered, the later registration is the successor.
        """
        return await self._once_in(self._registered, process)

    async def _once_in(self, known: set[tuple[str, int]], process: Process) -> Process:
        async with asyncio.timeout(KNOWN_S):
            while process.popen.poll() is None:
                if (process.name, process.number) in known:
                    break
                await asyncio.sleep(0.02)
        return process

    def newest(self, name: str) -> Process:
        """Return the process started last."""
        return self.processes[name][-1]

    def strays(self) -> Iterator[str]:
        """Yield ended processes, and processes still running after a later start of the name."""
        for name, mine in self.processes.items():
            for process in mine[:-1]:
                code = process.popen.poll()
                if code is None:
                    yield f"process {process.number} of {name} runs on after its successor started"
                elif code not in (0, REPLACED, -signal.SIGKILL):
                    yield f"process {process.number} of {name} ended with {code}"
            if (code := mine[-1].popen.poll()) is not None:
                yield f"the newest process of {name}, {mine[-1].number}, ended with {code}"

    # -- instances -----------------------------------------------------------------------------------

    def start_instance(self, number: int) -> None:
        """Restart the instance at its address."""
        self.instances[number] = _instance(
            self.folder, self.cables[number], bind=self.doors[number].target
        )

    async def drained(self) -> None:
        """Read the remaining writes of ended processes."""
        self.close()
        if self._serving:
            await asyncio.wait(self._serving, timeout=5)

    def close(self) -> None:
        """End all processes."""
        for process in (one for mine in self.processes.values() for one in mine):
            if process.popen.poll() is None:
                process.popen.kill()
                process.popen.wait()
            process.close_doors()
        for instance in self.instances:
            if instance.process.poll() is None:
                instance.process.kill()
                instance.process.wait()


def _instance(folder: Path, cables: list[Proxy], *, bind: str = "127.0.0.1:0") -> Instance:
    endpoints = ",".join(f"http://{cable.endpoint}" for cable in cables)
    return Instance(folder, *FLAGS, "--etcd", endpoints, bind=bind)


@contextlib.asynccontextmanager
async def world(folder: Path, etcd: Cluster) -> AsyncIterator[World]:
    """Start the instances and the sink, without consumers."""
    with contextlib.ExitStack() as ends:
        cables = [
            [ends.enter_context(proxy_to(endpoint)) for endpoint in _turned(etcd.endpoints, number)]
            for number in range(MEMBERS)
        ]
        running = [_instance(folder, mine) for mine in cables]
        made = World(folder, etcd, running, [], cables)
        ends.callback(made.close)
        made.doors += [ends.enter_context(proxy_to(one.target)) for one in running]
        server = await made.listen()
        try:
            yield made
        finally:
            await made.drained()
            server.close()


def _turned(endpoints: list[str], by: int) -> list[str]:
    return endpoints[by:] + endpoints[:by]
