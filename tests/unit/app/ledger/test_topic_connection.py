"""The ledger's connection to its topic: start, answers and close; no broker."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from faust_assigner.app.ledger import topic as module
from faust_assigner.app.ledger.topic import LedgerTopic


class Producer:
    """A producer of a topic with these partitions; ``acts`` records the calls."""

    made: ClassVar[list[Producer]] = []
    error: BaseException | None = None

    def __init__(self, **fields: Any) -> None:
        self.fields, self.acts = fields, list[Any]()
        self.client = SimpleNamespace(close=self._close)
        Producer.made.append(self)

    async def start(self) -> None:
        """Record the start; raise the error if one is set."""
        self.acts.append("start")
        if Producer.error is not None:
            raise Producer.error

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the topic's partitions."""
        self.acts.append(topic)
        return {7, 2, 5}

    async def stop(self) -> None:
        """Record the stop and fail."""
        self.acts.append("stop")
        raise OSError("no answer")

    async def _close(self) -> None:
        self.acts.append("close")


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> LedgerTopic:
    """A ledger whose topic accepts batches of 700 bytes."""
    made = LedgerTopic("ledger", "w-1", lambda: {"bootstrap_servers": "b:9"})
    Producer.made, Producer.error = [], None
    monkeypatch.setattr(module, "AIOKafkaProducer", Producer)
    prepared: list[Any] = []

    async def prepare(connection: Any) -> int:
        prepared.append(connection)
        return 700

    monkeypatch.setattr(made._setup, "prepare", prepare)
    vars(made)["prepared"] = prepared
    return made


def test_a_connection_has_its_own_limits_and_one_partition(
    ledger: LedgerTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's name selects a partition, and all its rows go to this partition."""
    asked: list[Any] = []
    monkeypatch.setattr(
        module, "DefaultPartitioner", lambda: lambda *given: asked.append(given) or 5
    )
    link = asyncio.run(ledger._connect())
    connection = {
        "bootstrap_servers": "b:9",
        "client_id": "faust-assigner-ledger",
        "request_timeout_ms": round(module.ATTEMPT_S * 800),
        "retry_backoff_ms": 500,
    }
    (producer,) = Producer.made
    assert vars(ledger)["prepared"] == [connection]
    assert producer.fields == connection | {
        "acks": "all",
        "compression_type": "gzip",
        "max_batch_size": 700,
    }
    assert asked == [(b"w-1", [2, 5, 7], [2, 5, 7])]
    assert (link.producer, link.partition, link.message_bytes) == (producer, 5, 700)
    assert producer.acts == ["start", "ledger"]


@pytest.mark.parametrize("error", [OSError("away"), asyncio.CancelledError()], ids=repr)
def test_a_producer_that_does_not_start_is_stopped_and_closed(
    ledger: LedgerTopic, error: BaseException
) -> None:
    """Its stop may fail; the caller gets the first error."""
    Producer.error = error
    with pytest.raises(type(error)):
        asyncio.run(ledger._connect())
    assert Producer.made[0].acts == ["start", "stop", "close"]


def test_a_ledger_lets_go_of_its_producer_once(ledger: LedgerTopic) -> None:
    """The event loop is closed too; the next row connects again."""
    ledger._link = ledger._await(ledger._connect())
    runner = ledger._runner
    assert runner is not None
    ledger._release()
    assert Producer.made[0].acts[2:] == ["stop", "close"]
    assert (ledger._link, ledger._runner) == (None, None)
    ledger._disconnect()
    assert len(Producer.made[0].acts) == 4
    with pytest.raises(RuntimeError):
        runner.get_loop()
    assert ledger._await(asyncio.sleep(0, 5)) == 5
    ledger._disconnect()


async def sent(result: Any) -> str:
    """Return the outcome of a batch with this acknowledgement or error."""
    sending = asyncio.get_running_loop().create_future()
    acts: list[Any] = []

    async def send_batch(batch: Any, topic: str, *, partition: int) -> Any:
        acts.append((batch, topic, partition))
        return sending

    link: Any = SimpleNamespace(producer=SimpleNamespace(send_batch=send_batch), partition=3)
    ledger = LedgerTopic("ledger", "w", dict)
    delivering = asyncio.ensure_future(ledger._deliver(link, "batch"))
    await asyncio.sleep(0)
    assert not delivering.done()
    if isinstance(result, BaseException):
        sending.set_exception(result)
    else:
        sending.set_result(result)
    try:
        await delivering
    except Exception as error:
        return repr(error)
    assert acts == [("batch", "ledger", 3)]
    return "delivered"


async def test_a_batch_is_delivered_once_it_is_acknowledged() -> None:
    """The caller gets the error."""
    assert await sent("metadata") == "delivered"
    assert await sent(OSError("lost")) == "OSError('lost')"


async def test_an_answer_is_waited_for_until_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit is the attempt's or an earlier close's; then the request is cancelled."""
    ledger, now = LedgerTopic("ledger", "w", dict), 100.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    assert await ledger._in_time(asyncio.sleep(0, 7)) == 7
    ended: list[float] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(now)

    for closes_at, after_s in ((float("inf"), module.ATTEMPT_S), (105.0, 5.0)):
        now, ledger._closes_at = 100.0, float("inf")
        waiting = asyncio.ensure_future(ledger._in_time(endless()))
        await asyncio.sleep(0.01)
        now = 100.0 + after_s - 0.1
        ledger._closes_at = closes_at
        await asyncio.sleep(0.15)
        assert not waiting.done()
        now = 100.0 + after_s
        with pytest.raises(TimeoutError, match="no answer within 10 s"):
            await waiting
        await asyncio.sleep(0)
    assert ended == [100.0 + module.ATTEMPT_S, 105.0]
