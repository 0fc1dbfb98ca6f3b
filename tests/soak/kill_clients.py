"""A common interface for three client libraries, used against a broker with kills.

Each call returns after the broker's acknowledgement, and otherwise raises :class:`Unknown`: the
effect may be in the log or not. After :class:`Unknown` the caller makes a new client with the same
name. A new transactional producer fences the previous producer with its id and aborts its open
transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar

import confluent_kafka as confluent
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.errors import KafkaError as PythonError
from kafka.structs import OffsetAndMetadata

T = TypeVar("T")
#: The seconds for an acknowledgement; they cover a kill and a start on a busy machine.
CALL_S = 30.0
#: The extra seconds after which a call that ignores its own deadline is abandoned.
SLACK_S = 5.0
Record = tuple[str, bytes | None, bytes]  # topic, key, value; every topic has a single partition


class Unknown(Exception):
    """The broker did not acknowledge a call in time: its outcome is unknown."""


class Client(Protocol):
    """An idempotent producer, a transactional producer, and a group's committer."""

    def send(self, records: Sequence[Record]) -> Sequence[int]:
        """Write records; return their offsets."""

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Commit the offset of a group without members."""

    def transact(
        self, records: Sequence[Record], group: str, topic: str, offset: int, *, commits: bool
    ) -> None:
        """Write records and the group's offset in a transaction, then commit or abort."""

    def close(self) -> None:
        """Close without waiting."""


class Librdkafka:
    """A client of confluent-kafka; each call runs in its own thread.

    Its deadlines do not hold. After a lost connection ``send_offsets_to_transaction`` may wait
    without a request to the broker, for as long as the broker keeps the transaction.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 50,
            "message.timeout.ms": int(CALL_S * 1000),
            "log_level": 0,
        }
        self._plain = confluent.Producer({**common, "enable.idempotence": True})
        self._bound = confluent.Producer({**common, "transactional.id": name})
        self._committer: Callable[[str], Any] = lambda group: confluent.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        self._groups: dict[str, Any] = {}
        self._call(lambda: self._bound.init_transactions(CALL_S))

    def _call(self, work: Callable[[], T]) -> T:
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=run, name="librdkafka", daemon=True).start()
        try:
            return answer.result(CALL_S + SLACK_S)
        except TimeoutError as error:
            raise Unknown("the call of librdkafka did not return in time") from error
        except confluent.KafkaException as error:
            raise Unknown(str(error)) from error

    def _write(self, producer: Any, records: Sequence[Record]) -> Sequence[int]:
        offsets: list[int | None] = [None] * len(records)

        def taken(index: int) -> Callable[[Any, Any], None]:
            def take(error: Any, message: Any) -> None:
                if error is None:
                    offsets[index] = message.offset()

            return take

        def write() -> None:
            for index, (topic, key, value) in enumerate(records):
                producer.produce(topic, value, key, partition=0, on_delivery=taken(index))
            producer.flush(CALL_S)

        self._call(write)
        found = [offset for offset in offsets if offset is not None]
        if len(found) != len(records):
            raise Unknown(f"{len(records) - len(found)} records were not delivered")
        return found

    def send(self, records: Sequence[Record]) -> Sequence[int]:
        """See :class:`Client`."""
        return self._write(self._plain, records)

    def commit(self, group: str, topic: str, offset: int) -> None:
        """See :class:`Client`."""
        committer = self._groups.setdefault(group, self._committer(group))
        place = confluent.TopicPartition(topic, 0, offset)
        (done,) = self._call(lambda: committer.commit(offsets=[place], asynchronous=False))
        if done.error is not None:
            raise Unknown(str(done.error))

    def transact(
        self, records: Sequence[Record], group: str, topic: str, offset: int, *, commits: bool
    ) -> None:
        """See :class:`Client`."""
        committer = self._groups.setdefault(group, self._committer(group))
        place = confluent.TopicPartition(topic, 0, offset)
        made = self._bound
        self._call(made.begin_transaction)
        self._write(made, records)
        self._call(
            lambda: made.send_offsets_to_transaction(
                [place], committer.consumer_group_metadata(), CALL_S
            )
        )
        self._call(lambda: (made.commit_transaction if commits else made.abort_transaction)(CALL_S))

    def close(self) -> None:
        """See :class:`Client`; librdkafka ends its threads with its objects."""
        for committer in self._groups.values():
            with contextlib.suppress(Unknown):
                self._call(committer.close)
        self._plain.purge()
        self._bound.purge()


class Aio:
    """A client of aiokafka, on a loop in its own thread."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._bootstrap = bootstrap
        self._groups: dict[str, AIOKafkaConsumer] = {}
        try:
            self._plain, self._bound = self._call(self._start(name))
        except Unknown:
            self._end()
            raise

    async def _start(self, name: str) -> tuple[AIOKafkaProducer, AIOKafkaProducer]:
        common = {"bootstrap_servers": self._bootstrap, "retry_backoff_ms": 50}
        plain = AIOKafkaProducer(**common, enable_idempotence=True)
        bound = AIOKafkaProducer(**common, transactional_id=name)
        try:
            await plain.start()
            await bound.start()
        except BaseException:
            for producer in (plain, bound):
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(producer.stop(), 1)
            raise
        return plain, bound

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, CALL_S), self._loop)
        try:
            return future.result()
        except (AioError, TimeoutError, OSError, CancelledError) as error:
            raise Unknown(repr(error)) from error

    async def _write(self, producer: AIOKafkaProducer, records: Sequence[Record]) -> list[int]:
        sent = [
            await producer.send(topic, value, key=key, partition=0) for topic, key, value in records
        ]
        return [found.offset for found in await asyncio.gather(*sent)]

    def send(self, records: Sequence[Record]) -> Sequence[int]:
        """See :class:`Client`."""
        return self._call(self._write(self._plain, records))

    async def _committer(self, group: str) -> AIOKafkaConsumer:
        if group not in self._groups:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                group_id=group,
                enable_auto_commit=False,
                retry_backoff_ms=50,
            )
            await consumer.start()
            self._groups[group] = consumer
        return self._groups[group]

    def commit(self, group: str, topic: str, offset: int) -> None:
        """See :class:`Client`."""

        async def work() -> None:
            consumer = await self._committer(group)
            place = AioPartition(topic, 0)
            consumer.assign([place])
            await consumer.commit({place: offset})

        self._call(work())

    def transact(
        self, records: Sequence[Record], group: str, topic: str, offset: int, *, commits: bool
    ) -> None:
        """See :class:`Client`."""

        async def work() -> None:
            made = self._bound
            await made.begin_transaction()
            await self._write(made, records)
            await made.send_offsets_to_transaction({AioPartition(topic, 0): offset}, group)
            await (made.commit_transaction() if commits else made.abort_transaction())

        self._call(work())

    def close(self) -> None:
        """See :class:`Client`."""

        async def stop() -> None:
            for one in (*self._groups.values(), self._plain, self._bound):
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(one.stop(), 2)

        with contextlib.suppress(Unknown):
            self._call(stop())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


