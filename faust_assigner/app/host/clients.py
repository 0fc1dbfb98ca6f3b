"""Functions that replace the fetcher and the group coordinator of an AIOKafkaConsumer.

The classes of both objects are fixed in the code of ``AIOKafkaConsumer.start()``. So the objects are
replaced after the start and before the first subscription, while they have no work yet.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from faust.types.tuples import TP

if TYPE_CHECKING:
    from faust.types.transports import ConsumerT

Made = TypeVar("Made")

#: Option of a fetcher or coordinator -> the consumer's attribute that contains the option's value.
#: For all other options, the attribute is the option's name after an underscore.
_ATTRIBUTES = {
    "fetcher_timeout": "_consumer_timeout",
    "assignors": "_partition_assignment_strategy",
}


def faust_tps(tps: Iterable[TP]) -> set[TP]:
    """Convert aiokafka's partitions to Faust's type ``TP``."""
    return {TP(*tp) for tp in tps}


def options_of(consumer: ConsumerT, host: type) -> dict[str, object]:
    """Return the options with which ``consumer`` created its object of aiokafka's class ``host``."""
    attributes = {name: _ATTRIBUTES.get(name, f"_{name}") for name in _option_names(host)}
    return {
        option: getattr(consumer, attribute)
        for option, attribute in attributes.items()
        if hasattr(consumer, attribute)
    }


def _option_names(host: type) -> list[str]:
    parameters = inspect.signature(host).parameters.values()
    return [one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]


async def replace_fetcher(consumer: ConsumerT, make: Callable[..., Made]) -> Made:
    """Replace the fetcher of ``consumer`` by the one that ``make`` returns; return the new fetcher.

    The consumer has been started and has no subscription yet. ``make`` takes the arguments of
    aiokafka's ``Fetcher``.
    """
    await consumer._fetcher.close()
    made = make(consumer._client, consumer._subscription, **options_of(consumer, Fetcher))
    consumer._fetcher = made
    return made


async def replace_coordinator(consumer: ConsumerT, make: Callable[..., Made]) -> Made:
    """Replace the coordinator of ``consumer`` by the one that ``make`` returns, and return it.

    The consumer has been started and has no subscription yet. ``make`` takes the arguments of
    aiokafka's ``GroupCoordinator``. The new coordinator has not joined the group yet.
    """
    former = consumer._coordinator
    await former.close()
    consumer._client.cluster.remove_listener(former._handle_metadata_update)
    options = options_of(consumer, GroupCoordinator)
    made = make(consumer._client, consumer._subscription, **options)
    consumer._coordinator = made
    return made
