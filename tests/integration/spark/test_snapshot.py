"""Snapshots of real changelogs by Spark's connector, by aiokafka in the tasks, and without Spark."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots import run as snapshot_run
from faust_assigner.pipeline.snapshots.run import take_snapshot
from faust_assigner.pipeline.snapshots.spans import Job, is_corrupt_base, plan_job, publish
from faust_assigner.pipeline.snapshots.writer import run_here
from faust_assigner.snapshots.catalog import Catalog, folder_of
from faust_assigner.snapshots.changelog import Extent, look_at
from faust_assigner.snapshots.manifest import MANIFEST_NAME, Manifest, format_time_ms
from faust_assigner.snapshots.sst import OFFSET_KEY, read_items
from faust_assigner.snapshots.storage import open_storage
from faust_assigner.snapshots.verification import verify
from faust_assigner.testing.kafka import KafkaServer

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 4
EMPTY = 3  # a partition without records
POISON = b"{not json"  # a replay skips it and keeps the row before it
Write = tuple[int, bytes, bytes | None]


class Changelog:
    """A compacted topic, and the model of its full replay."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = f"app-{uuid.uuid4().hex[:8]}-changelog"
        self.state: list[dict[bytes, bytes]] = [{} for _ in range(PARTITIONS)]
        topic = NewTopic(
            self.topic,
            PARTITIONS,
            1,
            config={"cleanup.policy": "compact", "delete.retention.ms": "7200000"},
        )
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([topic])[self.topic].result(30)

    def write(self, writes: list[Write], *, transaction: str | None = None) -> None:
        """Write records; ``transaction`` is None, or "commit" or "abort" with a control record."""
        settings: dict[str, str] = {"bootstrap.servers": self.bootstrap, "linger.ms": "5"}
        if transaction:
            settings["transactional.id"] = uuid.uuid4().hex
        producer = Producer(settings)
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        for partition, key, value in writes:
            producer.produce(self.topic, value, key, partition)
            producer.poll(0)
            if transaction != "abort" and value != POISON:
                if value is None:
                    self.state[partition].pop(key, None)
                else:
                    self.state[partition][key] = value
        assert producer.flush(30) == 0
        if transaction == "commit":
            producer.commit_transaction(30)
        elif transaction == "abort":
            producer.abort_transaction(30)

    def ends(self) -> dict[int, int]:
        """Return the end of each partition as a committed reader sees it."""
        extents = look_at({"bootstrap_servers": self.bootstrap}, self.topic).extents
        return {partition: extent.end for partition, extent in extents.items()}


@pytest.fixture
def changelog(kafka: KafkaServer) -> Changelog:
    """A changelog to which the test may write."""
    return filled(kafka.bootstrap)


@pytest.fixture(scope="module")
def settled(kafka: KafkaServer) -> Changelog:
    """A changelog that no test writes to; built once."""
    return filled(kafka.bootstrap)


def filled(bootstrap: str) -> Changelog:
    """Updates, deletes, recreated keys, transactions, undecodable records, an empty partition."""
    log = Changelog(bootstrap)
    log.write([(n % 3, b'"key-%d"' % (n % 200), b'{"n": %d}' % n) for n in range(3000)])
    log.write([(n % 3, b'"key-%d"' % n, None) for n in range(0, 150)])
    log.write([(n % 3, b'"key-%d"' % n, b'{"again": %d}' % n) for n in range(0, 60)])
    log.write([(n % 3, b'"key-%d"' % n, POISON) for n in range(0, 9)])
    log.write([(0, b'"never"', b"1"), (1, b'"key-150"', None)], transaction="abort")
    log.write([(0, b'"sure"', b"2"), (1, b'"key-151"', None)], transaction="commit")
    return log


def contents(url: Path | str, manifest: Manifest, work: Path) -> dict[bytes, bytes]:
    """Return the rows of a store that ingests the snapshot."""
    catalog = Catalog(open_storage(url))
    return dict(read_items(catalog.fetch(manifest, work / uuid.uuid4().hex)))


