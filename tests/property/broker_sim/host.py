"""A whole broker without sockets, whose store refuses chosen writes, and its restarts."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import node as nodes
from faust_assigner.broker.connection import Connection
from faust_assigner.broker.node import Node
from faust_assigner.broker.security.listeners import PLAINTEXT, Listener
from faust_assigner.broker.server import BrokerServer
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.bodies import read_layout
from faust_assigner.broker.storage.records import CONTROL, HEADER, read_header
from faust_assigner.broker.storage.store import MemoryStore, Range, StoreFailed
from tests.property.broker_sim.model import Record
from tests.support.asking import read
from tests.support.clients.raw_client import request_frame
from tests.support.hall import Wire

FETCH, LIST_OFFSETS = 1, 2
RETENTION_MINUTES = 10
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.retention.minutes": RETENTION_MINUTES,
    "auto.create.topics.enable": "false",
}
#: Turns of the event loop until an answer. A write to a busy disk, in a thread, may take longer: then the
#: loop sleeps for a millisecond in each further turn.
TURNS, SLOW_TURNS = 50_000, 20_000


class NoAnswer(Exception):
    """The broker closed the connection instead of an answer, or the answer waits for other requests."""


class Host:
    """The broker's lives on one store, in memory or on a disk."""

    def __init__(self, folder: Path | None) -> None:
        self.now = 1_700_000_000_000
        self.folder, self.memory = folder, MemoryStore()
        self.writes_left: int | None = None  # writes until the refused write
        self.refuses_for_ever = False
        self.has_refused = False
        #: As in Kafka, the end of a classic group's generation may be lost with a refused write.
        self.has_lost_group = False
        self.start()

    def start(self) -> None:
        """Begin a life."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(nodes, "MemoryStore", lambda: self.memory)
            self.node = Node(Settings.parse(SETTINGS), self.folder, clock=lambda: self.now)
        self.server = BrokerServer(self.node)
        self.idle: list[tuple[Connection, Wire]] = []
        self.store_write = type(self.node.store).write
        self.node.store.write = self._write  # type: ignore[method-assign]
        self.numbers = itertools.count(1)

    def end(self) -> None:
        """End a life; parked requests get no answer."""
        self.node.close()
        del self.node.store.write

    def restart(self) -> None:
        """Begin the next life."""
        self.end()
        self.accept_writes()
        self.has_lost_group = False
        self.start()

    def refuse(self, after: int, *, for_ever: bool) -> None:
        """Refuse one write, or all writes, after some accepted writes."""
        self.writes_left, self.refuses_for_ever, self.has_refused = after, for_ever, False

    def accept_writes(self) -> None:
        """Accept all writes."""
        self.writes_left, self.refuses_for_ever = None, False

    def _write(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[Range] = (),
        is_rewrite: bool = False,
    ) -> None:
        puts = list(puts)
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                self.has_lost_group |= any(key.startswith(b"g") for key, _ in puts)
                self.has_refused = True
                if not self.refuses_for_ever:
                    self.writes_left = None
                raise StoreFailed("No space left on device")
        self.store_write(self.node.store, puts, deletes, ranges=ranges, is_rewrite=is_rewrite)

    async def ask(self, key: int, version: int, **values: Any) -> Any:
        """Send a request; return its answer. Raises NoAnswer."""
        if self.idle:
            peer, wire = self.idle.pop()
        else:
            peer, wire = Connection(self.server, Listener(PLAINTEXT, "127.0.0.1", 0)), Wire("", [])
            peer.connection_made(wire)
        wire.written = mine = []
        peer.data_received(request_frame(key, version, next(self.numbers), values))
        for turn in range(TURNS + SLOW_TURNS):
            if mine or wire.closed:
                break
            await asyncio.sleep(0 if turn < TURNS else 0.001)
        if not mine:
            raise NoAnswer(f"no answer to {key} version {version}: {values}")
        self.idle.append((peer, wire))
        return read(key, version, b"".join(data for _, data in mine))

    # -- reading -----------------------------------------------------------------------------------

    async def offset(self, topic: str, partition: int, timestamp: int, *, committed: bool) -> int:
        """Return the offset of a special timestamp."""
        parts = [{"partition_index": partition, "timestamp": timestamp}]
        answer = await self.ask(
            LIST_OFFSETS,
            8,
            replica_id=-1,
            isolation_level=int(committed),
            topics=[{"name": topic, "partitions": parts}],
        )
        found = answer.topics[0].partitions[0]
        assert not found.error_code, found
        return int(found.offset)

    async def records(
        self, topic: str, partition: int, draw: random.Random, *, committed: bool
    ) -> list[Record]:
        """Return all records of a partition, as Kafka's clients read them."""
        position = await self.offset(topic, partition, -2, committed=committed)
        start, found = position, []
        size = draw.choice((1, 300, 2_000, 1_000_000))
        while True:
            part = {"partition": partition, "fetch_offset": position, "partition_max_bytes": size}
            answer = await self.ask(
                FETCH,
                11,
                replica_id=-1,
                max_bytes=1_000_000,
                session_id=0,
                session_epoch=-1,
                isolation_level=int(committed),
                topics=[{"topic": topic, "partitions": [part]}],
            )
            (got,) = answer.responses[0].partitions
            assert not got.error_code, got
            batches = cut(bytes(got.records or b""))
            if not batches:
                return [one for one in found if one[0] >= start]
            aborted = got.aborted_transactions or () if committed else ()
            found += delivered(batches, [(one.producer_id, one.first_offset) for one in aborted])
            header = read_header(batches[-1])
            position = header.base_offset + header.last_delta + 1


def cut(data: bytes) -> list[bytes]:
    """Divide the bytes of a fetch into batches."""
    batches = []
    while len(data) >= HEADER.size:
        size = int.from_bytes(data[8:12], "big") + 12
        batches.append(data[:size])
        data = data[size:]
    return batches


def delivered(batches: Sequence[bytes], aborted: Sequence[tuple[int, int]]) -> list[Record]:
    """Return the records that a client delivers, without aborted transactions (KIP-98)."""
    waiting = sorted(aborted, key=lambda one: one[1])
    skipped: set[int] = set()
    found: list[Record] = []
    for data in batches:
        header = read_header(data)
        last = header.base_offset + header.last_delta
        while waiting and waiting[0][1] <= last:
            skipped.add(waiting.pop(0)[0])
        if header.attributes & CONTROL:
            if header.count and data[HEADER.size + 8] == 0:  # the type in the marker's key: abort
                skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            found += records_of(data)
    return found


def records_of(data: bytes) -> list[Record]:
    """Return the records of an uncompressed batch."""
    header, body = read_header(data), data[HEADER.size :]
    layout = read_layout(body, header.count)
    found: list[Record] = []
    for number in range(header.count):
        at, size = int(layout.keys_at[number]), int(layout.key_sizes[number])
        key = None if size < 0 else body[at : at + size]
        at += max(size, 0) + 1  # every value is short: its length is one byte
        size = int(layout.value_sizes[number])
        value = None if size < 0 else body[at : at + size]
        found.append((header.base_offset + int(layout.offsets[number]), key, value))
    return found
