"""The facts about an app's tables that the assignor needs: the changelogs and the global tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from faust_assigner.wire.join import JoinData

if TYPE_CHECKING:
    from faust.types.app import AppT


@dataclass(frozen=True)
class TableFacts:
    """The changelogs of all tables (``changelogs``) and of global tables (``globals_``).

    ``globals_`` maps a changelog to a flag: whether each worker must also follow, as standbys, the
    partitions that it writes itself. This is necessary if a different worker or app writes to these
    partitions as well (``use_partitioner``, ``synchronize_all_active_partitions``).
    """

    changelogs: frozenset[str] = frozenset()
    globals_: Mapping[str, bool] = field(default_factory=dict)

    @property
    def stateful(self) -> frozenset[str]:
        """Return the changelogs whose partitions have owners and standbys: not of global tables."""
        return self.changelogs - self.globals_.keys()


def facts_of(app: AppT) -> TableFacts:
    """Return the tables that this app has declared so far."""
    tables = dict(app.tables._changelogs)
    return TableFacts(
        frozenset(tables),
        {
            topic: bool(table.synchronize_all_active_partitions or table.use_partitioner)
            for topic, table in tables.items()
            if table.is_global
        },
    )


def agreed(
    own: TableFacts, said: Iterable[tuple[Collection[str], JoinData]], app_id: str
) -> TableFacts:
    """Combine the leader's own tables with the tables of members that run newer or older code.

    ``said`` pairs each member's topics with its metadata. A topic that the leader's app does not
    declare as a changelog is a changelog if all its subscribers report this. Otherwise a single
    member could turn a different member's source into a changelog. A stock member cannot report
    changelogs; for this member the topic's name must follow Faust's pattern.
    """
    subscribers: dict[str, list[JoinData]] = {}
    for topics, data in said:
        for topic in topics:
            if topic not in own.changelogs:
                subscribers.setdefault(topic, []).append(data)
    changelogs, globals_ = set(own.changelogs), dict(own.globals_)
    for topic, members in subscribers.items():
        named = topic.startswith(f"{app_id}-") and topic.endswith("-changelog")
        if all(topic in m.changelogs if m.is_ours else named for m in members):
            changelogs.add(topic)
            flags = [m.globals_[topic] for m in members if topic in m.globals_]
            if flags and len(flags) == sum(m.is_ours for m in members):
                globals_[topic] = any(flags)
    return TableFacts(frozenset(changelogs), globals_)
