"""What the group did: pure DataFrame -> DataFrame functions from parsed ledger lines to history tables.

Every function takes what the one before gives and touches nothing else; batch and streaming call the
same ones. Days are UTC days. Nothing is counted twice: a decision is known by its group and id, an
active placement by its decision and partition, a recovery or a sample by all it says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.pipeline.schema import LEADER_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

DECISION_KEY = ("group_id", "decision_id")
#: The key of ``config`` that names a release; decisions without it count under this label.
DEPLOY = "deploy"
TASKS = ("tasks_moved", "tasks_cold", "tasks_orphaned")
UNNAMED = "(unnamed)"


def total(name: str, *, over: WindowSpec | None = None) -> Column:
    """The sum of a column of longs; beyond a long it is the largest one, for Spark would stop the job."""
    summed = F.try_sum(name) if over is None else F.try_sum(name).over(over)
    return F.coalesce(summed, F.lit(2**63 - 1)).cast("long").alias(name)


def rows(parsed: DataFrame, table: str) -> DataFrame:
    """The accepted lines of one table, as that table."""
    return parsed.where(F.col(table).isNotNull()).select(f"{table}.*")


def decisions(parsed: DataFrame) -> DataFrame:
    """``group_id, decision_id, dt, ts, policy, deploy, members, trigger, solve_ms``: each decision once.

    Of lines that disagree under one id the earliest stands (then the smallest), whoever wrote first.
    """
    deploy = F.coalesce(F.col("config")[DEPLOY], F.lit(UNNAMED)).alias(DEPLOY)
    told = rows(parsed, "decision").select(
        *DECISION_KEY,
        F.struct(
            "ts",
            "policy",
            deploy,
            F.col("members.member_id").alias("members"),
            "trigger",
            "solve_ms",
        ).alias("said"),
    )
    return (
        told.groupBy(*DECISION_KEY)
        .agg(F.min("said").alias("said"))
        .select(*DECISION_KEY, F.to_date("said.ts").alias("dt"), "said.*")
        .withColumn("members", F.array_distinct("members"))
    )


def actives(parsed: DataFrame) -> DataFrame:
    """Active placements, one for each decision and partition: who got it, and how."""
    said = F.struct("member_id", "prev_member_id", "moved", "standby_hit", "cold").alias("said")
    return (
        rows(parsed, "assignment")
        .where("role = 'active'")
        .groupBy(*DECISION_KEY, "topic", "partition")
        .agg(F.min(said).alias("said"))
        .select(*DECISION_KEY, "topic", "partition", "said.*")
    )


def outcomes(decided: DataFrame, placed: DataFrame) -> DataFrame:
    """One row for each decision: what it moved, how even it was; further rows for lost decisions.

    ``assigned, moved, cold_moves, standby_hits`` count its active placements; ``spread`` is the most
    minus the fewest of them on one of its members, ``idle`` the members without any (0 and 0 when it has
    no members). A row without ``dt`` stands for placements whose decision the ledger does not hold: they
    have no day and count nowhere.
    """
    loads = placed.groupBy(*DECISION_KEY, "member_id").agg(
        F.count("*").alias("held"),
        F.count_if("moved").alias("moved"),
        F.count_if(F.col("moved") & F.col("cold")).alias("cold"),
        F.count_if("standby_hit").alias("hits"),
    )
    per_decision = loads.groupBy(*DECISION_KEY).agg(
        *(F.sum(name).alias(name) for name in ("held", "moved", "cold", "hits")),
        F.map_from_entries(F.collect_list(F.struct("member_id", "held"))).alias("loads"),
    )
    joined = decided.join(per_decision, list(DECISION_KEY), "full_outer")
    held = F.transform(
        F.coalesce("members", F.array()),
        lambda member: F.coalesce(F.try_element_at("loads", member), F.lit(0)),
    )
    even = joined.withColumn("held_by", held).join(
        _tasks(decided, placed), list(DECISION_KEY), "left"
    )
    counts = (
        ("assigned", "held"),
        ("moved", "moved"),
        ("cold_moves", "cold"),
        ("standby_hits", "hits"),
        *((name, name) for name in TASKS),
    )
    return even.select(
        *DECISION_KEY,
        "dt",
        "ts",
        "policy",
        "deploy",
        "trigger",
        "solve_ms",
        F.size(F.coalesce("members", F.array())).alias("members"),
        *(F.coalesce(column, F.lit(0)).cast("long").alias(name) for name, column in counts),
        F.coalesce(F.array_max("held_by") - F.array_min("held_by"), F.lit(0)).alias("spread"),
        F.size(F.filter("held_by", lambda load: load == 0)).alias("idle"),
    )


def _tasks(decided: DataFrame, placed: DataFrame) -> DataFrame:
    """``TASKS`` for each decision that moved any: tasks that moved, cold ones, those whose owner was gone.

    Topics of one partition count travel together: a task is a count and a number.
    """
    topic = Window.partitionBy(*DECISION_KEY, "topic")
    sized = placed.withColumn("count", F.max("partition").over(topic))
    moved = sized.where(F.col("moved") & ~F.col("topic").endswith(LEADER_TOPIC)).join(
        decided.select(*DECISION_KEY, "members"), list(DECISION_KEY)
    )
    task = F.struct("count", "partition")
    stays = F.coalesce(F.array_contains("members", F.col("prev_member_id")), F.lit(False))
    return moved.groupBy(*DECISION_KEY).agg(
        F.count_distinct(task).alias("tasks_moved"),
        F.count_distinct(F.when(F.col("cold"), task)).alias("tasks_cold"),
        F.count_distinct(F.when(~stays, task)).alias("tasks_orphaned"),
    )


def longest_recoveries(recovered: DataFrame) -> DataFrame:
    """``longest_recovery_s`` for each decision after which anything had to be brought up."""
    return recovered.groupBy(*DECISION_KEY).agg(F.max("seconds").alias("longest_recovery_s"))


def sums() -> list[Column]:
    """Of all decisions: the first and the last (microseconds), and the tasks they moved."""
    return [
        F.unix_micros(F.min("ts")).alias("first"),
        F.unix_micros(F.max("ts")).alias("last"),
        F.sum("tasks_moved").alias("tasks_moved"),
        F.sum("tasks_cold").alias("tasks_cold"),
    ]


def movement(outcome: DataFrame) -> DataFrame:
    """How many partitions each policy moved, each day, and how many of those landed cold."""
    return outcome.where("dt is not null").groupBy("group_id", "dt", "policy").agg(*_moves())


def movement_by_deploy(outcome: DataFrame) -> DataFrame:
    """The same numbers for each deploy (``config['deploy']``), since its ``first`` decision."""
    kept = outcome.where("dt is not null")
    return kept.groupBy("group_id", "deploy", "policy").agg(F.min("ts").alias("first"), *_moves())


def _moves() -> list[Column]:
    sums = ("assigned", "moved", "cold_moves", "standby_hits")
    return [
        F.count("*").alias("decisions"),
        *(F.sum(name).cast("long").alias(name) for name in sums),
    ]


def balance(outcome: DataFrame) -> DataFrame:
    """Worst and mean spread of each policy's decisions, each day, and how many members went idle."""
    return (
        outcome.where("dt is not null")
        .groupBy("group_id", "dt", "policy")
        .agg(
            F.max("spread").cast("double").alias("max_spread"),
            F.avg("spread").alias("mean_spread"),
            F.sum("idle").cast("long").alias("idle_members"),
        )
    )


