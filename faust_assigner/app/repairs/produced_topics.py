"""A producer asks for the partition leaders of every topic that it has sent to.

aiokafka's producer knows all topics at first. Its first send to an unknown topic adds that topic to the
list of topics to ask for, and from then on it asks for this list only: the leaders of all other topics are
forgotten. A batch of such a topic that was not sent yet is never sent. The sender asks for metadata without
a pause, and ``flush()`` waits, and with it the commit and the rebalance. Faust's producer gives the batch
up after 20 minutes. A further send to the same topic would repair it, but a changelog need not get one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from faust.transport.drivers import aiokafka as driver


def install(producer: Any) -> None:
    """Have each AIOKafkaProducer that ``producer``, Faust's, creates from here on ask for all its topics."""
    if not isinstance(producer, driver.Producer):
        return
    for creator in (producer, producer.threaded_producer):
        if creator is not None:
            creator._new_producer = partial(_create, creator._new_producer)


def _create(create: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A producer as Faust creates it."""
    producer = create(*args, **kwargs)
    client = producer.client
    client._wait_on_metadata = partial(_wait_on_metadata, client, client._wait_on_metadata)
    return producer


async def _wait_on_metadata(
    client: Any, wait: Callable[[str], Awaitable[set[int]]], topic: str
) -> set[int]:
    """The partitions of ``topic``; aiokafka adds it to the list only where it does not know them."""
    client._topics.add(topic)
    return await wait(topic)
