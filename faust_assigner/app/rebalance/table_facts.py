"""What an app's tables mean to the assignor: which topics are changelogs, and of which kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from faust_assigner.wire.join import JoinData


@dataclass(frozen=True)
class TableFacts:
    """``changelogs``: topics behind tables; ``globals_``: those behind global tables.

    A global table's changelog maps to whether every partition must also be a standby, the ones written
    here included: another worker, or another app, writes to them as well (``use_partitioner``,
    ``synchronize_all_active_partitions``).
    """

    changelogs: frozenset[str] = frozenset()
    globals_: Mapping[str, bool] = field(default_factory=dict)

    @property
    def stateful(self) -> frozenset[str]:
        """Changelogs whose partitions have an owner and standbys; a global table is everywhere anyway."""
        return self.changelogs - self.globals_.keys()


def facts_of(app: Any) -> TableFacts:
    """The tables this app declared so far."""
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
    """The leader's own tables, and those of members that run newer or older code than the leader.

    ``said`` pairs each member's topics with what it said. A topic the leader's code does not know is a
    changelog when all its subscribers say so (one member alone must not be able to turn another's
    source into a changelog); a stock member cannot say, so there the name must be Faust's own.
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