def recoveries(parsed: DataFrame) -> DataFrame:
    """Each measured recovery once, with its day (that of its start) and its ``seconds``."""
    micros = F.unix_micros("ended") - F.unix_micros("started")
    return (
        rows(parsed, "recovery")
        .dropDuplicates()
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
    """Each partition sample once, with its day; an amount below zero (a counter was reset) is none."""
    kept = rows(parsed, "partition_sample").dropDuplicates().withColumn("dt", F.to_date("ts"))
    return kept.withColumns(
        {
            name: F.greatest(F.col(name), F.lit(0).cast("long"))
            for name in ("records_in", "bytes_in")
        }
    )


def skew(sampled: DataFrame) -> DataFrame:
    """Each partition's records and bytes of a day, and its share of its topic's records that day."""
    per_partition = sampled.groupBy("group_id", "dt", "topic", "partition").agg(
        total("records_in"),
        total("bytes_in"),
    )
    topic = Window.partitionBy("group_id", "dt", "topic")
    in_all = per_partition.withColumn("total", total("records_in", over=topic))
    # A topic that saw nothing has no heavy partition: everyone's share is 0.
    share = F.when(F.col("total") != 0, F.col("records_in") / F.col("total")).otherwise(F.lit(0.0))
    return in_all.select(
        "group_id", "dt", "topic", "partition", "records_in", "bytes_in", share.alias("share")
    )