def assert_equals_replay(
    log: Changelog, manifests: list[Manifest], url: Path | str, work: Path
) -> None:
    """Every partition's snapshot has the replay's state and Faust's offset."""
    ends = log.ends()
    assert [manifest.partition for manifest in manifests] == list(range(PARTITIONS))
    for manifest in manifests:
        expected = log.state[manifest.partition]
        end = ends[manifest.partition]
        assert contents(url, manifest, work) == expected | {OFFSET_KEY: str(end - 1).encode()}
        assert (manifest.keys, manifest.next_offset) == (len(expected), end)


@pytest.mark.parametrize("how", ["connector", "python", "no spark"])
def test_a_snapshot_equals_a_full_replay(
    spark: SparkSession, settled: Changelog, tmp_path: Path, how: str
) -> None:
    """Tombstones, aborted and undecodable records, offset gaps: with each of the three readers."""
    url = tmp_path / "snapshots"
    manifests = take_snapshot(
        Cluster(settled.bootstrap),
        settled.topic,
        str(url),
        spark=None if how == "no spark" else spark,
        connector="spark" if how == "connector" else "python",
    )
    assert_equals_replay(settled, manifests, url, tmp_path)
    assert (manifests[0].key_types, manifests[0].value_types) == (("str",), ("dict", "int"))
    assert settled.ends()[0] > 1000 + 50 + 20  # proves that control records leave gaps
    assert manifests[EMPTY].next_offset == 0
    assert [verdict.problem for verdict in verify(Catalog(open_storage(url)))] == [
        None
    ] * PARTITIONS
    folder = url / settled.topic / "0" / manifests[0].snapshot_id
    assert (
        json.loads((folder / "manifest.json").read_bytes())["sha256"]
        == hashlib.sha256(
            b"".join((folder / name).read_bytes() for name in manifests[0].files)
        ).hexdigest()
    )


@pytest.mark.slow
def test_three_readers_and_a_rerun_write_the_same_bytes(
    spark: SparkSession, settled: Changelog, tmp_path: Path
) -> None:
    """Neither reader nor repetition nor folder changes a partition's hash."""
    runs = [
        take_snapshot(
            Cluster(settled.bootstrap),
            settled.topic,
            str(tmp_path / folder),
            spark=session,
            connector=connector,
            memory_bytes=memory,
        )
        for folder, session, connector, memory in [
            ("a", spark, "spark", 1 << 28),
            ("a", spark, "spark", 1 << 28),
            ("b", spark, "python", 1 << 28),
            ("c", None, "auto", 1 << 28),
            ("d", spark, "spark", 10_000),
        ]
    ]
    identities = [
        [(m.snapshot_id, m.sha256, m.keys, m.bytes, m.files) for m in run] for run in runs
    ]
    assert all(identity == identities[0] for identity in identities)


def test_previous_and_the_new_range_equal_a_full_snapshot(
    spark: SparkSession, changelog: Changelog, tmp_path: Path
) -> None:
    """Deletes after the cut, returning keys, a partition of control records, an untouched one."""
    url = str(tmp_path / "snapshots")
    before = take_snapshot(
        Cluster(changelog.bootstrap), changelog.topic, url, spark=spark, connector="spark"
    )
    changelog.write([(0, b'"key-%d"' % n, None) for n in range(0, 60, 3)])
    changelog.write(
        [(0, b'"key-3"', b'{"back": 1}'), (EMPTY, b'"first"', b"1"), (EMPTY, b'"first"', None)]
    )
    changelog.write([(0, b'"key-3"', POISON)])
    changelog.write([(1, b'"lost"', b"1")], transaction="abort")
    after = take_snapshot(
        Cluster(changelog.bootstrap),
        changelog.topic,
        url,
        spark=spark,
        connector="spark",
        previous=True,
    )
    assert_equals_replay(changelog, after, url, tmp_path)
    assert [m.layers for m in after] == [(1, 1), (1, 1), None, None]
    assert all((m.new_bytes or 0) < m.bytes / 2 for m in after[:2])
    assert [verdict.problem for verdict in verify(Catalog(open_storage(url)))] == [None] * 7
    assert after[2].files == before[2].files  # unchanged: the same files under a newer date
    assert after[2].created_ms >= before[2].created_ms
    assert before[0].snapshot_id != after[0].snapshot_id


