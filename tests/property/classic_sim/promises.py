"""The promises of a classic group, checked after every single event (B1-B8 of the broker's list).

Every check compares what was seen before and after with what :mod:`rules` says should happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import GroupLimits, State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
    Tick,
)
from tests.property.classic_sim import rules
from tests.property.classic_sim.book import Book, Window, must, slowest
from tests.property.classic_sim.rules import Kind
from tests.property.classic_sim.seen import GroupSeen, MemberSeen

RUNNING: Final = (State.COMPLETING, State.STABLE)
COPIES: Final = 8  # of a parked request; the oldest of more is sent back to try again


class Promises:
    """Judges one event after the other; ``book`` is all it remembers."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.book = Book()

    def check(
        self,
        event: Event,
        before: GroupSeen,
        after: GroupSeen,
        replies: Mapping[int, fx.Reply],
        now: int,
        disk_failed: bool,
    ) -> None:
        """Raise Violation if the step from ``before`` to ``after`` was not the right one."""
        self.event, self.before, self.after = event, before, after
        self.replies, self.now, self.disk_failed = replies, now, disk_failed
        self.own = replies.get(getattr(event, "token", -1))
        if after.state is State.DEAD or before.state is State.DEAD:
            self._came_or_went_as_a_whole()
        self.kind: Kind | None = None
        self.gone: dict[str, Code] = {}
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

    # -- the event itself ----------------------------------------------------------------------------

    def _came_or_went_as_a_whole(self) -> None:
        if self.after.state is State.DEAD and self.before.state is not State.DEAD:
            must(isinstance(self.event, DeleteGroup), "a group vanished", self.event)
        if self.before.state is State.DEAD:
            # A group that is created is Empty first; the event is judged against that.
            self.book = Book(empty_since=self.now)
            if self.after.state is not State.DEAD:
                self.before = GroupSeen(State.EMPTY)

    def _answered(self, *expected: Code) -> None:
        must(self.own is not None, "B3: not answered at once", self.event)
        assert self.own is not None
        must(self.own.error in expected, "B3: the wrong answer", self.own, expected, self.event)

    def _changed_nothing(self, *, pending: frozenset[str] | None = None) -> None:
        expected = self.before if pending is None else replace(self.before, pending=pending)
        must(self.after == expected, f"{self.event} changed the group", self.before, self.after)

    def _heartbeat(self, event: Heartbeat) -> None:
        self._answered(rules.heartbeat(event, self.before))
        self._changed_nothing()
        if rules.heartbeat(event, self.before) in (Code.NONE, Code.REBALANCE_IN_PROGRESS):
            self.book.heard[event.member_id] = self.now

    def _commit(self, event: CommitOffsets) -> None:
        error = rules.commit(event, self.before)
        self._answered(error)
        self._changed_nothing()
        if error in (Code.NONE, Code.REBALANCE_IN_PROGRESS) and event.member_id in self.before.members:
            self.book.heard[event.member_id] = self.now

    def _delete(self, event: DeleteGroup) -> None:
        verdicts = {State.DEAD: Code.GROUP_ID_NOT_FOUND, State.EMPTY: Code.NONE}
        self._answered(verdicts.get(self.before.state, Code.NON_EMPTY_GROUP))
        if self.before.state is State.EMPTY:
            must(self.after.state is State.DEAD, "a deleted group is still there", self.after)
        else:
            self._changed_nothing()

    def _leave(self, event: LeaveGroup) -> None:
        codes, gone, back = rules.leave(event, self.before)
        if self.before.state is State.DEAD:
            self._answered(Code.UNKNOWN_MEMBER_ID)
            return
        self._answered(Code.NONE)
        assert isinstance(self.own, fx.LeaveReply)
        asked = [(w.member_id, w.instance_id, c) for w, c in zip(event.leavers, codes, strict=True)]
        must(list(self.own.results) == asked, "a leaver got the wrong answer", self.own, asked)
        self.gone = dict.fromkeys(gone, Code.UNKNOWN_MEMBER_ID)
        must(self.after.pending == self.before.pending - back, "an id given back is still waited for", event)
        for member_id in back:
            del self.book.pending[member_id]
        if not gone and not self._begins():
            self._changed_nothing(pending=self.after.pending)

    def _tick(self, event: Tick) -> None:
        book, before, now = self.book, self.before, self.now
        late = {m for m in before.members if book.session_over(m, before, now)}
        unjoined = {m for m in before.members if book.missed_join(m, before, now)}
        unsynced = {m for m in before.members if book.missed_sync(m, now)}
        gone = before.members.keys() - self.after.members.keys()
        must(gone <= late | unjoined | unsynced, "a member was removed before its time", gone)
        self.gone = dict.fromkeys(gone, Code.UNKNOWN_MEMBER_ID)
        expired = {m for m, deadline in book.pending.items() if deadline <= now}
        must(self.after.pending == before.pending - expired, "unused ids", before.pending, self.after.pending)
        for member_id in expired:
            del book.pending[member_id]
        if not late and not self._begins():
            must(unsynced <= gone, "a member that did not sync in time stays", unsynced - gone)
        if not gone and not self._begins():
            self._changed_nothing(pending=self.after.pending)

    # -- joining -------------------------------------------------------------------------------------

    def _join(self, event: JoinGroup) -> None:
        error = rules.join(event, self.before, self.limits)
        if error is Code.NONE:
            self.kind = rules.kind(event, self.before)
            JOINED[self.kind](self, event)
            return
        self._answered(error)
        assert isinstance(self.own, fx.JoinReply)
        if error is Code.MEMBER_ID_REQUIRED:
            new = event.new_member_id
            must(self.own.member_id == new, "told another id than the one handed out", self.own)
            self.book.pending[new] = self.now + event.session_timeout_ms
            self._changed_nothing(pending=self.before.pending | {new})
        elif error is Code.GROUP_MAX_SIZE_REACHED and event.member_id in self.before.members:
            self.gone = {event.member_id: error}  # the group has become too small for it
        else:
            self._changed_nothing()

    def _admitted(self, event: JoinGroup) -> None:
        member_id = event.member_id or event.new_member_id
        self.book.newcomers[member_id] = self.now
        self.book.pending.pop(member_id, None)
        must(self.after.pending == self.before.pending - {member_id}, "unused ids", self.after.pending)
        if self.book.window is not None:
            self.book.window.newcomer = True
        self._is_as_it_said(member_id, event)
        must(list(self.after.members)[-1] == member_id, "a newcomer is not last in line", self.after)

    def _is_as_it_said(self, member_id: str, event: JoinGroup) -> None:
        member = self.after.members.get(member_id)
        must(member is not None and member.says(event), "a member is not what it said", event, self.after)

    def _replaced(self, event: JoinGroup) -> None:
        old, new = self.before.instances[event.instance_id or ""], event.new_member_id
        now_speaks = self._with(old, new, event)
        quiet = (
            self.before.state is State.STABLE and rules.choice(now_speaks) == self.before.protocol_name
        )
        if quiet and self.disk_failed:
            self.kind = Kind.REPEAT
            self._answered(Code.NOT_COORDINATOR)
            self._changed_nothing()
            return
        self.gone = {old: Code.FENCED_INSTANCE_ID}
        self.book.rename(old, new)
        self.book.heard[new] = self.now
        self._is_as_it_said(new, event)
        places = [new if m == old else m for m in self.before.members]
        must(list(self.after.members) == places, "a static member lost its place", places, self.after)
        if quiet:
            self.kind = Kind.REPEAT
            self._answered(Code.NONE)
            self._quietly_replaced(event, old, new)

    def _with(self, old: str, new: str, event: JoinGroup) -> dict[str, MemberSeen]:
        members = self.before.members.items()
        return {(new if m == old else m): replace(v, protocols=event.protocols) if m == old else v
                for m, v in members}

    def _quietly_replaced(self, event: JoinGroup, old: str, new: str) -> None:
        led = self.before.leader == old
        must(self.after.leader == (new if led else self.before.leader), "leadership moved", self.after.leader)
        skips = event.can_skip_assignment and led
        leader = self.after.leader if event.can_skip_assignment else self.before.leader
        self._is_told(self.own, new, leader=leader, listed=skips, skips=skips)
        same = (self.before.state, self.before.generation, self.before.protocol_name)
        must((self.after.state, self.after.generation, self.after.protocol_name) == same,
             "a bounce disturbed the group", self.after)

    def _updated(self, event: JoinGroup) -> None:
        self._is_as_it_said(event.member_id, event)
        must(list(self.after.members) == list(self.before.members), "members moved", self.after)

    def _repeated(self, event: JoinGroup) -> None:
        self._answered(Code.NONE)
        self._changed_nothing()
        leads = self.before.leader == event.member_id
        self._is_told(self.own, event.member_id, leader=self.before.leader, listed=leads)
        self.book.heard[event.member_id] = self.now

    def _is_told(
        self, reply: fx.Reply | None, member_id: str, *, leader: str | None, listed: bool, skips: bool = False
    ) -> None:
        """The whole answer to a JoinGroup that was not refused."""
        assert isinstance(reply, fx.JoinReply)
        seen = self.after
        members = tuple(
            fx.JoinedMember(m.member_id, m.instance_id, m.metadata(seen.protocol_name))
            for m in seen.members.values()
        )
        expected = fx.JoinReply(
            reply.token, Code.NONE, member_id, seen.generation, seen.protocol_type, seen.protocol_name,
            leader or "", members if listed else (), skips)  # fmt: skip
        must(reply == expected, "a member was told something else than what is", reply, expected)
        self.book.told = max(self.book.told, reply.generation)

    # -- syncing -------------------------------------------------------------------------------------

    def _sync(self, event: SyncGroup) -> None:
        error, before, after = rules.sync(event, self.before), self.before, self.after
        if error is not Code.NONE:
            self._answered(error)
            self._changed_nothing()
            return
        self.book.unsynced.discard(event.member_id)
        if before.state is State.STABLE:
            self._answered(Code.NONE)
            self._is_given(self.own, event.member_id)
            self._changed_nothing()
            self.book.heard[event.member_id] = self.now
            return
        if before.leader != event.member_id:
            parked = (*before.members[event.member_id].syncs, event.token)[-COPIES:]
            must(after.members[event.member_id].syncs == parked, "a sync is not parked", after)
            must(after.state is State.COMPLETING, "a follower ended the sync phase", after)
            return
        self.book.heard[event.member_id] = self.now
        if self.disk_failed:
            self._answered(Code.NOT_COORDINATOR)
            must(after.state is State.PREPARING, "an assignment that is not on disk was used", after)
        else:
            must(after.state is State.STABLE, "the leader has assigned", after)
            self.book.given = {m: event.assignments.get(m, b"") for m in before.members}
            self._answered(Code.NONE)
            self._is_given(self.own, event.member_id)

    def _is_given(self, reply: fx.Reply | None, member_id: str) -> None:
        assert isinstance(reply, fx.SyncReply)
        seen = self.after
        expected = fx.SyncReply(reply.token, Code.NONE, seen.protocol_type, seen.protocol_name,
                                self.book.given.get(member_id, b""))
        must(reply == expected, "B6: not what the leader of this generation gave", reply, expected)

    # -- what holds of any event ---------------------------------------------------------------------

    def _begins(self) -> bool:
        return self.after.generation != self.before.generation

    def _disturbed(self) -> bool:
        return self._begins() or (
            self.before.state is not State.PREPARING and self.after.state is State.PREPARING
        )

    def _members(self) -> None:
        before, after = self.before.members, self.after.members
        gone, came = before.keys() - after.keys(), after.keys() - before.keys()
        must(gone == self.gone.keys(), "members gone", gone, "expected", sorted(self.gone), self.event)
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
        """Only its own join changes what a member said; nothing but its leader what it owns."""
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
        must(self._disturbed() == expected, f"a rebalance ({expected} expected)", self.event, self.after)

    def _began(self) -> None:
        """B1, B2: a generation begins once, when everybody is there or the time is over."""
        before, after = self.before, self.after
        if not self._begins():
            return
        must(after.generation == before.generation + 1, "B1: generations go up by one", before, after)
        must(after.generation > self.book.told or not after.members, "B1: a generation began twice", after)
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
        must(after.protocol_name == rules.choice(after.members), "not the protocol of the majority", after)
        rejoined = [m for m in after.members if self._joins_before(m)]
        led = next((m for m in rejoined if m == before.leader or self._took_over(m)), None)
        must(rejoined and after.leader == (led or rejoined[0]), "the wrong leader", after.leader, rejoined)
        for member_id in rejoined:
            for ticket in self._joins_before(member_id):
                leads = member_id == after.leader
                self._is_told(self.replies.get(ticket), member_id, leader=after.leader, listed=leads)
        must(not any(m.parked for m in after.members.values()), "a request outlived its phase", after)
        self.book.heard = dict.fromkeys(after.members, self.now)
        self.book.newcomers = {}
        self.book.unsynced, self.book.sync_due = set(after.members), self.now + slowest(after)

    def _took_over(self, member_id: str) -> bool:
        fenced = self.gone.get(self.before.leader or "") is Code.FENCED_INSTANCE_ID
        return fenced and isinstance(self.event, JoinGroup) and member_id == self.event.new_member_id

    def _joins_before(self, member_id: str) -> tuple[int, ...]:
        """Tickets of the member's parked joins, this event's included."""
        member = self.before.members.get(member_id)
        tickets = member.joins if member is not None else ()
        if isinstance(self.event, JoinGroup) and self.kind is not None:
            if member_id == (self.event.member_id or self.event.new_member_id):
                tickets = (*tickets, self.event.token)[-COPIES:]
        return tickets

    def _time_has_come(self) -> None:
        book = self.book
        if book.window is not None:
            over = isinstance(self.event, Tick) and self.now >= book.window.ends
            must(over and not book.window.extends(), "the initial delay was cut short")
            return
        if isinstance(self.event, Tick) and book.join_due is not None and self.now >= book.join_due[0]:
            return
        missing = [m for m in self.after.members if not self._joins_before(m)]
        must(not missing, "B2: a generation began while these may still work", missing)
        waits = self.after.members and self.after.pending  # nobody is there to wait
        must(not waits, "the phase did not wait for an id it has handed out", self.after.pending)

    def _phase(self) -> None:
        """Timers of the phases, and a join phase that nothing holds up any more."""
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
        elif isinstance(self.event, Tick):
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
            if self.now >= book.join_due[1] or not self.after.joined():
                must(not self.after.joined(), "a join phase does not end", self.after)
                absent = [m for m in self.after.members.values() if m.instance_id is None]
                must(not absent, "a member that missed the join phase stays", absent)
                book.join_due = (self.now + slowest(self.after),) * 2

    def _others_answers(self) -> None:
        """Each parked request that was answered got the right answer, and each that was not is held."""
        for ticket, reply in self.replies.items():
            if reply is self.own:
                continue
            owner = next((m for m in self.before.members.values() if ticket in (*m.joins, *m.syncs)), None)
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
                must(ticket in self._joins_before(owner.member_id) and self._begins(),
                     "a parked join was answered before its time", reply)

    def _sent_back(self, owner: MemberSeen) -> Code:
        if owner.member_id in self.gone:
            return self.gone[owner.member_id]
        leads_in_vain = self.disk_failed and isinstance(self.event, SyncGroup)
        return Code.NOT_COORDINATOR if leads_in_vain else Code.REBALANCE_IN_PROGRESS

    def _state(self) -> None:
        """B6, B7, and that state, members, phase and size fit."""
        before, after = self.before, self.after
        ids = [m.instance_id for m in after.members.values() if m.instance_id is not None]
        must(len(ids) == len(set(ids)), "B7: two members for one instance id", ids)
        book = {m.instance_id: m.member_id for m in after.members.values() if m.instance_id}
        must(book == after.instances, "B7: the book of instance ids is wrong", after.instances)
        if after.state in (State.EMPTY, State.DEAD):
            must(not after.members, "members of an empty group", after)
        elif after.state is not State.PREPARING:
            must(after.members, "no members", after)
        must(not after.joined() or after.state is State.PREPARING, "a join is parked outside its phase", after)
        must(after.joined() <= max(self.limits.max_size, before.joined()), "more members than allowed", after)
        syncs = any(m.syncs for m in after.members.values())
        must(not syncs or after.state is State.COMPLETING, "a sync is parked outside its phase", after)
        must(len(after.pending) <= max(self.limits.max_pending, len(before.pending)), "too many unused ids")
        if after.members and before.members:
            must(after.protocol_type == before.protocol_type, "another protocol type", after.protocol_type)
        if after.state is State.STABLE:
            for member_id, member in after.members.items():
                given = self.book.given.get(member_id, b"")
                must(member.assignment == given, "B6: stable with a stale assignment", member, given)

    def _remember_disk(self) -> None:
        """What a restart must bring back: the last stable or empty group, or that a generation has begun."""
        after = self.after
        if after.state is State.STABLE or self._begins():
            self.book.disk = after

    def check_restart(self, after: GroupSeen, now: int) -> None:
        """B4, B8: the last record is the group; no generation number is ever used again."""
        expected = self.book.disk
        if expected is None:
            must(after.generation == 0 and not after.members, "a group out of nowhere", after)
            self.book = Book(empty_since=now)
            return
        state = State.PREPARING if expected.state is State.COMPLETING else expected.state
        must(after.state is state, "B8: restored to another state", after, expected)
        must(after.generation >= self.book.told, "B1: a generation number would be used again", after)
        if state is State.PREPARING:
            blank = {k: replace(m, assignment=b"") for k, m in expected.members.items()}
            after_blank = {k: replace(m, assignment=b"") for k, m in after.members.items()}
            must(after_blank == blank, "B8: restored to other members", after, expected)
        else:
            settled = {k: replace(m, joins=(), syncs=()) for k, m in expected.members.items()}
            must(after.members == settled, "B8: restored to other members", after, expected)
            self.book.given = {m: v.assignment for m, v in settled.items()}
        facts = [(s.generation, s.protocol_type, s.protocol_name, s.leader, s.instances)
                 for s in (after, expected)]
        must(facts[0] == facts[1], "B8: restored to something else", *facts)
        self.book.restarted(after, now)


CHECKS: Final[Mapping[type[Any], Callable[[Promises, Any], None]]] = {
    JoinGroup: Promises._join,
    SyncGroup: Promises._sync,
    Heartbeat: Promises._heartbeat,
    LeaveGroup: Promises._leave,
    CommitOffsets: Promises._commit,
    DeleteGroup: Promises._delete,
    Tick: Promises._tick,
}
JOINED: Final[Mapping[Kind, Callable[[Promises, Any], None]]] = {
    Kind.ADMIT: Promises._admitted,
    Kind.REPLACE: Promises._replaced,
    Kind.UPDATE: Promises._updated,
    Kind.REPEAT: Promises._repeated,
}
