"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Api, Call, Values
from faust_assigner.broker.api.membership import asked
from faust_assigner.broker.security.acls import DESCRIBE, TOPIC
from faust_assigner.broker.topics import Topic
from faust_assigner.broker.wire import milliseconds
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import CommitOffsets, FetchOffsets
from faust_assigner.coordinator.group import Group
from faust_assigner.coordinator.offsets import Committed, TopicPartition
from faust_assigner.coordinator.protocol import CONSUMER_PROTOCOL_TYPE

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequest
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
    from kio.schema.offset_fetch.v10.request import OffsetFetchRequestGroup
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest

OFFSET_COMMIT, OFFSET_FETCH, OFFSET_DELETE = 8, 9, 47
COMMITTED_AT_ONCE: Final = 500
Changes = dict[TopicPartition, Committed]
OFFSET_BYTES: Final = 30  # of an offset in an answer, without its metadata


async def offset_commit(call: Call, request: OffsetCommitRequest) -> Values:
    """Store offsets, then acknowledge them; refuse all if the group does not accept the member.

    Unknown partitions get their own error. If all partitions are unknown, the group is not asked.
    """
    return await commit_answer(call, request, partial(_carry_out, call, request))


async def commit_answer(
    call: Call,
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
    store: Callable[[Changes], Awaitable[ErrorCode]],
) -> Values:
    """Check each partition, store the offsets of the sound ones, and return the errors of all.

    ``store`` returns the error of all sound partitions. It is called without offsets, too, if some metadata
    is too large: an error of the member has priority over this one.
    """
    faults, changes = await _weigh(call, request)
    asks = changes or ErrorCode.offset_metadata_too_large in faults.values()
    verdict = await store(changes) if asks else ErrorCode.none
    topics = []
    for wanted in request.topics:
        key, parts = _key(call, wanted), []
        for part in wanted.partitions:
            error = faults.get((key, part.partition_index), verdict)
            if error is ErrorCode.offset_metadata_too_large and verdict is not ErrorCode.none:
                error = verdict
            parts.append({"partition_index": part.partition_index, "error_code": error})
            await call.throttle.turn()
        topics.append({**_names(call, wanted), "partitions": parts})
    return {"topics": topics}


def in_slices(changes: Changes) -> Iterator[Changes]:
    """Yield the offsets in parts that are stored at once."""
    entries = list(changes.items())
    for first in range(0, len(entries), COMMITTED_AT_ONCE):
        yield dict(entries[first : first + COMMITTED_AT_ONCE])


async def _carry_out(call: Call, request: OffsetCommitRequest, changes: Changes) -> ErrorCode:
    """Ask the group, then store; return the error of all existing partitions."""
    reply = await asked(
        call,
        request.group_id,
        lambda token: CommitOffsets(
            token,
            request.member_id,
            request.generation_id_or_member_epoch,
            getattr(request, "group_instance_id", None),
            call.version,
            partitions=tuple(changes),
        ),
    )
    if reply.error is not Code.NONE:
        return _verdict(call, request, reply.error)
    return ErrorCode(await _commit(call, request.group_id, changes))


def _verdict(call: Call, request: OffsetCommitRequest, error: Code) -> ErrorCode:
    if (
        error is Code.ILLEGAL_GENERATION
        and call.version >= 9
        and call.node.groups.get(request.group_id) is None
    ):
        return ErrorCode.group_id_not_found
    return ErrorCode(error)


def _key(call: Call, topic: Any) -> Any:
    return topic.topic_id if call.version >= 10 else topic.name


def _names(call: Call, topic: Any) -> dict[str, object]:
    return {"topic_id": topic.topic_id} if call.version >= 10 else {"name": topic.name}


def _find_topic(call: Call, wanted: Any) -> Topic | None:
    catalogue = call.node.catalogue
    return catalogue.by_id(wanted.topic_id) if call.version >= 10 else catalogue.get(wanted.name)


async def _weigh(
    call: Call, request: OffsetCommitRequest | TxnOffsetCommitRequest
) -> tuple[dict[tuple[Any, int], ErrorCode], Changes]:
    """Check each partition before the group is asked: return the errors, and the offsets to store."""
    now, longest = call.node.clock(), call.node.settings.offset_metadata_max_bytes
    retention = getattr(request, "retention_time", None)
    retention_ms = milliseconds(retention) if retention is not None else -1
    expires = now + retention_ms if retention_ms >= 0 else None
    faults: dict[tuple[Any, int], ErrorCode] = {}
    changes: Changes = {}
    for wanted in request.topics:
        topic = _find_topic(call, wanted)
        for part in wanted.partitions:
            place = (_key(call, wanted), part.partition_index)
            note = part.committed_metadata or ""
            if topic is None or not 0 <= part.partition_index < len(topic.partitions):
                unknown_id = topic is None and call.version >= 10
                faults[place] = (
                    ErrorCode.unknown_topic_id
                    if unknown_id
                    else ErrorCode.unknown_topic_or_partition
                )
            elif len(note.encode("utf-16-le")) > 2 * longest:  # Kafka counts as Java does
                faults[place] = ErrorCode.offset_metadata_too_large
            else:
                epoch = getattr(part, "committed_leader_epoch", -1)
                committed = Committed(part.committed_offset, epoch, note, now, expires)
                changes[(topic.name, part.partition_index)] = committed
            await call.throttle.turn()
    return faults, changes


