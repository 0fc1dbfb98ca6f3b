"""Compare ways to each key's last value on Spark, on a generated changelog; the results must be equal.

    python -m benchmarks.compaction [--keys 1000000] [--rounds 20] [--partitions 32] [--width 2]

    generation alone      makes and drops the records: a part of each time below
    transfer alone        sends the records to Python and counts rows: Spark's minimum for such a job
    mapInArrow to SST     ours: one task per partition, no shuffle, manifests of files for ingestion
    max_by to Parquet     the textbook way: a shuffle by key, then files that stores cannot ingest

The tasks make the records themselves (``keys`` x ``rounds``, in offset order), so the times measure
compaction and not Kafka. Keys are pseudo-random, as in a table: in cyclic ascending order they would make
Spark's sort by key nearly free, unlike in any changelog. Values are about 100 bytes of JSON. The ways
take turns, so that a busy machine slows all of them; figures are medians of ``--runs`` warm runs. Finally
both results are read back: their keys and the sum of their rows' CRC-32 must agree.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from faust_assigner.pipeline.session import spark_session
from faust_assigner.pipeline.snapshots.run import (
    PART_SCHEMA,
    RECORD,
    TRANSFER_SETTINGS,
    collect,
    compact_records,
)
from faust_assigner.pipeline.snapshots.spans import Job, Span, publish
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.sst import OFFSET_KEY, read_items
from faust_assigner.snapshots.storage import open_storage

TOPIC = "shop-balances-changelog"
OURS, THEIRS = "mapInArrow to SST", "max_by to Parquet"
AIM = 5.0
PAD = "x" * 70


def changelog(spark: SparkSession, keys: int, rounds: int, partitions: int) -> DataFrame:
    """Return ``partition, offset, key, value`` like the Kafka source: a task per partition, in order."""
    per_partition = keys * rounds // partitions
    numbers = spark.range(0, per_partition * partitions, 1, partitions)
    key = F.concat(
        F.lit('"customer-'), F.expr(f"pmod(xxhash64(id), {keys // partitions})"), F.lit('"')
    )
    value = F.concat(F.lit('{"balance": '), F.col("id"), F.lit(f', "note": "{PAD}"}}'))
    return numbers.select(
        (F.col("id") / per_partition).cast("int").alias("partition"),
        (F.col("id") % per_partition).alias("offset"),
        key.cast("binary").alias("key"),
        value.cast("binary").alias("value"),
    )


def generate(records: DataFrame, _: Path) -> None:
    """Make the records and drop them."""
    records.write.format("noop").mode("overwrite").save()


def transfer(records: DataFrame, _: Path) -> None:
    """Send the columns of our way to Python, and stop there."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_arrays([pa.array([rows])], names=["rows"])

    records.select(*RECORD).mapInArrow(count, "rows long").collect()


def to_sst(records: DataFrame, folder: Path, *, partitions: int, end: int) -> None:
    """Write snapshots in our way, including manifests."""
    job = Job(
        TOPIC,
        str(folder),
        tuple(Span(number, 0, end) for number in range(partitions)),
        created_ms=0,
    )
    rows = records.select(*RECORD).mapInArrow(compact_records(job), PART_SCHEMA)
    publish(job, collect(rows))


def to_parquet(records: DataFrame, folder: Path) -> None:
    """Write Parquet in the textbook way."""
    latest = records.groupBy("partition", "key").agg(F.max_by("value", "offset").alias("value"))
    latest.where("value is not null").write.parquet(str(folder))


def digest_sst(folder: Path) -> tuple[int, int]:
    """Return (keys, sum of CRC-32 of key and value) of all partitions' snapshots."""
    catalog = Catalog(open_storage(str(folder)))
    keys = total = 0
    for partition in catalog.partitions(TOPIC):
        with tempfile.TemporaryDirectory() as work:
            paths = catalog.fetch(catalog.snapshots(TOPIC, partition)[0], Path(work))
            for key, value in read_items(paths):
                if key != OFFSET_KEY:
                    keys += 1
                    total += zlib.crc32(key + value)
    return keys, total


def digest_parquet(spark: SparkSession, folder: Path) -> tuple[int, int]:
    """Return (keys, sum of CRC-32 of key and value) of the Parquet files."""
    items = spark.read.parquet(str(folder))
    [(keys, total)] = items.agg(F.count("key"), F.sum(F.crc32(F.concat("key", "value")))).collect()
    return keys, total


def measure(
    ways: dict[str, Callable[[DataFrame, Path], None]], records: DataFrame, folder: Path, runs: int
) -> dict[str, list[float]]:
    """Time all ways in turn, after a warm-up turn; the last results stay in ``folder``."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs + 1):
        for name, way in ways.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            began = time.monotonic()
            way(records, folder / name)
            times[name].append(time.monotonic() - began)
    return times


def main(arguments: list[str] | None = None) -> int:
    """Print all four times and the ratio; return 0 if both results have the same rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--width", type=int, default=2, help="cores")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    spark = spark_session(
        f"local[{options.width}]",
        "compaction bench",
        settings=TRANSFER_SETTINGS | {"spark.driver.memory": "3g"},
    )
    end = options.keys * options.rounds // options.partitions
    ways: dict[str, Callable[[DataFrame, Path], None]] = {
        "generation alone": generate,
        "transfer alone": transfer,
        OURS: functools.partial(to_sst, partitions=options.partitions, end=end),
        THEIRS: to_parquet,
    }
    print(
        f"{end * options.partitions:,} records, {options.keys:,} keys, "
        f"{options.partitions} partitions, local[{options.width}]",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        records = changelog(spark, options.keys, options.rounds, options.partitions)
        times = measure(ways, records, Path(folder), options.runs)
        digests = [digest_sst(Path(folder) / OURS), digest_parquet(spark, Path(folder) / THEIRS)]
    spark.stop()
    medians = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    for name, taken in times.items():
        print(f"  {name:<20}{medians[name]:8.2f} s (first {taken[0]:.2f} s)")
    floor = medians["generation alone"]
    print(
        f"  ratio {medians[THEIRS] / medians[OURS]:.1f}x, aim {AIM:.0f}x; "
        f"{(medians[THEIRS] - floor) / (medians[OURS] - floor):.1f}x without the generation"
    )
    print("  results: " + ", ".join(f"{keys:,} keys, sum {total:x}" for keys, total in digests))
    return int(digests[0] != digests[1])


if __name__ == "__main__":
    sys.exit(main())
