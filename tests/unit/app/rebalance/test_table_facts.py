"""The facts about an app's own tables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance.table_facts import TableFacts, facts_of

OWN, NEW = "shop-totals-changelog", "shop-rates-changelog"


@pytest.mark.parametrize(
    ("use_partitioner", "synchronize", "is_full"),
    [(False, False, False), (True, False, True), (False, True, True)],
)
def test_an_apps_own_facts_are_its_changelogs_and_who_else_writes_them(
    use_partitioner: bool, synchronize: bool, is_full: bool
) -> None:
    """All partitions of a global table are followed if a different worker or app may write them."""

    def table(*, is_global: bool) -> Any:
        return SimpleNamespace(
            is_global=is_global,
            use_partitioner=use_partitioner,
            synchronize_all_active_partitions=synchronize,
        )

    changelogs = {OWN: table(is_global=False), NEW: table(is_global=True)}
    found = facts_of(SimpleNamespace(tables=SimpleNamespace(_changelogs=changelogs)))
    assert found == TableFacts(frozenset({OWN, NEW}), {NEW: is_full})
    assert found.stateful == {OWN}
