"""What of a ledger a replay needs, gathered on Spark; ``recorded.py`` does the same without it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.ledger import WEIGHTLESS
from faust_assigner.pipeline.history.transforms import rows
from faust_assigner.pipeline.simulate.recorded import Facts, TopicFact
from faust_assigner.pipeline.weights.transforms import collect_rates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def facts_on_spark(parsed: DataFrame) -> Facts:
    """:func:`faust_assigner.pipeline.simulate.recorded.facts_of`, of a ledger of any size.

    The driver gets the decisions and one row per topic and per partition.
    """
    return Facts(tuple(_decisions(parsed)), tuple(_topics(parsed)),
                 tuple(collect_rates(rows(parsed, "partition_sample"))))


def _decisions(parsed: DataFrame) -> list[dict[str, Any]]:
    """Each decision once, the earliest of those that share an id, in order of time."""
    # Maps have no order, and the earliest is a minimum; of the config a replay needs no more than this.
    idle = F.coalesce(F.col("config").getItem(WEIGHTLESS), F.lit("")).alias("weightless")
    told = F.struct(F.unix_millis("ts").alias("at_ms"), "trigger", "members", idle)
    found = (
        rows(parsed, "decision").groupBy("group_id", "decision_id").agg(F.min(told).alias("said"))
        .select("group_id", "decision_id", "said.*").collect()
    )
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return [
        {"group_id": row.group_id, "decision_id": row.decision_id, "trigger": row.trigger,
         "ts": epoch + dt.timedelta(milliseconds=row.at_ms),
         "members": [member.asDict() for member in row.members], "config": {WEIGHTLESS: row.weightless}}
        for row in sorted(found, key=lambda row: (row.at_ms, row.group_id, row.decision_id))
    ]


def _topics(parsed: DataFrame) -> list[TopicFact]:
    """One row per topic: its partitions as far as anyone named one, and whether it carries state."""
    placed = rows(parsed, "assignment").select(
        "group_id", "topic", "partition", (F.col("role") != "active").alias("stateful"))
    recovered = rows(parsed, "recovery").select(
        "group_id", "topic", "partition", F.lit(True).alias("stateful"))
    found = placed.unionByName(recovered).groupBy("group_id", "topic").agg(
        (F.max("partition") + 1).alias("partitions"), F.max("stateful").alias("stateful")).collect()
    return sorted(TopicFact(row.group_id, row.topic, row.partitions, row.stateful) for row in found)
