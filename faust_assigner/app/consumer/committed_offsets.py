"""The fetch of a group's committed offsets; it raises an error if the broker cannot return them yet.

While a coordinator loads a group, it answers OffsetFetch with one error for the whole request and without
offsets (since Kafka 0.10.2). aiokafka checks only the errors of single partitions, so it treats each
partition as uncommitted. After a broker's restart a worker therefore started again at the first record of
the log, or at the first record that it had read.

A producer's transaction ends once the broker has recorded the end. The offsets in the transaction take
effect a little later (KIP-447). Only OffsetFetch from version 7 on can wait for these stable offsets, and
aiokafka sends version 3 at most. The struct below is version 7 of Kafka's ``OffsetFetchRequest.json``.
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
    """Raised while a pending transaction commits offsets of these partitions; the fetch is retried."""

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
            (topic, [tp.partition for tp in tps], {}) for topic, tps in _group_by_topic(self._tps)
        ]
        return request_struct_class(self._group_id, topics, True, {})


def _group_by_topic(tps: Collection[TP]) -> Iterator[tuple[str, Iterator[TP]]]:
    return groupby(sorted(tps), key=lambda tp: tp.topic)


def replace_offset_fetch(coordinator: GroupCoordinator) -> None:
    """Make aiokafka's ``coordinator`` fetch committed offsets with :func:`committed`."""
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
    """Return the committed offsets of ``tps``, without uncommitted partitions.

    Runs on the consumer's thread.
    Raises aiokafka's errors. The error is retriable while the coordinator loads the group and while a
    transaction is about to commit; aiokafka then repeats the request.
    """
    try:
        answer = await coordinator._send_req(_OffsetFetch(coordinator.group_id, tps))
    except (errors.IncompatibleBrokerVersion, NotImplementedError):  # a broker before Kafka 2.5
        by_topic = [(topic, [tp.partition for tp in some]) for topic, some in _group_by_topic(tps)]
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
