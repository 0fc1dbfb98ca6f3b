"""Where ledgers come from: files through our own reader into Arrow, topics through Spark's connector
or, without Maven, through aiokafka. Batch and streaming give DataFrames of one schema, the parsed one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name everyone knows it by
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from faust_assigner.pipeline.ledgers.files import (
    Chunk,
    LedgerFile,
    LedgerPathError,
    absolute,
    cut,
    find_files,
    last_line_start,
    pack,
    read_head,
    read_lines_if_there,
)
from faust_assigner.pipeline.ledgers.parse import parse_chunks, parse_messages
from faust_assigner.pipeline.ledgers.period import Period
from faust_assigner.pipeline.ledgers.quarantine import refused_of
from faust_assigner.pipeline.ledgers.refusals import Refused, Tolerance
from faust_assigner.pipeline.ledgers.topics import (
    TopicSource,
    read_topic,
    split_sources,
    stream_topic,
)
from faust_assigner.pipeline.schema import parsed_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "faust_assigner_ledger"
HEAD_BYTES = 512


class _Chunks(InputPartition):  # type: ignore[misc]
    """One task's load."""

    def __init__(self, chunks: tuple[Chunk, ...]) -> None:
        super().__init__([(chunk.name, chunk.start, chunk.end) for chunk in chunks])

    def chunks(self) -> list[Chunk]:
        """The load as chunks again; only plain tuples travel to the workers."""
        return [Chunk(*part) for part in self.value]


