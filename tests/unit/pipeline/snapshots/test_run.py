"""The steps of a run: options, batches, and parts as rows of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from faust_assigner.pipeline import jars, session
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.progress import Progress
from faust_assigner.pipeline.snapshots import run as run_module
from faust_assigner.pipeline.snapshots import writer
from faust_assigner.pipeline.snapshots.job import SnapshotOptions, run
from faust_assigner.pipeline.snapshots.run import (
    PART_SCHEMA,
    RECORD,
    by_partition,
    collect,
    compact_records,
    refuse_recreated,
    take_snapshot,
)
from faust_assigner.pipeline.snapshots.spans import Job, Part, Span
from faust_assigner.pipeline.snapshots.writer import SpanWriter, run_here
from faust_assigner.snapshots.changelog import Changelog, Extent
from faust_assigner.snapshots.manifest import SnapshotError

CLUSTER = Cluster("a:1", {"client.id": "me"})
JOB = Job("t", "unused", (Span(0, 3, 9), Span(1, 5, 5), Span(4, 0, 7)), 1_700_000_000_000)
PART = Part(
    4, 7, 2, 300, "sha", ("a.sst", "b.sst"), 5, 1, ("str",), None, 3, (1, 1), 120
)  # fmt: skip


# -- the options ----------------------------------------------------------------------------------


OPTIONS = SnapshotOptions(
    CLUSTER, "t", "somewhere", previous=True, memory_bytes=77, codecs=("raw", "json"), max_layers=5
)


@pytest.mark.parametrize(
    ("connector", "files"), [("auto", ["cached"]), ("spark", ["fetched"]), ("python", [])]
)
def test_a_run_on_spark_has_the_jars_of_its_connector_and_releases_its_session(
    monkeypatch: pytest.MonkeyPatch, connector: str, files: list[str]
) -> None:
    """The session is released after a failure too; all options reach the run."""
    asked: list[Any] = []
    spark = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl="http://127.0.0.1:9"))
    monkeypatch.setattr(jars, "cached_connector_jars", lambda: ["cached"])
    monkeypatch.setattr(jars, "connector_jars", lambda: ["fetched"])

    def start(*given: Any, **more: Any) -> Any:
        asked.append((shown.stage, given, more))
        return spark

    def take(*given: Any, **more: Any) -> Any:
        asked.append((given, more))
        raise SnapshotError("no space")

    shown = Progress()
    monkeypatch.setattr(session, "spark_session", start)
    monkeypatch.setattr(session, "release", lambda it: asked.append(("released", it)))
    monkeypatch.setattr(run_module, "take_snapshot", take)
    with pytest.raises(SnapshotError, match="no space"):
        run(replace(OPTIONS, connector=connector), "local[2]", shown)
    name = "faust-assigner snapshot t"
    assert asked == [
        ("starting Spark", ("local[2]", name), {"jars": files}),
        (
            (CLUSTER, "t", "somewhere"),
            {
                "connector": connector,
                "previous": True,
                "memory_bytes": 77,
                "codecs": ("raw", "json"),
                "max_layers": 5,
                "progress": shown,
                "spark": spark,
            },
        ),
        ("released", spark),
    ]
    assert shown.ui == "http://127.0.0.1:9"


def test_a_run_without_spark_starts_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is returned."""
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: 1 / 0)
    monkeypatch.setattr(run_module, "take_snapshot", lambda *_, **more: sorted(more))
    found: Any = run(replace(OPTIONS, no_spark=True), None)
    assert "spark" not in found
    assert "max_layers" in found


# -- the run --------------------------------------------------------------------------------------


def changelog(*extents: tuple[int, int], topic_id: str | None = "id") -> Changelog:
    """Return a changelog of partitions with these starts and ends."""
    found = {number: Extent(*extent) for number, extent in enumerate(extents)}
    return Changelog("t", found, 1_000, topic_id)


