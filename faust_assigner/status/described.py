"""A classic group of Faust workers as its coordinator describes it, decoded. No I/O.

During a rebalance a coordinator lists the members but hides their metadata and their
assignments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.errors import MetadataRefused
from faust_assigner.model import Claims
from faust_assigner.wire import join
from faust_assigner.wire.answer import Answer, actives_to_claim, decode_answer, read_directory
from faust_assigner.wire.documents import printable
from faust_assigner.wire.join import JoinData

#: The kinds of members: cooperative, eager by setting, stock Faust, no Faust worker, unknown.
COOPERATIVE, EAGER, STOCK, STRANGER, UNKNOWN = (
    "cooperative",
    "eager",
    "stock Faust",
    "not Faust",
    "unknown",
)
#: The most partitions and copies in a member's assignment, because each becomes a row of the
#: report.
MOST_PARTITIONS = 200_000
#: The state in which a coordinator shows metadata and assignments.
STABLE = "Stable"


@dataclass(frozen=True, kw_only=True)
class DescribedMember:
    """A member. ``said`` is its metadata from the join, ``given`` the leader's answer.

    Both are None during a rebalance. An unreadable value is None, too; ``problem`` then has the
    reason.
    ``record_bytes`` is the member's part of the group's record.
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
        """The member's kind: ``COOPERATIVE``, ``EAGER``, ``STOCK``, ``STRANGER`` or ``UNKNOWN``."""
        if self.said is None:
            return STRANGER if self.problem else UNKNOWN
        if not self.said.is_ours:
            return STOCK
        return COOPERATIVE if self.said.cooperative else EAGER

    @property
    def url(self) -> str:
        """The URL that the member advertises for its web server; "" if unknown."""
        return "" if self.said is None else self.said.url

    @property
    def actives(self) -> Claims:
        """The owned partitions.

        Of a global table's changelog, these are the partitions that the member writes.
        """
        if self.given is None:
            return {}
        return actives_to_claim({} if self.said is None else self.said.globals_, self.given)

    @property
    def copies(self) -> Claims:
        """The copied partitions, including warm-ups.

        Global tables are left out, because every member has a copy of them.
        """
        if self.given is None:
            return {}
        everywhere = {} if self.said is None else self.said.globals_
        return {t: runs for t, runs in self.given.standbys.items() if t not in everywhere}


@dataclass(frozen=True, kw_only=True)
class DescribedGroup:
    """A group. ``protocol`` is the protocol name of the last round, "" during a round."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    coordinator: str = ""
    members: tuple[DescribedMember, ...] = field(default=())

    @property
    def is_settled(self) -> bool:
        """Whether the group is stable, so that the coordinator shows metadata and assignments."""
        return self.state == STABLE

    @property
    def is_rebalancing(self) -> bool:
        """Whether a round is in progress, which hides metadata and assignments.

        False for a group without members.
        """
        return not self.is_settled and bool(self.members)


def decode_group(group: Any, *, coordinator: str = "") -> DescribedGroup:
    """Decode the coordinator's description of a group.

    Does not raise for a member's unreadable bytes; the member's ``problem`` then has the reason.
    """
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
                (_decode_member(member, memo, settled=settled) for member in group.members),
                key=lambda member: member.member_id,
            )
        ),
    )


def _decode_member(member: Any, memo: join.Memo, *, settled: bool) -> DescribedMember:
    metadata, assignment = (
        bytes(member.member_metadata or b""),
        bytes(member.member_assignment or b""),
    )
    instance_id = getattr(member, "group_instance_id", None)
    found: dict[str, Any] = {
        "member_id": printable(member.member_id),
        "client_id": printable(member.client_id),
        # Kafka's brokers write a slash before the address, as in /10.0.0.3.
        "address": printable(member.client_host).removeprefix("/"),
        "instance_id": instance_id if instance_id is None else printable(instance_id),
        "record_bytes": len(metadata) + len(assignment) + 2 * len(member.member_id) + 150,
    }
    if not settled:
        return DescribedMember(**found)
    try:
        said = ConsumerProtocolMemberMetadata.decode(metadata)
        topics = frozenset(topic for topic in said.subscription if topic is not None)
        found["topics"] = topics
        if said.user_data:
            found["said"] = join.decode_join(said.user_data, topics, memo=memo)
        else:
            found["problem"] = "it is not a Faust worker: it joined without user data"
    except Exception as error:  # refused by our decoder, or not a consumer's metadata
        found["problem"] = printable(f"its metadata is unreadable: {error}")
    try:
        if assignment:
            given = ConsumerProtocolMemberAssignment.decode(assignment)
            if given.user_data:
                found["given"] = _check_bounds(decode_answer(given.user_data))
    except Exception as error:
        found["problem"] = printable(f"its assignment is unreadable: {error}")
    return DescribedMember(**found)


def _check_bounds(answer: Answer) -> Answer:
    """Return the answer. Raises MetadataRefused above ``MOST_PARTITIONS``.

    A run of a few bytes may claim two thousand million partitions.
    """
    claims = answer.actives, answer.standbys, answer.writes, answer.awaited, answer.promised
    count = sum(runs.size for one in claims for runs in one.values())
    if count > MOST_PARTITIONS:
        raise MetadataRefused(f"{count} partitions, the limit is {MOST_PARTITIONS}")
    return answer


def replaced_urls(group: DescribedGroup) -> frozenset[str]:
    """Return the URLs of static members in the last round that now have a different URL.

    A process that joins with a used instance id replaces the former process without a round
    (KIP-345).
    """
    given = [member.given for member in group.members if member.given is not None]
    newest = max(given, key=lambda answer: answer.generation, default=None)
    if newest is None:
        return frozenset()
    try:
        directory = read_directory(newest.directory)
    except MetadataRefused:  # the report can do without the directory
        return frozenset()
    now = {member.instance_id: member.url for member in group.members if member.url}
    before = zip(directory.instances, directory.urls, strict=False)
    return frozenset(url for name, url in before if url and now.get(name, url) != url)


def numbers_of(claims: Claims) -> Mapping[str, tuple[int, ...]]:
    """Expand claims to partition numbers; empty topics are left out."""
    found = {topic: tuple(claims[topic]) for topic in sorted(claims)}
    return {topic: numbers for topic, numbers in found.items() if numbers}
