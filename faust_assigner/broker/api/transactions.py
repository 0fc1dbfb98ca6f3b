"""The APIs InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit and EndTxn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker import internal_topics, limits
from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.membership import apply_to_group
from faust_assigner.broker.api.offset_commit import Changes, commit_answer, store_in_slices
from faust_assigner.broker.api.produce import flush, needs_flush
from faust_assigner.broker.security.acls import (
    CLUSTER,
    IDEMPOTENT_WRITE,
    THE_CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.wire import milliseconds
from faust_assigner.coordinator.effects import CommitReply
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets
from faust_assigner.coordinator.offsets import TopicPartition
from faust_assigner.coordinator.transactions import Place
from faust_assigner.coordinator.transactions.events import (
    AddAndWriteOffsets,
    AddGroup,
    AddPartitions,
    EndAndBump,
    EndTransaction,
    Event,
    InitProducer,
    WriteOffsets,
)

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest

INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28
NOBODY: Final = -1
ABORTABLE_SINCE: Final = 4  # TxnOffsetCommit: older clients do not know TRANSACTION_ABORTABLE
#: The first versions of EndTxn and TxnOffsetCommit in the second version of transactions (KIP-890).
BUMPING_SINCE, ADDING_SINCE = 5, 5
#: The first version of an API whose clients know PRODUCER_FENCED (KIP-588). Older clients get
#: INVALID_PRODUCER_EPOCH.
FENCED_SINCE: Final[Mapping[int, int]] = {
    INIT_PRODUCER_ID: 4,
    ADD_PARTITIONS: 2,
    ADD_OFFSETS: 2,
    END_TXN: 2,
}


def _ask(call: Call, api_key: int, transactional_id: str, event: Event) -> ErrorCode:
    """Apply an event to a transactional id's state; return an error code that the client's version knows."""
    if not limits.is_group_id(transactional_id):
        return ErrorCode.invalid_request
    code = call.node.transactions.ask(transactional_id, event)
    if code is Code.PRODUCER_FENCED and call.version < FENCED_SINCE[api_key]:
        code = Code.INVALID_PRODUCER_EPOCH
    return ErrorCode(code)


def init_producer_id(call: Call, request: InitProducerIdRequest) -> Values:
    """Return a producer id and epoch: a fresh id, or for a transactional producer the next epoch.

    The same write aborts the open transaction of the transactional id, so no producer has to retry.
    """
    present = (getattr(request, "producer_id", NOBODY), getattr(request, "producer_epoch", NOBODY))
    if (present[0] == NOBODY) is not (present[1] == NOBODY):
        return _no_producer_values(ErrorCode.invalid_request)
    transactional_id = request.transactional_id
    denied = _producer_denial(call, transactional_id)
    if denied is not None:
        return _no_producer_values(denied)
    try:
        fresh_id = call.node.new_producer_id()
    except StoreFailed:
        # After this error, transactional and idempotent producers retry without a search for a coordinator.
        return _no_producer_values(ErrorCode.coordinator_load_in_progress)
    if transactional_id is None:
        return {"error_code": ErrorCode.none, "producer_id": fresh_id, "producer_epoch": 0}
    timeout_ms = milliseconds(request.transaction_timeout)
    expected = None if present[0] == NOBODY else present
    event = InitProducer(timeout_ms, fresh_id, expected)
    error = _ask(call, INIT_PRODUCER_ID, transactional_id, event)
    begun = call.node.transactions.get(transactional_id)
    if error is not ErrorCode.none or begun is None:
        return _no_producer_values(error)
    return {"error_code": error, "producer_id": begun.producer_id, "producer_epoch": begun.epoch}


def _producer_denial(call: Call, transactional_id: str | None) -> ErrorCode | None:
    """Return the error if the peer may not use the id or, without an id, write idempotently; else None."""
    if transactional_id is not None:
        may = call.may(WRITE, TRANSACTIONAL_ID, transactional_id)
        return None if may else ErrorCode.transactional_id_authorization_failed
    may = call.may(IDEMPOTENT_WRITE, CLUSTER, THE_CLUSTER) or call.may_on_some(WRITE, TOPIC)
    return None if may else ErrorCode.cluster_authorization_failed


def _no_producer_values(error: ErrorCode) -> Values:
    return {"error_code": error, "producer_id": NOBODY, "producer_epoch": NOBODY}


async def add_partitions(call: Call, request: Any) -> Values:
    """Add all partitions or none.

    If a partition is refused, all other partitions get OPERATION_NOT_ATTEMPTED.
    """
    places: dict[tuple[str, int], Place | None] = {}
    barred = {
        topic.name
        for topic in request.v3_and_below_topics
        if internal_topics.is_internal(topic.name) or not call.may(WRITE, TOPIC, topic.name)
    }
    for wanted in request.v3_and_below_topics:
        topic = call.node.catalogue.get(wanted.name)
        for number in wanted.partitions:
            is_there = (
                wanted.name not in barred
                and topic is not None
                and 0 <= number < len(topic.partitions)
            )
            place = (topic.topic_id.bytes, number) if topic is not None and is_there else None
            places[wanted.name, number] = place
            await call.throttle.checkpoint()
    if None in places.values():
        error = ErrorCode.operation_not_attempted
    else:
        event = AddPartitions(
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            frozenset(place for place in places.values() if place is not None),
        )
        error = _ask(call, ADD_PARTITIONS, request.v3_and_below_transactional_id, event)
    results: dict[str, list[Values]] = {}
    for (name, number), place in places.items():
        own = error if place is not None else ErrorCode.unknown_topic_or_partition
        if name in barred:
            own = ErrorCode.topic_authorization_failed
        results.setdefault(name, []).append(
            {"partition_index": number, "partition_error_code": own}
        )
        await call.throttle.checkpoint()
    return {
        "results_by_topic_v3_and_below": [
            {"name": name, "results_by_partition": parts} for name, parts in results.items()
        ]
    }


def add_offsets(call: Call, request: AddOffsetsToTxnRequest) -> Values:
    """Add a group to the transaction; the producer will commit offsets of this group."""
    if not limits.is_group_id(request.group_id):
        return {"error_code": ErrorCode.invalid_group_id}
    event = AddGroup(request.producer_id, request.producer_epoch, request.group_id)
    return {"error_code": _ask(call, ADD_OFFSETS, request.transactional_id, event)}


async def end_txn(call: Call, request: EndTxnRequest) -> Values:
    """Commit or abort a transaction. One write stores the result, the markers and the group offsets.

    Since version 5 the answer has the producer's next epoch, or a fresh producer id (KIP-890).
    """
    producer = (request.producer_id, request.producer_epoch, request.committed)
    transactional_id = request.transactional_id
    event: Event = EndTransaction(*producer)
    if call.version >= BUMPING_SINCE:
        known = call.node.transactions.get(transactional_id)
        is_exhausted = known is not None and known.is_exhausted
        try:
            fresh_id = call.node.new_producer_id() if is_exhausted else NOBODY
        except StoreFailed:
            return {"error_code": ErrorCode.coordinator_not_available}
        event = EndAndBump(*producer, fresh_id)
    error = _ask(call, END_TXN, transactional_id, event)
    # The result is read before the wait for the disk, because a new producer may fence this one then.
    ended = call.node.transactions.get(transactional_id)
    if error is ErrorCode.none:
        error = await _flush_transaction(call, transactional_id)
    if error is not ErrorCode.none or call.version < BUMPING_SINCE:
        return {"error_code": error}
    assert ended is not None, "an end without an error keeps its transactional id"
    return {"error_code": error, "producer_id": ended.producer_id, "producer_epoch": ended.epoch}


async def _flush_transaction(call: Call, transactional_id: str) -> ErrorCode:
    """Wait once for the disk if a topic of the transaction requires this (flush.messages)."""
    node = call.node
    try:
        ended = node.transactions.unflushed_partitions(transactional_id)
        await flush(call, [log for topic, log in ended if needs_flush(call, topic, log)])
    except StoreFailed:
        node.space.reclaim_if_low()
        return ErrorCode.coordinator_not_available
    node.transactions.flushed(transactional_id)
    return ErrorCode.none


async def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> Values:
    """Store offsets as pending; they become valid when the transaction commits."""
    return await commit_answer(call, request, partial(_check_and_store, call, request))


async def _check_and_store(
    call: Call, request: TxnOffsetCommitRequest, changes: Changes
) -> ErrorCode:
    """Check the transaction and the member, then store; return one error for all valid partitions."""
    group_id = request.group_id

    async def check(partitions: Iterable[TopicPartition]) -> Code:
        error = _ask_transaction(call, request)
        if error is not Code.NONE:
            return error
        event = partial(
            CommitOffsets,
            member_id=getattr(request, "member_id", ""),
            generation=getattr(request, "generation_id", -1),
            instance_id=getattr(request, "group_instance_id", None),
            api_version=call.version,
            transactional=True,
            partitions=tuple(partitions),
        )
        reply: CommitReply = await apply_to_group(call, group_id, event)
        return reply.error

    store = partial(call.node.groups.books.store_pending, group_id, request.producer_id)
    error = await store_in_slices(call, changes, check, store)
    return ErrorCode.illegal_generation if error is Code.STALE_MEMBER_EPOCH else ErrorCode(error)


def _ask_transaction(call: Call, request: TxnOffsetCommitRequest) -> Code:
    if not limits.is_group_id(request.group_id):
        return Code.INVALID_GROUP_ID
    kind = AddAndWriteOffsets if call.version >= ADDING_SINCE else WriteOffsets
    event = kind(request.producer_id, request.producer_epoch, request.group_id)
    code = call.node.transactions.ask(request.transactional_id, event)
    is_old = call.version < ABORTABLE_SINCE
    return Code.INVALID_TXN_STATE if code is Code.TRANSACTION_ABORTABLE and is_old else code


APIS: Final = (
    Api(INIT_PRODUCER_ID, "InitProducerId", 0, 5, init_producer_id),
    Api(ADD_PARTITIONS, "AddPartitionsToTxn", 0, 3, add_partitions),
    Api(ADD_OFFSETS, "AddOffsetsToTxn", 0, 4, add_offsets),
    Api(END_TXN, "EndTxn", 0, 5, end_txn),
    Api(TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, txn_offset_commit),
)
