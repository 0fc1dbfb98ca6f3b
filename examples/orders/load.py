"""The demo's load and its expected result: a seeded stream of orders and a plain-Python model.

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

#: The most unprocessed orders: the orders of ten seconds. A busy machine gets fewer orders.
MOST_WAITING = 2_400


@dataclass
class Load:
    """Send customers once, then orders at a steady pace until ``stopping``; record all sent orders."""

    bootstrap: str
    customers: int = 6_000
    orders_per_s: int = 240
    seed: int = 1
    rates: dict[str, int] = field(default_factory=dict)
    amounts: dict[str, list[int]] = field(default_factory=dict)
    stopping: bool = False
    #: Number of orders that the workers have processed; None if uncounted: the pace is then fixed.
    processed: int | None = None

    async def create_topics(self) -> None:
        """Create the source topics; auto-creation would use the broker's own partition count."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            answer = await admin.create_topics(
                [NewTopic(name, PARTITIONS, 1) for name in ("customers", "orders")]
            )
            for name, code, *_ in answer.topic_errors:
                if code:  # an old topic has its own partition count and records
                    raise RuntimeError(
                        f"topic {name!r} cannot be created: {for_code(code).__name__}"
                    )
        finally:
            await admin.close()

    async def send_customers(self) -> None:
        """Send a record for each customer."""
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
        """Send orders at ``orders_per_s`` until ``stopping``; wait for every acknowledgement.

        The orders go to the partitions in turn, at even intervals: a longer pause comes from the group.
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
                # Send no burst after a wait for the workers.
                began = max(began, clock() - (sent + 1) / self.orders_per_s)
                await asyncio.sleep(0.02)
            await producer.flush()

    def due(self, elapsed_s: float) -> int:
        """Return the number of orders due after ``elapsed_s`` seconds at full pace."""
        due = int(elapsed_s * self.orders_per_s)
        return due if self.processed is None else min(due, self.processed + MOST_WAITING)

    def _next_order(self, customer: str, rng: random.Random) -> dict[str, bytes]:
        amounts = self.amounts.setdefault(customer, [])
        amounts.append(rng.randint(1, 100))
        order = {"customer": customer, "number": len(amounts) - 1, "amount": amounts[-1]}
        return {"key": customer.encode(), "value": json.dumps(order).encode()}

    @property
    def orders_sent(self) -> int:
        """The number of orders sent to the broker."""
        return sum(map(len, self.amounts.values()))

    def expected_totals(self) -> dict[str, dict[str, int]]:
        """Return the model: each customer's expected row in the table, without the count of repeats."""
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
    """Group the customers by partition, by Kafka's own hash of the key; leave out empty partitions."""
    found: dict[int, list[str]] = {}
    for customer in sorted(customers):
        number = (murmur2(customer.encode()) & 0x7FFFFFFF) % PARTITIONS
        found.setdefault(number, []).append(customer)
    return [found[number] for number in sorted(found)]


@dataclass(frozen=True)
class Verdict:
    """The result of comparing the tables with the model, record by record."""

    records: int
    differing: tuple[str, ...]
    lost_orders: int
    repeated_orders: int

    @property
    def equal(self) -> bool:
        """Whether every record equals the model's."""
        return not self.differing


def compare(
    load: Load, rates: Mapping[str, int], totals: Mapping[str, Mapping[str, int]]
) -> Verdict:
    """Compare the final tables with the model; count ``repeats`` and allow a difference in them."""
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
    """Send customers once, then orders until SIGINT or SIGTERM."""
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
