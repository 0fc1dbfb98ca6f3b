"""KIP-848 as a pure, table-driven machine: ``step(event, now_ms) -> effects``.

``RULES`` has the rule for each event; the consequences are in the modules beside this one.
:mod:`faust_assigner.coordinator.group` documents the interface to the broker. The machine reads no clock,
draws no random number and does no I/O, and no heartbeat ever waits for another member.

The state of a group is derived: Empty without members, Assigning while the target is behind the group epoch,
Reconciling while a member is behind the target, Stable otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.consumer.heartbeat import AWAY
from faust_assigner.coordinator.consumer.migration import Migration
from faust_assigner.coordinator.consumer.partitions import pairs, plain
from faust_assigner.coordinator.consumer.subscriptions import Topics
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import (
    CatalogueChanged,
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    Event,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Saved,
    SyncGroup,
    TargetComputed,
    Tick,
)
from faust_assigner.coordinator.group import GroupType, GroupView, MemberView, Retention
from faust_assigner.coordinator.protocol import CONSUMER_PROTOCOL_TYPE
from faust_assigner.coordinator.records import MemberState, Record
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import GroupLimits
from faust_assigner.coordinator.timers import Purpose


class ConsumerGroup(Migration):
    """A group of KIP-848. The broker feeds events, applies the effects in order and sends ``Tick`` when due.

    Cost: O(one member) per heartbeat, O(members) per computation of the target. Requests of a client never
    raise.
    """

    def __init__(
        self,
        group_id: str,
        limits: ConsumerLimits,
        catalogue: Catalogue,
        now_ms: int,
        *,
        classic_limits: GroupLimits | None = None,
    ) -> None:
        super().__init__(group_id, limits, catalogue, now_ms, classic_limits=classic_limits)
        self._prepare_targets()
        self._shown_state = self.state_name

    @classmethod
    def restore(
        cls,
        group_id: str,
        records: Iterable[Record],
        limits: ConsumerLimits,
        catalogue: Catalogue,
        now_ms: int,
        *,
        classic_limits: GroupLimits | None = None,
    ) -> Self:
        """Restore a group from its records; every member has a fresh session, every timer restarts."""
        group = cls(group_id, limits, catalogue, now_ms, classic_limits=classic_limits)
        for record in records:
            group.book.apply(record)
        for member_id in group.book.members:
            group._restart_timers(member_id)
        group.timers.set(Purpose.RETRY, "", now_ms)  # topics may have changed, a target may be due
        group._shown_state = group.state_name
        return group

    # -- questions of the broker -----------------------------------------------------------------

    @property
    def group_type(self) -> GroupType:
        """A consumer group, even with classic members inside."""
        return "consumer"

    @property
    def protocol_type(self) -> str | None:
        """Always "consumer"."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        """Empty, Assigning, Reconciling, Stable, or Dead."""
        if self.is_dead:
            return "Dead"
        if not self.book.members:
            return "Empty"
        if self.book.epoch > self.book.target_epoch:
            return "Assigning"
        return "Reconciling" if self.book.behind else "Stable"

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.book.members

    @property
    def is_unproven(self) -> bool:
        """Whether no member has ever joined."""
        return self.book.group is None

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next ``Tick``; cost O(log members) amortised."""
        return self.timers.earliest()

    def subscribed_topics(self) -> frozenset[str] | None:
        """Every subscribed topic name, by name or by regular expression."""
        return self.topics.all_names(self.book.names, self.book.patterns)

    def retention(self) -> Retention:
        """Offsets expire from their commit on, unless a member subscribes to the topic."""
        read = self.topics.all_names(self.book.names, self.book.patterns)
        return lambda topic, committed_at_ms: None if topic in read else committed_at_ms

    def records(self) -> tuple[Record, ...]:
        """All records of the group, as for an empty log."""
        return tuple(self.book.records())

    def describe(self) -> GroupView:
        """Return the administrator's view of the group."""
        return GroupView(
            self.group_id,
            "consumer",
            self.state_name,
            CONSUMER_PROTOCOL_TYPE,
            self.assignor_name(),
            self.book.epoch,
            self.book.target_epoch,
            "",
            tuple(self._view(member_id) for member_id in self.book.members),
        )

    def _view(self, member_id: str) -> MemberView:
        said, stood = self.book.members[member_id], self.book.at(member_id)
        target = self.book.target.get(member_id, {})
        pending: dict[bytes, list[int]] = {}
        for topic_id, number in pairs(target):
            if self.book.owner(topic_id, number) not in (None, member_id):
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

    # -- events ----------------------------------------------------------------------------------

    def step(self, event: Event, now_ms: int, wall_ms: int | None = None) -> tuple[fx.Effect, ...]:
        """Apply one event at time ``now_ms``; return the effects in order."""
        self._now, self._wall = now_ms, now_ms if wall_ms is None else wall_ms
        self._out = []
        if isinstance(event, Saved):
            self._saved(event)
        elif self._saving is not None:
            raise CoordinatorBug(
                f"group {self.group_id}: {event} arrived before the outcome of a save"
            )
        else:
            self._handle(event)
        return tuple(self._out)

    def take_first(self, event: ConsumerGroupHeartbeat, now_ms: int) -> tuple[fx.Effect, ...]:
        """Apply the first event of a machine that is saved as a whole; return the effects after the save."""
        self.step(event, now_ms)
        self._saved(Saved(self._save_counter))
        return tuple(effect for effect in self._out if not isinstance(effect, fx.SaveRecords))

    def _handle(self, event: Event) -> None:
        self._rang = set()
        self._computed_before_ms = self._computed_at_ms
        if self.is_dead:
            self._answer_dead(event)
        else:
            RULES[type(event)](self, event)
            self._note_state()
        if not self._batch:
            return
        self._save_counter += 1
        self._saving, self._cause = self._save_counter, event
        self._held, self._out = self._out, [fx.SaveRecords(tuple(self._batch), self._save_counter)]
        self._batch = []

    def _saved(self, event: Saved) -> None:
        if event.save_id != self._saving:
            return
        held, undo, successor = self._held, self._undo, self._successor
        self._saving, self._held, self._undo, self._successor = None, [], [], None
        if event.error is not Code.NONE:
            self._rewind(reversed(undo))
            self._shown_state = self.state_name
            if self._cause is not None and hasattr(self._cause, "token"):
                self._emit(answer_absent(self._cause, event.error))
            return
        if successor is None:
            self._out += held
            return
        group, then = successor
        self._out += [fx.ReplaceMachine(group), *held]
        if then is not None:
            self._out += group.step(then, self._now, self._wall)

    def _note_state(self) -> None:
        name = self.state_name
        if name != self._shown_state:
            self._say("state", detail=f"{self._shown_state} -> {name}")
            self._shown_state = name

    # -- time and topics -------------------------------------------------------------------------

    def _tick(self, event: Tick) -> None:
        while self._successor is None and (due := self.timers.pop_due(self._now)) is not None:
            purpose, member_id = due
            match purpose:
                case Purpose.TARGET:
                    self._asked = None
                    self._follow_epoch()
                case Purpose.RETRY:
                    self._look_at_topics()
                    self._follow_epoch()
                case _ if member_id in self.book.members:
                    self._rang.add(member_id)
                    self._say(
                        EXPIRED[purpose],
                        member_id,
                        f"in member epoch {self.book.at(member_id).epoch}",
                    )
                    self._remove([member_id])
                case _:
                    pass

    def _restart_timers(self, member_id: str) -> None:
        self.timers.drop_member(member_id)
        said = self.book.members.get(member_id)
        if said is None:
            return
        session = (
            self.limits.session_timeout_ms
            if said.classic is None
            else said.classic.session_timeout_ms
        )
        self.timers.set(Purpose.SESSION, member_id, self._now + session)
        stood = self.book.at(member_id)
        # An absent member revokes no partitions; its whole session remains for its return.
        revokes = stood.state is MemberState.UNREVOKED and stood.epoch != AWAY
        if said.classic is None and revokes:
            self.timers.set(Purpose.REBALANCE, member_id, self._now + said.rebalance_timeout_ms)

    def _catalogue_changed(self, event: CatalogueChanged) -> None:
        self.catalogue = event.catalogue
        self.topics = Topics(event.catalogue)
        self._look_at_topics()
        self._follow_epoch()

    # -- offsets and the end ---------------------------------------------------------------------

    def _commit(self, event: CommitOffsets) -> None:
        self._emit(fx.CommitReply(event.token, self._check_commit(event)))

    def _check_commit(self, event: CommitOffsets) -> Code:
        outsider = not event.member_id and event.instance_id is None
        if event.generation < 0 and not self.book.members:
            return Code.NONE
        if event.transactional and event.generation == -1 and outsider:
            return Code.NONE  # a producer without the group metadata of its consumer
        if event.member_id not in self.book.members:
            return Code.UNKNOWN_MEMBER_ID
        classic = event.member_id in self.book.classic_members
        if not classic and event.api_version < 9 and not event.transactional:
            return Code.UNSUPPORTED_VERSION
        if event.generation == self.book.at(event.member_id).epoch or self._may_commit_late(event):
            return Code.NONE
        return Code.ILLEGAL_GENERATION if classic else Code.STALE_MEMBER_EPOCH

    def _may_commit_late(self, event: CommitOffsets) -> bool:
        """Return whether an older epoch may commit its partitions from that epoch or before (KIP-1251)."""
        stood = self.book.at(event.member_id)
        if event.generation > stood.epoch:
            return False
        for name, number in event.partitions:
            topic_id = (
                self.catalogue.by_name[name].topic_id if name in self.catalogue.by_name else b""
            )
            since = stood.assigned.get(topic_id, {}).get(
                number, stood.revoking.get(topic_id, {}).get(number)
            )
            if since is None or since > event.generation:
                return False
        return True

    def _fetch(self, event: FetchOffsets) -> None:
        error = Code.NONE
        if event.member_id is not None or event.epoch >= 0:
            if event.member_id not in self.book.members:
                error = Code.UNKNOWN_MEMBER_ID
            elif event.epoch != self.book.at(event.member_id).epoch:
                classic = event.member_id in self.book.classic_members
                error = Code.ILLEGAL_GENERATION if classic else Code.STALE_MEMBER_EPOCH
        self._emit(fx.FetchReply(event.token, error))

    def _delete(self, event: DeleteGroup) -> None:
        if self.book.members:
            self._emit(fx.DeleteReply(event.token, Code.NON_EMPTY_GROUP))
            return
        self.is_dead = True
        self._emit(fx.DropGroup(self.group_id, tuple(record.key for record in self.book.records())))
        self._emit(fx.DeleteReply(event.token, Code.NONE))

    def _answer_dead(self, event: Event) -> None:
        if hasattr(event, "token"):
            self._emit(answer_absent(event, Code.COORDINATOR_NOT_AVAILABLE))


EXPIRED: Final[Mapping[Purpose, str]] = {
    Purpose.SESSION: "member_expired",
    Purpose.REBALANCE: "member_missed_revocation",
    Purpose.JOIN: "member_missed_join",
    Purpose.SYNC: "member_missed_sync",
}

G = ConsumerGroup
RULES: Final[Mapping[type[Any], Callable[[ConsumerGroup, Any], None]]] = {
    ConsumerGroupHeartbeat: G._heartbeat_848,
    JoinGroup: G._join,
    SyncGroup: G._sync_classic,
    Heartbeat: G._heartbeat_classic,
    LeaveGroup: G._leave_classic,
    CommitOffsets: G._commit,
    FetchOffsets: G._fetch,
    DeleteGroup: G._delete,
    Tick: G._tick,
    CatalogueChanged: G._catalogue_changed,
    TargetComputed: G._target_computed,
}
