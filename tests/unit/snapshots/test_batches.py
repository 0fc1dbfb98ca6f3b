"""Spark's records before the files: cut by partition, and checked."""

from pathlib import Path

import pyarrow as pa
import pytest

from faust_assigner.pipeline.snapshots.run import RECORD, by_partition, compact_records
from faust_assigner.pipeline.snapshots.spans import Job, Span
from faust_assigner.snapshots.manifest import SnapshotError


def batch(*places: tuple[int, int]) -> pa.RecordBatch:
    """Return a batch with a record per (partition, offset)."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition for partition, _ in places], pa.int32()),
            pa.array([offset for _, offset in places], pa.int64()),
            pa.array([b"key-%d" % offset for _, offset in places], pa.binary()),
            pa.array([b"v"] * len(places), pa.binary()),
        ],
        names=list(RECORD),
    )


def job(folder: Path, *spans: Span) -> Job:
    """Return a job with output to ``folder``."""
    return Job("t-changelog", str(folder), spans, created_ms=0)


def test_a_batch_is_cut_by_partition() -> None:
    """The largest partition and offset are included; an empty batch yields no parts."""
    most = ((1 << 31) - 1, (1 << 63) - 1)
    cut = list(by_partition(batch((3, 5), (3, 9), (4, 0), most)))
    assert [(number, offsets.tolist()) for number, offsets, _ in cut] == [
        (3, [5, 9]),
        (4, [0]),
        (most[0], [most[1]]),
    ]
    assert [part.column("key").to_pylist() for *_, part in cut] == [
        [b"key-5", b"key-9"],
        [b"key-0"],
        [b"key-%d" % most[1]],
    ]
    assert not list(by_partition(batch()))


@pytest.mark.parametrize(
    "batches",
    [
        [batch((0, 5), (0, 5))],
        [batch((0, 5), (0, 4))],
        [batch((0, 5)), batch((0, 5))],
        [batch((0, 5)), batch((0, 4))],
        [batch((0, 10))],
    ],
)
def test_records_out_of_place_fail_the_task(tmp_path: Path, batches: list[pa.RecordBatch]) -> None:
    """Offsets must ascend within and across batches, and lie within the span."""
    with pytest.raises(SnapshotError, match="ascend"):
        list(compact_records(job(tmp_path, Span(0, 0, 10)))(iter(batches)))


def test_a_tasks_rows_say_what_was_written(tmp_path: Path) -> None:
    """A row has the records, keys and next offset of a partition."""
    batches = [batch((0, 2), (0, 7)), batch((0, 8), (1, 1))]
    rows = compact_records(job(tmp_path, Span(0, 0, 12), Span(1, 1, 2)))(iter(batches))
    fields = [row.to_pylist()[0] for row in rows]
    assert [
        (row["partition"], row["records"], row["keys"], row["next_offset"]) for row in fields
    ] == [(0, 3, 3, 12), (1, 1, 1, 2)]
