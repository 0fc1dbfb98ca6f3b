"""Clients that mostly follow the protocol: some are slow, some do not rejoin when required."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    Protocol,
    SyncGroup,
)

SESSIONS_MS = (6_000, 10_000, 45_000)
PATIENT_MS = 310_000  # longer than the wait for a parked newcomer
REBALANCES_MS = (3_000, 3_000, 12_000, 12_000, 60_000, 60_000, PATIENT_MS)
NAMES = ("range", "sticky", "cooperative")
FATAL = (Code.GROUP_MAX_SIZE_REACHED, Code.FENCED_INSTANCE_ID, Code.INCONSISTENT_GROUP_PROTOCOL,
         Code.INVALID_SESSION_TIMEOUT)  # fmt: skip


def subscription(topics: Iterable[str], user_data: bytes) -> bytes:
    """Return the bytes of ConsumerProtocol version 1."""
    names = [struct.pack(">h", len(t)) + t.encode() for t in topics]
    head = struct.pack(">hi", 1, len(names)) + b"".join(names)
    return head + struct.pack(">i", len(user_data)) + user_data


@dataclass
class Client:
    """A consumer. ``waiting`` is the ticket of its pending request."""

    name: str
    instance_id: str | None
    random: random.Random
    topics_of: dict[bytes, tuple[str, ...] | None]
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    listed: tuple[str, ...] = ()
    waiting: int | None = None
    next: str = "join"
    alive: bool = True
    protocols: tuple[Protocol, ...] = ()
    session_ms: int = 0
    rebalance_ms: int = 0
    pace: float = 0.7
    stubborn: bool = False  # sends heartbeats instead of rejoining
    known_id: bool = True
    skips: bool = False
    changes: int = 0

    def __post_init__(self) -> None:
        draw = self.random
        self.session_ms, self.rebalance_ms = draw.choice(SESSIONS_MS), draw.choice(REBALANCES_MS)
        self.pace = draw.choice([0.7, 0.7, 0.7, 0.1])
        self.stubborn = draw.random() < 0.15
        self.known_id, self.skips = draw.random() < 0.6, draw.random() < 0.5
        self.change()

    def change(self) -> None:
        """Change the protocols, topics or timeouts."""
        self.changes += 1
        count = self.random.randint(1, len(NAMES))
        names = self.random.sample(NAMES, count)
        if "range" not in names and self.random.random() < 0.8:
            names.append("range")
        topics = tuple(t for t in ("a", "b") if self.random.random() < 0.5)
        told: tuple[str, ...] | None = topics
        offered = []
        for name in names:
            data = subscription(topics, f"{self.name}/{self.changes}/{name}".encode())
            if self.random.random() < 0.05:
                data, told = b"?" + name.encode(), None
            self.topics_of[data] = told
            offered.append(Protocol(name, data))
            told = topics
        self.protocols = tuple(offered)
        if self.random.random() < 0.3:
            self.rebalance_ms = self.random.choice(REBALANCES_MS)

    def join(self, ticket: int) -> JoinGroup:
        """Return the client's JoinGroup; the proposed new member id contains the ticket."""
        return JoinGroup(
            ticket,
            self.member_id,
            f"{self.name}-{ticket}",
            self.protocols,
            "consumer",
            self.session_ms,
            self.rebalance_ms,
            self.instance_id,
            client_id=self.name,
            client_host=f"/{ticket % 3}",
            needs_known_id=self.known_id,
            can_skip_assignment=self.skips,
        )

    def sync(self, ticket: int) -> SyncGroup:
        """Return the client's SyncGroup, sometimes with gaps or ghosts or from a non-leader."""
        listed = self.listed if self.leads else ("ghost", self.member_id)
        given: dict[str, bytes] = {}
        if self.leads or self.random.random() < 0.2:
            given = {m: f"{self.generation}:{m}:{ticket}".encode() for m in listed}
            if self.random.random() < 0.2:
                given.pop(self.random.choice(list(given)))
        wrong = self.random.random() < 0.03
        return SyncGroup(ticket, self.member_id, self.generation, self.instance_id,
                         "connect" if wrong else "consumer", None, given)  # fmt: skip

    def heartbeat(self, ticket: int) -> Heartbeat:
        """Return the client's Heartbeat."""
        return Heartbeat(ticket, self.member_id, self.generation, self.instance_id)

    def commit(self, ticket: int) -> CommitOffsets:
        """Return the client's identity for an OffsetCommit."""
        return CommitOffsets(ticket, self.member_id, self.generation, self.instance_id)

    def lost(self) -> None:
        """Forget the member id and the generation, as after a process restart."""
        self.member_id, self.generation, self.waiting, self.next = "", -1, None, "join"

    def react(self, reply: fx.Reply) -> None:
        """Update the client's state from an answer."""
        error = reply.error
        if isinstance(reply, fx.JoinReply) and error is Code.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif error is Code.UNKNOWN_MEMBER_ID or error in FATAL:
            self.lost()
            self.alive = error not in FATAL
        elif (
            error is Code.REBALANCE_IN_PROGRESS
            and isinstance(reply, fx.HeartbeatReply)
            and self.stubborn
        ):
            self.stubborn = self.random.random() < 0.98
        elif error is not Code.NONE:
            self.next = "join"
        elif isinstance(reply, fx.JoinReply):
            self.member_id, self.generation = reply.member_id, reply.generation
            self.leads = reply.leader == reply.member_id and not reply.skip_assignment
            self.listed = tuple(m.member_id for m in reply.members)
            self.next = "sync"
        elif isinstance(reply, fx.SyncReply):
            self.next = "work"