class LedgerDataSource(DataSource):  # type: ignore[misc]
    """``readStream.format("faust_assigner_ledger")``: options ``paths`` (a JSON list) and ``tasks``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The parsed schema."""
        return parsed_schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """What is there and what will be appended."""
        return LedgerStreamReader(
            json.loads(self.options["paths"]), int(self.options.get("tasks", "4"))
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one file was read, as it stands in a stream's offset.

    ``at`` is where the line open at ``size`` starts: reading resumes there, so a line that was seen
    half-written is read again, whole. ``head`` is a digest of the first ``head_bytes`` bytes and
    tells a file that only grew from a new one under an old name (a rotation); ``life`` counts those.
    """

    at: int
    size: int
    head: str
    head_bytes: int
    life: int
    modified: str

    def to_json(self) -> dict[str, Any]:
        """The fields as Spark keeps offsets: a dict of plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Files that grow and rotate; the offset is, for each file, how far it was read."""

    def __init__(self, paths: Sequence[str], tasks: int) -> None:
        self.paths, self.tasks = paths, tasks
        self._ceiling: list[LedgerFile] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Nothing read yet."""
        return {}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop at what is there at the start, however fast the files grow."""
        self._ceiling = find_files(self.paths)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """No limit: a micro-batch takes all there is."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """``start`` with every file that is new, has grown or was replaced, less those that are gone.

        A path that is gone (rotated away, or not there yet) is no error while the stream runs.
        """
        files, all_answered = self._listed() if self._ceiling is None else (self._ceiling, True)
        there: dict[str, Any] = {}
        for file in files:
            known = Progress(**start[file.name]) if file.name in start else None
            with contextlib.suppress(FileNotFoundError):
                there[file.name] = advance(file, known).to_json()
        if all(start.get(name) == entry for name, entry in there.items()):
            return start
        # Only with news, and only when every path could be listed: a mount that is away for a moment is
        # no reason to read everything again. What is gone for good would grow the offset for ever.
        kept = {} if all_answered else start
        return dict(sorted({**kept, **there}.items()))

    def _listed(self) -> tuple[list[LedgerFile], bool]:
        """(the files there are, whether every path answered)."""
        found: list[LedgerFile] = []
        answered = 0
        for path in self.paths:
            with contextlib.suppress(LedgerPathError):
                found += find_files([path])
                answered += 1
        return sorted(set(found)), answered == len(self.paths)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What lies between two offsets, as loads of about equal size."""
        chunks: list[Chunk] = []
        for name, entry in sorted(end.items()):
            now = Progress(**entry)
            before = Progress(**start[name]) if name in start else None
            if before is None or before.life != now.life:
                chunks += cut(name, 0, now.size)
            elif now.size > before.size:
                chunks += cut(name, before.at, now.size)
        return [_Chunks(load) for load in pack(chunks, self.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Parsed lines of one load."""
        return parse_chunks(partition.chunks(), read_lines_if_there)


def advance(file: LedgerFile, known: Progress | None) -> Progress:
    """Where ``file`` stands now, given how far it was ``known``; reads its head and its last line."""
    if known is not None and (known.size, known.modified) == (file.size, file.modified):
        return known
    if known is not None and file.size >= known.size:
        same = _digest(read_head(file.name, known.head_bytes)) == known.head
    else:
        same = False
    low = known.at if same and known is not None else 0
    head = read_head(file.name, min(HEAD_BYTES, file.size))
    life = 0 if known is None else known.life + (not same)
    return Progress(
        at=last_line_start(file.name, low, file.size),
        size=file.size,
        head=_digest(head),
        head_bytes=len(head),
        life=life,
        modified=file.modified,
    )


def _digest(head: bytes) -> str:
    return hashlib.sha256(head).hexdigest()[:16]


def read_ledger(
    spark: SparkSession,
    ledgers: Sequence[str],
    *,
    connector: str = "auto",
    properties: Mapping[str, str] | None = None,
    period: Period | None = None,
) -> DataFrame:
    """Every line of ``ledgers`` as it is now, in the parsed schema; of ``period`` alone where one is given.

    Raises:
        LedgerPathError: a path that is not there, said before anything is read.
    """
    paths, topics = split_sources(ledgers, properties)
    frames = [
        _parse_topic(read_topic(spark, topic, connector=connector, period=period), topic)
        for topic in topics
    ]
    if paths:
        files = (period or Period()).files(find_files([absolute(path) for path in paths]))
        chunks = [
            chunk for file in files for chunk in cut(file.name, 0, file.size, inode=file.inode)
        ]
        frames.append(read_chunks(spark, pack(chunks, _tasks(spark))))
    return (period or Period()).on_spark(
        reduce(lambda left, right: left.unionByName(right), frames)
    )


def read_checked(
    spark: SparkSession,
    ledgers: Sequence[str],
    tolerance: Tolerance,
    properties: Mapping[str, str],
    period: Period | None = None,
) -> tuple[DataFrame, Refused]:
    """:func:`read_ledger`, and how many lines were refused; one pass over the ledger for that.

    Raises LedgerPathError and, where ``tolerance`` does not take so many refused lines, TooManyRefused.
    """
    parsed = read_ledger(spark, ledgers, properties=properties, period=period)
    refused = refused_of(parsed)
    tolerance.check(refused)
    return parsed, refused


def stream_ledger(
    spark: SparkSession,
    ledgers: Sequence[str],
    *,
    connector: str = "auto",
    properties: Mapping[str, str] | None = None,
) -> DataFrame:
    """``ledgers`` as an unbounded DataFrame in the parsed schema."""
    paths, topics = split_sources(ledgers, properties)
    frames = [
        _parse_topic(stream_topic(spark, topic, connector=connector), topic) for topic in topics
    ]
    if paths:
        find_files(paths)
        frames.append(_stream_files(spark, paths))
    return reduce(lambda left, right: left.unionByName(right), frames)


def read_chunks(spark: SparkSession, loads: Sequence[tuple[Chunk, ...]]) -> DataFrame:
    """One task for each load of ``loads``, in the parsed schema."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from parse_chunks(loads[number])

    # A range has one row per partition and so one load per task: no shuffle has to spread them.
    return spark.range(0, len(loads), 1, max(1, len(loads))).mapInArrow(read, parsed_schema())


def _tasks(spark: SparkSession) -> int:
    """How many tasks share the files: two for each core, so that a slow one is made up for."""
    return 2 * int(spark.sparkContext.defaultParallelism)


def _stream_files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    spark.dataSource.register(LedgerDataSource)
    listed = json.dumps([absolute(path) for path in paths])
    return spark.readStream.format(FORMAT).options(paths=listed, tasks=str(_tasks(spark))).load()


def _parse_topic(messages: DataFrame, topic: TopicSource) -> DataFrame:
    places = messages.select(
        F.concat(F.lit(f"{topic.url}/"), F.col("partition").cast("string")).alias("file"),
        F.col("offset").alias("pos"),
        F.col("value"),
    )
    return places.mapInArrow(parse_messages, parsed_schema())
