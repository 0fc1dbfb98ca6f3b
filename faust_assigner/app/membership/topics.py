"""Checks of topics: each worker reports unusable topics as a clear error at its start.

Stock Faust does not subscribe to a topic that is given as a pattern, and does not log this. A changelog and
its source may have different numbers of partitions. Then the first worker that writes to the table loses its
agent, and other workers continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from faust.exceptions import ImproperlyConfigured, PartitionsMismatch

if TYPE_CHECKING:
    from faust_assigner.app.host.bases import TablesBase as TableManager
else:
    TableManager = object


class ChecksTopics(TableManager):
    """A part of the table manager: check patterns before the start, and partition counts until all are known.

    The counts are checked at each assignment, and later by the watchdog if a topic is still unknown. If a
    topic gets more partitions later, the check at a write finds the mismatch.
    """

    _topics_checked: bool = False

    def add(self, table: Any) -> Any:
        """Manage ``table``; a mismatch at a write ends the worker, not only the agent."""
        table._verify_source_topic_partitions = partial(
            _verify, self.app, table._verify_source_topic_partitions
        )
        return super().add(table)

    async def on_start(self) -> None:
        """Raise ImproperlyConfigured for an agent whose topic is a pattern."""
        refuse_patterns(self.app.agents.items())
        await super().on_start()

    async def on_rebalance(
        self,
        assigned: set[Any],
        revoked: set[Any],
        newly_assigned: set[Any],
        generation_id: int = 0,
    ) -> None:
        """Raise PartitionsMismatch, which ends the app, for a table whose partition count fits no source."""
        if assigned and (problem := self.topic_problem()):
            raise PartitionsMismatch(problem)
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    def topic_problem(self) -> str | None:
        """A description of the first mismatch, or None; always None after a complete check without any."""
        if self._topics_checked:
            return None
        problem = next(mismatches(self.app, self.values()), None)
        names = {*sources_of(self.app), *self.app.tables.changelog_topics}
        self._topics_checked = problem is None and all(
            map(self.app.consumer.topic_partitions, names)
        )
        return problem


def sources_of(app: Any) -> list[str]:
    """The names of the app's consumed topics without changelogs, ascending."""
    return sorted(
        {name for topic in app.topics for name in topic.topics} - app.tables.changelog_topics
    )


def refuse_patterns(agents: Iterable[tuple[str, Any]]) -> None:
    """Raise ImproperlyConfigured with the name of the first agent, by name, that consumes a pattern."""
    for name, agent in sorted(agents, key=lambda item: item[0]):
        pattern = getattr(agent.channel, "pattern", None)
        if pattern:
            raise ImproperlyConfigured(
                f"Agent {name}: its topic is the pattern {pattern.pattern!r}, and Faust's Kafka driver "
                "subscribes to names only; list the topics instead"
            )


def mismatches(app: Any, tables: Iterable[Any]) -> Iterator[str]:
    """Describe each table whose changelog's partition count differs from all consumed topics.

    Counts that the consumer does not know yet are not a mismatch.
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


def _verify(app: Any, verify: Any, source_topic: str) -> None:
    """Run stock's check at the first write after a record of ``source_topic``; a mismatch ends the app."""
    try:
        verify(source_topic)
    except PartitionsMismatch as error:
        app.loop.create_task(app.crash(error))
        raise
