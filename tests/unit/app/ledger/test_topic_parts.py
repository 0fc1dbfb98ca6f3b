"""The ledger's batches and retries, with a producer that records its batches."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from faust_assigner.app.ledger import topic as module
from faust_assigner.app.ledger import topic_setup
from faust_assigner.app.ledger.topic import RECORD_BYTES, LedgerTopic
from faust_assigner.app.ledger.writer import Counts


class Batch(list[bytes]):
    """A batch of at most ``room`` lines."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def append(self, *, timestamp: Any, key: bytes, value: bytes) -> Any:  # type: ignore[override]
        """Take a line; return None if the batch is full."""
        assert (timestamp, key) == (None, b"w-1")
        if len(self) >= self.room:
            return None
        super().append(value)
        return "taken"


class Ledger(LedgerTopic):
    """A ledger that records its batches in ``sent``; each send raises the next error, if any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: BaseException | None) -> None:
        super().__init__("ledger", "w-1", dict)
        self.errors, self.sent, self.acts = list(errors), list[list[bytes]](), list[Any]()
        self.room, self.message_bytes, self.now = 99, 10**6, 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self._closing: Any = SimpleNamespace(wait=self._pause, set=lambda: None, clear=lambda: None)

    def _pause(self, seconds: float) -> None:
        self.acts.append(seconds)
        self.now += seconds

    async def _connect(self) -> Any:
        self.acts.append("connect")
        producer = SimpleNamespace(create_batch=lambda: Batch(self.room))
        return module._Link(producer, 3, self.message_bytes)  # type: ignore[arg-type]

    async def _deliver(self, link: Any, batch: Any) -> None:
        assert link.partition == 3
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.sent.append(list(batch))

    def _await(self, doing: Any) -> Any:
        return asyncio.run(doing)

    def _disconnect(self) -> None:
        self.acts.append("disconnect")
        self._link = None


def lines(*sizes: int) -> list[bytes]:
    """Return lines of these sizes, each of a different letter."""
    return [b"abcdefgh"[n : n + 1] * size + b"\n" for n, size in enumerate(sizes)]


def test_lines_are_sent_in_batches_and_kept_for_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch ends when the producer accepts no more; a single connection is made."""
    it = Ledger(monkeypatch)
    it.room = 2
    it._append(lines(3, 1, 2))
    it._append(lines(4))
    assert it.sent == [[b"aaa", b"b"], [b"cc"], [b"aaaa"]]
    assert (it.acts, it.counts) == (["connect"], Counts(written=4))
    assert it.page("shop").lines == (b"aaa", b"b", b"cc", b"aaaa")


@pytest.mark.parametrize("more", [0, 1])
def test_a_batch_is_below_the_limits_of_the_topic(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """Each record's overhead counts; a single line is sent at any size."""
    it = Ledger(monkeypatch)
    record = 3 + RECORD_BYTES
    it.message_bytes = 10 + 20 + 2 * record + RECORD_BYTES
    it._append(lines(10, 20 + more, 500))
    first, second, third = (line[:-1] for line in lines(10, 20 + more, 500))
    assert it.sent == ([[first], [second], [third]] if more else [[first, second], [third]])


def test_a_line_for_no_reader_ends_the_batch_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this line is dropped; a line of the maximum size is sent."""
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 12)
    monkeypatch.setattr(module, "_without_inputs", lambda line: None)
    it = Ledger(monkeypatch)
    it._batch_bytes = 0
    it._append(lines(1, 12, 13, 2))
    assert it.sent == [[b"a", b"b" * 12], [b"dd"]]
    assert it.counts == Counts(written=3, dropped=1)


def test_a_line_for_no_reader_does_not_shrink_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is larger than any batch, so it says nothing about the topic's limit."""
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 2000)
    monkeypatch.setattr(module, "BATCH_BYTES", 1500)
    monkeypatch.setattr(module, "_without_inputs", lambda line: None)
    it = Ledger(monkeypatch)
    it._append(lines(10, 20, 2001, *[100] * 5))
    assert [list(map(len, batch)) for batch in it.sent] == [[10, 20], [100] * 5]
    assert (it.counts, it.acts) == (Counts(written=7, dropped=1), ["connect"])


