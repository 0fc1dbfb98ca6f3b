"""From rows of ``sim_result`` to distributions, and from those to the settings a fleet should take.

Pure: rows in, rows out. Percentiles are exact with linear interpolation, and sums run in the order of
scenario ids, so that where the rows came from (Spark, a pool, a loop) cannot be seen in the figures.

The rule of the table, per class of fleet (size of the state x racks):

1. keep the settings whose p90 of unavailable seconds per partition is within 10% of the best;
2. of these, keep those whose p90 of the heaviest load is within 10% of the best of them;
3. of these, take the fewest standbys (each is a copy of the state on disk and on the wire), then the
   fewest switches, then the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from faust_assigner.model import Floats

#: What a distribution is given of: the column, divided by the partitions or not.
METRICS = ("moved", "cold_moves", "unavailable_s", "unavailable_s_per_partition", "worst_gap_s",
           "worst_load", "imbalance", "restored")
PERCENTILES = (50, 90, 99)

#: Two settings this close are called equal, and the cheaper one wins.
CLOSE = 1.10
ALL_FLEETS = "all"
_STATES = (ALL_FLEETS, "none", "small", "medium", "large")
#: Changelog records of an average partition: up to here the state counts as small, then as medium.
SMALL_STATE, MEDIUM_STATE = 10_000, 100_000


class Recommendation(NamedTuple):
    """One line of the settings table: for fleets like this, these settings, and what they cost."""

    state: str
    racks: str
    scenarios: int
    policy: str
    standbys: int
    unavailable_s_per_partition_p90: float
    worst_load_p90: float
    cold_moves_p90: float
    moved_p90: float
    instead_of: str
    its_unavailable_s_per_partition_p90: float | None


def state_class(records_per_partition: float) -> str:
    """How much an average partition keeps: none, small, medium or large."""
    if records_per_partition == 0:
        return "none"
    if records_per_partition <= SMALL_STATE:
        return "small"
    return "medium" if records_per_partition <= MEDIUM_STATE else "large"


def fleet_class(row: Any) -> tuple[str, str]:
    """(state, racks) of a row: what the settings table is divided by."""
    return row.state, "several" if row.racks > 1 else "one"


def summarise(rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Per class of fleet (and ``all``), policy and standbys: mean, p50, p90, p99, max of METRICS."""
    arms: dict[tuple[tuple[str, str], str, int], list[Any]] = {}
    for row in rows:
        for fleets in ((ALL_FLEETS, ALL_FLEETS), fleet_class(row)):
            arms.setdefault((fleets, row.policy, row.standbys), []).append(row)
    return in_order([distribution(mine, fleets) for (fleets, _, _), mine in arms.items()])


def in_order(summaries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Summaries as they are listed: all fleets first, then by growing state."""
    return sorted(summaries, key=lambda found: (
        _STATES.index(found["state"]), found["racks"], found["policy"], found["standbys"]))


def distribution(rows: Sequence[Any], fleets: tuple[str, str]) -> dict[str, Any]:
    """One summary: ``rows`` of one policy and number of standbys, in any order."""
    rows = sorted(rows, key=lambda row: row.scenario_id)
    found: dict[str, Any] = {"state": fleets[0], "racks": fleets[1], "policy": rows[0].policy,
                             "standbys": int(rows[0].standbys), "scenarios": len(rows)}
    for metric in METRICS:
        values = _values(rows, metric)
        found[f"{metric}_mean"] = float(values.mean())
        for percentile, value in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True):
            found[f"{metric}_p{percentile}"] = float(value)
        found[f"{metric}_max"] = float(values.max())
    return found


def recommend(summaries: Sequence[Mapping[str, Any]], *, policy: str) -> list[Recommendation]:
    """The settings table: over all fleets, then per class of state and racks.

    ``policy`` names whose settings are chosen from (``ours`` also means ``ours+static``). The last two
    columns show the best of the other policies beside it.
    """
    classes: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for found in summaries:
        classes.setdefault((found["state"], found["racks"]), []).append(found)
    return [_choose(state, racks, arms, policy) for (state, racks), arms in classes.items()]


def _values(rows: Sequence[Any], metric: str) -> Floats:
    column, _, per_partition = metric.partition("_per_")
    values = np.array([getattr(row, column) for row in rows], float)
    return values / np.array([row.partitions for row in rows]) if per_partition else values


def _choose(state: str, racks: str, arms: Sequence[Mapping[str, Any]], policy: str) -> Recommendation:
    ours = [arm for arm in arms if arm["policy"].partition("+")[0] == policy]
    others = [arm for arm in arms if arm["policy"].partition("+")[0] != policy]
    calm = _close_to_best(ours, "unavailable_s_per_partition_p90")
    even = _close_to_best(calm, "worst_load_p90")
    best = min(even, key=lambda arm: (arm["standbys"], arm["policy"].count("+"), arm["policy"]))
    rival = min(others, key=lambda arm: (arm["unavailable_s_per_partition_p90"], arm["standbys"]),
                default=None)
    return Recommendation(
        state, racks, best["scenarios"], best["policy"], best["standbys"],
        best["unavailable_s_per_partition_p90"], best["worst_load_p90"], best["cold_moves_p90"],
        best["moved_p90"], f"{rival['policy']}, standbys {rival['standbys']}" if rival else "",
        rival["unavailable_s_per_partition_p90"] if rival else None,
    )


def _close_to_best(arms: Sequence[Mapping[str, Any]], metric: str) -> list[Mapping[str, Any]]:
    limit = min(arm[metric] for arm in arms) * CLOSE
    return [arm for arm in arms if arm[metric] <= limit]