def test_previous_reads_only_the_new_range(changelog: Changelog, tmp_path: Path) -> None:
    """The test checks the number of records that each part has read."""
    url = str(tmp_path)
    take_snapshot(Cluster(changelog.bootstrap), changelog.topic, url)
    changelog.write([(0, b'"new"', b"1"), (0, b'"newer"', b"2")])
    connection = {"bootstrap_servers": changelog.bootstrap}
    job = plan_job(
        look_at(connection, changelog.topic),
        url,
        created_ms=round(time.time() * 1000),
        previous=True,
    )
    assert [part.records for part in run_here(job, connection)] == [2, 0, 0, 0]


@pytest.mark.slow
def test_an_expired_previous_snapshot_is_not_built_upon(settled: Changelog, tmp_path: Path) -> None:
    """The limit is the topic's own delete.retention.ms (two hours here, read from the broker)."""
    now_ms = round(time.time() * 1000)
    url = str(tmp_path)
    log = look_at({"bootstrap_servers": settled.bootstrap}, settled.topic)
    assert log.delete_retention_ms == 7_200_000
    take_snapshot(Cluster(settled.bootstrap), settled.topic, url, created_ms=now_ms - 7_201_000)
    assert [span.base for span in plan_job(log, url, created_ms=now_ms, previous=True).spans] == [
        None
    ] * 4
    take_snapshot(Cluster(settled.bootstrap), settled.topic, url, created_ms=now_ms - 7_100_000)
    assert all(span.base for span in plan_job(log, url, created_ms=now_ms, previous=True).spans)


