"""Decide whether a request may create a group, and count the groups that each peer created.

The counts keep a peer from using up the broker's limit of groups.

An address may create a group while it has fewer groups than remain free. A connection may create a group
while it has fewer groups than its address may still create. Groups that hold only committed offsets are
limited to half of all groups. Acknowledged offsets are never dropped to make room, so the other half stays
for groups with members. A removed group no longer counts.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from faust_assigner.broker import limits
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    Event,
    JoinGroup,
)


def creates_group(event: Event) -> bool:
    """Whether an event may create a missing group."""
    match event:
        case JoinGroup():
            return not event.member_id
        case CommitOffsets():
            return event.generation < 0
        case ConsumerGroupHeartbeat():
            return event.member_epoch == 0
        case _:
            return False


def creation_error(group_id: str, event: Event) -> Code:
    """Return INVALID_GROUP_ID if no group may have this id, else NONE.

    GroupQuota checks the limits; the new group checks the event.
    """
    # Kafka allows commits under an empty group id. For a heartbeat with an empty group id, the group's
    # state machine returns Kafka's error message.
    may_be_nameless = isinstance(event, CommitOffsets | ConsumerGroupHeartbeat)
    if limits.is_group_id(group_id) or (may_be_nameless and not group_id):
        return Code.NONE
    return Code.INVALID_GROUP_ID


class GroupCreator(Protocol):
    """A peer as the creator of groups."""

    address: str
    created_groups: int  # existing groups that this peer's requests created


class _Creation(NamedTuple):
    address: str
    peer: weakref.ref[GroupCreator] | None
    is_simple: bool


class GroupQuota:
    """The number of groups that each address and each connection created in one broker.

    A simple group has only committed offsets and never had a member.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Creation] = {}
        self._standing: Counter[str] = Counter()  # address -> existing groups
        self._simple: Counter[str] = Counter()  # address -> simple groups
        #: (address, is_simple at the creation) -> groups that may be empty, oldest first
        self._fresh: dict[tuple[str, bool], dict[str, None]] = {}

    def note(self, group_id: str, creator: GroupCreator | None, *, is_simple: bool) -> None:
        """Record a new group; ``creator`` is None for a group restored from the store."""
        address = creator.address if creator is not None else ""
        peer = None
        if creator is not None:
            creator.created_groups += 1
            peer = weakref.ref(creator)
        self._entries[group_id] = _Creation(address, peer, is_simple)
        self._standing[address] += 1
        self._simple[address] += is_simple
        self._fresh.setdefault((address, is_simple), {})[group_id] = None

    def has_members(self, group_id: str) -> None:
        """Record that a group got its first member: the group no longer counts as simple."""
        entry = self._entries.get(group_id)
        if entry is not None and entry.is_simple:
            self._simple[entry.address] -= 1
            self._entries[group_id] = entry._replace(is_simple=False)

    def gone(self, group_id: str) -> None:
        """Record the removal of a group."""
        entry = self._entries.pop(group_id, None)
        if entry is None:
            return
        self._standing[entry.address] -= 1
        self._simple[entry.address] -= entry.is_simple
        for is_simple in (True, False):  # is_simple may have changed since the creation
            fresh = self._fresh.get((entry.address, is_simple), {})
            fresh.pop(group_id, None)
            if not fresh:
                self._fresh.pop((entry.address, is_simple), None)
        if not self._standing[entry.address]:
            del self._standing[entry.address], self._simple[entry.address]
        peer = entry.peer() if entry.peer is not None else None
        if peer is not None:
            peer.created_groups -= 1

    def may_create(self, creator: GroupCreator | None, *, is_simple: bool) -> bool:
        """Whether a peer (None: the broker itself) may create one more group."""
        left = self._groups_left(creator.address if creator is not None else None, is_simple)
        return left > 0 and (creator is None or creator.created_groups < left)

    def needs_room(self, creator: GroupCreator | None, *, is_simple: bool) -> bool:
        """Whether an empty group must be removed for a peer: its address may create no more groups."""
        return self._groups_left(creator.address if creator is not None else None, is_simple) <= 0

    def _groups_left(self, address: str | None, is_simple: bool) -> int:
        """Return how many more groups an address may create: the unused number minus its own groups."""
        left = limits.MAX_GROUPS - self._standing.total()
        if address is not None:
            left -= self._standing[address]
        if is_simple:
            simple = limits.MAX_GROUPS // 2 - self._simple.total()
            left = min(left, simple - (self._simple[address] if address is not None else 0))
        return left

    def fresh(self, creator: GroupCreator | None, *, is_simple: bool) -> Iterator[str]:
        """Take out and yield the groups that may be empty; the peer's own address and kind come first."""
        mine = (creator.address if creator is not None else "", is_simple)
        keys = sorted(self._fresh, key=lambda key: (key != mine, key[0] != mine[0], key))
        for key in keys:
            groups = self._fresh[key]
            while groups:
                group_id = next(iter(groups))
                del groups[group_id]
                yield group_id
            del self._fresh[key]
