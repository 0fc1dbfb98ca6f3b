"""Faust's assignor as a function: each call of Faust's algorithm and each part of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from faust.assignor.client_assignment import CopartitionedAssignment

from faust_assigner.app import stock
from faust_assigner.app.stock import StockPlan, stock_plan
from faust_assigner.model import Member

LOG, RATES = "counts-log", "rates"
MEMBERS = [
    Member(
        "c",
        ("orders", LOG, RATES),
        actives={"orders": [0, 4, 5], LOG: [3]},
        standbys={LOG: [1, 2, 4], RATES: [1]},
    ),
    Member("a", ("orders", LOG), actives={LOG: [], "orders": [1, 3, 9]}, standbys={LOG: [0, -1]}),
    Member(
        "b",
        ("orders", LOG, "clicks", RATES),
        actives={"clicks": [4, 1], RATES: [0, 2], LOG: [2], "orders": [3]},
        standbys={RATES: [1]},
    ),
    Member("d", ("clicks", "none"), actives={"clicks": [0, 2, 3]}, standbys={}),
]
COUNTS = {RATES: 2, "orders": 4, "lonely": 3, LOG: 4, "clicks": 4}


class Recorded:
    """Stand in for Faust's algorithm: note its input, and give everybody unsorted partitions."""

    calls: list[Any]

    def __init__(
        self,
        topics: Any,
        previous: Mapping[str, CopartitionedAssignment],
        partitions: int,
        replicas: int,
    ) -> None:
        self.topics, self.members = topics, list(previous)
        claims = {m: (one.actives, one.standbys, one.topics) for m, one in previous.items()}
        self.calls.append((topics, claims, partitions, replicas))

    def get_assignment(self) -> dict[str, CopartitionedAssignment]:
        """Return other numbers for each member and group."""
        number = 10 * len(self.calls)
        return {
            m: CopartitionedAssignment({number + 9, i}, {number + 8, i + 5}, set(self.topics))
            for i, m in enumerate(self.members)
        }


def test_each_group_is_planned_with_the_claims_on_its_first_claimed_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Numbers beyond the topic and topics without subscribers are left out."""
    calls = Recorded.calls = []
    monkeypatch.setattr(stock, "_Bounded", Recorded)
    found = stock_plan(MEMBERS, COUNTS, replicas=2, changelogs=[LOG, RATES])
    nothing: set[int] = set()
    tables = {LOG, "orders"}
    assert calls == [
        ((RATES,), {"c": (nothing, {1}, {RATES}), "b": ({0}, {1}, {RATES})}, 2, 2),
        (
            ("clicks",),
            {"b": ({1}, nothing, {"clicks"}), "d": ({0, 2, 3}, nothing, {"clicks"})},
            4,
            2,
        ),
        (
            (LOG, "orders"),
            {"c": ({3}, {1, 2}, tables), "a": ({1, 3}, {0}, tables), "b": ({2}, nothing, tables)},
            4,
            2,
        ),
    ]
    assert found == StockPlan(
        {
            "c": {RATES: [0, 19], LOG: [0, 39], "orders": [0, 39]},
            "a": {LOG: [1, 39], "orders": [1, 39]},
            "b": {RATES: [1, 19], "clicks": [0, 29], LOG: [2, 39], "orders": [2, 39]},
            "d": {"clicks": [1, 29]},
        },
        {
            "c": {RATES: [5, 18], LOG: [5, 38]},
            "a": {LOG: [6, 38]},
            "b": {RATES: [6, 18], LOG: [7, 38]},
            "d": {},
        },
    )
    assert (found.actives("d"), found.standbys("a")) == ({"clicks": [1, 29]}, {LOG: [6, 38]})


def test_without_replicas_each_changelog_has_an_empty_list() -> None:
    """Members without a topic have no entry at all."""
    found = stock_plan(MEMBERS, COUNTS, replicas=0, changelogs=[LOG, RATES])
    assert {m: found.standbys(m) for m in "abcd"} == {
        "a": {LOG: []},
        "b": {RATES: [], LOG: []},
        "c": {RATES: [], LOG: []},
        "d": {},
    }
    assert stock_plan([], COUNTS, replicas=1, changelogs=[LOG]) == StockPlan({}, {})


def test_each_plan_may_evict_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next plan counts from zero."""
    monkeypatch.setattr(stock, "MAX_EVICTIONS", 3)
    base: Any = stock._Bounded.__mro__[1]
    monkeypatch.setattr(base, "_free_up_partition", lambda self, assignment, active: "7")
    for _ in range(2):
        before = {name: CopartitionedAssignment(topics=["t"]) for name in "mn"}
        bounded: Any = stock._Bounded(["t"], before, 4, 1)
        found = [bounded._free_up_partition(None, True) for _ in range(3)]
        with pytest.raises(stock.StockLivelock) as ended:
            bounded._free_up_partition(None, False)
        assert found == [7, 7, 7]
        assert str(ended.value) == "4 partitions, 1 standbys: no end after 3 evictions"
