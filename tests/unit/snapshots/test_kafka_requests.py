"""Requests to Kafka: the meaning of each error, the order of requests, and several partitions."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator, Sequence
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
)

from faust_assigner.errors import TryAgain
from faust_assigner.snapshots import changelog, kafka_requests
from faust_assigner.snapshots.changelog import Changelog, Extent, UnknownTopicError
from faust_assigner.snapshots.kafka_requests import RefusedByKafka, UnreachableError, run_request
from faust_assigner.snapshots.manifest import DEFAULT_DELETE_RETENTION_MS
from faust_assigner.snapshots.topic_ids import _Metadata, _MetadataStruct, _Uuid, topic_ids

CONNECTION: Any = {
    "bootstrap_servers": ["h1:1", "h2:2"],
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "client_id": "x",
}


async def fails(error: Exception) -> None:
    """Raise the error."""
    raise error


async def answers(value: int) -> int:
    """Return the value."""
    return value


class Doors:
    """Attempts to connect: each returns the next outcome; None means connected."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *outcomes: Exception | None) -> None:
        self.outcomes, self.acts = list(outcomes), list[Any]()
        monkeypatch.setattr(kafka_requests, "create_conn", self._connect)

    async def _connect(self, host: str, port: int, **how: Any) -> Any:
        self.acts.append((host, port, how))
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return SimpleNamespace(close=lambda: self.acts.append("close"))


def test_an_answer_is_returned() -> None:
    """Errors of other kinds are raised unchanged."""
    assert run_request(CONNECTION, answers(7)) == 7
    with pytest.raises(ValueError, match="a bug"):
        run_request(CONNECTION, fails(ValueError("a bug")))


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (TimeoutError("late"), UnreachableError, "h1:1,h2:2: TimeoutError: late"),
        (
            LeaderNotAvailableError("x"),
            UnreachableError,
            "h1:1,h2:2: LeaderNotAvailableError: [Error 5] LeaderNotAvailableError: x",
        ),
        (
            TopicAuthorizationFailedError("no"),
            RefusedByKafka,
            "h1:1,h2:2: TopicAuthorizationFailedError: "
            "[Error 29] TopicAuthorizationFailedError: no",
        ),
    ],
    ids=["timeout", "retriable", "refused"],
)
def test_an_error_says_whether_a_retry_helps(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], text: str
) -> None:
    """The message has the brokers and the error; no connection is tried."""
    doors = Doors(monkeypatch)
    with pytest.raises(kind) as found:
        run_request(CONNECTION, fails(error))
    assert (str(found.value), type(found.value), doors.acts) == (text, kind, [])
    assert found.value.__cause__ is error
    assert isinstance(found.value, TryAgain) == (kind is UnreachableError)