def test_a_run_plans_reads_and_publishes_what_its_options_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages name the records and the partitions; the age counts from the start of the read."""
    asked: list[Any] = []
    log = changelog((0, 4), (1, 1_500))
    parts = [PART]
    monkeypatch.setattr(run_module, "look_at", lambda connection, topic: log)
    monkeypatch.setattr(run_module, "time", SimpleNamespace(time=lambda: 1_234.5678))

    def plan(*given: Any, **more: Any) -> Job:
        asked.append((given, more))
        return JOB

    def publish_(*given: Any) -> list[str]:
        asked.append(given)
        return ["manifest"]

    monkeypatch.setattr(run_module, "plan_job", plan)
    monkeypatch.setattr(run_module, "publish", publish_)
    monkeypatch.setattr(
        run_module, "_run", lambda *given: asked.append(("run", shown.stage, *given)) or parts
    )
    shown = Progress()
    stages: list[str] = []
    enter = shown.enter
    monkeypatch.setattr(shown, "enter", lambda stage: (stages.append(stage), enter(stage)))
    spark: Any = "spark"
    found = take_snapshot(
        CLUSTER,
        "t",
        str(tmp_path),
        spark=spark,
        connector="python",
        previous=True,
        memory_bytes=77,
        codecs=("raw", "json"),
        max_layers=5,
        progress=shown,
    )
    assert found == ["manifest"]
    more = {
        "created_ms": 1_234_568,
        "memory_bytes": 77,
        "codecs": ("raw", "json"),
        "max_layers": 5,
        "previous": True,
    }
    reading = "reading up to 13 records of 3 partitions"
    assert asked == [
        ((log, str(tmp_path)), more),
        ("run", reading, JOB, CLUSTER, "spark", "python"),
        (JOB, parts),
    ]
    assert stages == ["looking at the changelog", reading, "publishing the manifests"]


def test_a_given_time_is_the_snapshots_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time zero is valid."""
    seen: list[Any] = []
    monkeypatch.setattr(run_module, "look_at", lambda *_: changelog((0, 1)))
    monkeypatch.setattr(
        run_module, "plan_job", lambda *_, **more: seen.append(more["created_ms"]) or JOB
    )
    monkeypatch.setattr(run_module, "_run", lambda *_: [])
    monkeypatch.setattr(run_module, "publish", lambda *_: [])
    for created in (0, 5):
        take_snapshot(CLUSTER, "t", str(tmp_path), created_ms=created)
    assert seen == [0, 5]


@pytest.mark.parametrize(
    ("now", "recreated"),
    [
        (changelog((0, 5), (0, 9)), False),
        (changelog((0, 5), (0, 8)), True),
        (changelog((0, 5)), True),
        (changelog((4, 5), (9, 10), (0, 1)), False),
        (changelog((0, 5), (0, 9), topic_id="other"), True),
    ],
    ids=["same", "shorter", "fewer partitions", "grown and cut", "another id"],
)
def test_each_partition_shows_whether_the_topic_was_recreated(
    monkeypatch: pytest.MonkeyPatch, now: Changelog, recreated: bool
) -> None:
    """A partition's end must not be lower or missing; the error has both ids."""
    monkeypatch.setattr(run_module, "look_at", lambda *_: now)
    before = changelog((0, 5), (0, 9))
    if not recreated:
        refuse_recreated(before, CLUSTER)
        return
    with pytest.raises(SnapshotError) as refused:
        refuse_recreated(before, CLUSTER)
    assert f"(topic id id, now {now.topic_id})" in str(refused.value)


class Spark:
    """A session that runs ``mapInArrow`` tasks in this process, and records reader options."""

    def __init__(self, records: pa.RecordBatch | None = None) -> None:
        self.records = records
        self.conf = SimpleNamespace(set=lambda *given: self.calls.append(("set", *given)))
        self.read = self
        self.calls: list[Any] = []
        self.batches: list[pa.RecordBatch] = []

    def range(self, *given: int) -> Spark:
        """Return a column of numbers."""
        self.calls.append(("range", *given))
        numbers = pa.array(range(given[1]), pa.int64())
        self.batches = [pa.RecordBatch.from_arrays([numbers], names=["id"])]
        return self

    def format(self, kind: str) -> Spark:
        """Return a reader."""
        self.calls.append(("format", kind))
        return self

    def options(self, **given: str) -> Spark:
        """Record the options of the reader."""
        self.calls.append(given)
        return self

    def load(self) -> Spark:
        """Return the records."""
        self.batches = [] if self.records is None else [self.records]
        return self

    def select(self, *names: str) -> Spark:
        """Return the columns."""
        self.calls.append(("select", *names))
        return self

    def mapInArrow(self, task: Any, schema: str) -> Spark:  # noqa: N802 - Spark's name
        """Run the task."""
        assert schema == PART_SCHEMA
        self.done = list(task(iter(self.batches)))
        return self

    def collect(self) -> list[Any]:
        """Return the rows."""
        rows = [row for batch in self.done for row in batch.to_pylist()]
        return [SimpleNamespace(asDict=lambda row=row: row) for row in rows]


