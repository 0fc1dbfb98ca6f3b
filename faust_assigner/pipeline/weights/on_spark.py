"""Compute rates from samples on Spark, in the steps of ``rates.py``.

The driver collects one row per partition and no samples. It computes the weights without Spark, because a
weight is relative to the median over all tasks of a group.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from pyspark.sql.window import Window

from faust_assigner.pipeline.rows import EPOCH
from faust_assigner.pipeline.weights.rates import (
    HALF_LIFE_S,
    HOLE,
    HOUR_MS,
    MOST_HALVED,
    NOMINAL_INTERVAL_MS,
    PartitionRate,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KEY = ("group_id", "topic", "partition")
#: The columns that are summed over the samples, each weighted by its age.
SUMS = ("covered_ms", "records_in", "bytes_in", "cpu_ms", "arrived")
AMOUNTS = ("records_in", "bytes_in", "cpu_ms", "state_bytes", "end_offset")


def distinct_samples(samples: DataFrame) -> DataFrame:
    """Return ``samples`` with each (group, topic, partition, ts) once and without negative amounts."""
    said = F.max(F.struct(*(_at_least_zero(name) for name in AMOUNTS))).alias("said")
    return (
        samples.groupBy(*KEY, F.unix_millis("ts").alias("at_ms"))
        .agg(said)
        .select(*KEY, "at_ms", "said.*")
    )


def covered(distinct: DataFrame, half_life_s: float = HALF_LIFE_S) -> DataFrame:
    """Return the samples with three more columns, by the rules in ``rates.py``.

    ``covered_ms`` is the time that a sample covers, ``arrived`` the records that arrived in this time, and
    ``counts`` the weight of a sample by its age.
    """
    order = Window.partitionBy(*KEY).orderBy("at_ms")
    spaced = distinct.withColumns(
        {
            "gap_ms": F.col("at_ms") - F.lag("at_ms").over(order),
            "came": F.greatest(F.col("end_offset") - F.lag("end_offset").over(order), F.lit(0)),
        }
    )
    typical = spaced.groupBy("group_id").agg(
        F.coalesce(F.percentile("gap_ms", 0.5), F.lit(NOMINAL_INTERVAL_MS)).alias("typical_ms"),
        F.max("at_ms").alias("newest_ms"),
    )
    # For a partition's first sample ``gap_ms`` is null, so the comparison is null and ``otherwise`` applies.
    own = F.when(F.col("gap_ms") <= HOLE * F.col("typical_ms"), F.col("gap_ms").cast("double"))
    timed = spaced.join(F.broadcast(typical), "group_id").withColumn(
        "covered_ms", own.otherwise(F.col("typical_ms"))
    )
    share = F.col("covered_ms") / F.col("gap_ms")
    age = (F.col("newest_ms") - F.col("at_ms")) / F.lit(1000.0 * half_life_s)
    return timed.withColumns(
        {
            "arrived": F.coalesce(F.col("came") * share, F.col("records_in").cast("double")),
            "counts": F.pow(F.lit(0.5), F.least(age, F.lit(MOST_HALVED))),
        }
    )


def rates(samples: DataFrame, half_life_s: float = HALF_LIFE_S) -> DataFrame:
    """Return one row per partition with the fields of :class:`PartitionRate`; ``newest`` in milliseconds."""
    return (
        _by_hour(covered(distinct_samples(samples), half_life_s))
        .groupBy(*KEY)
        .agg(
            F.sum("samples").alias("samples"),
            *(F.sum(name).alias(name) for name in SUMS),
            (F.max("high") - F.min("low")).alias("moved"),
            F.max_by("state_bytes", "newest").alias("state_bytes"),
            F.max("newest").alias("newest"),
            F.max_by("end_offset", "newest").alias("end_offset"),
            F.count("*").alias("hours"),
            _standard_error().alias("error"),
        )
    )


def _by_hour(timed: DataFrame) -> DataFrame:
    """Return one row per partition and hour; ``mine``, ``all``: the records of the partition, of its group.

    Both counts are weighted by the samples' age.
    """
    flow = F.greatest("arrived", F.col("records_in").cast("double"))
    hours = (
        timed.withColumn("hour", F.floor(F.col("at_ms") / HOUR_MS))
        .groupBy(*KEY, "hour")
        .agg(
            F.count("*").alias("samples"),
            *(F.sum(F.col("counts") * F.col(name)).alias(name) for name in SUMS),
            F.sum(F.col("counts") * flow).alias("mine"),
            F.max("end_offset").alias("high"),
            F.min("end_offset").alias("low"),
            F.max_by("state_bytes", "at_ms").alias("state_bytes"),
            F.max("at_ms").alias("newest"),
            F.max_by("end_offset", "at_ms").alias("end_offset"),
        )
    )
    # A window is used, because a join would compute the hours twice.
    return hours.withColumn("all", F.sum("mine").over(Window.partitionBy("group_id", "hour")))


def _standard_error() -> Column:
    """Return the relative standard error over the hours of a partition, as in ``rates.py``."""
    count, total = F.count("*"), F.sum("mine")
    # Some versions of Spark raise an error for a division by zero.
    above_zero = F.lit(5e-324)
    ratio = total / F.greatest(F.sum("all"), above_zero)
    squares = (
        F.sum(F.col("mine") * F.col("mine"))
        - 2 * ratio * F.sum(F.col("mine") * F.col("all"))
        + ratio * ratio * F.sum(F.col("all") * F.col("all"))
    )
    spread = F.greatest(squares, F.lit(0.0)) * count / F.greatest(count - 1, F.lit(1))
    error = F.sqrt(spread) / F.greatest(total, above_zero)
    return F.when(count < 2, F.lit(math.inf)).when(total == 0, F.lit(0.0)).otherwise(error)


def collect_rates(samples: DataFrame, *, half_life_s: float = HALF_LIFE_S) -> list[PartitionRate]:
    """Collect the rates on the driver, in the order of (group, topic, partition)."""
    return sorted(
        PartitionRate(**{**row.asDict(), "newest": EPOCH + dt.timedelta(milliseconds=row.newest)})
        for row in rates(samples, half_life_s).select(*PartitionRate._fields).collect()
    )


def _at_least_zero(name: str) -> Column:
    return F.greatest(F.col(name), F.lit(0).cast("double" if name == "cpu_ms" else "long")).alias(
        name
    )
