"""The workers' input, and the plain-Python model of the expected result."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer

from tests.support.clients.topics import create_topics

CUSTOMERS_PER_PARTITION = 4
#: Offsets in a window of the workers.
WINDOW = 10


@dataclass
class Load:
    """A seeded stream of orders, evenly over the partitions, sent from a thread and recorded."""

    bootstrap: str
    app_id: str
    partitions: int
    preload: int = 0
    orders_per_s: float = 1.0
    seed: int = 1
    #: The app's topic for the orders.
    topic: str = "orders"
    #: Seconds for which aiokafka tries to deliver a record.
    request_timeout_s: float = 40.0
    #: The errors of undelivered records: after an error the model is invalid.
    failures: list[BaseException] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    #: Partition, customer and first offset of a window -> its number of orders, and the last
    #: number.
    windows: dict[tuple[int, str, int], tuple[int, int]] = field(default_factory=dict)
    #: Partition and first offset of the windows in which the load stopped. During a long pause they
    #: are closed, as time goes on, and once more after it.
    interrupted: set[tuple[int, int]] = field(default_factory=set)
    amounts: dict[str, list[int]] = field(default_factory=dict)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.sent = [0] * self.partitions
        self.rng = random.Random(self.seed)

    def prepare(self, waiting: int) -> None:
        """Create the topics, write customers, changelog rows, and ``waiting`` orders a partition."""
        asyncio.run(self._prepare(waiting))

    async def _prepare(self, waiting: int) -> None:
        await create_topics(
            self.bootstrap,
            {
                f"{self.app_id}-{name}": self.partitions
                for name in ("customers", "orders", "outputs", "closed")
            },
            compacted={
                f"{self.app_id}-{name}-changelog": self.partitions for name in ("rates", "totals")
            },
        )
        async with self._producer() as producer:
            for partition in range(self.partitions):
                for customer in self._customers(partition):
                    await producer.send(
                        f"{self.app_id}-customers", b"3", customer.encode(), partition
                    )
            row = json.dumps(
                {"amount": 1, "numbers": 1, "repeats": 0, "missing": 0, "strangers": 0}
            ).encode()
            for number in range(self.preload):
                await producer.send(
                    f"{self.app_id}-totals-changelog",
                    row,
                    json.dumps(f"bulk-{number}").encode(),
                    number % self.partitions,
                )
            for _ in range(waiting):
                await self._send_round(producer)
            await producer.flush()

    def _producer(self) -> AIOKafkaProducer:
        # Idempotent: a retry that repeats or reorders orders would break the model.
        return AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=int(self.request_timeout_s * 1000),
        )

    def _customers(self, partition: int) -> list[str]:
        return [f"customer-{partition}-{n}" for n in range(CUSTOMERS_PER_PARTITION)]

    async def _send_round(self, producer: AIOKafkaProducer) -> None:
        """Send an order to each partition."""
        for partition in range(self.partitions):
            customer = self.rng.choice(self._customers(partition))
            amounts = self.amounts.setdefault(customer, [])
            amounts.append(self.rng.randint(1, 100))
            order = json.dumps({"number": len(amounts) - 1, "amount": amounts[-1]})
            sending = await producer.send(
                f"{self.app_id}-{self.topic}", order.encode(), customer.encode(), partition
            )
            sending.add_done_callback(self._handed_over)
            window = partition, customer, self.sent[partition] // WINDOW * WINDOW
            self.windows[window] = self.windows.get(window, (0, 0))[0] + 1, len(amounts) - 1
            self.sent[partition] += 1

    def _handed_over(self, sending: asyncio.Future[object]) -> None:
        if not sending.cancelled() and (error := sending.exception()) is not None:
            self.failures.append(error)

    def start(self) -> None:
        """Send ``orders_per_s`` orders to each partition until ``stop()``; then it may start again."""
        self._stopping.clear()
        sending = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(sending)), daemon=True)
        self._thread.start()
        # A broker may be killed in the next moment; only a started producer survives that.
        if not sending.wait(60.0):
            raise RuntimeError("the load cannot reach the broker")

    async def _run(self, sending: threading.Event) -> None:
        async with self._producer() as producer:
            sending.set()
            clock = asyncio.get_running_loop().time
            due = clock()
            while not self._stopping.is_set():
                await self._send_round(producer)
                due += 1 / self.orders_per_s
                await asyncio.sleep(max(0.0, due - clock()))
            await producer.flush()

    def resume(self) -> None:
        """Send again after ``stop()``."""
        self._stopping.clear()
        self.start()

    def stop(self) -> None:
        """Stop sending; return when all orders are acknowledged."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self.interrupted |= {(p, sent // WINDOW * WINDOW) for p, sent in enumerate(self.sent)}


@dataclass(frozen=True)
class Verdict:
    """The processed orders and the tables' rows, compared with the model."""

    orders: int
    lost: int
    repeated: int
    wrong_rows: tuple[str, ...]


def judge(
    load: Load, orders: Iterable[tuple[float, int, int]], totals: Mapping[str, Mapping[str, int]]
) -> Verdict:
    """Check that each offset was processed and that each customer's row equals the model's.

    A row may count repeats; it may not lack a number, nor differ in the sum of amounts.
    """
    times = Counter((partition, offset) for _, partition, offset in orders)
    expected = {(p, offset) for p, count in enumerate(load.sent) for offset in range(count)}
    return Verdict(
        len(expected),
        len(expected - times.keys()),
        times.total() - len(times),
        wrong_rows(load, totals),
    )


def wrong_rows(load: Load, totals: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Return the differences between tables and model, a line for each customer."""
    wrong = []
    for customer, amounts in sorted(load.amounts.items()):
        row = totals.get(customer, {})
        if (row.get("numbers"), row.get("amount"), row.get("missing")) != (
            len(amounts),
            sum(amounts),
            0,
        ):
            wrong.append(
                f"{customer}: {dict(row)}, expected {len(amounts)} orders, amount {sum(amounts)}"
            )
    return tuple(wrong)
