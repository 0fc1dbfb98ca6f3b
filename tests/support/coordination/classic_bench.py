"""A classic group on a bench: virtual time, saves that succeed or fail, answers by request."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    Saved,
    SyncGroup,
    TimersDue,
)

SESSION_MS = 10_000
REBALANCE_MS = 60_000
MOST_RINGS = 1_000  # rings in one wait; a timer that rings more often is set to the past
NO_DELAY = GroupLimits(initial_rebalance_delay_ms=0)


class Bench:
    """Feed events to a group; ``answers`` has every reply by token, ``records`` every save."""

    def __init__(self, limits: GroupLimits = NO_DELAY, now_ms: int = 1_000) -> None:
        self.now = now_ms
        self.group = ClassicGroup("g", limits, self.now)
        self.answers: dict[int, fx.Reply] = {}
        self.records: list[fx.GroupRecord] = []
        self.happened: list[tuple[str, str]] = []
        self.save_error = Code.NONE
        self.dropped = False
        self._tokens = itertools.count(1)
        self._names = itertools.count(1)

    def feed(self, event: Event) -> None:
        """Feed an event now; saves are answered at once."""
        for effect in self.group.step(event, self.now):
            match effect:
                case fx.SaveGroup(record, save_id):
                    if self.save_error is Code.NONE:
                        self.records.append(record)
                    if save_id is not None:
                        self.feed(Saved(save_id, self.save_error))
                case fx.Happened(what, member_id, _):
                    self.happened.append((what, member_id))
                case fx.DropGroup():
                    self.dropped = True
                case _:
                    assert effect.token not in self.answers, f"answered twice: {effect}"
                    self.answers[effect.token] = effect

    def pass_time(self, ms: int) -> None:
        """Advance the clock and tick at each due timer."""
        end = self.now + ms
        for _ in range(MOST_RINGS):
            due = self.group.next_deadline_ms
            if due is None or due > end:
                break
            self.now = max(due, self.now)
            self.feed(TimersDue())
        else:
            raise AssertionError("timers ring without end")
        self.now = end

    def token(self) -> int:
        """Return a token for a new request."""
        return next(self._tokens)

    def ask(self, event: Event) -> fx.Reply:
        """Feed a request that is answered at once; return the reply."""
        self.feed(event)
        return self.answers[event.token]  # type: ignore[union-attr]

    def join_event(self, member_id: str = "", **changes: object) -> JoinGroup:
        """Return a JoinGroup with defaults."""
        values: dict[str, object] = {
            "token": self.token(),
            "member_id": member_id,
            "new_member_id": f"m{next(self._names)}",
            "protocols": (Protocol("range", b"meta"),),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "needs_known_id": False,
        }
        return JoinGroup(**(values | changes))  # type: ignore[arg-type]

    def join(self, member_id: str = "", **changes: object) -> int:
        """Send a JoinGroup; return its token."""
        event = self.join_event(member_id, **changes)
        self.feed(event)
        return event.token

    def joined(self, token: int) -> fx.JoinReply:
        """Return the answer to a join, which must have arrived."""
        reply = self.answers[token]
        assert isinstance(reply, fx.JoinReply)
        return reply

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        given: Mapping[str, bytes] | None = None,
        **changes: object,
    ) -> int:
        """Send a SyncGroup of the current generation; return its token."""
        token = self.token()
        wanted = self.group.generation if generation is None else generation
        self.feed(SyncGroup(token, member_id, wanted, assignments=given or {}, **changes))  # type: ignore[arg-type]
        return token

    def heartbeat(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None
    ) -> Code:
        """Send a Heartbeat of the current generation; return its error."""
        wanted = self.group.generation if generation is None else generation
        return self.ask(Heartbeat(self.token(), member_id, wanted, instance_id)).error

    def commit(
        self, member_id: str = "", generation: int = -1, instance_id: str | None = None
    ) -> Code:
        """Ask whether a commit is accepted."""
        return self.ask(CommitOffsets(self.token(), member_id, generation, instance_id)).error

    def leave(self, *leavers: Leaver) -> fx.LeaveReply:
        """Send a LeaveGroup."""
        reply = self.ask(LeaveGroup(self.token(), leavers))
        assert isinstance(reply, fx.LeaveReply)
        return reply

    def stable(self, members: int = 2, instances: bool = False) -> list[str]:
        """Make a Stable group of ``members`` members; return their ids, the leader first."""
        ids: list[str] = []
        for number in range(members):
            tokens = [self.join(instance_id=f"i{number}" if instances else None)]
            tokens += [
                self.join(member_id, instance_id=f"i{n}" if instances else None)
                for n, member_id in enumerate(ids)
            ]
            self.pass_time(0)
            ids = [self.joined(t).member_id for t in (*tokens[1:], tokens[0])]
        leader = self.group.roster.leader or ""
        for member_id in ids:
            given = {m: b"a-" + m.encode() for m in ids} if member_id == leader else {}
            self.sync(member_id, given=given)
        assert self.group.state.value == "Stable"
        return sorted(ids, key=lambda m: (m != leader, m))
