"""Begin, apply and end a compaction pass over a log. Runs only on the broker's event loop."""

from __future__ import annotations

from bisect import bisect_left

from faust_assigner.broker.storage.batch_index import Row
from faust_assigner.broker.storage.cleaning import Chunk, Cleanable, CleaningRules, Outcome, Pass
from faust_assigner.broker.storage.entries import BATCHES, CLEAN, INDEX, OFFSET, Entry, Pair
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.store import WITH_COMPACTION, raise_format


def begin(
    log: PartitionLog, found: Cleanable, rules: CleaningRules, now_ms: int, max_keys: int
) -> Pass:
    """Begin a pass over the batches that are cleanable now; later appends and trims do not affect it."""
    index, beyond = log.index, log.index.bases[found.stop]
    aborted: dict[int, list[tuple[int, int]]] = {}
    for one in log.aborted(log.start_offset, beyond):
        aborted.setdefault(one.producer_id, []).append((one.first, one.last))
    last_batches, epochs = {}, {}
    for producer_id, state in log.producers.items():
        if state.batches:
            last_batches[producer_id] = state.batches[-1][2]
        else:
            epochs[producer_id] = state.epoch
    return Pass(
        log.store,
        index.bases[: found.stop + 1],
        index.sizes[: found.stop],
        found.first_dirty,
        found.stop,
        now_ms,
        rules.delete_retention_ms,
        max_keys,
        BATCHES + log.place,
        INDEX + log.place,
        aborted,
        last_batches,
        epochs,
    )


def apply(log: PartitionLog, chunk: Chunk) -> int:
    """Apply a chunk in one write; return the bytes freed. Raises StoreFailed.

    Batches that were trimmed after the chunk was computed are skipped.
    """
    index = log.index
    oldest = index.bases[0] if index.bases else log.end_offset
    outcomes = [one for one in chunk.outcomes if one.base >= oldest]
    if not outcomes or log.deleted:
        return 0
    first = bisect_left(index.bases, outcomes[0].base)
    expected = index.nexts[first - 1] if first else log.start_offset
    puts, rows = _writes_of_kept(log, outcomes, expected)
    before = sum(index.sizes[first : first + len(outcomes)])
    behind = rows[-1].following if rows else expected
    following = _link_entry(chunk.next_entry, chunk.next_base, behind)
    if following != chunk.next_entry:
        puts.append((log.index_key(chunk.next_base), following.pack()))
    gone = [one.base for one in outcomes if one.is_removed]
    if not puts and not gone:
        return 0
    deletes = [key(base) for base in gone for key in (log.batch_key, log.index_key)]
    markers = sorted({*gone}.intersection(log.transactions.aborted_markers())) if gone else []
    deletes += map(log.ended_key, markers)
    puts += raise_format(log.store, WITH_COMPACTION)
    log.store.write(puts, deletes, is_rewrite=True)
    log.cleanings += 1
    index.replace(first, first + len(outcomes), rows)
    for base in markers:
        log.transactions.forget(base)
    return before - sum(row.size for row in rows)


def _writes_of_kept(
    log: PartitionLog, outcomes: list[Outcome], expected: int
) -> tuple[list[Pair], list[Row]]:
    """Return the writes and the index rows of the batches that stay."""
    puts: list[Pair] = []
    rows: list[Row] = []
    for one in outcomes:
        if one.is_removed:
            continue
        after = _link_entry(one.after, one.base, expected)
        if after != one.before:
            puts.append((log.index_key(one.base), after.pack()))
        if one.data is not None:
            puts.append((log.batch_key(one.base), one.data))
        expected = one.base + after.last_delta + 1
        rows.append(Row(one.base, expected, after.size, after.max_timestamp))
    return puts, rows


def _link_entry(entry: Entry, base: int, expected: int) -> Entry:
    """Return the entry of the batch at ``base``; ``follows`` records a gap after offset ``expected``."""
    return entry if base <= expected else entry._replace(follows=expected)


def end(log: PartitionLog, done: Pass) -> None:
    """Store the offset up to which the log is clean, for later passes and starts. Raises StoreFailed."""
    if log.deleted:
        return
    beyond = done.bases[done.stop]
    log.store.write(
        [(CLEAN + log.place, OFFSET.pack(beyond)), *raise_format(log.store, WITH_COMPACTION)]
    )
    log.cleaned_to = beyond
