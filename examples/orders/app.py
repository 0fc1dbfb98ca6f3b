"""The app: orders joined with customers, a total for each customer.

Run one worker against any broker that holds the topics ``customers`` and ``orders`` (12 partitions):

    ORDERS_BROKER=127.0.0.1:9092 faust -A examples.orders.app worker -l info --without-web

Every order carries its customer's sequence number. The table therefore distinguishes a repeat (an old
number, excluded from the total) from a loss (a missing number).
"""

from __future__ import annotations

import os

import faust

from examples.orders import PARTITIONS

app = faust.App(
    os.environ.get("ORDERS_APP_ID", "shop"),
    broker="kafka://" + os.environ.get("ORDERS_BROKER", "127.0.0.1:9092"),
    PartitionAssignor=os.environ.get("ORDERS_ASSIGNOR", "faust_assigner:PartitionAssignor"),
    # A static member that restarts within its session timeout causes no rebalance and no moves.
    consumer_group_instance_id=os.environ.get("ORDERS_INSTANCE"),
    datadir=os.environ.get("ORDERS_DATA", "shop-data"),
    store="rocksdb://",
    processing_guarantee=os.environ.get("ORDERS_GUARANTEE", "at_least_once"),
    topic_partitions=PARTITIONS,
    table_standby_replicas=1,
    broker_session_timeout=float(os.environ.get("ORDERS_SESSION_TIMEOUT_S", "60")),
    broker_heartbeat_interval=1.0,
    broker_commit_interval=1.0,
    consumer_auto_offset_reset="earliest",
)


class Customer(faust.Record, serializer="json"):
    """A record of the topic ``customers``: the price factor in the customer's contract."""

    customer: str
    rate: int


class Order(faust.Record, serializer="json"):
    """An order; ``number`` counts the customer's orders from 0 without gaps."""

    customer: str
    number: int
    amount: int


class Totals(faust.Record, serializer="json"):
    """A customer's aggregate; ``repeats`` and ``missing`` count duplicate and lost orders."""

    revenue: int = 0
    next_number: int = 0
    repeats: int = 0
    missing: int = 0
    strangers: int = 0


customers_topic = app.topic("customers", key_type=str, value_type=Customer)
orders_topic = app.topic("orders", key_type=str, value_type=Order)
rates = app.Table("rates", key_type=str, value_type=int, partitions=PARTITIONS)
totals = app.Table("totals", key_type=str, value_type=Totals, partitions=PARTITIONS)


@app.agent(customers_topic)
async def remember_customer(customers: faust.StreamT[Customer]) -> None:
    """Keep each customer's rate."""
    async for customer in customers:
        rates[customer.customer] = customer.rate


@app.agent(orders_topic)
async def add_order(orders: faust.StreamT[Order]) -> None:
    """Join the order with its customer and add it to the customer's total."""
    async for order in orders:
        totals[order.customer] = joined(
            totals.get(order.customer) or Totals(), order, rates.get(order.customer)
        )


def joined(before: Totals, order: Order, rate: int | None) -> Totals:
    """Return the customer's totals after this order; a repeated order increases only ``repeats``."""
    if order.number < before.next_number:
        return before.derive(repeats=before.repeats + 1)
    return before.derive(
        revenue=before.revenue + order.amount * (rate or 0),
        next_number=order.number + 1,
        missing=before.missing + order.number - before.next_number,
        strangers=before.strangers + (rate is None),
    )


if __name__ == "__main__":
    app.main()
