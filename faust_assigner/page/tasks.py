"""Finds the tasks of a report. No I/O.

A task is one partition number of the topics whose partitions have equal owners.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from faust_assigner.status.member_reports import known_sum
from faust_assigner.status.report import Copy, Partition, Report
from faust_assigner.status.words import leader_topic, table_of

#: The most topics in a family's label; further topics are only counted.
_NAMED = 3


@dataclass(frozen=True, kw_only=True)
class Task:
    """A family's partitions with one number. ``key`` is ``TOPIC/NUMBER`` of the first topic."""

    key: str
    number: int
    owner: str | None
    partitions: tuple[Partition, ...]

    @cached_property
    def lag(self) -> int | None:
        """Records that the owner has not processed; None if unknown."""
        return known_sum([one.lag for one in self.partitions if not one.is_changelog])

    @cached_property
    def stands_still(self) -> bool:
        """Whether any of the task's partitions is not processed."""
        return any(one.standing is not None for one in self.partitions)

    @cached_property
    def is_stateful(self) -> bool:
        """Whether the task has a table."""
        return any(one.is_changelog for one in self.partitions)

    @cached_property
    def copies(self) -> Mapping[str, tuple[Copy, ...]]:
        """The copies of this task's changelogs, by member."""
        found: defaultdict[str, list[Copy]] = defaultdict(list)
        for partition in self.partitions:
            for copy in partition.copies:
                found[copy.member].append(copy)
        return {member: tuple(copies) for member, copies in found.items()}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Topics with equal owners, and their tasks by number."""

    topics: tuple[str, ...]
    label: str
    tasks: tuple[Task, ...]


def families_of(report: Report) -> tuple[Family, ...]:
    """Return the families of a report; families with source topics come first. Cost: O(partitions).

    A report does not contain the co-partitioned groups, so a family consists of the topics with
    equal owners for all numbers. Two groups with equal owners are shown as one family.
    """
    by_topic: defaultdict[str, list[Partition]] = defaultdict(list)
    for partition in report.partitions:
        if partition.topic != leader_topic(report.group):
            by_topic[partition.topic].append(partition)
    together: defaultdict[tuple[tuple[int, str | None], ...], list[str]] = defaultdict(list)
    for topic, partitions in by_topic.items():
        together[tuple((one.partition, one.owner) for one in partitions)].append(topic)
    found = []
    for owners, topics in together.items():
        if report.is_settled and not any(owner for _, owner in owners):
            continue  # no member owns them: the group only has committed offsets
        topics.sort(key=lambda topic: (by_topic[topic][0].is_changelog, topic))
        columns = zip(*(by_topic[topic] for topic in topics), strict=True)
        found.append(
            Family(
                topics=tuple(topics),
                label=_family_label(topics, report.group),
                tasks=tuple(
                    Task(
                        key=f"{topics[0]}/{number}",
                        number=number,
                        owner=owner,
                        partitions=partitions,
                    )
                    for (number, owner), partitions in zip(owners, columns, strict=True)
                ),
            )
        )
    return tuple(sorted(found, key=_family_order))


def task_of(families: tuple[Family, ...], key: str) -> tuple[Family, Task] | None:
    """Return the task with the partition ``key`` (``TOPIC/NUMBER``), and its family."""
    topic, _, number = key.rpartition("/")
    for family in families:
        if topic in family.topics:
            for task in family.tasks:
                if str(task.number) == number:
                    return family, task
    return None


def _family_label(topics: list[str], group: str) -> str:
    names = [f"table {table}" if (table := table_of(t, group)) else t for t in topics]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _family_order(family: Family) -> tuple[bool, str]:
    return family.tasks[0].partitions[0].is_changelog, family.topics[0]
