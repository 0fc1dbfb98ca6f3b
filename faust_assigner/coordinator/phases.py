"""The join phase and the sync phase of a classic group's rebalance, with their deadlines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class JoinPhase:
    """The wait for the members' joins; runs only in PreparingRebalance."""

    deadline_ms: int | None = None
    #: The remaining extension of the initial delay, None outside this delay. While a new group waits
    #: for more members, the phase does not end when all known members have joined.
    initial_wait_ms: int | None = None
    #: Whether a member has joined since the delay was last set. Only then is the delay extended.
    newcomer_since_delay: bool = False

    def begin(self, now_ms: int, timeout_ms: int) -> None:
        """Wait for the members until the rebalance timeout."""
        self.initial_wait_ms = None
        self.deadline_ms = now_ms + timeout_ms

    def begin_new_group(self, now_ms: int, timeout_ms: int, delay_ms: int) -> None:
        """Wait for more members: members of a new group tend to arrive together (KIP-134)."""
        self.initial_wait_ms = max(timeout_ms - delay_ms, 0)
        self.newcomer_since_delay = False
        self.deadline_ms = now_ms + delay_ms

    def extend(self, now_ms: int, delay_ms: int) -> bool:
        """Extend the initial delay if members still arrive; return whether it was extended."""
        left = self.initial_wait_ms or 0
        delay = min(delay_ms, left)
        if not (delay and self.newcomer_since_delay):
            self.initial_wait_ms = None
            return False
        self.initial_wait_ms = left - delay
        self.newcomer_since_delay = False
        self.deadline_ms = now_ms + delay
        return True


@dataclass(slots=True)
class SyncPhase:
    """The wait for the members' syncs; the deadline is None exactly when no member is missing."""

    deadline_ms: int | None = None
    #: The members of this generation that have not synced.
    missing: set[str] = field(default_factory=set)

    def begin(self, members: Iterable[str], deadline_ms: int) -> None:
        """Wait for these members."""
        self.missing = set(members)
        self.deadline_ms = deadline_ms

    def end(self) -> None:
        """End the wait."""
        self.missing.clear()
        self.deadline_ms = None

    def synced(self, member_id: str) -> None:
        """Record a member's sync; the last sync ends the wait."""
        self.missing.discard(member_id)
        if not self.missing:
            self.deadline_ms = None

    def rename(self, old_id: str, new_id: str) -> None:
        """Wait for a member under its new id."""
        if old_id in self.missing:
            self.missing = self.missing - {old_id} | {new_id}
