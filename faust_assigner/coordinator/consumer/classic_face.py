"""Classic members inside a consumer group: they use the classic requests; the server assigns partitions.

A classic member's generation is its member epoch. A JoinGroup works like a full heartbeat and returns the
epoch; SyncGroup returns the member's partitions immediately. If a member has new partitions, its heartbeats
are answered "rebalance in progress". The member must then rejoin, and later sync, each within its rebalance
timeout.
"""

from __future__ import annotations

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.consumer.heartbeat import Heartbeats
from faust_assigner.coordinator.consumer.partitions import pairs, plain
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Heartbeat, JoinGroup, LeaveGroup, Leaver, SyncGroup
from faust_assigner.coordinator.protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_subscription,
    write_assignment,
)
from faust_assigner.coordinator.records import ClassicSide, MemberMetadata, MemberState
from faust_assigner.coordinator.timers import Purpose


class ClassicFace(Heartbeats):
    """The rules for JoinGroup, SyncGroup, Heartbeat and LeaveGroup in a consumer group with members."""

    # -- joining ---------------------------------------------------------------------------------

    def _join_classic(self, event: JoinGroup) -> None:
        error = self._refuse_classic(event)
        member_id = event.member_id or event.new_member_id
        if (
            error is Code.NONE
            and not event.member_id
            and event.instance_id is None
            and event.needs_known_id
        ):
            self._emit(fx.JoinReply(event.token, Code.MEMBER_ID_REQUIRED, member_id))
            return
        said = read_subscription(event.protocols[0].metadata) if event.protocols else None
        if error is Code.NONE and said is None:
            error = Code.INCONSISTENT_GROUP_PROTOCOL
        if error is not Code.NONE or said is None:
            shown = event.member_id if error is Code.INVALID_SESSION_TIMEOUT else ""  # as in Kafka
            self._emit(fx.JoinReply(event.token, error, shown))
            return
        self._report(
            "member_joined" if member_id not in self.book.members else "member_rejoined", member_id
        )
        replaced = (
            self.book.instances.get(event.instance_id) if event.instance_id is not None else None
        )
        if replaced not in (None, member_id):
            self._replace_by_classic(event, said, str(replaced), member_id)
        else:
            self._admit_classic(event, said, member_id)

    def _refuse_classic(self, event: JoinGroup) -> Code:
        book = self.book
        replaces = event.instance_id is not None and event.instance_id in book.instances
        if not (
            self.classic_limits.min_session_timeout_ms
            <= event.session_timeout_ms
            <= self.classic_limits.max_session_timeout_ms
        ):
            return Code.INVALID_SESSION_TIMEOUT
        if not self.limits.migration_policy.mixes:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if (
            len(book.members) >= self.limits.max_size
            and event.member_id not in book.members
            and not replaces
        ):
            return Code.GROUP_MAX_SIZE_REACHED
        if not self._speaks_with(event):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if event.instance_id is not None and event.member_id:
            return self._fence_instance(event.member_id, event.instance_id)
        return Code.NONE

    def _speaks_with(self, event: JoinGroup) -> bool:
        """Return whether the join offers a protocol that every classic member of the group offers."""
        everybody = len(self.book.classic_members)
        common = any(self.book.classic_protocols[p.name] == everybody for p in event.protocols)
        return event.protocol_type == CONSUMER_PROTOCOL_TYPE and common

    def _replace_by_classic(
        self, event: JoinGroup, said: Subscription, old_id: str, new_id: str
    ) -> None:
        self._take_over(old_id, new_id)
        self._admit_classic(event, said, new_id)

    def _admit_classic(self, event: JoinGroup, said: Subscription, member_id: str) -> None:
        known = self.book.members.get(member_id, MemberMetadata())
        reads_anew = self._update_metadata(member_id, MemberMetadata(
            instance_id=event.instance_id if event.instance_id is not None else known.instance_id,
            rack_id=said.rack_id if said.rack_id is not None else known.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            topic_names=frozenset(said.topics),
            classic=ClassicSide(event.session_timeout_ms, event.protocols),
        ))  # fmt: skip
        self._follow_epoch()
        after = self._reconcile(
            member_id, self.catalogue.partitions_of(said.owned), reads_anew=reads_anew
        )
        self.timers.drop(Purpose.REBALANCE, member_id)
        self.timers.drop(Purpose.JOIN, member_id)
        self.timers.set(Purpose.SESSION, member_id, self._now + event.session_timeout_ms)
        self.timers.set(Purpose.SYNC, member_id, self._now + event.rebalance_timeout_ms)
        self._emit(fx.JoinReply(
            event.token, Code.NONE, member_id, after.epoch, CONSUMER_PROTOCOL_TYPE, event.protocols[0].name,
        ))  # fmt: skip

    # -- syncing and staying ---------------------------------------------------------------------

    def _check_classic(self, event: SyncGroup | Heartbeat) -> Code:
        error = Code.NONE
        if event.instance_id is not None:
            error = self._fence_instance(event.member_id, event.instance_id)
        if error is Code.NONE and event.member_id not in self.book.classic_members:
            error = Code.UNKNOWN_MEMBER_ID
        if error is Code.NONE and event.generation != self.book.at(event.member_id).epoch:
            error = Code.ILLEGAL_GENERATION
        return error

    def _sync_classic(self, event: SyncGroup) -> None:
        error = self._check_classic(event)
        if error is Code.NONE:
            error = self._check_sync_classic(event)
        if error is not Code.NONE:
            self._emit(fx.SyncReply(event.token, error))
            return
        member_id = event.member_id
        self.timers.drop(Purpose.SYNC, member_id)
        self._renew_classic(member_id)
        told = self._assignment_bytes(member_id, plain(self.book.at(member_id).assigned))
        self._emit(
            fx.SyncReply(event.token, Code.NONE, event.protocol_type, event.protocol_name, told)
        )

    def _check_sync_classic(self, event: SyncGroup) -> Code:
        side = self.book.members[event.member_id].classic
        if event.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        if side is not None and event.protocol_name not in (None, side.protocols[0].name):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        stood = self.book.at(event.member_id)
        if stood.epoch < self.book.target_epoch and stood.state is not MemberState.UNREVOKED:
            self._expect_join(event.member_id)
            return Code.REBALANCE_IN_PROGRESS
        return Code.NONE

    def _assignment_bytes(self, member_id: str, partitions: Partitions) -> bytes:
        """Encode partitions in the member's version of ConsumerProtocol."""
        side = self.book.members[member_id].classic
        said = read_subscription(side.protocols[0].metadata) if side is not None else None
        return write_assignment(
            said.version if said is not None else 0, self.catalogue.names_of(partitions)
        )

    def _heartbeat_classic(self, event: Heartbeat) -> None:
        error = self._check_classic(event)
        if error is Code.NONE:
            self._renew_classic(event.member_id)
            if self._must_rejoin(event.member_id):
                self._expect_join(event.member_id)
                error = Code.REBALANCE_IN_PROGRESS
        self._emit(fx.HeartbeatReply(event.token, error))

    def _must_rejoin(self, member_id: str) -> bool:
        """Return whether the member has a newer target, pending revocations, or newly free partitions."""
        stood = self.book.at(member_id)
        if stood.epoch < self.book.target_epoch or stood.state is MemberState.UNREVOKED:
            return True
        return stood.state is MemberState.UNRELEASED and not self._waits(member_id)

    def _waits(self, member_id: str) -> bool:
        """Return whether other members still hold a partition of the member's target."""
        target = self.book.target.get(member_id, {})
        return any(self.book.owner(t, p) not in (None, member_id) for t, p in pairs(target))

    def _renew_classic(self, member_id: str) -> None:
        side = self.book.members[member_id].classic
        if side is not None:
            self.timers.set(Purpose.SESSION, member_id, self._now + side.session_timeout_ms)

    def _expect_join(self, member_id: str) -> None:
        if self.timers.get(Purpose.JOIN, member_id) is None:
            timeout = self.book.members[member_id].rebalance_timeout_ms
            self.timers.set(Purpose.JOIN, member_id, self._now + timeout)

    # -- leaving ---------------------------------------------------------------------------------

    def _leave_classic(self, event: LeaveGroup) -> None:
        """Remove the named members of both protocols, because administrators use this request, too."""
        found = {leaver: self._find_leaver(leaver) for leaver in event.leavers}
        results = tuple((w.member_id, w.instance_id, found[w][1]) for w in event.leavers)
        self._emit(fx.LeaveReply(event.token, Code.NONE, results))
        gone = sorted({member_id for member_id, error in found.values() if error is Code.NONE})
        for member_id in gone:
            self._report("member_left", member_id)
        if gone:
            self._remove(gone)

    def _find_leaver(self, leaver: Leaver) -> tuple[str, Code]:
        if leaver.instance_id is None:
            known = leaver.member_id in self.book.members
            return leaver.member_id, Code.NONE if known else Code.UNKNOWN_MEMBER_ID
        current = self.book.instances.get(leaver.instance_id)
        if current is None:
            return "", Code.UNKNOWN_MEMBER_ID
        fenced = leaver.member_id not in ("", current)
        return current, Code.FENCED_INSTANCE_ID if fenced else Code.NONE
