"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.membership import ask
from faust_assigner.broker.topics import Topic
from faust_assigner.broker.wire import milliseconds
from faust_assigner.coordinator.classic import State
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets
from faust_assigner.coordinator.offsets import Committed, TopicPartition
from faust_assigner.coordinator.protocol import CONSUMER_PROTOCOL_TYPE

OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE = 8, 9, 47


def offset_commit(call: Call, request: Any) -> asyncio.Future[Values]:
    """Stored before it is acknowledged; refused as a whole when the group does not admit the member."""

    def admitted(reply: Any) -> Values:
        errors = _store(call, request) if reply.error is Code.NONE else {}
        default = _verdict(call, request, reply.error)
        return {
            "topics": [
                {
                    **_names(call, topic),
                    "partitions": [
                        {
                            "partition_index": p.partition_index,
                            "error_code": errors.get((_key(call, topic), p.partition_index), default),
                        }
                        for p in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    generation = request.generation_id_or_member_epoch
    return ask(
        call,
        request.group_id,
        lambda token: CommitOffsets(
            token, request.member_id, generation, getattr(request, "group_instance_id", None)
        ),
        admitted,
    )


def _verdict(call: Call, request: Any, error: Code) -> ErrorCode:
    if (
        error is Code.ILLEGAL_GENERATION
        and call.version >= 9
        and call.node.groups.get(request.group_id) is None
    ):
        return ErrorCode.group_id_not_found
    return ErrorCode(error)


def _key(call: Call, topic: Any) -> Any:
    return topic.topic_id if call.version >= 10 else topic.name


def _names(call: Call, topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if call.version >= 10 else {"name": topic.name}


def _find_topic(call: Call, wanted: Any) -> Topic | None:
    catalogue = call.node.catalogue
    return catalogue.by_id(wanted.topic_id) if call.version >= 10 else catalogue.get(wanted.name)


def _store(call: Call, request: Any) -> dict[tuple[Any, int], ErrorCode]:
    """Store what is sound, return an error for every other partition."""
    now, longest = call.node.clock(), call.node.settings.offset_metadata_max_bytes
    retention = getattr(request, "retention_time", None)
    retention_ms = milliseconds(retention) if retention is not None else -1
    expires = now + retention_ms if retention_ms >= 0 else None
    errors: dict[tuple[Any, int], ErrorCode] = {}
    changes: dict[TopicPartition, Committed] = {}
    for wanted in request.topics:
        topic = _find_topic(call, wanted)
        for part in wanted.partitions:
            place = (_key(call, wanted), part.partition_index)
            note = part.committed_metadata or ""
            if topic is None or not 0 <= part.partition_index < len(topic.partitions):
                unknown_id = topic is None and call.version >= 10
                errors[place] = (
                    ErrorCode.unknown_topic_id if unknown_id else ErrorCode.unknown_topic_or_partition
                )
            elif len(note.encode()) > longest:
                errors[place] = ErrorCode.offset_metadata_too_large
            else:
                epoch = getattr(part, "committed_leader_epoch", -1)
                changes[(topic.name, part.partition_index)] = Committed(
                    part.committed_offset,
                    epoch,
                    note,
                    now,
                    expires,
                )
    stored = call.node.groups.commit(request.group_id, changes) if changes else Code.NONE
    if stored is not Code.NONE:
        for wanted in request.topics:
            for part in wanted.partitions:
                errors.setdefault((_key(call, wanted), part.partition_index), ErrorCode(stored))
    return errors


def offset_fetch(call: Call, request: Any) -> Values:
    """Committed offsets; -1 and no error where there is none. Nothing is ever pending: all are stable."""
    if call.version < 8:
        return {"error_code": ErrorCode.none, "topics": _committed(call, request.group_id, request.topics)}
    return {
        "groups": [
            {
                "group_id": group.group_id,
                "error_code": ErrorCode.none,
                "topics": _committed(call, group.group_id, group.topics),
            }
            for group in request.groups
        ]
    }


def _committed(call: Call, group_id: str, wanted: Iterable[Any] | None) -> list[Values]:
    book = call.node.groups.offsets(group_id)
    if wanted is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in book.entries:
            by_topic.setdefault(topic, []).append(partition)
        return [_topic_answer(call, group_id, name, parts) for name, parts in by_topic.items()]
    answers: list[Values] = []
    for topic in wanted:
        if call.version >= 10:
            known = call.node.catalogue.by_id(topic.topic_id)
            if known is None:
                answers.append(
                    {
                        "topic_id": topic.topic_id,
                        "partitions": [
                            {
                                "partition_index": p,
                                "committed_offset": -1,
                                "metadata": "",
                                "committed_leader_epoch": -1,
                                "error_code": ErrorCode.unknown_topic_id,
                            }
                            for p in topic.partition_indexes
                        ],
                    }
                )
                continue
            answers.append(_topic_answer(call, group_id, known.name, topic.partition_indexes))
        else:
            answers.append(_topic_answer(call, group_id, topic.name, topic.partition_indexes))
    return answers


def _topic_answer(call: Call, group_id: str, name: str, partitions: Iterable[int]) -> Values:
    book = call.node.groups.offsets(group_id)
    topic = call.node.catalogue.get(name)
    return {
        "name": name,
        "topic_id": topic.topic_id if topic is not None else None,
        "partitions": [
            {
                "partition_index": key[1],
                "committed_offset": entry.offset,
                "metadata": entry.metadata,
                "committed_leader_epoch": entry.leader_epoch,
                "error_code": ErrorCode.none,
            }
            for key, entry in book.read((name, partition) for partition in partitions)
        ],
    }


def offset_delete(call: Call, request: Any) -> Values:
    """Forget offsets of topics no living member reads (KIP-496)."""
    group = call.node.groups.get(request.group_id)
    if group is None:
        return {"error_code": ErrorCode.group_id_not_found}
    if group.state is not State.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return {"error_code": ErrorCode.non_empty_group}
    answers, gone = [], []
    for topic in request.topics:
        in_use = call.node.groups.subscribes(group, topic.name)
        error = ErrorCode.group_subscribed_to_topic if in_use else ErrorCode.none
        if not in_use:
            gone += [(topic.name, p.partition_index) for p in topic.partitions]
        answers.append(
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": error} for p in topic.partitions
                ],
            }
        )
    call.node.groups.delete_offsets(request.group_id, gone)
    return {"error_code": ErrorCode.none, "topics": answers}


APIS: Final = (
    Api(OFFSET_COMMIT, "OffsetCommit", 2, 9, offset_commit),
    Api(OFFSET_FETCH, "OffsetFetch", 1, 9, offset_fetch),
    Api(OFFSET_DELETE, "OffsetDelete", 0, 0, offset_delete),
)
