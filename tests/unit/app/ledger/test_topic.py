"""The ledger in a topic: limited size, kept order, and no effect of broker faults on the app."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import string
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidReplicationFactorError, PolicyViolationError

from faust_assigner.app.ledger import pages
from faust_assigner.app.ledger import topic as module
from faust_assigner.app.ledger.topic import LedgerTopic
from faust_assigner.app.ledger.writer import Counts
from faust_assigner.broker import EmbeddedBroker
from faust_assigner.ledger import Row, encode, parse
from faust_assigner.testing.kafka import KafkaServer
from tests.support.waiting import PATIENCE_S
from tests.unit.app.ledger.test_files import sample
from tests.unit.app.ledger.test_pages import line as recovery_line


class Ledger:
    """Makes ledgers in the topic ``ledger``; ``conftest.py`` closes them after the test."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.made: list[LedgerTopic] = []

    def __call__(self, name: str = "shop-w", *, bootstrap: str = "", **options: Any) -> LedgerTopic:
        """Return a ledger that sends to ``bootstrap``, by default the broker."""
        where = {"bootstrap_servers": bootstrap or self.broker.bootstrap}
        self.made.append(LedgerTopic("ledger", name, lambda: where, **options))
        return self.made[-1]


@pytest.fixture
def ledger(embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """Ledgers with a short retry interval."""
    monkeypatch.setattr(module, "BETWEEN_S", 0.05)
    return Ledger(embedded_broker)


class Clock:
    """The clock of the ledger's module; ``later`` seconds are added to the real time."""

    def __init__(self) -> None:
        self.later = 0.0

    def monotonic(self) -> float:
        """Return the seconds."""
        return time.monotonic() + self.later


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for limits that must not pass before the test lets them pass."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def put(writer: LedgerTopic, *numbers: int) -> None:
    """Put a row for each number; wait until all are written or counted."""
    for number in numbers:
        writer.put(lambda number=number: [sample(number)])
    writer.drain()


async def _records(bootstrap: str) -> list[Any]:
    async with AIOKafkaConsumer(
        "ledger", bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        numbers = sorted(consumer.partitions_for_topic("ledger") or ())
        tps = [TopicPartition("ledger", n) for n in numbers]
        ends = await consumer.end_offsets(tps)
        found: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while [await consumer.position(tp) for tp in tps] != [ends[tp] for tp in tps]:
                fetched = await consumer.getmany(timeout_ms=50)
                found += [record for records in fetched.values() for record in records]
    return found


def records(broker: EmbeddedBroker) -> list[Any]:
    """Return all records of the topic; records of a partition are in order."""
    return asyncio.run(_records(broker.bootstrap))


def rows(broker: EmbeddedBroker) -> list[int]:
    """Return the partitions in the topic's rows; check that every record is a row."""
    found = []
    for record in records(broker):
        row = parse(record.value)
        assert isinstance(row, Row), record.value
        found.append(row.values["partition"])
    return found


def administer(
    broker: EmbeddedBroker | KafkaServer, act: Callable[[AIOKafkaAdminClient], Any]
) -> Any:
    """Run ``act`` with an admin client; return its result."""

    async def run() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            return await act(admin)
        finally:
            await admin.close()

    return asyncio.run(run())


def decision(size: int, **more: Any) -> tuple[str, dict[str, Any]]:
    """Return a decision's row of ``size`` incompressible bytes in the named columns."""
    noise = "".join(random.Random(7).choices(string.ascii_letters, k=size))
    return "decision", {
        "group_id": "shop",
        "decision_id": "1-a",
        "ts": 1.0,
        "generation": 1,
        "trigger": "first",
        "policy": "faust-assigner",
        "config": {},
        "members": [],
        "solve_ms": 1.0,
        **dict.fromkeys(more, noise),
    }


def test_a_record_is_a_line_of_the_files_and_a_workers_rows_stay_in_order(
    ledger: Ledger, embedded_broker: EmbeddedBroker
) -> None:
    """Each worker has its own partition and key, even for many turns of two workers at once."""
    one, two = ledger("shop-one"), ledger("shop-two")
    one.put(lambda: (sample(number) for number in range(1000)))
    two.put(lambda: (sample(number) for number in range(1000, 1300)))
    put(one, 5000, 5001)
    two.drain()
    by_key: dict[bytes, list[Any]] = {}
    for record in records(embedded_broker):
        by_key.setdefault(record.key, []).append(record)
    assert set(by_key) == {b"shop-one", b"shop-two"}
    for key, numbers in (
        (b"shop-one", [*range(1000), 5000, 5001]),
        (b"shop-two", range(1000, 1300)),
    ):
        assert len({record.partition for record in by_key[key]}) == 1
        lines = [encode(*sample(number)).rstrip(b"\n") for number in numbers]
        assert [record.value for record in by_key[key]] == lines
    assert (one.counts.written, two.counts.written) == (1002, 300)


def test_the_topic_is_made_with_bounds_in_time_and_bytes(
    ledger: Ledger, embedded_broker: EmbeddedBroker
) -> None:
    """A segment is at most as large as a partition's retention; there is no compaction."""
    put(ledger(total_bytes=40_000_000, segment_bytes=4_000_000), 1)

    async def look(admin: AIOKafkaAdminClient) -> Any:
        resource = ConfigResource(ConfigResourceType.TOPIC, "ledger")
        return await admin.describe_topics(["ledger"]), await admin.describe_configs([resource])

    [topic], [answer] = administer(embedded_broker, look)
    config = {entry[0]: entry[1] for entry in answer.resources[0][4]}
    assert len(topic["partitions"]) == 4
    assert config["cleanup.policy"] == "delete"
    assert config["retention.ms"] == "2592000000"
    assert config["retention.bytes"] == "10000000"
    assert config["segment.bytes"] == "4000000"
    tiny = ledger(total_bytes=1000, segment_bytes=10**12)
    assert (tiny._setup._retention_bytes, tiny._setup._segment_bytes) == (1024 * 1024, 1024 * 1024)


def test_a_topic_that_is_there_is_used_as_it_is_and_a_compacted_one_is_named(
    ledger: Ledger, embedded_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partitions and settings stay; the warning says that compaction removes rows."""
    wanted = NewTopic("ledger", 4, 1, topic_configs={"cleanup.policy": "compact"})
    administer(embedded_broker, lambda admin: admin.create_topics([wanted]))
    put(ledger(), 1, 2)
    assert rows(embedded_broker) == [1, 2]
    assert sum("is compacted" in record.message for record in caplog.records) == 1


def test_a_broker_that_is_away_for_a_moment_costs_no_row(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It starts seconds after the first row; later it restarts while rows arrive."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    writer = ledger(bootstrap=f"127.0.0.1:{port}")
    writer.put(lambda: [sample(0)])
    time.sleep(0.5)
    with EmbeddedBroker(tmp_path, port=port) as broker:
        put(writer, 1)
        assert rows(broker) == [0, 1]
    writer.put(lambda: [sample(2)])
    time.sleep(0.5)
    with EmbeddedBroker(tmp_path, port=port) as broker:
        put(writer, 3)
        assert rows(broker) == [0, 1, 2, 3]
    assert writer.counts == Counts(written=4)
    assert "cannot be written" not in caplog.text


def test_a_broker_that_stays_away_is_logged_once_and_its_rows_are_counted(
    ledger: Ledger,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a turn's time limit rows are dropped at once; later rows are written again."""
    attempts = []
    connect = LedgerTopic._connect

    async def counted(self: LedgerTopic) -> Any:
        attempts.append(self)
        return await connect(self)

    monkeypatch.setattr(LedgerTopic, "_connect", counted)
    monkeypatch.setattr(module, "SEND_S", 0.3)
    monkeypatch.setattr(module, "REST_S", 3_600.0)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    writer = ledger(bootstrap=f"127.0.0.1:{port}")
    put(writer, 0)
    assert attempts
    attempts.clear()
    writer.put(lambda: (sample(number) for number in range(2000)))
    put(writer, 1)
    assert not attempts, "rows of a broker that is away were waited for"
    assert (writer.counts.written, writer.counts.dropped) == (0, 2002)
    clock.later += 3_600.0
    monkeypatch.setattr(module, "SEND_S", PATIENCE_S)
    with EmbeddedBroker(port=port) as broker:
        put(writer, 7)
        assert rows(broker) == [7]
    assert sum("cannot be written" in record.message for record in caplog.records) == 1


def test_a_broker_that_takes_connections_and_says_nothing_holds_up_one_attempt(
    ledger: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are dropped after their time limit, and the caller does not wait."""
    monkeypatch.setattr(module, "SEND_S", 3_600.0)
    monkeypatch.setattr(module, "ATTEMPT_S", 3_600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        writer = ledger(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}", most_waiting=3)
        writer.put(lambda: [sample(0)])
        connection, _ = silent.accept()
        with connection:
            for number in range(1, 50):
                writer.put(lambda number=number: [sample(number)])
            counts = writer.counts
            assert counts.dropped == 0, "the caller waited for the time limit"
            assert counts.skipped >= 45
            clock.later += 3_600.0
            writer.drain()
    assert counts.dropped + counts.skipped == 50
    assert counts.dropped >= 3


def test_a_full_queue_drops_counts_and_is_logged_once(
    ledger: Ledger, embedded_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Queued rows are written when the thread continues."""
    release = threading.Event()
    writer = ledger(most_waiting=4)
    writer.put(lambda: release.wait(PATIENCE_S) and [])
    for number in range(100):
        writer.put(lambda number=number: [sample(number)])
    release.set()
    writer.drain()
    assert writer.counts.written + writer.counts.skipped == 100
    assert writer.counts.skipped >= 95
    assert len(rows(embedded_broker)) == writer.counts.written
    assert sum("queue is full" in record.message for record in caplog.records) == 1


def test_batches_respect_what_the_topic_takes(
    ledger: Ledger, embedded_broker: EmbeddedBroker
) -> None:
    """Thousands of rows with records of at most 2,000 bytes need more, smaller requests."""
    small = NewTopic("ledger", 4, 1, topic_configs={"max.message.bytes": "2000"})
    administer(embedded_broker, lambda admin: admin.create_topics([small]))
    writer = ledger()
    writer.put(lambda: (sample(number) for number in range(3000)))
    writer.drain()
    assert rows(embedded_broker) == list(range(3000))
    assert writer.counts.dropped == 0


def test_a_limit_that_is_lowered_later_is_found_by_halving(
    ledger: Ledger, embedded_broker: EmbeddedBroker
) -> None:
    """After a refused batch the ledger sends smaller batches; no row is lost."""
    writer = ledger()
    put(writer, 0)

    async def lower(admin: AIOKafkaAdminClient) -> None:
        config = {"max.message.bytes": "1500"}
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "ledger", config)])

    administer(embedded_broker, lower)
    writer.put(lambda: (sample(number) for number in range(1, 1000)))
    writer.drain()
    assert rows(embedded_broker) == list(range(1000))
    assert writer.counts.dropped == 0


def test_a_decision_too_large_for_the_broker_is_written_without_its_inputs(
    ledger: Ledger, embedded_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A row that stays too large is dropped and counted; each case is logged once."""
    limit = NewTopic("ledger", 4, 1, topic_configs={"max.message.bytes": "3000"})
    administer(embedded_broker, lambda admin: admin.create_topics([limit]))
    writer = ledger()
    writer.put(lambda: [sample(1), decision(20_000, asked=1), sample(2), decision(20_000, why=1)])
    put(writer, 3)
    found = [json.loads(record.value) for record in records(embedded_broker)]
    assert [row.get("partition") or row["decision_id"] for row in found] == [1, "1-a", 2, 3]
    assert "asked" not in found[1]
    assert isinstance(parse(json.dumps(found[1]).encode()), Row)
    assert (writer.counts.written, writer.counts.dropped) == (4, 1)
    said = [record.message for record in caplog.records if "max.message.bytes" in record.message]
    assert len(said) == 2
    assert "without the decision's inputs" in said[0]
    assert "dropped and counted" in said[1]


def test_a_line_that_no_reader_takes_is_not_sent(
    ledger: Ledger, embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers refuse such a line; the rows before and after it are written."""
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 1000)
    writer = ledger()
    writer.put(lambda: [sample(1), decision(2000, why=1), sample(2)])
    writer.drain()
    assert rows(embedded_broker) == [1, 2]
    assert writer.counts.dropped == 1


@pytest.mark.parametrize(("auto", "partitions"), [("false", 4), ("true", 1)])
def test_a_topic_that_is_deleted_is_made_again(
    monkeypatch: pytest.MonkeyPatch, auto: str, partitions: int
) -> None:
    """Either the ledger or the broker's auto-creation makes the topic; no row is lost."""
    with EmbeddedBroker(settings={"auto.create.topics.enable": auto}) as broker:
        writer = Ledger(broker)()
        put(writer, 1)
        administer(broker, lambda admin: admin.delete_topics(["ledger"]))
        monkeypatch.setattr(module, "ATTEMPT_S", 2.0)  # the first attempt gets no answer
        put(writer, 2, 3)
        [topic] = administer(broker, lambda admin: admin.describe_topics(["ledger"]))
        assert len(topic["partitions"]) == partitions
        # An attempt may end after the broker has written its rows.
        assert list(dict.fromkeys(rows(broker))) == [2, 3]
        assert writer.counts.dropped == 0
        writer.close()


@pytest.mark.parametrize("error", [PolicyViolationError, InvalidReplicationFactorError])
def test_a_topic_that_cannot_be_made_is_named_with_the_brokers_reason(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Any
) -> None:
    """A permanent error is not retried; the app continues."""
    attempts = []

    async def refuse(admin: Any, topics: Any) -> Any:
        attempts.append(topics)
        answer = type("Answer", (), {"topic_errors": [("ledger", error.errno, "not here")]})
        return answer

    monkeypatch.setattr(AIOKafkaAdminClient, "create_topics", refuse)
    monkeypatch.setattr(module, "SEND_S", 0.2)
    writer = ledger()
    put(writer, 1, 2, 3)
    assert writer.counts.dropped == 3
    assert len(attempts) == 1 or error.retriable
    [said] = [r.message for r in caplog.records if "cannot be written" in r.message]
    assert error.__name__ in said
    assert "not here" in said


def test_another_worker_may_make_the_topic_first(
    ledger: Ledger, embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic exists although the listed topics lacked it."""

    async def none_yet(admin: Any) -> list[str]:
        return []

    put(ledger("first"), 1)
    monkeypatch.setattr(AIOKafkaAdminClient, "list_topics", none_yet)
    put(ledger("second"), 2)
    assert sorted(rows(embedded_broker)) == [1, 2]


def test_settings_that_make_no_connection_fail_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Their error is logged, and the rows are counted."""

    def broken() -> Any:
        raise ValueError("no such mechanism")

    writer = LedgerTopic("ledger", "w", broken)
    put(writer, 1, 2)
    writer.close()
    assert writer.counts.dropped == 2
    assert "no such mechanism" in caplog.text


def test_closing_sends_what_waits_and_a_later_row_finds_a_thread(
    ledger: Ledger, embedded_broker: EmbeddedBroker
) -> None:
    """The whole decision is sent, then the connection is closed."""
    writer = ledger()
    writer.put(lambda: (sample(number) for number in range(2000)))
    writer.close(timeout_s=PATIENCE_S)
    assert rows(embedded_broker) == list(range(2000))
    assert writer._thread is not None
    assert not writer._thread.is_alive()
    put(writer, 2000)
    assert rows(embedded_broker)[-1] == 2000


def test_closing_waits_no_longer_than_it_may_for_a_broker_that_is_silent(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The remaining rows are counted and logged, and the thread has ended."""
    monkeypatch.setattr(module, "SEND_S", 3_600.0)
    monkeypatch.setattr(module, "ATTEMPT_S", 3_600.0)
    # close() leaves twice this time to the end of the thread
    monkeypatch.setattr(module, "STOP_S", (PATIENCE_S - 0.5) / 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE_S)
        writer = ledger(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}")
        writer.put(lambda: [sample(0)])
        connection, _ = silent.accept()
        for number in range(1, 10):
            writer.put(lambda number=number: [sample(number)])
        began = time.monotonic()
        with connection:
            writer.close(PATIENCE_S)
        assert time.monotonic() - began < PATIENCE_S
        assert writer._thread is not None
        assert not writer._thread.is_alive()
    assert (writer.counts.dropped, writer.counts.skipped) == (1, 9)
    assert "The ledger in topic ledger is incomplete" in caplog.text


def test_the_page_has_the_newest_lines_also_those_that_no_broker_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory keeps a limited number of bytes without samples; a cursor returns earlier lines."""
    monkeypatch.setattr(module, "SEND_S", 0.0)

    def nowhere() -> Any:
        raise OSError("no broker")

    lines = [recovery_line(number) for number in range(100)]
    monkeypatch.setattr(pages, "TAIL_BYTES", sum(map(len, lines[40:])))
    monkeypatch.setattr(pages, "PAGE_BYTES", sum(map(len, lines[:25])))
    writer = LedgerTopic("ledger", "w", nowhere)
    for line in lines:
        row = json.loads(line)
        recovery = {**row, "started": 1.0, "ended": 1.5}
        recovery.pop("table")
        writer.put(lambda recovery=recovery: [("recovery", recovery), sample(1)])
    writer.close(PATIENCE_S)
    found: list[bytes] = []
    cursor, asked = "", 0
    while asked == 0 or cursor:
        page = writer.page("shop", cursor)
        found[:0] = page.lines
        cursor, asked = page.cursor, asked + 1
    assert page.app == "shop"
    assert 2 < asked < 5
    kept = [line.rstrip(b"\n") for line in lines]
    assert found == kept[-len(found) :]
    assert 55 < len(found) < 65
    assert writer.page("shop", "no cursor").lines[-1] == found[-1]
    assert writer.page("shop", "1").lines == ()
