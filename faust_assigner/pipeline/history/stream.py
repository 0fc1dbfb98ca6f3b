"""History as a stream: each offset range of the ledger is taken once, whatever is killed when.

A micro-batch writes its parsed lines to a folder named by the batch's number; Spark gives a batch that
did not finish the same number and the same offsets again, and the folder is overwritten. The tables
are the batch job's own functions over all those lines (``stream_lines``), so both give the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from faust_assigner.errors import ConfigError
from faust_assigner.pipeline.history.stream_lines import HOME, TAKEN, compact, write_batch
from faust_assigner.pipeline.ledgers.sources import stream_ledger
from faust_assigner.pipeline.ledgers.topics import split_sources
from faust_assigner.pipeline.sinks import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT = f"{HOME}/checkpoint"
SOURCES = f"{HOME}/sources.json"


def take_available(
    spark: SparkSession,
    ledgers: Sequence[str],
    folder: Folder,
    *,
    connector: str,
    properties: Mapping[str, str] | None = None,
) -> bool:
    """Take everything that is there and was not taken before; whether there was any."""
    before = folder.children(TAKEN)
    frame = _frame(spark, ledgers, folder, connector, properties or {})
    writer = frame.writeStream.foreachBatch(_taker(folder))
    query = (
        writer.option("checkpointLocation", folder.path(CHECKPOINT))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    news = folder.children(TAKEN) != before
    compact(spark, folder)
    return news


def take_forever(
    spark: SparkSession,
    ledgers: Sequence[str],
    folder: Folder,
    *,
    connector: str,
    every_s: float,
    then: Callable[[], None],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Take what is new every ``every_s`` seconds and call ``then`` after each micro-batch; until stopped."""
    take = _taker(folder)

    def on_batch(frame: DataFrame, number: int) -> None:
        take(frame, number)
        # Not the one at hand: until it has returned, Spark may take it again.
        compact(spark, folder, upto=number - 1)
        then()

    frame = _frame(spark, ledgers, folder, connector, properties or {})
    writer = frame.writeStream.foreachBatch(on_batch)
    query = (
        writer.option("checkpointLocation", folder.path(CHECKPOINT))
        .trigger(processingTime=f"{every_s} seconds")
        .start()
    )
    query.awaitTermination()


def _taker(folder: Folder) -> Callable[[DataFrame, int], None]:
    def take(frame: DataFrame, number: int) -> None:
        write_batch(frame, folder, number)

    return take


def _frame(
    spark: SparkSession,
    ledgers: Sequence[str],
    folder: Folder,
    connector: str,
    properties: Mapping[str, str],
) -> DataFrame:
    _check_sources(ledgers, folder)
    return stream_ledger(spark, ledgers, connector=connector, properties=properties)


def _check_sources(ledgers: Sequence[str], folder: Folder) -> None:
    """A checkpoint belongs to its topics: Spark cannot resume with others (files may come and go).

    Raises:
        ConfigError: the folder's stream reads other topics.
    """
    paths, topics = split_sources(ledgers)
    now = {"files": bool(paths), "topics": [topic.url for topic in topics]}
    if not folder.exists(SOURCES):
        folder.write(SOURCES, json.dumps(now).encode())
        return
    before = json.loads(folder.read(SOURCES))
    if before != now:
        raise ConfigError(
            f"the stream in {folder.url} reads {_said(before)}, not {_said(now)}: "
            f"give another --out, or remove {folder.path(HOME)} to start over"
        )


def _said(sources: Mapping[str, Any]) -> str:
    return ", ".join([*(["files"] if sources["files"] else []), *sources["topics"]])
