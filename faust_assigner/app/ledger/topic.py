"""Writes the ledger to a Kafka topic, with a separate producer on the ledger's thread.

The app's producer may be in a transaction, and the app's event loop processes records. So the
ledger uses its own producer and its own event loop. A record is one row: its value is a ledger
line, its key names the worker. All rows of a worker go to one partition, in order. If an
acknowledgement is lost, the row is sent again and may be in the topic twice; readers count equal
rows once.

Lines are written in turns of ``LINES_A_TURN``. A turn is acknowledged before the next turn is
encoded, which limits the memory. If the broker is unreachable for less than ``SEND_S``, no row is
lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.partitioner import DefaultPartitioner
from mode import get_logger

from faust_assigner.app.ledger.pages import Tail
from faust_assigner.app.ledger.topic_setup import TopicSetup
from faust_assigner.app.ledger.writer import MOST_WAITING, LedgerWriter, Work
from faust_assigner.ledger import MAX_LINE_BYTES
from faust_assigner.settings.table import LEDGER_BYTES, LEDGER_FILE_BYTES
from faust_assigner.wire.worker_status import LedgerPage

logger = get_logger(__name__)

T = TypeVar("T")
#: Returns aiokafka's keywords for a connection; called when the first row is sent.
Connection = Callable[[], Mapping[str, object]]

#: Seconds for all attempts to send rows, for one attempt, between two attempts, and without attempts after a
#: failure.
SEND_S, ATTEMPT_S, BETWEEN_S, REST_S = 30.0, 10.0, 1.0, 30.0
#: Seconds that the producer may take to stop.
STOP_S = 0.5
#: The maximum bytes of lines in one request, before compression.
BATCH_BYTES = 512 * 1024
#: Bytes of a record beside its key and value; a batch needs as many again.
RECORD_BYTES = 128


@dataclass(frozen=True)
class _Link:
    """A connected producer, the worker's partition, and the bytes of the topic's largest batch."""

    producer: AIOKafkaProducer
    partition: int
    message_bytes: int


class LedgerTopic(LedgerWriter):
    """Sends rows to ``topic`` under the key ``name``; creates the topic if it is missing.

    A topic created by this class deletes rows that are older than 30 days. It also limits the bytes
    of all its partitions together to ``total_bytes``, in segments of ``segment_bytes``. An existing
    topic is used without changes.
    """

    def __init__(
        self,
        topic: str,
        name: str,
        connection: Connection,
        *,
        segment_bytes: int = LEDGER_FILE_BYTES.default,
        total_bytes: int = LEDGER_BYTES.default,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        super().__init__(most_waiting=most_waiting)
        self.topic = topic
        self._key = name.encode("utf-8", "replace")
        self._connection = connection
        self._setup = TopicSetup(
            topic, segment_bytes=segment_bytes, total_bytes=total_bytes, log_once=self._log_once
        )
        self._tail = Tail()
        self._runner: asyncio.Runner | None = None
        self._link: _Link | None = None
        self._batch_bytes = BATCH_BYTES
        self._not_before = -math.inf
        self._closing = threading.Event()
        self._closes_at = math.inf

    @property
    def place(self) -> str:
        """The ledger's topic, as shown in log lines."""
        return f"topic {self.topic}"

    def page(self, group_id: str, cursor: str = "") -> LedgerPage:
        """Return the newest lines of this process, from memory. ``group_id`` is the app's."""
        return self._tail.page(group_id, cursor)

    def close(self, timeout_s: float = 2.0) -> None:
        """Close; rows not acknowledged shortly before ``timeout_s`` are dropped and counted."""
        self._closes_at = time.monotonic() + max(0.0, timeout_s - 2 * STOP_S)
        self._closing.set()
        super().close(timeout_s)
        if self._thread is None or not self._thread.is_alive():
            self._closing.clear()
            self._closes_at = math.inf

    # -- on the ledger's thread

    def _release(self) -> None:
        self._disconnect()

    def _write_rows(self, work: Work) -> None:
        if time.monotonic() >= self._closes_at:
            self.counts.skipped += 1
            return
        super()._write_rows(work)

    def _append(self, lines: list[bytes]) -> None:
        left = deque(line.rstrip(b"\n") for line in lines)
        self._tail.keep(left)
        began = time.monotonic()
        if began < self._not_before:
            self.counts.dropped += len(left)
            return
        while left:
            try:
                self._send_some(left)
            except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
                self._make_smaller(left, error)
            except (Exception, asyncio.CancelledError) as error:
                self._disconnect()
                now = time.monotonic()
                if not _is_temporary(error) or now >= min(began + SEND_S, self._closes_at):
                    self._give_up(len(left), error)
                    return
                self._closing.wait(BETWEEN_S)

    def _send_some(self, left: deque[bytes]) -> None:
        """Send as many lines as one batch takes; remove them from ``left`` once acknowledged."""
        if self._link is None:
            self._link, self._batch_bytes = self._await(self._connect()), BATCH_BYTES
        link, size, count = self._link, 0, 0
        bound = min(self._batch_bytes, link.message_bytes) - RECORD_BYTES
        batch = link.producer.create_batch()
        for line in left:
            size += len(line) + len(self._key) + RECORD_BYTES
            if count and size > bound:
                break
            if len(line) > MAX_LINE_BYTES:
                if count:
                    break
                raise MessageSizeTooLargeError(
                    f"the line has {len(line)} bytes, the limit is {MAX_LINE_BYTES}"
                )
            if batch.append(timestamp=None, key=self._key, value=line) is None:
                break
            count += 1
        self._await(self._deliver(link, batch))
        self.counts.written += count
        for _ in range(count):
            left.popleft()

    def _make_smaller(self, left: deque[bytes], error: Exception) -> None:
        """Halve the batch. From a single line that is too large, remove the inputs, or drop the line."""
        total = len(left[0]) + len(self._key) + 2 * RECORD_BYTES
        if self._batch_bytes > total:
            self._batch_bytes = max(total, self._batch_bytes // 2)
            return
        line = left.popleft()
        shorter = _without_inputs(line)
        if shorter is None:
            self.counts.dropped += 1
            outcome = "dropped and counted"
        else:
            left.appendleft(shorter)
            outcome = "written without the decision's inputs, so that `why` cannot plan it again"
        self._log_once(
            f"size: {outcome}",
            f"A row of {len(line)} bytes is larger than topic {self.topic} takes ({error}); such rows are "
            f"{outcome}. Raise the topic's max.message.bytes",
        )

    def _give_up(self, rows: int, error: BaseException) -> None:
        self.counts.dropped += rows
        self._not_before = time.monotonic() + REST_S
        self._log_once(
            "topic",
            f"The ledger cannot be written to topic {self.topic} ({type(error).__name__}: {error}); rows are "
            "dropped and counted until it can",
        )

    def _await(self, doing: Coroutine[object, None, T]) -> T:
        """Run ``doing`` on the ledger's event loop; return its result. Raises TimeoutError."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(self._in_time(doing))

    async def _in_time(self, doing: Coroutine[object, None, T]) -> T:
        task = asyncio.ensure_future(doing)
        end = time.monotonic() + ATTEMPT_S
        while not task.done():
            left = min(end, self._closes_at) - time.monotonic()
            if left <= 0:
                task.cancel()
                raise TimeoutError(f"no answer within {ATTEMPT_S:g} s")
            await asyncio.wait({task}, timeout=min(left, 0.1))  # close() may bring the end forward
        return task.result()

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        runner, self._runner = self._runner, None
        if runner is None:
            return
        with contextlib.suppress(Exception, asyncio.CancelledError):
            if link is not None:
                runner.run(_stop_producer(link.producer))
        with contextlib.suppress(Exception, asyncio.CancelledError):
            runner.close()

    # -- on the ledger's event loop

    async def _connect(self) -> _Link:
        connection = {
            **self._connection(),
            "client_id": "faust-assigner-ledger",
            # shorter than ATTEMPT_S, because aiokafka's error is clearer
            "request_timeout_ms": round(ATTEMPT_S * 800),
            "retry_backoff_ms": 500,  # fewer tries, because aiokafka logs each of them
        }
        message_bytes = await self._setup.prepare(connection)
        producer = AIOKafkaProducer(
            **connection,
            acks="all",
            compression_type="gzip",
            max_batch_size=min(BATCH_BYTES, message_bytes),
        )
        try:
            await producer.start()
            partitions = sorted(await producer.partitions_for(self.topic))
        except BaseException:
            await _stop_producer(producer)
            raise
        number = DefaultPartitioner()(self._key, partitions, partitions)
        return _Link(producer, number, message_bytes)

    async def _deliver(self, link: _Link, batch: object) -> None:
        sending = await link.producer.send_batch(batch, self.topic, partition=link.partition)
        # Read the error in a callback: after this attempt's deadline asyncio would report an
        # unread error.
        sending.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({sending})
        sending.result()


async def _stop_producer(producer: AIOKafkaProducer) -> None:
    """Stop the producer, then close its connections, even if a broker does not answer."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(STOP_S):
            await producer.stop()
    with contextlib.suppress(Exception):
        async with asyncio.timeout(STOP_S):
            await producer.client.close()


def _is_temporary(error: BaseException) -> bool:
    """Whether a retry may succeed, for example after a network failure or a broker's restart."""
    if isinstance(error, KafkaError):
        return bool(error.retriable)
    return isinstance(error, OSError | TimeoutError | asyncio.CancelledError)


def _without_inputs(line: bytes) -> bytes | None:
    """Return a decision's line without its inputs, by far the largest part; None for any other line."""
    row = json.loads(line)
    row.pop("before", None)
    if row.pop("asked", None) is None:
        return None
    text = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")
