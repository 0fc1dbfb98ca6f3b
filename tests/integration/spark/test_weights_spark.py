"""Weights on Spark against the same steps in plain Python."""

from __future__ import annotations

import datetime as dt
import random

import pytest
from pyspark.sql import SparkSession

from faust_assigner.pipeline.rates import rates_of, weigh
from faust_assigner.pipeline.schema import PARTITION_WEIGHT, TABLES, spark_schema
from faust_assigner.pipeline.weights import collect_rates
from faust_assigner.weights import WeightRow

pytestmark = pytest.mark.spark

NOON = dt.datetime(2026, 11, 21, 12, 0, 0, 123_000, tzinfo=dt.UTC)


def messy_samples(seed: int) -> list[dict[str, object]]:
    """Two groups, three topics; late, duplicated, disagreeing, negative and missing samples."""
    draw = random.Random(seed)
    rows: list[dict[str, object]] = []
    for group in ("shop", "bank"):
        for topic, partitions in (("orders", 6), ("customers", 6), ("rare", 2)):
            for partition in range(partitions):
                at = NOON + dt.timedelta(milliseconds=draw.randrange(10_000))
                for _ in range(draw.randrange(1, 9)):
                    at += dt.timedelta(milliseconds=draw.choice([29_990, 30_000, 30_017, 4_000_000]))
                    records = draw.choice([-5, 0, draw.randrange(1_000 * (partition + 1))])
                    rows.append({
                        "group_id": group, "ts": at, "topic": topic, "partition": partition,
                        "end_offset": 10, "committed_offset": 9, "bytes_in": records * 87,
                        "records_in": records, "cpu_ms": records * 0.37, "state_bytes": draw.randrange(10**9),
                    })
    rows += draw.sample(rows, len(rows) // 4)
    rows += [{**row, "records_in": 17, "state_bytes": 3} for row in draw.sample(rows, 5)]
    draw.shuffle(rows)
    return rows


@pytest.mark.parametrize("seed", [1, 2])
def test_spark_and_plain_python_learn_the_same_weights(spark: SparkSession, seed: int) -> None:
    """Rates agree (sums of doubles up to the order of adding), rows of the table are equal."""
    rows = messy_samples(seed)
    columns = [column.name for column in TABLES["partition_sample"]]
    frame = spark.createDataFrame([tuple(row[name] for name in columns) for row in rows],
                                  spark_schema(TABLES["partition_sample"]))

    on_spark, here = collect_rates(frame.repartition(3)), rates_of(rows)

    assert [rate._replace(cpu_ms=0.0) for rate in on_spark] == [rate._replace(cpu_ms=0.0) for rate in here]
    assert [rate.cpu_ms for rate in on_spark] == pytest.approx([rate.cpu_ms for rate in here])
    spark_version, spark_rows = weigh(on_spark, computed_at=NOON)
    version, python_rows = weigh(here, computed_at=NOON)
    assert spark_version == version
    assert [row.weight for row in spark_rows] == [row.weight for row in python_rows]


def test_the_documents_rows_are_the_partition_weight_table() -> None:
    """The file's columns and the Spark schema are one list, in one order."""
    assert WeightRow._fields == tuple(column.name for column in PARTITION_WEIGHT)
