"""Reading a changelog: the accepted records, gaps, and the retention of tombstones."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from faust_assigner.snapshots import changelog
from faust_assigner.snapshots.changelog import Extent, consumer_of
from faust_assigner.snapshots.json_rows import unreadable_rows

TP = TopicPartition("t", 0)


class Consumer:
    """A consumer with scripted batches of (offsets, position after them)."""

    def __init__(self, *batches: tuple[Sequence[int], int]) -> None:
        self._batches = list(batches)
        self._position = 0

    def assign(self, partitions: object) -> None:
        """Accept the partition."""

    def seek(self, partition: object, offset: int) -> None:
        """Seek to the start of the span."""
        self._position = offset

    def pause(self, partition: object) -> None:
        """Accept the end of the span."""

    async def getmany(
        self, *partitions: object, timeout_ms: int
    ) -> dict[TopicPartition, list[Any]]:
        """Return the next batch."""
        offsets, self._position = self._batches.pop(0)
        return {TP: [SimpleNamespace(offset=offset) for offset in offsets]}

    async def position(self, partition: object) -> int:
        """Return the next offset."""
        return self._position


def read(
    monkeypatch: pytest.MonkeyPatch, span: Extent, *batches: tuple[Sequence[int], int]
) -> list[tuple[list[int], int]]:
    """Return the sink's calls for a span: the offsets, and the position after them."""

    @contextlib.asynccontextmanager
    async def consumer_of(connection: Any, **more: Any) -> AsyncIterator[Consumer]:
        yield Consumer(*batches)

    monkeypatch.setattr(changelog, "consumer_of", consumer_of)
    found: list[tuple[list[int], int]] = []

    def sink(tp: TopicPartition, records: Sequence[Any], position: int) -> None:
        found.append(([record.offset for record in records], position))

    reached = asyncio.run(changelog.read({}, {TP: span}, sink))
    assert reached == {TP: span.end}
    return found


def test_a_gap_without_records_is_told_to_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control records and compaction leave gaps; the sink needs the new position."""
    found = read(monkeypatch, Extent(0, 9), ([0, 1], 2), ([], 7), ([7], 9))
    assert found == [([0, 1], 2), ([], 7), ([7], 9)]


def test_no_record_at_the_end_or_beyond_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a record arrived after the end was fetched, and belongs to the next snapshot."""
    assert read(monkeypatch, Extent(0, 3), ([1, 2, 3, 4], 5)) == [([1, 2], 3)]
    assert read(monkeypatch, Extent(0, 3), ([1, 2, 3], 4)) == [([1, 2], 3)]


class Admin:
    """An admin client with a scripted description of settings."""

    def __init__(self, *resources: tuple[int, str, str | None]) -> None:
        self._resources = resources

    async def describe_configs(self, asked: object) -> list[Any]:
        """Return (error, topic, delete.retention.ms) in aiokafka's form, in two answers."""
        return [
            SimpleNamespace(
                resources=[
                    (
                        error,
                        None,
                        2,
                        topic,
                        [("cleanup.policy", "compact"), ("delete.retention.ms", value)],
                    )
                    for error, topic, value in some
                ]
            )
            for some in (self._resources[:3], self._resources[3:])
        ]


def test_only_what_a_broker_really_says_counts_as_retention() -> None:
    """An error or a missing value leaves Kafka's default."""
    admin: Any = Admin(
        (0, "t", "5000"), (29, "u", "1"), (0, "w", "7000"), (0, "v", None), (0, "x", "9")
    )
    found = asyncio.run(changelog._delete_retention_ms(admin, [*"tuvwx"]))
    assert found == {"t": 5_000, "w": 7_000, "x": 9}


def test_rows_that_are_not_json_are_named_by_their_place_among_all() -> None:
    """Rows are parsed a thousand at a time."""
    rows: list[bytes | None] = [b"1"] * 3_000
    for bad in (5, 1_023, 1_024, 2_999):
        rows[bad] = b"{"
    rows[7] = None
    assert unreadable_rows(rows) == [5, 1_023, 1_024, 2_999]


@pytest.mark.parametrize("level", [None, "read_uncommitted"])
async def test_a_reader_of_changelogs_belongs_to_no_group_and_reads_from_the_start(
    monkeypatch: pytest.MonkeyPatch, level: str | None
) -> None:
    """By default only committed records are read; the caller's sizes take precedence."""
    made: list[dict[str, Any]] = []

    class Never(SimpleNamespace):
        async def start(self) -> None:
            made.append(vars(self))

        async def stop(self) -> None:
            made.append({})

    monkeypatch.setattr(changelog, "AIOKafkaConsumer", lambda **fields: Never(**fields))
    connection: Any = {"bootstrap_servers": "b:9", "max_partition_fetch_bytes": 7}
    more = {} if level is None else {"isolation_level": level}
    async with changelog.consumer_of(connection, **more):
        assert len(made) == 1
    assert len(made) == 2
    assert made[0] == {
        **connection,
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": level or "read_committed",
    }


@pytest.mark.parametrize(
    ("client", "ending", "opened"),
    [
        ("AIOKafkaConsumer", "stop", consumer_of),
        ("AIOKafkaAdminClient", "close", changelog._admin_of),
    ],
)
@pytest.mark.parametrize("fails", ["start", "body"])
async def test_a_client_that_cannot_start_is_closed_as_one_whose_work_failed(
    client: str, ending: str, opened: Any, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's connections and tasks end before the error is raised."""
    calls: list[str] = []

    class Client:
        def __init__(self, **_: Any) -> None: ...

        def __getattr__(self, name: str) -> Any:
            async def call() -> None:
                calls.append(name)
                if name == fails:
                    raise KafkaConnectionError(name)

            return call

    monkeypatch.setattr(changelog, client, Client)
    with pytest.raises(KafkaConnectionError):
        async with opened({}):
            raise KafkaConnectionError("body")
    assert calls == ["start", ending]
