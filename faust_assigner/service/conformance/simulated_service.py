"""A simulated service for a client under test: it sends a rule's commands and records requests."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import add_KafkaAssignerServicer_to_server

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from faust_assigner.service.server.auth import Context

TOPIC: Final = "conformance"
#: The bytes of a command of a later release: this release does not define its field number.
_LATER: Final = bytes([0xFA, 0x7F, 0x02, 0x08, 0x01])


def at(number: int) -> TopicPartition:
    """Return a partition of the test's topic."""
    return TopicPartition(TOPIC, number)


@dataclass(frozen=True)
class Write:
    """A write of the client: its time (monotonic clock), its partition and its epoch."""

    when: float
    partition: TopicPartition
    epoch: int


@dataclass(frozen=True)
class ReceivedCall:
    """A request that the simulated service has received."""

    when: float
    method: str
    request: Any


@dataclass(eq=False)
class OpenStream:
    """A registration's stream. ``told`` queues its messages to the client; a status ends it."""

    number: int
    request: pb.RegisterRequest
    when: float
    told: asyncio.Queue[pb.AssignmentCommand | grpc.StatusCode] = field(
        default_factory=asyncio.Queue
    )

    @property
    def session(self) -> str:
        """The session id."""
        return f"s{self.number}"


@dataclass(eq=False)
class SimulatedService:
    """The simulated service. A registration lives for ``lives_s`` seconds.

    ``refuses`` is the error status of every call, or None to answer calls.
    """

    lives_s: float = 3.0
    pulse_s: float = 0.0
    answers: bool = True
    knows: bool = True
    refuses: grpc.StatusCode | None = None
    calls: list[ReceivedCall] = field(default_factory=list)
    streams: list[OpenStream] = field(default_factory=list)
    renewed_at: float = -float("inf")

    async def Register(  # noqa: N802
        self, request: pb.RegisterRequest, context: Context
    ) -> AsyncIterator[pb.AssignmentCommand]:
        """Send the messages of the stream's queue, until a status ends the stream."""
        self._note("Register", request)
        if self.refuses is not None:
            await context.abort(self.refuses, "the simulated service refuses")
        stream = OpenStream(len(self.streams) + 1, request, time.monotonic())
        self.streams.append(stream)
        while not isinstance(said := await stream.told.get(), grpc.StatusCode):
            yield said
        await context.abort(said, "the simulated service ends the stream")

    async def Heartbeat(  # noqa: N802
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """Answer a heartbeat; while ``answers`` is False, delay the answer."""
        when = time.monotonic()
        self._note("Heartbeat", request)
        if self.refuses is not None:
            await context.abort(self.refuses, "the simulated service refuses")
        while not self.answers:
            await asyncio.sleep(0.05)
        session = self.streams[-1].session if self.streams else ""
        if request.session_id != session or when > self.renewed_at + self.lives_s:
            return pb.HeartbeatResponse(known=False)
        self.renewed_at = max(self.renewed_at, when)
        return pb.HeartbeatResponse(known=self.knows, lives_ms=int(self.lives_s * 1000))

    def __getattr__(self, name: str) -> Any:
        if not name[:1].isupper():
            raise AttributeError(name)

        async def hear(request: Message, context: Context) -> Any:
            self._note(name, request)
            if self.refuses is not None:
                await context.abort(self.refuses, "the simulated service refuses")
            return getattr(pb, f"{name}Response")()

        return hear

    def _note(self, method: str, request: Message) -> None:
        self.calls.append(ReceivedCall(time.monotonic(), method, request))

    # -- the commands of rules ---------------------------------------------------------------------

    def snapshot(
        self, owned: Iterable[tuple[int, int]], *, more: bool = False, first: bool = True
    ) -> pb.AssignmentCommand:
        """Return a full assignment of (partition, epoch), or a part of the assignment.

        The first part opens the session.
        """
        update = self.grants(owned).assignment
        update.snapshot, update.more = first, more
        if first:
            update.session_id = self.streams[-1].session
            update.lives_ms = int(self.lives_s * 1000)
            update.pulse_ms = int(self.pulse_s * 1000)
            self.renewed_at = max(self.renewed_at, self.streams[-1].when)
        return pb.AssignmentCommand(assignment=update)

    def grants(self, owned: Iterable[tuple[int, int]], **said: Any) -> pb.AssignmentCommand:
        """Return grants of (partition, epoch)."""
        grants = [pb.Grant(partition=_message(n), epoch=epoch, **said) for n, epoch in owned]
        assigned = [grant.partition for grant in grants]
        return pb.AssignmentCommand(
            assignment=pb.AssignmentUpdate(assigned=assigned, grants=grants)
        )

    def takes(self, number: int) -> pb.AssignmentCommand:
        """Return a message that takes the partition from the client."""
        return pb.AssignmentCommand(assignment=pb.AssignmentUpdate(unassigned=[_message(number)]))

    def warm(self, number: int, handoff_id: int) -> pb.AssignmentCommand:
        """Return a command to warm a partition."""
        said = pb.WarmPartition(
            partition=_message(number), current_owner="another", handoff_id=handoff_id, strict=True
        )
        return pb.AssignmentCommand(warm=said)

    def release(self, number: int, handoff_id: int) -> pb.AssignmentCommand:
        """Return a command to release a partition."""
        said = pb.ReleasePartition(
            partition=_message(number), new_owner="another", handoff_id=handoff_id, strict=True
        )
        return pb.AssignmentCommand(release=said)

    def later(self) -> pb.AssignmentCommand:
        """Return a command of a later release."""
        return pb.AssignmentCommand.FromString(_LATER)

    def tell(self, *messages: pb.AssignmentCommand | grpc.StatusCode) -> float:
        """Queue messages on the newest stream; return the time."""
        for message in messages:
            self.streams[-1].told.put_nowait(message)
        return time.monotonic()

    def received(self, method: str, since: float = 0.0) -> list[ReceivedCall]:
        """Return the received calls of a method at or after the time ``since``."""
        return [call for call in self.calls if call.method == method and call.when >= since]


def _message(number: int) -> pb.TopicPartition:
    return pb.TopicPartition(topic=TOPIC, partition=number)


@contextlib.asynccontextmanager
async def served(part: SimulatedService) -> AsyncIterator[str]:
    """Serve the simulated service on a loopback port; yield the address."""
    server = grpc.aio.server()
    add_KafkaAssignerServicer_to_server(part, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


class Timeout(Exception):
    """A condition did not hold in time."""


async def until(holds: Callable[[], object], patience_s: float, what: str) -> None:
    """Wait until the condition holds. Raises Timeout."""
    deadline = time.monotonic() + patience_s
    for _ in itertools.count():
        if holds():
            return
        if time.monotonic() > deadline:
            raise Timeout(f"{what}, within {patience_s:g} s")
        await asyncio.sleep(0.02)
