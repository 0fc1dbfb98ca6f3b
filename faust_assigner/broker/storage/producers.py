"""Idempotent producers of one partition: recognise retries, refuse gaps (KIP-98, KIP-360)."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.limits import MAX_PRODUCERS_PER_PARTITION
from faust_assigner.broker.storage.records import Batch

REMEMBERED_BATCHES: Final = 5  # the most batches that a producer may have in flight
COORDINATOR_EPOCH: Final = 0  # the only coordinator never changes
MAX_SEQUENCE: Final = 2**31 - 1


@dataclass(slots=True)
class ProducerState:
    """The last batches of one producer id: (first sequence, last sequence, base offset)."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES)
    )
    last_seen_ms: int = 0
    #: The epoch of the coordinator that ended a transaction of the producer; -1 before the first end.
    coordinator_epoch: int = -1
    #: Whether retention deleted the producer's batches. Then the next batch may have any sequence.
    is_forgotten: bool = False

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 if the epoch has no record yet."""
        return self.batches[-1][1] if self.batches else -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on a batch: append or refuse it, or repeat the answer to its first copy."""

    error: ErrorCode = ErrorCode.none
    duplicate_of: int | None = None


class ProducerBook:
    """Producer id -> state, for one partition; at the limit the longest idle producer is dropped."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def judge(self, batch: Batch) -> Verdict:
        """Decide whether the batch continues its producer's sequence."""
        if not batch.has_producer:
            return Verdict()
        state = self._states.get(batch.producer_id)
        if state is None:
            return Verdict()
        if batch.producer_epoch < state.epoch:
            return Verdict(ErrorCode.invalid_producer_epoch)
        if batch.producer_epoch > state.epoch:
            fresh = batch.base_sequence == 0
            return Verdict() if fresh else Verdict(ErrorCode.out_of_order_sequence_number)
        last_sequence = advance(batch.base_sequence, batch.last_delta)
        for first, last, base_offset in state.batches:
            if (first, last) == (batch.base_sequence, last_sequence):
                return Verdict(duplicate_of=base_offset)
        expected = advance(state.batches[-1][1], 1) if state.batches else 0
        if batch.base_sequence == expected or state.is_forgotten:
            return Verdict()
        return Verdict(ErrorCode.out_of_order_sequence_number)

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_delta: int,
        base_offset: int,
        now_ms: int,
    ) -> None:
        """Record an appended batch."""
        state = self._states.pop(producer_id, None)
        if state is None or state.epoch != epoch:
            marked = -1 if state is None else state.coordinator_epoch
            state = ProducerState(epoch, coordinator_epoch=marked)
        state.is_forgotten = False
        state.batches.append((base_sequence, advance(base_sequence, last_delta), base_offset))
        state.last_seen_ms = now_ms
        self._keep(producer_id, state)

    def mark(self, producer_id: int, epoch: int, now_ms: int, *, is_trimmed: bool = False) -> None:
        """Record the marker of a transaction's end; with a later epoch, the sequence starts again at 0.

        ``is_trimmed``: older batches were deleted, perhaps also batches of this epoch.
        """
        state = self._states.pop(producer_id, None)
        if state is None or state.epoch != epoch:
            state = ProducerState(epoch, is_forgotten=is_trimmed and state is None)
        state.last_seen_ms, state.coordinator_epoch = now_ms, COORDINATOR_EPOCH
        self._keep(producer_id, state)

    def _keep(self, producer_id: int, state: ProducerState) -> None:
        self._states[producer_id] = state  # re-inserted last, so the longest idle producer is first
        if len(self._states) > MAX_PRODUCERS_PER_PARTITION:
            del self._states[next(iter(self._states))]

    def items(self) -> Iterator[tuple[int, ProducerState]]:
        """Return producer ids and their states, in order of their last use."""
        return iter(self._states.items())

    def expire(self, idle_since_ms: int, kept: Container[int] = ()) -> None:
        """Forget producers last seen before ``idle_since_ms``, except ``kept`` (open transactions)."""
        idle = [p for p, s in self._states.items() if s.last_seen_ms < idle_since_ms]
        for producer_id in idle:
            if producer_id not in kept:
                del self._states[producer_id]


def advance(sequence: int, by: int) -> int:
    """Advance a sequence number; after 2**31 - 1 it wraps to 0."""
    return (sequence + by) % (MAX_SEQUENCE + 1)