@pytest.mark.parametrize("with_spark", [True, False])
def test_a_damaged_previous_snapshot_is_passed_over_for_an_older_one(
    spark: SparkSession,
    settled: Changelog,
    tmp_path: Path,
    with_spark: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With and without Spark, the job reads only records after the older snapshot."""
    url = str(tmp_path / "snapshots")
    jobs: list[Job] = []
    run = snapshot_run._run
    monkeypatch.setattr(
        snapshot_run, "_run", lambda job, *given: (jobs.append(job), run(job, *given))[1]
    )
    older = look_at({"bootstrap_servers": settled.bootstrap}, settled.topic)
    shorter = {number: Extent(each.start, each.end // 2) for number, each in older.extents.items()}
    job = plan_job(replace(older, extents=shorter), url, created_ms=round(time.time() * 1000))
    publish(job, run_here(job, {"bootstrap_servers": settled.bootstrap}))
    before = take_snapshot(Cluster(settled.bootstrap), settled.topic, url)
    jobs.clear()
    path = tmp_path / "snapshots" / folder_of(before[1]) / before[1].files[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    after = take_snapshot(
        Cluster(settled.bootstrap),
        settled.topic,
        url,
        previous=True,
        spark=spark if with_spark else None,
        connector="spark",
    )
    assert_equals_replay(settled, after, url, tmp_path)
    starts = [job.spans[1].start for job in jobs]
    assert starts == [before[1].next_offset, shorter[1].end]


def test_an_error_that_is_no_damage_is_not_hidden() -> None:
    """Only a wrong hash leads to a full read."""
    assert not is_corrupt_base(RuntimeError("connection refused"))


@pytest.mark.slow
def test_object_storage_through_fsspec(
    changelog: Changelog, s3_folder: str, tmp_path: Path
) -> None:
    """The storage has no renames and no folders, only uploads and downloads."""
    manifests = take_snapshot(Cluster(changelog.bootstrap), changelog.topic, s3_folder)
    assert_equals_replay(changelog, manifests, s3_folder, tmp_path)
    changelog.write([(0, b'"key-1"', None), (0, b'"x"', b"1")])
    manifests = take_snapshot(
        Cluster(changelog.bootstrap), changelog.topic, s3_folder, previous=True
    )
    assert_equals_replay(changelog, manifests, s3_folder, tmp_path)


KILLED = """
import os, signal, sys
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots import run as snapshot
from faust_assigner.pipeline.session import spark_session
def killed(job, parts):
    print("parts", len(parts), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
snapshot.publish = killed
bootstrap, topic, url = sys.argv[1:]
snapshot.take_snapshot(Cluster(bootstrap), topic, url)
"""


@pytest.mark.slow
def test_a_kill_between_files_and_manifest_leaves_nothing_half_visible(
    spark: SparkSession, settled: Changelog, tmp_path: Path
) -> None:
    """SIGKILL after the upload of all files; a rerun then gives the result of a normal run."""
    url = tmp_path / "snapshots"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, settled.bootstrap, settled.topic, str(url)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL
    assert "parts 4" in done.stdout
    catalog = Catalog(open_storage(url))
    assert list(url.rglob("*.sst"))
    assert not list(url.rglob(MANIFEST_NAME))
    assert [catalog.snapshots(settled.topic, n) for n in range(PARTITIONS)] == [[]] * PARTITIONS
    rerun = take_snapshot(
        Cluster(settled.bootstrap), settled.topic, str(url), spark=spark, connector="spark"
    )
    calm = take_snapshot(
        Cluster(settled.bootstrap), settled.topic, str(tmp_path / "calm"), spark=spark
    )
    assert_equals_replay(settled, rerun, url, tmp_path)
    assert [m.sha256 for m in rerun] == [m.sha256 for m in calm]


def test_a_failing_partition_publishes_nothing(
    settled: Changelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of only some partitions would look complete."""
    from faust_assigner.pipeline.snapshots import spans, writer

    read: Callable[..., spans.Part] = writer.read_span

    def broken(job: spans.Job, span: spans.Span, connection: Mapping[str, object]) -> spans.Part:
        if span.partition == 2:
            raise OSError(28, os.strerror(28))
        return read(job, span, connection)

    monkeypatch.setattr(writer, "read_span", broken)
    with pytest.raises(OSError, match="No space"):
        take_snapshot(Cluster(settled.bootstrap), settled.topic, str(tmp_path))
    assert not list(tmp_path.rglob(MANIFEST_NAME))


def test_the_manifest_says_what_the_format_says(settled: Changelog, tmp_path: Path) -> None:
    """Its path and its fields."""
    created_ms = 1_795_232_422_123
    manifests = take_snapshot(
        Cluster(settled.bootstrap), settled.topic, str(tmp_path), created_ms=created_ms
    )
    path = tmp_path / settled.topic / "0" / manifests[0].snapshot_id / "manifest.json"
    fields = json.loads(path.read_bytes())
    assert list(fields) == [
        "topic",
        "partition",
        "snapshot_id",
        "next_offset",
        "keys",
        "bytes",
        "sha256",
        "created_at",
        "files",
        "comparator",
        "format_version",
        "topic_id",
        "start_offset",
        "key_types",
        "value_types",
        "layers",
        "new_bytes",
    ]
    assert fields["created_at"] == format_time_ms(created_ms)
    assert sorted(fields["files"]) == sorted(p.name for p in path.parent.glob("*.sst"))
    assert (
        fields["bytes"]
        == fields["new_bytes"]
        == sum(p.stat().st_size for p in path.parent.glob("*.sst"))
    )
