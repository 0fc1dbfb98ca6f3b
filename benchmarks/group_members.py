"""Members of both group protocols on one event loop, by raw requests: cheap enough for a thousand members.

Members read no records. They join, send a heartbeat each second, take and revoke partitions, and write their
partitions to a shared ledger. The ledger counts partitions with two owners at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
import struct
import time
import uuid
from collections.abc import Iterable
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from faust_assigner.broker.answers import _response_builder

INTERVAL_S: Final = 1.0
REBALANCE_MS: Final = 60_000
TOPIC: Final = "bench"
#: coordinator loading or moved, rebalance in progress, member id required
AGAIN: Final = (14, 15, 16, 27, 79)
OUT: Final = (22, 25, 69, 110)


def span(milliseconds: int) -> datetime.timedelta:
    """Convert milliseconds for kio."""
    return datetime.timedelta(milliseconds=milliseconds)


class Connection:
    """A connection that sends one request at a time."""

    def __init__(self) -> None:
        self._correlation = 0

    async def open(self, bootstrap: str) -> None:
        """Connect to the broker."""
        host, port = bootstrap.rsplit(":", 1)
        self.reader, self.writer = await asyncio.open_connection(host, int(port))

    async def call(self, api_key: int, version: int, **values: Any) -> Any:
        """Send a request; return the answer."""
        self._correlation += 1
        schema, answer = (
            load_request_schema(api_key, version),
            load_response_schema(api_key, version),
        )
        out = io.BytesIO()
        out.write(struct.pack(">hhih", api_key, version, self._correlation, 5) + b"bench")
        if schema.__flexible__:
            out.write(b"\0")
        entity_writer(schema)(out, _response_builder(schema)(values))
        body = out.getvalue()
        self.writer.write(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        message, _ = entity_reader(answer)(frame, 5 if answer.__header_schema__.__flexible__ else 4)
        return message

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


class Ledger:
    """The current owner of each partition, and the time of the last change."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.owners: dict[int, str] = {}
        self.doubles = 0
        self.changed = time.monotonic()
        self.beats: list[float] = []  # duration of each heartbeat in seconds

    def change(self, who: str, lost: Iterable[int], gained: Iterable[int]) -> None:
        """Record a member's revoked and new partitions."""
        for number in lost:
            if self.owners.get(number) == who:
                del self.owners[number]
                self.changed = time.monotonic()
        for number in gained:
            self.doubles += number in self.owners
            self.owners[number] = who
            self.changed = time.monotonic()

    def is_even(self, members: int) -> bool:
        """Whether every partition has an owner and the members' counts differ by at most 1."""
        if len(self.owners) < self.partitions:
            return False
        counts: dict[str, int] = {}
        for owner in self.owners.values():
            counts[owner] = counts.get(owner, 0) + 1
        wanted = {self.partitions // members, -(-self.partitions // members)}
        return set(counts.values()) <= wanted and len(counts) == min(members, self.partitions)


class Member:
    """A group member; its task runs until it leaves or dies."""

    def __init__(self, bootstrap: str, group: str, ledger: Ledger) -> None:
        self.bootstrap, self.group, self.ledger = bootstrap, group, ledger
        self.name = str(uuid.uuid4())
        self.owned: frozenset[int] = frozenset()
        self.connection = Connection()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Join, and run in the background."""
        self.task = asyncio.create_task(self._run())

    def take(self, owned: frozenset[int]) -> None:
        """Replace the member's partitions and update the ledger."""
        before, self.owned = self.owned, owned
        self.ledger.change(self.name, before - owned, owned - before)

    async def _run(self) -> None:
        await self.connection.open(self.bootstrap)
        try:
            await self.live()
        finally:
            self.connection.close()

    async def live(self) -> None:
        """Run the protocol."""
        raise NotImplementedError

    async def say_goodbye(self) -> None:
        """Leave the group by the protocol's request."""
        raise NotImplementedError

    async def beat(self, api_key: int, version: int, **values: Any) -> Any:
        """Send a heartbeat and record its duration."""
        began = time.monotonic()
        answer = await self.connection.call(api_key, version, **values)
        self.ledger.beats.append(time.monotonic() - began)
        return answer

    async def die(self, *, politely: bool) -> None:
        """Stop; ``politely`` leaves the group first, on a separate connection."""
        assert self.task is not None
        self.task.cancel()
        with contextlib.suppress(
            asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError
        ):
            await self.task
        if politely:
            self.take(frozenset())
            self.connection = Connection()
            await self.connection.open(self.bootstrap)
            await self.say_goodbye()
            self.connection.close()
        else:
            self.ledger.change(self.name, self.owned, ())


class NewMember(Member):
    """The consumer protocol (KIP-848): acknowledges revoked partitions at once, as clients do."""

    epoch = 0

    async def live(self) -> None:
        """Send a heartbeat a second, and an extra heartbeat after a revocation."""
        tells_all = True
        while True:
            owned = (
                [{"topic_id": self.topic_id, "partitions": sorted(self.owned)}]
                if self.owned
                else []
            )
            first = {
                "rebalance_timeout": span(REBALANCE_MS if tells_all else -1),
                "subscribed_topic_names": [TOPIC] if tells_all else None,
                "topic_partitions": owned,
            }
            answer = await self.beat(
                68, 1, group_id=self.group, member_id=self.name, member_epoch=self.epoch, **first
            )
            tells_all = answer.error_code != 0
            if answer.error_code in OUT:
                self.take(frozenset())
                self.epoch = 0
                continue
            if answer.error_code == 0:
                self.epoch = answer.member_epoch
                if answer.assignment is not None:
                    listed = answer.assignment.topic_partitions
                    # Kafka may still report the deleted topic of the same name.
                    given = frozenset(
                        n for t in listed if t.topic_id == self.topic_id for n in t.partitions
                    )
                    gave_up = bool(self.owned - given)
                    self.take(given)
                    if gave_up:
                        continue
            await asyncio.sleep(INTERVAL_S)

    topic_id: uuid.UUID

    async def say_goodbye(self) -> None:
        """Leave with epoch -1."""
        await self.connection.call(
            68, 1, group_id=self.group, member_id=self.name, member_epoch=-1, topic_partitions=None
        )


class OldMember(Member):
    """The eager classic protocol: revoke all, join; the leader assigns round-robin."""

    session_ms = 10_000

    def __init__(self, bootstrap: str, group: str, ledger: Ledger) -> None:
        super().__init__(bootstrap, group, ledger)
        self.member_id, self.generation = "", -1

    async def live(self) -> None:
        """Join, sync, send heartbeats until a rebalance; repeat."""
        while True:
            if not await self._join():
                continue
            while True:
                answer = await self.beat(
                    12,
                    4,
                    group_id=self.group,
                    generation_id=self.generation,
                    member_id=self.member_id,
                )
                if answer.error_code != 0:
                    if answer.error_code in OUT:
                        self.member_id = ""
                    self.take(frozenset())
                    break
                await asyncio.sleep(INTERVAL_S)

    async def _join(self) -> bool:
        answer = await self.connection.call(
            11,
            9,
            group_id=self.group,
            session_timeout=span(self.session_ms),
            rebalance_timeout=span(REBALANCE_MS),
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[{"name": "bench", "metadata": _subscription()}],
        )
        if answer.error_code != 0:
            self.member_id = answer.member_id if answer.error_code == 79 else ""
            await asyncio.sleep(0 if answer.error_code == 79 else 0.1)
            return False
        self.member_id, self.generation = answer.member_id, answer.generation_id
        shares = []
        if answer.leader == self.member_id:
            ids = sorted(m.member_id for m in answer.members)
            numbers = range(self.ledger.partitions)
            shares = [
                {"member_id": one, "assignment": _assignment(numbers[turn :: len(ids)])}
                for turn, one in enumerate(ids)
            ]
        answer = await self.connection.call(
            14,
            5,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=answer.protocol_name,
            assignments=shares,
        )
        if answer.error_code != 0:
            return False
        self.take(_numbers(bytes(answer.assignment)))
        return True

    async def say_goodbye(self) -> None:
        """Send LeaveGroup."""
        members = [{"member_id": self.member_id}]
        await self.connection.call(13, 5, group_id=self.group, members=members)


def _subscription() -> bytes:
    return struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", -1)


def _assignment(numbers: Iterable[int]) -> bytes:
    listed = list(numbers)
    head = struct.pack(">hih", 0, 1, len(TOPIC)) + TOPIC.encode()
    return head + struct.pack(f">i{len(listed)}ii", len(listed), *listed, -1)


def _numbers(assignment: bytes) -> frozenset[int]:
    if not assignment:
        return frozenset()
    start = 8 + len(TOPIC)
    (count,) = struct.unpack_from(">i", assignment, start)
    return frozenset(struct.unpack_from(f">{count}i", assignment, start + 4))
