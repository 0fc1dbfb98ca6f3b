"""The commands on the wire: the server's messages become the client's values, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.service import commands as told
from faust_assigner.service.client import calls as calls_module
from faust_assigner.service.client import commands as heard
from faust_assigner.service.client.calls import Calls
from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.messages import by_topic, grants_of, other_command
from faust_assigner.service.client.registration import Retry
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.convert import messages_of

AT, HERE = TopicPartition("t", 3), heard.TopicPartition("t", 3)


@pytest.mark.parametrize("strict", [True, False])
def test_a_hand_offs_commands_arrive_as_they_were_sent(strict: bool) -> None:
    """Both partners, the id and the mode."""
    sent: list[told.Command] = [
        told.Warm(AT, "owner", 7, strict),
        told.Release(AT, "taker", 8, strict),
        told.Release(AT, "", 9, strict),
        told.AbortWarm(AT, 10),
        told.Pulse(),
        told.Replicas((AT,)),
    ]
    assert [other_command(message) for one in sent for message in messages_of(one)] == [
        heard.Warm(HERE, "owner", 7, strict),
        heard.Release(HERE, "taker", 8, strict),
        heard.Release(HERE, "", 9, strict),
        heard.AbortWarm(HERE, 10),
        None,
        None,
    ]


def test_grants_arrive_with_their_epochs_and_offsets() -> None:
    """An offset of 0 is one; a partition without a grant message has the epoch 0."""
    owned = (
        told.Owned(AT, 5, 0),
        told.Owned(TopicPartition("u", 1), 6, 77, keep=True),
        told.Owned(TopicPartition("u", 2), 9, None),
    )
    [message] = messages_of(told.Assignment(owned))
    message.assignment.assigned.add(topic="v", partition=4)
    assert grants_of(message.assignment) == [
        heard.Grant(HERE, 5, 0),
        heard.Grant(heard.TopicPartition("u", 1), 6, 77, keep=True),
        heard.Grant(heard.TopicPartition("u", 2), 9, None),
        heard.Grant(heard.TopicPartition("v", 4), 0, None),
    ]


def test_partitions_are_grouped_in_the_order_of_their_topics() -> None:
    """Each topic is named once, and its numbers keep their order."""
    assert by_topic([("u", 9), ("t", 1), ("u", 2), ("t", 0), ("u", 9)]) == [
        pb.TopicPartitions(topic="u", partitions=[9, 2, 9]),
        pb.TopicPartitions(topic="t", partitions=[1, 0]),
    ]


async def test_each_registration_has_a_connection_and_a_stub_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later calls use the newest one, and the end closes it once."""
    made: list[Any] = []

    class Channel:
        def __init__(self, target: str) -> None:
            self.target = target

        async def close(self) -> None:
            made.append(f"{self.target} closed")

    class Stub:
        def __init__(self, channel: Channel) -> None:
            self.target = channel.target

        def Register(self, request: Any, **said: Any) -> Any:  # noqa: N802
            return self.target, request, said

        async def Ask(self, request: Any, **said: Any) -> Any:  # noqa: N802
            return self.target, request, said

    monkeypatch.setattr(Access, "open", lambda self, target: Channel(target))
    monkeypatch.setattr(calls_module, "KafkaAssignerStub", Stub)
    calls = Calls("c", Access(token="secret"), Retry())
    metadata = (("authorization", "Bearer secret"),)
    for target in ("h:1", "h:2"):
        assert calls.register(target, "r") == (target, "r", {"metadata": metadata})
        asked = await calls.once("Ask", "q", timeout=2.0)
        assert asked == (target, "q", {"metadata": metadata, "timeout": 2.0})
    await calls.close()
    await calls.close()
    assert made == ["h:2 closed"]
    assert calls._stub is None
