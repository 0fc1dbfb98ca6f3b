"""The state of a consumer group. Only records change the state, so a replay of the records restores it.

``apply`` takes a record and returns the record that undoes the change. All derived values
(owners, votes, subscription counts, members behind) are kept up to date in O(one member).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, TypeVar

from faust_assigner.coordinator.catalogue import Partitions, TopicId
from faust_assigner.coordinator.consumer.partitions import pairs, plain
from faust_assigner.coordinator.consumer.reconcile import is_settled
from faust_assigner.coordinator.errors import CoordinatorBug
from faust_assigner.coordinator.group_views import MemberView
from faust_assigner.coordinator.records import (
    CurrentAssignment,
    GroupEpoch,
    Key,
    Kind,
    MemberMetadata,
    MemberState,
    Pattern,
    Record,
    TargetAssignment,
    TargetEpoch,
    Value,
)

T = TypeVar("T")
FIRST_EPOCH: Final = 1  # the epoch of a group without any join yet: member epoch 0 means joining
NEWCOMER: Final = CurrentAssignment(0, 0, MemberState.STABLE, {}, {})


class Book:
    """Members, epochs and assignments of a group; each field is documented by its invariant."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        #: The group epoch with its fingerprint; None before the first member joins. The epoch never
        #: decreases.
        self.group: GroupEpoch | None = None
        #: The epoch of the target assignment; it is never above the group epoch and never decreases.
        self.target_epoch = FIRST_EPOCH
        #: The members, in order of arrival.
        self.members: dict[str, MemberMetadata] = {}
        #: Each member's current assignment; a member without a record has epoch 0 and no partitions.
        self.current: dict[str, CurrentAssignment] = {}
        self.target: dict[str, Partitions] = {}
        #: Instance id -> its member; one member per instance id.
        self.instances: dict[str, str] = {}
        #: The member that has a partition assigned or is revoking it: at most one at any time.
        self.owners: dict[TopicId, dict[int, str]] = {}
        #: The number of members for each preferred assignor, topic name, pattern with its client, and
        #: classic protocol.
        self.votes: Counter[str] = Counter()
        self.names: dict[str, int] = {}
        self.patterns: Counter[Pattern] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        self.classic_members: set[str] = set()
        #: Members that are not stable at the target epoch.
        self.behind: set[str] = set()

    @property
    def epoch(self) -> int:
        """The group epoch; the first join makes it 2, as in Kafka."""
        return self.group.epoch if self.group is not None else FIRST_EPOCH

    def at(self, member_id: str) -> CurrentAssignment:
        """Return a member's current assignment."""
        return self.current.get(member_id, NEWCOMER)

    def owner(self, topic_id: TopicId, number: int) -> str | None:
        """Return the member that holds a partition (assigned or being revoked), or None."""
        return self.owners.get(topic_id, {}).get(number)

    # -- records ---------------------------------------------------------------------------------

    def key(self, kind: Kind, member_id: str = "") -> Key:
        """Return the key of a record of this group."""
        return Key(kind, self.group_id, member_id)

    def records(self) -> Iterable[Record]:
        """Yield records that restore the present state of the group."""
        for member_id, metadata in self.members.items():
            yield Record(self.key(Kind.MEMBER, member_id), metadata)
        if self.group is not None:
            yield Record(self.key(Kind.EPOCH), self.group)
        for member_id, target in self.target.items():
            yield Record(self.key(Kind.TARGET, member_id), TargetAssignment(target))
        if self.target_epoch != FIRST_EPOCH:
            yield Record(self.key(Kind.TARGET_EPOCH), TargetEpoch(self.target_epoch))
        for member_id, current in self.current.items():
            yield Record(self.key(Kind.CURRENT, member_id), current)

    def apply(self, record: Record) -> Record:
        """Apply a record; return the record that undoes the change."""
        who = record.key.member_id
        before: Value | None
        match record.key.kind, record.value:
            case Kind.EPOCH, (GroupEpoch() | None) as group:
                before, self.group = self.group, group
            case Kind.TARGET_EPOCH, (TargetEpoch() | None) as target:
                before = (
                    TargetEpoch(self.target_epoch) if self.target_epoch != FIRST_EPOCH else None
                )
                self.target_epoch = target.epoch if target is not None else FIRST_EPOCH
                self.behind = {m for m in self.members if self._is_behind(m)}
            case Kind.MEMBER, (MemberMetadata() | None) as metadata:
                before = self.members.get(who)
                self._put_member(who, metadata)
            case Kind.TARGET, (TargetAssignment() | None) as share:
                before = TargetAssignment(self.target[who]) if who in self.target else None
                if share is None:
                    self.target.pop(who, None)
                else:
                    self.target[who] = share.partitions
            case Kind.CURRENT, (CurrentAssignment() | None) as current:
                before = self.current.get(who)
                self._put_current(who, current)
            case _:
                raise CoordinatorBug(f"{record} does not belong into a consumer group")
        return Record(record.key, before)

    def _put_member(self, member_id: str, metadata: MemberMetadata | None) -> None:
        before = self.members.get(member_id)
        _update_name_counts(
            self.names,
            before.topic_names if before is not None else frozenset(),
            metadata.topic_names if metadata is not None else frozenset(),
        )
        if before is not None:
            self._count(member_id, before, -1)
        if metadata is None:
            self.members.pop(member_id, None)
            self.behind.discard(member_id)
            return
        self.members[member_id] = metadata
        self._count(member_id, metadata, +1)
        self._look_behind(member_id)

    def _count(self, member_id: str, metadata: MemberMetadata, step: int) -> None:
        _add(self.patterns, [metadata.pattern] if metadata.pattern else [], step)
        _add(self.votes, [metadata.server_assignor] if metadata.server_assignor else [], step)
        if metadata.classic is not None:
            _add(self.classic_protocols, [p.name for p in metadata.classic.protocols], step)
        if metadata.classic is not None and step > 0:
            self.classic_members.add(member_id)
        else:
            self.classic_members.discard(member_id)
        if metadata.instance_id is not None:
            if step > 0:
                self.instances[metadata.instance_id] = member_id
            elif self.instances.get(metadata.instance_id) == member_id:
                del self.instances[metadata.instance_id]

    def _put_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        before = self.current.pop(member_id, None)
        if before is not None:
            for held in (before.assigned, before.revoking):
                for topic_id, number in pairs(held):
                    del self.owners[topic_id][number]
                    if not self.owners[topic_id]:
                        del self.owners[topic_id]
        if current is not None:
            self.current[member_id] = current
            for held in (current.assigned, current.revoking):
                for topic_id, number in pairs(held):
                    self._set_owner(topic_id, number, member_id)
        self._look_behind(member_id)

    def _set_owner(self, topic_id: TopicId, number: int, member_id: str) -> None:
        holders = self.owners.setdefault(topic_id, {})
        if number in holders:
            raise CoordinatorBug(
                f"group {self.group_id}: partition {number} of {topic_id.hex()} is held by {holders[number]}"
                f" and was to be assigned to {member_id}"
            )
        holders[number] = member_id

    def view(self, member_id: str) -> MemberView:
        """Return the administrator's view of a member."""
        said, stood = self.members[member_id], self.at(member_id)
        target = self.target.get(member_id, {})
        pending: dict[bytes, list[int]] = {}
        for topic_id, number in pairs(target):
            if self.owner(topic_id, number) not in (None, member_id):
                pending.setdefault(topic_id, []).append(number)
        return MemberView(
            member_id,
            said.instance_id,
            said.client_id,
            said.client_host,
            "consumer" if said.classic is None else "classic",
            stood.epoch,
            said.rebalance_timeout_ms,
            said.rack_id,
            stood.state.value,
            tuple(sorted(said.topic_names)),
            said.topic_regex,
            said.server_assignor,
            plain(stood.assigned),
            plain(stood.revoking),
            {topic_id: tuple(numbers) for topic_id, numbers in pending.items()},
            target,
        )

    def _is_behind(self, member_id: str) -> bool:
        return not is_settled(self.at(member_id), self.target_epoch)

    def _look_behind(self, member_id: str) -> None:
        if member_id in self.members and self._is_behind(member_id):
            self.behind.add(member_id)
        else:
            self.behind.discard(member_id)


def _update_name_counts(counts: dict[str, int], old: frozenset[str], new: frozenset[str]) -> None:
    """Replace a member's names in the counts.

    Cost: O(number of added and removed names); a client may send thousands of names.
    """
    for name in old - new:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
    come = new - old
    fresh = come.difference(counts)
    counts.update(dict.fromkeys(fresh, 1))
    for name in come - fresh:
        counts[name] += 1


def _add(counts: Counter[T], things: Iterable[T], step: int) -> None:
    """Add ``step`` to the count of each value; remove values with count 0."""
    for thing in things:
        counts[thing] += step
        if not counts[thing]:
            del counts[thing]
