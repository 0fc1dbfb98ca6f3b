"""A snapshot of a group: values only; requests are identified by the simulator's tickets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from faust_assigner.coordinator.classic import ClassicGroup, State
from faust_assigner.coordinator.events import JoinGroup, Protocol


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """A member; ``joins`` and ``syncs`` are the tickets of its parked requests."""

    member_id: str
    instance_id: str | None
    client: tuple[str, str]
    session_ms: int
    rebalance_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    joins: tuple[int, ...] = ()
    syncs: tuple[int, ...] = ()

    @property
    def parked(self) -> bool:
        """Whether one of the member's requests is parked."""
        return bool(self.joins or self.syncs)

    def says(self, event: JoinGroup) -> bool:
        """Whether the member's fields equal the fields of the request."""
        told = (
            event.instance_id,
            event.session_timeout_ms,
            event.rebalance_timeout_ms,
            event.protocols,
        )
        client = (event.client_id, event.client_host)
        return (self.instance_id, self.session_ms, self.rebalance_ms, self.protocols) == told and (
            self.client == client
        )

    def metadata(self, name: str | None) -> bytes:
        """The member's metadata for the protocol."""
        return {p.name: p.metadata for p in reversed(self.protocols)}.get(name or "", b"")


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """The group's state without timers; ``DEAD`` if there is no group."""

    state: State = State.DEAD
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Mapping[str, MemberSeen] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    instances: Mapping[str, str] = field(default_factory=dict)

    def held(self) -> set[int]:
        """The tickets without an answer from the group."""
        return {ticket for m in self.members.values() for ticket in (*m.joins, *m.syncs)}

    def joined(self) -> int:
        """The number of members waiting for the end of the join phase."""
        return sum(1 for m in self.members.values() if m.joins)


def look(group: ClassicGroup | None, tickets: Mapping[int, int]) -> GroupSeen:
    """Return the group's snapshot; ``tickets`` maps its tokens to the simulator's tickets."""
    if group is None:
        return GroupSeen()
    members = {
        m.member_id: MemberSeen(
            m.member_id,
            m.instance_id,
            (m.client_id, m.client_host),
            m.session_timeout_ms,
            m.rebalance_timeout_ms,
            m.protocols,
            m.assignment,
            tuple(tickets[t] for t in m.join_tokens),
            tuple(tickets[t] for t in m.sync_tokens),
        )
        for m in group.roster
    }
    return GroupSeen(
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.roster.leader,
        members,
        frozenset(group.roster.pending),
        dict(group.roster.instances),
    )
