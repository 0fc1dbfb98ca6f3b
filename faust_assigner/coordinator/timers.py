"""Deadlines by purpose and member. Cost: O(log n) amortised to set or pop, O(1) to move later or drop."""

from __future__ import annotations

import heapq
from enum import Enum

Deadline = tuple[int, str, str]


class Purpose(Enum):
    """The purpose of a timer; the value orders timers with equal deadlines."""

    SESSION = "1 session"
    REBALANCE = "2 rebalance"
    JOIN = "3 join"
    SYNC = "4 sync"
    PENDING = "5 pending id"
    TARGET = "6 target"
    RETRY = "7 retry"


class Timers:
    """At most one deadline for each purpose and member."""

    def __init__(self) -> None:
        self._deadlines: dict[tuple[str, str], int] = {}
        #: Has an entry at or before each deadline; an early entry is corrected when it becomes the first.
        self._heap: list[Deadline] = []

    def set(self, purpose: Purpose, member_id: str, deadline_ms: int) -> None:
        """Set the deadline, or move it."""
        key = (purpose.value, member_id)
        known = self._deadlines.get(key)
        self._deadlines[key] = deadline_ms
        if known is None or deadline_ms < known:
            heapq.heappush(self._heap, (deadline_ms, *key))

    def get(self, purpose: Purpose, member_id: str) -> int | None:
        """Return the deadline, or None."""
        return self._deadlines.get((purpose.value, member_id))

    def drop(self, purpose: Purpose, member_id: str) -> None:
        """Remove the deadline, if set."""
        self._deadlines.pop((purpose.value, member_id), None)

    def drop_member(self, member_id: str) -> None:
        """Remove all deadlines of a member."""
        for purpose in Purpose:
            self.drop(purpose, member_id)

    def rename(self, purpose: Purpose, old_id: str, new_id: str) -> None:
        """Transfer a deadline from a member's old id to its new id."""
        deadline = self.get(purpose, old_id)
        self.drop(purpose, old_id)
        if deadline is not None:
            self.set(purpose, new_id, deadline)

    def earliest(self) -> int | None:
        """Return the next deadline, or None."""
        while self._heap:
            deadline, purpose, member_id = self._heap[0]
            current = self._deadlines.get((purpose, member_id))
            if current == deadline:
                return deadline
            heapq.heappop(self._heap)
            if current is not None:
                heapq.heappush(self._heap, (current, purpose, member_id))
        return None

    def pop_due(self, now_ms: int) -> tuple[Purpose, str] | None:
        """Remove and return the earliest due timer, or None; ties are broken by purpose, then member id."""
        earliest = self.earliest()
        if earliest is None or earliest > now_ms:
            return None
        _, purpose, member_id = heapq.heappop(self._heap)
        del self._deadlines[(purpose, member_id)]
        return Purpose(purpose), member_id