class Python:
    """A client of kafka-python."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._common = {
            "bootstrap_servers": bootstrap,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 100,
            "retry_backoff_ms": 50,
        }
        timeouts = {"max_block_ms": int(CALL_S * 1000), "delivery_timeout_ms": int(CALL_S * 1000)}
        self._groups: dict[str, KafkaConsumer] = {}
        self._producers: list[KafkaProducer] = []
        try:
            self._plain = self._call(lambda: self._producer(**timeouts))
            self._bound = self._call(lambda: self._producer(**timeouts, transactional_id=name))
            self._call(self._bound.init_transactions)
        except Unknown:
            self.close()
            raise

    def _producer(self, **settings: Any) -> KafkaProducer:
        self._producers.append(KafkaProducer(**self._common, **settings))
        return self._producers[-1]

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (PythonError, OSError, AssertionError) as error:
            raise Unknown(repr(error)) from error

    def _write(self, producer: KafkaProducer, records: Sequence[Record]) -> list[int]:
        def work() -> list[int]:
            sent = [producer.send(t, value, key=key, partition=0) for t, key, value in records]
            return [future.get(timeout=CALL_S).offset for future in sent]

        return self._call(work)

    def send(self, records: Sequence[Record]) -> Sequence[int]:
        """See :class:`Client`."""
        return self._write(self._plain, records)

    def commit(self, group: str, topic: str, offset: int) -> None:
        """See :class:`Client`."""

        def work() -> None:
            if group not in self._groups:
                self._groups[group] = KafkaConsumer(
                    **self._common, group_id=group, enable_auto_commit=False
                )
            place = PythonPartition(topic, 0)
            self._groups[group].assign([place])
            self._groups[group].commit(
                {place: OffsetAndMetadata(offset, "", -1)}, timeout_ms=int(CALL_S * 1000)
            )

        self._call(work)

    def transact(
        self, records: Sequence[Record], group: str, topic: str, offset: int, *, commits: bool
    ) -> None:
        """See :class:`Client`."""
        made = self._bound
        self._call(made.begin_transaction)
        self._write(made, records)
        place = {PythonPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._call(lambda: made.send_offsets_to_transaction(place, group))
        self._call(made.commit_transaction if commits else made.abort_transaction)

    def close(self) -> None:
        """See :class:`Client`."""
        for one in self._groups.values():
            with contextlib.suppress(Exception):
                one.close(autocommit=False)
        for one in self._producers:
            with contextlib.suppress(Exception):
                one.close(timeout=0.5)


LIBRARIES: dict[str, Callable[[str, str], Client]] = {
    "confluent-kafka": Librdkafka,
    "aiokafka": Aio,
    "kafka-python": Python,
}
