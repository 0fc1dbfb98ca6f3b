"""A producer asks for the leaders of all topics that it has sent to, with pauses, and for coordinators.

aiokafka's producer knows all topics at first. Its first send to an unknown topic adds that topic to the
list of topics to ask for, and from then on it asks for this list only: the leaders of all other topics are
forgotten. A batch of such a topic that was not sent yet is never sent. The sender asks for metadata without
a pause, and ``flush()`` waits, and with it the commit and the rebalance. Faust's producer gives the batch
up after 20 minutes. A further send to the same topic would repair it, but a changelog need not get one.

Where a partition has no leader, aiokafka's sender asks again as soon as an answer or an error is there: while
the broker restarts, thousands of times a second, with two log lines each. Here a producer pauses between two
questions, as Kafka's own client does.

A transactional producer looks for coordinators again after some errors. After a lost connection, as when the
broker restarts just then, its sender ends for good, and the worker with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any

from aiokafka.errors import NodeNotReadyError
from faust.transport.drivers import aiokafka as driver

from faust_assigner.app.retry import is_silence


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
    client._metadata_update = _WithPauses(client._metadata_update, client._retry_backoff)
    client.coordinator_lookup = partial(_look_up, client.coordinator_lookup)
    return producer


async def _wait_on_metadata(
    client: Any, wait: Callable[[str], Awaitable[set[int]]], topic: str
) -> set[int]:
    """The partitions of ``topic``; aiokafka adds it to the list only where it does not know them."""
    client._topics.add(topic)
    return await wait(topic)


class _WithPauses:
    """``update`` asks the brokers for metadata; it begins ``pause_s`` after it last ended or later."""

    def __init__(self, update: Callable[..., Awaitable[bool]], pause_s: float) -> None:
        self._update, self._pause_s = update, pause_s
        self._earliest = 0.0

    async def __call__(self, *what: Any) -> bool:
        if (wait_s := self._earliest - monotonic()) > 0:
            await asyncio.sleep(wait_s)
        try:
            return await self._update(*what)
        finally:
            self._earliest = monotonic() + self._pause_s


async def _look_up(look_up: Callable[..., Awaitable[int]], *whose: Any) -> int:
    """The coordinator's node; what may pass by itself is an error after which aiokafka asks again."""
    try:
        return await look_up(*whose)
    except Exception as error:
        if is_silence(error):
            raise NodeNotReadyError(str(error)) from error
        raise
