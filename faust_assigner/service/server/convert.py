"""Converts the node's values to messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from faust_assigner.service.commands import (
    AbortWarm,
    Assignment,
    Command,
    Owned,
    Pulse,
    Release,
    Replicas,
    Warm,
)
from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.records import (
    Assigned,
    Consumer,
    OpenHandoff,
    Pause,
    Pin,
    PlannedMove,
    Status,
    TopicConfig,
)
from faust_assigner.service.serving.routes import Route, RouteUpdate

#: Maximum bytes of one list in a message. A message has at most three such lists, so that it is
#: below the 4 MiB that gRPC clients accept by default.
PART_BYTES: Final = 2**20
#: Maximum bytes of the tag and the length in front of a nested message.
FRAME_BYTES: Final = 6
M = TypeVar("M", bound=Message)


def message_of(at: TopicPartition) -> pb.TopicPartition:
    """Return a partition as a message."""
    return pb.TopicPartition(topic=at.topic, partition=at.partition)


def messages_of(command: Command) -> Iterator[pb.AssignmentCommand]:
    """Yield a command's messages; a large command is split into several messages."""
    match command:
        case Assignment():
            yield from _assignment(command)
        case Warm():
            yield pb.AssignmentCommand(
                warm=pb.WarmPartition(
                    partition=message_of(command.at),
                    current_owner=command.current_owner,
                    handoff_id=command.handoff_id,
                    strict=command.strict,
                )
            )
        case Release():
            yield pb.AssignmentCommand(
                release=pb.ReleasePartition(
                    partition=message_of(command.at),
                    new_owner=command.new_owner,
                    handoff_id=command.handoff_id,
                    strict=command.strict,
                )
            )
        case AbortWarm():
            yield pb.AssignmentCommand(
                abort_warm=pb.AbortWarm(
                    partition=message_of(command.at), handoff_id=command.handoff_id
                )
            )
        case Replicas():
            for part, more in _split_messages(map(message_of, command.partitions)):
                yield pb.AssignmentCommand(standby=pb.StandbyUpdate(standbys=part, more=more))
        case Pulse():
            yield pb.AssignmentCommand(pulse=pb.Pulse())


def _assignment(command: Assignment) -> Iterator[pb.AssignmentCommand]:
    *firsts, (unassigned, _) = _split_messages(map(message_of, command.unassigned))
    for first, _ in firsts:
        yield pb.AssignmentCommand(assignment=pb.AssignmentUpdate(unassigned=first))
    rows: Iterator[pb.Grant | pb.TopicPartition] = chain(
        map(_grant_message, command.assigned), map(message_of, command.releasing)
    )
    for number, (part, more) in enumerate(_split_messages(rows)):
        grants = [row for row in part if isinstance(row, pb.Grant)]
        yield pb.AssignmentCommand(
            assignment=pb.AssignmentUpdate(
                assigned=[grant.partition for grant in grants],
                unassigned=unassigned if number == 0 else (),
                snapshot=command.full and number == 0,
                more=command.full and more,
                grants=grants,
                releasing=[row for row in part if isinstance(row, pb.TopicPartition)],
            )
        )


def _grant_message(owned: Owned) -> pb.Grant:
    return pb.Grant(
        partition=message_of(owned.at),
        epoch=owned.epoch,
        start_offset=owned.offset,
        keep=owned.keep,
    )


def _split_messages(messages: Iterable[M]) -> Iterator[tuple[list[M], bool]]:
    """Yield (part, whether another part follows); a part has at most :data:`PART_BYTES`.

    There is at least one part. A message above this limit gets a separate part.
    """
    part: list[M] = []
    size = 0
    for message in messages:
        taken = message.ByteSize() + FRAME_BYTES
        if part and size + taken > PART_BYTES:
            yield part, True
            part, size = [], 0
        part.append(message)
        size += taken
    yield part, False


def routed(update: RouteUpdate, pulse_ms: int) -> Iterator[pb.AssignmentsUpdate]:
    """Yield an update of the table of owners as messages; one with ``more`` set is followed by another."""
    parts = [(part, ()) for part, _ in _split_messages(map(_route_message, update.routes))]
    if update.unowned:
        gone = [((), part) for part, _ in _split_messages(map(message_of, update.unowned))]
        parts = [*(parts if update.routes else ()), *gone]  # type: ignore[list-item]
    for number, (routes, unowned) in enumerate(parts, 1):
        yield pb.AssignmentsUpdate(
            snapshot=update.full and number == 1,
            more=update.more or number < len(parts),
            revision=update.revision,
            routes=routes,
            unowned=unowned,
            pulse_ms=pulse_ms,
        )


