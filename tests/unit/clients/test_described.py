"""A group as its coordinator describes it: what is shown, what is an error, and what is asked once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.clients import groups
from faust_assigner.clients.groups import GroupMemberView, GroupNotFound, GroupView
from faust_assigner.errors import FaustAssignerError, TryAgain

CLASSIC, OFFSETS, LEAVE = 15, 9, 13
CONNECTION: dict[str, Any] = {}


class Client:
    """Answers each API with what the test gives; keeps the requests."""

    is_old = False  # it knows no reasons of those who leave

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.answers = answers
        self.sent: list[Any] = []
        self.cluster = SimpleNamespace(
            broker_metadata=lambda node: SimpleNamespace(host="h", port=9), brokers=list
        )
        monkeypatch.setattr(groups, "client_of", self.connected)
        monkeypatch.setattr(groups, "KioRequest", lambda *place, **more: (place[0], more))

    @contextlib.asynccontextmanager
    async def connected(self, connection: object) -> AsyncIterator[Client]:
        """This client."""
        yield self

    async def coordinator_lookup(self, kind: object, group_id: str) -> int:
        """The only node."""
        return 1

    async def send(self, node: int, request: tuple[int, dict[str, Any]]) -> Any:
        """The answer of the test."""
        self.sent.append(request)
        if self.is_old and any(hasattr(each, "reason") for each in request[1].get("members", ())):
            raise IncompatibleBrokerVersion("no reasons")
        return self.answers[
            {CLASSIC: "classic", OFFSETS: "offsets", LEAVE: "leave", 69: "consumer"}[request[0]]
        ]


def consumer(error: int = 69, **more: Any) -> Any:
    """An answer to ConsumerGroupDescribe; by default that there is no such group."""
    return SimpleNamespace(groups=[SimpleNamespace(error_code=error, **more)])


def classic(state: str) -> Any:
    """An answer to DescribeGroups without members."""
    group = SimpleNamespace(
        error_code=0, group_state=state, protocol_type="", protocol_data="", members=[]
    )
    return SimpleNamespace(groups=[group])


def offsets(**committed: int) -> Any:
    """An answer to OffsetFetch: partition 0 of each topic."""
    topics = [
        SimpleNamespace(
            name=name, partitions=[SimpleNamespace(partition_index=0, committed_offset=at)]
        )
        for name, at in committed.items()
    ]
    return SimpleNamespace(error_code=0, topics=topics)


def ends_at(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """Let every log that is asked for end there."""

    async def end_offsets(connection: object, wanted: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, end)

    monkeypatch.setattr(groups, "_end_offsets", end_offsets)


def test_a_dead_group_with_offsets_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last member left long ago; where it stands is what people look for."""
    ends_at(monkeypatch, 9)
    Client(monkeypatch, consumer=consumer(), classic=classic("Dead"), offsets=offsets(t=0, u=-1))
    view = asyncio.run(groups.describe_group(CONNECTION, "g"))
    assert [(p.topic, p.committed, p.lag) for p in view.partitions] == [("t", 0, 9)]


