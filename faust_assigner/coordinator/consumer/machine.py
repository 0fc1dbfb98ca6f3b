"""KIP-848 as a pure, table-driven machine: ``step(event, now_ms) -> effects``.

``RULES`` has the rule for each event; the other modules of this package contain the rules' functions.
:mod:`faust_assigner.coordinator.effects` documents the interface to the broker. The machine reads no clock,
draws no random number and does no I/O, and no heartbeat ever waits for another member.

The state of a group follows from its members and epochs. A group without members is Empty. It is Assigning
while the target is behind the group epoch, Reconciling while a member is behind the target, otherwise Stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator import events as ev
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.consumer.heartbeat import AWAY
from faust_assigner.coordinator.consumer.migration import Migration
from faust_assigner.coordinator.consumer.offset_checks import check_commit, check_fetch
from faust_assigner.coordinator.consumer.subscriptions import Topics
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.group_views import GroupType, GroupView, Retention
from faust_assigner.coordinator.protocol import CONSUMER_PROTOCOL_TYPE
from faust_assigner.coordinator.records import MemberState, Record
from faust_assigner.coordinator.timers import Purpose


class ConsumerGroup(Migration):
    """A group of KIP-848. The broker feeds events, applies the effects in order and sends each ``TimersDue``.

    Cost: O(one member) per heartbeat, O(members) per computation of the target. Requests of a client never
    raise.
    """

    def restore(self, records: Iterable[Record]) -> Self:
        """Take up the state of the records; every member has a fresh session, every timer restarts."""
        for record in records:
            self.book.apply(record)
        for member_id in self.book.members:
            self._restart_timers(member_id)
        self.timers.set(
            Purpose.RETRY, "", self._now
        )  # topics may have changed, a target may be due
        self._shown_state = self.state_name
        return self

    # -- questions of the broker -----------------------------------------------------------------

    @property
    def group_type(self) -> GroupType:
        """The type of the group, always "consumer", even with classic members inside."""
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
    def is_unused(self) -> bool:
        """Whether no member has ever joined; this protocol hands out no member ids before a join."""
        return self.is_unproven

    @property
    def member_counts(self) -> Mapping[GroupType, int]:
        """The number of members by their protocol; classic members may be in the group, too."""
        classic = len(self.book.classic_members)
        return {"classic": classic, "consumer": len(self.book.members) - classic}

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next ``TimersDue``; cost O(log members) amortised."""
        return self.timers.earliest()

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return every topic to which members subscribe, by name or by regular expression."""
        return self.topics.all_names(self.book.names, self.book.patterns)

    def retention(self) -> Retention:
        """Return a function (topic, commit time) -> start of the offset's retention in ms, or None.

        The retention starts at the commit. None: a member subscribes to the topic, so the offset does not
        expire.
        """
        read = self.topics.all_names(self.book.names, self.book.patterns)
        return lambda topic, committed_at_ms: None if topic in read else committed_at_ms

    def records(self) -> tuple[Record, ...]:
        """Return records that restore the present state of the group."""
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
            tuple(map(self.book.view, self.book.members)),
        )

    # -- events ----------------------------------------------------------------------------------

    def step(
        self, event: ev.Event, now_ms: int, wall_ms: int | None = None
    ) -> tuple[fx.Effect, ...]:
        """Apply one event at time ``now_ms``; return the effects in order."""
        self._now, self._wall = now_ms, now_ms if wall_ms is None else wall_ms
        self._out = []
        if isinstance(event, ev.Saved):
            self._saved(event)
        elif self._saving is not None:
            raise CoordinatorBug(
                f"group {self.group_id}: {event} arrived before the outcome of a save"
            )
        else:
            self._handle(event)
        return tuple(self._out)

    def take_first(self, event: ev.ConsumerGroupHeartbeat, now_ms: int) -> tuple[fx.Effect, ...]:
        """Apply a new machine's first event; return all effects but the save, which the caller makes."""
        self.step(event, now_ms)
        self._saved(ev.Saved(self._save_counter))
        return tuple(effect for effect in self._out if not isinstance(effect, fx.SaveRecords))

    def _handle(self, event: ev.Event) -> None:
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

    def _saved(self, event: ev.Saved) -> None:
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
            self._report("state", detail=f"{self._shown_state} -> {name}")
            self._shown_state = name

    # -- time and topics -------------------------------------------------------------------------

    def _tick(self, event: ev.TimersDue) -> None:
        while self._successor is None and (due := self.timers.pop_due(self._now)) is not None:
            purpose, member_id = due
            match purpose:
                case Purpose.TARGET:
                    self._may_ask_again()
                    self._follow_epoch()
                case Purpose.RETRY:
                    self._look_at_topics()
                    self._follow_epoch()
                case _ if member_id in self.book.members:
                    self._rang.add(member_id)
                    self._report(
                        EXPIRED[purpose],
                        member_id,
                        f"in member epoch {self.book.at(member_id).epoch}",
                    )
                    self._remove([member_id])

    def _restart_timers(self, member_id: str) -> None:
        self.timers.drop_member(member_id)
        said = self.book.members.get(member_id)
        if said is None:
            return
        session_ms = (said.classic or self.limits).session_timeout_ms
        self.timers.set(Purpose.SESSION, member_id, self._now + session_ms)
        stood = self.book.at(member_id)
        # An absent static member cannot revoke partitions; only its session timeout limits its absence.
        revokes = stood.state is MemberState.UNREVOKED and stood.epoch != AWAY
        if said.classic is None and revokes:
            self.timers.set(Purpose.REBALANCE, member_id, self._now + said.rebalance_timeout_ms)

    def _catalogue_changed(self, event: ev.CatalogueChanged) -> None:
        self.catalogue = event.catalogue
        self.topics = Topics(event.catalogue)
        self._look_at_topics()
        self._follow_epoch()

    # -- offsets and the end ---------------------------------------------------------------------

    def _commit(self, event: ev.CommitOffsets) -> None:
        self._emit(fx.CommitReply(event.token, check_commit(self.book, self.catalogue, event)))

    def _fetch(self, event: ev.FetchOffsets) -> None:
        self._emit(fx.FetchReply(event.token, check_fetch(self.book, event)))

    def _delete(self, event: ev.DeleteGroup) -> None:
        if self.book.members:
            self._emit(fx.DeleteReply(event.token, Code.NON_EMPTY_GROUP))
            return
        self.is_dead = True
        self._emit(fx.DropGroup(self.group_id, tuple(record.key for record in self.book.records())))
        self._emit(fx.DeleteReply(event.token, Code.NONE))

    def _answer_dead(self, event: ev.Event) -> None:
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
    ev.ConsumerGroupHeartbeat: G._heartbeat_848,
    ev.JoinGroup: G._join,
    ev.SyncGroup: G._sync_classic,
    ev.Heartbeat: G._heartbeat_classic,
    ev.LeaveGroup: G._leave_classic,
    ev.CommitOffsets: G._commit,
    ev.FetchOffsets: G._fetch,
    ev.DeleteGroup: G._delete,
    ev.TimersDue: G._tick,
    ev.CatalogueChanged: G._catalogue_changed,
    ev.TargetComputed: G._target_computed,
}
