"""Distributions of the rows of ``sim_result``, and the settings recommended for each class of fleet.

The functions are pure. Percentiles are exact, with linear interpolation. Sums run in the order of scenario
ids, so that Spark, a process pool and a plain loop give the same figures.

The settings for each class of fleet (size of the state x racks) are chosen as follows:

1. keep the settings whose p90 of unavailable seconds per partition is within 10% of the best;
2. of these, keep the settings whose p90 of the heaviest load is within 10% of the best remaining;
3. of these, take the fewest standbys (each standby costs disk and network), then the fewest switches, then
   the first name.

The table compares the settings with another policy *under the same conditions*: as many standbys, and both
with static members or both without. Both policies ran the same scenarios, so differences are paired. A
policy is calmer than another if it stops partitions for less time and the 95% interval of the difference
excludes zero. A change is recommended only if the recommended settings are calmer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from faust_assigner.model import Floats
from faust_assigner.pipeline.rows import grouped
from faust_assigner.pipeline.simulate.sim_result import SimRow

#: The figures that are summarised: a column, or a column divided by the number of partitions.
METRICS = (
    "moved",
    "cold_moves",
    "unavailable_s",
    "unavailable_s_per_partition",
    "worst_gap_s",
    "worst_load",
    "imbalance",
    "restored",
)
PERCENTILES = (50, 90, 99)

#: The first figure by which settings are chosen, and all figures of a setting in the table.
STOPPED = "unavailable_s_per_partition_p90"
TOLD = (STOPPED, "worst_load_p90", "cold_moves_p90", "moved_p90")
#: Half the width of a 95% interval, in standard errors.
Z95 = 1.96

#: Settings within this factor of the best count as equal; the rule then chooses the cheapest setting.
CLOSE = 1.10
ALL_FLEETS = "all"
#: The verdict that recommends a change of settings.
CHANGE = "change"
_STATES = (ALL_FLEETS, "none", "small", "medium", "large")
#: The maximum number of changelog records of an average partition for a small state, and for a medium state.
SMALL_STATE, MEDIUM_STATE = 10_000, 100_000


class Recommendation(NamedTuple):
    """One line of the settings table: a class of fleets, the recommended settings and their figures."""

    state: str
    racks: str
    scenarios: int
    policy: str
    standbys: int
    unavailable_s_per_partition_p90: float
    worst_load_p90: float
    cold_moves_p90: float
    moved_p90: float
    #: The 95% interval (lowest, highest) of each figure above, from order statistics.
    intervals: Mapping[str, tuple[float, float]]
    instead_of: str
    its_unavailable_s_per_partition_p90: float | None
    its_interval: tuple[float, float] | None
    #: Seconds per partition without processing, with this policy minus with the other policy, paired by
    #: scenario: mean and 95% interval.
    difference_s: float | None
    difference_interval: tuple[float, float] | None
    #: The policy with less time without processing; "even" if the 95% interval includes zero.
    calmer: str
    #: ``change`` if the settings are calmer than the other policy, else the reason to keep.
    verdict: str
    #: ``STOPPED`` in the scenarios that chose the settings; all other figures are from the scenarios that
    #: evaluate the settings. None if the same scenarios choose and evaluate.
    chosen_at: float | None = None


def state_class(records_per_partition: float) -> str:
    """Return the class of an average partition's state: none, small, medium or large."""
    if records_per_partition == 0:
        return "none"
    if records_per_partition <= SMALL_STATE:
        return "small"
    return "medium" if records_per_partition <= MEDIUM_STATE else "large"


def fleet_class(row: SimRow) -> tuple[str, str]:
    """Return the class of a row's fleet: its class of state, and "several" or "one" for its racks."""
    return row.state, "several" if row.racks > 1 else "one"


def summarise(rows: Iterable[SimRow]) -> list[dict[str, Any]]:
    """Return mean, p50, p90, p99 and max of METRICS per class of fleet (and ``all``), policy and standbys.

    ``against`` contains the paired differences from other policies under the same conditions.
    """
    arms: dict[tuple[tuple[str, str], str, int], list[SimRow]] = {}
    for row in rows:
        for fleets in ((ALL_FLEETS, ALL_FLEETS), fleet_class(row)):
            arms.setdefault((fleets, row.policy, row.standbys), []).append(row)
    found = []
    for (fleets, policy, standbys), mine in arms.items():
        others = [
            name
            for class_, name, count in arms
            if (class_, count) == (fleets, standbys) and comparable(policy, name)
        ]
        summary = distribution(mine, fleets)
        summary["against"] = {
            name: difference(stopped(mine), stopped(arms[fleets, name, standbys]))
            for name in sorted(others)
        }
        found.append(summary)
    return in_order(found)


def comparable(policy: str, other: str) -> bool:
    """Return whether the policies differ and have the same membership: both static, or both dynamic."""
    (base, *switches), (other_base, *other_switches) = policy.split("+"), other.split("+")
    return base != other_base and ("static" in switches) == ("static" in other_switches)


def stopped(rows: Iterable[SimRow]) -> dict[str, float]:
    """Return scenario id -> seconds per partition without processing."""
    return {row.scenario_id: row.unavailable_s / row.partitions for row in rows}


def difference(mine: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, object]:
    """Return the number of shared scenarios, and mean and 95% interval of ``mine`` minus ``theirs``.

    The interval is None for fewer than two scenarios.
    """
    shared = sorted(mine.keys() & theirs.keys())
    values = np.array([mine[name] - theirs[name] for name in shared])
    if not len(values):
        return {"scenarios": 0, "mean": None, "interval": None}
    mean = float(values.mean())
    if len(values) < 2:
        return {"scenarios": len(values), "mean": mean, "interval": None}
    half = Z95 * float(values.std(ddof=1)) / math.sqrt(len(values))
    return {"scenarios": len(values), "mean": mean, "interval": [mean - half, mean + half]}


