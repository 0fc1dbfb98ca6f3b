"""The committed offsets of a group, or an error; an offset that is unavailable is not reported as missing.

While a coordinator loads a group, it answers OffsetFetch with one error for the whole request and without
offsets (since Kafka 0.10.2). aiokafka checks the errors of partitions only and takes each partition for
uncommitted. So a worker that asked just after a broker's restart began again at the first record of the log,
or at its own first read record.

For its producer, a transaction has ended once the broker has recorded the end. The offsets in the transaction
take effect a little later (KIP-447). aiokafka sends version 3 at most. The struct below is Kafka's own
``OffsetFetchRequest.json`` at version 7, the first version with a request for stable offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from mode import get_logger

from faust_assigner.app.retry import RateLimitedLog

if TYPE_CHECKING:
    from aiokafka.consumer.group_coordinator import GroupCoordinator
    from faust.types.tuples import TP

logger = get_logger(__name__)

_MARK = "_faust_assigner_committed"

UNSTABLE_OFFSET_COMMIT, UNKNOWN_OFFSET = 88, -1


class UnstableOffsetsError(errors.KafkaError):  # type: ignore[misc]
    """A pending transaction commits offsets of these partitions; it ends within its timeout."""

    retriable = True


class _OffsetFetchResponse(Response):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString("utf-8")),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _OffsetFetchStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 9
    API_VERSION = 7
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _OffsetFetchResponse
    SCHEMA = Schema(
        ("group_id", CompactString("utf-8")),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class _OffsetFetch(Request[_OffsetFetchStruct]):  # type: ignore[misc]
    API_KEY = 9

    def __init__(self, group_id: str, tps: Collection[TP]) -> None:
        self._group_id, self._tps = group_id, tps

    def build(self, request_struct_class: type[_OffsetFetchStruct]) -> _OffsetFetchStruct:
        topics: list[tuple[str, list[int], dict[int, bytes]]] = [
            (topic, [tp.partition for tp in tps], {}) for topic, tps in _by_topic(self._tps)
        ]
        return request_struct_class(self._group_id, topics, True, {})


def _by_topic(tps: Collection[TP]) -> Iterator[tuple[str, Iterator[TP]]]:
    return groupby(sorted(tps), key=lambda tp: tp.topic)


def ask_for_all(coordinator: GroupCoordinator) -> None:
    """Have aiokafka's ``coordinator`` fetch committed offsets by :func:`committed`, for all callers."""
    if _MARK in vars(coordinator):
        return
    said = RateLimitedLog()
    setattr(coordinator, _MARK, said)

    async def ask(tps: Collection[TP]) -> dict[TP, OffsetAndMetadata]:
        try:
            return await committed(coordinator, tps)
        except errors.KafkaError as error:
            if error.retriable and said.due(type(error)):
                logger.info(
                    "The coordinator cannot return committed offsets yet; asking again: %s", error
                )
            raise

    coordinator._do_fetch_commit_offsets = ask


async def committed(
    coordinator: GroupCoordinator, tps: Collection[TP]
) -> dict[TP, OffsetAndMetadata]:
    """The committed offsets of ``tps``, without partitions that have none. On the consumer's thread.

    Raises aiokafka's errors. While the coordinator loads the group, and while a transaction is about to
    commit, the error is retriable, and aiokafka asks again.
    """
    try:
        answer = await coordinator._send_req(_OffsetFetch(coordinator.group_id, tps))
    except (errors.IncompatibleBrokerVersion, NotImplementedError):  # before Kafka 2.5
        by_topic = [(topic, [tp.partition for tp in some]) for topic, some in _by_topic(tps)]
        answer = await coordinator._send_req(OffsetFetchRequest(coordinator.group_id, by_topic))
    said = answer.to_object()
    _check(coordinator, said.get("error_code", 0), coordinator.group_id)
    found = {}
    for topic in said["topics"]:
        for part in topic["partitions"]:
            tp = TopicPartition(topic["topic"], part["partition"])
            _check(coordinator, part["error_code"], tp)
            if part["offset"] != UNKNOWN_OFFSET:
                found[tp] = OffsetAndMetadata(part["offset"], part["metadata"])
    return found


def _check(coordinator: GroupCoordinator, code: int, what: object) -> None:
    if code == 0:
        return
    if code == UNSTABLE_OFFSET_COMMIT:
        raise UnstableOffsetsError(f"a transaction is about to commit offsets of {what}")
    error = errors.for_code(code)
    if error is errors.UnknownTopicOrPartitionError:
        logger.warning(
            "Offsets of %s are not committed: the group's coordinator does not know "
            "this topic or partition",
            what,
        )
        return
    if error in (errors.NotCoordinatorForGroupError, errors.GroupCoordinatorNotAvailableError):
        coordinator.coordinator_dead()
    raise error(what)