def test_a_refused_batch_is_halved_down_to_a_single_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the line loses its inputs, then it is dropped; the batch size stays halved."""
    it = Ledger(monkeypatch)
    total = 4 + 3 + 2 * RECORD_BYTES
    it._batch_bytes = 3 * total
    left = deque(line[:-1] for line in lines(4, 5))
    error = MessageSizeTooLargeError("large")
    it._make_smaller(left, error)
    assert it._batch_bytes == 3 * total // 2
    it._make_smaller(left, error)
    assert it._batch_bytes == total
    shorter: list[bytes | None] = [b"s", None]
    monkeypatch.setattr(module, "_without_inputs", lambda line: shorter.pop(0))
    it._make_smaller(left, error)
    assert list(left) == [b"s", b"bbbbb"]
    it._batch_bytes = 1
    it._make_smaller(left, error)
    assert (list(left), it.counts) == ([b"bbbbb"], Counts(dropped=1))


@pytest.mark.parametrize("error", [MessageSizeTooLargeError("m"), RecordListTooLargeError("r")])
def test_a_batch_that_is_too_large_is_sent_again_at_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The connection stays, without a pause."""
    it = Ledger(monkeypatch, error)
    it._append(lines(1, 2))
    assert (it.sent, it.acts) == ([[b"a", b"bb"]], ["connect"])
    assert it._batch_bytes == module.BATCH_BYTES // 2


def test_rows_are_sent_again_until_their_time_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Each retry follows a pause on a new connection; then rows are dropped for a while."""
    it = Ledger(monkeypatch, KafkaConnectionError("lost"), asyncio.CancelledError())
    it._append(lines(1))
    pause = module.BETWEEN_S
    assert it.acts == ["connect", "disconnect", pause, "connect", "disconnect", pause, "connect"]
    assert it.counts == Counts(written=1)
    it.room = 1
    it.errors = [None, *[OSError("gone")] * 99]
    began = it.now
    it._append(lines(1, 2, 3))
    assert it.counts == Counts(written=2, dropped=2)
    assert it.now == began + module.SEND_S
    assert "(OSError: gone)" in caplog.text
    it.errors.clear()
    it.now += module.REST_S - 0.1
    it._append(lines(1, 2))
    assert it.counts == Counts(written=2, dropped=4)
    it.now += 0.1
    it._append(lines(1))
    assert it.counts == Counts(written=3, dropped=4)
    assert len(it.page("shop").lines) == 7, "pages have all of them"


def test_an_error_that_lasts_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closing ledger does not retry any error."""
    it = Ledger(monkeypatch, TopicAuthorizationFailedError("no"))
    it._append(lines(1))
    assert (it.acts, it.counts) == (["connect", "disconnect"], Counts(dropped=1))
    it = Ledger(monkeypatch, KafkaConnectionError("lost"))
    it._closes_at = it.now
    it._append(lines(1))
    assert (it.acts, it.counts) == (["connect", "disconnect"], Counts(dropped=1))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (KafkaConnectionError("x"), True),
        (TopicAuthorizationFailedError("x"), False),
        (MessageSizeTooLargeError("x"), False),
        (OSError("x"), True),
        (TimeoutError("x"), True),
        (asyncio.CancelledError(), True),
        (ValueError("x"), False),
    ],
    ids=repr,
)
def test_a_retry_helps_where_the_network_or_a_broker_is_away(
    error: BaseException, passes: bool
) -> None:
    """A retry does not help against a wrong setting or a bug."""
    assert module._is_temporary(error) is passes


def test_a_decision_without_its_inputs_keeps_all_else() -> None:
    """A line without inputs cannot be shortened, even if it has previous owners."""
    line = b'{"table":"decision","asked":{"a":1},"before":[2],"config":{"k":"\xc3\xa9"}}'
    assert module._without_inputs(line) == b'{"table":"decision","config":{"k":"\xc3\xa9"}}'
    assert module._without_inputs(b'{"table":"decision","before":[2],"b":3}') is None
    assert module._without_inputs(b'{"asked":""}') == b"{}"


def test_work_of_a_ledger_that_closes_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The skip starts at the end of the close's time; before, rows are written."""
    it = Ledger(monkeypatch)
    appended: list[Any] = []
    it._append = appended.append  # type: ignore[method-assign, assignment]
    it._closes_at = 100.0
    it._write_rows(lambda: [("x", {})])
    assert (appended, it.counts.skipped) == ([], 1)
    monkeypatch.setattr("faust_assigner.app.ledger.writer.encode", lambda table, row: b"line")
    it.now = 99.9
    it._write_rows(lambda: [("x", {})])
    assert (appended, it.counts.skipped) == ([[b"line"]], 1)