def test_a_dead_group_without_offsets_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka describes any name as Dead."""
    Client(monkeypatch, consumer=consumer(), classic=classic("Dead"), offsets=offsets())
    with pytest.raises(GroupNotFound):
        asyncio.run(groups.describe_group(CONNECTION, "g"))


@pytest.mark.parametrize(
    ("code", "error"), [(14, TryAgain), (15, TryAgain), (16, TryAgain), (30, FaustAssignerError)]
)
def test_a_coordinator_that_starts_is_told_from_a_refusal(
    monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    """Scripts ask again after the first, and not after the second."""
    Client(monkeypatch, consumer=consumer(code), offsets=offsets())
    with pytest.raises(error) as raised:
        asyncio.run(groups.describe_group(CONNECTION, "g"))
    assert isinstance(raised.value, TryAgain) == (error is TryAgain)


def test_what_is_to_come_is_told_from_what_is_to_go() -> None:
    """By the target of the member."""

    def side(*numbers: int) -> Any:
        return SimpleNamespace(
            topic_partitions=[SimpleNamespace(topic_name="t", partitions=numbers)]
        )

    member = SimpleNamespace(
        member_id="m", instance_id=None, client_id="c", client_host="/h", member_epoch=3,
        assignment=side(0, 1), target_assignment=side(1, 2),
    )  # fmt: skip
    view = groups._consumer_member(member)
    assert (view.owned, view.pending, view.revoking) == (
        {("t", 0), ("t", 1)},
        {("t", 2)},
        {("t", 0)},
    )
    assert not view.is_classic, "version 0 of the answer names no kind of member"
    for kind, is_classic in ((0, True), (1, False)):
        member.member_type = kind
        assert groups._consumer_member(member).is_classic is is_classic


def test_a_partition_that_is_only_copied_is_shown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no owner and nothing committed."""
    ends_at(monkeypatch, 9)
    member = GroupMemberView(
        member_id="m", instance_id=None, client_id="c", host="/h", epoch=None,
        owned=frozenset({("t", 0)}), standbys=frozenset({("log", 1)}),
    )  # fmt: skip
    view = GroupView(
        group_id="g", group_type="classic", protocol_type="consumer", state="Stable",
        assignor="faust", coordinator="h:9", members=(member,),
    )  # fmt: skip
    found = asyncio.run(groups._partitions(CONNECTION, view, {}))
    assert [(p.topic, p.partition, p.owner) for p in found] == [("log", 1, None), ("t", 0, "m")]


@pytest.mark.parametrize("is_old", [False, True])
def test_an_instance_that_is_named_twice_is_removed_once(
    monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """Kafka would answer the second one with an error. A broker is told why, unless it is old."""
    rows = [
        SimpleNamespace(group_instance_id="a", error_code=0),
        SimpleNamespace(group_instance_id="b", error_code=25),
    ]
    client = Client(monkeypatch, leave=SimpleNamespace(error_code=0, members=rows))
    client.is_old = is_old
    found = asyncio.run(groups.retire(CONNECTION, "g", ["a", "b", "a"]))
    (_, sent) = client.sent[-1]
    assert sent["group_id"] == "g"
    assert [each.group_instance_id for each in sent["members"]] == ["a", "b"]
    reasons = {getattr(each, "reason", None) for each in sent["members"]}
    assert reasons == {None if is_old else groups.RETIRED}
    assert (found["a"], "UnknownMemberId" in found["b"]) == ("", True)


@pytest.mark.parametrize("refused", [(), ("b",), ("a", "b")])
def test_the_exit_code_of_retire_is_1_where_any_member_was_refused(
    monkeypatch: pytest.MonkeyPatch, refused: tuple[str, ...]
) -> None:
    """A script sees it without reading the lines; JSON has null for a removed member."""
    errors = {name: "UnknownMemberIdError" * (name in refused) for name in ("a", "b")}

    async def retire(*_: Any) -> dict[str, str]:
        return errors

    monkeypatch.setattr(groups, "retire", retire)
    asked = ["groups", "retire", "g", "--bootstrap", "127.0.0.1:1"]
    asked += [f"--instance-id={name}" for name in errors]
    plain, as_json = (CliRunner().invoke(main, [*asked, *more]) for more in ([], ["--json"]))
    assert (plain.exit_code, as_json.exit_code) == (int(bool(refused)),) * 2
    assert [
        ": not removed, the group has no member" in line for line in plain.output.splitlines()
    ] == [name in refused for name in errors]
    assert json.loads(as_json.output) == {name: error or None for name, error in errors.items()}


@pytest.mark.parametrize(
    ("problem", "error"),
    [(KafkaConnectionError("gone"), groups.NoBrokerAnswers), (RuntimeError("a bug"), RuntimeError)],
)
def test_a_client_that_cannot_connect_is_closed_and_says_why(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, error: type[Exception]
) -> None:
    """Only a failed connection means that no broker answers; its addresses are named."""
    closed: list[None] = []

    class Unconnected:
        def __init__(self, **_: Any) -> None: ...

        async def bootstrap(self) -> None:
            raise problem

        async def close(self) -> None:
            closed.append(None)

    monkeypatch.setattr(groups, "AIOKafkaClient", Unconnected)
    with pytest.raises(error) as raised:
        asyncio.run(groups.connected({"bootstrap_servers": ["a:1", "b:2"]}))
    assert len(closed) == 1
    assert ("a:1, b:2" in str(raised.value)) is (error is groups.NoBrokerAnswers)
