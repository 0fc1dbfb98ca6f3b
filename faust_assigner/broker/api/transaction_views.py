"""DescribeProducers, DescribeTransactions, ListTransactions (KIP-664): find hanging transactions."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.security.acls import DESCRIBE, TOPIC, TRANSACTIONAL_ID
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.wire import MILLISECOND
from faust_assigner.coordinator.consumer.subscriptions import BadPattern
from faust_assigner.coordinator.consumer.subscriptions import pattern as compile_pattern
from faust_assigner.coordinator.transactions import State, Transaction

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest

DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ENTRY_BYTES: Final = 40  # estimated size of one producer or transaction in an answer
#: States of Kafka that do not occur in this broker, but are valid filters.
PASSING_STATES: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"})


async def describe_producers(call: Call, request: DescribeProducersRequest) -> Values:
    """Return the known producers of each partition, and the start offsets of their transactions."""
    topics = []
    for wanted in request.topics:
        parts = []
        for number in wanted.partition_indexes:
            log = call.node.catalogue.partition(wanted.name, number)
            missing = ErrorCode.unknown_topic_or_partition
            parts.append(
                {
                    "partition_index": number,
                    "error_code": missing if log is None else ErrorCode.none,
                    "active_producers": [] if log is None else await _producer_values(call, log),
                }
            )
            await call.throttle.checkpoint()
        topics.append({"name": wanted.name, "partitions": parts})
    return {"topics": topics}


async def _producer_values(call: Call, log: PartitionLog) -> list[Values]:
    entries: list[Values] = []
    for producer_id, state in list(log.producers.items()):
        entries.append(
            {
                "producer_id": producer_id,
                "producer_epoch": state.epoch,
                "last_sequence": state.last_sequence,
                "last_timestamp": state.last_seen_ms,
                "coordinator_epoch": state.coordinator_epoch,
                "current_txn_start_offset": log.transactions.open.get(producer_id, -1),
            }
        )
        await call.throttle.checkpoint(ENTRY_BYTES)
    return entries


async def describe_transactions(call: Call, request: DescribeTransactionsRequest) -> Values:
    """Describe each named transaction once: its state, producer, start, timeout and partitions."""
    states: list[Values] = []
    for transactional_id in dict.fromkeys(request.transactional_ids):
        known = call.node.transactions.get(transactional_id)
        if known is None:
            is_named = bool(transactional_id)
            error = ErrorCode.transactional_id_not_found if is_named else ErrorCode.invalid_request
            states.append({"error_code": error, "transactional_id": transactional_id})
        else:
            states.append(_transaction_values(call, known))
        await call.throttle.checkpoint(ENTRY_BYTES)
    return {"transaction_states": states}


def _transaction_values(call: Call, known: Transaction) -> Values:
    topics: dict[str, list[int]] = {}
    for topic_id, number in sorted(known.partitions):
        found = call.node.catalogue.at(topic_id, number)
        if found is not None and call.may(DESCRIBE, TOPIC, found[0].name):
            topics.setdefault(found[0].name, []).append(number)
    return {
        "error_code": ErrorCode.none,
        "transactional_id": known.transactional_id,
        "transaction_state": known.state.value,
        "transaction_timeout": known.timeout_ms * MILLISECOND,
        "transaction_start_time": EPOCH + known.started_ms * MILLISECOND,
        "producer_id": known.producer_id,
        "producer_epoch": known.epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
    }


async def list_transactions(call: Call, request: ListTransactionsRequest) -> Values:
    """List transactional ids, filtered by state, producer id, duration and pattern (KIP-1152)."""
    known_states = {state.value for state in State} | PASSING_STATES
    wanted_states, wanted_ids = set(request.state_filters), set(request.producer_id_filters)
    longer_than_ms = getattr(request, "duration_filter", -1)
    pattern = getattr(request, "transactional_id_pattern", None)
    try:
        named = compile_pattern(pattern) if pattern else None
    except BadPattern:
        return {"error_code": ErrorCode.invalid_regular_expression, "transaction_states": []}
    now, found = call.node.clock(), []
    for one in list(call.node.transactions):
        is_wanted = (
            (not wanted_ids or one.producer_id in wanted_ids)
            and (not wanted_states or one.state.value in wanted_states)
            and not 0 <= now - one.started_ms <= longer_than_ms
            and (named is None or named.fullmatch(one.transactional_id) is not None)
            and call.may(DESCRIBE, TRANSACTIONAL_ID, one.transactional_id)
        )
        if is_wanted:
            found.append(
                {
                    "transactional_id": one.transactional_id,
                    "producer_id": one.producer_id,
                    "transaction_state": one.state.value,
                }
            )
        await call.throttle.checkpoint(ENTRY_BYTES if is_wanted else 0)
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": tuple(sorted(wanted_states - known_states)),
        "transaction_states": found,
    }


APIS: Final = (
    Api(DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, describe_producers),
    Api(DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, describe_transactions),
    Api(LIST_TRANSACTIONS, "ListTransactions", 0, 2, list_transactions),
)
