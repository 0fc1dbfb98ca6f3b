"""Checks the tables, topics and disks of a running group. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from faust_assigner.doctor.codes import Finding, finding
from faust_assigner.doctor.facts import GroupFacts
from faust_assigner.doctor.topics import TopicFacts, check_changelog, check_partitions
from faust_assigner.status.build import changelogs_of
from faust_assigner.status.members import View
from faust_assigner.status.words import list_names, size
from faust_assigner.wire.worker_status import CORRUPT_FOLDERS, TableStatus


def check_tables(facts: GroupFacts, views: Sequence[View]) -> Iterator[Finding]:
    """Yield the findings about tables, topics and disks."""
    changelogs = changelogs_of(facts.evidence, views)
    sources = {
        name: topic.partitions
        for name, topic in facts.topics.items()
        if name not in changelogs and not name.endswith("-__assignor-__leader")
    }
    tables = _tables_by_changelog(views)
    yield from _check_memory_tables(views, tables)
    yield from _changelogs(facts.topics, changelogs, tables, sources)
    yield from _check_idle_members(len(views), tasks=sum(set(sources.values())))
    yield from _check_disks(views)
    yield from _check_corrupt_folders(views)


def _tables_by_changelog(views: Sequence[View]) -> dict[str, TableStatus]:
    """Return the table of each changelog, as the first member with this table reports it."""
    found: dict[str, TableStatus] = {}
    for view in views:
        for table in view.tables:
            found.setdefault(table.changelog, table)
    return found


def _check_memory_tables(
    views: Sequence[View], tables: Mapping[str, TableStatus]
) -> Iterator[Finding]:
    names: defaultdict[str, list[str]] = defaultdict(list)
    for view in views:
        for table in view.tables:
            if table.store == "memory":
                names[table.changelog].append(view.name)
    for changelog, table in tables.items():
        if names[changelog]:
            yield finding(
                "FA005", f"on {list_names(names[changelog])}", subject=f"table {table.name}"
            )


def _changelogs(
    topics: Mapping[str, TopicFacts],
    changelogs: Collection[str],
    tables: Mapping[str, TableStatus],
    sources: Mapping[str, int],
) -> Iterator[Finding]:
    for name in sorted(topics.keys() & tables.keys() & set(changelogs)):
        topic, table = topics[name], tables[name]
        yield from check_changelog(
            name,
            topic,
            is_windowed=table.is_windowed,
            is_set=table.is_set,
            expires_s=table.expires_s,
        )
        if not (table.is_global or table.uses_partitioner):
            yield from check_partitions(name, topic.partitions, sources)


def _check_idle_members(members: int, *, tasks: int) -> Iterator[Finding]:
    if 0 < tasks < members:
        yield finding(
            "FA010", f"{members} members for {tasks} tasks: {members - tasks} own no task"
        )


def _check_disks(views: Sequence[View]) -> Iterator[Finding]:
    """Check that each disk has room for a lost worker's share and for the largest partition."""
    stores = [[count for table in view.tables for count in table.bytes.values()] for view in views]
    sizes = [count for counts in stores for count in counts]
    if not sizes or len(views) < 2:
        return
    share = max(map(sum, stores)) / (len(views) - 1)
    needed = max(max(sizes), share)
    for view in views:
        free = None if view.status is None else view.status.disk_free_bytes
        if free is not None and free < needed:
            yield finding(
                "FA016",
                f"{size(free)} free; if the worker with the most state is lost, about {size(needed)} come "
                "here",
                subject=view.name,
            )


def _check_corrupt_folders(views: Sequence[View]) -> Iterator[Finding]:
    for view in views:
        folders = view.counters.get(CORRUPT_FOLDERS, 0)
        if folders:
            yield finding(
                "FA018",
                f"{folders} set aside since its start, the worker continues with restored rows",
                subject=view.name,
            )
