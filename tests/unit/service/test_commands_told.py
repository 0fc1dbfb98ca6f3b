"""A command of the service reaches our client with every field."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.service import client, commands
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.convert import messages_of

AT = TopicPartition("orders", 3)
HEARD = client.TopicPartition("orders", 3)


@pytest.mark.parametrize(
    ("command", "heard"),
    [
        (commands.Warm(AT, "a", 8, strict=True), client.Warm(HEARD, "a", 8, strict=True)),
        (commands.Warm(AT, "a", 8), client.Warm(HEARD, "a", 8)),
        (commands.Release(AT, "b", 9, strict=True), client.Release(HEARD, "b", 9, strict=True)),
        (commands.Release(AT, "b", 9), client.Release(HEARD, "b", 9)),
        (commands.AbortWarm(AT, 8), client.AbortWarm(HEARD, 8)),
    ],
)
def test_a_command_of_a_hand_off_is_heard_with_all_that_was_said(command: Any, heard: Any) -> None:
    """The fields are the other consumer, the hand-off's id, and strict."""
    listener = client.AssignerClient("nowhere:1", "a")
    first = pb.AssignmentCommand(assignment=pb.AssignmentUpdate(snapshot=True))
    listener._inbox.take(first, is_first=True)
    for message in messages_of(command):
        listener._inbox.take(message, is_first=False)
    found = []
    while not listener._inbox._queue.empty():
        found.append(listener._inbox._queue.get_nowait())
    assert found[1:] == [heard]
