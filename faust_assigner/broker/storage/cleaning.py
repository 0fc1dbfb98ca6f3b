"""Compaction of one partition: the latest record of each key stays, at its offset (KIP-58, KIP-534).

A pass has two parts. First it reads the dirty batches, which follow the last pass, and maps each key to its
latest offset. Then it goes through all batches in ascending order, in chunks, and removes each record whose
key has a later offset in the map. Each chunk is one atomic write of the store, so a kill at any time leaves a
valid log. The ascending order ensures that a tombstone is removed after all records that it deletes.

Batches at or after the last stable offset and the last batch stay unchanged. Records of aborted transactions
are removed at once. A marker is removed when its transaction has had no batch left for
``delete.retention.ms``. The last batch of each known producer stays, even if empty: a restart needs its
sequence number.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from faust_assigner.broker.storage.bodies import BadBody, Layout, read_layout
from faust_assigner.broker.storage.entries import NONE, Entry
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.records import (
    INT64_MAX,
    LOG_APPEND_TIME,
    BadBatch,
    Batch,
    read_header,
    unpacked_body,
    with_records,
)
from faust_assigner.broker.storage.store import Store

CHUNK_BYTES: Final = 2**20  # bytes of batches in one step of a pass
CHUNK_BATCHES: Final = 2_000
LONGEST_KEY: Final = 31  # bytes; for longer keys the map has digests of 32 bytes
KEY_COST: Final = 200  # bytes of memory for one key in the map
NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """The topic's configs for compaction. Times in ms."""

    min_dirty_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    min_lag_ms: int = 0
    max_lag_ms: int = 2**63 - 1


class Cleanable(NamedTuple):
    """The part of a log that a pass would read: from position ``first_dirty`` to before ``stop``.

    ``ratio`` is the share of dirty bytes. ``is_overdue``: the first dirty batch is older than max_lag_ms.
    """

    first_dirty: int
    stop: int
    ratio: float
    is_overdue: bool


def cleanable(log: PartitionLog, rules: CleaningRules, now_ms: int) -> Cleanable | None:
    """Return the part of a log that a pass could clean now, or None. Cost O(log batches)."""
    index = log.index
    stop = min(len(index) - 1, bisect_left(index.bases, log.stable_offset))
    first_dirty = bisect_left(index.bases, log.cleaned_to)
    if rules.min_lag_ms > 0:
        newest_ms = now_ms - rules.min_lag_ms
        stop = index.first_newer(newest_ms, first_dirty, max(stop, first_dirty), log.appended_ms)
    if first_dirty >= stop:
        return None
    dirty_bytes, all_bytes = index.bytes_between(first_dirty, stop), index.bytes_between(0, stop)
    is_overdue = now_ms - index.time_of(first_dirty, log.appended_ms) > rules.max_lag_ms
    return Cleanable(first_dirty, stop, dirty_bytes / max(all_bytes, 1), is_overdue)


class Outcome(NamedTuple):
    """The result for one batch: new bytes (None: unchanged) and index entry, or its removal."""

    base: int
    data: bytes | None
    before: Entry
    after: Entry
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """The outcomes of consecutive batches, and the batch after them."""

    outcomes: tuple[Outcome, ...]
    next_base: int
    next_entry: Entry


