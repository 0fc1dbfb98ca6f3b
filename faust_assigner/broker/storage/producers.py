"""Idempotent producers of one partition: a retry is recognised, a gap is refused (KIP-98, KIP-360)."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.limits import MAX_PRODUCERS_PER_PARTITION
from faust_assigner.broker.storage.records import Batch

REMEMBERED_BATCHES: Final = 5  # as many as a producer may have in flight
COORDINATOR_EPOCH: Final = 0  # there has only ever been one coordinator
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
    #: Whether its batches were trimmed and are forgotten: the next one may have any sequence.
    is_forgotten: bool = False

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 where the epoch has none yet."""
        return self.batches[-1][1] if self.batches else -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a batch: append it, refuse it, or repeat the answer the first copy got."""

    error: ErrorCode = ErrorCode.none
    duplicate_of: int | None = None


class ProducerBook:
    """Producer id -> state, for one partition; the longest idle one goes when there are too many."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def judge(self, batch: Batch) -> Verdict:
        """Whether the batch continues its producer's sequence."""
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
        """Remember an appended batch."""
        state = self._states.pop(producer_id, None)
        if state is None or state.epoch != epoch:
            marked = -1 if state is None else state.coordinator_epoch
            state = ProducerState(epoch, coordinator_epoch=marked)
        state.is_forgotten = False
        state.batches.append((base_sequence, advance(base_sequence, last_delta), base_offset))
        state.last_seen_ms = now_ms
        self._states[producer_id] = state  # re-inserted: the dict runs from longest idle to latest
        if len(self._states) > MAX_PRODUCERS_PER_PARTITION:
            del self._states[next(iter(self._states))]

    def mark(self, producer_id: int, epoch: int, now_ms: int, *, is_trimmed: bool = False) -> None:
        """A marker ended the producer's transaction; under a later epoch its sequence begins again.

        ``is_trimmed``: what the log had before was deleted, and maybe batches of this epoch with it.
        """
        state = self._states.pop(producer_id, None)
        if state is None or state.epoch != epoch:
            state = ProducerState(epoch, is_forgotten=is_trimmed and state is None)
        state.last_seen_ms, state.coordinator_epoch = now_ms, COORDINATOR_EPOCH
        self._states[producer_id] = state

    def items(self) -> Iterator[tuple[int, ProducerState]]:
        """Producer ids and their states, the longest idle one first."""
        return iter(self._states.items())

    def expire(self, idle_since_ms: int, kept: Container[int] = ()) -> None:
        """Forget producers not seen since then, save for ``kept``: they have a transaction open."""
        idle = [p for p, s in self._states.items() if s.last_seen_ms < idle_since_ms]
        for producer_id in idle:
            if producer_id not in kept:
                del self._states[producer_id]


def advance(sequence: int, by: int) -> int:
    """Sequences wrap after 2**31 - 1, back to 0."""
    return (sequence + by) % (MAX_SEQUENCE + 1)
