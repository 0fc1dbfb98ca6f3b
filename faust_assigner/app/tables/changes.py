"""The changes of one table partition that its file does not have yet; pure.

A change is made by an agent, then *acknowledged*: its changelog record has an offset. Under ``exactly_once``
it counts once its transaction is committed, else at once. What counts *lands* in the file, in the order of
the changelog and never past one that does not count yet: the file is the changelog folded up to some offset.

    made --acknowledge()--> acknowledged --(transaction committed)--> ready() --landed()--> gone
      \\--------------------------- drop() ------------------------------/

Until then readers see it over the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Set
from heapq import heappop, heappush
from itertools import islice, takewhile
from typing import Protocol

#: Bytes that a change takes besides its key and value: the objects that hold it, and its record's.
OVERHEAD = 400

#: The offset of a change without a record in the changelog: it lands once all before it have.
NO_RECORD = -1

Row = tuple[bytes, bytes]


class Transaction(Protocol):
    """What a change may belong to."""

    transactional_id: str
    committed: bool


class Usage:
    """What all overlays of a worker take together, and how much they may."""

    def __init__(self, most_bytes: int, most_changes: int) -> None:
        self.most_bytes, self.most_changes = most_bytes, most_changes
        self.bytes = self.changes = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be made before something has landed."""
        return self.bytes >= self.most_bytes or self.changes >= self.most_changes


class Change:
    """The new value of a key, None for a deletion; ``offset`` is None until it is acknowledged."""

    __slots__ = ("key", "known_at", "number", "offset", "transaction", "value")

    def __init__(
        self, key: bytes, value: bytes | None, number: int, transaction: Transaction | None
    ) -> None:
        self.key, self.value, self.number, self.transaction = key, value, number, transaction
        self.offset: int | None = None
        #: How many changes had been made when it was acknowledged: later ones are behind it in the changelog.
        self.known_at = 0

    @property
    def counts(self) -> bool:
        """Whether it is in the changelog for good."""
        return self.offset is not None and (self.transaction is None or self.transaction.committed)

    @property
    def size(self) -> int:
        """Bytes in memory, roughly."""
        return OVERHEAD + len(self.key) + len(self.value or b"")


class Overlay:
    """Changes of one partition, in the order they were made. Each operation on one key costs O(1)."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage
        self._pending: deque[Change] = deque()
        self._latest: dict[bytes, Change] = {}
        self._made = 0
        #: Whether changes of several transactional ids are among the pending: one's order is not the log's.
        self._mixed = False
        #: Whether what is ready may land: not while the file lacks records of others, or is somebody else's.
        self.lands = False
        #: How many changes had been made when the file was restored last.
        self._believed = 0

    def __len__(self) -> int:
        return len(self._pending)

    # -- changes

    def put(
        self, key: bytes, value: bytes | None, transaction: Transaction | None = None
    ) -> Change:
        """A change was made; its record goes to the changelog after those of the changes before it."""
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
        """The change's record is in the changelog at ``offset``."""
        change.offset, change.known_at = offset, self._made

    def ready(self) -> list[Change]:
        """What may land, in the changelog's order: all that counts before the first that does not."""
        if self._mixed:
            return self._ready_of_several()
        ready = []
        for change in self._pending:
            if not change.counts:
                break
            ready.append(change)
        return ready

    def _ready_of_several(self) -> list[Change]:
        """Two producers write, each in its own order; sorted, O(n log n + n * producers).

        What has no offset yet is behind a change that was acknowledged before it was made, and behind an
        earlier one of its own producer; nothing else is known of it.
        """
        unknown: dict[str, int] = {}  # of each producer the first change without an offset
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
                continue  # such a one waits for all that were made before it
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
        """Whether its changes are in the changelog in another order than they were made in."""
        return self._mixed

    def beyond(self, offset: int, changes: Iterable[Change]) -> int | None:
        """The offset of the first of ``changes`` that a file at ``offset`` is beyond for no reason.

        A replay may have brought what had been made before ``believe()``; what came after is behind it.
        """
        for change in changes:
            at = change.offset
            if change.number > self._believed and at is not None and NO_RECORD < at <= offset:
                return at
        return None

    def believe(self) -> None:
        """The file has been restored: whatever it is beyond of all that was made so far, it has."""
        self._believed = self._made

    def read(self, offset: int) -> None:
        """The file has all of the changelog up to ``offset``: what counts up to there is in it.

        What has no offset yet is behind that, whenever it was made.
        """
        if self._mixed:
            self.landed(
                [
                    change
                    for change in self._pending
                    if change.counts
                    and change.offset is not None
                    and NO_RECORD < change.offset <= offset
                ]
            )

    def landed(self, changes: list[Change]) -> None:
        """The file has ``changes``, which were ``ready()``."""
        if changes and not self._mixed:
            for _ in changes:
                self._forget(self._pending.popleft())
        else:
            self._remove({change.number for change in changes})

    def drop(self, transaction: Transaction | None = None) -> set[bytes]:
        """Forget what ``transaction`` changed, or everything: readers see what was before; of these keys."""
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

    # -- what readers see

    def get(self, key: bytes) -> Change | None:
        """The last change of ``key``, a deletion too; None where the file is right."""
        return self._latest.get(key)

    def rows(self) -> list[bytes]:
        """The keys that readers see a value of ours for."""
        return [key for key, change in self._latest.items() if change.value is not None]

    def over(
        self, rows: Iterable[Row], start: bytes | None = None, stop: bytes | None = None
    ) -> Iterator[Row]:
        """``rows`` of the file from ``start`` to before ``stop``, in the order of keys, with our changes.

        As things are when the first row is asked for.
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


class ReadBack(Overlay):
    """Changes of a partition that others write, too: each is over the file until it is read back.

    Nothing is ever ``ready()`` to be written by itself. Each change costs O(log n).
    """

    def __init__(self, usage: Usage) -> None:
        super().__init__(usage)
        #: Numbers of those pending that the file does not have.
        self._open: set[int] = set()
        #: Those whose offset is known, a heap; what is not open is passed over.
        self._known: list[tuple[int, int, Change]] = []

    def __len__(self) -> int:
        return len(self._open)

    def put(
        self, key: bytes, value: bytes | None, transaction: Transaction | None = None
    ) -> Change:
        """A change was made."""
        change = super().put(key, value, transaction)
        self._open.add(change.number)
        return change

    def acknowledge(self, change: Change, offset: int) -> None:
        """The change's record is in the changelog at ``offset``."""
        super().acknowledge(change, offset)
        heappush(self._known, (offset, change.number, change))

    def ready(self) -> list[Change]:
        """Nothing."""
        return []

    @property
    def is_out_of_order(self) -> bool:
        """Changes of others are between them."""
        return True

    def read(self, offset: int) -> None:
        """The file has all of the changelog up to ``offset``, what was changed here included."""
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


def _line(change: Change) -> str:
    return "" if change.transaction is None else change.transaction.transactional_id


def _in_the_log(change: Change) -> tuple[int, int]:
    return change.offset if change.offset is not None else NO_RECORD, change.number
