"""The model's prediction for each recorded rebalance, beside the recorded figures.

The recorded joins, departures, restarts and crashes are simulated with the recorded settings. Each simulated
rebalance is counted with the recorded rebalance that is nearest in time.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.rows import DecisionRow
from faust_assigner.pipeline.simulate.facts import Facts
from faust_assigner.pipeline.simulate.policies import arms, load
from faust_assigner.pipeline.simulate.recorded import Week
from faust_assigner.pipeline.simulate.run import Run
from faust_assigner.simulation.fleet import Arm
from faust_assigner.simulation.simulator import Rebalance, simulate


class EventRow(TypedDict):
    """A recorded rebalance: the predicted and the recorded numbers of rebalances, moves and cold moves."""

    group_id: str
    decision_id: str
    ts: str
    trigger: str
    policy: str
    standbys: int
    predicted: dict[str, int]
    recorded: dict[str, int]


def event_rows(run: Run, facts: Facts, policy: str) -> list[EventRow]:
    """Return one row per recorded rebalance after each group's first decision, by group and time.

    ``policy`` is simulated with the recorded number of standbys, and with static members if the recorded
    members were static. Cost: one simulation per group.
    """
    assert isinstance(run.source, Week)
    found = []
    for scenario in run.source.recordings:
        decisions = [each for each in facts.decisions if each["group_id"] == scenario.group_id]
        arm = recorded_arm(decisions, policy)
        trace: list[Rebalance] = []
        simulate(scenario, arm, load(arm.policy), costs=run.costs, trace=trace)
        found += _rows(decisions, trace, facts.outcomes, arm)
    return found


def recorded_arm(decisions: Sequence[DecisionRow], policy: str) -> Arm:
    """Return the arm (policy and settings) of the newest decision."""
    newest = decisions[-1]
    is_static = all(member.get("instance_id") for member in newest["members"])
    text = str(newest["config"].get("replicas", "1"))
    if not (text.isdecimal() and len(text) < 10):
        raise ConfigError(f"decision {newest['decision_id']}: {text!r} is not a number of standbys")
    base = policy.partition("+")[0]
    (arm,) = arms((f"{base}+static" if is_static else base,), (int(text),))
    return arm


def _rows(
    decisions: Sequence[DecisionRow],
    trace: Sequence[Rebalance],
    outcomes: Mapping[tuple[str, str], tuple[int, int]],
    arm: Arm,
) -> list[EventRow]:
    later = decisions[1:]
    if not later:
        return []
    start: datetime = decisions[0]["ts"]
    times = [(each["ts"] - start).total_seconds() for each in later]
    predicted = [[0, 0, 0] for _ in later]
    for each in trace:
        sums = predicted[nearest(times, each.at_s)]
        for place, count in enumerate((1, each.moved, each.cold_moves)):
            sums[place] += count
    rows: list[EventRow] = []
    for decision, (rounds, moved, cold) in zip(later, predicted, strict=True):
        recorded = outcomes.get((decision["group_id"], decision["decision_id"]), (0, 0))
        rows.append(
            {
                "group_id": decision["group_id"],
                "decision_id": decision["decision_id"],
                "ts": decision["ts"].isoformat(),
                "trigger": decision["trigger"],
                "policy": arm.label,
                "standbys": arm.replicas,
                "predicted": {"rebalances": rounds, "moved": moved, "cold_moves": cold},
                "recorded": {"rebalances": 1, "moved": recorded[0], "cold_moves": recorded[1]},
            }
        )
    return rows


def nearest(times: Sequence[float], at: float) -> int:
    """Return the position of the time in sorted ``times`` that is nearest to ``at``; the earlier of two.

    >>> nearest([0.0, 10.0, 20.0], 14.0), nearest([0.0, 10.0], 5.0)
    (1, 0)
    """
    place = bisect.bisect_left(times, at)
    around = [each for each in (place - 1, place) if 0 <= each < len(times)]
    return min(around, key=lambda each: (abs(times[each] - at), each))
