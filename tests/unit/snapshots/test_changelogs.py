"""The state of changelogs, and a read of several partitions, from scripted clients."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError, RequestTimedOutError

from faust_assigner.snapshots import changelog
from faust_assigner.snapshots.changelog import Changelog, Extent, UnknownTopicError
from faust_assigner.snapshots.kafka_requests import UnreachableError
from faust_assigner.snapshots.manifest import DEFAULT_DELETE_RETENTION_MS

WHERE: Any = {"bootstrap_servers": ["b:9"], "client_id": "c", "security_protocol": "SSL"}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
EXTENTS = {A0: Extent(2, 9), A1: Extent(0, 7), B0: Extent(5, 5)}


class Cluster:
    """A cluster with two topics; ``calls`` are the calls of its clients in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, settings: bool = True) -> None:
        self.calls: list[Any] = []
        self.settings = settings
        monkeypatch.setattr(changelog, "AIOKafkaAdminClient", self.client("admin"))
        monkeypatch.setattr(changelog, "AIOKafkaConsumer", self.client("consumer"))
        monkeypatch.setattr(changelog, "topic_ids", self.topic_ids)

    def client(self, kind: str) -> Any:
        """Return the type of a client, which records its options."""

        def made(**options: Any) -> Cluster:
            level = options.pop("isolation_level", None)
            self.calls.append((kind, level) if level else (kind, options))
            return self

        return made

    async def start(self) -> None:
        """Connect."""

    stop = close = start

    async def list_topics(self) -> list[str]:
        """Return the names of the topics."""
        self.calls.append("list")
        return ["b", "a", "other"]

    async def describe_topics(self, topics: list[str]) -> list[Any]:
        """Return the topics and their partitions in any order."""
        self.calls.append(("describe", topics))
        counts = {"a": (1, 0), "b": (0,)}
        return [
            {"topic": name, "partitions": [{"partition": number} for number in counts[name]]}
            for name in topics
        ]

    async def describe_configs(self, asked: list[Any]) -> list[Any]:
        """Return the retention of one topic, or fail."""
        self.calls.append(("settings", [one.name for one in asked]))
        if not self.settings:
            raise RuntimeError("not supported")
        entries = [("delete.retention.ms", "5000")]
        return [SimpleNamespace(resources=[(0, None, 2, "a", entries)])]

    async def beginning_offsets(self, places: Sequence[TopicPartition]) -> dict[Any, int]:
        """Return the first offsets."""
        self.calls.append(("starts", places))
        return {place: EXTENTS[place].start for place in places}

    async def end_offsets(self, places: Sequence[TopicPartition]) -> dict[Any, int]:
        """Return the end offsets."""
        return {place: EXTENTS[place].end for place in places}

    async def topic_ids(self, admin: Any, topics: Sequence[str]) -> dict[str, str]:
        """Return the id of one topic."""
        self.calls.append(("ids", topics))
        return {"a": "id-a"}


@pytest.mark.parametrize("settings", [True, False])
def test_each_topic_has_its_own_extents_its_retention_and_its_id(
    monkeypatch: pytest.MonkeyPatch, settings: bool
) -> None:
    """Without described settings Kafka's default counts; the ids are read after the ends."""
    cluster = Cluster(monkeypatch, settings=settings)
    found = asyncio.run(changelog.changelogs(WHERE, ["b", "a"]))
    default = DEFAULT_DELETE_RETENTION_MS
    assert found == {
        "b": Changelog("b", {0: Extent(5, 5)}, default, None),
        "a": Changelog(
            "a", {0: Extent(2, 9), 1: Extent(0, 7)}, 5000 if settings else default, "id-a"
        ),
    }
    assert cluster.calls == [
        ("admin", {"bootstrap_servers": ["b:9"], "security_protocol": "SSL"}),
        "list",
        ("describe", ["b", "a"]),
        ("settings", ["b", "a"]),
        ("consumer", "read_committed"),
        ("starts", [A0, A1, B0]),
        ("ids", ["b", "a"]),
    ]


