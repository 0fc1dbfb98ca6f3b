"""The values that describe a consumer group, its members and its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.answer import decode_answer
from faust_assigner.wire.join import COOPERATIVE, EAGER

Owned = frozenset[tuple[str, int]]
#: As a group's type: KIP-848. As a classic group's protocol type: the members are consumers.
CONSUMER_TYPE = "consumer"
FAUST = frozenset({EAGER, COOPERATIVE})  # protocols whose members keep standbys


@dataclass(frozen=True, kw_only=True)
class ListedGroup:
    """A group in the list. Old clusters do not report ``group_type`` and ``state``: these are "" then."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str


@dataclass(frozen=True, kw_only=True)
class GroupMemberView:
    """One group member. ``epoch`` is None in a classic group.

    ``pending`` are the partitions that the member will get, ``revoking`` the partitions that it will
    lose.

    ``standbys`` are partitions of other members whose table rows this Faust worker copies.

    ``shares`` is the size in bytes of an assignment that is not a list of partitions, else None.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    owned: Owned
    pending: Owned = frozenset()
    revoking: Owned = frozenset()
    is_classic: bool = True
    shares: int | None = None
    standbys: Owned = frozenset()


@dataclass(frozen=True, kw_only=True)
class PartitionView:
    """A partition with a committed offset, an owner or a standby.

    ``end`` is None while the partition has no leader; ``lag`` is None without an end or a committed
    offset.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    owner: str | None

    @property
    def lag(self) -> int | None:
        """The number of records after the committed offset; None if one of both is unknown."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """A group as its coordinator describes it. Epochs are None in a classic group."""

    group_id: str
    group_type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: str
    epoch: int | None = None
    target_epoch: int | None = None
    members: tuple[GroupMemberView, ...] = ()
    partitions: tuple[PartitionView, ...] = field(default=())


def consumer_member(member: Any) -> GroupMemberView:
    """Return the view of a KIP-848 group's member from kio's description."""
    owned, target = (
        frozenset(
            (topic.topic_name, n) for topic in side.topic_partitions for n in topic.partitions
        )
        for side in (member.assignment, member.target_assignment)
    )
    return GroupMemberView(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        epoch=member.member_epoch,
        owned=owned,
        pending=target - owned,
        revoking=owned - target,
        is_classic=getattr(member, "member_type", 1) == 0,
    )


def classic_member(member: Any, protocol_type: str, protocol: str) -> GroupMemberView:
    """Return the view of a classic group's member from kio's description."""
    owned: Owned = frozenset()
    standbys: Owned = frozenset()
    shares: int | None = None
    share: bytes = member.member_assignment or b""
    if protocol_type != CONSUMER_TYPE:
        shares = len(share)
    elif share:
        try:
            decoded = ConsumerProtocolMemberAssignment.decode(share)
            given = frozenset((tp.topic, tp.partition) for tp in decoded.partitions())
            standbys = (
                _standby_partitions(given, decoded.user_data) if protocol in FAUST else frozenset()
            )
            owned = given - standbys
        except Exception:  # not an assignment of consumers: show only its size
            shares = len(share)
    return GroupMemberView(
        member_id=member.member_id,
        instance_id=getattr(member, "group_instance_id", None),
        client_id=member.client_id,
        host=member.client_host,
        epoch=None,
        owned=owned,
        shares=shares,
        standbys=standbys,
    )


def _standby_partitions(given: Owned, user_data: bytes) -> Owned:
    """Return the standby partitions of a Faust worker; empty if its user data is unreadable.

    Faust's assignments contain actives and standbys; only the user data marks the actives. A global table's
    changelog is active on every worker; our user data lists the partitions that the worker itself writes.
    """
    try:
        answer = decode_answer(user_data)
    except MetadataRefused:
        return frozenset()
    if not answer.actives and not answer.standbys:
        return frozenset()  # the user data is not from a Faust leader
    ours = answer.generation >= 0

    def is_active(topic: str, number: int) -> bool:
        if number not in answer.actives.get(topic, ()):
            return False
        is_global = ours and number in answer.standbys.get(topic, ())
        return not is_global or number in answer.writes.get(topic, ())

    return frozenset(tp for tp in given if not is_active(*tp))


def as_ranges(owned: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield a text such as ``orders 0-3,7`` for each topic, by name.

    >>> list(as_ranges({("orders", 0), ("orders", 1), ("orders", 3)}))
    ['orders 0-1,3']
    """
    topics: dict[str, list[list[int]]] = {}
    for topic, number in sorted(owned):
        runs = topics.setdefault(topic, [])
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    for topic, runs in topics.items():
        yield f"{topic} " + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
