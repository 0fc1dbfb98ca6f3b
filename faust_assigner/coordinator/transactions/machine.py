"""The transaction coordinator: ``step(transaction, event, now_ms) -> Decision``, as a literal table.

Behaviour follows Apache Kafka's coordinator: KIP-98 (transactions), KIP-360 (a producer raises its own
epoch), KIP-447 (offsets of a group) and KIP-890 (each write is verified). In KIP-890's second version, writes
add their partitions, and each end raises the epoch. There is one difference: Kafka stores a decision first
and the markers later, and answers CONCURRENT_TRANSACTIONS in between. This broker stores both in a single
write, so the error does not occur.

Values are immutable. The broker stores ``transaction`` and the marker in one write and keeps the new
value afterwards. If the write fails, the broker keeps the old value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.transactions.events import (
    AddAndWriteOffsets,
    AddAndWriteRecords,
    AddGroup,
    AddPartitions,
    EndAndBump,
    EndTransaction,
    Event,
    InitProducer,
    Owned,
    TransactionTimedOut,
    WriteOffsets,
    WriteRecords,
    Written,
)
from faust_assigner.coordinator.transactions.state import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_TIME,
    Decision,
    Marker,
    State,
    Transaction,
    TransactionLimits,
)

Rule = Callable[[Transaction, Any, int], Decision]
_DONE: Final = Decision(Code.NONE)


def step(
    transactional_id: str,
    known: Transaction | None,
    event: Event,
    now_ms: int,
    limits: TransactionLimits,
) -> Decision:
    """Decide on one event at ``now_ms`` (ms since 1970). Never raises. Cost: O(partitions)."""
    if isinstance(event, InitProducer) and not 0 < event.timeout_ms <= limits.max_timeout_ms:
        return Decision(Code.INVALID_TRANSACTION_TIMEOUT)
    if known is None:
        return _found(transactional_id, event, now_ms)
    if not isinstance(event, InitProducer | TransactionTimedOut):
        error = _refuse_stranger(known, event)
        if error is not Code.NONE:
            return Decision(error)
    return RULES[known.state, type(event)](known, event, now_ms)


def _found(transactional_id: str, event: Event, now_ms: int) -> Decision:
    if not isinstance(event, InitProducer):
        return (
            _DONE
            if isinstance(event, TransactionTimedOut)
            else Decision(Code.INVALID_PRODUCER_ID_MAPPING)
        )
    fresh = Transaction(transactional_id, event.fresh_id, 0, event.timeout_ms, updated_ms=now_ms)
    return Decision(Code.NONE, fresh)


def _refuse_stranger(known: Transaction, event: Owned) -> Code:
    """Return the error for a producer id or epoch that is not current; writes have a different error."""
    if isinstance(event, EndAndBump) and _is_repeated(known, event):
        return Code.NONE
    if event.producer_id != known.producer_id:
        return Code.INVALID_PRODUCER_ID_MAPPING
    if (
        event.epoch != known.epoch or known.epoch > LAST_EPOCH
    ):  # no producer has the epoch after the last
        is_write = isinstance(event, Written)
        return Code.INVALID_PRODUCER_EPOCH if is_write else Code.PRODUCER_FENCED
    return Code.NONE


# -- a producer begins -------------------------------------------------------------------------------


def _init(known: Transaction, event: InitProducer, now_ms: int) -> Decision:
    if not _may_go_on(known, event):
        return Decision(Code.PRODUCER_FENCED)
    expected = None if event.expected is None else event.expected[1]
    if known.is_exhausted and expected in (None, known.epoch):
        last = NO_EPOCH if expected is None else known.epoch
        return _begun(known, event, now_ms, event.fresh_id, 0, last)
    if expected is None:
        return _begun(known, event, now_ms, known.producer_id, known.epoch + 1, NO_EPOCH)
    if expected == known.epoch:
        return _begun(known, event, now_ms, known.producer_id, known.epoch + 1, known.epoch)
    if expected == known.last_epoch:  # a retry after a lost answer
        return _begun(known, event, now_ms, known.producer_id, known.epoch, known.last_epoch)
    return Decision(Code.PRODUCER_FENCED)


def _may_go_on(known: Transaction, event: InitProducer) -> bool:
    if event.expected is None or event.expected[0] == known.producer_id:
        return True
    producer_id, epoch = event.expected
    return producer_id == known.previous_producer_id and epoch >= LAST_EPOCH


def _begun(
    known: Transaction, event: InitProducer, now_ms: int, producer_id: int, epoch: int, last: int
) -> Decision:
    begun = replace(
        known,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last,
        previous_producer_id=known.producer_id,
        timeout_ms=event.timeout_ms,
        state=State.EMPTY,
        started_ms=NO_TIME,
        updated_ms=now_ms,
    )
    return Decision(Code.NONE, begun)


def _init_over_open(known: Transaction, event: InitProducer, now_ms: int) -> Decision:
    """Abort the open transaction with an epoch that fences its producer; then begin the new producer."""
    if not _may_go_on(known, event):
        return Decision(Code.PRODUCER_FENCED)
    fenced = _fence(known, now_ms)
    assert fenced.transaction is not None
    begun = _init(fenced.transaction, event, now_ms)
    return Decision(begun.error, begun.transaction or fenced.transaction, fenced.marker)


# -- while it is open --------------------------------------------------------------------------------


def _open(known: Transaction, now_ms: int) -> Transaction:
    """Open a transaction, unless it is open already; the timeout starts when it is opened."""
    started_ms = known.started_ms if known.state is State.ONGOING else now_ms
    return replace(
        known,
        state=State.ONGOING,
        previous_producer_id=known.producer_id,
        started_ms=started_ms,
        updated_ms=now_ms,
    )


def _add_partitions(known: Transaction, event: AddPartitions, now_ms: int) -> Decision:
    if known.state is State.ONGOING and event.places <= known.partitions:
        return _DONE
    return Decision(
        Code.NONE, replace(_open(known, now_ms), partitions=known.partitions | event.places)
    )


def _add_group(known: Transaction, event: AddGroup | AddAndWriteOffsets, now_ms: int) -> Decision:
    if event.group_id in known.groups:  # already in the open transaction
        return _DONE
    return Decision(
        Code.NONE, replace(_open(known, now_ms), groups=known.groups | {event.group_id})
    )


def _add_place(known: Transaction, event: AddAndWriteRecords, now_ms: int) -> Decision:
    added = AddPartitions(event.producer_id, event.epoch, frozenset((event.place,)))
    return _add_partitions(known, added, now_ms)


def _write_records(known: Transaction, event: WriteRecords, now_ms: int) -> Decision:
    return _DONE if event.place in known.partitions else Decision(Code.TRANSACTION_ABORTABLE)


def _write_offsets(known: Transaction, event: WriteOffsets, now_ms: int) -> Decision:
    return _DONE if event.group_id in known.groups else Decision(Code.TRANSACTION_ABORTABLE)


def _not_open(known: Transaction, event: Event, now_ms: int) -> Decision:
    return Decision(Code.TRANSACTION_ABORTABLE)


# -- its end -----------------------------------------------------------------------------------------


def _end(known: Transaction, event: EndTransaction, now_ms: int) -> Decision:
    return _ended(known, now_ms, epoch=known.epoch, last=known.last_epoch, commits=event.commits)


def _end_again(known: Transaction, event: EndTransaction | EndAndBump, now_ms: int) -> Decision:
    """Accept the end that the transaction already has; refuse the opposite end."""
    is_same = event.commits == (known.state is State.COMPLETE_COMMIT)
    return _DONE if is_same else Decision(Code.INVALID_TXN_STATE)


def _end_when_empty(known: Transaction, event: EndTransaction, now_ms: int) -> Decision:
    return Decision(Code.INVALID_TXN_STATE)


def _is_repeated(known: Transaction, event: EndAndBump) -> bool:
    """Whether the producer repeats its last end, because the answer with the next epoch was lost."""
    if not known.is_bumped or known.state not in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        return False
    if event.producer_id == known.producer_id:
        return event.epoch + 1 == known.epoch
    # The previous id was exhausted, and its producer continues with a fresh id.
    return event.producer_id == known.previous_producer_id and event.epoch == LAST_EPOCH


def _end_and_bump(known: Transaction, event: EndAndBump, now_ms: int) -> Decision:
    ended = _ended(known, now_ms, epoch=known.epoch + 1, last=known.epoch, commits=event.commits)
    assert ended.transaction is not None
    bumped = replace(ended.transaction, is_bumped=True)
    if known.is_exhausted:
        bumped = replace(bumped, producer_id=event.fresh_id, epoch=0)
    if known.state is not State.ONGOING:
        return Decision(Code.NONE, replace(bumped, started_ms=now_ms))  # no transaction, no marker
    return replace(ended, transaction=bumped)


def _abort_nothing(known: Transaction, event: EndAndBump, now_ms: int) -> Decision:
    """Raise the epoch for an abort without an open transaction: the producer may have written nothing."""
    if event.commits:
        return Decision(Code.INVALID_TXN_STATE)
    return _end_and_bump(known, event, now_ms)


def _repeat(known: Transaction, event: EndAndBump, now_ms: int) -> Decision:
    if _is_repeated(known, event):
        return _end_again(known, event, now_ms)
    return _abort_nothing(known, event, now_ms)


def _abort_timed_out(known: Transaction, event: TransactionTimedOut, now_ms: int) -> Decision:
    due = known.aborts_at_ms
    return _fence(known, now_ms) if due is not None and now_ms >= due else _DONE


def _ignore_timeout(known: Transaction, event: TransactionTimedOut, now_ms: int) -> Decision:
    return _DONE


def _fence(known: Transaction, now_ms: int) -> Decision:
    """Abort with the next epoch, so that the producer can no longer write to its transaction or end it."""
    return _ended(known, now_ms, epoch=known.epoch + 1, last=NO_EPOCH, commits=False)


def _ended(known: Transaction, now_ms: int, *, epoch: int, last: int, commits: bool) -> Decision:
    marker = Marker(known.producer_id, epoch, commits, known.partitions, known.groups)
    done = replace(
        known,
        epoch=epoch,
        last_epoch=last,
        previous_producer_id=known.producer_id,
        state=State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT,
        partitions=frozenset(),
        groups=frozenset(),
        updated_ms=now_ms,
        is_bumped=False,
    )
    return Decision(Code.NONE, done, marker)


# fmt: off
#: A row for each event: the rules in Empty, Ongoing, CompleteCommit and CompleteAbort.
_ROWS: Final[Mapping[type[Any], tuple[Rule, Rule, Rule, Rule]]] = {
    InitProducer:        (_init, _init_over_open, _init, _init),
    AddPartitions:       (_add_partitions, _add_partitions, _add_partitions, _add_partitions),
    AddGroup:            (_add_group, _add_group, _add_group, _add_group),
    WriteRecords:        (_not_open, _write_records, _not_open, _not_open),
    WriteOffsets:        (_not_open, _write_offsets, _not_open, _not_open),
    EndTransaction:      (_end_when_empty, _end, _end_again, _end_again),
    AddAndWriteRecords:  (_add_place, _add_place, _add_place, _add_place),
    AddAndWriteOffsets:  (_add_group, _add_group, _add_group, _add_group),
    EndAndBump:          (_abort_nothing, _end_and_bump, _repeat, _repeat),
    TransactionTimedOut: (_ignore_timeout, _abort_timed_out, _ignore_timeout, _ignore_timeout),
}
# fmt: on
RULES: Final = {
    (state, event): rule
    for event, rules in _ROWS.items()
    for state, rule in zip(State, rules, strict=True)
}
