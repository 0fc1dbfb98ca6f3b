"""The tables of a group whose members run different code, as combined by the leader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.rebalance.table_facts import TableFacts, agreed, facts_of
from faust_assigner.wire.join import STOCK, JoinData

OWN, NEW = "shop-totals-changelog", "shop-rates-changelog"
OURS = JoinData(changelogs=frozenset({OWN, NEW}))
STOCKS = JoinData(version=STOCK)


def facts(*said: JoinData, topic: str = NEW) -> tuple[set[str], dict[str, bool]]:
    """Return the changelogs and global tables beside the leader's own, for ``topic``."""
    own = TableFacts(frozenset({OWN}))
    found = agreed(own, [([OWN, topic], one) for one in said], "shop")
    assert OWN in found.changelogs
    return set(found.changelogs - {OWN}), dict(found.globals_)


def on(is_full: bool) -> JoinData:
    """Return a member whose code has the new table as a global table."""
    return JoinData(changelogs=frozenset({OWN, NEW}), globals_={NEW: is_full})


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([OURS, OURS], ({NEW}, {})),
        ([OURS, STOCKS], ({NEW}, {})),
        ([STOCKS], ({NEW}, {})),
        ([OURS, JoinData(changelogs=frozenset({OWN}))], (set(), {})),
        ([on(False), on(False)], ({NEW}, {NEW: False})),
        ([on(False), on(True)], ({NEW}, {NEW: True})),
        ([on(True), STOCKS], ({NEW}, {NEW: True})),
        ([on(True), OURS], ({NEW}, {})),
    ],
)
def test_a_table_that_the_leader_does_not_know_is_what_all_its_members_report(
    said: list[JoinData], found: tuple[set[str], dict[str, bool]]
) -> None:
    """A changelog needs all members' reports; a global table needs all but the stock members'."""
    assert facts(*said) == found


@pytest.mark.parametrize("topic", ["shop-rates", "other-rates-changelog", "rates-changelog"])
def test_a_stock_members_topic_is_a_changelog_only_by_fausts_pattern(topic: str) -> None:
    """The pattern is the app's id, the table's name and the ending."""
    assert facts(STOCKS, topic=topic) == (set(), {})


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


def test_the_tables_of_several_apps_versions_are_combined_topic_by_topic() -> None:
    """The subscribers of each topic decide; the leader's own tables follow its code."""
    own = TableFacts(frozenset({"own", "own-global"}), {"own-global": False})
    new = JoinData(
        changelogs=frozenset({"one", "all", "own"}),
        globals_={"all": False, "own": True, "own-global": True},
    )
    more = JoinData(changelogs=frozenset({"all"}), globals_={"all": True})
    said = [
        (["own", "own-global", "one", "all", "source"], new),
        (["own", "all", "source"], more),
        (["own", "one", "shop-old-changelog"], STOCKS),
    ]
    assert agreed(own, said, "shop") == TableFacts(
        frozenset({"own", "own-global", "all", "shop-old-changelog"}),
        {"own-global": False, "all": True},
    )
    assert own == TableFacts(frozenset({"own", "own-global"}), {"own-global": False})
    assert agreed(own, [], "shop") == own


def test_the_kind_of_a_table_of_the_leaders_own_code_is_what_that_says() -> None:
    """Reports of members with different code do not change the kind."""
    own = TableFacts(frozenset({OWN}))
    said = JoinData(changelogs=frozenset({OWN}), globals_={OWN: True})
    assert agreed(own, [([OWN], said), ([OWN], said)], "shop") == own