def records(*rows: tuple[int, int, bytes, bytes | None]) -> pa.RecordBatch:
    """Return records: partition, offset, key, value."""
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    kinds = (pa.int32(), pa.int64(), pa.binary(), pa.binary())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(RECORD))


def test_a_part_is_the_same_after_its_way_through_spark() -> None:
    """Each field survives, with and without values."""
    frame: Any = Spark()
    frame.done = [run_module._row(PART), run_module._row(Part(0, 1, 0, 0, "", (), 0, 0))]
    assert collect(frame) == [PART, Part(0, 1, 0, 0, "", (), 0, 0)]
    names = [entry.split()[0] for entry in PART_SCHEMA.split(", ")]
    assert run_module._row(PART).schema.names == names


def test_a_batch_is_cut_by_partition_and_its_offsets_ascend() -> None:
    """An empty batch has no part."""
    batch = records(
        *((3, 5, b"a", b"1"), (3, 9, b"b", b"2"), (1, 2, b"c", None), (3, 10, b"d", b"3"))
    )
    found = [
        (number, offsets.tolist(), part.column("key").to_pylist())
        for number, offsets, part in by_partition(batch)
    ]
    assert found == [(3, [5, 9], [b"a", b"b"]), (1, [2], [b"c"]), (3, [10], [b"d"])]
    assert list(by_partition(records())) == []
    for second in (5, 4):
        with pytest.raises(SnapshotError, match="offsets of partition 3 do not ascend"):
            list(by_partition(records((3, 5, b"a", b"1"), (3, second, b"b", b"2"))))


def job(folder: Path, *given: Span) -> Job:
    """Return a job of raw records into a folder."""
    return Job("t", str(folder), given, 1_700_000_000_000, topic_id="id", codecs=("raw", "raw"))


def test_records_of_two_partitions_become_two_parts_in_their_order(tmp_path: Path) -> None:
    """The records span several batches; deleted keys have no rows."""
    batches = [
        records((4, 0, b"a", b"1"), (0, 3, b"x", b"1"), (0, 4, b"y", b"2")),
        records((4, 2, b"a", b"2"), (4, 5, b"b", b"3"), (0, 8, b"y", None)),
    ]
    made = job(tmp_path, Span(0, 3, 9), Span(4, 0, 7))
    rows = [row for batch in compact_records(made)(iter(batches)) for row in batch.to_pylist()]
    told = [(row["partition"], row["next_offset"], row["keys"], row["records"]) for row in rows]
    assert told == [(0, 9, 1, 3), (4, 7, 2, 3)]


@pytest.mark.parametrize("offsets", [(5, 12), (2, 7)])
def test_records_beyond_the_span_are_refused(tmp_path: Path, offsets: tuple[int, ...]) -> None:
    """The last offset of a batch is checked, not only the first."""
    batch = records(*((4, offset, b"k", b"1") for offset in offsets))
    with pytest.raises(SnapshotError, match="t-4"):
        list(compact_records(job(tmp_path, Span(4, 0, 7)))(iter([batch])))


def test_offsets_that_return_in_the_next_batch_are_refused(tmp_path: Path) -> None:
    """The second batch begins before the end of the first."""
    batches = [records((4, 1, b"k", b"1"), (4, 5, b"k", b"2")), records((4, 3, b"k", b"3"))]
    with pytest.raises(SnapshotError, match="t-4"):
        list(compact_records(job(tmp_path, Span(4, 0, 7)))(iter(batches)))


