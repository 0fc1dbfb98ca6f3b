"""Recordings of two groups, lags of changelogs, and results that arms share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner import Member
from faust_assigner.pipeline.ledgers.current import GroupState
from faust_assigner.pipeline.simulate import events
from faust_assigner.pipeline.simulate.events import event_rows
from faust_assigner.pipeline.simulate.facts import Facts
from faust_assigner.pipeline.simulate.recorded import Week
from faust_assigner.pipeline.simulate.run import Run
from faust_assigner.pipeline.simulate.what_if import Change, Load, what_if
from faust_assigner.simulation.fleet import Costs
from faust_assigner.simulation.simulator import Rebalance

START = datetime(2026, 11, 1, tzinfo=UTC)


def decision(group: str, number: int, minutes: int, **member: Any) -> Any:
    """Return a decision of a group with one member."""
    return {
        "group_id": group,
        "decision_id": f"{group}{number}",
        "ts": START + timedelta(minutes=minutes),
        "trigger": f"for {group}{number}",
        "config": {"replicas": "2" if group == "g" else "3"},
        "members": [{"member_id": "m", **member}],
    }


def test_each_recorded_group_has_its_own_rebalances(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings are those of the group's newest decision; predictions go to the nearest round."""
    decisions = (
        decision("g", 1, 0),
        decision("h", 1, 3),
        decision("g", 2, 10),
        decision("h", 2, 13, instance_id="i"),
        decision("g", 3, 20),
    )
    facts = Facts(decisions, (), (), outcomes={("g", "g2"): (7, 3), ("h", "h2"): (9, 4)})
    traces = {
        "g": [Rebalance(0.0, 5, 1), Rebalance(899.0, 6, 2), Rebalance(1_300.0, 8, 0)],
        "h": [Rebalance(500.0, 11, 10)],
    }
    asked: list[Any] = []

    def simulate(scenario: Any, arm: Any, policy: Any, *, costs: Any, trace: Any) -> None:
        asked.append((scenario.group_id, arm.label, arm.replicas, costs))
        trace += traces[scenario.group_id]

    monkeypatch.setattr(events, "simulate", simulate)
    recordings: Any = tuple(SimpleNamespace(group_id=name) for name in "gh")
    costs = Costs(session_timeout_s=33.0)
    rows = event_rows(Run(1, Week(recordings), costs=costs), facts, "stock+static")
    assert asked == [("g", "stock", 2, costs), ("h", "stock+static", 3, costs)]
    names = ("rebalances", "moved", "cold_moves")
    assert rows == [
        {
            "group_id": name[0],
            "decision_id": name,
            "ts": (START + timedelta(minutes=minutes)).isoformat(),
            "trigger": f"for {name}",
            "policy": policy,
            "standbys": standbys,
            "predicted": dict(zip(names, predicted, strict=True)),
            "recorded": dict(zip(names, recorded, strict=True)),
        }
        for name, minutes, policy, standbys, predicted, recorded in (
            ("g2", 10, "stock", 2, (2, 11, 3), (1, 7, 3)),
            ("g3", 20, "stock", 2, (1, 8, 0), (1, 0, 0)),
            ("h2", 13, "stock+static", 3, (1, 11, 10), (1, 9, 4)),
        )
    ]


def test_the_records_of_a_changelog_wait_too() -> None:
    """The partition with most waiting records is of any topic of a task."""
    member = Member("a", ["t", "log"], actives={"t": [0], "log": [0]}, generation=1)
    current = GroupState("g", "d", (member,), {"t": 1, "log": 1}, ("log",))
    costs = Costs(rebalance_pause_s=0.5, warm_takeover_s=1.0)
    for busy in ("t", "log"):
        load = Load({(busy, 0): 50.0}, {}, {})
        (row,) = what_if(current, Change(), load, replicas=[0], costs=costs)
        assert (row["stopped_s"], row["peak_lag"]) == (1.5, 75)
