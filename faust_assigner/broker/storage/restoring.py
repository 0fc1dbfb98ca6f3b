"""Restore the logs of all partitions from the store at a start, with one ordered scan per kind of key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby

from faust_assigner.broker.storage.entries import (
    CLEAN,
    ENDED,
    FLOOR,
    HOLE,
    INDEX,
    OFFSET,
    OPEN,
    PLACE_BYTES,
    START,
    Entry,
    Pair,
)
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.store import Store
from faust_assigner.broker.storage.transactions import ABORTED, Aborted

PLACE = slice(1, 1 + PLACE_BYTES)  # the topic id and the partition number in a key


def restore_logs(
    store: Store, logs: Iterable[PartitionLog], progress: Callable[[], None] = lambda: None
) -> None:
    """Restore logs that are still empty.

    ``progress`` is called once for each log with batches, and may raise to stop the start.
    """
    places = {log.place: log for log in logs}
    opened, ended = (_pairs_by_partition(store, kind) for kind in (OPEN, ENDED))
    for place in opened.keys() | ended.keys():
        if place in places:
            _restore_transactions(places[place], opened.get(place, ()), ended.get(place, ()))
    starts, floors, cleans = (_values_by_partition(store, kind) for kind in (START, FLOOR, CLEAN))
    for place, log in places.items():
        _restore_start(log, starts.get(place), cleans.get(place))
    for place, entries in groupby(store.scan(INDEX), key=lambda pair: pair[0][PLACE]):
        progress()
        if place in places:
            _restore_batches(places[place], entries)
    for place, log in places.items():
        _restore_end(log, floors.get(place))


def _values_by_partition(store: Store, kind: bytes) -> dict[bytes, bytes]:
    """Return the values of one kind of key by topic id and partition."""
    return {key[1:]: value for key, value in store.scan(kind)}


def _pairs_by_partition(store: Store, kind: bytes) -> dict[bytes, list[Pair]]:
    """Group the pairs of one kind of key by topic id and partition."""
    found: dict[bytes, list[Pair]] = {}
    for key, value in store.scan(kind):
        found.setdefault(key[PLACE], []).append((key, value))
    return found


def _restore_transactions(log: PartitionLog, opened: Iterable[Pair], ended: Iterable[Pair]) -> None:
    """Restore the open and the aborted transactions, in key order."""
    firsts = [(_number_in_key(key), OFFSET.unpack(value)[0]) for key, value in opened]
    aborted = []
    for key, value in ended:
        producer_id, first, stable = ABORTED.unpack(value)
        aborted.append(Aborted(producer_id, first, _number_in_key(key), stable))
    log.transactions.restore(firsts, aborted)


def _number_in_key(key: bytes) -> int:
    """Return the offset or the producer id in a key."""
    return int(OFFSET.unpack_from(key, PLACE.stop)[0])


def _restore_start(log: PartitionLog, start: bytes | None, clean: bytes | None) -> None:
    """Restore the log start, and the offset up to which the log is compacted."""
    if start is not None:
        (log.start_offset,) = OFFSET.unpack(start)
    if clean is not None:
        (log.cleaned_to,) = OFFSET.unpack(clean)
    log.end_offset = log.start_offset


def _restore_batches(log: PartitionLog, entries: Iterable[Pair]) -> None:
    """Restore the index of batches, in key order, and the missing offsets between them."""
    for key, value in entries:
        base, entry = _number_in_key(key), Entry.unpack(value)
        follows = entry.follows if entry.follows >= 0 else base
        if not len(log.index):
            log.start_offset = max(log.start_offset, follows)
        elif follows != log.end_offset:
            log.holes += ((log.end_offset, follows),)
        log.remember(base, entry.last_delta, entry.size, entry.max_timestamp)
        _restore_producer(log, base, entry)


def _restore_producer(log: PartitionLog, base: int, entry: Entry) -> None:
    """Restore the state of the producer that wrote the batch at offset ``base``."""
    producer_id, epoch, sequence = entry.producer_id, entry.producer_epoch, entry.base_sequence
    if producer_id >= 0 and sequence < 0:
        is_partial = log.start_offset > 0 or log.cleaned_to > 0
        log.producers.mark(producer_id, epoch, entry.appended_ms, is_trimmed=is_partial)
    elif producer_id >= 0:
        log.producers.record(
            producer_id, epoch, sequence, entry.last_delta, base, entry.appended_ms
        )


def _restore_end(log: PartitionLog, floor: bytes | None) -> None:
    """Restore the log end and the losses that an earlier start accepted."""
    if floor is not None:
        log.end_offset = max(log.end_offset, OFFSET.unpack_from(floor)[0])
        log.accepted = tuple((first, end) for first, end in HOLE.iter_unpack(floor[OFFSET.size :]))
    log.flushed_to = log.end_offset
