"""The members of a classic group, with their leader and the counts of their protocols and joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from faust_assigner.coordinator.effects import MemberRecord
from faust_assigner.coordinator.events import JoinGroup, Protocol, Token

#: The maximum number of parked copies of one request; beyond it, the oldest copy is answered with a retriable
#: error.
PARKED_DUPLICATES: Final = 8


@dataclass(slots=True)
class Member:
    """A member. The roster changes and counts the member's protocols and parked joins."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_tokens: tuple[Token, ...] = ()
    sync_tokens: tuple[Token, ...] = ()

    @classmethod
    def from_join(cls, event: JoinGroup, member_id: str) -> Member:
        """Create a member from a JoinGroup that is parked."""
        return cls(
            member_id,
            event.instance_id,
            event.client_id,
            event.client_host,
            event.session_timeout_ms,
            event.rebalance_timeout_ms,
            event.protocols,
            is_new=True,
            join_tokens=(event.token,),
        )

    @classmethod
    def from_record(cls, record: MemberRecord) -> Member:
        """Create a member from a record."""
        return cls(
            record.member_id,
            record.instance_id,
            record.client_id,
            record.client_host,
            record.session_timeout_ms,
            record.rebalance_timeout_ms,
            record.protocols,
            record.assignment,
        )

    def record(self, assignment: bytes | None = None) -> MemberRecord:
        """Return the record of the member, optionally with an assignment that takes effect after the save."""
        return MemberRecord(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            self.assignment if assignment is None else assignment,
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for the protocol; empty if the member does not offer the protocol."""
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")

    def vote(self, candidates: frozenset[str]) -> str | None:
        """Return the member's first choice among the candidates."""
        return next((p.name for p in self.protocols if p.name in candidates), None)


@dataclass(slots=True)
class Roster:
    """Members by id in order of arrival, static ids, the leader, and issued but unused member ids.

    The roster keeps counts as members come, change and go, so that every join costs O(1). Otherwise a
    thousand members that arrive together would cost a thousand scans of a thousand members.
    """

    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    leader: str | None = None
    _offers: Counter[str] = field(default_factory=Counter)  # protocol -> the number of its members
    _waiting: set[str] = field(default_factory=set)  # members with a parked join

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def __getitem__(self, member_id: str) -> Member:
        return self.members[member_id]

    def admit(self, event: JoinGroup, member_id: str) -> None:
        """Add the member of a parked JoinGroup."""
        self.add(Member.from_join(event, member_id))

    def add(self, member: Member) -> None:
        """Add a member; the first member becomes leader."""
        self.members[member.member_id] = member
        self._count(member)
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Remove a member; if the leader goes, the earliest member becomes leader."""
        member = self.members.pop(member_id)
        self._discount(member)
        if member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def put(self, old_id: str, member: Member) -> None:
        """Replace a member: the new member gets the place in the order, the instance id, the leadership."""
        self._discount(self.members[old_id])
        line = [member if m.member_id == old_id else m for m in self]
        self.members = {m.member_id: m for m in line}
        self._count(member)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader == old_id:
            self.leader = member.member_id

    def offer(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Replace the protocols that a member offers."""
        self._discount(member)
        member.protocols = protocols
        self._count(member)

    def park(self, member: Member, tokens: tuple[Token, ...]) -> None:
        """Set the parked joins of a member; empty if the member no longer waits."""
        member.join_tokens = tokens
        (self._waiting.add if tokens else self._waiting.discard)(member.member_id)

    def _count(self, member: Member) -> None:
        self._offers.update({p.name for p in member.protocols})
        if member.join_tokens:
            self._waiting.add(member.member_id)

    def _discount(self, member: Member) -> None:
        for name in {p.name for p in member.protocols}:
            self._offers[name] -= 1
            if not self._offers[name]:
                del self._offers[name]
        self._waiting.discard(member.member_id)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it rejoined, else elect the first rejoined member. False: no member rejoined."""
        if self.leader is not None and self.members[self.leader].join_tokens:
            return True
        joined = next((m.member_id for m in self if m.join_tokens), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def everyone_joined(self) -> bool:
        """Whether every member has joined, and every id that was handed out is in use."""
        return not self.pending and len(self._waiting) == len(self)

    def joined(self) -> int:
        """Return the number of members that wait for the end of the join phase."""
        return len(self._waiting)

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self), default=0)

    def is_common(self, name: str) -> bool:
        """Return whether every member offers the protocol."""
        return self._offers[name] == len(self)

    def common_protocols(self) -> frozenset[str]:
        """Return the protocols that every member offers."""
        return frozenset(name for name, members in self._offers.items() if members == len(self))

    def select_protocol(self) -> str | None:
        """Return the common protocol with the most votes; in a tie, the earliest member's choice wins."""
        candidates = self.common_protocols()
        votes: dict[str, int] = {}
        for member in self:
            choice = member.vote(candidates)
            if choice is not None:
                votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else None