@pytest.mark.parametrize(
    ("outcomes", "refusal"),
    [
        ([KafkaConnectionError("away"), None], None),
        ([None, None], None),
        ([TimeoutError("late"), ssl.SSLError("bad certificate")], "SSLError"),
        ([OSError("no route"), TopicAuthorizationFailedError("no")], "TopicAuthorization"),
        ([LeaderNotAvailableError("x")], "LeaderNotAvailable"),
        ([OSError("no route"), KafkaConnectionError("away")], None),
    ],
)
def test_an_unreachable_broker_is_asked_for_the_real_reason(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception | None], refusal: str | None
) -> None:
    """Each broker is tried with the access settings alone; the first refusal counts."""
    doors = Doors(monkeypatch, *outcomes)
    lost = KafkaConnectionError("lost")
    with pytest.raises(RefusedByKafka if refusal else UnreachableError) as found:
        run_request(CONNECTION, fails(lost))
    how = {"request_timeout_ms": 3_000, "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    tried = sorted(act for act in doors.acts if act != "close")
    assert [act[2] for act in tried] == [how] * (len(outcomes) - len(doors.outcomes))
    assert doors.acts.count("close") == outcomes.count(None)
    if refusal:
        assert f"h1:1,h2:2: {refusal}" in str(found.value)
    else:
        assert doors.outcomes == []
        assert str(found.value) == f"h1:1,h2:2: {lost}"


# -- several topics


class Admin:
    """An admin client of a cluster with topic a of one partition and topic b of two."""

    def __init__(self, *, settings: bool = True) -> None:
        self.acts: list[Any] = []
        self.settings = settings

    async def list_topics(self) -> list[str]:
        """Return the topics."""
        return ["b", "a", "c"]

    async def describe_topics(self, topics: list[str]) -> list[Any]:
        """Return the topics' partitions."""
        self.acts.append(("describe", topics))
        numbers = {"a": [0], "b": [1, 0]}
        return [
            {"topic": topic, "partitions": [{"partition": number} for number in numbers[topic]]}
            for topic in topics
        ]

    async def describe_configs(self, resources: list[Any]) -> list[Any]:
        """Return the topics' settings."""
        if not self.settings:
            raise RuntimeError("an answer that does not decode")
        self.acts.append(("settings", [resource.name for resource in resources]))
        return [SimpleNamespace(resources=[(0, None, 2, "b", [("delete.retention.ms", "5000")])])]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    """The cluster's admin client; end offsets are ten times the partition, and more for b."""
    made = Admin()

    @contextlib.asynccontextmanager
    async def admin_of(connection: Any) -> AsyncIterator[Admin]:
        assert connection is CONNECTION
        yield made

    async def extents_of(connection: Any, tps: Any) -> Any:
        made.acts.append(("extents", tps))
        return {tp: Extent(tp.partition, 10 + tp.partition + (tp.topic == "b")) for tp in tps}

    async def ids(given: Any, topics: Any) -> dict[str, str]:
        assert given is made
        made.acts.append(("ids", topics))
        return {"a": "id of a"}

    monkeypatch.setattr(changelog, "_admin_of", admin_of)
    monkeypatch.setattr(changelog, "extents_of", extents_of)
    monkeypatch.setattr(changelog, "topic_ids", ids)
    return made


@pytest.mark.parametrize("settings", [True, False])
def test_each_topic_has_its_own_state(admin: Admin, settings: bool) -> None:
    """The id is read last; a broker without the settings leaves Kafka's default."""
    admin.settings = settings
    found = asyncio.run(changelog.changelogs(CONNECTION, ["b", "a"]))
    retention = 5000 if settings else DEFAULT_DELETE_RETENTION_MS
    assert found == {
        "b": Changelog("b", {0: Extent(0, 11), 1: Extent(1, 12)}, retention, None),
        "a": Changelog("a", {0: Extent(0, 10)}, DEFAULT_DELETE_RETENTION_MS, "id of a"),
    }
    assert list(found) == ["b", "a"]
    tps = [TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 1)]
    assert admin.acts == [
        ("describe", ["b", "a"]),
        *[("settings", ["b", "a"])] * settings,
        ("extents", tps),
        ("ids", ["b", "a"]),
    ]
    assert asyncio.run(changelog.extents(CONNECTION, "b")) == {0: Extent(0, 11), 1: Extent(1, 12)}


def test_a_missing_topic_is_named_and_not_made(admin: Admin) -> None:
    """The error names the first topic in order; no topic is described."""
    with pytest.raises(UnknownTopicError, match=r"\['h1:1', 'h2:2'\] has no topic 'm'") as found:
        asyncio.run(changelog.changelogs(CONNECTION, ["z", "a", "m"]))
    assert (admin.acts, found.value.exit_code) == ([], 2)


def test_a_look_is_at_one_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's errors are explained."""

    async def changelogs(connection: Any, topics: Any) -> dict[str, str]:
        assert (connection, topics) == (CONNECTION, ["t"])
        return {"t": "state"}

    monkeypatch.setattr(changelog, "changelogs", changelogs)
    assert changelog.look_at(CONNECTION, "t") == "state"


