"""The promises of a classic group, checked after every event (B1-B8 of the broker's list).

Every check compares the snapshots before and after the event with the result of :mod:`rules`.
:mod:`requests` judges the event's own answer, this module all other changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Event, JoinGroup, SyncGroup, TimersDue
from tests.property.classic_sim import rules
from tests.property.classic_sim.book import Book, Window, slowest
from tests.property.classic_sim.requests import CHECKS, COPIES, Requests
from tests.property.classic_sim.rules import Kind
from tests.property.classic_sim.seen import GroupSeen, MemberSeen
from tests.property.lives import must

RUNNING: Final = (State.COMPLETING, State.STABLE)


class Promises(Requests):
    """Judge the events in order."""

    def check(
        self,
        event: Event,
        before: GroupSeen,
        after: GroupSeen,
        replies: Mapping[int, fx.Reply],
        now: int,
        disk_failed: bool,
    ) -> None:
        """Raise Violation unless the step from ``before`` to ``after`` is right."""
        self._see(event, before, after, replies, now, disk_failed)
        CHECKS[type(event)](self, event)
        if after.state is State.DEAD:
            self.book.disk = None
            return
        self._members()
        self._began()
        self._phase()
        self._others_answers()
        self._state()
        self._remember_disk()

    # -- checks after every event
    # ---------------------------------------------------------------------

    def _disturbed(self) -> bool:
        return self._begins() or (
            self.before.state is not State.PREPARING and self.after.state is State.PREPARING
        )

    def _members(self) -> None:
        before, after = self.before.members, self.after.members
        gone, came = before.keys() - after.keys(), after.keys() - before.keys()
        must(
            gone == self.gone.keys(),
            "members gone",
            gone,
            "expected",
            sorted(self.gone),
            self.event,
        )
        newcomer: set[str] = set()
        if isinstance(self.event, JoinGroup) and self.kind is not None:
            newcomer = {self.event.member_id or self.event.new_member_id} - before.keys()
            newcomer -= {self.event.new_member_id} if self.disk_failed else set()
        must(came == newcomer, "members came", came, "expected", newcomer)
        for member_id in after.keys() & before.keys():
            self._unchanged(before[member_id], after[member_id])
        self.book.forget(set(gone))
        self._leader()
        self._rebalances_for_a_reason(bool(gone or came))

    def _unchanged(self, before: MemberSeen, after: MemberSeen) -> None:
        """Only a member's own join changes its metadata; only the leader changes its assignment."""
        if isinstance(self.event, JoinGroup) and self.event.member_id == before.member_id:
            return
        said = replace(after, assignment=before.assignment, joins=before.joins, syncs=before.syncs)
        must(said == before, "a member changed by itself", before, after)

    def _leader(self) -> None:
        before, after = self.before.leader, self.after.leader
        if not self.after.members or self._begins() or before is None:
            return
        if before in self.after.members:
            must(after == before, "another leader for no reason", before, after)
        elif before in self.gone and self.gone[before] is Code.FENCED_INSTANCE_ID:
            assert isinstance(self.event, JoinGroup)
            must(after == self.event.new_member_id, "a bounce lost its leadership", after)
        else:
            must(after == next(iter(self.after.members)), "the next in line leads", after)

    def _rebalances_for_a_reason(self, changed: bool) -> None:
        if self.before.state not in RUNNING:
            return
        failed = self.disk_failed and isinstance(self.event, SyncGroup)
        expected = self.kind is Kind.UPDATE or (changed and self.kind is not Kind.REPEAT) or failed
        must(
            self._disturbed() == expected,
            f"a rebalance ({expected} expected)",
            self.event,
            self.after,
        )

    def _began(self) -> None:
        """B1, B2: a generation begins once, after all joins or after the timeout."""
        before, after = self.before, self.after
        if not self._begins():
            return
        must(
            after.generation == before.generation + 1, "B1: generations go up by one", before, after
        )
        must(
            after.generation > self.book.told or not after.members,
            "B1: a generation began twice",
            after,
        )
        must(before.state is not State.EMPTY, "a new group did not wait for more members")
        self._time_has_come()
        self.book.unsynced, self.book.sync_due = set(), None
        self.book.window = self.book.join_due = None
        if not after.members:
            must(after.state is State.EMPTY, "no members", after)
            must(after.protocol_name is None, "nobody speaks a protocol", after)
            self.book.empty_since = self.now
            return
        must(after.state is State.COMPLETING, "a generation began", after)
        must(
            after.protocol_name == rules.choice(after.members),
            "not the protocol of the majority",
            after,
        )
        rejoined = [m for m in after.members if self._joins_before(m)]
        led = next((m for m in rejoined if m == before.leader or self._took_over(m)), None)
        must(
            rejoined and after.leader == (led or rejoined[0]),
            "the wrong leader",
            after.leader,
            rejoined,
        )
        for member_id in rejoined:
            for ticket in self._joins_before(member_id):
                leads = member_id == after.leader
                self._is_told(
                    self.replies.get(ticket), member_id, leader=after.leader, listed=leads
                )
        must(
            not any(m.parked for m in after.members.values()), "a request outlived its phase", after
        )
        self.book.heard = dict.fromkeys(after.members, self.now)
        self.book.newcomers = {}
        self.book.unsynced, self.book.sync_due = set(after.members), self.now + slowest(after)

    def _took_over(self, member_id: str) -> bool:
        fenced = self.gone.get(self.before.leader or "") is Code.FENCED_INSTANCE_ID
        return (
            fenced and isinstance(self.event, JoinGroup) and member_id == self.event.new_member_id
        )

    def _joins_before(self, member_id: str) -> tuple[int, ...]:
        """Return the tickets of the member's parked joins, including this event's."""
        member = self.before.members.get(member_id)
        tickets = member.joins if member is not None else ()
        event = self.event
        if not isinstance(event, JoinGroup) or self.kind is None:
            return tickets
        own = member_id == (event.member_id or event.new_member_id)
        return (*tickets, event.token)[-COPIES:] if own else tickets

    def _time_has_come(self) -> None:
        book = self.book
        if book.window is not None:
            over = isinstance(self.event, TimersDue) and self.now >= book.window.ends
            must(over and not book.window.extends(), "the initial delay was cut short")
            return
        if (
            isinstance(self.event, TimersDue)
            and book.join_due is not None
            and self.now >= book.join_due[0]
        ):
            return
        missing = [m for m in self.after.members if not self._joins_before(m)]
        must(not missing, "B2: a generation began while these may still work", missing)
        waits = self.after.members and self.after.pending  # an empty group has no members to wait
        must(not waits, "the phase did not wait for an id it has handed out", self.after.pending)

    def _phase(self) -> None:
        """Check the phases' timers, and the end of a join phase without missing members."""
        book, before, after = self.book, self.before, self.after
        if after.state is not State.PREPARING:
            book.window = book.join_due = None
        elif before.state is State.EMPTY:
            delay, wait = self.limits.initial_rebalance_delay_ms, slowest(after)
            book.window = Window(delay, self.now + delay, delay, max(wait - delay, 0))
        elif before.state is not State.PREPARING:
            late = max(slowest(before), slowest(after))
            book.join_due = (self.now + slowest(after), self.now + late)
            book.sync_due = None
            book.unsynced = set()
        elif isinstance(self.event, TimersDue):
            self._goes_on(book)
        if after.state is State.PREPARING and book.window is None:
            waits = after.pending or not all(m.joins for m in after.members.values())
            must(waits, "everybody is here and nothing happens", after)
        if not book.unsynced:
            book.sync_due = None

    def _goes_on(self, book: Book) -> None:
        if book.window is not None and self.now >= book.window.ends:
            must(book.window.extends() or not self.after.joined(), "the initial delay does not end")
            if book.window.extends():
                book.window.extend(self.now)
            else:
                book.window, book.join_due = None, (self.now + slowest(self.after),) * 2
        elif book.join_due is not None and self.now >= book.join_due[0]:
            certain = self.now >= book.join_due[1]
            absent = [m for m in self.after.members.values() if m.instance_id is None]
            if not certain and (absent or self.after.joined()):
                return
            # Only static members without a rejoin are left: their session timeouts end the phase.
            must(not self.after.joined(), "a join phase does not end", self.after)
            must(not absent, "a member that missed the join phase stays", absent)
            again = self.now + slowest(self.after)
            book.join_due = (again, again if certain else max(again, book.join_due[1]))

    def _others_answers(self) -> None:
        """Each answered parked request got the right answer; all others are still parked."""
        for ticket, reply in self.replies.items():
            if reply is self.own:
                continue
            owner = next(
                (m for m in self.before.members.values() if ticket in (*m.joins, *m.syncs)), None
            )
            must(owner is not None, "an answer to nobody", reply)
            assert owner is not None
            if owner.member_id not in self.gone:
                self.book.heard[owner.member_id] = self.now
            if isinstance(reply, fx.SyncReply) and reply.error is Code.NONE:
                must(self.after.state is State.STABLE, "an assignment before it holds", reply)
                self._is_given(reply, owner.member_id)
            elif not (isinstance(reply, fx.JoinReply) and reply.error is Code.NONE):
                expected = self._sent_back(owner)
                must(reply.error is expected, "a parked request's answer", reply, expected)
            else:
                must(
                    ticket in self._joins_before(owner.member_id) and self._begins(),
                    "a parked join was answered before its time",
                    reply,
                )

    def _sent_back(self, owner: MemberSeen) -> Code:
        if owner.member_id in self.gone:
            return self.gone[owner.member_id]
        leads_in_vain = self.disk_failed and isinstance(self.event, SyncGroup)
        return Code.NOT_COORDINATOR if leads_in_vain else Code.REBALANCE_IN_PROGRESS

    def _state(self) -> None:
        """B6, B7: the state, the members, the phase and the size are consistent."""
        before, after = self.before, self.after
        ids = [m.instance_id for m in after.members.values() if m.instance_id is not None]
        must(len(ids) == len(set(ids)), "B7: two members for one instance id", ids)
        book = {m.instance_id: m.member_id for m in after.members.values() if m.instance_id}
        must(book == after.instances, "B7: the book of instance ids is wrong", after.instances)
        if after.state in (State.EMPTY, State.DEAD):
            must(not after.members, "members of an empty group", after)
        elif after.state is not State.PREPARING:
            must(after.members, "no members", after)
        must(
            not after.joined() or after.state is State.PREPARING,
            "a join parked outside its phase",
            after,
        )
        must(
            after.joined() <= max(self.limits.max_size, before.joined()),
            "more members than allowed",
            after,
        )
        syncs = any(m.syncs for m in after.members.values())
        must(
            not syncs or after.state is State.COMPLETING,
            "a sync is parked outside its phase",
            after,
        )
        must(
            len(after.pending) <= max(self.limits.max_pending, len(before.pending)),
            "too many unused ids",
        )
        if after.members and before.members:
            must(
                after.protocol_type == before.protocol_type,
                "another protocol type",
                after.protocol_type,
            )
        if after.state is State.STABLE:
            for member_id, member in after.members.items():
                given = self.book.given.get(member_id, b"")
                must(
                    member.assignment == given, "B6: stable with a stale assignment", member, given
                )

    def _remember_disk(self) -> None:
        """Remember the state for a restart: a stable or empty group, or a begun generation."""
        after = self.after
        if after.state is State.STABLE or self._begins():
            self.book.disk = after

    def check_restart(self, after: GroupSeen, now: int) -> None:
        """B4, B8: the last record describes the group; no generation number is reused."""
        expected = self.book.disk
        if expected is None:
            must(after.generation == 0 and not after.members, "a group out of nowhere", after)
            self.book = Book(empty_since=now)
            return
        state = State.PREPARING if expected.state is State.COMPLETING else expected.state
        must(after.state is state, "B8: restored to another state", after, expected)
        must(
            after.generation >= self.book.told, "B1: a generation number would be used again", after
        )
        if state is State.PREPARING:
            blank = {k: replace(m, assignment=b"") for k, m in expected.members.items()}
            after_blank = {k: replace(m, assignment=b"") for k, m in after.members.items()}
            must(after_blank == blank, "B8: restored to other members", after, expected)
        else:
            settled = {k: replace(m, joins=(), syncs=()) for k, m in expected.members.items()}
            must(after.members == settled, "B8: restored to other members", after, expected)
            self.book.given = {m: v.assignment for m, v in settled.items()}
        facts = [
            (s.generation, s.protocol_type, s.protocol_name, s.leader, s.instances)
            for s in (after, expected)
        ]
        must(facts[0] == facts[1], "B8: restored to something else", *facts)
        self.book.restarted(after, now)