def test_scratch_folders_are_removed_after_a_failure_amid_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begun partition removes its folder."""
    closed: list[int] = []

    class Writer(SpanWriter):
        def __exit__(self, *given: object) -> None:
            closed.append(self._span.partition)
            super().__exit__(*given)

    monkeypatch.setattr(run_module, "SpanWriter", Writer)
    made = job(tmp_path, Span(0, 0, 9), Span(4, 0, 7))

    def batches() -> Iterator[pa.RecordBatch]:
        yield records((4, 0, b"a", b"1"), (0, 3, b"x", b"1"))
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        list(compact_records(made)(batches()))
    assert sorted(closed) == [0, 4]


def test_sparks_connector_reads_the_spans_with_records_and_writes_the_silent_ones_after(
    tmp_path: Path,
) -> None:
    """A span with control records alone gets a part too."""
    spark: Any = Spark(records((0, 3, b"x", b"1")))
    made = job(tmp_path, Span(0, 3, 9), Span(1, 5, 5), Span(4, 0, 7))
    parts = run_module.run_connector(spark, made, CLUSTER)
    told = [(part.partition, part.next_offset, part.keys, part.records) for part in parts]
    assert told == [(0, 9, 1, 1), (1, 5, 0, 0), (4, 7, 0, 0)]
    assert spark.calls == [
        ("set", "spark.sql.execution.arrow.maxRecordsPerBatch", "50000"),
        ("format", "kafka"),
        {
            "kafka.client.id": "me",
            "kafka.bootstrap.servers": "a:1",
            "assign": '{"t": [0, 4]}',
            "startingOffsets": '{"t": {"0": 3, "4": 0}}',
            "endingOffsets": '{"t": {"0": 9, "4": 7}}',
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "true",
            "includeHeaders": "false",
        },
        ("select", *RECORD),
        ("range", 0, 2, 1, 2),
    ]


def test_without_a_record_in_any_span_no_records_are_read(tmp_path: Path) -> None:
    """No span has records."""
    spark: Any = Spark()
    made = job(tmp_path, Span(1, 5, 5), Span(0, 2, 2))
    parts = run_module.run_connector(spark, made, CLUSTER)
    assert [(part.partition, part.next_offset) for part in parts] == [(0, 2), (1, 5)]
    assert spark.calls == [("range", 0, 2, 1, 2)]


@pytest.mark.parametrize(
    ("connector", "has", "wanted"),
    [
        ("auto", True, "connector"),
        ("auto", False, "fetching"),
        ("python", True, "fetching"),
        ("spark", False, "connector"),
    ],
)
def test_the_connector_of_a_session_is_used_if_it_is_there_or_named(
    monkeypatch: pytest.MonkeyPatch, connector: str, has: bool, wanted: str
) -> None:
    """Otherwise aiokafka reads inside the tasks, or without a session in this process."""
    monkeypatch.setattr("faust_assigner.pipeline.ledgers.topics.has_connector", lambda _: has)
    monkeypatch.setattr(run_module, "run_connector", lambda *given: ("connector", *given))
    monkeypatch.setattr(run_module, "run_fetching", lambda *given: ("fetching", *given))
    monkeypatch.setattr(run_module, "run_here", lambda *given: ("here", *given))
    spark: Any = "spark"
    found: Any = run_module._run(JOB, CLUSTER, spark, connector)
    assert found == (wanted, spark, JOB, CLUSTER)
    assert run_module._run(JOB, CLUSTER, None, connector) == ("here", JOB, CLUSTER.connection())


def test_each_partition_is_fetched_by_a_task_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks are in the order of partition numbers."""
    asked: list[Any] = []

    def read(*given: Any) -> Part:
        asked.append(given)
        return replace(PART, partition=given[1].partition)

    monkeypatch.setattr(run_module, "read_span", read)
    spark: Any = Spark()
    made = replace(JOB, spans=JOB.spans[::-1])
    parts = run_module.run_fetching(spark, made, CLUSTER)
    assert [part.partition for part in parts] == [0, 1, 4]
    connection = CLUSTER.connection()
    assert asked == [(made, span, connection) for span in JOB.spans]
    assert spark.calls == [("range", 0, 3, 1, 3)]
    monkeypatch.setattr(writer, "read_span", read)
    assert [part.partition for part in run_here(made, connection)] == [4, 1, 0]