def test_extents_are_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions are of aiokafka's type, as seen by a reader of the same isolation level."""
    levels: list[str] = []

    class Consumer:
        async def beginning_offsets(self, tps: Any) -> Any:
            assert {type(tp) for tp in tps} == {TopicPartition}
            return {tp: tp.partition for tp in tps}

        async def end_offsets(self, tps: Any) -> Any:
            return {tp: 50 + tp.partition for tp in tps}

    @contextlib.asynccontextmanager
    async def consumer_of(connection: Any, *, isolation_level: str) -> AsyncIterator[Consumer]:
        levels.append(isolation_level)
        yield Consumer()

    monkeypatch.setattr(changelog, "consumer_of", consumer_of)
    tps: Any = [("t", 3), ("t", 1)]
    for more in ({}, {"isolation_level": "read_uncommitted"}):
        found = asyncio.run(changelog.extents_of(CONNECTION, tps, **more))
        assert found == {("t", 3): Extent(3, 53), ("t", 1): Extent(1, 51)}
    assert levels == ["read_committed", "read_uncommitted"]


def test_an_administrator_gets_the_settings_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The admin client would refuse a consumer's other settings."""
    made: list[Any] = []

    class Client:
        def __init__(self, **fields: Any) -> None:
            made.append(fields)

        async def start(self) -> None:
            made.append("start")

        async def close(self) -> None:
            made.append("close")

    monkeypatch.setattr(changelog, "AIOKafkaAdminClient", Client)

    async def use() -> None:
        connection = {**CONNECTION, "max_partition_fetch_bytes": 7, "request_timeout_ms": 9}
        async with changelog._admin_of(connection):
            made.append("used")

    asyncio.run(use())
    taken = {name: value for name, value in CONNECTION.items() if name != "client_id"}
    assert made == [{**taken, "request_timeout_ms": 9}, "start", "used", "close"]


# -- reading several partitions

A, B, C = (TopicPartition("t", number) for number in range(3))


class Reader:
    """A consumer with scripted offsets and positions per turn; ``acts`` are in order."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *turns: dict[TopicPartition, tuple[list[int], int]]
    ) -> None:
        self.turns, self.acts, self.now = list(turns), list[Any](), 100.0
        self.positions: dict[TopicPartition, int] = {}
        self.turn_s = 0.0
        self.levels: list[str] = []
        monkeypatch.setattr(changelog.time, "monotonic", lambda: self.now)

        @contextlib.asynccontextmanager
        async def consumer_of(connection: Any, *, isolation_level: str) -> AsyncIterator[Reader]:
            self.levels.append(isolation_level)
            yield self

        monkeypatch.setattr(changelog, "consumer_of", consumer_of)

    def assign(self, tps: Any) -> None:
        """Record the assignment."""
        self.acts.append(("assign", tps))

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Record the seek."""
        self.acts.append(("seek", tp, offset))
        self.positions[tp] = offset

    def pause(self, tp: TopicPartition) -> None:
        """Record the pause."""
        self.acts.append(("pause", tp))

    async def getmany(self, *tps: TopicPartition, timeout_ms: int) -> Any:
        """Return the next turn."""
        assert timeout_ms == changelog.POLL_MS
        self.acts.append(("fetch", *tps))
        self.now += self.turn_s
        turn = self.turns.pop(0) if self.turns else {}
        self.positions |= {tp: position for tp, (_, position) in turn.items()}
        return {
            tp: [SimpleNamespace(offset=offset) for offset in offsets]
            for tp, (offsets, _) in turn.items()
            if offsets
        }

    async def position(self, tp: TopicPartition) -> int:
        """Return the next offset."""
        return self.positions[tp]

    def read(self, spans: Any, **more: Any) -> Any:
        """Return the reached positions; ``acts`` has the sink's records."""

        def sink(tp: TopicPartition, records: Sequence[Any], position: int) -> None:
            self.acts.append(("sink", tp, [record.offset for record in records], position))

        return asyncio.run(changelog.read({}, spans, sink, **more))


