"""Converts the service's messages to commands, and queues them until the consumer reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from faust_assigner.service.client.commands import AbortWarm, Command, Lost, Release, Standbys, Warm
from faust_assigner.service.client.holdings import Holdings
from faust_assigner.service.client.messages import grants_of, other_command, partition_of
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: A handoff by command type and partition: only the newest command of each key is kept.
_Key = tuple[type[Warm | Release], TopicPartition]


class Inbox:
    """The unread commands, followed by an error or the end.

    The service repeats a handoff's command until it has the acknowledgement. The consumer gets each
    command once. ``repeat`` is called with the method and the request of an acknowledgement that
    the service did not receive.
    """

    def __init__(self, holdings: Holdings, repeat: Callable[[str, Message], None]) -> None:
        self._holdings = holdings
        self._repeat = repeat
        self._queue: asyncio.Queue[Command | BaseException | None] = asyncio.Queue()
        self._told: dict[_Key, Warm | Release] = {}
        self._acked: dict[_Key, tuple[str, Message]] = {}
        self._standbys: list[TopicPartition] = []  # the received parts of an incomplete list

    async def read(self) -> Command | None:
        """Return the next command, or None at the end; raise an error that :meth:`put` added."""
        said = await self._queue.get()
        if isinstance(said, BaseException):
            raise said
        return said

    def remaining_commands(self) -> Iterator[Command]:
        """Yield the commands that were queued after the end, while a handler delayed the reader."""
        while not self._queue.empty():
            said = self._queue.get_nowait()
            if said is not None and not isinstance(said, BaseException):
                yield said

    def put(self, said: Command | BaseException | None) -> None:
        """Add a command, an error, or the end (None)."""
        self._queue.put_nowait(said)

    def begin(self) -> None:
        """Drop the incomplete standbys of the last stream, before a new stream's messages."""
        self._standbys.clear()

    def lose(self, lost: Lost) -> None:
        """Add the partitions of a session that is over.

        Forget the releases: the service repeats each command that is not yet acknowledged, and
        the consumer must get the repeated command.
        """
        self._told = {key: command for key, command in self._told.items() if key[0] is Warm}
        self.put(lost)

    def acknowledged(self, command: Warm | Release, method: str, request: Message) -> None:
        """Note the acknowledgement of a command."""
        self._acked[type(command), command.partition] = (method, request)

    def take(self, message: pb.AssignmentCommand, *, is_first: bool) -> None:
        """Take a message of a stream; ``is_first`` marks the stream's first message."""
        if message.HasField("assignment"):
            said = message.assignment
            change = self._holdings.update(
                grants_of(said),
                map(partition_of, said.unassigned),
                snapshot=said.snapshot or is_first,
                more=said.more,
                releasing=map(partition_of, said.releasing),
            )
            if change is not None and (is_first or change.added or change.removed):
                self.put(change)
            return
        if message.HasField("standby"):
            self._standbys.extend(map(partition_of, message.standby.standbys))
            if not message.standby.more:
                self.put(Standbys(tuple(self._standbys)))
                self._standbys.clear()
            return
        command = other_command(message)
        if isinstance(command, Warm | Release):
            self.take_handoff(command)
        elif command is not None:
            if isinstance(command, AbortWarm):
                self._told.pop((Warm, command.partition), None)
            self.put(command)

    def take_handoff(self, command: Warm | Release) -> None:
        """Add a new command; for a repeated command, repeat the acknowledgement, if any."""
        key = (type(command), command.partition)
        if self._told.get(key) == command:
            if (acked := self._acked.get(key)) is not None:
                self._repeat(*acked)
            return
        self._told[key] = command
        self._acked.pop(key, None)
        if isinstance(command, Release):
            self._holdings.release(command)
        self.put(command)