def test_a_close_leaves_time_to_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished thread resets the close; an unfinished thread stays closing."""
    it = LedgerTopic("ledger", "w", dict)
    monkeypatch.setattr(module.time, "monotonic", lambda: 100.0)
    seen: list[Any] = []
    monkeypatch.setattr(
        module.LedgerWriter,
        "close",
        lambda self, timeout_s: seen.append((timeout_s, self._closes_at, self._closing.is_set())),
    )
    it.close(5.0)
    it.close(0.5)
    assert seen == [(5.0, 105.0 - 2 * module.STOP_S, True), (0.5, 100.0, True)]
    assert (it._closes_at, it._closing.is_set()) == (math.inf, False)
    it._thread = threading.current_thread()
    it.close(5.0)
    assert (it._closes_at, it._closing.is_set()) == (105.0 - 2 * module.STOP_S, True)


# -- the topic


class Admin:
    """A cluster of ``brokers`` brokers with these topics and settings; ``acts`` records calls."""

    def __init__(self, *topics: str, brokers: int = 2, code: int = 0, **config: Any) -> None:
        self.topics, self.brokers, self.code, self.config = topics, brokers, code, config
        self.acts: list[Any] = []

    async def start(self) -> None:
        """Record the start."""
        self.acts.append("start")

    async def close(self) -> None:
        """Record the close."""
        self.acts.append("close")

    async def list_topics(self) -> list[str]:
        """Return the topics."""
        return list(self.topics)

    async def describe_cluster(self) -> Any:
        """Return the brokers."""
        return {"brokers": [{}] * self.brokers}

    async def create_topics(self, topics: Any) -> Any:
        """Record the created topics."""
        self.acts += [
            (one.name, one.num_partitions, one.replication_factor, one.topic_configs)
            for one in topics
        ]
        return SimpleNamespace(topic_errors=[("ledger", self.code, "not here")])

    async def describe_configs(self, resources: Any) -> Any:
        """Return the settings, including settings that the ledger does not read."""
        entries = [(name.replace("_", "."), value) for name, value in self.config.items()]
        good = (0, None, 2, "ledger", [*entries, ("retention.ms", "5"), ("cleanup.policy", None)])
        bad = (40, "no", 2, "other", [("max.message.bytes", "1")])
        return [SimpleNamespace(resources=[bad, good])]


def prepared(monkeypatch: pytest.MonkeyPatch, admin: Admin, **options: Any) -> int:
    """Let a ledger check its topic; return the maximum batch size."""
    monkeypatch.setattr(topic_setup, "AIOKafkaAdminClient", lambda **connection: admin)
    return asyncio.run(
        LedgerTopic("ledger", "w", dict, **options)._setup.prepare({"client_id": "x"})
    )


def test_a_missing_topic_is_made_with_replicas_on_every_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are at most three replicas; an existing topic is left unchanged."""
    for brokers, replicas in ((1, 1), (3, 3), (5, 3)):
        admin = Admin("other", brokers=brokers)
        found = prepared(monkeypatch, admin, total_bytes=40_000_000, segment_bytes=3_000_000)
        assert found == topic_setup.MESSAGE_BYTES
        config = {
            "cleanup.policy": "delete",
            "retention.ms": "2592000000",
            "retention.bytes": "10000000",
            "segment.bytes": "3000000",
        }
        assert admin.acts == ["start", ("ledger", 4, replicas, config), "close"]
    admin = Admin("ledger", max_message_bytes="777")
    assert prepared(monkeypatch, admin) == 777
    assert admin.acts == ["start", "close"]


@pytest.mark.parametrize("code", [29, 7, 41])
def test_a_topic_that_cannot_be_made_is_an_error_and_one_that_exists_is_none(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The admin client is closed in every case; a timeout is an error too."""
    assert (
        prepared(monkeypatch, Admin(code=TopicAlreadyExistsError.errno))
        == topic_setup.MESSAGE_BYTES
    )
    admin = Admin(code=code)
    with pytest.raises(for_code(code), match="cannot be created: not here"):
        prepared(monkeypatch, admin)
    assert admin.acts[-1] == "close"


@pytest.mark.parametrize(
    ("policy", "is_named"), [("delete", False), ("compact", True), ("compact,delete", True)]
)
def test_a_compacted_topic_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, policy: str, is_named: bool
) -> None:
    """A worker's newer rows would replace its older rows."""

    class Compacted(Admin):
        async def describe_configs(self, resources: Any) -> Any:
            entries = [("cleanup.policy", policy), ("max.message.bytes", None)]
            return [SimpleNamespace(resources=[(0, None, 2, "ledger", entries)])]

    assert prepared(monkeypatch, Compacted("ledger")) == topic_setup.MESSAGE_BYTES
    assert ("Topic ledger of the ledger is compacted" in caplog.text) is is_named


@pytest.mark.parametrize(
    ("total", "segment", "found"),
    [
        (40_000_000, 3_000_000, (10_000_000, 3_000_000)),
        (40_000_000, 30_000_000, (10_000_000, 10_000_000)),
        (1000, 5, (1024 * 1024, 1024 * 1024)),
        (10**12, 10**12, (250_000_000_000, 2**31 - 1)),
    ],
)
def test_segments_fit_into_a_partition_and_into_kafka(
    total: int, segment: int, found: tuple[int, int]
) -> None:
    """All partitions together have the total size."""
    it = LedgerTopic("ledger", "w", dict, total_bytes=total, segment_bytes=segment)
    assert (it._setup._retention_bytes, it._setup._segment_bytes) == found
    assert it.place == "topic ledger"
