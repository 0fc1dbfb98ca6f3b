"""The changes of one table partition that its file does not have yet. Pure: no I/O.

An agent makes a change. The change is *acknowledged* when its changelog record has an offset. Under
``exactly_once`` an acknowledged change *counts* once its transaction is committed, else at once.
Changes that count *land*: they are written to the file in the order of the changelog. A change does
not land before an earlier change that does not count yet. So the file always equals the table at
some offset of its changelog.

    made --acknowledge()--> acknowledged --(transaction committed)--> ready() --remove_written()--> gone
      \\--------------------------- drop() ------------------------------/

Until a change lands or is dropped, it is in the *overlay*: readers see the change instead of the
row in the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Set
from itertools import islice, takewhile
from typing import Protocol

#: Bytes per change in addition to key and value: the objects of the change and of its record.
OVERHEAD = 400

#: The offset of a change without a changelog record; it lands after all changes before it.
NO_RECORD = -1

Row = tuple[bytes, bytes]


class Transaction(Protocol):
    """The transaction of a change."""

    transactional_id: str
    committed: bool


class Usage:
    """The bytes and the number of changes of all overlays of a worker, and their limits."""

    def __init__(self, most_bytes: int, most_changes: int) -> None:
        self.most_bytes, self.most_changes = most_bytes, most_changes
        self.bytes = self.changes = 0

    @property
    def is_full(self) -> bool:
        """Whether a limit is reached: some changes must land before new changes are made."""
        return self.bytes >= self.most_bytes or self.changes >= self.most_changes


class Change:
    """The new value of a key, None for a deletion; ``offset`` is None until acknowledged."""

    __slots__ = ("key", "known_at", "number", "offset", "transaction", "value")

    def __init__(
        self, key: bytes, value: bytes | None, number: int, transaction: Transaction | None
    ) -> None:
        self.key, self.value, self.number, self.transaction = key, value, number, transaction
        self.offset: int | None = None
        #: The number of changes made before the acknowledgement; changes made later have higher
        #: offsets.
        self.known_at = 0

    @property
    def counts(self) -> bool:
        """Whether the change is acknowledged and its transaction, if any, is committed."""
        return self.offset is not None and (self.transaction is None or self.transaction.committed)

    @property
    def size(self) -> int:
        """The approximate bytes in memory."""
        return OVERHEAD + len(self.key) + len(self.value or b"")


class Overlay:
    """Changes of one partition, in the order they were made. An operation on one key costs O(1)."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._pending: deque[Change] = deque()
        self._latest: dict[bytes, Change] = {}
        self._made = 0
        #: Whether pending changes have several transactional ids; their order in the changelog may
        #: then differ.
        self._mixed = False
        #: Whether ready changes may land. They may not land while the file lacks records of other
        #: writers, or belongs to a different worker.
        self.lands = False
        #: The number of changes made before the last restore of the file.
        self._believed = 0

    def __len__(self) -> int:
        return len(self._pending)

    # -- changes

    def put(
        self, key: bytes, value: bytes | None, transaction: Transaction | None = None
    ) -> Change:
        """Add a change; its record follows the records of earlier changes in the changelog."""
        self._made += 1
        change = Change(key, value, self._made, transaction)
        if self._pending and _line(self._pending[-1]) != _line(change):
            self._mixed = True
        self._pending.append(change)
        self._latest[key] = change
        self._usage.bytes += change.size
        self._usage.changes += 1
        return change

    def acknowledge(self, change: Change, offset: int) -> None:
        """Note that the change's record is in the changelog at ``offset``."""
        change.offset, change.known_at = offset, self._made

    def ready(self) -> list[Change]:
        """Return the changes that may land, in changelog order.

        These are the changes before the first change that does not count.
        """
        if self._mixed:
            return self._ready_of_several()
        ready = []
        for change in self._pending:
            if not change.counts:
                break
            ready.append(change)
        return ready

    def _ready_of_several(self) -> list[Change]:
        """Return the changes that may land if several producers write, each in its own order.

        Cost: O(n log n + n * producers). A change without an offset comes in the changelog after
        the changes that were acknowledged before it was made. It also comes after the earlier
        changes of its own producer. All other changes may come after such a change, so they do not
        land.
        """
        unknown: dict[str, int] = {}  # producer -> its first change without an offset
        for change in self._pending:
            if change.offset is None:
                unknown.setdefault(_line(change), change.number)
        limit = min(
            (
                change.offset
                for change in self._pending
                if change.offset is not None and not change.counts and change.offset != NO_RECORD
            ),
            default=None,
        )
        ready = list(
            takewhile(lambda change: change.counts and change.offset == NO_RECORD, self._pending)
        )
        for change in sorted(
            (change for change in self._pending if change.counts), key=_in_the_log
        ):
            offset = _in_the_log(change)[0]
            if offset == NO_RECORD:
                continue  # a change without a changelog record waits for all changes made before it
            if limit is not None and offset > limit:
                break
            mine = _line(change)
            if any(
                number < change.number if line == mine else number <= change.known_at
                for line, number in unknown.items()
            ):
                break
            ready.append(change)
        return ready

    @property
    def is_out_of_order(self) -> bool:
        """Whether the changelog may hold the changes in a different order than this worker."""
        return self._mixed

    def beyond(self, offset: int, changes: Iterable[Change]) -> int | None:
        """Return the first offset of a new change at or below the file's ``offset``, else None.

        Such an offset shows that the file is ahead of its changelog. Changes made before
        ``believe()`` are not checked, because a replay may have written them.
        """
        for change in changes:
            at = change.offset
            if change.number > self._believed and at is not None and NO_RECORD < at <= offset:
                return at
        return None

    def note_restore_end(self) -> None:
        """Note the end of a restore: up to its offset the file has all changes made so far."""
        self._believed = self._made

    def read(self, offset: int) -> None:
        """Remove the changes that count, up to ``offset``: the file now has them.

        A change without an offset comes after ``offset`` in the changelog, whenever it was made.
        """
        if self._mixed:
            self.remove_written(
                [
                    change
                    for change in self._pending
                    if change.counts
                    and change.offset is not None
                    and NO_RECORD < change.offset <= offset
                ]
            )

    def remove_written(self, changes: list[Change]) -> None:
        """Remove ``changes``, which were ``ready()`` and are now in the file."""
        if changes and not self._mixed:
            for _ in changes:
                self._forget(self._pending.popleft())
        else:
            self._remove({change.number for change in changes})

    def drop(self, transaction: Transaction | None = None) -> set[bytes]:
        """Forget the changes of ``transaction``, by default all changes; return the changed keys.

        Readers then see the rows as they were before.
        """
        gone = {
            change.number: change.key
            for change in self._pending
            if transaction is None or change.transaction is transaction
        }
        self._remove(gone.keys())
        return set(gone.values())

    def _remove(self, numbers: Set[int]) -> None:
        if not numbers:
            return
        before, self._pending, self._latest = self._pending, deque(), {}
        for change in before:
            if change.number in numbers:
                self._usage.bytes -= change.size
                self._usage.changes -= 1
            else:
                self._pending.append(change)
                self._latest[change.key] = change
        self._mixed = any(
            _line(one) != _line(other)
            for one, other in zip(self._pending, islice(self._pending, 1, None), strict=False)
        )

    def _forget(self, change: Change) -> None:
        if self._latest.get(change.key) is change:
            del self._latest[change.key]
        self._usage.bytes -= change.size
        self._usage.changes -= 1

    # -- the readers' view

    def get(self, key: bytes) -> Change | None:
        """Return the last change of ``key``, even a deletion; None if the file's row is current."""
        return self._latest.get(key)

    def rows(self) -> list[bytes]:
        """Return the keys whose last change is a value, not a deletion."""
        return [key for key, change in self._latest.items() if change.value is not None]

    def over(
        self, rows: Iterable[Row], start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[Row]:
        """Yield ``rows`` of the file from ``start`` to before ``stop``, with the changes applied.

        The rows are in the order of keys. The iteration uses the changes that are present when the
        first row is requested.
        """
        changed = sorted(
            (key, change.value)
            for key, change in self._latest.items()
            if (start is None or key >= start) and (stop is None or key < stop)
        )
        place = 0
        for key, value in rows:
            if (start is not None and key < start) or (stop is not None and key >= stop):
                continue
            while place < len(changed) and changed[place][0] < key:
                name, new = changed[place]
                place += 1
                if new is not None:
                    yield name, new
            if place < len(changed) and changed[place][0] == key:
                new = changed[place][1]
                place += 1
                if new is not None:
                    yield key, new
            else:
                yield key, value
        for name, new in changed[place:]:
            if new is not None:
                yield name, new


def _line(change: Change) -> str:
    return "" if change.transaction is None else change.transaction.transactional_id


def _in_the_log(change: Change) -> tuple[int, int]:
    return change.offset if change.offset is not None else NO_RECORD, change.number
