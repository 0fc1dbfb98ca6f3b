"""The transaction coordinator, transition by transition and error by error."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.transactions import (
    Decision,
    Marker,
    Place,
    State,
    Transaction,
    TransactionLimits,
    step,
)
from faust_assigner.coordinator.transactions.events import (
    AddAndWriteOffsets,
    AddAndWriteRecords,
    AddGroup,
    AddPartitions,
    EndAndBump,
    EndTransaction,
    Event,
    InitProducer,
    TransactionTimedOut,
    WriteOffsets,
    WriteRecords,
    Written,
)
from faust_assigner.coordinator.transactions.machine import RULES
from faust_assigner.coordinator.transactions.state import LAST_EPOCH

E_, O_, C_, A_ = State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT
P, Q = (b"p" * 16, 0), (b"q" * 16, 3)
LIMITS = TransactionLimits(max_timeout_ms=60_000)
ID, FRESH, TIMEOUT, STARTED, NOW = 7, 99, 1_000, 5_000, 5_100


def known(state: State, *, epoch: int = 4, last_epoch: int = -1) -> Transaction:
    """Return a transactional id; an open transaction has a partition and a group."""
    is_open = state is O_
    return Transaction(
        "t",
        ID,
        epoch,
        TIMEOUT,
        state,
        last_epoch,
        partitions=frozenset({P} if is_open else ()),
        groups=frozenset({"g"} if is_open else ()),
        started_ms=STARTED if is_open else -1,
        updated_ms=STARTED,
    )


def ask(transaction: Transaction | None, event: Event, now_ms: int = NOW) -> Decision:
    """Return the decision about an event."""
    return step("t", transaction, event, now_ms, LIMITS)


def owned(producer_id: int = ID, epoch: int = 4) -> Iterator[Event]:
    """Yield every event that names its producer."""
    yield AddPartitions(producer_id, epoch, frozenset({P}))
    yield AddGroup(producer_id, epoch, "g")
    yield WriteRecords(producer_id, epoch, P)
    yield WriteOffsets(producer_id, epoch, "g")
    yield AddAndWriteRecords(producer_id, epoch, P)
    yield AddAndWriteOffsets(producer_id, epoch, "g")
    for commits in (True, False):
        yield EndTransaction(producer_id, epoch, commits)
        yield EndAndBump(producer_id, epoch, commits, FRESH)


def test_each_state_has_a_rule_for_each_event() -> None:
    """The table is complete."""
    events = (
        InitProducer, AddPartitions, AddGroup, WriteRecords, WriteOffsets, EndTransaction,
        TransactionTimedOut, AddAndWriteRecords, AddAndWriteOffsets, EndAndBump,
    )  # fmt: skip
    assert set(RULES) == set(itertools.product(State, events))


# -- the producer of a request -----------------------------------------------------------------------


@pytest.mark.parametrize("event", list(owned()), ids=str)
def test_an_unknown_transactional_id_maps_to_no_producer(event: Event) -> None:
    """INVALID_PRODUCER_ID_MAPPING is the error for every request."""
    assert ask(None, event) == Decision(Code.INVALID_PRODUCER_ID_MAPPING)


@pytest.mark.parametrize("state", State)
def test_another_producer_id_is_no_mapping_and_another_epoch_is_fenced(state: State) -> None:
    """Writes return INVALID_PRODUCER_EPOCH where coordinator requests return PRODUCER_FENCED."""
    for event in owned(producer_id=ID + 1):
        assert ask(known(state), event) == Decision(Code.INVALID_PRODUCER_ID_MAPPING)
    for epoch in (-1, 3, 5):
        for event in owned(epoch=epoch):
            is_write = isinstance(event, Written)
            error = Code.INVALID_PRODUCER_EPOCH if is_write else Code.PRODUCER_FENCED
            assert ask(known(state), event) == Decision(error)


# -- a producer begins -------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [-1, 0, 60_001])
@pytest.mark.parametrize("state", [None, *State])
def test_a_timeout_out_of_bounds_changes_nothing(state: State | None, timeout_ms: int) -> None:
    """INVALID_TRANSACTION_TIMEOUT is the error even with an open transaction."""
    before = None if state is None else known(state)
    asked = InitProducer(timeout_ms, FRESH)
    assert ask(before, asked) == Decision(Code.INVALID_TRANSACTION_TIMEOUT)


@pytest.mark.parametrize("expected", [None, (55, 3)])
def test_a_new_transactional_id_begins_with_a_fresh_producer_id(
    expected: tuple[int, int] | None,
) -> None:
    """The epoch is 0, whatever producer id the client sends."""
    decision = ask(None, InitProducer(60_000, FRESH, expected))
    assert decision == Decision(Code.NONE, Transaction("t", FRESH, 0, 60_000, updated_ms=NOW))


@pytest.mark.parametrize("state", [E_, C_, A_])
def test_a_new_producer_gets_the_next_epoch(state: State) -> None:
    """The next epoch fences the former producer, and no marker is written."""
    decision = ask(known(state), InitProducer(2_000, FRESH))
    assert (decision.error, decision.marker) == (Code.NONE, None)
    assert decision.transaction == replace(
        known(E_, epoch=5), timeout_ms=2_000, previous_producer_id=ID, updated_ms=NOW
    )


def test_a_new_producer_aborts_the_open_transaction_under_an_epoch_nobody_gets() -> None:
    """The marker's epoch is between the old producer's epoch and the new producer's epoch."""
    decision = ask(known(O_), InitProducer(TIMEOUT, FRESH))
    assert decision.marker == Marker(ID, 5, False, frozenset({P}), frozenset({"g"}))
    assert decision.transaction is not None
    assert (decision.transaction.state, decision.transaction.epoch) == (E_, 6)
    assert not decision.transaction.partitions | decision.transaction.groups
    assert decision.transaction.aborts_at_ms is None