def in_order(summaries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort summaries for the report: all fleets first, then by growing state, racks, policy and standbys."""
    return sorted(
        summaries,
        key=lambda found: (
            _STATES.index(found["state"]),
            found["racks"],
            found["policy"],
            found["standbys"],
        ),
    )


def distribution(rows: Sequence[SimRow], fleets: tuple[str, str]) -> dict[str, Any]:
    """Summarise the ``rows`` of one policy and number of standbys; the rows may have any order."""
    rows = sorted(rows, key=lambda row: row.scenario_id)
    found: dict[str, Any] = {
        "state": fleets[0],
        "racks": fleets[1],
        "policy": rows[0].policy,
        "standbys": int(rows[0].standbys),
        "scenarios": len(rows),
    }
    for metric in METRICS:
        values = _values(rows, metric)
        found[f"{metric}_mean"] = float(values.mean())
        for percentile, value in zip(PERCENTILES, np.percentile(values, PERCENTILES), strict=True):
            found[f"{metric}_p{percentile}"] = float(value)
        found[f"{metric}_p90_interval"] = list(quantile_interval(values, 0.9))
        found[f"{metric}_max"] = float(values.max())
    return found


def quantile_interval(values: Floats, share: float) -> tuple[float, float]:
    """Return a distribution-free 95% interval of a quantile; both ends are values of the sample.

    The number of values below the quantile is binomial with the mean n * share. The normal
    approximation of this distribution gives the positions of both ends in the sorted sample. With few
    values the interval ends at the largest value, although the true upper end may be higher.
    """
    ordered, count = np.sort(values), len(values)
    half = Z95 * math.sqrt(count * share * (1 - share))
    low = max(0, math.floor(count * share - half))
    high = min(count - 1, math.ceil(count * share + half))
    return float(ordered[min(low, count - 1)]), float(ordered[high])


def recommend(
    summaries: Sequence[Mapping[str, Any]], *, policy: str, judged: Sequence[Mapping[str, Any]] = ()
) -> list[Recommendation]:
    """Return the settings table: first over all fleets, then per class of state and racks.

    Settings are chosen by ``summaries``. If ``judged`` has summaries of the same class, the figures are taken
    from ``judged``: in the scenarios that chose them, the best of many settings look better than they are.

    Only settings of ``policy`` are chosen (``ours`` includes ``ours+static``). The last columns show the best
    other policy under the same conditions.
    """
    classes, others = (
        grouped(each, lambda found: (found["state"], found["racks"]))
        for each in (summaries, judged)
    )
    return [
        _choose(*fleets, arms, policy, others.get(fleets, ())) for fleets, arms in classes.items()
    ]


def _values(rows: Sequence[SimRow], metric: str) -> Floats:
    column, _, per_partition = metric.partition("_per_")
    values = np.array([getattr(row, column) for row in rows], float)
    return values / np.array([row.partitions for row in rows]) if per_partition else values


def _choose(
    state: str,
    racks: str,
    arms: Sequence[Mapping[str, Any]],
    policy: str,
    judged: Sequence[Mapping[str, Any]] = (),
) -> Recommendation:
    ours = [arm for arm in arms if arm["policy"].partition("+")[0] == policy]
    calm = _close_to_best(ours, STOPPED)
    even = _close_to_best(calm, "worst_load_p90")
    best = min(even, key=lambda arm: (arm["standbys"], arm["policy"].count("+"), arm["policy"]))
    chosen_at = best[STOPPED] if judged else None
    named = (best["policy"], best["standbys"])
    arms = judged or arms
    best = next(arm for arm in arms if (arm["policy"], arm["standbys"]) == named)
    rivals = [
        arm
        for arm in arms
        if arm["standbys"] == best["standbys"] and comparable(best["policy"], arm["policy"])
    ]
    rival = min(rivals, key=lambda arm: (arm[STOPPED], arm["policy"]), default=None)
    pair = best["against"].get(rival["policy"]) if rival else None
    calmer = _calmer(best["policy"], rival["policy"], pair["interval"]) if rival and pair else ""
    return Recommendation(
        state,
        racks,
        best["scenarios"],
        best["policy"],
        best["standbys"],
        best[STOPPED],
        best["worst_load_p90"],
        best["cold_moves_p90"],
        best["moved_p90"],
        {metric: best[f"{metric}_interval"] for metric in TOLD},
        f"{rival['policy']}, standbys {rival['standbys']}" if rival else "",
        rival[STOPPED] if rival else None,
        rival[f"{STOPPED}_interval"] if rival else None,
        pair["mean"] if pair else None,
        pair["interval"] if pair else None,
        calmer,
        _verdict(best["policy"], calmer),
        chosen_at,
    )


def _calmer(policy: str, rival: str, interval: Sequence[float] | None) -> str:
    if interval is None or interval[0] <= 0 <= interval[1]:
        return "even"
    return policy if interval[1] < 0 else rival


def _verdict(policy: str, calmer: str) -> str:
    if calmer == policy:
        return CHANGE
    if not calmer:
        return "keep: no other policy was played under the same conditions"
    if calmer == "even":
        return "keep: the interval over the scenarios includes zero"
    return f"keep: {calmer} stops less"


def _close_to_best(arms: Sequence[Mapping[str, Any]], metric: str) -> list[Mapping[str, Any]]:
    limit = min(arm[metric] for arm in arms) * CLOSE
    return [arm for arm in arms if arm[metric] <= limit]
