"""The changes of a table partition with other writers. Pure: no I/O.

When this worker reads its own changes back from the changelog, they are written to the file, in
order with the other writers' changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from heapq import heappop, heappush

from faust_assigner.app.tables.changes import Change, Overlay, Transaction, Usage


class ReadBackOverlay(Overlay):
    """Changes of a partition with other writers: a change stays in memory until read back.

    No change is ever ``ready()`` to be written by itself. Each change costs O(log n).
    """

    def __init__(self, usage: Usage) -> None:
        super().__init__(usage)
        #: The change numbers of the pending changes that the file does not have.
        self._open: set[int] = set()
        #: A heap of the changes whose offset is known; changes no longer in ``_open`` are skipped.
        self._known: list[tuple[int, int, Change]] = []

    def __len__(self) -> int:
        return len(self._open)

    def put(
        self, key: bytes, value: bytes | None, transaction: Transaction | None = None
    ) -> Change:
        """Add a change."""
        change = super().put(key, value, transaction)
        self._open.add(change.number)
        return change

    def acknowledge(self, change: Change, offset: int) -> None:
        """Note that the change's record is in the changelog at ``offset``."""
        super().acknowledge(change, offset)
        heappush(self._known, (offset, change.number, change))

    def ready(self) -> list[Change]:
        """Return no changes: changes are written when this worker reads them back."""
        return []

    @property
    def is_out_of_order(self) -> bool:
        """Always true: other writers' changes lie between this worker's changes."""
        return True

    def read(self, offset: int) -> None:
        """Note that the file has the changelog up to ``offset``, this worker's changes included."""
        while self._known and self._known[0][0] <= offset:
            _, number, change = heappop(self._known)
            if number in self._open:
                self._open.remove(number)
                self._forget(change)
        while self._pending and self._pending[0].number not in self._open:
            self._pending.popleft()

    def _remove(self, numbers: Set[int]) -> None:
        self._pending = deque(change for change in self._pending if change.number in self._open)
        super()._remove(numbers)
        self._open -= numbers
