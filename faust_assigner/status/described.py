"""A classic group of Faust workers as its coordinator describes it, decoded. Pure.

While a rebalance is under way a coordinator names the members, and shows neither what they said
nor what they were given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.model import Claims
from faust_assigner.wire import join
from faust_assigner.wire.answer import Answer, decode_answer, own_topics
from faust_assigner.wire.join import JoinData
from faust_assigner.wire.worker_status import printable

#: What a member is: able to go on through a rebalance, told not to, stock Faust, no Faust worker, not known.
COOPERATIVE, EAGER, STOCK, STRANGER, UNKNOWN = (
    "cooperative",
    "eager",
    "stock Faust",
    "not Faust",
    "unknown",
)
#: The state in which a coordinator shows everything.
STABLE = "Stable"


@dataclass(frozen=True, kw_only=True)
class DescribedMember:
    """One member. ``said`` is what it said when it joined, ``given`` the leader's answer to it.

    Both are None while a rebalance is under way, and where they cannot be read; ``problem`` then says why.
    ``record_bytes`` is what the member takes in the group's record.
    """

    member_id: str
    client_id: str
    address: str
    instance_id: str | None = None
    topics: frozenset[str] = frozenset()
    said: JoinData | None = None
    given: Answer | None = None
    problem: str = ""
    record_bytes: int = 0

    @property
    def kind(self) -> str:
        """One of the kinds above."""
        if self.said is None:
            return STRANGER if self.problem else UNKNOWN
        if not self.said.is_ours:
            return STOCK
        return COOPERATIVE if self.said.cooperative else EAGER

    @property
    def url(self) -> str:
        """Where its web server is, as it says; "" where that is not known."""
        return "" if self.said is None else self.said.url

    @property
    def actives(self) -> Claims:
        """What it owns; of a global table's changelog the partitions that it writes."""
        if self.given is None:
            return {}
        return own_topics({} if self.said is None else self.said.globals_, self.given)

    @property
    def copies(self) -> Claims:
        """What it keeps a copy of, warm-ups included; a global table is everywhere and not named."""
        if self.given is None:
            return {}
        everywhere = {} if self.said is None else self.said.globals_
        return {t: runs for t, runs in self.given.standbys.items() if t not in everywhere}


@dataclass(frozen=True, kw_only=True)
class DescribedGroup:
    """The group. ``protocol`` is that of the last round, "" while one is under way."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    coordinator: str = ""
    members: tuple[DescribedMember, ...] = field(default=())

    @property
    def is_settled(self) -> bool:
        """Whether the coordinator shows what members said and were given."""
        return self.state == STABLE


def decode_group(group: Any, *, coordinator: str = "") -> DescribedGroup:
    """The coordinator's description of a group. Never raises on what members wrote."""
    memo: join.Memo = {}
    settled = group.group_state == STABLE
    return DescribedGroup(
        group_id=group.group_id,
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=coordinator,
        members=tuple(
            sorted(
                (_member(member, memo, settled=settled) for member in group.members),
                key=lambda member: member.member_id,
            )
        ),
    )


def _member(member: Any, memo: join.Memo, *, settled: bool) -> DescribedMember:
    metadata, assignment = (
        bytes(member.member_metadata or b""),
        bytes(member.member_assignment or b""),
    )
    found: dict[str, Any] = {
        "member_id": printable(member.member_id),
        "client_id": printable(member.client_id),
        # Kafka's brokers write /10.0.0.3.
        "address": printable(member.client_host).removeprefix("/"),
        "instance_id": getattr(member, "group_instance_id", None),
        "record_bytes": len(metadata) + len(assignment) + 2 * len(member.member_id) + 150,
    }
    if not settled:
        return DescribedMember(**found)
    try:
        said = ConsumerProtocolMemberMetadata.decode(metadata)
        found["topics"] = frozenset(said.subscription)
        found["said"] = join.decode_join(said.user_data, said.subscription, memo=memo)
    except Exception as error:  # refused, or the metadata of no consumer at all
        found["problem"] = f"its metadata cannot be read: {error}"
    try:
        if assignment:
            given = ConsumerProtocolMemberAssignment.decode(assignment)
            found["given"] = decode_answer(given.user_data)
    except Exception as error:
        found["problem"] = f"its assignment cannot be read: {error}"
    return DescribedMember(**found)


def numbers_of(claims: Claims) -> Mapping[str, tuple[int, ...]]:
    """Claims with their partition numbers laid out; topics without any are left out."""
    found = {topic: tuple(claims[topic]) for topic in sorted(claims)}
    return {topic: numbers for topic, numbers in found.items() if numbers}
