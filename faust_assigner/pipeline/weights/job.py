"""The job behind ``faust-assigner weights``: learn weights from ledgers, publish and evaluate them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from faust_assigner.errors import ConfigError, FaustAssignerError
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.ledgers.current import GroupState, current_here
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.ledgers.rows import read_here
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.rows import grouped
from faust_assigner.pipeline.snapshots.job import duration_ms
from faust_assigner.pipeline.weights.drift import MAX_DRIFT, check, drift, published
from faust_assigner.pipeline.weights.publish import publish, write_file
from faust_assigner.pipeline.weights.rates import HALF_LIFE_S, PartitionRate, rates_of
from faust_assigner.pipeline.weights.weighing import weigh
from faust_assigner.weights.document import MAX_AGE_S, WeightRow, decode, encode
from faust_assigner.weights.limits import DEFAULT_LIMITS, Limits
from faust_assigner.weights.trial import score

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NothingToLearn(FaustAssignerError, ValueError):
    """The ledgers hold no partition sample."""


@dataclass(frozen=True)
class Request:
    """The command's options; ``out``, or ``topic`` with ``cluster``, or both must be given."""

    ledgers: Sequence[str]
    now: datetime
    out: str | None = None
    cluster: Cluster | None = None
    topic: str | None = None
    by: str = "blend"
    limits: Limits = DEFAULT_LIMITS
    shadow: bool = False
    replicas: int = 1
    max_refused: Tolerance = field(default_factory=Tolerance)
    #: Kafka's client properties, for ledgers that are topics.
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    period: Period = field(default_factory=Period)
    half_life_s: float = HALF_LIFE_S
    #: The highest drift from the published weights; see :mod:`faust_assigner.pipeline.weights.drift`.
    max_drift: float = MAX_DRIFT
    #: The number of each group's newest decisions that ``shadow`` plans again with the new weights.
    decisions: int = 1


@dataclass(frozen=True)
class LedgerSummary:
    """The result of reading the ledgers: rates, the groups' states, and the number of refused lines."""

    rates: Sequence[PartitionRate]
    current: Sequence[GroupState]
    quarantined: int


def learn_here(request: Request, progress: Progress | None = None) -> dict[str, object]:
    """Run the whole job without Spark; return the report."""
    progress = progress or Progress()
    progress.enter("reading the lines")
    refused = Refused()
    progress.follow(refused)
    rows, _ = read_here(
        request.ledgers,
        request.max_refused,
        request.period,
        request.properties,
        refused=refused,
        now=request.now,
    )
    progress.enter("computing rates")
    rates = rates_of(
        (row.values for row in rows if row.table == "partition_sample"),
        half_life_s=request.half_life_s,
    )
    current = current_here(rows, request.decisions) if request.shadow else ()
    return _finish(request, LedgerSummary(rates, current, refused.lines), progress)


def learn_on_spark(
    spark: SparkSession, request: Request, progress: Progress | None = None
) -> dict[str, object]:
    """Run the whole job on ``spark``; return the report. The driver collects one row per partition."""
    from faust_assigner.pipeline.ledgers.current import current_on_spark
    from faust_assigner.pipeline.ledgers.sources import read_checked, rows_of
    from faust_assigner.pipeline.weights.on_spark import collect_rates

    progress = progress or Progress()
    progress.enter("reading the lines")
    parsed, refused = read_checked(
        spark,
        request.ledgers,
        request.max_refused,
        request.properties,
        request.period,
        now=request.now,
    )
    progress.follow(refused)
    progress.enter("computing rates")
    samples = rows_of(parsed, "partition_sample")
    rates = collect_rates(samples, half_life_s=request.half_life_s)
    current = current_on_spark(parsed, request.decisions) if request.shadow else ()
    return _finish(request, LedgerSummary(rates, current, refused.lines), progress)