@pytest.mark.parametrize("state", [E_, C_, A_])
def test_a_producer_raises_its_own_epoch_and_may_repeat_the_request(state: State) -> None:
    """KIP-360: a repeated request gets the same answer; older epochs are fenced."""
    raised = ask(known(state), InitProducer(TIMEOUT, FRESH, (ID, 4))).transaction
    assert raised is not None
    assert (raised.epoch, raised.last_epoch) == (5, 4)
    again = ask(raised, InitProducer(TIMEOUT, FRESH, (ID, 4))).transaction
    assert again is not None
    assert (again.epoch, again.last_epoch) == (5, 4)
    for epoch in (2, 3, 6):
        error = ask(raised, InitProducer(TIMEOUT, FRESH, (ID, epoch))).error
        assert error is Code.PRODUCER_FENCED
    fenced = InitProducer(TIMEOUT, FRESH, (ID + 1, 5))
    assert ask(raised, fenced) == Decision(Code.PRODUCER_FENCED)


def test_a_new_producer_ends_the_repeats_of_the_one_before() -> None:
    """The new producer's request does not count as a repetition."""
    raised = ask(known(E_), InitProducer(TIMEOUT, FRESH, (ID, 4))).transaction
    other = ask(raised, InitProducer(TIMEOUT, FRESH)).transaction
    assert ask(other, InitProducer(TIMEOUT, FRESH, (ID, 4))).error is Code.PRODUCER_FENCED


def test_a_producer_with_an_open_transaction_that_raises_its_epoch_is_fenced_and_aborted() -> None:
    """Kafka does the same; a request of an unknown producer leaves the transaction open."""
    decision = ask(known(O_), InitProducer(TIMEOUT, FRESH, (ID, 4)))
    assert decision.error is Code.PRODUCER_FENCED
    assert decision.marker == Marker(ID, 5, False, frozenset({P}), frozenset({"g"}))
    assert decision.transaction is not None
    assert (decision.transaction.state, decision.transaction.epoch) == (A_, 5)
    stranger = InitProducer(TIMEOUT, FRESH, (ID + 1, 4))
    assert ask(known(O_), stranger) == Decision(Code.PRODUCER_FENCED)


@pytest.mark.parametrize("expected", [None, (ID, LAST_EPOCH)])
def test_after_the_last_epoch_comes_another_producer_id(expected: tuple[int, int] | None) -> None:
    """The fresh id has epoch 0; the requesting producer may repeat its request."""
    decision = ask(known(E_, epoch=LAST_EPOCH), InitProducer(TIMEOUT, FRESH, expected))
    rotated = decision.transaction
    assert rotated is not None
    assert (rotated.producer_id, rotated.epoch, rotated.previous_producer_id) == (FRESH, 0, ID)
    again = ask(rotated, InitProducer(TIMEOUT, FRESH + 1, (ID, LAST_EPOCH)))
    if expected is None:
        assert again.error is Code.PRODUCER_FENCED
    else:
        assert again.transaction is not None
        assert (again.transaction.producer_id, again.transaction.epoch) == (FRESH, 0)


def test_after_the_last_epoch_only_its_own_producer_goes_on() -> None:
    """Earlier epochs of the former id and epoch 0 of the fresh id are fenced."""
    last = known(E_, epoch=LAST_EPOCH, last_epoch=LAST_EPOCH - 1)
    again = ask(last, InitProducer(TIMEOUT, FRESH, (ID, LAST_EPOCH - 1))).transaction
    assert again is not None
    assert (again.producer_id, again.epoch) == (ID, LAST_EPOCH)
    rotated = ask(last, InitProducer(TIMEOUT, FRESH, (ID, LAST_EPOCH))).transaction
    fenced = Decision(Code.PRODUCER_FENCED)
    assert ask(last, InitProducer(TIMEOUT, FRESH, (ID, LAST_EPOCH - 2))) == fenced
    for epoch in (0, LAST_EPOCH - 1):
        assert ask(rotated, InitProducer(TIMEOUT, FRESH + 1, (ID, epoch))) == fenced


