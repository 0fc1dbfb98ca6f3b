"""Convert a consumer group to a classic group with the same members and partitions.

The old state machine stays unchanged until the record of the new machine is on disk; then the broker gets
the new machine. The generation continues the numbers of the group epoch.
"""

from __future__ import annotations

from dataclasses import replace

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.consumer.book import Book
from faust_assigner.coordinator.consumer.classic_face import ClassicFace
from faust_assigner.coordinator.consumer.partitions import pairs
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import JoinGroup
from faust_assigner.coordinator.members import Member, Roster
from faust_assigner.coordinator.protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_subscription,
    write_assignment,
)
from faust_assigner.coordinator.records import Key, Kind, Record
from faust_assigner.coordinator.refusals import refuse_join


class Migration(ClassicFace):
    """The rules for the change to a classic group."""

    def _join(self, event: JoinGroup) -> None:
        if self.book.members:
            self._join_classic(event)
        else:
            self._found_classic(event)

    def _found_classic(self, event: JoinGroup) -> None:
        """Replace an empty group, because its next member decides the protocol."""
        error = refuse_join(event, self.classic_limits, self.group_id)
        if error is Code.NONE and event.member_id:
            error = Code.UNKNOWN_MEMBER_ID
        if error is not Code.NONE:
            self._emit(fx.JoinReply(event.token, error, event.member_id))
            return
        record = fx.GroupRecord(self.group_id, self.book.epoch, None, None, None, self._wall, ())
        self._succeed(record, event)

    def _remove(self, gone: list[str]) -> None:
        staying = self.book.members.keys() - set(gone)
        if self._may_downgrade(staying):
            self._report(
                "downgraded", detail=f"{', '.join(gone)} left, all remaining members are classic"
            )
            record = downgraded_record(self.book, frozenset(gone), self.catalogue, self._wall)
            self._succeed(replace(record, settled=False))
        else:
            super()._remove(gone)

    def _replace_by_classic(
        self, event: JoinGroup, said: Subscription, old_id: str, new_id: str
    ) -> None:
        others = self.book.members.keys() - {old_id}
        downgrades = (
            self._may_downgrade(others, replacing=True) and old_id not in self.book.classic_members
        )
        epoch, target_epoch = self.book.epoch, self.book.target_epoch
        super()._replace_by_classic(event, said, old_id, new_id)
        if not downgrades:
            return
        record = downgraded_record(self.book, frozenset(), self.catalogue, self._wall)
        is_due = target_epoch < self.book.epoch
        if is_due:
            # From now on the members compute the assignment. The other members' generation is the epoch
            # before this join, so that their heartbeats are answered "rebalance in progress".
            record = replace(record, generation=epoch)
        # Only a rebalance gives a waiting member its partition, also after a restart of the broker.
        rejoins = is_due or not all(self._has_its_target(member_id) for member_id in others)
        record = replace(record, settled=not rejoins)
        self._out = [
            replace(effect, generation=record.generation, protocol_name=record.protocol_name)
            if isinstance(effect, fx.JoinReply)
            else effect
            for effect in self._out
        ]
        self._report("downgraded", detail=f"{new_id} is back as a classic member, like all members")
        self._succeed(record)

    def _has_its_target(self, member_id: str) -> bool:
        """Return whether the member has its whole target assignment."""
        held, target = self.book.at(member_id).assigned, self.book.target.get(member_id, {})
        return set(pairs(held)) == set(pairs(target))

    def _may_downgrade(self, staying: set[str], *, replacing: bool = False) -> bool:
        enough = bool(staying) or replacing
        fits = len(staying) + replacing <= self.classic_limits.max_size
        allowed = self.limits.migration_policy.downgrades
        return enough and fits and allowed and staying <= self.book.classic_members

    def _succeed(self, record: fx.GroupRecord, then: JoinGroup | None = None) -> None:
        """Replace this machine once the record is on disk; ``then`` is the new machine's first event."""
        keys = {r.key: None for r in (*self.book.records(), *self._batch)}
        self._batch = [Record(key, None) for key in keys]
        self._batch.append(Record(Key(Kind.CLASSIC, self.group_id), record))
        group = self.restore_classic(
            record, self.classic_limits, self._now, consumer=self.limits, catalogue=self.catalogue
        )
        self._successor = group, then


def downgraded_record(
    book: Book, gone: frozenset[str], catalogue: Catalogue, wall_ms: int
) -> fx.GroupRecord:
    """Return the record of a classic group for a consumer group with only classic members.

    The classic group is stable. Its assignments are the targets, its generation is the group epoch.
    """
    staying = [m for m in book.members if m not in gone]
    roster = Roster()
    for member_id in staying:
        roster.add(_classic_member(book, member_id, catalogue))
    return fx.GroupRecord(
        book.group_id,
        book.epoch,
        CONSUMER_PROTOCOL_TYPE,
        roster.select_protocol(),
        roster.leader,
        wall_ms,
        tuple(member.record() for member in roster),
    )


def _classic_member(book: Book, member_id: str, catalogue: Catalogue) -> Member:
    metadata = book.members[member_id]
    side = metadata.classic
    if side is None:
        raise CoordinatorBug(f"group {book.group_id}: {member_id} is not a classic member")
    said = read_subscription(side.protocols[0].metadata)
    given = catalogue.names_of(book.target.get(member_id, {}))
    return Member(
        member_id,
        metadata.instance_id,
        metadata.client_id,
        metadata.client_host,
        side.session_timeout_ms,
        metadata.rebalance_timeout_ms,
        side.protocols,
        write_assignment(said.version if said is not None else 0, given),
    )
