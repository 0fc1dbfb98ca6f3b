"""The worker of ``app.py`` with a third table behind a ``group_by``, and a topic created on demand.

A producer knows the topics that exist at its start. This worker sends to such a changelog, and soon
afterwards to a topic that the broker creates then.
"""

from __future__ import annotations

import faust

from tests.support.workers.app import APP_ID, PARTITIONS, Order, app, orders_topic, rates

enriched_topic = app.topic(f"{APP_ID}-enriched", key_type=str, partitions=PARTITIONS)
spent = app.Table("spent", key_type=str, value_type=int, default=int, partitions=PARTITIONS)


@app.agent(orders_topic)
async def add_by_amount(orders: faust.StreamT[Order]) -> None:
    """Add each order to the sum of its amount, on the owner of that amount."""
    async for order in orders.group_by(amount_of, name="amount"):
        amount = amount_of(order)
        spent[amount] += order.amount
        await enriched_topic.send(key=amount, value={"spent": spent[amount], "rates": len(rates)})


def amount_of(order: Order) -> str:
    """The key of the ``group_by``."""
    return str(order.amount)


if __name__ == "__main__":
    app.main()
