"""Topics that cannot work are one clear error at the start, in every worker.

Stock subscribes to nothing for a topic given as a pattern and says nothing. Where a changelog and its source
differ in partitions, the worker that first writes to the table loses its agent, and the others go on.
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
    """Of the table manager: looks at patterns before it starts, at partitions until all counts are known.

    At each assignment, and where a worker has not been told of a topic by then, with the watchdog. A topic
    that grows later is left to the check at a write.
    """

    _topics_checked: bool = False

    def add(self, table: Any) -> Any:
        """Manage ``table``; a mismatch that shows only at a write ends the worker, not just the agent."""
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
        """Raise PartitionsMismatch for a table that no source can write to; the app ends with it."""
        if assigned and (problem := self.topic_problem()):
            raise PartitionsMismatch(problem)
        await super().on_rebalance(assigned, revoked, newly_assigned, generation_id)

    def topic_problem(self) -> str | None:
        """The first mismatch, in words; None when there is none, and always None once all was found well."""
        if self._topics_checked:
            return None
        problem = next(mismatches(self.app, self.values()), None)
        names = {*sources_of(self.app), *self.app.tables.changelog_topics}
        self._topics_checked = problem is None and all(
            map(self.app.consumer.topic_partitions, names)
        )
        return problem


def sources_of(app: Any) -> list[str]:
    """Names of topics the app consumes that are no changelogs, ascending."""
    return sorted(
        {name for topic in app.topics for name in topic.topics} - app.tables.changelog_topics
    )


def refuse_patterns(agents: Iterable[tuple[str, Any]]) -> None:
    """Raise ImproperlyConfigured naming the first agent, by name, that consumes a pattern."""
    for name, agent in sorted(agents, key=lambda item: item[0]):
        pattern = getattr(agent.channel, "pattern", None)
        if pattern:
            raise ImproperlyConfigured(
                f"Agent {name}: its topic is the pattern {pattern.pattern!r}, and Faust's Kafka driver "
                "subscribes to names only; list the topics instead"
            )


def mismatches(app: Any, tables: Iterable[Any]) -> Iterator[str]:
    """Each table whose changelog's partitions are those of no topic the app consumes, in words.

    Counts that the consumer does not know yet are no mismatch.
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
    """Stock's own check, made at the first write after a record of ``source_topic``."""
    try:
        verify(source_topic)
    except PartitionsMismatch as error:
        app.loop.create_task(app.crash(error))
        raise
