"""The subscription: its checks, and its change while the worker runs.

The checks find patterns, and changelogs whose partition count differs from their source's.

A worker with such a topic ends with an error that names the topic. Stock Faust does not subscribe to a topic
that is given as a pattern, and does not log this. If a changelog and its source have different numbers of
partitions, stock Faust ends the agent of the first worker that writes to the table. The other workers
continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from faust.exceptions import ImproperlyConfigured, PartitionsMismatch

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from faust.types.agents import AgentT
    from faust.types.app import AppT
    from faust.types.tables import CollectionT


def sources_of(app: AppT) -> list[str]:
    """Return the names of the app's consumed topics without changelogs, ascending."""
    return sorted(
        {name for topic in app.topics for name in topic.topics} - app.tables.changelog_topics
    )


def refuse_patterns(agents: Iterable[tuple[str, AgentT[object]]]) -> None:
    """Raise ImproperlyConfigured if an agent consumes a pattern; the error names the agent."""
    for name, agent in sorted(agents, key=lambda item: item[0]):
        pattern = getattr(agent.channel, "pattern", None)
        if pattern:
            raise ImproperlyConfigured(
                f"Agent {name}: its topic is the pattern {pattern.pattern!r}, and Faust's Kafka driver "
                "subscribes to names only; list the topics instead"
            )


def mismatches(app: AppT, tables: Iterable[CollectionT]) -> Iterator[str]:
    """Yield a description of each table whose changelog has as many partitions as no consumed topic.

    Skip topics whose partition count the consumer does not know yet, global tables, and tables with
    ``use_partitioner``.
    """
    sources = {
        name: count for name in sources_of(app) if (count := app.consumer.topic_partitions(name))
    }
    for table in sorted(tables, key=lambda table: str(table.name)):
        changelog = table.changelog_topic.get_topic_name()
        count = app.consumer.topic_partitions(changelog)
        if table.is_global or table.use_partitioner or not count or not sources:
            continue
        if count not in sources.values():
            told = ", ".join(f"{name}: {n}" for name, n in sources.items())
            yield (
                f"Table {table.name}: its changelog {changelog} has {count} partitions, and no topic the "
                f"app consumes has as many ({told}); a table has the partitions of its source"
            )


def verify(app: AppT, verify: Callable[[str], object], source_topic: str) -> None:
    """Run stock Faust's check of a table at a write; a mismatch ends the app, not only the agent.

    ``source_topic`` is the topic of the record that caused the write.
    """
    try:
        verify(source_topic)
    except PartitionsMismatch as error:
        app.loop.create_task(app.crash(error))
        raise


async def change_topics(client: AIOKafkaConsumer, topics: Collection[str]) -> bool:
    """Subscribe to ``topics`` in the next round; return False if the client must subscribe anew.

    aiokafka's ``subscribe()`` takes the assignment away at once. Until the next assignment no record can be
    committed, and Faust neither waits for its streams nor commits. With this function the partitions stay
    assigned until the round, as in Kafka's own client. Runs on the consumer's thread.
    """
    coordinator = client._coordinator
    member = getattr(coordinator, "membership", None)
    if member is None:
        return False
    if member.round is not None:
        await asyncio.wait({member.round})  # the round has begun with the former topics
    if member.own() is None or member.gave_up or member.lost:
        return False
    member.subscription.subscription._topics = frozenset(topics)
    client._client.set_topics(topics)
    coordinator.request_rejoin()
    return True
