"""The classic group protocol as a pure, table-driven machine: ``step(event, now_ms) -> effects``.

Two literal tables are the whole protocol: ``NEXT`` (in ``states``) has the next state for each cause,
``RULES`` has the rule for each event in each state. The machine reads no clock, draws no random number and
does no I/O.

Behaviour follows Apache Kafka's coordinator: KIP-62 (timeouts), KIP-134 (initial delay), KIP-345 (static
members), KIP-394 (known member ids), KIP-559 (protocol in sync), KIP-800 (reasons), KIP-814 (skipped
assignment).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.absent import answer_absent, refuse_join
from faust_assigner.coordinator.classic_change import ClassicChange
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
    Leaver,
    Saved,
    SyncGroup,
    TargetComputed,
    Tick,
)
from faust_assigner.coordinator.members import Member
from faust_assigner.coordinator.rounds import NEW_MEMBER_JOIN_TIMEOUT_MS
from faust_assigner.coordinator.states import NEXT, Cause, GroupLimits, State
from faust_assigner.coordinator.timers import Purpose

__all__ = ["NEXT", "RULES", "Cause", "ClassicGroup", "GroupLimits", "State", "answer_absent"]

PARKED_DUPLICATES: Final = (
    8  # copies of one parked request; beyond, the oldest copy is answered with a retriable error
)


class ClassicGroup(ClassicChange):
    """A classic group. The broker feeds events, applies the effects in order and sends ``Tick`` when due.

    Cost: O(1) per heartbeat, O(log members) per join or follower's sync; O(members) at the end of a phase, at
    a static member's replacement, and at the leader's assignment. Requests of a client never raise.
    """

    def step(self, event: Event, now_ms: int, wall_ms: int | None = None) -> tuple[fx.Effect, ...]:
        """Apply one event at time ``now_ms``; return the effects in order."""
        self._now, self._wall = now_ms, now_ms if wall_ms is None else wall_ms
        self._out = []
        RULES[(self.state, type(event))](self, event)
        return tuple(self._out)

    # -- joining ---------------------------------------------------------------------------------

    def _join(self, event: JoinGroup) -> None:
        error = refuse_join(event, self.limits, self.group_id)
        if error is Code.NONE:
            error = self._refuse_crowd_or_stranger(event)
        if error is not Code.NONE:
            self._refuse_join(event, error)
        elif not event.member_id:
            self._join_newcomer(event)
        elif event.member_id in self.roster.pending and event.instance_id is None:
            self._admit(event, event.member_id)
        else:
            error = self._check_member(event.member_id, event.instance_id)
            if error is not Code.NONE:
                self._refuse_join(event, error)
            else:
                REJOIN[self.state](self, event, self.roster[event.member_id])

    def _refuse_crowd_or_stranger(self, event: JoinGroup) -> Code:
        if not self._has_room(event.member_id):
            if event.member_id in self.roster:
                self._say("member_turned_away", event.member_id)
                self._forget(event.member_id, Code.GROUP_MAX_SIZE_REACHED)
                self._membership_changed()
            return Code.GROUP_MAX_SIZE_REACHED
        return Code.NONE if self._is_compatible(event) else Code.INCONSISTENT_GROUP_PROTOCOL

    def _has_room(self, member_id: str) -> bool:
        if self.state is State.PREPARING:
            waiting = member_id in self.roster and bool(self.roster[member_id].join_tokens)
            return waiting or self.roster.joined() < self.limits.max_size
        return member_id in self.roster or len(self.roster) < self.limits.max_size

    def _is_compatible(self, event: JoinGroup) -> bool:
        if not len(self.roster):
            return True
        fits = any(self.roster.is_common(p.name) for p in event.protocols)
        return event.protocol_type == self.protocol_type and fits

    def _join_newcomer(self, event: JoinGroup) -> None:
        if event.instance_id is not None and event.instance_id in self.roster.instances:
            self._replace_static(event, self.roster.instances[event.instance_id])
        elif event.instance_id is not None or not event.needs_known_id:
            self._admit(event, event.new_member_id)
        elif len(self.roster.pending) >= self.limits.max_pending:
            self._refuse_join(event, Code.GROUP_MAX_SIZE_REACHED)
        else:
            self.roster.pending.add(event.new_member_id)
            self.timers.set(
                Purpose.PENDING, event.new_member_id, self._now + event.session_timeout_ms
            )
            self._refuse_join(event, Code.MEMBER_ID_REQUIRED, event.new_member_id)

    def _admit(self, event: JoinGroup, member_id: str) -> None:
        member = Member.joining(event, member_id)
        # A new member cannot send heartbeats yet, and its socket is not read while the join is parked:
        # the generous timeout stops abandoned joins from piling up.
        self.timers.set(Purpose.SESSION, member_id, self._now + NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.timers.drop(Purpose.PENDING, member_id)
        member.join_tokens = (event.token,)
        if not len(self.roster):
            self.protocol_type = event.protocol_type
        self.roster.add(member)
        self._newcomer_since_delay = True
        self._say("member_joined", member_id, event.reason or "")
        self._membership_changed()

    def _replace_static(self, event: JoinGroup, old_id: str) -> None:
        old_leader = self.roster.leader or ""
        before = self.roster[old_id]
        self._answer_parked(before, Code.FENCED_INSTANCE_ID)
        member = replace(before, member_id=event.new_member_id, is_new=False)
        self._put(before, member)
        self._update(member, event)
        self._renew_session(member)
        self._say("static_member_replaced", member.member_id, old_id)
        if self.state is State.STABLE and self.roster.select_protocol() == self.protocol_name:
            self._save(
                self.record(),
                lambda error: self._static_saved(event, member, before, old_leader, error),
            )
        else:
            self._membership_changed()

    def _put(self, old: Member, new: Member) -> None:
        self.roster.put(old.member_id, new)
        self.timers.rename(Purpose.SESSION, old.member_id, new.member_id)
        if old.member_id in self._unsynced:
            self._unsynced = self._unsynced - {old.member_id} | {new.member_id}

    def _static_saved(
        self, event: JoinGroup, member: Member, before: Member, old_leader: str, error: Code
    ) -> None:
        if event.token not in member.join_tokens:
            return  # a concurrent rebalance has answered, or will answer
        self.roster.park(member, ())
        if error is not Code.NONE:
            self._put(member, before)
            self._refuse_join(event, error)
        elif event.can_skip_assignment:
            leads = self.roster.leader == member.member_id
            reply = self._join_reply(member, with_members=leads, skip_assignment=leads)
            self._out.append(replace(reply, token=event.token))
        else:
            # With the old leader's id in the answer, an older client does not assign: a stable group
            # would not distribute its assignment.
            reply = self._join_reply(member, with_members=False)
            self._out.append(replace(reply, token=event.token, leader=old_leader))

    def _rejoin_preparing(self, event: JoinGroup, member: Member) -> None:
        self._update(member, event)
        self._maybe_complete_join()

    def _rejoin_completing(self, event: JoinGroup, member: Member) -> None:
        if member.protocols == event.protocols:
            # A retry after a lost answer of the join phase: repeat the answer.
            self._repeat_join(event, member, with_members=self.roster.leader == member.member_id)
        else:
            self._update(member, event)
            self._rebalance()

    def _rejoin_stable(self, event: JoinGroup, member: Member) -> None:
        if self.roster.leader == member.member_id or member.protocols != event.protocols:
            self._update(member, event)
            self._rebalance()
        else:
            self._repeat_join(event, member, with_members=False)

    def _rejoin_nobody(self, event: JoinGroup, member: Member) -> None:
        raise CoordinatorBug(f"group {self.group_id} is Empty but has member {member.member_id}")

    def _repeat_join(self, event: JoinGroup, member: Member, *, with_members: bool) -> None:
        self._renew_session(member)
        reply = self._join_reply(member, with_members=with_members)
        self._out.append(replace(reply, token=event.token))

    def _update(self, member: Member, event: JoinGroup) -> None:
        self.roster.offer(member, event.protocols)
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.client_id, member.client_host = event.client_id, event.client_host
        tokens = (*member.join_tokens, event.token)
        self.roster.park(member, tokens[-PARKED_DUPLICATES:])
        for token in tokens[:-PARKED_DUPLICATES]:
            self._out.append(fx.JoinReply(token, Code.REBALANCE_IN_PROGRESS, member.member_id))

    def _refuse_join(self, event: JoinGroup, error: Code, member_id: str | None = None) -> None:
        shown = event.member_id if member_id is None else member_id
        self._out.append(fx.JoinReply(event.token, error, shown))

    # -- syncing ---------------------------------------------------------------------------------

    def _check_sync(self, event: SyncGroup) -> Code:
        error = self._check_member(event.member_id, event.instance_id)
        if error is not Code.NONE:
            return error
        if event.generation != self.generation:
            return Code.ILLEGAL_GENERATION
        other_type = event.protocol_type is not None and event.protocol_type != self.protocol_type
        named = event.protocol_name is not None and self.protocol_name is not None
        if other_type or (named and event.protocol_name != self.protocol_name):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.NONE

    def _sync_too_early(self, event: SyncGroup) -> None:
        error = self._check_sync(event)
        if error is Code.NONE:
            error = Code.REBALANCE_IN_PROGRESS
        self._out.append(fx.SyncReply(event.token, error))

    def _sync_completing(self, event: SyncGroup) -> None:
        error = self._check_sync(event)
        if error is not Code.NONE:
            self._out.append(fx.SyncReply(event.token, error))
            return
        self._synced(event.member_id)
        member = self.roster[event.member_id]
        tokens = (*member.sync_tokens, event.token)
        member.sync_tokens = tokens[-PARKED_DUPLICATES:]
        for token in tokens[:-PARKED_DUPLICATES]:
            self._out.append(fx.SyncReply(token, Code.REBALANCE_IN_PROGRESS))
        if event.member_id == self.roster.leader:
            given = {m.member_id: event.assignments.get(m.member_id, b"") for m in self.roster}
            generation = self.generation
            self._save(
                self.record(given), lambda error: self._assignment_saved(given, generation, error)
            )

    def _sync_stable(self, event: SyncGroup) -> None:
        error = self._check_sync(event)
        if error is not Code.NONE:
            self._out.append(fx.SyncReply(event.token, error))
            return
        self._synced(event.member_id)
        self._renew_session(self.roster[event.member_id])
        self._out.append(self._sync_reply(self.roster[event.member_id], event.token))

    # -- staying ---------------------------------------------------------------------------------

    def _heartbeat(self, event: Heartbeat, calm: Code = Code.NONE) -> None:
        error = self._check_member(event.member_id, event.instance_id)
        if error is Code.NONE and event.generation != self.generation:
            error = Code.ILLEGAL_GENERATION
        if error is Code.NONE:
            self._heard_from(event.member_id)
            error = calm
        self._out.append(fx.HeartbeatReply(event.token, error))

    def _heartbeat_preparing(self, event: Heartbeat) -> None:
        self._heartbeat(event, Code.REBALANCE_IN_PROGRESS)

    def _commit_empty(self, event: CommitOffsets) -> None:
        # Generation -1: an administrator, or a consumer that stores offsets without membership.
        known = self._check_member(event.member_id, event.instance_id)
        self._out.append(fx.CommitReply(event.token, Code.NONE if event.generation < 0 else known))

    def _commit(self, event: CommitOffsets) -> None:
        error = self._check_commit(event)
        if error is Code.NONE and not event.transactional:
            self._heard_from(event.member_id)
        self._out.append(fx.CommitReply(event.token, error))

    def _commit_completing(self, event: CommitOffsets) -> None:
        error = self._check_commit(event)  # a refused commit does not extend the session
        if error is Code.NONE and not event.transactional:
            error = Code.REBALANCE_IN_PROGRESS
        self._out.append(fx.CommitReply(event.token, error))

    def _check_commit(self, event: CommitOffsets) -> Code:
        is_nameless = event.generation < 0 and not event.member_id and event.instance_id is None
        if event.transactional and is_nameless:
            return (
                Code.NONE
            )  # a producer without the group metadata of its consumer (before KIP-447)
        error = self._check_member(event.member_id, event.instance_id)
        if error is Code.NONE and event.generation != self.generation:
            error = Code.ILLEGAL_GENERATION
        return error

    def _heard_from(self, member_id: str) -> None:
        member = self.roster[member_id]
        if not member.is_new:  # a new member has the longer join timeout instead of its session
            self._renew_session(member)

    # -- leaving ---------------------------------------------------------------------------------

    def _leave(self, event: LeaveGroup) -> None:
        before = len(self.roster)
        results = tuple((w.member_id, w.instance_id, self._remove_leaver(w)) for w in event.leavers)
        self._out.append(fx.LeaveReply(event.token, Code.NONE, results))
        if len(self.roster) < before:
            self._membership_changed()
        else:
            self._maybe_complete_join()  # the returned id may be the last missing member

    def _remove_leaver(self, leaver: Leaver) -> Code:
        member_id = leaver.member_id
        if leaver.instance_id is not None:
            current = self.roster.instances.get(leaver.instance_id)
            if current is None:
                return Code.UNKNOWN_MEMBER_ID
            if member_id and member_id != current:
                return Code.FENCED_INSTANCE_ID
            member_id = current
        elif member_id in self.roster.pending:
            self.roster.pending.remove(member_id)
            self.timers.drop(Purpose.PENDING, member_id)
            return Code.NONE
        if member_id not in self.roster:
            return Code.UNKNOWN_MEMBER_ID
        self._say("member_left", member_id, leaver.reason or "")
        self._forget(member_id, Code.UNKNOWN_MEMBER_ID)
        return Code.NONE

    def _delete(self, event: DeleteGroup) -> None:
        self._move(Cause.DELETED)
        self._out += [fx.DropGroup(self.group_id), fx.DeleteReply(event.token, Code.NONE)]

    def _refuse_delete(self, event: DeleteGroup) -> None:
        self._out.append(fx.DeleteReply(event.token, Code.NON_EMPTY_GROUP))

    # -- the rest --------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> None:
        self._fire_timers()

    def _saved(self, event: Saved) -> None:
        done = self._saves.pop(event.save_id, None)
        if done is not None:
            done(event.error)

    def _answer_dead(self, event: Event) -> None:
        self._out.append(answer_absent(event, Code.COORDINATOR_NOT_AVAILABLE))

    def _nothing(self, event: Event) -> None:
        """Ignore the event: a dead group has no timers and no pending saves."""


Rule = Callable[[ClassicGroup, Any], None]
G = ClassicGroup
E_, P, C, S, D = State.EMPTY, State.PREPARING, State.COMPLETING, State.STABLE, State.DEAD

# fmt: off
RULES: Final[Mapping[tuple[State, type[Any]], Rule]] = {
    (E_, JoinGroup): G._join,             (P, JoinGroup): G._join,
    (C, JoinGroup): G._join,              (S, JoinGroup): G._join,
    (E_, SyncGroup): G._sync_too_early,   (P, SyncGroup): G._sync_too_early,
    (C, SyncGroup): G._sync_completing,   (S, SyncGroup): G._sync_stable,
    (E_, Heartbeat): G._heartbeat,        (P, Heartbeat): G._heartbeat_preparing,
    (C, Heartbeat): G._heartbeat,         (S, Heartbeat): G._heartbeat,
    (E_, CommitOffsets): G._commit_empty, (P, CommitOffsets): G._commit,
    (C, CommitOffsets): G._commit_completing, (S, CommitOffsets): G._commit,
    (E_, LeaveGroup): G._leave,           (P, LeaveGroup): G._leave,
    (C, LeaveGroup): G._leave,            (S, LeaveGroup): G._leave,
    (E_, DeleteGroup): G._delete,         (P, DeleteGroup): G._refuse_delete,
    (C, DeleteGroup): G._refuse_delete,   (S, DeleteGroup): G._refuse_delete,
    (E_, Saved): G._saved, (P, Saved): G._saved, (C, Saved): G._saved, (S, Saved): G._saved,
    (E_, Tick): G._tick,   (P, Tick): G._tick,   (C, Tick): G._tick,   (S, Tick): G._tick,
    (D, JoinGroup): G._answer_dead,       (D, SyncGroup): G._answer_dead,
    (D, Heartbeat): G._answer_dead,       (D, CommitOffsets): G._answer_dead,
    (D, LeaveGroup): G._answer_dead,      (D, DeleteGroup): G._answer_dead,
    (D, Saved): G._saved,                 (D, Tick): G._nothing,
    **{(state, CatalogueChanged): G._catalogue_changed for state in State},
    **{(state, TargetComputed): G._nothing for state in State},
    **{(state, FetchOffsets): G._fetch for state in State if state is not D},
    **{(state, ConsumerGroupHeartbeat): G._upgrade for state in State if state is not D},
    (D, FetchOffsets): G._answer_dead,    (D, ConsumerGroupHeartbeat): G._answer_dead,
}

REJOIN: Final[Mapping[State, Callable[[ClassicGroup, JoinGroup, Member], None]]] = {
    E_: G._rejoin_nobody, P: G._rejoin_preparing, C: G._rejoin_completing, S: G._rejoin_stable,
}
# fmt: on
