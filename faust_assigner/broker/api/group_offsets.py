"""OffsetFetch and OffsetDelete: committed offsets of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.membership import apply_to_group
from faust_assigner.broker.security.acls import DESCRIBE, TOPIC
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import FetchOffsets
from faust_assigner.coordinator.protocol import CONSUMER_PROTOCOL_TYPE

if TYPE_CHECKING:
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequestGroup

OFFSET_FETCH, OFFSET_DELETE = 9, 47
OFFSET_BYTES: Final = 30  # estimated size of an offset in an answer, without its metadata


async def offset_fetch(call: Call, request: Any) -> Values:
    """Return committed offsets; -1 without an error for a partition that has no committed offset.

    With require_stable, an offset that an open transaction may change gets the error UNSTABLE_OFFSET_COMMIT
    (KIP-447). A group or partition that is named twice is answered once.
    """
    stable = getattr(request, "require_stable", False)
    if call.version < 8:
        topics = await _committed_topics(call, request.group_id, [request.topics], stable)
        return {"error_code": ErrorCode.none, "topics": topics}
    asked_of: dict[str, list[Any]] = {}
    readers = {group.group_id: group for group in request.groups}
    for group in request.groups:
        asked_of.setdefault(group.group_id, []).append(group.topics)
    groups = []
    for group_id, wanted in asked_of.items():
        error = await _check_reader(call, readers[group_id])
        topics = (
            await _committed_topics(call, group_id, wanted, stable) if error is Code.NONE else []
        )
        groups.append({"group_id": group_id, "error_code": ErrorCode(error), "topics": topics})
        await call.throttle.checkpoint()
    return {"groups": groups}


async def _check_reader(call: Call, reader: OffsetFetchRequestGroup) -> Code:
    """Ask the group whether a member may fetch offsets (requests name the member since version 9)."""
    member_id, epoch = getattr(reader, "member_id", None), getattr(reader, "member_epoch", -1)
    reply = await apply_to_group(
        call, reader.group_id, lambda token: FetchOffsets(token, member_id, epoch)
    )
    return Code(reply.error)


async def _committed_topics(
    call: Call, group_id: str, asked_for: Sequence[Iterable[Any] | None], stable: bool
) -> list[Values]:
    """Return the topics of one group; None in ``asked_for`` means all committed offsets."""
    wanted: dict[Any, dict[int, None]] = {}
    for topics in asked_for:
        if topics is None:
            for name, partition in list(call.node.groups.books.offsets(group_id).entries):
                if call.may(DESCRIBE, TOPIC, name):
                    wanted.setdefault(name, {})[partition] = None
                await call.throttle.checkpoint()
            continue
        for topic in topics:
            key = topic.topic_id if call.version >= 10 else topic.name
            wanted.setdefault(key, {}).update(dict.fromkeys(topic.partition_indexes))
            await call.throttle.checkpoint()
    answers: list[Values] = []
    for key, partitions in wanted.items():
        known = (
            call.node.catalogue.by_id(key)
            if call.version >= 10 and not isinstance(key, str)
            else None
        )
        if call.version >= 10 and known is None and not isinstance(key, str):
            answers.append(
                {
                    "topic_id": key,
                    "partitions": [
                        _no_offset_values(p, ErrorCode.unknown_topic_id) for p in partitions
                    ],
                }
            )
        else:
            name = known.name if known else key
            answers.append(await _topic_answer(call, group_id, name, partitions, stable))
        await call.throttle.checkpoint()
    return answers


def _no_offset_values(partition: int, error: ErrorCode) -> Values:
    return {
        "partition_index": partition,
        "committed_offset": -1,
        "metadata": "",
        "committed_leader_epoch": -1,
        "error_code": error,
    }


async def _topic_answer(
    call: Call, group_id: str, name: str, partitions: Iterable[int], stable: bool
) -> Values:
    pending = call.node.groups.books.pending
    book = call.node.groups.books.offsets(group_id)
    topic = call.node.catalogue.get(name)
    names = {"name": name, "topic_id": topic.topic_id if topic is not None else None}
    if not call.may(DESCRIBE, TOPIC, name):
        error = ErrorCode.topic_authorization_failed
        return names | {"partitions": [_no_offset_values(number, error) for number in partitions]}
    answers = []
    for key, entry in book.read((name, partition) for partition in partitions):
        if stable and pending.is_pending(group_id, key):
            answers.append(_no_offset_values(key[1], ErrorCode.unstable_offset_commit))
            await call.throttle.checkpoint(OFFSET_BYTES)
            continue
        answers.append(
            {
                "partition_index": key[1],
                "committed_offset": entry.offset,
                "metadata": entry.metadata,
                "committed_leader_epoch": entry.leader_epoch,
                "error_code": ErrorCode.none,
            }
        )
        await call.throttle.checkpoint(OFFSET_BYTES + len(entry.metadata))
    return names | {"partitions": answers}


def subscribed(group: Group) -> Callable[[str], bool]:
    """Return a function that tells if members subscribe to a topic (KIP-496); True if unknown."""
    if group.state_name == "Empty":
        return lambda topic: False
    topics = group.subscribed_topics()
    return lambda topic: topics is None or topic in topics


async def offset_delete(call: Call, request: OffsetDeleteRequest) -> Values:
    """Delete offsets of topics to which no current member subscribes (KIP-496)."""
    group = call.node.groups.get(request.group_id)
    if group is None:
        nameless = not request.group_id
        return {
            "error_code": ErrorCode.invalid_group_id if nameless else ErrorCode.group_id_not_found
        }
    if group.state_name != "Empty" and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return {"error_code": ErrorCode.non_empty_group}
    is_read = subscribed(group)
    answers: list[Values] = []
    for wanted in request.topics:
        topic = call.node.catalogue.get(wanted.name)
        held = range(len(topic.partitions)) if topic is not None else range(0)
        in_use = is_read(wanted.name)
        error = ErrorCode.group_subscribed_to_topic if in_use else ErrorCode.none
        numbers = [p.partition_index for p in wanted.partitions]
        if not in_use:
            gone = [(wanted.name, n) for n in numbers if n in held]
            failed = call.node.groups.books.delete_offsets(request.group_id, gone)
            if failed is not Code.NONE:
                return {"error_code": ErrorCode(failed)}
        parts = [
            {
                "partition_index": n,
                "error_code": error if n in held else ErrorCode.unknown_topic_or_partition,
            }
            for n in numbers
        ]
        answers.append({"name": wanted.name, "partitions": parts})
        await call.throttle.checkpoint()
    return {"error_code": ErrorCode.none, "topics": answers}


APIS: Final = (
    Api(OFFSET_FETCH, "OffsetFetch", 1, 10, offset_fetch),
    Api(OFFSET_DELETE, "OffsetDelete", 0, 0, offset_delete),
)
