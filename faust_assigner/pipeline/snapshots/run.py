"""``faust-assigner snapshot``: write one snapshot per partition of a changelog, with or without Spark.

    look at the changelog -> plan spans -> mapInArrow(records -> SST files) -> publish manifests

A task reads one Kafka partition, so the job needs no shuffle; compaction.py bounds its memory. To submit the
job, run ``spark-submit jobs.py snapshot --bootstrap B --topic T --to s3://...``.
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.snapshots.spans import Job, Part, is_corrupt_base, plan_job, publish
from faust_assigner.pipeline.snapshots.writer import SpanWriter, read_span, run_here
from faust_assigner.snapshots.changelog import Changelog, look_at
from faust_assigner.snapshots.compaction import DEFAULT_MEMORY_BYTES
from faust_assigner.snapshots.json_rows import AUTO
from faust_assigner.snapshots.layers import DEFAULT_MAX_LAYERS
from faust_assigner.snapshots.lease import Lease
from faust_assigner.snapshots.manifest import Manifest, SnapshotError
from faust_assigner.snapshots.storage import open_storage

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

#: The columns of a changelog's records that Spark passes to Python.
RECORD = ("partition", "offset", "key", "value")
PART_SCHEMA = (
    "partition int, next_offset long, keys long, bytes long, sha256 string, "
    "files array<string>, records long, runs int, key_types array<string>, value_types array<string>, "
    "unreadable long, layers array<int>, new_bytes long"
)
#: The number of records per batch; with Spark's default of 10,000, transfers take a third longer.
TRANSFER_SETTINGS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "50000"}


def take_snapshot(
    cluster: Cluster,
    topic: str,
    url: str,
    *,
    spark: SparkSession | None = None,
    connector: str = "auto",
    previous: bool = False,
    created_ms: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    codecs: tuple[str, str] = (AUTO, AUTO),
    max_layers: int = DEFAULT_MAX_LAYERS,
    progress: Progress | None = None,
) -> list[Manifest]:
    """Write a snapshot of each partition of ``topic`` to ``url``; return the written manifests.

    ``connector`` is ``spark`` (Spark's Kafka connector), ``python`` (aiokafka inside the tasks) or
    ``auto``. Without ``spark`` the same functions run in this process. With ``previous`` the job reads
    only new records, and writes only rows that differ (layers.py), in at most ``max_layers`` layers. If a
    previous snapshot is too old or damaged, the job logs a warning and tries the next older snapshot.
    ``codecs`` are the codecs of keys and values, see json_rows.py.
    """
    progress = progress or Progress()
    progress.enter("looking at the changelog")
    now_ms = partial(_wall_ms, time.time)
    if created_ms is None:
        created_ms = now_ms()  # the snapshot's age counts from the start of the read
    changelog = look_at(cluster.connection(), topic)
    plan = partial(
        plan_job,
        changelog,
        url,
        created_ms=created_ms,
        memory_bytes=memory_bytes,
        codecs=codecs,
        max_layers=max_layers,
    )

    def run(job: Job) -> tuple[Job, list[Part]]:
        progress.enter(_reading(job))
        return job, _run(job, cluster, spark, connector)

    with Lease(open_storage(url), topic, now_ms):
        job, parts = _run_on_previous(plan, run) if previous else run(plan(previous=False))
        refuse_recreated(changelog, cluster)
        progress.enter("publishing the manifests")
        return publish(job, parts)


def _run_on_previous(
    plan: Callable[..., Job], run: Callable[[Job], tuple[Job, list[Part]]]
) -> tuple[Job, list[Part]]:
    """Run the job on the previous snapshot; if a previous snapshot is damaged, check the files of each."""
    job = plan(previous=True)
    try:
        return run(job)
    except Exception as error:
        if not is_corrupt_base(error):
            raise
        logger.warning(
            "%s: a previous snapshot is damaged; the run starts again and checks the files of each "
            "snapshot: %s",
            job.topic,
            error,
        )
    return run(plan(previous=True, whole=True))


def _reading(job: Job) -> str:
    """Return the text of the reading stage; because of gaps in the offsets, the count is an upper bound."""
    records = sum(span.end - span.start for span in job.spans)
    return f"reading up to {records:,} records of {len(job.spans):,} partitions"


def _wall_ms(clock: Callable[[], float]) -> int:
    return round(clock() * 1000)


def refuse_recreated(before: Changelog, cluster: Cluster) -> None:
    """Raise SnapshotError if the topic was recreated while the job read it."""
    now = look_at(cluster.connection(), before.topic)
    ended_before = [
        number
        for number, extent in before.extents.items()
        if number not in now.extents or now.extents[number].end < extent.end
    ]
    if now.topic_id != before.topic_id or ended_before:
        raise SnapshotError(
            f"{before.topic} was recreated while it was read (topic id {before.topic_id}, "
            f"now {now.topic_id}): nothing is published, take the snapshot again"
        )


def _run(job: Job, cluster: Cluster, spark: SparkSession | None, connector: str) -> list[Part]:
    if spark is None:
        return run_here(job, cluster.connection())
    if connector == "auto":
        from faust_assigner.pipeline.ledgers.topics import has_connector

        connector = "spark" if has_connector(spark) else "python"
    if connector == "python":
        return run_fetching(spark, job, cluster)
    return run_connector(spark, job, cluster)


def run_connector(spark: SparkSession, job: Job, cluster: Cluster) -> list[Part]:
    """Read with Spark's own Kafka connector; then write the spans without records."""
    with_offsets = [span for span in job.spans if span.start < span.end]
    parts: list[Part] = []
    if with_offsets:
        for name, value in TRANSFER_SETTINGS.items():
            spark.conf.set(name, value)
        records = changelog_records(spark, job, cluster)
        parts = collect(records.mapInArrow(compact_records(job), PART_SCHEMA))
    silent = sorted(set(job.by_partition) - {part.partition for part in parts})
    if silent:
        parts += collect(_each(spark, silent, lambda number: _silent(job, number)))
    return parts


def run_fetching(spark: SparkSession, job: Job, cluster: Cluster) -> list[Part]:
    """Read with aiokafka inside the tasks, for machines without the connector's jars."""

    def fetch(number: int) -> Part:
        return read_span(job, job.by_partition[number], cluster.connection())

    return collect(_each(spark, sorted(job.by_partition), fetch))


def changelog_records(spark: SparkSession, job: Job, cluster: Cluster) -> DataFrame:
    """Return (partition, offset, key, value) of the spans' committed records, one task per partition."""
    spans = [span for span in job.spans if span.start < span.end]
    return (
        spark.read.format("kafka")
        .options(
            **{
                **cluster.spark_options(),
                "assign": json.dumps({job.topic: [span.partition for span in spans]}),
                "startingOffsets": json.dumps(
                    {job.topic: {str(span.partition): span.start for span in spans}}
                ),
                "endingOffsets": json.dumps(
                    {job.topic: {str(span.partition): span.end for span in spans}}
                ),
                "kafka.isolation.level": "read_committed",
                # Gaps by compaction or transactions do not count as data loss. A deleted range does, and
                # fails the job.
                "failOnDataLoss": "true",
                "includeHeaders": "false",
            }
        )
        .load()
        .select(*RECORD)
    )


def compact_records(job: Job) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that turns records into one PART_SCHEMA row per partition."""

    def compact(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        spans = job.by_partition
        writers: dict[int, SpanWriter] = {}
        try:
            for batch in batches:
                for number, offsets, part in by_partition(batch):
                    if number not in writers:
                        writers[number] = SpanWriter(job, spans[number])
                    writers[number].add(
                        part.column("key"),
                        part.column("value"),
                        first_offset=int(offsets[0]),
                        last_offset=int(offsets[-1]),
                    )
            for number in sorted(writers):
                yield _row(writers[number].finish())
        finally:
            for writer in writers.values():
                writer.__exit__()

    return compact


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, np.ndarray, pa.RecordBatch]]:
    """Split a batch by partition: yield (partition, its offsets, its rows).

    Raises SnapshotError if the offsets of a partition do not ascend.
    """
    import numpy as np

    numbers, offsets = (batch.column(name).to_numpy() for name in ("partition", "offset"))
    if len(numbers) == 0:
        return
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in itertools.pairwise(cuts):
        part = offsets[start:end]
        if (np.diff(part) <= 0).any():
            raise SnapshotError(f"offsets of partition {numbers[start]} do not ascend")
        yield int(numbers[start]), part, batch.slice(start, end - start)


def _silent(job: Job, number: int) -> Part:
    """Write a span without records: its offset range is empty or has only control records."""
    with SpanWriter(job, job.by_partition[number]) as writer:
        return writer.finish()


def _each(spark: SparkSession, numbers: Sequence[int], work: Callable[[int], Part]) -> DataFrame:
    """Return the results of ``work`` for ``numbers`` as rows of PART_SCHEMA, with one task per number."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                yield _row(work(numbers[at]))

    return spark.range(0, len(numbers), 1, max(1, len(numbers))).mapInArrow(run, PART_SCHEMA)


def _row(part: Part) -> pa.RecordBatch:
    import pyarrow as pa

    types = {
        "partition": pa.int32(),
        "sha256": pa.string(),
        "files": pa.list_(pa.string()),
        "runs": pa.int32(),
        "key_types": pa.list_(pa.string()),
        "value_types": pa.list_(pa.string()),
        "layers": pa.list_(pa.int32()),
    }
    fields = asdict(part)
    return pa.RecordBatch.from_arrays(
        [pa.array([value], types.get(name, pa.int64())) for name, value in fields.items()],
        names=list(fields),
    )


def collect(frame: DataFrame) -> list[Part]:
    """Run ``frame`` and collect its rows of PART_SCHEMA."""
    rows: list[dict[str, object]] = [row.asDict() for row in frame.collect()]
    return [
        Part(
            **dict[str, Any](
                (name, tuple(value) if isinstance(value, list) else value)
                for name, value in row.items()
            )
        )
        for row in rows
    ]