def test_a_request_without_partitions_opens_a_transaction() -> None:
    """The producer may end this transaction, as in Kafka."""
    opened = ask(known(C_), AddPartitions(ID, 4, frozenset())).transaction
    assert opened is not None
    assert opened.state is O_
    assert ask(opened, AddPartitions(ID, 4, frozenset())) == Decision(Code.NONE)


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_an_open_transaction_of_the_last_epochs_can_still_be_fenced(epoch: int) -> None:
    """The epoch above the last epoch is reserved for the fence."""
    decision = ask(known(O_, epoch=epoch), InitProducer(TIMEOUT, FRESH))
    assert decision.marker is not None
    assert decision.transaction is not None
    assert decision.marker.epoch == epoch + 1
    assert (decision.transaction.producer_id, decision.transaction.epoch) == (FRESH, 0)


@pytest.mark.parametrize("event", list(owned(epoch=LAST_EPOCH + 1)), ids=lambda e: type(e).__name__)
def test_the_epoch_above_the_last_one_is_of_no_producer(event: Event) -> None:
    """The epoch fenced a transaction: no producer may write or end a transaction under it."""
    is_write = isinstance(event, Written)
    error = Code.INVALID_PRODUCER_EPOCH if is_write else Code.PRODUCER_FENCED
    assert ask(known(O_, epoch=LAST_EPOCH + 1), event) == Decision(error)
    last = replace(event, epoch=LAST_EPOCH)
    assert ask(known(O_, epoch=LAST_EPOCH), last).error is Code.NONE


# -- an open transaction -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", [E_, C_, A_])
@pytest.mark.parametrize(
    ("event", "partitions", "groups"),
    [
        (AddPartitions(ID, 4, frozenset({P, Q})), {P, Q}, set()),
        (AddGroup(ID, 4, "g"), set(), {"g"}),
    ],
    ids=["partitions", "group"],
)
def test_the_first_partition_or_group_opens_a_transaction(
    state: State, event: Event, partitions: set[Place], groups: set[str]
) -> None:
    """The transaction's timeout starts at this request."""
    opened = ask(known(state), event).transaction
    assert opened is not None
    assert (opened.state, opened.started_ms, opened.aborts_at_ms) == (O_, NOW, NOW + TIMEOUT)
    assert (opened.partitions, opened.groups) == (partitions, groups)


def test_more_partitions_and_groups_join_an_open_transaction() -> None:
    """The timeout does not start again, and known partitions are not stored again."""
    more = ask(known(O_), AddPartitions(ID, 4, frozenset({Q}))).transaction
    assert more is not None
    assert (more.partitions, more.groups, more.started_ms) == ({P, Q}, {"g"}, STARTED)
    group = ask(known(O_), AddGroup(ID, 4, "h")).transaction
    assert group is not None
    assert (group.partitions, group.groups, group.started_ms) == ({P}, {"g", "h"}, STARTED)
    for event in (AddPartitions(ID, 4, frozenset({P})), AddGroup(ID, 4, "g")):
        assert ask(known(O_), event) == Decision(Code.NONE)


@pytest.mark.parametrize("state", State)
def test_records_and_offsets_are_written_in_an_open_transaction_only(state: State) -> None:
    """TRANSACTION_ABORTABLE refuses writes outside the added partitions and groups (KIP-890)."""
    allowed = Decision(Code.NONE if state is O_ else Code.TRANSACTION_ABORTABLE)
    refused = Decision(Code.TRANSACTION_ABORTABLE)
    assert ask(known(state), WriteRecords(ID, 4, P)) == allowed
    assert ask(known(state), WriteOffsets(ID, 4, "g")) == allowed
    assert ask(known(state), WriteRecords(ID, 4, Q)) == refused
    assert ask(known(state), WriteRecords(ID, 4, (P[0], 1))) == refused
    assert ask(known(state), WriteOffsets(ID, 4, "h")) == refused


# -- its end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_the_end_marks_every_partition_and_group_under_the_producers_epoch(commits: bool) -> None:
    """A single decision has the new state and the marker."""
    decision = ask(known(O_), EndTransaction(ID, 4, commits))
    assert decision.marker == Marker(ID, 4, commits, frozenset({P}), frozenset({"g"}))
    assert decision.transaction == replace(
        known(C_ if commits else A_), previous_producer_id=ID, started_ms=STARTED, updated_ms=NOW
    )


