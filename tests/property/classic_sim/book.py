"""The state needed to judge the next event: last requests, running timers, and assignments."""

from __future__ import annotations

from dataclasses import dataclass, field

from faust_assigner.coordinator.classic import State
from tests.property.classic_sim.seen import GroupSeen

NEWCOMER_MS = 300_000  # the maximum wait of a parked newcomer: it sends no heartbeats


@dataclass
class Window:
    """A new group's wait for more members (KIP-134): in steps, at most the rebalance timeout."""

    delay: int
    ends: int
    step: int
    left: int
    newcomer: bool = False

    def extends(self) -> bool:
        """Whether the end is only postponed."""
        return self.newcomer and self.left > 0 and self.step > 0

    def extend(self, now: int) -> None:
        """Extend the window by another step."""
        used, self.step = self.step, min(self.delay, self.left)
        self.left = max(self.left - used, 0)
        self.ends, self.newcomer = now + self.step, False


@dataclass
class Book:
    """Deadlines in ms, derived from members' requests and the answers."""

    heard: dict[str, int] = field(default_factory=dict)
    newcomers: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    window: Window | None = None
    join_due: tuple[int, int] | None = None  # not before, not after
    sync_due: int | None = None
    unsynced: set[str] = field(default_factory=set)
    given: dict[str, bytes] = field(default_factory=dict)
    told: int = 0  # the latest generation in any answer
    disk: GroupSeen | None = None  # the group after a restart
    empty_since: int = 0

    def session_over(self, member_id: str, seen: GroupSeen, now: int) -> bool:
        """Whether a member's session or its wait as a parked newcomer is over."""
        if member_id in self.newcomers:
            return now >= self.newcomers[member_id] + NEWCOMER_MS
        member = seen.members[member_id]
        return not member.parked and now >= self.heard[member_id] + member.session_ms

    def missed_join(self, member_id: str, seen: GroupSeen, now: int) -> bool:
        """Whether the join phase may end without this member."""
        member = seen.members[member_id]
        over = self.window.ends if self.window else self.join_due[0] if self.join_due else None
        return over is not None and now >= over and not member.joins and member.instance_id is None

    def missed_sync(self, member_id: str, now: int) -> bool:
        """Whether the member may be evicted for a missing SyncGroup."""
        return self.sync_due is not None and now >= self.sync_due and member_id in self.unsynced

    def overdue(self, seen: GroupSeen, now: int) -> str | None:
        """The description of an overdue timer, or None."""
        for member_id in seen.members:
            if self.session_over(member_id, seen, now):
                return f"the session of {member_id} is over"
        if any(deadline <= now for deadline in self.pending.values()):
            return f"an unused id is still waited for: {self.pending}"
        if self.window is not None and self.window.ends <= now:
            return "the initial delay is over"
        if self.join_due is not None and self.join_due[1] <= now:
            return "the join phase is over"
        if self.sync_due is not None and self.sync_due <= now:
            return f"{self.unsynced} should have synced"
        return None

    def rename(self, old: str, new: str) -> None:
        """Move a static member's entries to its new id."""
        self.heard.pop(old, None)
        self.newcomers.pop(old, None)
        if old in self.given:
            self.given[new] = self.given.pop(old)
        if old in self.unsynced:
            self.unsynced = self.unsynced - {old} | {new}

    def forget(self, gone: set[str]) -> None:
        """Drop the removed members."""
        for member_id in gone:
            self.heard.pop(member_id, None)
            self.newcomers.pop(member_id, None)
        self.unsynced -= gone

    def restarted(self, seen: GroupSeen, now: int) -> None:
        """Restart all sessions and phases; no request is parked after a broker restart."""
        self.heard = dict.fromkeys(seen.members, now)
        self.newcomers, self.pending, self.unsynced = {}, {}, set()
        self.window = self.sync_due = self.join_due = None
        if seen.state is State.PREPARING:
            wait = slowest(seen)
            self.join_due = (now + wait, now + wait)


def slowest(seen: GroupSeen) -> int:
    """The rebalance timeout of the group."""
    return max((m.rebalance_ms for m in seen.members.values()), default=0)
