"""The OffsetCommit API, and the steps of a commit that TxnOffsetCommit shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.membership import apply_to_group
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.topics import Topic
from faust_assigner.broker.wire import milliseconds
from faust_assigner.coordinator.effects import CommitReply
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets
from faust_assigner.coordinator.offsets import Committed, TopicPartition

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest

OFFSET_COMMIT: Final = 8
COMMITTED_AT_ONCE: Final = 500
#: The offset to store for each partition, and the partition's log.
Changes = dict[TopicPartition, tuple[Committed, PartitionLog]]


async def offset_commit(call: Call, request: OffsetCommitRequest) -> Values:
    """Store offsets, then acknowledge them. If the group refuses the member, no offset is stored.

    Unknown partitions get their own error. If all partitions are unknown, the group is not asked.
    """
    return await commit_answer(call, request, partial(_check_member_and_store, call, request))


async def commit_answer(
    call: Call,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    store: Callable[[Changes], Awaitable[ErrorCode]],
) -> Values:
    """Check each partition, store the offsets of the valid partitions, and return all errors.

    ``store`` returns one error for all valid partitions. If some metadata is too large, ``store`` is called
    even without offsets: an error of the member has priority over OFFSET_METADATA_TOO_LARGE.
    """
    faults, changes = await _check_partitions(call, request)
    asks = changes or ErrorCode.offset_metadata_too_large in faults.values()
    verdict = await store(changes) if asks else ErrorCode.none
    topics = []
    for wanted in request.topics:
        key, parts = _topic_key(call, wanted), []
        for part in wanted.partitions:
            error = faults.get((key, part.partition_index), verdict)
            if error is ErrorCode.offset_metadata_too_large and verdict is not ErrorCode.none:
                error = verdict
            parts.append({"partition_index": part.partition_index, "error_code": error})
            await call.throttle.checkpoint()
        topics.append({**_topic_fields(call, wanted), "partitions": parts})
    return {"topics": topics}


async def store_in_slices(
    call: Call,
    changes: Changes,
    check: Callable[[Iterable[TopicPartition]], Awaitable[Code]],
    store: Callable[[dict[TopicPartition, Committed]], Code],
) -> Code:
    """Check a commit, then store its offsets in slices; stop at the first error and return it.

    Each further slice is checked again: other requests were served since the last one, so a member may have
    lost its partitions, a transaction may have ended, or the group may be deleted.
    """
    error = await check(changes)
    for number, part in enumerate(_in_slices(changes)):
        if number:
            error = await check(part)
        if error is Code.NONE:
            error = store(part)
        if error is not Code.NONE:
            break
        await call.throttle.checkpoint()
    return error


def _in_slices(changes: Changes) -> Iterator[dict[TopicPartition, Committed]]:
    """Yield the offsets in slices of at most COMMITTED_AT_ONCE; one write stores each slice.

    A topic that was deleted meanwhile is left out: a new topic of its name would inherit its offsets.
    """
    entries = list(changes.items())
    for first in range(0, len(entries), COMMITTED_AT_ONCE):
        part = entries[first : first + COMMITTED_AT_ONCE]
        yield {key: committed for key, (committed, log) in part if not log.deleted}


async def _check_member_and_store(
    call: Call, request: OffsetCommitRequest, changes: Changes
) -> ErrorCode:
    """Let the group check the member, then store the offsets; return one error for all valid partitions."""
    group_id = request.group_id

    async def check(partitions: Iterable[TopicPartition]) -> Code:
        event = partial(
            CommitOffsets,
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance_id=getattr(request, "group_instance_id", None),
            api_version=call.version,
            partitions=tuple(partitions),
        )
        reply: CommitReply = await apply_to_group(call, group_id, event)
        return reply.error

    books = call.node.groups.books
    error = await store_in_slices(call, changes, check, partial(books.commit, group_id))
    return ErrorCode(error) if error is Code.NONE else _answered_error(call, request, error)


def _answered_error(call: Call, request: OffsetCommitRequest, error: Code) -> ErrorCode:
    if (
        error is Code.ILLEGAL_GENERATION
        and call.version >= 9
        and call.node.groups.get(request.group_id) is None
    ):
        return ErrorCode.group_id_not_found
    return ErrorCode(error)


def _topic_key(call: Call, topic: Any) -> Any:
    return topic.topic_id if call.version >= 10 else topic.name


def _topic_fields(call: Call, topic: Any) -> dict[str, object]:
    return {"topic_id": topic.topic_id} if call.version >= 10 else {"name": topic.name}


def _find_topic(call: Call, wanted: Any) -> Topic | None:
    catalogue = call.node.catalogue
    return catalogue.by_id(wanted.topic_id) if call.version >= 10 else catalogue.get(wanted.name)


async def _check_partitions(
    call: Call, request: OffsetCommitRequest | TxnOffsetCommitRequest
) -> tuple[dict[tuple[Any, int], ErrorCode], Changes]:
    """Check each partition, before the group is asked; return the errors and the offsets to store."""
    now, longest = call.node.clock(), call.node.settings.offset_metadata_max_bytes
    retention = getattr(request, "retention_time", None)
    retention_ms = milliseconds(retention) if retention is not None else -1
    expires = now + retention_ms if retention_ms >= 0 else None
    faults: dict[tuple[Any, int], ErrorCode] = {}
    changes: Changes = {}
    for wanted in request.topics:
        topic = _find_topic(call, wanted)
        for part in wanted.partitions:
            place = (_topic_key(call, wanted), part.partition_index)
            note = part.committed_metadata or ""
            if topic is None or not 0 <= part.partition_index < len(topic.partitions):
                unknown_id = topic is None and call.version >= 10
                faults[place] = (
                    ErrorCode.unknown_topic_id
                    if unknown_id
                    else ErrorCode.unknown_topic_or_partition
                )
            elif len(note.encode("utf-16-le")) > 2 * longest:  # Kafka counts UTF-16 units
                faults[place] = ErrorCode.offset_metadata_too_large
            else:
                epoch = getattr(part, "committed_leader_epoch", -1)
                committed = Committed(part.committed_offset, epoch, note, now, expires)
                log = topic.partitions[part.partition_index]
                changes[(topic.name, part.partition_index)] = committed, log
            await call.throttle.checkpoint()
    return faults, changes


APIS: Final = (Api(OFFSET_COMMIT, "OffsetCommit", 2, 10, offset_commit),)
