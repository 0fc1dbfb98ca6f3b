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
from faust_assigner.pipeline.ledgers.topics import has_connector, split_sources, topic_now
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
    paths, topics = split_sources(ledgers, properties)
    ids = {topic.url: topic_now(topic).topic_id for topic in topics}
    if connector == "auto" and topics:
        connector = _begun_with(folder) or ("spark" if has_connector(spark) else "python")
    now = {
        "files": bool(paths),
        "topics": [topic.url for topic in topics],
        "connector": connector if topics else None,
        "ids": ids,
    }
    _check_sources(now, folder)
    return stream_ledger(spark, ledgers, connector=connector, properties=properties)


def _before(folder: Folder) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(folder.read(SOURCES)) if folder.exists(SOURCES) else {}
    return found


def _begun_with(folder: Folder) -> str | None:
    """The connector whose offsets the checkpoint holds; None where there is none, or it is not known."""
    connector: str | None = _before(folder).get("connector")
    return connector


def _check_sources(now: Mapping[str, Any], folder: Folder) -> None:
    """A checkpoint belongs to its topics and its connector: Spark cannot resume with others (files may come
    and go). Keeps ``now`` for the next visit.

    Raises:
        ConfigError: the folder's stream reads other topics, or reads them with another connector, or Spark's
            connector has read a topic that was created again since: it would pass over its first records.
    """
    before = _before(folder)
    remedy = f"give another --out, or remove {folder.path(HOME)} to start over"
    if before and any(before[name] != now[name] for name in ("files", "topics")):
        raise ConfigError(
            f"the stream in {folder.url} reads {_said(before)}, not {_said(now)}: {remedy}"
        )
    begun_with = before.get("connector")
    if begun_with not in (None, now["connector"]):
        raise ConfigError(
            f"the stream in {folder.url} was begun with --connector {begun_with}, not "
            f"{now['connector']}: go on with that one, or {remedy}"
        )
    for url, identity in before.get("ids", {}).items():
        if now["connector"] == "spark" and None is not identity != now["ids"][url]:
            raise ConfigError(
                f"{url} was deleted and created again since the stream in {folder.url} read it: "
                f"remove {folder.path(HOME)} to start over (days that stand are kept)"
            )
    if before != now:
        folder.write(SOURCES, json.dumps(now).encode())


def _said(sources: Mapping[str, Any]) -> str:
    return ", ".join([*(["files"] if sources["files"] else []), *sources["topics"]])
