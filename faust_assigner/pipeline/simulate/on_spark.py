"""The facts of a ledger that a simulation needs, computed on Spark; ``facts.py`` needs no Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.ledger import WEIGHTLESS
from faust_assigner.pipeline.ledgers.sources import rows_of
from faust_assigner.pipeline.rows import EPOCH, DecisionRow
from faust_assigner.pipeline.simulate.facts import (
    Facts,
    TopicFact,
    decision_at,
    decision_times,
    weightless_topics,
)
from faust_assigner.pipeline.simulate.measured import RecoveryFact
from faust_assigner.pipeline.weights.on_spark import collect_rates
from faust_assigner.pipeline.weights.rates import NO_DECAY, PartitionRate

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

#: The entries of a decision's config that a simulation needs.
REPLAYED_CONFIG = (WEIGHTLESS, "replicas")
WHO = ("group_id", "decision_id", "member_id")


def facts_on_spark(parsed: DataFrame) -> Facts:
    """Compute :func:`faust_assigner.pipeline.simulate.facts.facts_of` for a ledger of any size.

    The driver collects the decisions, one row per topic and per partition, and two rows per decision and
    member.
    """
    decisions = _decisions(parsed)
    return Facts(
        tuple(decisions),
        tuple(_topics(parsed)),
        tuple(collect_rates(rows_of(parsed, "partition_sample"), half_life_s=NO_DECAY)),
        tuple(_recoveries(parsed)),
        _last_seen(parsed, decisions),
        _outcomes(parsed, decisions),
        *_halves(parsed),
    )


def _outcomes(
    parsed: DataFrame, decisions: list[DecisionRow]
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return (group, decision) -> (moved tasks, cold moves); topics of one partition count move together."""
    topic = ["group_id", "topic"]
    idle = parsed.sparkSession.createDataFrame(
        sorted(weightless_topics(decisions)), "group_id string, topic string"
    )
    actives = rows_of(parsed, "assignment").where("role = 'active'")
    actives = actives.join(F.broadcast(idle), topic, "left_anti")
    counts = actives.groupBy(*topic).agg(F.max("partition").alias("count"))
    task = F.struct("count", "partition")
    found = (
        actives.where("moved")
        .join(F.broadcast(counts), topic)
        .groupBy("group_id", "decision_id")
        .agg(
            F.count_distinct(task).alias("moved"),
            F.count_distinct(F.when(F.col("cold"), task)).alias("cold"),
        )
        .collect()
    )
    return {(row.group_id, row.decision_id): (row.moved, row.cold) for row in found}


def _halves(parsed: DataFrame) -> tuple[tuple[PartitionRate, ...], tuple[PartitionRate, ...]]:
    """Return the rates before and after the middle of the samples' time."""
    samples = rows_of(parsed, "partition_sample")
    at = F.unix_micros("ts")
    low, high = samples.agg(F.min(at), F.max(at)).collect()[0]
    if low is None:
        return (), ()
    middle = low + (high - low) / 2
    return (
        tuple(collect_rates(samples.where(at < middle))),
        tuple(collect_rates(samples.where(at >= middle), half_life_s=NO_DECAY)),
    )


def _recoveries(parsed: DataFrame) -> list[RecoveryFact]:
    """Return one fact per decision and member; a duplicate row counts once."""
    micros = F.unix_micros(F.max("ended")) - F.unix_micros(F.min("started"))
    told = rows_of(parsed, "recovery").dropDuplicates()
    found = (
        told.groupBy(*WHO)
        .agg(
            (micros / F.lit(1e6)).alias("seconds"),
            F.sum("records").alias("records"),
            F.max(F.col("source") == "replay").alias("cold"),
        )
        .collect()
    )
    return sorted(RecoveryFact(**row.asDict()) for row in found)


def _last_seen(
    parsed: DataFrame, decisions: list[DecisionRow]
) -> dict[tuple[str, str, str], dt.datetime]:
    """Return the last sample of each owner's partitions; a sample belongs to the decision before it."""
    times = decision_times(decisions)

    def dated(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            moments = [EPOCH + dt.timedelta(milliseconds=at) for at in frame["at_ms"].tolist()]
            names = [
                decision_at(times.get(group, ((), ())), at)
                for group, at in zip(frame["group_id"], moments, strict=True)
            ]
            yield frame.assign(decision_id=names)

    samples = rows_of(parsed, "partition_sample").select(
        "group_id", "topic", "partition", F.unix_millis("ts").alias("at_ms")
    )
    samples = samples.mapInPandas(
        dated, "group_id string, topic string, partition int, at_ms long, decision_id string"
    )
    task = ("group_id", "decision_id", "topic", "partition")
    owners = (
        rows_of(parsed, "assignment").where("role = 'active'").select(*task, "member_id").distinct()
    )
    latest = samples.groupBy(*task).agg(F.max("at_ms").alias("at_ms")).join(owners, list(task))
    found = latest.groupBy(*WHO).agg(F.max("at_ms").alias("at_ms")).collect()
    return {
        (row.group_id, row.decision_id, row.member_id): EPOCH + dt.timedelta(milliseconds=row.at_ms)
        for row in found
    }


def _decisions(parsed: DataFrame) -> list[DecisionRow]:
    """Return each decision once, in order of time; of several rows with one id the earliest is kept."""
    # The minimum needs an order and Spark cannot order maps, so the map's needed entries become a struct.
    config = F.struct(*(F.col("config").getItem(name).alias(name) for name in REPLAYED_CONFIG))
    told = F.struct(
        F.unix_millis("ts").alias("at_ms"),
        "trigger",
        "members",
        "session_timeout_s",
        config.alias("config"),
    )
    found = (
        rows_of(parsed, "decision")
        .groupBy("group_id", "decision_id")
        .agg(F.min(told).alias("said"))
        .select("group_id", "decision_id", "said.*")
        .collect()
    )
    return [
        {
            "group_id": row.group_id,
            "decision_id": row.decision_id,
            "trigger": row.trigger,
            "session_timeout_s": row.session_timeout_s,
            "ts": EPOCH + dt.timedelta(milliseconds=row.at_ms),
            "members": [member.asDict() for member in row.members],
            "config": {
                name: value for name, value in row.config.asDict().items() if value is not None
            },
        }
        for row in sorted(found, key=lambda row: (row.at_ms, row.group_id, row.decision_id))
    ]


def _topics(parsed: DataFrame) -> list[TopicFact]:
    """Return one row per topic: its highest partition number plus one, and whether the topic has state."""
    placed = rows_of(parsed, "assignment").select(
        "group_id", "topic", "partition", (F.col("role") != "active").alias("stateful")
    )
    recovered = rows_of(parsed, "recovery").select(
        "group_id", "topic", "partition", F.lit(True).alias("stateful")
    )
    found = (
        placed.unionByName(recovered)
        .groupBy("group_id", "topic")
        .agg((F.max("partition") + 1).alias("partitions"), F.max("stateful").alias("stateful"))
        .collect()
    )
    return sorted(TopicFact(row.group_id, row.topic, row.partitions, row.stateful) for row in found)
