"""A producer that requests the metadata of all its topics, with pauses, and retries coordinator lookups.

aiokafka's producer knows all topics at first. Its first send to an unknown topic adds that topic to the
list of requested topics. From then on the producer requests these topics only, and forgets the leaders of all
other topics. A waiting batch of a forgotten topic is never sent. The sender requests metadata without a
pause; ``flush()`` waits, and so do the commit and the rebalance. Faust's producer drops the batch after 20
minutes. A further send to the same topic would repair the list, but a changelog may not get any.

If a partition has no leader, aiokafka's sender asks again right after each answer or error. While the broker
restarts, the sender asks thousands of times a second, with two log lines each. Here a producer pauses between
two requests, as Kafka's own client does.

aiokafka's transactional producer looks up the coordinator again after some errors only. After a lost
connection, for example during a broker's restart, its sender ends for good, and the worker ends too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from aiokafka.errors import NodeNotReadyError
from faust.transport.drivers import aiokafka as driver

from faust_assigner.app.retry import is_silence

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.client import AIOKafkaClient
    from faust.types.transports import ProducerT


#: Seconds between two requests for metadata, as aiokafka's producer pauses between two tries of a batch.
PAUSE_S = 0.1


def install(producer: ProducerT) -> None:
    """Have each AIOKafkaProducer that Faust's ``producer`` creates from now on request all its topics."""
    if not isinstance(producer, driver.Producer):
        return
    for creator in (producer, producer.threaded_producer):
        if creator is not None:
            creator._new_producer = partial(_create, creator._new_producer)


def _create(
    create: Callable[..., AIOKafkaProducer], *args: object, **kwargs: object
) -> AIOKafkaProducer:
    """Create a producer as Faust does, and change its client."""
    producer = create(*args, **kwargs)
    client = producer.client
    client._wait_on_metadata = partial(_wait_on_metadata, client, client._wait_on_metadata)
    client._metadata_update = _WithPauses(client._metadata_update, PAUSE_S)
    client.coordinator_lookup = partial(_look_up, client.coordinator_lookup)
    return producer


async def _wait_on_metadata(
    client: AIOKafkaClient, wait: Callable[[str], Awaitable[set[int]]], topic: str
) -> set[int]:
    """The partitions of ``topic``, added to the requested topics; aiokafka adds unknown topics only."""
    client._topics.add(topic)
    return await wait(topic)


class _WithPauses:
    """A metadata ``update`` that begins at least ``pause_s`` seconds after its last end."""

    def __init__(self, update: Callable[..., Awaitable[bool]], pause_s: float) -> None:
        self._update, self._pause_s = update, pause_s
        self._earliest = 0.0

    async def __call__(self, *what: object) -> bool:
        if (wait_s := self._earliest - monotonic()) > 0:
            await asyncio.sleep(wait_s)
        try:
            return await self._update(*what)
        finally:
            self._earliest = monotonic() + self._pause_s


async def _look_up(look_up: Callable[..., Awaitable[int]], *whose: object) -> int:
    """The coordinator's node; a temporary error becomes NodeNotReadyError, after which aiokafka retries."""
    try:
        return await look_up(*whose)
    except Exception as error:
        if is_silence(error):
            raise NodeNotReadyError(str(error)) from error
        raise
