"""The members of one classic group, and the questions asked about them as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from faust_assigner.coordinator.effects import MemberRecord
from faust_assigner.coordinator.events import JoinGroup, Protocol, Token


@dataclass(slots=True)
class Member:
    """One member. What it offers and the joins it waits with change through its roster, which counts them."""

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
    def joining(cls, event: JoinGroup, member_id: str) -> Member:
        """The member a JoinGroup describes, not parked yet."""
        return cls(
            member_id,
            event.instance_id,
            event.client_id,
            event.client_host,
            event.session_timeout_ms,
            event.rebalance_timeout_ms,
            event.protocols,
            is_new=True,
        )

    @classmethod
    def restored(cls, record: MemberRecord) -> Member:
        """The member a record describes."""
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
        """As it goes to disk, optionally with an assignment that is about to hold."""
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
        """What it said under that protocol; empty when it does not offer it."""
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")

    def vote(self, candidates: frozenset[str]) -> str | None:
        """Its own first choice among the candidates."""
        return next((p.name for p in self.protocols if p.name in candidates), None)


@dataclass(slots=True)
class Roster:
    """Members by id in order of arrival, static ids, the leader, and ids handed out but not used yet.

    What every join asks is counted as members come, change and go, so that its answer costs O(1): a thousand
    members that arrive together would ask a thousand times about a thousand.
    """

    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    leader: str | None = None
    _offers: Counter[str] = field(default_factory=Counter)  # protocol -> how many members offer it
    _waiting: set[str] = field(default_factory=set)  # members with a parked join

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def __getitem__(self, member_id: str) -> Member:
        return self.members[member_id]

    def add(self, member: Member) -> None:
        """Take a member in; the first one becomes leader."""
        self.members[member.member_id] = member
        self._count(member)
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Let a member go; if it led, the member that arrived first leads."""
        member = self.members.pop(member_id)
        self._discount(member)
        if member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def put(self, old_id: str, member: Member) -> None:
        """A member takes the place of another: its place in line, its instance id, its leadership."""
        self._discount(self.members[old_id])
        line = [member if m.member_id == old_id else m for m in self]
        self.members = {m.member_id: m for m in line}
        self._count(member)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if self.leader == old_id:
            self.leader = member.member_id

    def offer(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """A member offers something else now."""
        self._discount(member)
        member.protocols = protocols
        self._count(member)

    def park(self, member: Member, tokens: tuple[Token, ...]) -> None:
        """These are the joins a member waits with; none: it waits no more."""
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
        """Keep a leader that rejoined, else the first that did; False when nobody rejoined."""
        if self.leader is not None and self.members[self.leader].join_tokens:
            return True
        joined = next((m.member_id for m in self if m.join_tokens), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    def everyone_joined(self) -> bool:
        """No member is missing, and no id handed out is still unused."""
        return not self.pending and len(self._waiting) == len(self)

    def joined(self) -> int:
        """How many members wait for the join phase to end."""
        return len(self._waiting)

    def rebalance_timeout_ms(self) -> int:
        """The slowest member sets the pace."""
        return max((m.rebalance_timeout_ms for m in self), default=0)

    def is_common(self, name: str) -> bool:
        """Whether every member offers that protocol."""
        return self._offers[name] == len(self)

    def common_protocols(self) -> frozenset[str]:
        """Protocols that every member offers."""
        return frozenset(name for name, members in self._offers.items() if members == len(self))

    def select_protocol(self) -> str | None:
        """Most votes among the common protocols; ties go to the one the earliest member named first."""
        candidates = self.common_protocols()
        votes: dict[str, int] = {}
        for member in self:
            choice = member.vote(candidates)
            if choice is not None:
                votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else None