async def _commit(call: Call, group_id: str, changes: Changes) -> Code:
    """Store the offsets in slices; stop at the first error and return it."""
    for part in in_slices(changes):
        stored = call.node.groups.books.commit(group_id, part)
        if stored is not Code.NONE:
            return stored
        await call.throttle.turn()
    return Code.NONE


async def offset_fetch(call: Call, request: Any) -> Values:
    """Return committed offsets; -1 without an error if a partition has none.

    With require_stable, an offset that an open transaction may change is UNSTABLE_OFFSET_COMMIT (KIP-447).
    A group or partition that is named twice is answered once.
    """
    stable = getattr(request, "require_stable", False)
    if call.version < 8:
        topics = await _committed(call, request.group_id, [request.topics], stable)
        return {"error_code": ErrorCode.none, "topics": topics}
    asked_of: dict[str, list[Any]] = {}
    readers = {group.group_id: group for group in request.groups}
    for group in request.groups:
        asked_of.setdefault(group.group_id, []).append(group.topics)
    groups = []
    for group_id, wanted in asked_of.items():
        error = await _may_fetch(call, readers[group_id])
        topics = await _committed(call, group_id, wanted, stable) if error is Code.NONE else []
        groups.append({"group_id": group_id, "error_code": ErrorCode(error), "topics": topics})
        await call.throttle.turn()
    return {"groups": groups}


async def _may_fetch(call: Call, reader: OffsetFetchRequestGroup) -> Code:
    """Ask the group whether a member may fetch offsets (requests name the member since version 9)."""
    member_id, epoch = getattr(reader, "member_id", None), getattr(reader, "member_epoch", -1)
    reply = await asked(call, reader.group_id, lambda token: FetchOffsets(token, member_id, epoch))
    return Code(reply.error)


async def _committed(
    call: Call, group_id: str, asked_for: Sequence[Iterable[Any] | None], stable: bool
) -> list[Values]:
    """Return the topics of one group; None in ``asked_for`` stands for all its committed offsets."""
    wanted: dict[Any, dict[int, None]] = {}
    for topics in asked_for:
        if topics is None:
            for name, partition in call.node.groups.books.offsets(group_id).entries:
                if call.may(DESCRIBE, TOPIC, name):
                    wanted.setdefault(name, {})[partition] = None
                await call.throttle.turn()
            continue
        for topic in topics:
            key = topic.topic_id if call.version >= 10 else topic.name
            wanted.setdefault(key, {}).update(dict.fromkeys(topic.partition_indexes))
            await call.throttle.turn()
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
                    "partitions": [_absent(p, ErrorCode.unknown_topic_id) for p in partitions],
                }
            )
        else:
            name = known.name if known else key
            answers.append(await _topic_answer(call, group_id, name, partitions, stable))
        await call.throttle.turn()
    return answers


def _absent(partition: int, error: ErrorCode) -> Values:
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
        return names | {"partitions": [_absent(number, error) for number in partitions]}
    answers = []
    for key, entry in book.read((name, partition) for partition in partitions):
        if stable and pending.is_pending(group_id, key):
            answers.append(_absent(key[1], ErrorCode.unstable_offset_commit))
            await call.throttle.turn(OFFSET_BYTES)
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
        await call.throttle.turn(OFFSET_BYTES + len(entry.metadata))
    return names | {"partitions": answers}


def subscribed(group: Group) -> Callable[[str], bool]:
    """Return a test whether members of the group read a topic (KIP-496); true if unknown."""
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
            call.node.groups.books.delete_offsets(request.group_id, gone)
        parts = [
            {
                "partition_index": n,
                "error_code": error if n in held else ErrorCode.unknown_topic_or_partition,
            }
            for n in numbers
        ]
        answers.append({"name": wanted.name, "partitions": parts})
        await call.throttle.turn()
    return {"error_code": ErrorCode.none, "topics": answers}


APIS: Final = (
    Api(OFFSET_COMMIT, "OffsetCommit", 2, 10, offset_commit),
    Api(OFFSET_FETCH, "OffsetFetch", 1, 10, offset_fetch),
    Api(OFFSET_DELETE, "OffsetDelete", 0, 0, offset_delete),
)
