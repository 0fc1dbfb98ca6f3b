"""What a stream took so far: a folder for each micro-batch, and one for all the early ones together.

A watch takes thousands of micro-batches, mostly small. Once there are more than ``COMPACT_AFTER`` of their
folders, their lines are written once more into one folder, ``upto=K``, which stands for every micro-batch
up to number K as soon as its marker does. A job that dies on the way leaves the folders of before: without
the marker the new one does not count, with it the old ones do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - the name everyone knows it by

from faust_assigner.pipeline.schema import parsed_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from faust_assigner.pipeline.sinks import Folder

HOME = "_stream"
TAKEN = f"{HOME}/lines"
COMPACTED = f"{HOME}/compacted"
MARKER = "_COMPLETE"
BATCHED_SCHEMA = T.StructType([*parsed_schema(), T.StructField("batch", T.LongType())])
#: More folders of micro-batches than this are made one. Rewriting costs about what a report does.
COMPACT_AFTER = 100


def write_batch(frame: DataFrame, folder: Folder, number: int) -> None:
    """The lines of micro-batch ``number``, in place of what an attempt that died left of it."""
    frame.write.mode("overwrite").parquet(folder.path(TAKEN, f"batch={number}"))


def taken(spark: SparkSession, folder: Folder) -> DataFrame:
    """All lines taken so far, with the number of the micro-batch that took them."""
    reader = spark.read.schema(BATCHED_SCHEMA)
    upto = _compacted_upto(folder)
    single = [
        folder.path(TAKEN, f"batch={n}") for n in _numbers(folder, TAKEN, "batch=") if n > upto
    ]
    frames = [reader.parquet(folder.path(COMPACTED, f"upto={upto}"))] if upto >= 0 else []
    if single:
        frames.append(reader.option("basePath", folder.path(TAKEN)).parquet(*single))
    if not frames:
        return spark.createDataFrame([], BATCHED_SCHEMA)
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def compact(spark: SparkSession, folder: Folder, *, upto: int | None = None) -> None:
    """Make one folder of all micro-batches, or those up to number ``upto``, when there are many.

    Only those that Spark will never take again may be given: the ones before the running one.
    """
    done = [n for n in _numbers(folder, TAKEN, "batch=") if upto is None or n <= upto]
    if len(done) <= COMPACT_AFTER:
        return
    last = done[-1]
    if last > _compacted_upto(folder):
        rows = (
            taken(spark, folder)
            .where(f"batch <= {last}")
            .coalesce(spark.sparkContext.defaultParallelism)
        )
        rows.write.mode("overwrite").parquet(folder.path(COMPACTED, f"upto={last}"))
        # A name that was never there before appears in one step; one that is replaced would be gone between.
        folder.write(f"{COMPACTED}/upto={last}/{MARKER}", b"")
    _forget(folder, last)


def _forget(folder: Folder, last: int) -> None:
    """Remove what ``upto=last`` stands for, also what a job that died left of an earlier one."""
    for number in _numbers(folder, TAKEN, "batch="):
        if number <= last:
            folder.remove(TAKEN, f"batch={number}")
    for number in _numbers(folder, COMPACTED, "upto="):
        if number < last:
            folder.remove(COMPACTED, f"upto={number}")


def _compacted_upto(folder: Folder) -> int:
    """The last micro-batch that is in a complete compacted folder; -1 when there is none."""
    whole = [
        n
        for n in _numbers(folder, COMPACTED, "upto=")
        if folder.exists(COMPACTED, f"upto={n}", MARKER)
    ]
    return max(whole, default=-1)


def _numbers(folder: Folder, inside: str, prefix: str) -> list[int]:
    names = folder.children(inside)
    return sorted(int(name.removeprefix(prefix)) for name in names if name.startswith(prefix))
