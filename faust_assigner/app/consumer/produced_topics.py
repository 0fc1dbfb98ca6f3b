"""A producer that requests the metadata of all its topics, with pauses, and retries coordinator lookups.

At first aiokafka's producer has the metadata of all topics. Its first send to an unknown topic adds that
topic to the list of requested topics. From then on the producer requests these topics only, and no longer
knows the leaders of all other topics. A waiting batch of such a topic is never sent. ``flush()`` waits for
the batch, and so do the commit and the rebalance. Faust's producer drops the batch after 20 minutes. A
further send to the same topic would add the topic to the list again, but a changelog may get no further
record.

If a partition has no leader, aiokafka's sender requests the metadata again right after each answer or error.
During a broker's restart these are thousands of requests a second, with two log lines each. This producer
pauses between two requests, as Kafka's own client does.

aiokafka's transactional producer looks up the coordinator again after some errors only. After a lost
connection, for example during a broker's restart, its sender ends for good, and the worker ends too.

With the setting ``producer_threaded``, Faust's thread sends a copy of each buffered message and sets the
result of the copy only. The message itself never ends, although a commit waits for the end of each table
change. With this module the message gets the result, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from aiokafka.errors import NodeNotReadyError
from faust.transport.drivers import aiokafka as driver

from faust_assigner.app.retry import is_temporary

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.client import AIOKafkaClient
    from faust.types.transports import ProducerT
    from faust.types.tuples import FutureMessage


#: Seconds between two requests for metadata. aiokafka's producer waits as long before it retries a batch.
PAUSE_S = 0.1


def install(producer: ProducerT) -> None:
    """Apply this module's changes to each AIOKafkaProducer that ``producer`` creates from now on."""
    if not isinstance(producer, driver.Producer):
        return
    for creator in (producer, producer.threaded_producer):
        if creator is not None:
            creator._new_producer = partial(_create, creator._new_producer)
    if (threaded := producer.threaded_producer) is not None:
        threaded.publish_message = partial(_publish, threaded.publish_message)


def _create(
    create: Callable[..., AIOKafkaProducer], *args: object, **kwargs: object
) -> AIOKafkaProducer:
    """Create a producer with ``create``, and replace three methods of its client."""
    producer = create(*args, **kwargs)
    client = producer.client
    client._wait_on_metadata = partial(_wait_on_metadata, client, client._wait_on_metadata)
    client._metadata_update = _WithPauses(client._metadata_update, PAUSE_S)
    client.coordinator_lookup = partial(_look_up, client.coordinator_lookup)
    return producer


async def _wait_on_metadata(
    client: AIOKafkaClient, wait: Callable[[str], Awaitable[set[int]]], topic: str
) -> set[int]:
    """Return the partitions of ``topic`` after it was added to the client's requested topics.

    aiokafka adds a topic only if its metadata is missing.
    """
    client._topics.add(topic)
    return await wait(topic)


class _WithPauses:
    """A client's metadata ``update`` with a pause of at least ``pause_s`` seconds between two calls."""

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
    """Return the coordinator's node id.

    Raises NodeNotReadyError for a temporary error; aiokafka then retries the lookup.
    """
    try:
        return await look_up(*whose)
    except Exception as error:
        if is_temporary(error):
            raise NodeNotReadyError(str(error)) from error
        raise


async def _publish(
    publish: Callable[[FutureMessage], Awaitable[asyncio.Future[object]]], message: FutureMessage
) -> asyncio.Future[object]:
    """Send ``message`` in the producer's thread; set its result in its own loop after the delivery."""
    call = message.get_loop().call_soon_threadsafe
    try:
        sent = await publish(message)
    except Exception as error:
        call(_end, message, error)
        raise
    sent.add_done_callback(lambda sent: call(_end, message, sent))
    return sent


def _end(message: FutureMessage, outcome: asyncio.Future[Any] | Exception) -> None:
    """Give ``message`` the result or the error of its ended send; ``outcome`` may be the error itself."""
    if message.done():
        return
    if isinstance(outcome, Exception):
        message.set_exception(outcome)
    elif outcome.cancelled():
        message.cancel()
    elif (error := outcome.exception()) is not None:
        message.set_exception(error)
    else:
        message.set_result(outcome.result())
