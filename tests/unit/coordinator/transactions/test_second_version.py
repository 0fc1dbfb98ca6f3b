"""Transactions version 2 (KIP-890): writes add their partitions, each end raises the epoch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.broker.storage.store import MemoryStore
from faust_assigner.broker.transactions.transaction_store import (
    dump_transaction,
    load_transactions,
    transaction_key,
)
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.transactions import Decision, Marker, State
from faust_assigner.coordinator.transactions.events import (
    AddAndWriteOffsets,
    AddAndWriteRecords,
    EndAndBump,
    EndTransaction,
    InitProducer,
    TransactionTimedOut,
)
from faust_assigner.coordinator.transactions.state import LAST_EPOCH
from tests.unit.coordinator.transactions.test_machine import (
    A_,
    C_,
    E_,
    FRESH,
    ID,
    NOW,
    O_,
    TIMEOUT,
    P,
    Q,
    ask,
    known,
)


def end(epoch: int, *, commits: bool, producer_id: int = ID) -> EndAndBump:
    """Return the producer's end of its transaction."""
    return EndAndBump(producer_id, epoch, commits, FRESH)


@pytest.mark.parametrize("state", State)
def test_a_write_adds_its_partition_or_group_and_opens_a_transaction(state: State) -> None:
    """No earlier request named the partition or the group."""
    records = ask(known(state), AddAndWriteRecords(ID, 4, Q)).transaction
    offsets = ask(known(state), AddAndWriteOffsets(ID, 4, "h")).transaction
    assert records is not None
    assert offsets is not None
    assert (records.state, offsets.state) == (O_, O_)
    assert Q in records.partitions
    assert "h" in offsets.groups


def test_a_further_write_to_an_added_partition_changes_nothing() -> None:
    """A repeated write causes no write to the store."""
    assert ask(known(O_), AddAndWriteRecords(ID, 4, P)) == Decision(Code.NONE)
    assert ask(known(O_), AddAndWriteOffsets(ID, 4, "g")) == Decision(Code.NONE)


@pytest.mark.parametrize("commits", [True, False])
def test_an_end_marks_and_goes_on_with_the_next_epoch(commits: bool) -> None:
    """The marker already has the next epoch, which fences a late write of the old epoch."""
    decision = ask(known(O_), end(4, commits=commits))
    assert decision.error is Code.NONE
    assert decision.marker == Marker(ID, 5, commits, frozenset({P}), frozenset({"g"}))
    after = decision.transaction
    assert after is not None
    assert (after.state, after.epoch, after.last_epoch) == (C_ if commits else A_, 5, 4)
    late = ask(after, AddAndWriteRecords(ID, 4, P))
    assert late == Decision(Code.INVALID_PRODUCER_EPOCH)


@pytest.mark.parametrize("commits", [True, False])
def test_a_repeated_end_changes_nothing_and_the_other_end_is_an_error(commits: bool) -> None:
    """A producer without an answer repeats its old epoch."""
    after = ask(known(O_), end(4, commits=commits)).transaction
    assert ask(after, end(4, commits=commits)) == Decision(Code.NONE)
    assert ask(after, end(4, commits=not commits)) == Decision(Code.INVALID_TXN_STATE)
    assert ask(after, end(3, commits=commits)) == Decision(Code.PRODUCER_FENCED)


@pytest.mark.parametrize("state", [E_, C_, A_])
def test_an_abort_of_nothing_raises_the_epoch_and_a_commit_of_nothing_is_an_error(
    state: State,
) -> None:
    """A producer does not know whether the broker accepted its first write."""
    decision = ask(known(state), end(4, commits=False))
    assert decision.error is Code.NONE
    assert decision.marker is None
    assert decision.transaction is not None
    assert (decision.transaction.state, decision.transaction.epoch) == (A_, 5)
    assert ask(known(state), end(4, commits=True)) == Decision(Code.INVALID_TXN_STATE)


def test_after_the_last_epoch_an_end_goes_on_with_a_fresh_producer_id() -> None:
    """The repetition of the end under the old id is recognised."""
    decision = ask(known(O_, epoch=LAST_EPOCH), end(LAST_EPOCH, commits=True))
    after = decision.transaction
    assert after is not None
    assert decision.marker is not None
    assert (decision.marker.producer_id, decision.marker.epoch) == (ID, LAST_EPOCH + 1)
    assert (after.producer_id, after.epoch, after.previous_producer_id) == (FRESH, 0, ID)
    assert ask(after, end(LAST_EPOCH, commits=True)) == Decision(Code.NONE)
    other = ask(after, end(LAST_EPOCH, commits=True, producer_id=ID + 1))
    assert other == Decision(Code.INVALID_PRODUCER_ID_MAPPING)
    gone_on = ask(after, AddAndWriteRecords(FRESH, 0, P)).transaction
    assert gone_on is not None
    assert gone_on.state is O_


def test_only_an_end_of_this_version_can_be_repeated_with_the_epoch_before() -> None:
    """After a timeout, a new producer or an end of version 1 the old epoch is fenced."""
    timed_out = ask(known(O_), TransactionTimedOut(), NOW + TIMEOUT).transaction
    begun = ask(known(O_), InitProducer(TIMEOUT, FRESH)).transaction
    first = ask(known(O_), EndTransaction(ID, 4, False)).transaction
    assert first is not None
    second = ask(known(O_), end(4, commits=False)).transaction
    open_again = ask(second, AddAndWriteRecords(ID, 5, P)).transaction
    mixed = ask(open_again, EndTransaction(ID, 5, False)).transaction
    for after in (timed_out, begun, replace(first, epoch=5), mixed):
        assert ask(after, end(4, commits=False)) == Decision(Code.PRODUCER_FENCED)


def test_a_stored_end_can_be_repeated_after_a_restart() -> None:
    """The record of the transactional id stores that the end raised the epoch."""
    store, ended = MemoryStore(), ask(known(O_), end(4, commits=True)).transaction
    assert ended is not None
    store.write([(transaction_key("t"), dump_transaction(ended))])
    (restored,) = load_transactions(store)
    assert ask(restored, end(4, commits=True)) == Decision(Code.NONE)
