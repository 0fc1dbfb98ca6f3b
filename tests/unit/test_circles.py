"""Circles: modules that import each other. No module needs a circle to run; few name each other as types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import grimp

PACKAGE: Final = "faust_assigner"
#: The modules of each circle through imports for type checks, in order -> the reason.
TYPED: Final[Mapping[tuple[str, ...], str]] = {
    (
        "",
        "app.assignor",
        "app.rebalance.findings",
        "app.rebalance.leading",
        "app.rebalance.member",
    ): "the package loads the assignor at its first use, and a member's metadata has the version",
    (
        "app.rebalance.consumer",
        "app.rebalance.incremental",
    ): "the steps of a cooperative round are a part of the consumer and use most of it",
    (
        "app.recovery.actives",
        "app.recovery.books",
        "app.recovery.by_partition",
    ): "the parts of one recovery share its attributes, most of them Faust's own",
    (
        "app.tables.flushing",
        "app.tables.store",
    ): "the flushes of a store are a part of the store and use most of it",
    (
        "app.transactions.manager",
        "app.transactions.sends",
    ): "the sends are a part of the manager and use most of it",
    (
        "broker.setting_checks",
        "broker.settings",
    ): "the checks of settings that depend on each other take all settings, and parsing calls them",
}


def circles(*, without_types: bool) -> set[tuple[str, ...]]:
    """Return the circles in the imports of all modules and functions."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=without_types, cache_dir=None)
    found = set()
    for module in graph.modules:
        circle = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if circle:
            names = sorted(circle | {module})
            found.add(tuple(name.removeprefix(PACKAGE).removeprefix(".") for name in names))
    return found


def test_no_modules_import_each_other() -> None:
    """Imports inside functions count: they only hide that two modules need each other."""
    assert circles(without_types=True) == set()


def test_only_the_listed_modules_name_each_other_as_types() -> None:
    """A new circle needs a smaller interface, a type in a lower module, or a reason in the table."""
    assert circles(without_types=False) == set(TYPED)