@pytest.mark.parametrize(
    ("state", "commits", "error"),
    [
        (E_, True, Code.INVALID_TXN_STATE),
        (E_, False, Code.INVALID_TXN_STATE),
        (C_, True, Code.NONE),
        (C_, False, Code.INVALID_TXN_STATE),
        (A_, True, Code.INVALID_TXN_STATE),
        (A_, False, Code.NONE),
    ],
)
def test_the_same_end_again_is_a_repeat_and_the_other_one_an_error(
    state: State, commits: bool, error: Code
) -> None:
    """Neither end writes a record."""
    assert ask(known(state), EndTransaction(ID, 4, commits)) == Decision(error)


@pytest.mark.parametrize("late_ms", [-1, 0, 1])
def test_a_transaction_is_aborted_when_its_time_is_over(late_ms: int) -> None:
    """The abort's epoch fences the producer permanently, even from a raise of its own epoch."""
    decision = ask(known(O_), TransactionTimedOut(), STARTED + TIMEOUT + late_ms)
    if late_ms < 0:
        assert decision == Decision(Code.NONE)
        return
    assert decision.marker == Marker(ID, 5, False, frozenset({P}), frozenset({"g"}))
    aborted = decision.transaction
    assert aborted is not None
    assert (aborted.state, aborted.epoch) == (A_, 5)
    assert ask(aborted, EndTransaction(ID, 4, True)).error is Code.PRODUCER_FENCED
    assert ask(aborted, InitProducer(TIMEOUT, FRESH, (ID, 4))).error is Code.PRODUCER_FENCED
    assert ask(aborted, WriteRecords(ID, 4, P)).error is Code.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("state", [None, E_, C_, A_])
def test_no_time_runs_without_an_open_transaction(state: State | None) -> None:
    """A late tick changes no state."""
    before = None if state is None else known(state)
    assert ask(before, TransactionTimedOut(), 10**15) == Decision(Code.NONE)


# -- every sequence of a few events ------------------------------------------------------------------


def choices(transaction: Transaction | None) -> Iterator[Event]:
    """Yield the next possible events of the producer, a zombie, a new producer and the clock."""
    producer_id, epoch = (
        (FRESH, 0) if transaction is None else (transaction.producer_id, transaction.epoch)
    )
    yield InitProducer(TIMEOUT, FRESH)
    yield TransactionTimedOut()
    for own in (epoch, epoch - 1):
        yield InitProducer(TIMEOUT, FRESH, (producer_id, own))
        yield AddPartitions(producer_id, own, frozenset({Q}))
        yield AddGroup(producer_id, own, "h")
        yield AddAndWriteRecords(producer_id, own, Q)
        yield AddAndWriteOffsets(producer_id, own, "h")
        for commits in (True, False):
            yield EndTransaction(producer_id, own, commits)
            yield EndAndBump(producer_id, own, commits, FRESH)


def test_in_every_story_of_six_events_epochs_rise_and_only_the_end_of_an_open_one_is_marked() -> (
    None
):
    """The search is breadth-first over all values that six events can reach."""
    seen: set[Transaction | None] = {None}
    edge: set[Transaction | None] = {None}
    for _ in range(6):
        reached: set[Transaction | None] = set()
        for before in edge:
            for event in choices(before):
                for now_ms in (NOW, NOW + 10 * TIMEOUT):
                    decision = ask(before, event, now_ms)
                    _check(before, event, decision)
                    after = decision.transaction
                    if after is not None:
                        reached.add(replace(after, updated_ms=0))
        edge = reached - seen
        seen |= edge
    states = {(one.state, bool(one.partitions), bool(one.groups)) for one in seen if one}
    assert states == {
        (E_, False, False), (C_, False, False), (A_, False, False),
        (O_, True, False), (O_, False, True), (O_, True, True),
    }  # fmt: skip


def _check(before: Transaction | None, event: Event, decision: Decision) -> None:
    after = decision.transaction
    if decision.error is not Code.NONE and decision.marker is None:
        assert after is None, "a refusal without a marker changes nothing"
    if before is not None and after is not None:
        assert after.producer_id != before.producer_id or after.epoch >= before.epoch
        was_open, is_open = before.state is O_, after.state is O_
        assert (decision.marker is not None) == (was_open and not is_open)
    if decision.marker is not None:
        assert before is not None
        assert after is not None
        assert decision.marker.partitions == before.partitions
        assert decision.marker.groups == before.groups
        assert after.epoch >= decision.marker.epoch >= before.epoch
        is_owner = isinstance(event, EndTransaction)
        assert (decision.marker.epoch == before.epoch) == is_owner
        assert not decision.marker.commits or is_owner or isinstance(event, EndAndBump)
    if after is not None:
        assert (after.state is O_) == bool(after.partitions or after.groups)
        assert (after.state is O_) == (after.aborts_at_ms is not None)
