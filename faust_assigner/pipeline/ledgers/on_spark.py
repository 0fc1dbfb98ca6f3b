"""Parsed ledger lines on Spark, for ``simulate``: a table's rows, distinct decisions and their effects.

Pure DataFrame -> DataFrame functions. The key of a decision is its group and id; the key of an active
placement is its decision and partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.pipeline.schema import LEADER_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DECISION_KEY = ("group_id", "decision_id")
#: The key of ``config`` that names a release; a decision without it counts under UNNAMED.
DEPLOY = "deploy"
TASKS = ("tasks_moved", "tasks_cold", "tasks_orphaned")
UNNAMED = "(unnamed)"


def rows(parsed: DataFrame, table: str) -> DataFrame:
    """The accepted lines of one table, in the table's columns."""
    return parsed.where(F.col(table).isNotNull()).select(f"{table}.*")


def decisions(parsed: DataFrame) -> DataFrame:
    """``group_id, decision_id, dt, ts, policy, deploy, members, trigger, solve_ms``: each decision once.

    Of different lines with one id the earliest is taken, then the smallest; their order does not matter.
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
    """Active placements, one per decision and partition: the owner, the previous owner, the kind of move."""
    said = F.struct("member_id", "prev_member_id", "moved", "standby_hit", "cold").alias("said")
    return (
        rows(parsed, "assignment")
        .where("role = 'active'")
        .groupBy(*DECISION_KEY, "topic", "partition")
        .agg(F.min(said).alias("said"))
        .select(*DECISION_KEY, "topic", "partition", "said.*")
    )


def outcomes(decided: DataFrame, placed: DataFrame) -> DataFrame:
    """One row per decision with its moves and its balance, and one row per missing decision.

    ``assigned, moved, cold_moves, standby_hits`` count the decision's active placements. ``spread`` is the
    highest minus the lowest number of placements on a member; ``idle`` counts members without placements
    (both are 0 without members). A row without ``dt`` is of placements whose decision the ledger does not
    hold; these have no day and are counted nowhere.
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
    """``TASKS`` of each decision with moves: moved tasks, cold moves, moved tasks whose owner was gone.

    Topics with equal partition counts move together: a task is (partition count, partition number).
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
