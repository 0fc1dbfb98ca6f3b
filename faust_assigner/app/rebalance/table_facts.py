"""The facts about an app's tables that the assignor needs: the changelogs and the global tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