def half_life_s(text: str) -> float:
    """Parse a duration above zero, such as ``12h`` or ``2d``, into seconds; raise ConfigError otherwise."""
    found = duration_ms(text) / 1000
    if not found:
        raise ConfigError(f"the half-life must be longer than {text!r}")
    return found


def _finish(request: Request, learned: LedgerSummary, progress: Progress) -> dict[str, object]:
    """Compute, write, publish and evaluate the weights; return the report.

    Raises NothingToLearn without samples, and DriftedTooFar. In both cases no weights are written.
    """
    if not learned.rates:
        raise NothingToLearn(
            f"no partition_sample in {', '.join(request.ledgers)} "
            f"({learned.quarantined} lines refused)"
        )
    version, rows = weigh(
        learned.rates, computed_at=request.now, by=request.by, limits=request.limits
    )
    sampled_at: dict[str, datetime] = {}
    for rate in learned.rates:
        sampled_at[rate.group_id] = max(rate.newest, sampled_at.get(rate.group_id, rate.newest))
    document = encode(rows, version=version, computed_at=request.now, sampled_at=sampled_at)
    decode(document)  # raises if assignors would refuse the document
    drifted = drift(published(request.out, request.cluster, request.topic), rows)
    check(drifted, request.max_drift)
    progress.enter("publishing the weights")
    if request.out is not None:
        write_file(request.out, document)
    records = _publish(request, rows, version, sampled_at)
    newest = max(sampled_at.values())
    if learned.current:
        progress.enter(f"scoring {len(learned.current):,} decisions")
    return {
        "version": version,
        "computed_at": request.now.isoformat(),
        "by": request.by,
        "limits": list(request.limits),
        "out": request.out,
        "topic": request.topic,
        "records_published": records,
        "quarantined": learned.quarantined,
        "newest_sample": newest.isoformat(),
        "stale_samples": request.now - newest > timedelta(seconds=MAX_AGE_S),
        "groups": [
            {**_group_report(group_id, mine), "drift": drifted.get(group_id)}
            for group_id, mine in sorted(grouped(rows, attrgetter("group_id")).items())
        ],
        "shadow": [_shadow(current, rows, request) for current in learned.current],
    }


def _publish(
    request: Request, rows: Sequence[WeightRow], version: int, sampled_at: Mapping[str, datetime]
) -> int:
    """Publish the weights if a topic is requested; return the number of records."""
    if request.topic is None or request.cluster is None:
        return 0
    return publish(
        request.cluster,
        request.topic,
        rows,
        version=version,
        computed_at=request.now,
        sampled_at=sampled_at,
    )


def _group_report(group_id: str, rows: Sequence[WeightRow]) -> dict[str, object]:
    newest = max(row.sampled_at for row in rows if row.sampled_at is not None)
    ages = [(newest - row.sampled_at).total_seconds() for row in rows if row.sampled_at is not None]
    heaviest = max(rows, key=lambda row: (row.weight, row.topic, row.partition))
    return {
        "group_id": group_id,
        "partitions": len(rows),
        "samples": sum(row.samples for row in rows),
        "lowest": min(row.weight for row in rows),
        "highest": heaviest.weight,
        "heaviest_partition": f"{heaviest.topic}/{heaviest.partition}",
        "confidence_median": float(np.median([row.confidence for row in rows])),
        "confidence_lowest": min(row.confidence for row in rows),
        "oldest_s": max(ages),
    }


def _shadow(current: GroupState, rows: Sequence[WeightRow], request: Request) -> dict[str, object]:
    """Plan the group of a decision twice, without and with weights, and compare both plans."""
    weights = {
        (row.topic, row.partition): row.weight for row in rows if row.group_id == current.group_id
    }
    found = score(
        current.members,
        current.partitions,
        weights,
        replicas=request.replicas,
        changelogs=current.changelogs,
        weightless=current.weightless,
    )
    name = {"group_id": current.group_id, "decision_id": current.decision_id}
    return {**name, "ts": current.at and current.at.isoformat(), **found.report()}
