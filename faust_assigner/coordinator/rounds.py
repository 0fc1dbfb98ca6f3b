"""One round of a classic group: the join phase, the sync phase, and the timers of both.

``GroupRounds`` holds the state and the course of a round; the rules for each request and state are in
:mod:`faust_assigner.coordinator.classic`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Self

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import Token
from faust_assigner.coordinator.members import Member, Roster
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import NEXT, Cause, GroupLimits, State
from faust_assigner.coordinator.timers import Purpose, Timers

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
LEAST_WAIT_MS: Final = (
    1_000  # with the timeout of absent members (0) the timer would fire without end
)


class GroupRounds:
    """State, timers and phases of a group; each field is documented by its invariant."""

    def __init__(
        self,
        group_id: str,
        limits: GroupLimits,
        now_ms: int,
        *,
        wall_ms: int | None = None,
        consumer: ConsumerLimits | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        self.group_id = group_id
        self.limits = limits
        #: The limits and the topics for a conversion to a consumer group.
        self.consumer_limits = consumer if consumer is not None else ConsumerLimits()
        self.catalogue = catalogue if catalogue is not None else Catalogue()
        #: Changes only by ``NEXT``. Stable: every assignment is from this generation's leader.
        self.state = State.EMPTY
        #: In wall-clock time: offsets of an empty group expire from here, also over restarts.
        self.state_since_ms = now_ms if wall_ms is None else wall_ms
        #: Never decreases, also over a restart: it is saved before any member gets it.
        self.generation = 0
        #: The protocol type is the first member's until the group is empty. Every member of this generation
        #: supports the protocol name; None before the first round and after a round without members.
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        #: Members, pending ids, instances and leader; a single member per instance id.
        self.roster = Roster()
        #: Sessions of members (none while a request is parked), and the expiry of pending ids.
        self.timers = Timers()
        #: Runs only in PreparingRebalance.
        self._join_deadline_ms: int | None = None
        #: The remaining extension of the initial delay; not None only while a new group waits for more
        #: members, and then a complete roster does not end the phase.
        self._initial_wait_ms: int | None = None
        #: A member has joined since the delay was last set: only then is the delay extended.
        self._newcomer_since_delay = False
        #: Runs while a member of this generation has not synced; None exactly when ``_unsynced`` is empty.
        self._sync_deadline_ms: int | None = None
        self._unsynced: set[str] = set()
        #: The continuation after each save, by a unique number.
        self._saves: dict[int, Callable[[Code], None]] = {}
        self._save_counter = 0
        #: The time of the last event: for timers, and in wall-clock time.
        self._now, self._wall = now_ms, self.state_since_ms
        #: The effects of the current event so far, in order; empty at the start of an event.
        self._out: list[fx.Effect] = []

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
            group._join_deadline_ms = now_ms + group.roster.rebalance_timeout_ms()
        return group

    def record(
        self, assignments: Mapping[str, bytes] | None = None, *, settled: bool = True
    ) -> fx.GroupRecord:
        """Return the group's record, optionally with assignments that take effect after the save."""
        given = assignments if assignments is not None else {}
        return fx.GroupRecord(
            self.group_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.roster.leader,
            self.state_since_ms,
            tuple(m.record(given.get(m.member_id)) for m in self.roster),
            settled,
        )

    @property
    def next_deadline_ms(self) -> int | None:
        """The time of the next ``Tick``, or None without timers; cost O(log members)."""
        due = (self._join_deadline_ms, self._sync_deadline_ms, self.timers.earliest())
        return min((d for d in due if d is not None), default=None)

    # -- the join phase --------------------------------------------------------------------------

    def _membership_changed(self) -> None:
        if self.state is State.PREPARING:
            self._maybe_complete_join()
        else:
            self._rebalance()

    def _rebalance(self) -> None:
        if self.state is State.COMPLETING:
            self._fail_parked_syncs(Code.REBALANCE_IN_PROGRESS)
        self._stop_waiting_for_syncs()
        if self.state is State.EMPTY:
            # Members of a new group tend to arrive together: wait for more members (KIP-134).
            delay = self.limits.initial_rebalance_delay_ms
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
        waits_on_purpose = self._initial_wait_ms is not None
        if self.state is State.PREPARING and not waits_on_purpose and self.roster.everyone_joined():
            self._complete_join()

    def _join_phase_due(self) -> None:
        left = self._initial_wait_ms or 0
        delay = min(self.limits.initial_rebalance_delay_ms, left)
        if delay and self._newcomer_since_delay:
            self._initial_wait_ms = left - delay
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
            # Only static members are left and none has rejoined: wait for the ends of their sessions.
            self._join_deadline_ms = self._now + max(
                self.roster.rebalance_timeout_ms(), LEAST_WAIT_MS
            )
        else:
            self._begin_generation()

    def _begin_generation(self) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol()
        self._move(Cause.ALL_JOINED)
        self._out.append(fx.SaveGroup(self.record(settled=False)))
        for member in self.roster:
            member.is_new = False
            self._renew_session(member)
            reply = self._join_reply(member, with_members=member.member_id == self.roster.leader)
            self._out += [replace(reply, token=token) for token in member.join_tokens]
            self.roster.park(member, ())
        self._unsynced = {m.member_id for m in self.roster}
        self._sync_deadline_ms = self._now + self.roster.rebalance_timeout_ms()
        self._say("generation_began", detail=f"{self.generation} with {len(self.roster)} members")

    # -- the sync phase --------------------------------------------------------------------------

    def _synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def _stop_waiting_for_syncs(self) -> None:
        self._sync_deadline_ms = None
        self._unsynced.clear()

    def _assignment_saved(self, given: Mapping[str, bytes], generation: int, error: Code) -> None:
        if self.state is not State.COMPLETING or generation != self.generation:
            return  # the group changed while the record was being written
        if error is not Code.NONE:
            self._fail_parked_syncs(error)
            self._rebalance()
            return
        self._move(Cause.LEADER_ASSIGNED)
        for member in self.roster:
            member.assignment = given.get(member.member_id, b"")
            if member.sync_tokens:
                self._renew_session(member)
            self._out += [self._sync_reply(member, token) for token in member.sync_tokens]
            member.sync_tokens = ()

    def _fail_parked_syncs(self, error: Code) -> None:
        for member in self.roster:
            member.assignment = b""
            if member.sync_tokens:
                self._renew_session(member)
            self._out += [fx.SyncReply(token, error) for token in member.sync_tokens]
            member.sync_tokens = ()

    # -- time ------------------------------------------------------------------------------------

    def _fire_timers(self) -> None:
        while (due := self.timers.pop_due(self._now)) is not None:
            purpose, member_id = due
            if purpose is Purpose.PENDING:
                self.roster.pending.discard(member_id)
                self._say("pending_member_expired", member_id)
                self._maybe_complete_join()
            else:
                self._session_due(self.roster[member_id])
        if self._is_due(self._join_deadline_ms):
            self._join_phase_due()
        if self._is_due(self._sync_deadline_ms):
            self._sync_due()

    def _is_due(self, deadline_ms: int | None) -> bool:
        return deadline_ms is not None and deadline_ms <= self._now

    def _session_due(self, member: Member) -> None:
        if not member.is_new and (member.join_tokens or member.sync_tokens):
            return  # a parked request counts as a heartbeat; its answer starts a new session
        self._say("member_expired", member.member_id)
        self._forget(member.member_id, Code.UNKNOWN_MEMBER_ID)
        self._membership_changed()

    def _sync_due(self) -> None:
        for member_id in sorted(self._unsynced & self.roster.members.keys()):
            self._say("member_missed_sync", member_id)
            self._forget(member_id, Code.UNKNOWN_MEMBER_ID)
        self._rebalance()

    def _renew_session(self, member: Member) -> None:
        self.timers.set(Purpose.SESSION, member.member_id, self._now + member.session_timeout_ms)

    # -- small parts -----------------------------------------------------------------------------

    def _move(self, cause: Cause) -> None:
        following = NEXT.get((self.state, cause))
        if following is None:
            raise CoordinatorBug(
                f"group {self.group_id}: {cause.name} is impossible in {self.state.value}"
            )
        self._say("state", detail=f"{self.state.value} -> {following.value}: {cause.value}")
        self.state = following
        self.state_since_ms = self._wall

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
        self.timers.drop(Purpose.SESSION, member_id)
        self._answer_parked(member, error)

    def _answer_parked(self, member: Member, error: Code) -> None:
        self._out += [fx.JoinReply(token, error, member.member_id) for token in member.join_tokens]
        self._out += [fx.SyncReply(token, error) for token in member.sync_tokens]
        self.roster.park(member, ())
        member.sync_tokens = ()

    def _join_reply(
        self, member: Member, *, with_members: bool, skip_assignment: bool = False
    ) -> fx.JoinReply:
        listed: tuple[fx.JoinedMember, ...] = ()
        if with_members:
            name = self.protocol_name
            listed = tuple(
                fx.JoinedMember(m.member_id, m.instance_id, m.metadata(name)) for m in self.roster
            )
        return fx.JoinReply(
            NO_TOKEN_YET,
            Code.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.roster.leader or "",
            listed,
            skip_assignment,
        )

    def _sync_reply(self, member: Member, token: Token) -> fx.SyncReply:
        return fx.SyncReply(
            token, Code.NONE, self.protocol_type, self.protocol_name, member.assignment
        )

    def _save(self, record: fx.GroupRecord, done: Callable[[Code], None]) -> None:
        self._save_counter += 1
        self._saves[self._save_counter] = done
        self._out.append(fx.SaveGroup(record, self._save_counter))

    def _say(self, what: str, member_id: str = "", detail: str = "") -> None:
        self._out.append(fx.Happened(what, member_id, detail))


NO_TOKEN_YET: Final[Token] = -1