@dataclass(slots=True)
class Pass:
    """One pass over a log: created on the broker's loop; its steps run in any thread, one at a time."""

    store: Store
    bases: Sequence[int]
    sizes: Sequence[int]
    first_dirty: int
    stop: int
    now_ms: int
    delete_retention_ms: int
    max_keys: int
    batch_prefix: bytes
    index_prefix: bytes
    aborted: Mapping[int, Sequence[tuple[int, int]]]  # producer id -> (first offset, marker offset)
    last_batches: Mapping[int, int]  # producer id -> base offset of its last batch with records
    epochs: Mapping[int, int]  # producer id -> epoch, for producers whose last batch is a marker
    latest: dict[bytes, int] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)  # producers with batches in the current transaction
    position: int = 0

    def map_some(self) -> bool:
        """Read some dirty batches into the map; return whether more remain."""
        self.position = self.position or self.first_dirty
        first, behind = self.position, self._step()
        for data in self._load(self.batch_prefix, first, behind):
            if data is not None:
                self._map(data)
        self.position = behind
        if len(self.latest) >= self.max_keys:
            self.stop = behind  # the next pass handles the remaining batches
        is_over = behind >= self.stop
        if is_over:
            self.position = 0
        return not is_over

    def clean_some(self) -> Chunk | None:
        """Decide which records of the next batches stay; return None after the last batch."""
        first = self.position
        if first >= self.stop:
            return None
        self.position = behind = self._step()
        batches = self._load(self.batch_prefix, first, behind)
        entries = self._load(self.index_prefix, first, behind + 1)
        outcomes = []
        for base, data, entry in zip(self.bases[first:behind], batches, entries, strict=False):
            if data is not None and entry is not None:
                outcomes.append(self._decide(base, data, Entry.unpack(entry)))
        if not outcomes or entries[-1] is None:
            return Chunk((), NONE, Entry(0, 0, 0, 0, 0, 0, 0))  # trimmed or deleted during the pass
        return Chunk(tuple(outcomes), self.bases[behind], Entry.unpack(entries[-1]))

    def _step(self) -> int:
        """Return the position after the batches to read in one step."""
        position, size = self.position, 0
        most = min(self.stop, position + CHUNK_BATCHES)
        while position < most and size < CHUNK_BYTES:
            size += self.sizes[position]
            position += 1
        return position

    def _load(self, prefix: bytes, first: int, stop: int) -> list[bytes | None]:
        keys = [prefix + base.to_bytes(8, "big") for base in self.bases[first:stop]]
        return self.store.get_many(keys)

    def _is_aborted(self, batch: Batch) -> bool:
        spans = self.aborted.get(batch.producer_id, ()) if batch.is_transactional else ()
        return any(first <= batch.base_offset <= last for first, last in spans)

    def _map(self, data: bytes) -> None:
        batch = read_header(data)
        if batch.is_control or not batch.count or self._is_aborted(batch):
            return
        read = _records(data, batch)
        if read is None:
            return
        body, layout = read
        has_key = (layout.key_sizes >= 0).tolist()
        rows = zip(_record_keys(body, layout), _record_offsets(batch, layout), has_key, strict=True)
        self.latest.update((key, offset) for key, offset, has in rows if has)

    def _decide(self, base: int, data: bytes, entry: Entry) -> Outcome:
        batch = read_header(data)
        if batch.is_control:
            return self._decide_marker(base, batch, entry)
        if batch.is_transactional:
            self.seen.add(batch.producer_id)
        is_last = self.last_batches.get(batch.producer_id) == base
        if not batch.count or self._is_aborted(batch):
            return _empty_batch_outcome(base, data, batch, entry, stays=is_last)
        read = _records(data, batch)
        if read is None:  # an unreadable batch of an older version, which is kept
            return Outcome(base, None, entry, entry)
        return self._filter(base, data, batch, entry, *read, stays=is_last)

    def _decide_marker(self, base: int, batch: Batch, entry: Entry) -> Outcome:
        had_batches = batch.producer_id in self.seen
        self.seen.discard(batch.producer_id)
        if had_batches or self.epochs.get(batch.producer_id) == batch.producer_epoch:
            return Outcome(base, None, entry, entry)
        if entry.horizon_ms == NONE:
            return Outcome(base, None, entry, self._with_horizon(entry))
        return Outcome(base, None, entry, entry, is_removed=entry.horizon_ms <= self.now_ms)

    def _with_horizon(self, entry: Entry) -> Entry:
        # The longest retention is for ever, and the sum must fit into the entry.
        return entry._replace(horizon_ms=min(self.now_ms + self.delete_retention_ms, INT64_MAX))

    def _filter(
        self,
        base: int,
        data: bytes,
        batch: Batch,
        entry: Entry,
        body: bytes,
        layout: Layout,
        *,
        stays: bool,
    ) -> Outcome:
        keys, offsets = _record_keys(body, layout), _record_offsets(batch, layout)
        latest = self.latest
        keeps = np.fromiter(
            (latest.get(key, NONE) <= at for key, at in zip(keys, offsets, strict=True)),
            np.bool_,
            batch.count,
        )
        keeps &= layout.key_sizes >= 0
        is_tombstone = layout.value_sizes < 0
        if NONE < entry.horizon_ms <= self.now_ms:
            keeps &= ~is_tombstone
        after = entry
        if entry.horizon_ms == NONE and bool((keeps & is_tombstone).any()):
            after = self._with_horizon(entry)
        count = int(keeps.sum())
        if count == batch.count:
            return Outcome(base, None, entry, after)
        if not count:
            return _empty_batch_outcome(base, data, batch, entry, stays=stays)
        newest = batch.max_timestamp
        if not batch.attributes & LOG_APPEND_TIME:
            newest = int((layout.times[keeps] + np.int64(batch.base_timestamp)).max())
        changed = with_records(data, batch, _pick_records(body, layout, keeps), count, newest)
        return Outcome(
            base, changed, entry, after._replace(size=len(changed), max_timestamp=newest)
        )


def _empty_batch_outcome(
    base: int, data: bytes, batch: Batch, entry: Entry, *, stays: bool
) -> Outcome:
    """Return the outcome of a batch that loses all records. If ``stays``, the batch's header remains."""
    if not stays:
        return Outcome(base, None, entry, entry, is_removed=True)
    if not batch.count:
        return Outcome(base, None, entry, entry)
    changed = with_records(data, batch, b"", 0, batch.max_timestamp)
    after = entry._replace(size=len(changed), max_timestamp=NO_TIME)
    return Outcome(base, changed, entry, after)


def _records(data: bytes, batch: Batch) -> tuple[bytes, Layout] | None:
    try:
        body = unpacked_body(data, batch)
        return body, read_layout(body, batch.count)
    except (BadBatch, BadBody):
        return None


def _record_keys(body: bytes, layout: Layout) -> list[bytes]:
    """Return the key of each record: a long key as its digest, a null key as empty bytes."""
    spans = zip(layout.keys_at.tolist(), layout.key_sizes.tolist(), strict=True)
    return [
        body[at : at + size] if size <= LONGEST_KEY else _key_digest(body[at : at + size])
        for at, size in ((at, max(size, 0)) for at, size in spans)
    ]


def _key_digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _record_offsets(batch: Batch, layout: Layout) -> list[int]:
    """Return the offset of each record, limited to the offsets of the batch."""
    offsets: list[int] = (batch.base_offset + layout.offsets.clip(0, batch.last_delta)).tolist()
    return offsets


def _pick_records(
    body: bytes, layout: Layout, keeps: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> bytes:
    """Return the bytes of the records that stay, concatenated."""
    ends = layout.ends.tolist()
    begins = [0, *ends[:-1]]
    return b"".join(body[begins[n] : ends[n]] for n in np.flatnonzero(keeps).tolist())
