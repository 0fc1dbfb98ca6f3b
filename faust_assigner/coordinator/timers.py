"""Deadlines by purpose and member. Cost: O(log n) amortised to set or pop, O(1) to move later or drop."""

from __future__ import annotations

import heapq
from enum import Enum
from typing import Final

Deadline = tuple[int, str, str]
SPARE_ENTRIES: Final = 64  # entries of dropped deadlines that the heap may have in any case


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
        #: A heap with an entry at or before each deadline. An early entry is corrected when it becomes the
        #: first entry.
        self._heap: list[Deadline] = []

    def set(self, purpose: Purpose, member_id: str, deadline_ms: int) -> None:
        """Set the deadline, or move it."""
        key = (purpose.value, member_id)
        known = self._deadlines.get(key)
        self._deadlines[key] = deadline_ms
        if known is None or deadline_ms < known:
            heapq.heappush(self._heap, (deadline_ms, *key))
            if len(self._heap) > 2 * len(self._deadlines) + SPARE_ENTRIES:
                # Entries of dropped deadlines may be due in weeks: a client's timeouts have no limit.
                self._heap = [(when, *which) for which, when in self._deadlines.items()]
                heapq.heapify(self._heap)

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
