"""Lines that no table took, with file, line number and reason: counted, never lost, never fatal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by

from faust_assigner.ledger import TABLES
from faust_assigner.pipeline.ledgers.refusals import Refused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: A stream writes each micro-batch's parsed rows under its number; a batch run has one, this one.
ONLY_BATCH = 0


def quarantined(parsed: DataFrame) -> DataFrame:
    """``file, line, reason`` of every refused line of ``parsed`` (column ``batch`` optional).

    A line is numbered within its chunk when read; its number in the file adds the lines of the
    chunks before it, which the closing rows tell. A stream reads a line that was half-written once
    more, and a file that was replaced from its start: what a later micro-batch read again no longer
    counts. Cost: one small shuffle by file name; a step for each pair of a file's chunks, and for each
    refused line and chunk.
    """
    rows = parsed if "batch" in parsed.columns else parsed.withColumn("batch", F.lit(ONLY_BATCH))
    refused = rows.where("reason is not null").select(
        "file", "chunk", "pos", "line", "reason", "batch"
    )
    numbered = refused.join(_chunks(rows), "file", "left").where(
        ~F.exists("chunks", lambda c: (c["batch"] > F.col("batch")) & (c["start"] <= F.col("pos")))
    )
    line = F.col("line") + F.aggregate(
        "chunks",
        F.lit(0).cast("long"),
        lambda total, c: (
            total + F.when(c["start"] < F.col("chunk"), c["standing"]).otherwise(F.lit(0))
        ),
    )
    return numbered.select("file", line.alias("line"), "reason")


def refused_of(parsed: DataFrame) -> Refused:
    """How many lines of ``parsed`` tables took and refused, as they were read; one pass, one row.

    A line that a stream read twice counts twice: it is a measure of the ledger, not the table.
    """
    accepted = F.coalesce(*(F.when(F.col(table).isNotNull(), True) for table in TABLES))
    place = F.concat_ws(": ", "file", "reason")
    found = parsed.agg(
        F.count_if(accepted).alias("accepted"),
        F.count("reason").alias("lines"),
        F.min(F.when(F.col("reason").isNotNull(), place)).alias("first"),
    ).collect()[0]
    return Refused(found.accepted, found.lines, found.first)


def _chunks(rows: DataFrame) -> DataFrame:
    """``file, chunks``: each chunk read of a file, with its standing lines; an empty list for a topic."""
    closing = F.when(
        F.col("is_close"),
        F.struct(
            F.col("chunk").alias("start"),
            F.col("pos").alias("end"),
            F.col("line").alias("lines"),
            "batch",
        ),
    )
    is_close = F.coalesce("reason", *(F.when(F.col(t).isNotNull(), "row") for t in TABLES)).isNull()
    return (
        rows.withColumn("is_close", is_close)
        .where("is_close or reason is not null")
        .groupBy("file")
        .agg(F.collect_list(closing).alias("chunks"))
        # Once for a file, not once for each of its refused lines: it takes a step for each pair of chunks.
        .select(
            "file",
            F.transform(
                "chunks",
                lambda c: F.struct(
                    c["start"].alias("start"),
                    c["batch"].alias("batch"),
                    _standing_lines(c).alias("standing"),
                ),
            ).alias("chunks"),
        )
    )


def _standing_lines(chunk: Column) -> Column:
    """How many of a chunk's lines were not read again by a later micro-batch.

    Only its last line can have been, when the later chunk starts inside; all of them, when the later
    one starts at or before its start.
    """
    again = F.exists(
        "chunks", lambda c: (c["batch"] > chunk["batch"]) & (c["start"] <= chunk["start"])
    )
    inside = F.exists(
        "chunks",
        lambda c: (
            (c["batch"] > chunk["batch"])
            & (c["start"] > chunk["start"])
            & (c["start"] < chunk["end"])
        ),
    )
    return (
        F.when(again, F.lit(0))
        .when(inside, chunk["lines"] - 1)
        .otherwise(chunk["lines"])
        .cast("long")
    )
