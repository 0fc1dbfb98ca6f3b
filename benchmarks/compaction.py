"""The ways to the last value per key on Spark, over the same generated changelog, equal results asserted.

    python -m benchmarks.compaction [--keys 1000000] [--rounds 20] [--partitions 32] [--width 2]

    mapInArrow to SST     ours: one task a partition, no shuffle, files a worker ingests
    max_by to Parquet     what one would write first: a shuffle by key, then a file no store can take

The records are made inside the tasks (``keys`` x ``rounds``, in offset order), so that what is compared is
compaction and not Kafka. Medians of ``--runs`` warm runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from faust_assigner.pipeline.session import spark_session
from faust_assigner.pipeline.snapshot import BATCH_RECORDS, PART_SCHEMA, compact_records
from faust_assigner.pipeline.spans import Job, Span

TOPIC = "shop-balances-changelog"


def changelog(spark: SparkSession, keys: int, rounds: int, partitions: int) -> DataFrame:
    """``partition, offset, key, value`` as the Kafka source gives them: a task a partition, in order."""
    per_partition = keys * rounds // partitions
    numbers = spark.range(0, per_partition * partitions, 1, partitions)
    offset = F.col("id") % per_partition
    key = F.concat(F.lit('"customer-'), F.expr(f"id % {per_partition} % {keys // partitions}"), F.lit('"'))
    value = F.concat(F.lit('{"balance": '), F.col("id"), F.lit("}"))
    return numbers.select(
        (F.col("id") / per_partition).cast("int").alias("partition"), offset.alias("offset"),
        key.cast("binary").alias("key"), value.cast("binary").alias("value"))


def to_sst(records: DataFrame, folder: Path, partitions: int) -> int:
    """Ours; returns the number of keys."""
    spans = tuple(Span(number, 0, 1 << 62) for number in range(partitions))
    job = Job(TOPIC, str(folder), spans, created_ms=0)
    return sum(row["keys"] for row in records.mapInArrow(compact_records(job), PART_SCHEMA).collect())


def to_parquet(records: DataFrame, folder: Path, partitions: int) -> int:
    """The textbook's; returns the number of keys, read back from the files' footers."""
    latest = records.groupBy("partition", "key").agg(F.max_by("value", "offset").alias("value"))
    latest.where("value is not null").write.parquet(str(folder))
    return int(records.sparkSession.read.parquet(str(folder)).count())


def main(arguments: list[str] | None = None) -> int:
    """Run both, print both, 0 if they agree on the number of keys."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--width", type=int, default=2, help="cores")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    spark = spark_session(f"local[{options.width}]", "compaction bench",
                          settings={"spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_RECORDS),
                                    "spark.driver.memory": "3g"})
    ways: dict[str, Callable[..., int]] = {"mapInArrow to SST": to_sst, "max_by to Parquet": to_parquet}
    medians: dict[str, float] = {}
    counts = set()
    print(f"{options.keys * options.rounds:,} records, {options.keys:,} keys, "
          f"{options.partitions} partitions, local[{options.width}]", flush=True)
    for name, way in ways.items():
        times: list[float] = []
        for _ in range(options.runs + 1):  # the first one warms up
            with tempfile.TemporaryDirectory() as folder:
                records: Any = changelog(spark, options.keys, options.rounds, options.partitions)
                began = time.monotonic()
                counts.add(way(records, Path(folder) / "out", options.partitions))
                times.append(time.monotonic() - began)
        medians[name] = statistics.median(times[1:])
        print(f"  {name:<20}{medians[name]:8.2f} s (first {times[0]:.2f} s)", flush=True)
    spark.stop()
    print(f"  ratio {medians['max_by to Parquet'] / medians['mapInArrow to SST']:.1f}x, aim 5x")
    return int(len(counts) != 1)


if __name__ == "__main__":
    sys.exit(main())
