"""One round of a classic group: the join phase, the sync phase, and the timers of both.

``GroupRounds`` holds the state and the course of a round; the rules for each request and state are in
:mod:`faust_assigner.coordinator.classic` and :mod:`faust_assigner.coordinator.join_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.errors import Code, CoordinatorBug
from faust_assigner.coordinator.events import Token
from faust_assigner.coordinator.members import Member, Roster
from faust_assigner.coordinator.phases import JoinPhase, SyncPhase
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import NEXT, Cause, GroupLimits, State
from faust_assigner.coordinator.timers import Purpose, Timers

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
LEAST_WAIT_MS: Final = (
    1_000  # if all members have a rebalance timeout of 0, a wait of 0 would repeat forever
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
        #: Wall-clock time of the last state change, when the retention of an empty group's offsets starts.
        self.state_since_ms = now_ms if wall_ms is None else wall_ms
        #: Never decreases, even over a restart: a generation is saved before any member gets it.
        self.generation = 0
        #: The protocol type is the first member's until the group is empty. Every member of this generation
        #: supports the protocol name; None before the first round and after a round without members.
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        #: Members, unused member ids, instances and leader; a single member per instance id.
        self.roster = Roster()
        #: The ends of members' sessions, and the expiry of unused member ids.
        self.timers = Timers()
        #: The waits of the current round.
        self.join_phase, self.sync_phase = JoinPhase(), SyncPhase()
        #: The function to call after each save, by a unique number.
        self.saves: dict[int, Callable[[Code], None]] = {}
        self._save_counter = 0
        #: The time of the last event: on the timers' clock, and on the wall clock.
        self.now_ms, self.wall_ms = now_ms, self.state_since_ms
        #: The effects of the current event so far, in order; empty at the start of an event.
        self.out: list[fx.Effect] = []

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
        """The time of the next ``TimersDue``, or None without timers; cost O(log members)."""
        phases = (self.join_phase.deadline_ms, self.sync_phase.deadline_ms)
        return min((d for d in (*phases, self.timers.earliest()) if d is not None), default=None)

    # -- the join phase --------------------------------------------------------------------------

    def membership_changed(self) -> None:
        """Begin a rebalance; in the join phase, end the phase if every member has joined."""
        if self.state is State.PREPARING:
            self.maybe_complete_join()
        else:
            self.rebalance()

    def rebalance(self) -> None:
        """Begin a join phase; members with a parked sync have to join again."""
        if self.state is State.COMPLETING:
            self.fail_parked_syncs(Code.REBALANCE_IN_PROGRESS)
        self.sync_phase.end()
        timeout_ms = self.roster.rebalance_timeout_ms()
        if self.state is State.EMPTY:
            delay_ms = self.limits.initial_rebalance_delay_ms
            self.join_phase.begin_new_group(self.now_ms, timeout_ms, delay_ms)
            self.move(Cause.REBALANCE)
            return
        self.join_phase.begin(self.now_ms, timeout_ms)
        self.move(Cause.REBALANCE)
        self.maybe_complete_join()

    def maybe_complete_join(self) -> None:
        """End the join phase if every member has joined."""
        waits_on_purpose = self.join_phase.initial_wait_ms is not None
        if self.state is State.PREPARING and not waits_on_purpose and self.roster.everyone_joined():
            self._complete_join()

    def _complete_join(self) -> None:
        self.join_phase.deadline_ms = None
        for absent in [m for m in self.roster if not m.join_tokens and m.instance_id is None]:
            self.report("member_missed_join", absent.member_id)
            self.forget(absent.member_id, Code.UNKNOWN_MEMBER_ID)
        if not len(self.roster):
            self.generation += 1
            self.protocol_name = None
            self.move(Cause.NOBODY_JOINED)
            self.out.append(fx.SaveGroup(self.record()))
        elif not self.roster.elect_joined_leader():
            # Only static members are left and none has rejoined: wait for the ends of their sessions.
            timeout_ms = max(self.roster.rebalance_timeout_ms(), LEAST_WAIT_MS)
            self.join_phase.begin(self.now_ms, timeout_ms)
        else:
            self._begin_generation()

    def _begin_generation(self) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol()
        self.move(Cause.ALL_JOINED)
        self.out.append(fx.SaveGroup(self.record(settled=False)))
        for member in self.roster:
            member.is_new = False
            self.renew_session(member)
            leads = member.member_id == self.roster.leader
            self.out += [
                self.join_reply(member, token, with_members=leads) for token in member.join_tokens
            ]
            self.roster.park(member, ())
        self.sync_phase.begin(
            self.roster.members.keys(), self.now_ms + self.roster.rebalance_timeout_ms()
        )
        self.report("generation_began", detail=f"{self.generation} with {len(self.roster)} members")

    # -- the sync phase --------------------------------------------------------------------------

    def assignment_saved(self, given: Mapping[str, bytes], generation: int, error: Code) -> None:
        """Answer the parked syncs after the save of the leader's assignment."""
        if self.state is not State.COMPLETING or generation != self.generation:
            return  # the group changed while the record was being written
        if error is not Code.NONE:
            self.fail_parked_syncs(error)
            self.rebalance()
            return
        self.move(Cause.LEADER_ASSIGNED)
        for member in self.roster:
            member.assignment = given.get(member.member_id, b"")
            if member.sync_tokens:
                self.renew_session(member)
            self.out += [self.sync_reply(member, token) for token in member.sync_tokens]
            member.sync_tokens = ()

    def fail_parked_syncs(self, error: Code) -> None:
        """Answer all parked syncs with an error, and drop the assignments."""
        for member in self.roster:
            member.assignment = b""
            if member.sync_tokens:
                self.renew_session(member)
            self.out += [fx.SyncReply(token, error) for token in member.sync_tokens]
            member.sync_tokens = ()

    # -- time ------------------------------------------------------------------------------------

    def fire_timers(self) -> None:
        """End the sessions, unused member ids and phases whose time is over."""
        while (due := self.timers.pop_due(self.now_ms)) is not None:
            purpose, member_id = due
            if purpose is Purpose.PENDING:
                self.roster.pending.discard(member_id)
                self.report("pending_member_expired", member_id)
                self.maybe_complete_join()
            else:
                self._session_due(self.roster[member_id])
        if self._is_due(self.join_phase.deadline_ms) and not self.join_phase.extend(
            self.now_ms, self.limits.initial_rebalance_delay_ms
        ):
            self._complete_join()
        if self._is_due(self.sync_phase.deadline_ms):
            self._sync_due()

    def _is_due(self, deadline_ms: int | None) -> bool:
        return deadline_ms is not None and deadline_ms <= self.now_ms

    def _session_due(self, member: Member) -> None:
        if not member.is_new and (member.join_tokens or member.sync_tokens):
            return  # a parked request counts as a heartbeat; its answer starts a new session
        self.report("member_expired", member.member_id)
        self.forget(member.member_id, Code.UNKNOWN_MEMBER_ID)
        self.membership_changed()

    def _sync_due(self) -> None:
        for member_id in sorted(self.sync_phase.missing & self.roster.members.keys()):
            self.report("member_missed_sync", member_id)
            self.forget(member_id, Code.UNKNOWN_MEMBER_ID)
        self.rebalance()

    def renew_session(self, member: Member) -> None:
        """Restart the session of a member."""
        self.timers.set(Purpose.SESSION, member.member_id, self.now_ms + member.session_timeout_ms)

    # -- small parts -----------------------------------------------------------------------------

    def move(self, cause: Cause) -> None:
        """Change the state by the table ``NEXT``."""
        following = NEXT.get((self.state, cause))
        if following is None:
            raise CoordinatorBug(
                f"group {self.group_id}: {cause.name} is impossible in {self.state.value}"
            )
        self.report("state", detail=f"{self.state.value} -> {following.value}: {cause.value}")
        self.state = following
        self.state_since_ms = self.wall_ms

    def forget(self, member_id: str, error: Code) -> None:
        """Remove a member; its parked requests get the error."""
        member = self.roster.remove(member_id)
        self.timers.drop(Purpose.SESSION, member_id)
        self.answer_parked(member, error)

    def answer_parked(self, member: Member, error: Code) -> None:
        """Answer the parked requests of a member with an error."""
        self.out += [fx.JoinReply(token, error, member.member_id) for token in member.join_tokens]
        self.out += [fx.SyncReply(token, error) for token in member.sync_tokens]
        self.roster.park(member, ())
        member.sync_tokens = ()

    def join_reply(
        self, member: Member, token: Token, *, with_members: bool, skip_assignment: bool = False
    ) -> fx.JoinReply:
        """Return the answer to a join of this generation."""
        listed: tuple[fx.JoinedMember, ...] = ()
        if with_members:
            name = self.protocol_name
            listed = tuple(
                fx.JoinedMember(m.member_id, m.instance_id, m.metadata(name)) for m in self.roster
            )
        return fx.JoinReply(
            token,
            Code.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.roster.leader or "",
            listed,
            skip_assignment,
        )

    def sync_reply(self, member: Member, token: Token) -> fx.SyncReply:
        """Return a member's assignment as the answer to its sync."""
        return fx.SyncReply(
            token, Code.NONE, self.protocol_type, self.protocol_name, member.assignment
        )

    def save(self, record: fx.GroupRecord, done: Callable[[Code], None]) -> None:
        """Save the record; ``done`` is called with the outcome."""
        self.out.append(fx.SaveGroup(record, self.after_save(done)))

    def after_save(self, done: Callable[[Code], None]) -> int:
        """Return the number of a new save; ``done`` is called with the outcome of the save."""
        self._save_counter += 1
        self.saves[self._save_counter] = done
        return self._save_counter

    def report(self, what: str, member_id: str = "", detail: str = "") -> None:
        """Report an event of the group."""
        self.out.append(fx.Happened(what, member_id, detail))