def test_each_partition_is_read_to_its_own_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty partition is not read; a finished partition is paused while the others continue."""
    reader = Reader(
        monkeypatch, {A: ([3, 4], 5), B: ([], 0)}, {A: ([5, 6, 7], 8), B: ([0], 1)}, {B: ([], 9)}
    )
    spans = {A: Extent(3, 7), B: Extent(0, 2), C: Extent(5, 5)}
    assert reader.read(spans, isolation_level="read_uncommitted") == {A: 7, B: 2, C: 5}
    assert reader.acts == [
        ("assign", [A, B]),
        ("seek", A, 3),
        ("seek", B, 0),
        ("fetch", A, B),
        ("sink", A, [3, 4], 5),
        ("fetch", A, B),
        ("sink", A, [5, 6], 7),
        ("pause", A),
        ("sink", B, [0], 1),
        ("fetch", B),
        ("sink", B, [], 2),
        ("pause", B),
    ]
    assert reader.levels == ["read_uncommitted"]
    assert Reader(monkeypatch).read({C: Extent(5, 5)}) == {C: 5}


def test_a_read_that_is_stopped_returns_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop may precede the first turn."""
    looks = iter([False, True])
    reader = Reader(monkeypatch, {A: ([0], 1)})
    spans = {A: Extent(0, 9), B: Extent(4, 9)}
    assert reader.read(spans, stopped=lambda: next(looks)) == {A: 1, B: 4}
    reader = Reader(monkeypatch)
    assert reader.read(spans, stopped=lambda: True) == {A: 0, B: 4}


@pytest.mark.parametrize(
    ("turn_s", "fails"), [(changelog.STALL_S / 2, False), (changelog.STALL_S / 2 + 1, True)]
)
def test_a_read_without_records_for_a_minute_fails(
    monkeypatch: pytest.MonkeyPatch, turn_s: float, fails: bool
) -> None:
    """Each record of any partition restarts the minute."""
    idle: dict[TopicPartition, tuple[list[int], int]] = {}
    reader = Reader(monkeypatch, idle, {B: ([0], 1)}, idle, idle, {A: ([0], 1), B: ([1], 2)})
    reader.turn_s = turn_s
    spans = {A: Extent(0, 1), B: Extent(0, 2)}
    if not fails:
        assert reader.read(spans) == {A: 1, B: 2}
        return
    with pytest.raises(
        UnreachableError, match=r"no record arrived for 60 s from .*partition=0.*=1"
    ):
        reader.read(spans)
    assert [act[0] for act in reader.acts].count("fetch") == 4


async def test_a_stop_passes_on_its_own_cancellation_alone() -> None:
    """aiokafka cancels its own tasks, whose cancellation looks the same."""

    async def cancelled() -> None:
        raise asyncio.CancelledError

    consumer: Any = SimpleNamespace(stop=cancelled)
    await changelog._stop_consumer(consumer)
    began = asyncio.Event()

    async def waits() -> None:
        began.set()
        await asyncio.sleep(3600)

    stopping = asyncio.ensure_future(changelog._stop_consumer(SimpleNamespace(stop=waits)))  # type: ignore[arg-type]
    await began.wait()
    stopping.cancel()
    await asyncio.wait({stopping})
    assert stopping.cancelled()


# -- topic ids


async def test_ids_of_existing_topics_are_returned() -> None:
    """An error or the zero id yields no id; a broker before 2.8 has no ids."""
    one = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    asked: list[Any] = []

    class Cluster:
        async def _send_request(self, request: Any) -> Any:
            asked.append(request._topics)
            topics = [
                {"name": "a", "topic_id": one, "error_code": 0},
                {"name": "b", "topic_id": one, "error_code": 3},
                {"name": "c", "topic_id": uuid.UUID(int=0), "error_code": 0},
            ]
            return SimpleNamespace(to_object=lambda: {"topics": topics})

    class Old:
        async def _send_request(self, request: Any) -> Any:
            raise IncompatibleBrokerVersion

    assert await topic_ids(Cluster(), ["a", "b", "c"]) == {"a": str(one)}
    assert asked == [["a", "b", "c"]]
    assert await topic_ids(Old(), ["a"]) == {}


def test_a_request_names_topics_and_makes_none() -> None:
    """The request has no ids, rights and details; an id is 16 bytes, most significant first."""
    request = _Metadata(["b", "a"]).build(_MetadataStruct)
    none = uuid.UUID(int=0)
    assert request.topics == [(none, "b", {}), (none, "a", {})]
    assert request.allow_auto_topic_creation is False
    assert request.include_cluster_authorized_operations is False
    assert request.include_topic_authorized_operations is False
    one = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert _Uuid.encode(one) == bytes.fromhex("00112233445566778899aabbccddeeff")
    data = BytesIO(_Uuid.encode(one) + b"rest")
    assert (_Uuid.decode(data), data.read()) == (one, b"rest")
