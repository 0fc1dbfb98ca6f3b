"""Judge a step's own request or tick: its answer and its permitted changes (B3, B4, B6)."""

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
    TimersDue,
)
from tests.property.classic_sim import rules
from tests.property.classic_sim.book import Book
from tests.property.classic_sim.rules import Kind
from tests.property.classic_sim.seen import GroupSeen, MemberSeen
from tests.property.lives import must

COPIES: Final = 8  # of a parked request; an older parked request is sent back for a retry


class Requests:
    """Judge the answer to an event; ``book`` is the only memory of earlier events."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits
        self.book = Book()

    def _see(
        self,
        event: Event,
        before: GroupSeen,
        after: GroupSeen,
        replies: Mapping[int, fx.Reply],
        now: int,
        disk_failed: bool,
    ) -> None:
        self.event, self.before, self.after = event, before, after
        self.replies, self.now, self.disk_failed = replies, now, disk_failed
        self.own = replies.get(getattr(event, "token", -1))
        self.kind: Kind | None = None  # the kind of an accepted JoinGroup
        self.gone: dict[str, Code] = {}  # removed members -> their error
        if after.state is State.DEAD or before.state is State.DEAD:
            self._came_or_went_as_a_whole()

    # -- the event itself ----------------------------------------------------------------------------

    def _came_or_went_as_a_whole(self) -> None:
        if self.after.state is State.DEAD and self.before.state is not State.DEAD:
            must(isinstance(self.event, DeleteGroup), "a group vanished", self.event)
        if self.before.state is State.DEAD:
            # A new group is Empty first; the event is judged against an empty group.
            self.book = Book(empty_since=self.now)
            if self.after.state is not State.DEAD:
                self.before = GroupSeen(State.EMPTY)

    def _begins(self) -> bool:
        return self.after.generation != self.before.generation

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
        if error is Code.NONE and event.member_id in self.before.members:
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
            codes = [Code.UNKNOWN_MEMBER_ID for _ in event.leavers]
        self._answered(Code.NONE)
        assert isinstance(self.own, fx.LeaveReply)
        asked = [(w.member_id, w.instance_id, c) for w, c in zip(event.leavers, codes, strict=True)]
        must(list(self.own.results) == asked, "a leaver got the wrong answer", self.own, asked)
        if self.before.state is State.DEAD:
            return
        self.gone = dict.fromkeys(gone, Code.UNKNOWN_MEMBER_ID)
        must(
            self.after.pending == self.before.pending - back,
            "an id given back is still waited for",
            event,
        )
        for member_id in back:
            del self.book.pending[member_id]
        if not gone and not self._begins():
            self._changed_nothing(pending=self.after.pending)

    def _tick(self, event: TimersDue) -> None:
        book, before, now = self.book, self.before, self.now
        late = {m for m in before.members if book.session_over(m, before, now)}
        unjoined = {m for m in before.members if book.missed_join(m, before, now)}
        unsynced = {m for m in before.members if book.missed_sync(m, now)}
        gone = before.members.keys() - self.after.members.keys()
        must(gone <= late | unjoined | unsynced, "a member was removed before its time", gone)
        self.gone = dict.fromkeys(gone, Code.UNKNOWN_MEMBER_ID)
        expired = {m for m, deadline in book.pending.items() if deadline <= now}
        must(
            self.after.pending == before.pending - expired,
            "unused ids",
            before.pending,
            self.after.pending,
        )
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
            self.gone = {event.member_id: error}  # the group is now too small for the member
        else:
            self._changed_nothing()

    def _admitted(self, event: JoinGroup) -> None:
        member_id = event.member_id or event.new_member_id
        self.book.newcomers[member_id] = self.now
        self.book.pending.pop(member_id, None)
        must(
            self.after.pending == self.before.pending - {member_id},
            "unused ids",
            self.after.pending,
        )
        if self.book.window is not None:
            self.book.window.newcomer = True
        self._is_as_it_said(member_id, event)
        if not self.before.members:
            must(
                self.after.protocol_type == event.protocol_type, "another protocol type", self.after
            )
        must(
            list(self.after.members)[-1] == member_id, "a newcomer is not last in line", self.after
        )

    def _is_as_it_said(self, member_id: str, event: JoinGroup) -> None:
        member = self.after.members.get(member_id)
        must(
            member is not None and member.says(event),
            "a member is not what it said",
            event,
            self.after,
        )

    def _replaced(self, event: JoinGroup) -> None:
        old, new = self.before.instances[event.instance_id or ""], event.new_member_id
        now_speaks = self._with(old, new, event)
        quiet = (
            self.before.state is State.STABLE
            and rules.choice(now_speaks) == self.before.protocol_name
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
        must(
            list(self.after.members) == places, "a static member lost its place", places, self.after
        )
        if quiet:
            self.kind = Kind.REPEAT
            self._answered(Code.NONE)
            self._quietly_replaced(event, old, new)

    def _with(self, old: str, new: str, event: JoinGroup) -> dict[str, MemberSeen]:
        members = self.before.members.items()
        return {
            (new if m == old else m): replace(v, protocols=event.protocols) if m == old else v
            for m, v in members
        }

    def _quietly_replaced(self, event: JoinGroup, old: str, new: str) -> None:
        led = self.before.leader == old
        must(
            self.after.leader == (new if led else self.before.leader),
            "leadership moved",
            self.after.leader,
        )
        skips = event.can_skip_assignment and led
        leader = self.after.leader if event.can_skip_assignment else self.before.leader
        self._is_told(self.own, new, leader=leader, listed=skips, skips=skips)
        same = (self.before.state, self.before.generation, self.before.protocol_name)
        must(
            (self.after.state, self.after.generation, self.after.protocol_name) == same,
            "a bounce disturbed the group",
            self.after,
        )

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
        self,
        reply: fx.Reply | None,
        member_id: str,
        *,
        leader: str | None,
        listed: bool,
        skips: bool = False,
    ) -> None:
        """Check the whole answer to an accepted JoinGroup."""
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
            must(
                after.state is State.PREPARING, "an assignment that is not on disk was used", after
            )
        else:
            must(after.state is State.STABLE, "the leader has assigned", after)
            self.book.given = {m: event.assignments.get(m, b"") for m in before.members}
            self._answered(Code.NONE)
            self._is_given(self.own, event.member_id)

    def _is_given(self, reply: fx.Reply | None, member_id: str) -> None:
        assert isinstance(reply, fx.SyncReply)
        seen = self.after
        expected = fx.SyncReply(
            reply.token,
            Code.NONE,
            seen.protocol_type,
            seen.protocol_name,
            self.book.given.get(member_id, b""),
        )
        must(reply == expected, "B6: not what the leader of this generation gave", reply, expected)


CHECKS: Final[Mapping[type[Any], Callable[[Requests, Any], None]]] = {
    JoinGroup: Requests._join,
    SyncGroup: Requests._sync,
    Heartbeat: Requests._heartbeat,
    LeaveGroup: Requests._leave,
    CommitOffsets: Requests._commit,
    DeleteGroup: Requests._delete,
    TimersDue: Requests._tick,
}
JOINED: Final[Mapping[Kind, Callable[[Requests, Any], None]]] = {
    Kind.ADMIT: Requests._admitted,
    Kind.REPLACE: Requests._replaced,
    Kind.UPDATE: Requests._updated,
    Kind.REPEAT: Requests._repeated,
}
