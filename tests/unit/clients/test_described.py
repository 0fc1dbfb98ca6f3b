"""A group in its coordinator's description: the shown facts, the errors and the requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.client import CoordinationType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaConnectionError
from click.testing import CliRunner

from faust_assigner.cli import main
from faust_assigner.clients import group_views, groups
from faust_assigner.clients.group_views import GroupMemberView, GroupView
from faust_assigner.clients.groups import GroupNotFound
from faust_assigner.errors import FaustAssignerError, TryAgain

CLASSIC, OFFSETS, LEAVE = 15, 9, 13
CONNECTION: dict[str, Any] = {}


class Client:
    """A client that answers each API with the test's data and keeps the requests."""

    is_old = False  # an old broker knows no reasons for leaving

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.answers = answers
        self.sent: list[Any] = []
        self.nodes: list[int] = []
        self.cluster = SimpleNamespace(
            broker_metadata=lambda node: SimpleNamespace(host="h", port=5 + node), brokers=list
        )
        monkeypatch.setattr(groups, "client_of", self.connected)
        self.versions: list[tuple[int, ...]] = []  # API, newest version, oldest version
        self.looked_up: list[tuple[object, str]] = []
        monkeypatch.setattr(groups, "KioRequest", self.request)

    def request(self, *place: int, **more: Any) -> tuple[int, dict[str, Any]]:
        """Return the API and the fields of a request."""
        self.versions.append(place)
        return place[0], more

    @contextlib.asynccontextmanager
    async def connected(self, connection: object) -> AsyncIterator[Client]:
        """Yield this client."""
        yield self

    async def coordinator_lookup(self, kind: object, group_id: str) -> int:
        """Return the coordinator's node."""
        self.looked_up.append((kind, group_id))
        return 4

    async def send(self, node: int, request: tuple[int, dict[str, Any]]) -> Any:
        """Return the test's answer."""
        self.sent.append(request)
        self.nodes.append(node)
        if self.is_old and any(hasattr(each, "reason") for each in request[1].get("members", ())):
            raise IncompatibleBrokerVersion("no reasons")
        return self.answers[
            {CLASSIC: "classic", OFFSETS: "offsets", LEAVE: "leave", 69: "consumer"}[request[0]]
        ]


def consumer(error: int = 69, **more: Any) -> Any:
    """Return an answer to ConsumerGroupDescribe; by default the group does not exist."""
    return SimpleNamespace(groups=[SimpleNamespace(error_code=error, **more)])


def classic(state: str) -> Any:
    """Return an answer to DescribeGroups without members."""
    group = SimpleNamespace(
        error_code=0, group_state=state, protocol_type="", protocol_data="", members=[]
    )
    return SimpleNamespace(groups=[group])


def offsets(**committed: int) -> Any:
    """Return an answer to OffsetFetch with partition 0 of each topic."""
    topics = [
        SimpleNamespace(
            name=name, partitions=[SimpleNamespace(partition_index=0, committed_offset=at)]
        )
        for name, at in committed.items()
    ]
    return SimpleNamespace(error_code=0, topics=topics)


