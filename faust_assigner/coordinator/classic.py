"""The classic group protocol as a pure, table-driven machine: ``step(event, now_ms) -> effects``.

Two literal tables are the whole protocol: ``NEXT`` (in ``states``) has the next state for each cause,
``RULES`` has the rule for each event in each state. The rules for a join are in ``join_rules``, the
checks of requests in ``refusals``. The machine reads no clock, draws no random number and does no I/O.

Behaviour follows Apache Kafka's coordinator: KIP-62 (timeouts), KIP-134 (initial delay), KIP-345 (static
members), KIP-394 (known member ids), KIP-559 (protocol in sync), KIP-800 (reasons), KIP-814 (skipped
assignment).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator import events as ev
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic_views import ClassicViews
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.join_rules import join
from faust_assigner.coordinator.members import PARKED_DUPLICATES, Member
from faust_assigner.coordinator.refusals import (
    check_commit,
    check_generation,
    check_member,
    check_sync,
    find_leaver,
)
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import NEXT, Cause, GroupLimits, State
from faust_assigner.coordinator.timers import Purpose

__all__ = ["NEXT", "RULES", "Cause", "ClassicGroup", "GroupLimits", "State", "answer_absent"]


class ClassicGroup(ClassicViews):
    """A classic group. The broker feeds events, applies the effects in order and sends ``Tick`` when due.

    Cost: O(1) per heartbeat, O(log members) per join or follower's sync; O(members) at the end of a phase, at
    a static member's replacement, and at the leader's assignment. Requests of a client never raise.
    """

    @classmethod
    def restore(
        cls,
        record: fx.GroupRecord,
        limits: GroupLimits,
        now_ms: int,
        *,
        consumer: ConsumerLimits | None = None,
        catalogue: Catalogue | None = None,
    ) -> Self:
        """Restore a group from its record; every member has a fresh session.

        The state is Empty, Stable, or (not settled) PreparingRebalance, in which members have to rejoin.
        """
        group = cls(
            record.group_id,
            limits,
            now_ms,
            wall_ms=record.state_since_ms,
            consumer=consumer,
            catalogue=catalogue,
        )
        group.generation = record.generation
        group.protocol_type, group.protocol_name = record.protocol_type, record.protocol_name
        group.state = State.STABLE if record.members else State.EMPTY
        for saved in record.members:
            member = Member.restored(saved)
            group.timers.set(Purpose.SESSION, member.member_id, now_ms + member.session_timeout_ms)
            group.roster.add(member)
        group.roster.leader = record.leader
        if not record.settled:
            group.state = State.PREPARING
            group.join_phase.begin(now_ms, group.roster.rebalance_timeout_ms())
        return group

    def step(
        self, event: ev.Event, now_ms: int, wall_ms: int | None = None
    ) -> tuple[fx.Effect, ...]:
        """Apply one event at time ``now_ms``; return the effects in order."""
        self.now_ms, self.wall_ms = now_ms, now_ms if wall_ms is None else wall_ms
        self.out = []
        RULES[(self.state, type(event))](self, event)
        return tuple(self.out)

    # -- syncing ---------------------------------------------------------------------------------

    def _sync_too_early(self, event: ev.SyncGroup) -> None:
        error = check_sync(self, event)
        if error is Code.NONE:
            error = Code.REBALANCE_IN_PROGRESS
        self.out.append(fx.SyncReply(event.token, error))

    def _sync_completing(self, event: ev.SyncGroup) -> None:
        error = check_sync(self, event)
        if error is not Code.NONE:
            self.out.append(fx.SyncReply(event.token, error))
            return
        self.sync_phase.synced(event.member_id)
        member = self.roster[event.member_id]
        tokens = (*member.sync_tokens, event.token)
        member.sync_tokens = tokens[-PARKED_DUPLICATES:]
        for token in tokens[:-PARKED_DUPLICATES]:
            self.out.append(fx.SyncReply(token, Code.REBALANCE_IN_PROGRESS))
        if event.member_id == self.roster.leader:
            given = {m.member_id: event.assignments.get(m.member_id, b"") for m in self.roster}
            generation = self.generation
            self.save(
                self.record(given), lambda error: self.assignment_saved(given, generation, error)
            )

    def _sync_stable(self, event: ev.SyncGroup) -> None:
        error = check_sync(self, event)
        if error is not Code.NONE:
            self.out.append(fx.SyncReply(event.token, error))
            return
        self.sync_phase.synced(event.member_id)
        self.renew_session(self.roster[event.member_id])
        self.out.append(self.sync_reply(self.roster[event.member_id], event.token))

    # -- staying ---------------------------------------------------------------------------------

    def _heartbeat(self, event: ev.Heartbeat, calm: Code = Code.NONE) -> None:
        error = check_generation(self, event)
        if error is Code.NONE:
            self._heard_from(event.member_id)
            error = calm
        self.out.append(fx.HeartbeatReply(event.token, error))

    def _heartbeat_preparing(self, event: ev.Heartbeat) -> None:
        self._heartbeat(event, Code.REBALANCE_IN_PROGRESS)

    def _commit_empty(self, event: ev.CommitOffsets) -> None:
        # Generation -1: an administrator, or a consumer that stores offsets without membership.
        known = check_member(self.roster, event.member_id, event.instance_id)
        self.out.append(fx.CommitReply(event.token, Code.NONE if event.generation < 0 else known))

    def _commit(self, event: ev.CommitOffsets) -> None:
        error = check_commit(self, event)
        if error is Code.NONE and not event.transactional:
            self._heard_from(event.member_id)
        self.out.append(fx.CommitReply(event.token, error))

    def _commit_completing(self, event: ev.CommitOffsets) -> None:
        error = check_commit(self, event)  # a refused commit does not extend the session
        if error is Code.NONE and not event.transactional:
            error = Code.REBALANCE_IN_PROGRESS
        self.out.append(fx.CommitReply(event.token, error))

    def _heard_from(self, member_id: str) -> None:
        member = self.roster[member_id]
        if not member.is_new:  # a new member has the longer join timeout instead of its session
            self.renew_session(member)

    # -- leaving ---------------------------------------------------------------------------------

    def _leave(self, event: ev.LeaveGroup) -> None:
        before = len(self.roster)
        results = tuple((w.member_id, w.instance_id, self._remove_leaver(w)) for w in event.leavers)
        self.out.append(fx.LeaveReply(event.token, Code.NONE, results))
        if len(self.roster) < before:
            self.membership_changed()
        else:
            self.maybe_complete_join()  # the returned id may be the last missing member

    def _remove_leaver(self, leaver: ev.Leaver) -> Code:
        if leaver.instance_id is None and leaver.member_id in self.roster.pending:
            self.roster.pending.remove(leaver.member_id)
            self.timers.drop(Purpose.PENDING, leaver.member_id)
            return Code.NONE
        member_id, error = find_leaver(self.roster, leaver)
        if error is Code.NONE:
            self.say("member_left", member_id, leaver.reason or "")
            self.forget(member_id, Code.UNKNOWN_MEMBER_ID)
        return error

    def _delete(self, event: ev.DeleteGroup) -> None:
        self.move(Cause.DELETED)
        self.out += [fx.DropGroup(self.group_id), fx.DeleteReply(event.token, Code.NONE)]

    def _refuse_delete(self, event: ev.DeleteGroup) -> None:
        self.out.append(fx.DeleteReply(event.token, Code.NON_EMPTY_GROUP))

    # -- KIP-848 ---------------------------------------------------------------------------------

    def _upgrade(self, event: ev.ConsumerGroupHeartbeat) -> None:
        # A late import: each machine can become the other.
        from faust_assigner.coordinator.consumer.upgrade import upgrade

        outcome = upgrade(self, event, self.now_ms)
        if not isinstance(outcome, tuple):
            self.out.append(outcome)
            return
        group, records, effects = outcome

        def saved(error: Code) -> None:
            if error is not Code.NONE:
                self.out.append(answer_absent(event, error))
                return
            self.out.append(fx.ReplaceMachine(group))
            for member in self.roster:
                self.answer_parked(member, Code.REBALANCE_IN_PROGRESS)
            self.out += effects

        self._save_counter += 1
        self._saves[self._save_counter] = saved
        self.out.append(fx.SaveRecords(records, self._save_counter))

    def ask_all_to_rejoin(self) -> None:
        """Begin a rebalance without a request."""
        self.rebalance()

    def _catalogue_changed(self, event: ev.CatalogueChanged) -> None:
        # Classic members watch topics themselves; the catalogue matters for a conversion.
        self.catalogue = event.catalogue

    def _fetch(self, event: ev.FetchOffsets) -> None:
        # A classic group allows every reader.
        self.out.append(fx.FetchReply(event.token, Code.NONE))

    # -- the rest --------------------------------------------------------------------------------

    def _tick(self, event: ev.Tick) -> None:
        self.fire_timers()

    def _saved(self, event: ev.Saved) -> None:
        done = self._saves.pop(event.save_id, None)
        if done is not None:
            done(event.error)

    def _answer_dead(self, event: ev.Event) -> None:
        self.out.append(answer_absent(event, Code.COORDINATOR_NOT_AVAILABLE))

    def _nothing(self, event: ev.Event) -> None:
        """Ignore the event: a dead group has no timers and no pending saves."""


Rule = Callable[[ClassicGroup, Any], None]
G = ClassicGroup
E_, P, C, S, D = State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE, State.DEAD

# fmt: off
#: A row for each event: the rules in Empty, PreparingRebalance, CompletingRebalance, Stable and Dead.
_ROWS: Final[Mapping[type[Any], tuple[Rule, Rule, Rule, Rule, Rule]]] = {
    ev.JoinGroup:        (join, join, join, join, G._answer_dead),
    ev.SyncGroup:        (G._sync_too_early, G._sync_too_early, G._sync_completing, G._sync_stable,
                          G._answer_dead),
    ev.Heartbeat:        (G._heartbeat, G._heartbeat_preparing, G._heartbeat, G._heartbeat, G._answer_dead),
    ev.CommitOffsets:    (G._commit_empty, G._commit, G._commit_completing, G._commit, G._answer_dead),
    ev.FetchOffsets:     (G._fetch, G._fetch, G._fetch, G._fetch, G._answer_dead),
    ev.LeaveGroup:       (G._leave, G._leave, G._leave, G._leave, G._answer_dead),
    ev.DeleteGroup:      (G._delete, G._refuse_delete, G._refuse_delete, G._refuse_delete,
                          G._answer_dead),
    ev.Saved:            (G._saved, G._saved, G._saved, G._saved, G._saved),
    ev.Tick:             (G._tick, G._tick, G._tick, G._tick, G._nothing),
    ev.CatalogueChanged: (G._catalogue_changed,) * 5,
    ev.TargetComputed:   (G._nothing,) * 5,
    ev.ConsumerGroupHeartbeat: (G._upgrade, G._upgrade, G._upgrade, G._upgrade, G._answer_dead),
}
RULES: Final = {
    (state, event): rule
    for event, rules in _ROWS.items()
    for state, rule in zip((E_, P, C, S, D), rules, strict=True)
}
# fmt: on
