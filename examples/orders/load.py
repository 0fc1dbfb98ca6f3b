"""The load of the demo and what must come of it: a seeded stream of orders and a plain-Python model.

python -m examples.orders.load --bootstrap 127.0.0.1:9092      # customers, then orders until Ctrl-C
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import click
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import for_code
from aiokafka.partitioner import murmur2

from examples.orders import PARTITIONS

#: The most orders that wait for the workers: the orders of ten seconds. A busy machine gets fewer orders.
MOST_WAITING = 2_400


@dataclass
class Load:
    """Sends customers once, then orders at a steady pace until told to stop; remembers what it sent."""

    bootstrap: str
    customers: int = 6_000
    orders_per_s: int = 240
    seed: int = 1
    rates: dict[str, int] = field(default_factory=dict)
    amounts: dict[str, list[int]] = field(default_factory=dict)
    stopping: bool = False
    #: The orders that the workers have processed so far; None: nobody counts them, and the pace is fixed.
    processed: int | None = None

    async def create_topics(self) -> None:
        """Create the source topics; a broker would create them with a partition count of its own."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            answer = await admin.create_topics(
                [NewTopic(name, PARTITIONS, 1) for name in ("customers", "orders")]
            )
            for name, code, *_ in answer.topic_errors:
                if code:  # an old topic would bring its own partitions and records
                    raise RuntimeError(
                        f"topic {name!r} cannot be created: {for_code(code).__name__}"
                    )
        finally:
            await admin.close()

    async def send_customers(self) -> None:
        """One record for each customer."""
        rng = random.Random(self.seed)
        self.rates = {f"customer-{i:04}": rng.randint(1, 9) for i in range(self.customers)}
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all") as producer:
            for customer, rate in self.rates.items():
                await producer.send(
                    "customers",
                    key=customer.encode(),
                    value=json.dumps({"customer": customer, "rate": rate}).encode(),
                )

    async def send_orders(self) -> None:
        """Orders at ``orders_per_s`` until ``stopping``; every one is acknowledged.

        Partitions take turns, so that each gets its orders at even intervals: a longer pause is the group's.
        """
        rng = random.Random(self.seed + 1)
        customers = by_partition(self.rates)
        clock = asyncio.get_running_loop().time
        began, sent = clock(), 0
        async with AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks="all", linger_ms=5
        ) as producer:
            while not self.stopping:
                due = self.due(clock() - began)
                for number in range(sent, due):
                    customer = rng.choice(customers[number % len(customers)])
                    await producer.send("orders", **self._next_order(customer, rng))
                sent = max(due, sent)
                # No burst follows a wait for the workers.
                began = max(began, clock() - (sent + 1) / self.orders_per_s)
                await asyncio.sleep(0.02)
            await producer.flush()

    def due(self, elapsed_s: float) -> int:
        """The number of orders that are to be sent after ``elapsed_s`` seconds at full pace."""
        due = int(elapsed_s * self.orders_per_s)
        return due if self.processed is None else min(due, self.processed + MOST_WAITING)

    def _next_order(self, customer: str, rng: random.Random) -> dict[str, bytes]:
        amounts = self.amounts.setdefault(customer, [])
        amounts.append(rng.randint(1, 100))
        order = {"customer": customer, "number": len(amounts) - 1, "amount": amounts[-1]}
        return {"key": customer.encode(), "value": json.dumps(order).encode()}

    @property
    def orders_sent(self) -> int:
        """How many orders the broker has been given."""
        return sum(map(len, self.amounts.values()))

    def expected_totals(self) -> dict[str, dict[str, int]]:
        """The model: what the table must hold, customer by customer, but for the count of repeats."""
        return {
            customer: {
                "revenue": sum(amounts) * self.rates[customer],
                "next_number": len(amounts),
                "missing": 0,
                "strangers": 0,
            }
            for customer, amounts in self.amounts.items()
        }


def by_partition(customers: Iterable[str]) -> list[list[str]]:
    """The customers of each partition that has any, by Kafka's own hash of the key."""
    found: dict[int, list[str]] = {}
    for customer in sorted(customers):
        number = (murmur2(customer.encode()) & 0x7FFFFFFF) % PARTITIONS
        found.setdefault(number, []).append(customer)
    return [found[number] for number in sorted(found)]


@dataclass(frozen=True)
class Verdict:
    """The tables against the model, record for record."""

    records: int
    differing: tuple[str, ...]
    lost_orders: int
    repeated_orders: int

    @property
    def equal(self) -> bool:
        """Whether every record agrees."""
        return not self.differing


def compare(
    load: Load, rates: Mapping[str, int], totals: Mapping[str, Mapping[str, int]]
) -> Verdict:
    """Hold the final tables against the model; ``repeats`` is allowed to differ and is counted."""
    expected = load.expected_totals()
    differing = [name for name in sorted(load.rates) if rates.get(name) != load.rates[name]]
    lost = repeated = 0
    for name in sorted(expected.keys() | totals.keys()):
        want, got = expected.get(name, {}), dict(totals.get(name, {}))
        repeated += got.pop("repeats", 0)
        got = {key: got.get(key, 0) for key in ("revenue", "next_number", "missing", "strangers")}
        lost += got["missing"] + max(0, want.get("next_number", 0) - got["next_number"])
        if got != want:
            differing.append(name)
    return Verdict(len(load.rates) + len(expected), tuple(differing), lost, repeated)


async def send_until_stopped(load: Load) -> None:
    """Customers once, then orders until SIGINT or SIGTERM."""
    await load.send_customers()
    click.echo(
        f"{len(load.rates)} customers sent; now {load.orders_per_s} orders a second, until Ctrl-C"
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, setattr, load, "stopping", True)
    await load.send_orders()
    click.echo(f"{load.orders_sent} orders sent")


@click.command()
@click.option("--bootstrap", default="127.0.0.1:9092", show_default=True, help="The broker.")
def main(bootstrap: str) -> None:
    """Send customers and orders to a broker that has, or makes, their topics."""
    asyncio.run(send_until_stopped(Load(bootstrap)))


if __name__ == "__main__":
    main()
