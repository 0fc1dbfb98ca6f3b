"""The advice for a recorded group: change the settings only if the recorded weeks show a benefit.

Each whole recorded week is simulated with the recorded settings and with the recommended settings. Only
the weeks are independent observations. Many scenarios drawn from few weeks would give an interval that is
too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from faust_assigner.pipeline.simulate.events import recorded_arm
from faust_assigner.pipeline.simulate.facts import Facts
from faust_assigner.pipeline.simulate.policies import arms, load
from faust_assigner.pipeline.simulate.recorded import DAY_S, Week
from faust_assigner.pipeline.simulate.run import Run
from faust_assigner.pipeline.simulate.settings import CHANGE
from faust_assigner.simulation.fleet import Arm, Kind, Scenario
from faust_assigner.simulation.simulator import simulate

WEEK_S = 7 * DAY_S
#: The 97.5% quantile of Student's t-distribution for 1, 2, ... degrees of freedom; 1.96 beyond the table.
_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
    2.045, 2.042,
)  # fmt: skip


def recommend_change(
    run: Run, facts: Facts, policy: str, recommended: tuple[str, int]
) -> list[dict[str, object]]:
    """Return one row per recorded group: the recorded and the ``recommended`` settings, and the verdict.

    ``difference_s``: seconds per partition and week without processing, recommended minus recorded. Cost: two
    simulations per group and week with events.
    """
    assert isinstance(run.source, Week)
    (new,) = arms((recommended[0],), (recommended[1],))
    found = []
    for scenario in run.source.recordings:
        decisions = [each for each in facts.decisions if each["group_id"] == scenario.group_id]
        span_s = (decisions[-1]["ts"] - decisions[0]["ts"]).total_seconds()
        old = recorded_arm(decisions, policy)
        weeks = whole_weeks(scenario, span_s)
        values = _differences(weeks, new, old, run)
        interval = interval_of(values)
        found.append(
            {
                "group_id": scenario.group_id,
                "weeks": len(weeks),
                "recorded": {"policy": old.label, "standbys": old.replicas},
                "recommended": {"policy": new.label, "standbys": new.replicas},
                "difference_s": float(np.mean(values)) if values else None,
                "interval": interval,
                "verdict": verdict((old.label, old.replicas), (new.label, new.replicas), interval),
            }
        )
    return found


def verdict(old: tuple[str, int], new: tuple[str, int], interval: Sequence[float] | None) -> str:
    """Return ``change`` if the interval of the difference lies below zero, else the reason to keep."""
    if old == new:
        return "keep: the recorded settings are the recommended settings"
    if interval is None:
        return "keep: fewer than two whole weeks are recorded"
    if interval[1] < 0:
        return CHANGE
    return "keep: the interval over the weeks includes zero" if interval[0] <= 0 else "keep: worse"


def overall_verdict(rows: Sequence[Mapping[str, object]]) -> str:
    """Return ``change`` if this is the verdict of each group, else the first reason to keep."""
    kept = [row["verdict"] for row in rows if row["verdict"] != CHANGE]
    return str(kept[0]) if kept else CHANGE


def interval_of(values: Sequence[float]) -> list[float] | None:
    """Return the 95% interval of the mean of independent values (Student's t); None for fewer than two."""
    if len(values) < 2:
        return None
    freedom = len(values) - 1
    factor = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96
    half = factor * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    mean = float(np.mean(values))
    return [mean - half, mean + half]


def whole_weeks(recorded: Scenario, span_s: float) -> list[Scenario]:
    """Return each whole week of a recording of ``span_s`` seconds as a separate scenario.

    A week starts with the members that run at its start. An incomplete last week is left out.
    """
    running, found = list(recorded.start), []
    events = list(recorded.events)
    for number in range(int(span_s // WEEK_S)):
        start = number * WEEK_S
        mine = [each for each in events if start <= each.at_s < start + WEEK_S]
        shifted = tuple(replace(each, at_s=each.at_s - start) for each in mine)
        found.append(replace(recorded, start=tuple(sorted(running)), events=shifted))
        for event in mine:
            if event.kind is Kind.JOIN and event.member_id not in running:
                running.append(event.member_id)
            elif event.kind in (Kind.LEAVE, Kind.CRASH) and event.member_id in running:
                running.remove(event.member_id)
    return [week for week in found if week.start]


def _differences(weeks: Sequence[Scenario], new: Arm, old: Arm, run: Run) -> list[float]:
    """Return each week's seconds per partition without processing, ``new`` minus ``old``.

    Weeks with equal members and events are simulated once: a clock of 1970 gives thousands of quiet weeks.
    """
    found: dict[tuple[object, object], float] = {}
    for week in weeks:
        key = (week.start, week.events)
        if key not in found:
            found[key] = _stopped(week, new, run) - _stopped(week, old, run)
    return [found[week.start, week.events] for week in weeks]


def _stopped(week: Scenario, arm: Arm, run: Run) -> float:
    outcome = simulate(week, arm, load(arm.policy), costs=run.costs)
    return outcome.unavailable_s / week.tasks