@pytest.mark.parametrize("error", [TimeoutError(), NodeNotReadyError(), RequestTimedOutError()])
def test_a_retention_that_may_be_read_later_is_not_assumed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """With a shorter retention, deleted rows would come back from an old snapshot."""
    cluster = Cluster(monkeypatch)

    async def describe_configs(asked: list[Any]) -> list[Any]:
        raise error

    cluster.describe_configs = describe_configs  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        asyncio.run(changelog.changelogs(WHERE, ["a"]))


@pytest.mark.parametrize("away", [[], [1], [1, 3], [1, 2], [1, 2, 3]])
def test_a_request_goes_to_any_broker_that_can_be_reached(
    monkeypatch: pytest.MonkeyPatch, away: list[int]
) -> None:
    """A restore from a snapshot became a replay if a request went to a broker that was away."""
    cluster, asked = Cluster(monkeypatch), list[int]()
    monkeypatch.setattr(changelog.random, "sample", lambda nodes, count: nodes[:count])

    async def send(node: int, request: str) -> str:
        asked.append(node)
        if node in away:
            raise (NodeNotReadyError if node == 1 else KafkaConnectionError)(str(node))
        return f"{request} at {node}"

    brokers = [SimpleNamespace(nodeId=number) for number in (1, 2, 3)]
    cluster._client = SimpleNamespace(  # type: ignore[attr-defined]
        send=send, cluster=SimpleNamespace(brokers=lambda: brokers)
    )

    async def ask(node: int | None = None) -> Any:
        async with changelog._admin_of(WHERE) as admin:
            return await admin._send_request("ids", node)

    there = [number for number in (1, 2, 3) if number not in away]
    if there:
        assert asyncio.run(ask()) == f"ids at {there[0]}"
        assert asked == list(range(1, there[0] + 1))
        assert asyncio.run(ask(there[-1])) == f"ids at {there[-1]}"
        return
    for node, text in ((None, "3"), (2, "2")):
        with pytest.raises(KafkaConnectionError, match=text):
            asyncio.run(ask(node))
    assert asked == [1, 2, 3, 2]
    brokers.clear()
    with pytest.raises(NodeNotReadyError, match="no broker"):
        asyncio.run(ask())


def test_only_the_named_partitions_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changelog partition without a leader kept all other partitions from their snapshots."""
    cluster = Cluster(monkeypatch)
    found = asyncio.run(changelog.changelogs(WHERE, ["b", "a"], [A1, B0]))
    assert {topic: dict(log.extents) for topic, log in found.items()} == {
        "a": {1: Extent(0, 7)},
        "b": {0: Extent(5, 5)},
    }
    assert ("starts", [A1, B0]) in cluster.calls


def test_a_missing_topic_is_named_and_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """A description would create the topic on many brokers."""
    cluster = Cluster(monkeypatch)
    for question in (changelog.changelogs(WHERE, ["y", "a", "x"]), changelog.extents(WHERE, "x")):
        with pytest.raises(UnknownTopicError, match=r"\['b:9'\] has no topic 'x'"):
            asyncio.run(question)
    assert [call for call in cluster.calls if call == "list" or call[0] != "admin"] == ["list"] * 2


def test_the_extents_of_a_topic_are_by_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of open transactions sees other ends, so its level is passed on."""
    cluster = Cluster(monkeypatch)
    assert asyncio.run(changelog.extents(WHERE, "a")) == {0: Extent(2, 9), 1: Extent(0, 7)}
    assert cluster.calls[-2:] == [("consumer", "read_committed"), ("starts", [A0, A1])]
    places: Any = [("b", 0), ("a", 1)]
    found = asyncio.run(changelog.extents_of(WHERE, places, isolation_level="read_uncommitted"))
    assert found == {B0: Extent(5, 5), A1: Extent(0, 7)}
    assert cluster.calls[-2:] == [("consumer", "read_uncommitted"), ("starts", [B0, A1])]


