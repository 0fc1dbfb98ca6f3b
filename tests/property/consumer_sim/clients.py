"""Simulated members of both protocols: an honest client's next request and its use of answers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    Protocol,
    SyncGroup,
)
from faust_assigner.coordinator.protocol import read_assignment, write_assignment
from tests.support.coordination.consumer_bench import topic_id

Owned = dict[str, set[int]]
#: Each metadata's content by its bytes, so the checks need not parse the bytes as the broker does.
SAID: dict[bytes, tuple[tuple[str, ...], Mapping[str, tuple[int, ...]]]] = {}
LOST = (
    Code.UNKNOWN_MEMBER_ID,
    Code.FENCED_MEMBER_EPOCH,
    Code.ILLEGAL_GENERATION,
    Code.FENCED_INSTANCE_ID,
)


def subscription(
    topics: Iterable[str], owned: Mapping[str, Iterable[int]], version: int = 1
) -> bytes:
    """Return ConsumerProtocol bytes: the topics, and from version 1 on the owned partitions."""
    names = sorted(topics)
    parts = [struct.pack(">hi", version, len(names))]
    parts += [struct.pack(f">h{len(n)}s", len(n), n.encode()) for n in names]
    parts.append(struct.pack(">i", -1))
    if version >= 1:
        parts.append(struct.pack(">i", len(owned)))
        for name in sorted(owned):
            numbers = sorted(owned[name])
            form = f">h{len(name)}si{len(numbers)}i"
            parts.append(struct.pack(form, len(name), name.encode(), len(numbers), *numbers))
    if version >= 3:
        parts.append(struct.pack(">ih", -1, -1))
    metadata = b"".join(parts)
    claimed = {n: tuple(sorted(numbers)) for n, numbers in owned.items()} if version >= 1 else {}
    SAID[metadata] = (tuple(names), claimed)
    return metadata


@dataclass
class Client:
    """A process. ``epoch`` is its member epoch or generation; 0 and -1 mean no membership."""

    name: str
    classic: bool
    topics: tuple[str, ...]
    regex: str | None = None
    instance: str | None = None
    rebalance_ms: int = 60_000
    session_ms: int = 45_000
    assignor: str | None = None
    protocols: tuple[str, ...] = ("range",)
    eager: bool = True
    protocol_type: str = "consumer"
    member_id: str = ""
    epoch: int = 0
    joined: bool = False
    synced: bool = False
    owned: Owned = field(default_factory=dict)
    #: The assignment received but not yet applied.
    told: Owned | None = None
    says_all: bool = False
    #: Whether the client sends bare heartbeats: without owned partitions and without rejoining.
    busy: bool = False
    leads: tuple[str, ...] = ()

    def out(self) -> None:
        """Forget the membership and all partitions."""
        self.joined = self.synced = False
        self.epoch = 0
        self.owned, self.told = {}, None
        if self.classic:
            self.member_id = ""

    def switch(self) -> None:
        """Use the other protocol from now on, as after a software upgrade."""
        self.out()
        self.classic = not self.classic
        self.member_id = ""
        self.regex = None

    # -- KIP-848 ---------------------------------------------------------------------------------

    def beat_848(self, ticket: int, fresh_id: str) -> ConsumerGroupHeartbeat:
        """Return the next heartbeat of a KIP-848 member."""
        self.member_id = self.member_id or fresh_id
        full = not self.joined or self.says_all
        if self.told is not None and self.joined and not self.busy:
            self.owned = {n: set(parts) for n, parts in self.told.items()}
            self.told, report = None, True
        else:
            report = full and not (self.joined and self.told is not None)
        owned = {
            topic_id(n): tuple(sorted(parts)) for n, parts in sorted(self.owned.items()) if parts
        }
        return ConsumerGroupHeartbeat(
            ticket,
            self.member_id,
            self.epoch if self.joined else 0,
            self.instance,
            None,
            self.rebalance_ms if full else -1,
            self.topics if full and not self.regex else None,
            self.regex if full else None,
            self.assignor if full else None,
            owned if report else None,
        )

    def hear_848(self, reply: fx.ConsumerHeartbeatReply) -> None:
        """Update the client's state from the answer."""
        if reply.error in LOST:
            self.out()
            if reply.error is Code.FENCED_INSTANCE_ID:
                self.member_id = ""
        if reply.error is not Code.NONE or reply.member_epoch < 0:
            return
        self.joined, self.epoch, self.says_all = True, reply.member_epoch, False
        if reply.assignment is not None:
            self.told = {
                t.rstrip(b".").decode(): set(parts) for t, parts in reply.assignment.items()
            }

    # -- classic ---------------------------------------------------------------------------------

    def join(self, ticket: int, fresh_id: str) -> JoinGroup:
        """Return the client's JoinGroup; an eager client has revoked all partitions before."""
        if self.eager:
            self.owned = {}
        elif self.told is not None:
            self.owned = {n: parts & self.told.get(n, set()) for n, parts in self.owned.items()}
        owned = {n: parts for n, parts in self.owned.items() if parts}
        metadata = subscription(self.topics, owned)
        offers = tuple(Protocol(name, metadata) for name in self.protocols)
        return JoinGroup(
            ticket,
            self.member_id,
            fresh_id,
            offers,
            self.protocol_type,
            self.session_ms,
            self.rebalance_ms,
            self.instance,
        )

    def hear_join(self, reply: fx.JoinReply) -> None:
        """Update the client's state from the answer."""
        if reply.error is Code.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        elif reply.error is Code.NONE:
            self.joined, self.synced = True, False
            self.member_id, self.epoch = reply.member_id, reply.generation
            self.leads = tuple(m.member_id for m in reply.members)
        elif reply.error is not Code.REBALANCE_IN_PROGRESS:
            self.out()

    def sync(self, ticket: int) -> SyncGroup:
        """Return a SyncGroup: topic "a" in turn, or all partitions to all every third time."""
        is_wrong = self.epoch % 3 == 0
        given = {
            m: write_assignment(
                0, {"a": tuple(range(4) if is_wrong else range(k, 4, len(self.leads)))}
            )
            for k, m in enumerate(self.leads)
        }
        return SyncGroup(ticket, self.member_id, self.epoch, self.instance, "consumer", None, given)

    def hear_sync(self, reply: fx.SyncReply) -> None:
        """Update the client's state from the answer."""
        if reply.error is Code.NONE:
            told = read_assignment(reply.assignment) or {}
            self.owned = {n: set(parts) for n, parts in told.items()}
            self.synced, self.told = True, None
        elif reply.error is Code.REBALANCE_IN_PROGRESS:
            self.joined = False
        else:
            self.out()

    def beat_classic(self, ticket: int) -> Heartbeat:
        """Return the client's Heartbeat."""
        return Heartbeat(ticket, self.member_id, self.epoch, self.instance)

    def hear_beat(self, reply: fx.HeartbeatReply) -> None:
        """Update the client's state from the answer."""
        if reply.error is Code.REBALANCE_IN_PROGRESS:
            self.joined = False
        elif reply.error is not Code.NONE:
            self.out()

    # -- both ------------------------------------------------------------------------------------

    def next(self, ticket: int, fresh_id: str) -> Any:
        """Return the client's next request."""
        if not self.classic:
            return self.beat_848(ticket, fresh_id)
        if not self.joined and not (self.busy and self.synced):
            return self.join(ticket, fresh_id)
        return self.beat_classic(ticket) if self.synced else self.sync(ticket)

    def hear(self, reply: Any) -> None:
        """Handle an answer; an answer in the other protocol belongs to an earlier membership."""
        match reply:
            case fx.ConsumerHeartbeatReply() if not self.classic:
                self.hear_848(reply)
            case fx.JoinReply() if self.classic:
                self.hear_join(reply)
            case fx.SyncReply() if self.classic:
                self.hear_sync(reply)
            case fx.HeartbeatReply() if self.classic:
                self.hear_beat(reply)