def _route_message(one: Route) -> pb.Route:
    return pb.Route(
        partition=message_of(one.at), owner=one.owner, epoch=one.epoch, endpoint=one.endpoint
    )


def plans(moves: Sequence[PlannedMove], revision: int) -> Iterator[pb.PlanResponse]:
    """Yield the moves of a dry run, in messages of limited size."""
    for part, _ in _split_messages(map(_move_message, moves)):
        yield pb.PlanResponse(moves=part, revision=revision)


def _move_message(move: PlannedMove) -> pb.Move:
    return pb.Move(
        partition=message_of(move.at), from_owner=move.old_owner or "", to_owner=move.new_owner
    )


def states(
    leader: str,
    revision: int,
    topics: Sequence[TopicConfig],
    consumers: Sequence[Consumer],
    assignments: Sequence[Assigned],
    handoffs: Sequence[OpenHandoff],
    pins: Iterable[Pin] = (),
    pause: Pause | None = None,
    *,
    group: str = "",
    age_s: float = 0.0,
) -> Iterator[pb.State]:
    """Yield the whole state in messages. ``age_s``: seconds since the store's last answer."""
    counts = {one.topic: one.partition_count for one in topics}
    rows: Iterator[pb.Topic | pb.Consumer | pb.Handoff | pb.Assignment | pb.Pinned] = chain(
        (pb.Topic(topic=one.topic, partition_count=one.partition_count) for one in topics),
        (_consumer(one, counts) for one in consumers),
        map(_handoff_message, handoffs),
        map(_assignment_message, assignments),
        map(_pinned_message, pins),
    )
    paused = None if pause is None else pb.Paused(reason=pause.reason, since=pause.since)
    for part, more in _split_messages(rows):
        state = pb.State(leader=leader, revision=revision, more=more, paused=paused)
        state.group, state.age_s = group, age_s
        for kind, some in groupby(part, type):
            getattr(state, _FIELD[kind]).extend(some)
        yield state


_STATUS: Final = {
    Status.READY: pb.CONSUMER_STATUS_READY,
    Status.DRAINING: pb.CONSUMER_STATUS_DRAINING,
}
_PHASE: Final = {
    Phase.WARMING: pb.HANDOFF_PHASE_WARMING,
    Phase.READY: pb.HANDOFF_PHASE_READY,
    Phase.COMPLETE: pb.HANDOFF_PHASE_COMPLETE,
}
#: Kind of row -> its field in a state.
_FIELD: Final[Mapping[type[Any], str]] = {
    pb.Topic: "topics",
    pb.Consumer: "consumers",
    pb.Handoff: "handoffs",
    pb.Assignment: "assignments",
    pb.Pinned: "pins",
}


def _consumer(one: Consumer, counts: Mapping[str, int]) -> pb.Consumer:
    """Return a registration as a message.

    Replicas of partitions that do not exist are left out: there may be very many.
    """
    holds = {
        topic: [number for number in numbers if number < counts[topic]]
        for topic, numbers in one.holds.items()
        if topic in counts
    }
    return pb.Consumer(
        consumer_name=one.name,
        status=_STATUS[one.status],
        topics=one.topics,
        rack=one.rack or "",
        capacity=one.capacity,
        registered_at=one.registered_at,
        replicas=[
            pb.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in sorted(holds.items())
        ],
        incarnation=one.incarnation,
        endpoint=one.endpoint,
    )


def _assignment_message(one: Assigned) -> pb.Assignment:
    return pb.Assignment(
        partition=message_of(one.at),
        owner=one.owner,
        epoch=one.epoch,
        start_offset=one.offset,
        incarnation=one.incarnation,
        absent=one.absent,
    )


def _pinned_message(one: Pin) -> pb.Pinned:
    return pb.Pinned(partition=message_of(one.at), consumer_name=one.consumer, once=one.once)


def _handoff_message(one: OpenHandoff) -> pb.Handoff:
    said = one.handoff
    return pb.Handoff(
        partition=message_of(said.at),
        old_owner=said.old_owner,
        new_owner=said.new_owner,
        phase=_PHASE[said.phase],
        handoff_id=one.handoff_id,
        age_s=one.age_s,
        progress=said.progress,
        strict=said.strict,
        released=said.released,
        unreleased=said.unreleased or "",
    )
