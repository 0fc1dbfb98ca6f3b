"""The classic group protocol as a pure, table-driven machine: ``step(event, now_ms) -> effects``.

Two literal tables are the whole protocol: ``NEXT`` says which state follows which cause, ``RULES`` says
which rule answers an event in a state. Nothing here reads a clock, draws a random number or does I/O.

The states of the original design ("Kafka Client-side Assignment Proposal") map onto these:
Down -> Dead, Initialize -> the broker replaying its store (no group exists yet), Joining -> PreparingRebalance,
AwaitSync -> CompletingRebalance, Stable with members -> Stable, Stable without -> Empty.

Behaviour follows Apache Kafka's coordinator: KIP-62 (timeouts), KIP-134 (initial delay), KIP-345 (static
members), KIP-394 (known member ids), KIP-559 (protocol in sync), KIP-800 (reasons), KIP-814 (skip assignment).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Saved,
    SyncGroup,
    Tick,
)
from faust_assigner.coordinator.members import Member, Roster

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
PARKED_DUPLICATES: Final = 8  # retries of one parked request that are still answered


class State(Enum):
    """Kafka's names, as DescribeGroups shows them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Cause(Enum):
    """Why a group changes its state."""

    REBALANCE = "membership or metadata changed"
    ALL_JOINED = "the join phase ended with members"
    NOBODY_JOINED = "the join phase ended without members"
    LEADER_ASSIGNED = "the leader's assignment is stored"
    DELETED = "the group was deleted"


