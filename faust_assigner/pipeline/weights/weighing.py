"""Compute weights from rates: a weight is a task's cost relative to the median task of its group."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from faust_assigner.errors import ConfigError
from faust_assigner.model import Floats
from faust_assigner.pipeline.rows import grouped
from faust_assigner.pipeline.weights.rates import PartitionRate, records_kept
from faust_assigner.weights.document import WeightRow, millis
from faust_assigner.weights.limits import DEFAULT_LIMITS, Limits, clamp_to_median

#: A worker's measured replay rate (faust-streaming 0.15.3).
REPLAY_RECORDS_PER_S = 3_700.0
#: The costs from which weights can be learned; ``blend`` is the mean of the shares of all measured costs.
COSTS = ("blend", "cpu", "records", "bytes")


def weigh(
    rates: Sequence[PartitionRate],
    *,
    computed_at: dt.datetime,
    by: str = "blend",
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[int, list[WeightRow]]:
    """Return the version and the rows of the table ``partition_weight``.

    ``by`` names the cost from which weights are learned (one of COSTS). The version is the time of the newest
    sample in milliseconds, so equal samples give equal versions. Raises ConfigError for an unknown ``by``.
    """
    if by not in COSTS:
        raise ConfigError(f"weights by {by!r}: one of {', '.join(COSTS)}")
    if not rates:
        return 0, []
    version = millis(max(rate.newest for rate in rates))
    rows = []
    for mine in grouped(sorted(rates), attrgetter("group_id")).values():
        day = max(rate.newest for rate in mine).date().isoformat()
        weights = _task_weights(mine, _costs(mine, by), limits)
        rows += [
            _row(rate, round(weight, 6), day, version, computed_at)
            for rate, weight in zip(mine, weights, strict=True)
        ]
    return version, rows


def _task_weights(rates: Sequence[PartitionRate], costs: Floats, limits: Limits) -> list[float]:
    """Return each partition's weight: its task's cost, relative to the median task, within ``limits``.

    The cost of a task is the sum over its topics. The median is taken over tasks: quiet topics and changelogs
    would lower a median over partitions, and all partitions of a busy topic would get the highest weight.
    Topics with the same highest sampled partition number are one group, as in the planner if all members
    subscribe to all topics.
    """
    highest: dict[str, int] = {}
    for rate in rates:
        highest[rate.topic] = max(highest.get(rate.topic, 0), rate.partition)
    tasks = [(highest[rate.topic], rate.partition) for rate in rates]
    summed = dict.fromkeys(tasks, 0.0)
    for task, cost in zip(tasks, costs.tolist(), strict=True):
        summed[task] += cost
    weights = dict(
        zip(summed, clamp_to_median(list(summed.values()), limits).tolist(), strict=True)
    )
    return [weights[task] for task in tasks]


def _costs(rates: Sequence[PartitionRate], by: str) -> Floats:
    """Return float64[n]: the cost of each partition per second.

    With ``blend`` the cost is the mean of its shares of the group's CPU time, records and bytes.

    Bytes and CPU time are estimated for the arrived records, from the mean per consumed record of the
    partition. If no record of the partition was consumed, the mean of its topic is used.
    """
    seconds = np.array([rate.covered_ms for rate in rates]) / 1_000.0
    arrived = _arrived(rates)
    found = {"records": arrived / seconds}
    for name in ("cpu", "bytes"):
        took = np.array([rate.cpu_ms if name == "cpu" else rate.bytes_in for rate in rates])
        found[name] = _each_took(rates, took, arrived) / seconds
    if by != "blend":
        return found[by]
    shares = [
        found[name] / found[name].sum()
        for name in ("cpu", "records", "bytes")
        if found[name].sum() > 0
    ]
    return np.asarray(np.mean(shares, axis=0)) if shares else np.zeros(len(rates))


def _arrived(rates: Sequence[PartitionRate]) -> Floats:
    moved = {(rate.group_id, rate.topic) for rate in rates if rate.moved}
    return np.array(
        [
            rate.arrived if (rate.group_id, rate.topic) in moved else rate.records_in
            for rate in rates
        ]
    )


def _each_took(rates: Sequence[PartitionRate], took: Floats, arrived: Floats) -> Floats:
    """Scale ``took``, the cost of the consumed records, to the ``arrived`` records."""
    consumed = np.array([rate.records_in for rate in rates])
    topics = [(rate.group_id, rate.topic) for rate in rates]
    summed: dict[tuple[str, str], list[float]] = {}
    for topic, count, amount in zip(topics, consumed.tolist(), took.tolist(), strict=True):
        mine = summed.setdefault(topic, [0.0, 0.0])
        mine[0] += count
        mine[1] += amount
    usual = np.array([summed[topic][1] / (summed[topic][0] or 1.0) for topic in topics])
    each = np.where(consumed > 0, took / np.where(consumed > 0, consumed, 1.0), usual)
    # A partition without consumed and arrived records (an idle changelog) keeps its measured cost.
    return np.asarray(np.where((consumed > 0) | (arrived > 0), arrived * each, took))


def _row(
    rate: PartitionRate, weight: float, day: str, version: int, computed_at: dt.datetime
) -> WeightRow:
    seconds = rate.covered_ms / 1_000.0
    return WeightRow(
        rate.group_id,
        day,
        version,
        computed_at,
        rate.topic,
        rate.partition,
        weight,
        round(rate.bytes_in / seconds, 6),
        round(rate.arrived_per_s, 6),
        round(rate.cpu_ms / seconds, 6),
        rate.state_bytes,
        round(records_kept(rate) / REPLAY_RECORDS_PER_S, 6),
        rate.samples,
        rate.newest,
        round(rate.confidence, 4),
    )