class Reader:
    """A consumer with scripted answers: partition -> (offsets, position after them)."""

    def __init__(self, *answers: dict[TopicPartition, tuple[list[int], int]]) -> None:
        self.answers, self.calls = list(answers), list[Any]()
        self.at: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Connect."""

    stop = start

    def assign(self, places: Any) -> None:
        """Record the assignment."""
        self.calls.append(("assign", places))

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Set the position."""
        self.at[place] = offset

    def pause(self, place: TopicPartition) -> None:
        """Record the end of a partition."""
        self.calls.append(("pause", place))

    async def getmany(self, *places: TopicPartition, timeout_ms: int) -> dict[Any, list[Any]]:
        """Return the next answer; as aiokafka, without an entry for a gap."""
        self.calls.append(places)
        answer = self.answers.pop(0) if self.answers else {}
        self.at |= {place: after for place, (_, after) in answer.items()}
        return {
            place: [SimpleNamespace(offset=offset) for offset in offsets]
            for place, (offsets, _) in answer.items()
            if offsets
        }

    async def position(self, place: TopicPartition) -> int:
        """Return the next offset."""
        return self.at[place]


Fed = list[tuple[TopicPartition, list[int], int]]


def fed(
    monkeypatch: pytest.MonkeyPatch, reader: Reader, spans: dict[Any, Extent], **how: Any
) -> tuple[Fed, dict[TopicPartition, int]]:
    """Return the calls of the sink, and the positions."""
    monkeypatch.setattr(
        changelog,
        "AIOKafkaConsumer",
        lambda **options: reader.calls.append(options["isolation_level"]) or reader,
    )
    found: Fed = []

    def sink(place: TopicPartition, records: Sequence[Any], position: int) -> None:
        found.append((place, [record.offset for record in records], position))

    return found, asyncio.run(changelog.read(WHERE, spans, sink, **how))


def test_partitions_are_read_to_their_own_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition at its end is paused and not asked again; an empty span is not assigned."""
    reader = Reader(
        {A0: ([2, 3], 4), A1: ([0], 1)}, {A0: ([4, 5, 6], 7)}, {A1: ([], 2)}, {A1: ([2], 3)}
    )
    spans = {("a", 0): Extent(2, 6), A1: Extent(0, 3), B0: Extent(5, 5)}
    found, reached = fed(monkeypatch, reader, spans, isolation_level="read_uncommitted")
    assert found == [(A0, [2, 3], 4), (A1, [0], 1), (A0, [4, 5], 6), (A1, [], 2), (A1, [2], 3)]
    assert reached == {A0: 6, A1: 3, B0: 5}
    assert reader.calls == [
        "read_uncommitted",
        ("assign", [A0, A1]),
        (A0, A1),
        (A0, A1),
        ("pause", A0),
        (A1,),
        (A1,),
        ("pause", A1),
    ]


def test_a_stopped_read_has_its_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only committed records are read unless the caller says so; empty spans need no client."""
    reader = Reader({A0: ([2], 3)})
    answers = iter([False, True])
    found, reached = fed(
        monkeypatch, reader, {A0: Extent(2, 6), A1: Extent(1, 4)}, stopped=lambda: next(answers)
    )
    assert (found, reached) == ([(A0, [2], 3)], {A0: 3, A1: 1})
    assert reader.calls == ["read_committed", ("assign", [A0, A1]), (A0, A1)]
    assert fed(monkeypatch, reader, {B0: Extent(5, 5)}) == ([], {B0: 5})
    assert len(reader.calls) == 3


def test_a_read_fails_after_a_minute_without_a_new_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The minute begins at the last new position of any partition; the open ones are named."""
    reader = Reader({}, {}, {A1: ([], 4)}, {A0: ([2], 3)})
    times = iter([100.0, 130.0, 160.0, 170.0, 220.0, 250.0, 280.0, 280.1])
    monkeypatch.setattr(changelog, "time", SimpleNamespace(monotonic=lambda: next(times)))
    with pytest.raises(UnreachableError) as failure:
        fed(monkeypatch, reader, {A0: Extent(2, 6), A1: Extent(1, 4)})
    assert str(failure.value) == f"no record arrived for 60 s from {[A0]}"
    assert next(times, None) is None