NEXT: Final[Mapping[tuple[State, Cause], State]] = {
    (State.EMPTY, Cause.REBALANCE): State.PREPARING,
    (State.EMPTY, Cause.DELETED): State.DEAD,
    (State.PREPARING, Cause.ALL_JOINED): State.COMPLETING,
    (State.PREPARING, Cause.NOBODY_JOINED): State.EMPTY,
    (State.COMPLETING, Cause.LEADER_ASSIGNED): State.STABLE,
    (State.COMPLETING, Cause.REBALANCE): State.PREPARING,
    (State.STABLE, Cause.REBALANCE): State.PREPARING,
}


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker settings a classic group obeys (``group.*`` in Kafka's words)."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1


def refuse_join(event: JoinGroup, limits: GroupLimits, group_id: str) -> Code:
    """What can be said about a JoinGroup before looking at any group."""
    if not group_id:
        return Code.INVALID_GROUP_ID
    if not limits.min_session_timeout_ms <= event.session_timeout_ms <= limits.max_session_timeout_ms:
        return Code.INVALID_SESSION_TIMEOUT
    if not event.protocol_type or not event.protocols:
        return Code.INCONSISTENT_GROUP_PROTOCOL
    return Code.NONE


class ClassicGroup:
    """One group. Feed it events, carry out its effects in order, call ``Tick`` at ``next_deadline_ms``.

    Invariants: the generation never falls; Stable means every assignment came from that generation's
    leader; one member per instance id. Cost: O(members) per join or sync, O(1) per heartbeat.
    """

    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = State.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.roster = Roster()
        self._join_deadline_ms: int | None = None
        self._initial_wait_ms: int | None = None  # what is left of the initial delay's extensions
        self._last_delay_ms = 0
        self._newcomer_since_delay = False
        self._sync_deadline_ms: int | None = None
        self._unsynced: set[str] = set()
        self._saves: dict[int, Callable[[Code], None]] = {}
        self._save_counter = 0
        self._now = now_ms
        self._out: list[fx.Effect] = []

    @classmethod
    def restore(cls, record: fx.GroupRecord, limits: GroupLimits, now_ms: int) -> ClassicGroup:
        """The group a record describes: Empty or Stable, every member given a fresh session."""
        group = cls(record.group_id, limits, record.state_since_ms)
        group.generation = record.generation
        group.protocol_type, group.protocol_name = record.protocol_type, record.protocol_name
        group.state = State.STABLE if record.members else State.EMPTY
        for saved in record.members:
            member = Member.restored(saved)
            member.session_deadline_ms = now_ms + member.session_timeout_ms
            group.roster.add(member)
        group.roster.leader = record.leader
        return group

    def record(self, assignments: Mapping[str, bytes] | None = None) -> fx.GroupRecord:
        """The group as it goes to disk, optionally with assignments that are about to hold."""
        given = assignments if assignments is not None else {}
        return fx.GroupRecord(
            self.group_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.roster.leader,
            self.state_since_ms,
            tuple(m.record(given.get(m.member_id)) for m in self.roster),
        )

    def step(self, event: Event, now_ms: int) -> tuple[fx.Effect, ...]:
        """Apply one event at time ``now_ms``; return what must be done, in order."""
        self._now = now_ms
        self._out = []
        RULES[(self.state, type(event))](self, event)
        return tuple(self._out)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next ``Tick`` is due, or None when no timer runs."""
        due = [d for d in (self._join_deadline_ms, self._sync_deadline_ms) if d is not None]
        due += [m.session_deadline_ms for m in self.roster if m.session_deadline_ms is not None]
        due += self.roster.pending.values()
        return min(due, default=None)

    # -- joining ---------------------------------------------------------------------------------

    def _join(self, event: JoinGroup) -> None:
        error = refuse_join(event, self.limits, self.group_id)
        if error is Code.NONE and not self._has_room(event.member_id):
            if event.member_id in self.roster:
                self._forget(event.member_id, Code.GROUP_MAX_SIZE_REACHED)
            error = Code.GROUP_MAX_SIZE_REACHED
        if error is Code.NONE and not self._is_compatible(event):
            error = Code.INCONSISTENT_GROUP_PROTOCOL
        if error is not Code.NONE:
            self._refuse_join(event, error)
        elif not event.member_id and event.instance_id is not None:
            self._join_static_newcomer(event, event.instance_id)
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

    def _has_room(self, member_id: str) -> bool:
        if self.state in (State.EMPTY, State.DEAD):
            return True
        if self.state is State.PREPARING:
            waiting = member_id in self.roster and bool(self.roster[member_id].join_tokens)
            return waiting or self.roster.joined() < self.limits.max_size
        return member_id in self.roster or len(self.roster) < self.limits.max_size

    def _is_compatible(self, event: JoinGroup) -> bool:
        if self.state is State.EMPTY or not len(self.roster):
            return True
        return event.protocol_type == self.protocol_type and any(
            p.name in self.roster.common_protocols() for p in event.protocols
        )

    def _join_newcomer(self, event: JoinGroup) -> None:
        if not event.needs_known_id:
            self._admit(event, event.new_member_id)
            return
        self.roster.pending[event.new_member_id] = self._now + event.session_timeout_ms
        self._refuse_join(event, Code.MEMBER_ID_REQUIRED, event.new_member_id)

    def _join_static_newcomer(self, event: JoinGroup, instance_id: str) -> None:
        old_id = self.roster.instances.get(instance_id)
        if old_id is None:
            self._admit(event, event.new_member_id)
        else:
            self._replace_static(event, old_id)

    def _admit(self, event: JoinGroup, member_id: str) -> None:
        member = Member.joining(event, member_id)
        # A newcomer cannot send heartbeats yet, and its socket is not read while the join is parked:
        # the generous timeout stops abandoned joins from piling up.
        member.session_deadline_ms = self._now + NEW_MEMBER_JOIN_TIMEOUT_MS
        member.join_tokens = (event.token,)
        if not len(self.roster):
            self.protocol_type = event.protocol_type
        self.roster.add(member)
        self._newcomer_since_delay = True
        self._say("member_joined", member_id, event.reason or "")
        self._membership_changed()

    def _replace_static(self, event: JoinGroup, old_id: str) -> None:
        old_leader = self.roster.leader or ""
        member = self.roster[old_id]
        self._answer_parked(member, Code.FENCED_INSTANCE_ID)
        before = replace(member)
        self.roster.rename(old_id, event.new_member_id)
        self._unsynced.discard(old_id)
        self._update(member, event)
        member.session_deadline_ms = self._now + member.session_timeout_ms
        self._say("static_member_replaced", member.member_id, old_id)
        if self.state is State.STABLE and self.roster.select_protocol() == self.protocol_name:
            self._save(
                self.record(), lambda error: self._static_replaced(event, member, before, old_leader, error)
            )
        elif self.state is State.PREPARING:
            self._maybe_complete_join()
        else:
            self._rebalance()

    def _static_replaced(
        self, event: JoinGroup, member: Member, before: Member, old_leader: str, error: Code
    ) -> None:
        if event.token not in member.join_tokens:
            return  # a rebalance that began meanwhile has answered, or will
        member.join_tokens = ()
        if error is not Code.NONE:
            self.roster.rename(member.member_id, before.member_id)
            member.protocols, member.session_timeout_ms = before.protocols, before.session_timeout_ms
            member.rebalance_timeout_ms = before.rebalance_timeout_ms
            self._refuse_join(event, error)
            return
        leads = self.roster.leader == member.member_id
        if event.can_skip_assignment:
            reply = self._join_reply(member, with_members=leads, skip_assignment=leads)
        else:
            # Told the old leader's id, an older client that led does not assign: a stable group
            # would not broadcast what it computes.
            reply = replace(self._join_reply(member, with_members=False), leader=old_leader)
        self._out.append(replace(reply, token=event.token))

    def _rejoin_preparing(self, event: JoinGroup, member: Member) -> None:
        self._update(member, event)
        self._maybe_complete_join()

    def _rejoin_completing(self, event: JoinGroup, member: Member) -> None:
        if member.protocols == event.protocols:
            # It lost the answer of the join phase: tell it again.
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
        raise CoordinatorBug(
            f"group {self.group_id}: {member.member_id} is a member of a {self.state.value} group"
        )

    def _repeat_join(self, event: JoinGroup, member: Member, *, with_members: bool) -> None:
        reply = self._join_reply(member, with_members=with_members)
        self._out.append(replace(reply, token=event.token))

    def _update(self, member: Member, event: JoinGroup) -> None:
        member.protocols = event.protocols
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.client_id, member.client_host = event.client_id, event.client_host
        member.join_tokens = (*member.join_tokens, event.token)[-PARKED_DUPLICATES:]

    # -- the join phase --------------------------------------------------------------------------

    def _membership_changed(self) -> None:
        if self.state is State.PREPARING:
            self._maybe_complete_join()
        else:
            self._rebalance()

    def _rebalance(self) -> None:
        if self.state is State.COMPLETING:
            self._fail_parked_syncs(Code.REBALANCE_IN_PROGRESS)
        self._sync_deadline_ms = None
        self._unsynced.clear()
        if self.state is State.EMPTY:
            # Members of a new group tend to arrive together: wait for more of them (KIP-134).
            delay = self.limits.initial_rebalance_delay_ms
            self._last_delay_ms = delay
            self._initial_wait_ms = max(self.roster.rebalance_timeout_ms() - delay, 0)
            self._newcomer_since_delay = False
            self._join_deadline_ms = self._now + delay
            self._move(Cause.REBALANCE)
            return
        self._initial_wait_ms = None
        self._join_deadline_ms = self._now + self.roster.rebalance_timeout_ms()
        self._move(Cause.REBALANCE)
        self._maybe_complete_join()

    def _maybe_complete_join(self) -> None:
        if self.state is State.PREPARING and self._initial_wait_ms is None and self.roster.everyone_joined():
            self._complete_join()

    def _join_phase_due(self) -> None:
        if self._initial_wait_ms and self._newcomer_since_delay and self._last_delay_ms:
            delay = min(self.limits.initial_rebalance_delay_ms, self._initial_wait_ms)
            self._initial_wait_ms = max(self._initial_wait_ms - self._last_delay_ms, 0)
            self._last_delay_ms = delay
            self._newcomer_since_delay = False
            self._join_deadline_ms = self._now + delay
            return
        self._initial_wait_ms = None
        self._complete_join()

    def _complete_join(self) -> None:
        self._join_deadline_ms = None
        for absent in [m for m in self.roster if not m.join_tokens and m.instance_id is None]:
            self._say("member_missed_join", absent.member_id)
            self._forget(absent.member_id, Code.UNKNOWN_MEMBER_ID)
        if not len(self.roster):
            self.generation += 1
            self.protocol_name = None
            self._move(Cause.NOBODY_JOINED)
            self._out.append(fx.SaveGroup(self.record()))
        elif not self.roster.elect_joined_leader():
            # Only static members are left and none has rejoined: wait until their sessions decide.
            self._join_deadline_ms = self._now + self.roster.rebalance_timeout_ms()
        else:
            self._begin_generation()

    def _begin_generation(self) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol()
        self._move(Cause.ALL_JOINED)
        for member in self.roster:
            member.is_new = False
            member.session_deadline_ms = self._now + member.session_timeout_ms
            reply = self._join_reply(member, with_members=member.member_id == self.roster.leader)
            self._out += [replace(reply, token=token) for token in member.join_tokens]
            member.join_tokens = ()
        self._unsynced = {m.member_id for m in self.roster}
        self._sync_deadline_ms = self._now + self.roster.rebalance_timeout_ms()
        self._say("generation_began", detail=f"{self.generation} with {len(self.roster)} members")

    # -- the sync phase --------------------------------------------------------------------------

    def _sync(self, event: SyncGroup) -> None:
        error = self._check_sync(event)
        if error is not Code.NONE:
            self._out.append(fx.SyncReply(event.token, error))
            return
        self._synced(event.member_id)
        member = self.roster[event.member_id]
        if self.state is State.STABLE:
            self._out.append(self._sync_reply(member, event.token))
            return
        member.sync_tokens = (*member.sync_tokens, event.token)[-PARKED_DUPLICATES:]
        if event.member_id == self.roster.leader:
            given = {m.member_id: event.assignments.get(m.member_id, b"") for m in self.roster}
            generation = self.generation
            self._save(self.record(given), lambda error: self._assignment_saved(given, generation, error))

    def _check_sync(self, event: SyncGroup) -> Code:
        error = self._check_member(event.member_id, event.instance_id)
        if error is not Code.NONE:
            return error
        if event.generation != self.generation:
            return Code.ILLEGAL_GENERATION
        if event.protocol_type is not None and event.protocol_type != self.protocol_type:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        named = event.protocol_name is not None and self.protocol_name is not None
        if named and event.protocol_name != self.protocol_name:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.REBALANCE_IN_PROGRESS if self.state is State.PREPARING else Code.NONE

    def _synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def _assignment_saved(self, given: Mapping[str, bytes], generation: int, error: Code) -> None:
        if self.state is not State.COMPLETING or generation != self.generation:
            return  # the group moved on while the record was being written
        if error is not Code.NONE:
            self._fail_parked_syncs(error)
            self._rebalance()
            return
        self._move(Cause.LEADER_ASSIGNED)
        for member in self.roster:
            member.assignment = given.get(member.member_id, b"")
            if member.sync_tokens:
                member.session_deadline_ms = self._now + member.session_timeout_ms
            self._out += [self._sync_reply(member, token) for token in member.sync_tokens]
            member.sync_tokens = ()

    def _fail_parked_syncs(self, error: Code) -> None:
        for member in self.roster:
            member.assignment = b""
            if member.sync_tokens:
                member.session_deadline_ms = self._now + member.session_timeout_ms
            self._out += [fx.SyncReply(token, error) for token in member.sync_tokens]
            member.sync_tokens = ()

    # -- staying, leaving, committing --------------------------------------------------------------

    def _heartbeat(self, event: Heartbeat) -> None:
        error = self._check_member(event.member_id, event.instance_id)
        if error is Code.NONE and event.generation != self.generation:
            error = Code.ILLEGAL_GENERATION
        if error is Code.NONE:
            member = self.roster[event.member_id]
            if not member.is_new:
                member.session_deadline_ms = self._now + member.session_timeout_ms
            if self.state is State.PREPARING:
                error = Code.REBALANCE_IN_PROGRESS
        self._out.append(fx.HeartbeatReply(event.token, error))

    def _leave(self, event: LeaveGroup) -> None:
        before = len(self.roster)
        results = tuple((w.member_id, w.instance_id, self._remove_leaver(w)) for w in event.leavers)
        self._out.append(fx.LeaveReply(event.token, Code.NONE, results))
        if len(self.roster) < before:
            self._membership_changed()
        else:
            self._maybe_complete_join()  # a pending id that was given back may be the last one missing

    def _remove_leaver(self, leaver: Leaver) -> Code:
        member_id = leaver.member_id
        if leaver.instance_id is not None:
            current = self.roster.instances.get(leaver.instance_id)
            if current is None:
                return Code.UNKNOWN_MEMBER_ID
            if member_id and member_id != current:
                return Code.FENCED_INSTANCE_ID
            member_id = current
        elif self.roster.pending.pop(member_id, None) is not None:
            return Code.NONE
        if member_id not in self.roster:
            return Code.UNKNOWN_MEMBER_ID
        self._say("member_left", member_id, leaver.reason or "")
        self._forget(member_id, Code.UNKNOWN_MEMBER_ID)
        return Code.NONE

    def _commit(self, event: CommitOffsets) -> None:
        outsider = event.generation < 0 and not event.member_id and event.instance_id is None
        if self.state is State.EMPTY and event.generation < 0:
            error = Code.NONE
        elif outsider:
            error = Code.UNKNOWN_MEMBER_ID
        else:
            error = self._check_member(event.member_id, event.instance_id)
        if error is Code.NONE and len(self.roster):
            if event.generation != self.generation:
                error = Code.ILLEGAL_GENERATION
            elif self.state is State.COMPLETING:
                error = Code.REBALANCE_IN_PROGRESS
            elif not self.roster[event.member_id].is_new:
                member = self.roster[event.member_id]
                member.session_deadline_ms = self._now + member.session_timeout_ms
        self._out.append(fx.CommitReply(event.token, error))

    def _delete(self, event: DeleteGroup) -> None:
        self._move(Cause.DELETED)
        self._out += [fx.DropGroup(self.group_id), fx.DeleteReply(event.token, Code.NONE)]

    def _refuse_delete(self, event: DeleteGroup) -> None:
        self._out.append(fx.DeleteReply(event.token, Code.NON_EMPTY_GROUP))

    def _answer_dead(self, event: Event) -> None:
        self._out.append(answer_absent(event, Code.COORDINATOR_NOT_AVAILABLE))

    # -- time ------------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> None:
        for member_id, deadline in sorted(self.roster.pending.items(), key=lambda item: item[::-1]):
            if deadline <= self._now:
                del self.roster.pending[member_id]
                self._say("pending_member_expired", member_id)
                self._maybe_complete_join()
        due = [
            (m.session_deadline_ms, m.member_id)
            for m in self.roster
            if m.session_deadline_ms is not None and m.session_deadline_ms <= self._now
        ]
        for _, member_id in sorted(due):
            if member_id in self.roster:
                self._session_due(self.roster[member_id])
        if self._join_deadline_ms is not None and self._join_deadline_ms <= self._now:
            self._join_phase_due()
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= self._now:
            self._sync_due()

    def _session_due(self, member: Member) -> None:
        if member.session_deadline_ms is None or member.session_deadline_ms > self._now:
            return  # the expiry of another member has just begun a new generation
        member.session_deadline_ms = None
        if not member.is_new and (member.join_tokens or member.sync_tokens):
            return  # a parked request counts as a heartbeat; its answer starts a new session
        self._say("member_expired", member.member_id)
        self._forget(member.member_id, Code.UNKNOWN_MEMBER_ID)
        self._membership_changed()

    def _sync_due(self) -> None:
        self._sync_deadline_ms = None
        for member_id in sorted(self._unsynced & self.roster.members.keys()):
            self._say("member_missed_sync", member_id)
            self._forget(member_id, Code.UNKNOWN_MEMBER_ID)
        self._rebalance()

    # -- small parts -----------------------------------------------------------------------------

    def _move(self, cause: Cause) -> None:
        following = NEXT.get((self.state, cause))
        if following is None:
            raise CoordinatorBug(f"group {self.group_id}: {cause.name} is impossible in {self.state.value}")
        self._say("state", detail=f"{self.state.value} -> {following.value}: {cause.value}")
        self.state = following
        self.state_since_ms = self._now

    def _check_member(self, member_id: str, instance_id: str | None) -> Code:
        if instance_id is not None:
            current = self.roster.instances.get(instance_id)
            if current is None:
                return Code.UNKNOWN_MEMBER_ID
            if current != member_id:
                return Code.FENCED_INSTANCE_ID
        return Code.NONE if member_id in self.roster else Code.UNKNOWN_MEMBER_ID

    def _forget(self, member_id: str, error: Code) -> None:
        member = self.roster.remove(member_id)
        self._unsynced.discard(member_id)
        self._answer_parked(member, error)

    def _answer_parked(self, member: Member, error: Code) -> None:
        self._out += [fx.JoinReply(token, error, member.member_id) for token in member.join_tokens]
        self._out += [fx.SyncReply(token, error) for token in member.sync_tokens]
        member.join_tokens = member.sync_tokens = ()

    def _refuse_join(self, event: JoinGroup, error: Code, member_id: str | None = None) -> None:
        self._out.append(
            fx.JoinReply(event.token, error, event.member_id if member_id is None else member_id)
        )

    def _join_reply(
        self, member: Member, *, with_members: bool, skip_assignment: bool = False
    ) -> fx.JoinReply:
        listed = (
            tuple(
                fx.JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol_name))
                for m in self.roster
            )
            if with_members
            else ()
        )
        return fx.JoinReply(
            -1,
            Code.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.roster.leader or "",
            listed,
            skip_assignment,
        )

    def _sync_reply(self, member: Member, token: int) -> fx.SyncReply:
        return fx.SyncReply(token, Code.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def _save(self, record: fx.GroupRecord, done: Callable[[Code], None]) -> None:
        self._save_counter += 1
        self._saves[self._save_counter] = done
        self._out.append(fx.SaveGroup(record, self._save_counter))

    def _saved(self, event: Saved) -> None:
        done = self._saves.pop(event.save_id, None)
        if done is not None:
            done(event.error)

    def _say(self, what: str, member_id: str = "", detail: str = "") -> None:
        self._out.append(fx.Happened(what, member_id, detail))

    def _nothing(self, event: Event) -> None:
        """A dead group has no timers and waits for nothing."""


def answer_absent(event: Event, error: Code | None = None) -> fx.Reply:
    """The answer to a request about a group that does not exist (or is dead, with ``error``)."""
    unknown = Code.UNKNOWN_MEMBER_ID if error is None else error
    match event:
        case JoinGroup():
            return fx.JoinReply(event.token, unknown, event.member_id)
        case SyncGroup():
            return fx.SyncReply(event.token, unknown)
        case Heartbeat():
            return fx.HeartbeatReply(event.token, unknown)
        case LeaveGroup():
            return fx.LeaveReply(event.token, unknown)
        case CommitOffsets():
            return fx.CommitReply(event.token, Code.ILLEGAL_GENERATION if error is None else error)
        case DeleteGroup():
            return fx.DeleteReply(event.token, Code.GROUP_ID_NOT_FOUND)
        case _:
            raise CoordinatorBug(f"{event} has nobody to answer")


Rule = Callable[[ClassicGroup, Any], None]
G = ClassicGroup

RULES: Final[Mapping[tuple[State, type[Any]], Rule]] = {
    (State.EMPTY, JoinGroup): G._join,
    (State.EMPTY, SyncGroup): G._sync,
    (State.EMPTY, Heartbeat): G._heartbeat,
    (State.EMPTY, LeaveGroup): G._leave,
    (State.EMPTY, CommitOffsets): G._commit,
    (State.EMPTY, DeleteGroup): G._delete,
    (State.EMPTY, Saved): G._saved,
    (State.EMPTY, Tick): G._tick,
    (State.PREPARING, JoinGroup): G._join,
    (State.PREPARING, SyncGroup): G._sync,
    (State.PREPARING, Heartbeat): G._heartbeat,
    (State.PREPARING, LeaveGroup): G._leave,
    (State.PREPARING, CommitOffsets): G._commit,
    (State.PREPARING, DeleteGroup): G._refuse_delete,
    (State.PREPARING, Saved): G._saved,
    (State.PREPARING, Tick): G._tick,
    (State.COMPLETING, JoinGroup): G._join,
    (State.COMPLETING, SyncGroup): G._sync,
    (State.COMPLETING, Heartbeat): G._heartbeat,
    (State.COMPLETING, LeaveGroup): G._leave,
    (State.COMPLETING, CommitOffsets): G._commit,
    (State.COMPLETING, DeleteGroup): G._refuse_delete,
    (State.COMPLETING, Saved): G._saved,
    (State.COMPLETING, Tick): G._tick,
    (State.STABLE, JoinGroup): G._join,
    (State.STABLE, SyncGroup): G._sync,
    (State.STABLE, Heartbeat): G._heartbeat,
    (State.STABLE, LeaveGroup): G._leave,
    (State.STABLE, CommitOffsets): G._commit,
    (State.STABLE, DeleteGroup): G._refuse_delete,
    (State.STABLE, Saved): G._saved,
    (State.STABLE, Tick): G._tick,
    (State.DEAD, JoinGroup): G._answer_dead,
    (State.DEAD, SyncGroup): G._answer_dead,
    (State.DEAD, Heartbeat): G._answer_dead,
    (State.DEAD, LeaveGroup): G._answer_dead,
    (State.DEAD, CommitOffsets): G._answer_dead,
    (State.DEAD, DeleteGroup): G._answer_dead,
    (State.DEAD, Saved): G._saved,
    (State.DEAD, Tick): G._nothing,
}

REJOIN: Final[Mapping[State, Callable[[ClassicGroup, JoinGroup, Member], None]]] = {
    State.EMPTY: G._rejoin_nobody,
    State.PREPARING: G._rejoin_preparing,
    State.COMPLETING: G._rejoin_completing,
    State.STABLE: G._rejoin_stable,
}
