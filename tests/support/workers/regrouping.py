"""The worker of ``app.py`` with a third table behind a ``group_by``, and a topic that nobody creates.

A producer knows the topics that exist when it starts. This one sends to a changelog of those, and soon
after it to a topic that the broker creates then.
"""

from __future__ import annotations

import faust

from tests.support.workers.app import APP_ID, PARTITIONS, Order, app, orders_topic, rates

enriched_topic = app.topic(f"{APP_ID}-enriched", key_type=str, partitions=PARTITIONS)
spent = app.Table("spent", key_type=str, value_type=int, default=int, partitions=PARTITIONS)


@app.agent(orders_topic)
async def add_by_amount(orders: faust.StreamT[Order]) -> None:
    """Add each order to the sum of its amount, on the worker that owns that amount."""
    async for order in orders.group_by(amount_of, name="amount"):
        amount = amount_of(order)
        spent[amount] += order.amount
        await enriched_topic.send(key=amount, value={"spent": spent[amount], "rates": len(rates)})


def amount_of(order: Order) -> str:
    """The key that orders are grouped by."""
    return str(order.amount)


if __name__ == "__main__":
    app.main()
