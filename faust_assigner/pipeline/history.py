"""What the group did: pure DataFrame -> DataFrame functions from parsed ledger lines to history tables.

Every function takes what the one before gives and touches nothing else; batch and streaming call the
same ones. Days are UTC days. Nothing is counted twice: a decision is known by its group and id, an
active placement by its decision and partition, a recovery or a sample by all it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.pipeline.quarantine import quarantined

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DECISION_KEY = ("group_id", "decision_id")
#: The key of ``config`` that names a release; decisions without it count under this label.
DEPLOY = "deploy"
UNNAMED = "(unnamed)"


def history(parsed: DataFrame) -> Mapping[str, DataFrame]:
    """The tables ``history`` writes, by name, from lines in the parsed schema."""
    decided = decisions(parsed)
    placed = actives(parsed)
    return {
        "movement": movement(decided, placed),
        "balance": balance(spreads(decided, placed)),
        "recovery": recovery(recoveries(parsed)),
        "skew": skew(samples(parsed)),
        "quarantine": quarantined(parsed),
    }


def total(name: str) -> Column:
    """The sum of a column of longs; beyond a long it is the largest one, for Spark would stop the job."""
    return F.coalesce(F.try_sum(name), F.lit(2**63 - 1)).cast("long").alias(name)


def rows(parsed: DataFrame, table: str) -> DataFrame:
    """The accepted lines of one table, as that table."""
    return parsed.where(F.col(table).isNotNull()).select(f"{table}.*")


def decisions(parsed: DataFrame) -> DataFrame:
    """``group_id, decision_id, dt, ts, policy, deploy, members``: each decision once.

    Of lines that disagree under one id the earliest stands (then the smallest), whoever wrote first.
    """
    deploy = F.coalesce(F.col("config")[DEPLOY], F.lit(UNNAMED)).alias(DEPLOY)
    told = rows(parsed, "decision").select(
        *DECISION_KEY,
        F.struct("ts", "policy", deploy, F.col("members.member_id").alias("members")).alias("said"),
    )
    return (
        told.groupBy(*DECISION_KEY).agg(F.min("said").alias("said"))
        .select(*DECISION_KEY, F.to_date("said.ts").alias("dt"), "said.*")
        .withColumn("members", F.array_distinct("members"))
    )


def actives(parsed: DataFrame) -> DataFrame:
    """Active placements, one for each decision and partition: who got it, and how."""
    said = F.struct("member_id", "prev_member_id", "moved", "standby_hit", "cold").alias("said")
    return (
        rows(parsed, "assignment").where("role = 'active'")
        .groupBy(*DECISION_KEY, "topic", "partition").agg(F.min(said).alias("said"))
        .select(*DECISION_KEY, "topic", "partition", "said.*")
    )


def without_decision(parsed: DataFrame) -> DataFrame:
    """Active placements whose decision the ledger does not hold: they have no day and count nowhere."""
    return actives(parsed).join(decisions(parsed), list(DECISION_KEY), "left_anti")


def movement(decided: DataFrame, placed: DataFrame) -> DataFrame:
    """How many partitions each policy moved, each day, and how many of those landed cold."""
    return _moves(decided, placed, "dt", "policy")


def movement_by_deploy(decided: DataFrame, placed: DataFrame) -> DataFrame:
    """The same numbers for each deploy (``config['deploy']``), with the first decision's time."""
    return _moves(decided, placed, "deploy", "policy", first=F.min("ts"))


def _moves(decided: DataFrame, placed: DataFrame, *by: str, **more: Column) -> DataFrame:
    """Sums over active placements; ``more`` are further aggregates by name."""
    per_decision = placed.groupBy(*DECISION_KEY).agg(
        F.count("*").alias("assigned"),
        F.count_if("moved").alias("moved"),
        F.count_if(F.col("moved") & F.col("cold")).alias("cold_moves"),
        F.count_if("standby_hit").alias("standby_hits"),
    )
    totals = (
        F.coalesce(F.sum(name), F.lit(0)).cast("long").alias(name)
        for name in ("assigned", "moved", "cold_moves", "standby_hits")
    )
    return (
        decided.join(per_decision, list(DECISION_KEY), "left")
        .groupBy("group_id", *by)
        .agg(F.count("*").alias("decisions"), *totals, *(c.alias(name) for name, c in more.items()))
    )