def ends_at(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """Let every log end at this offset."""

    async def end_offsets(connection: object, wanted: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(wanted, end)

    monkeypatch.setattr(groups, "_end_offsets", end_offsets)


def test_a_dead_group_with_offsets_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last member left long ago; users look for the committed offsets."""
    ends_at(monkeypatch, 9)
    Client(monkeypatch, consumer=consumer(), classic=classic("Dead"), offsets=offsets(t=0, u=-1))
    view = asyncio.run(groups.describe_group(CONNECTION, "g"))
    assert [(p.topic, p.committed, p.lag) for p in view.partitions] == [("t", 0, 9)]


def test_a_dead_group_without_offsets_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka describes any unknown name as Dead."""
    Client(monkeypatch, consumer=consumer(), classic=classic("Dead"), offsets=offsets())
    with pytest.raises(GroupNotFound):
        asyncio.run(groups.describe_group(CONNECTION, "g"))


@pytest.mark.parametrize(
    ("code", "error"), [(14, TryAgain), (15, TryAgain), (16, TryAgain), (30, FaustAssignerError)]
)
def test_a_coordinator_that_starts_is_told_from_a_refusal(
    monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    """Scripts retry after the first error but not after the second."""
    Client(monkeypatch, consumer=consumer(code), offsets=offsets())
    with pytest.raises(error) as raised:
        asyncio.run(groups.describe_group(CONNECTION, "g"))
    assert isinstance(raised.value, TryAgain) == (error is TryAgain)


def test_what_is_to_come_is_told_from_what_is_to_go() -> None:
    """The member's target assignment decides."""

    def side(*numbers: int) -> Any:
        return SimpleNamespace(
            topic_partitions=[SimpleNamespace(topic_name="t", partitions=numbers)]
        )

    member = SimpleNamespace(
        member_id="m", instance_id=None, client_id="c", client_host="/h", member_epoch=3,
        assignment=side(0, 1), target_assignment=side(1, 2),
    )  # fmt: skip
    view = group_views.consumer_member(member)
    assert (view.owned, view.pending, view.revoking) == (
        {("t", 0), ("t", 1)},
        {("t", 2)},
        {("t", 0)},
    )
    assert not view.is_classic, "version 0 of the answer names no kind of member"
    for kind, is_classic in ((0, True), (1, False)):
        member.member_type = kind
        assert group_views.consumer_member(member).is_classic is is_classic


def test_a_partition_that_is_only_copied_is_shown_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition has no owner and no committed offset."""
    ends_at(monkeypatch, 9)
    member = GroupMemberView(
        member_id="m", instance_id=None, client_id="c", host="/h", epoch=None,
        owned=frozenset({("t", 0), ("t", 2)}), standbys=frozenset({("log", 1), ("log", 5)}),
    )  # fmt: skip
    view = GroupView(
        group_id="g", group_type="classic", protocol_type="consumer", state="Stable",
        assignor="faust", coordinator="h:9", members=(member,),
    )  # fmt: skip
    found = asyncio.run(groups._partition_views(CONNECTION, view, {}))
    assert [(p.topic, p.partition, p.owner) for p in found] == [
        ("log", 1, None), ("log", 5, None), ("t", 0, "m"), ("t", 2, "m"),
    ]  # fmt: skip


@pytest.mark.parametrize("is_old", [False, True])
def test_an_instance_that_is_named_twice_is_removed_once(
    monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """Kafka would refuse the second removal; a broker gets the reason unless the broker is old."""
    rows = [
        SimpleNamespace(group_instance_id="a", error_code=0),
        SimpleNamespace(group_instance_id="b", error_code=25),
        SimpleNamespace(group_instance_id="c", error_code=-1),
    ]
    client = Client(monkeypatch, leave=SimpleNamespace(error_code=0, members=rows))
    client.is_old = is_old
    found = asyncio.run(groups.retire(CONNECTION, "g", ["a", "b", "a"]))
    (_, sent) = client.sent[-1]
    assert sent["group_id"] == "g"
    assert client.versions == [(13, 5, 5), (13, 4, 4)][: len(client.sent)]
    assert set(client.nodes) == {4}, "the coordinator"
    assert client.looked_up == [(CoordinationType.GROUP, "g")]
    assert [each.group_instance_id for each in sent["members"]] == ["a", "b"]
    reasons = {getattr(each, "reason", None) for each in sent["members"]}
    assert reasons == {None if is_old else groups.RETIRED}
    assert found == {"a": "", "b": "UnknownMemberIdError", "c": "UnknownError"}


@pytest.mark.parametrize("refused", [(), ("b",), ("a", "b")])
def test_the_exit_code_of_retire_is_1_where_any_member_was_refused(
    monkeypatch: pytest.MonkeyPatch, refused: tuple[str, ...]
) -> None:
    """The exit code tells a script about the refusal; in JSON a removed member is null."""
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
    ("problem", "refusal", "error", "text"),
    [
        (
            KafkaConnectionError("[('a', 1, 2)]"),
            None,
            groups.NoBrokerAnswers,
            "no broker answers at a:1, b:2",
        ),
        (
            KafkaConnectionError("[('a', 1, 2)]"),
            OSError("wrong password"),
            groups.LoginRefused,
            "a:1, b:2 refused the login or the TLS connection: OSError: wrong password",
        ),
        (RuntimeError("a bug"), None, RuntimeError, "a bug"),
    ],
    ids=["silent", "refused", "bug"],
)
def test_a_client_that_cannot_connect_is_closed_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception,
    refusal: Exception | None,
    error: type[Exception],
    text: str,
) -> None:
    """A refused login is a permanent failure; a silent broker may answer later."""
    closed: list[None] = []

    class Unconnected:
        def __init__(self, **_: Any) -> None: ...

        async def bootstrap(self) -> None:
            raise problem

        async def close(self) -> None:
            closed.append(None)

    async def find(connection: Any) -> Exception | None:
        assert connection == {"bootstrap_servers": ["a:1", "b:2"]}
        return refusal

    monkeypatch.setattr(groups, "AIOKafkaClient", Unconnected)
    monkeypatch.setattr(groups, "find_connection_error", find)
    with pytest.raises(error) as raised:
        asyncio.run(groups.connected({"bootstrap_servers": ["a:1", "b:2"]}))
    assert (len(closed), str(raised.value), type(raised.value)) == (1, text, error)
    if isinstance(raised.value, FaustAssignerError):
        assert raised.value.exit_code == (1 if refusal else 75)


def listed(**groups_of_node: str) -> Any:
    """Return an answer to ListGroups from group ids and states."""
    rows = [
        SimpleNamespace(
            group_id=name, group_type="Consumer", protocol_type="t-" + name, group_state=state
        )
        for name, state in groups_of_node.items()
    ]
    return SimpleNamespace(error_code=0, groups=rows)


class Nodes(Client):
    """A client of two brokers, each with its own list."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lists: dict[int, Any]) -> None:
        super().__init__(monkeypatch)
        self.lists = lists
        self.cluster.brokers = lambda: [SimpleNamespace(nodeId=node) for node in lists]

    async def send(self, node: int, request: tuple[int, dict[str, Any]]) -> Any:
        """Return the list of the node."""
        self.sent.append((node, *request))
        return self.lists[node]


def test_the_list_has_the_groups_of_all_nodes_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node lists the groups that it coordinates; an old node has no types and no states."""
    old = SimpleNamespace(
        error_code=0, groups=[SimpleNamespace(group_id="b", protocol_type="connect")]
    )
    client = Nodes(monkeypatch, {3: listed(c="Stable", a="Empty"), 5: old})
    found = asyncio.run(groups.list_groups(CONNECTION))
    assert found == [
        group_views.ListedGroup(
            group_id="a", group_type="consumer", protocol_type="t-a", state="Empty"
        ),
        group_views.ListedGroup(group_id="b", group_type="", protocol_type="connect", state=""),
        group_views.ListedGroup(
            group_id="c", group_type="consumer", protocol_type="t-c", state="Stable"
        ),
    ]
    assert client.sent == [(3, 16, {}), (5, 16, {})]
    assert client.versions == [(16, 5), (16, 5)]


@pytest.mark.parametrize(("code", "error"), [(14, TryAgain), (30, FaustAssignerError)])
def test_a_node_that_refuses_the_list_is_an_error(
    monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    """A list without the last node's groups is incomplete."""
    Nodes(monkeypatch, {3: listed(a="Empty"), 5: SimpleNamespace(error_code=code, groups=[])})
    with pytest.raises(error, match="the list of groups"):
        asyncio.run(groups.list_groups(CONNECTION))


def side(**topics: tuple[int, ...]) -> Any:
    """Return partitions by topic in the form of ConsumerGroupDescribe."""
    rows = [SimpleNamespace(topic_name=name, partitions=parts) for name, parts in topics.items()]
    return SimpleNamespace(topic_partitions=rows)


def test_a_consumer_group_is_described_with_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two members are sorted by id, with each kind of partition and each offset."""
    members = [
        SimpleNamespace(
            member_id="m2", instance_id="i2", client_id="c2", client_host="/2", member_epoch=8,
            assignment=side(t=(0,), u=(1,)), target_assignment=side(t=(0, 2)), member_type=1,
        ),
        SimpleNamespace(
            member_id="m1", instance_id=None, client_id="c1", client_host="/1", member_epoch=9,
            assignment=side(t=(1,)), target_assignment=side(t=(1,)), member_type=0,
        ),
    ]  # fmt: skip
    described = consumer(
        0, group_state="Reconciling", assignor_name="uniform", group_epoch=9, assignment_epoch=7,
        members=members,
    )  # fmt: skip
    rows = [
        SimpleNamespace(
            name="t",
            partitions=[
                SimpleNamespace(partition_index=0, committed_offset=5),
                SimpleNamespace(partition_index=2, committed_offset=0),
                SimpleNamespace(partition_index=3, committed_offset=-1),
            ],
        ),
        SimpleNamespace(
            name="v", partitions=[SimpleNamespace(partition_index=4, committed_offset=3)]
        ),
    ]
    client = Client(
        monkeypatch, consumer=described, offsets=SimpleNamespace(error_code=0, topics=rows)
    )
    asked: list[Any] = []

    async def end_offsets(connection: object, wanted: Any) -> dict[TopicPartition, int]:
        asked.append((connection, list(wanted)))
        return {tp: 10 + tp.partition for tp in wanted if tp.topic != "u"}

    monkeypatch.setattr(groups, "_end_offsets", end_offsets)
    view = asyncio.run(groups.describe_group({"bootstrap_servers": "b:1"}, "g"))
    assert view == GroupView(
        group_id="g", group_type="consumer", protocol_type="consumer", state="Reconciling",
        assignor="uniform", coordinator="h:9", epoch=9, target_epoch=7,
        members=(
            GroupMemberView(
                member_id="m1", instance_id=None, client_id="c1", host="/1", epoch=9,
                owned=frozenset({("t", 1)}), is_classic=True,
            ),
            GroupMemberView(
                member_id="m2", instance_id="i2", client_id="c2", host="/2", epoch=8,
                owned=frozenset({("t", 0), ("u", 1)}), pending=frozenset({("t", 2)}),
                revoking=frozenset({("u", 1)}), is_classic=False,
            ),
        ),
        partitions=(
            group_views.PartitionView(topic="t", partition=0, committed=5, end=10, owner="m2"),
            group_views.PartitionView(topic="t", partition=1, committed=None, end=11, owner="m1"),
            group_views.PartitionView(topic="t", partition=2, committed=0, end=12, owner=None),
            group_views.PartitionView(topic="v", partition=4, committed=3, end=14, owner=None),
        ),
    )  # fmt: skip
    assert [one.lag for one in view.partitions] == [5, None, 12, 11]
    assert asked == [
        ({"bootstrap_servers": "b:1"}, [("t", 0), ("t", 1), ("t", 2), ("u", 1), ("v", 4)])
    ]
    assert client.sent == [
        (69, {"group_ids": ("g",), "include_authorized_operations": False}),
        (9, {"group_id": "g", "topics": None, "require_stable": False}),
    ]
    assert client.versions == [(69, 1), (9, 7, 2)]
    assert client.nodes == [4, 4]
    assert client.looked_up == [(CoordinationType.GROUP, "g")]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_classic_group_is_described_with_every_field(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """Connect groups show the size of each share; an unknown coordinator has no address."""
    members = [
        SimpleNamespace(
            member_id="m2", group_instance_id="i2", client_id="c2", client_host="/2",
            member_assignment=b"12345",
        ),
        SimpleNamespace(
            member_id="m1", client_id="c1", client_host="/1", member_assignment=None,
        ),
    ]  # fmt: skip
    group = SimpleNamespace(
        error_code=0, group_state="Stable", protocol_type="connect", protocol_data="sessioned",
        members=members,
    )  # fmt: skip
    client = Client(
        monkeypatch, consumer=consumer(), classic=SimpleNamespace(groups=[group]), offsets=offsets()
    )
    if not is_known:
        client.cluster.broker_metadata = lambda node: None
    ends_at(monkeypatch, 9)
    view = asyncio.run(groups.describe_group(CONNECTION, "g"))
    assert view == GroupView(
        group_id="g", group_type="classic", protocol_type="connect", state="Stable",
        assignor="sessioned", coordinator="h:9" if is_known else "", epoch=None, target_epoch=None,
        members=(
            GroupMemberView(
                member_id="m1", instance_id=None, client_id="c1", host="/1", epoch=None,
                owned=frozenset(), shares=0,
            ),
            GroupMemberView(
                member_id="m2", instance_id="i2", client_id="c2", host="/2", epoch=None,
                owned=frozenset(), shares=5,
            ),
        ),
        partitions=(),
    )  # fmt: skip
    assert client.sent[1] == (15, {"groups": ("g",), "include_authorized_operations": False})
    assert client.versions[1] == (15, 5)
    assert client.nodes == [4, 4, 4]


def test_a_dead_group_that_has_offsets_alone_keeps_its_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused offsets are an error; a group of another protocol is not."""
    ends_at(monkeypatch, 9)
    gone = SimpleNamespace(
        error_code=69, group_state="Dead", protocol_type="", protocol_data="", members=[]
    )
    answers = {"consumer": consumer(), "classic": SimpleNamespace(groups=[gone])}
    Client(monkeypatch, offsets=offsets(t=3), **answers)
    assert asyncio.run(groups.describe_group(CONNECTION, "g")).state == "Dead"
    Client(monkeypatch, offsets=SimpleNamespace(error_code=30, topics=[]), **answers)
    with pytest.raises(FaustAssignerError, match="offsets of 'g': GroupAuthorizationFailedError"):
        asyncio.run(groups.describe_group(CONNECTION, "g"))


def test_an_empty_group_without_offsets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group exists until the broker forgets it; only a dead group without offsets is missing."""
    answers = {"consumer": consumer(), "classic": classic("Empty"), "offsets": offsets()}
    Client(monkeypatch, **answers)
    view = asyncio.run(groups.describe_group(CONNECTION, "g"))
    assert (view.state, view.members, view.partitions) == ("Empty", (), ())


def test_a_cluster_without_the_new_protocol_describes_a_classic_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster has no version of ConsumerGroupDescribe."""
    ends_at(monkeypatch, 9)
    client = Client(monkeypatch, classic=classic("Empty"), offsets=offsets(t=3))
    send = client.send

    async def refusing(node: int, request: tuple[int, dict[str, Any]]) -> Any:
        if request[0] == 69:
            raise IncompatibleBrokerVersion("too old")
        return await send(node, request)

    client.send = refusing  # type: ignore[method-assign]
    view = asyncio.run(groups.describe_group(CONNECTION, "g"))
    assert (view.group_type, view.state) == ("classic", "Empty")


def test_a_cluster_that_has_turned_the_new_protocol_off_describes_a_classic_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Earlier, the command ended with UnsupportedVersionError for each group."""
    ends_at(monkeypatch, 9)
    answers = {"consumer": consumer(35), "classic": classic("Empty"), "offsets": offsets(t=3)}
    Client(monkeypatch, **answers)
    view = asyncio.run(groups.describe_group(CONNECTION, "g"))
    assert (view.group_type, view.state) == ("classic", "Empty")


@pytest.mark.parametrize("code", [14, 25])
def test_a_request_to_retire_that_is_refused_as_a_whole_is_an_error(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The request removed no member."""
    Client(monkeypatch, leave=SimpleNamespace(error_code=code, members=[]))
    with pytest.raises(FaustAssignerError, match="group 'g'") as raised:
        asyncio.run(groups.retire(CONNECTION, "g", ["a"]))
    assert isinstance(raised.value, TryAgain) is (code == 14)


class Consumer:
    """A fake for aiokafka's consumer of two topics; partition 3 has no leader."""

    made: list[Consumer]

    def __init__(self, **connection: Any) -> None:
        self.connection, self.calls = connection, list[Any]()
        self._client = self
        self.made.append(self)

    async def start(self) -> None:
        """Note the call."""
        self.calls.append("start")

    async def stop(self) -> None:
        """Note the call."""
        self.calls.append("stop")

    async def fetch_all_metadata(self) -> Consumer:
        """Return the cluster."""
        return self

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of "t" and "lost"."""
        return {"t": {1, 3}, "lost": {9}}.get(topic)

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions with a leader."""
        return {"t": {1}, "lost": {9}}.get(topic)

    async def end_offsets(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return an offset for each partition; raise an error for partition 9."""
        self.calls.append(wanted)
        if any(tp.partition == 9 for tp in wanted):
            raise KafkaConnectionError("gone")
        return dict.fromkeys(wanted, 7)


@pytest.mark.parametrize("fails", [False, True])
def test_the_ends_of_existing_logs_are_asked_for_and_the_consumer_is_stopped(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """aiokafka would look 40 s for a deleted partition or for a leader, and then fail."""
    Consumer.made = []
    monkeypatch.setattr(groups, "AIOKafkaConsumer", Consumer)
    assert asyncio.run(groups._end_offsets({"x": 1}, [])) == {}
    assert Consumer.made == []
    known = TopicPartition("lost", 9) if fails else TopicPartition("t", 1)
    gone = TopicPartition("deleted", 0)
    asked = groups._end_offsets({"x": 1}, [known, gone])
    if fails:
        with pytest.raises(KafkaConnectionError):
            asyncio.run(asked)
    else:
        assert asyncio.run(asked) == {known: 7, TopicPartition("t", 3): None}
    (made,) = Consumer.made
    assert (made.connection, made.calls) == ({"x": 1}, ["start", [known], "stop"])


def test_partitions_are_shown_as_runs_by_topic() -> None:
    """A run with a single number is the number; topics and numbers ascend."""
    owned = [("b", 7), ("a", 3), ("a", 1), ("a", 0), ("b", 9), ("b", 8), ("a", 5)]
    assert list(group_views.as_ranges(owned)) == ["a 0-1,3,5", "b 7-9"]
    assert list(group_views.as_ranges([])) == []
