"""The table manager's part in a round: every call with all of its arguments, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.tables.manager import TableManager
from faust.types import TP

from faust_assigner.app.recovery.table_manager import RecoveringTables

A, B, C = (TP("log", number) for number in range(3))


class Stock(TableManager):  # type: ignore[misc]
    """A stub of Faust's table manager; ``acts`` records each call."""

    acts: list[Any]

    def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Record the call."""
        self.acts.append(("revoked", revoked))

    async def on_rebalance(self, *given: Any) -> None:
        """Record the call."""
        self.acts.append(("rebalance", *given))

    async def on_stop(self) -> None:
        """Record the call."""
        self.acts.append("tables closed")


class Tables(RecoveringTables, Stock):  # type: ignore[misc]
    """The table manager over the stub."""

    recovery: Any = None

    def __init__(self, **consumer: Any) -> None:
        self.acts = acts = []

        async def settle() -> None:
            acts.append("settle")

        self.recovery = SimpleNamespace(
            started=True,
            stop_assigning=lambda: acts.append("stop assigning"),
            stop_restoring=lambda: acts.append("stop restoring"),
            stop_and_wait=settle,
        )
        self.app = SimpleNamespace(should_stop=True, consumer=SimpleNamespace(**consumer))


async def test_a_round_reaches_faust_s_tables_with_its_generation() -> None:
    """Restores stop first, and their threads have ended before databases open."""
    tables = Tables()
    tables.on_partitions_revoked({A, B})
    await tables.on_rebalance({A, C}, {B}, {C}, 12)
    await tables.on_rebalance({A}, set(), {A})
    assert tables.acts == [
        "stop assigning",
        "stop restoring",
        ("revoked", {A, B}),
        "settle",
        ("rebalance", {A, C}, {B}, {C}, 12),
        "settle",
        ("rebalance", {A}, set(), {A}, 0),
    ]


@pytest.mark.parametrize("has_group", [True, False])
async def test_a_client_without_a_group_leaves_none(has_group: bool) -> None:
    """A consumer without ``leave_group`` is Faust's own."""
    acts: list[Any] = []

    async def leave() -> None:
        acts.append(("left", list(tables.acts)))

    tables = Tables(**({"leave_group": leave} if has_group else {}))
    await tables.on_stop()
    assert acts == ([("left", [])] if has_group else [])
    assert tables.acts == ["tables closed"]