def spreads(decided: DataFrame, placed: DataFrame) -> DataFrame:
    """``…decision, dt, policy, deploy, spread, idle``: the evenness of each decision over its members.

    Spread is the most minus the fewest active partitions of a member; a decision without members
    has spread 0 and nobody idle.
    """
    counts = placed.groupBy(*DECISION_KEY, "member_id").agg(F.count("*").alias("held"))
    per_member = (
        decided.withColumn("member_id", F.explode_outer("members"))
        .join(counts, [*DECISION_KEY, "member_id"], "left")
        .withColumn("held", F.coalesce("held", F.lit(0)))
    )
    return per_member.groupBy(*DECISION_KEY, "dt", "policy", "deploy").agg(
        (F.max("held") - F.min("held")).alias("spread"),
        F.count_if(F.col("member_id").isNotNull() & (F.col("held") == 0)).alias("idle"),
    )


def balance(spread: DataFrame) -> DataFrame:
    """Worst and mean spread of each policy's decisions, each day, and how many members went idle."""
    return spread.groupBy("group_id", "dt", "policy").agg(
        F.max("spread").cast("double").alias("max_spread"),
        F.avg("spread").alias("mean_spread"),
        F.sum("idle").cast("long").alias("idle_members"),
    )


def recoveries(parsed: DataFrame) -> DataFrame:
    """Each measured recovery once, with its day (that of its start) and its ``seconds``."""
    micros = F.unix_micros("ended") - F.unix_micros("started")
    return (
        rows(parsed, "recovery").dropDuplicates()
        .withColumn("dt", F.to_date("started"))
        .withColumn("seconds", micros / F.lit(1e6))
    )


def recovery(recovered: DataFrame) -> DataFrame:
    """How long recoveries took by cause: exact percentiles, linear between neighbours."""
    return recovered.groupBy("group_id", "dt", "source").agg(
        F.count("*").alias("recoveries"),
        total("records"),
        F.percentile("seconds", 0.5).alias("p50_s"),
        F.percentile("seconds", 0.9).alias("p90_s"),
        F.max("seconds").alias("max_s"),
    )


def slowest(recovered: DataFrame) -> DataFrame:
    """The partitions that took longest to come back: their worst time, and how often they had to."""
    return recovered.groupBy("group_id", "topic", "partition").agg(
        F.count("*").alias("recoveries"),
        total("records"),
        F.max("seconds").alias("max_s"),
        F.max_by("source", "seconds").alias("source"),
    )


def samples(parsed: DataFrame) -> DataFrame:
    """Each partition sample once, with its day."""
    return rows(parsed, "partition_sample").dropDuplicates().withColumn("dt", F.to_date("ts"))


def skew(sampled: DataFrame) -> DataFrame:
    """Each partition's records and bytes of a day, and its share of its topic's records that day."""
    per_partition = sampled.groupBy("group_id", "dt", "topic", "partition").agg(
        total("records_in"),
        total("bytes_in"),
    )
    per_topic = per_partition.groupBy("group_id", "dt", "topic").agg(total("records_in").alias("total"))
    # A topic that saw nothing has no heavy partition: everyone's share is 0.
    share = F.when(F.col("total") != 0, F.col("records_in") / F.col("total")).otherwise(F.lit(0.0))
    return per_partition.join(per_topic, ["group_id", "dt", "topic"]).select(
        "group_id", "dt", "topic", "partition", "records_in", "bytes_in", share.alias("share")
    )
