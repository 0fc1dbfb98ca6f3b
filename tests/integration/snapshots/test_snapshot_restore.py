"""Real workers and real stores come back from snapshot and tail as from a full replay, and never worse."""

import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from faust.stores.rocksdb import RocksDBOptions

from faust_assigner.app.restore.bring_up import (
    SCRATCH_MAX_AGE_S,
    SCRATCH_PREFIX,
    Cold,
    Settings,
    Stop,
    bring_up,
    sweep_scratch,
)
from faust_assigner.app.restore.recovery import _replace_database
from faust_assigner.pipeline.snapshots.spans import plan_job, publish, run_here
from faust_assigner.snapshots.catalog import folder_of
from faust_assigner.snapshots.changelog import look_at
from faust_assigner.snapshots.manifest import MANIFEST_NAME, Manifest
from faust_assigner.snapshots.sst import OFFSET_KEY

PARTITIONS = 3
EMPTY = 2
WORKER = Path(__file__).parents[3] / "benchmarks" / "workers" / "recovery.py"
Write = tuple[int, str, int | None]


class App:
    """A source and a changelog as a Faust app has them, and the model of the table."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.app_id = f"shop-{uuid.uuid4().hex[:8]}"
        self.changelog = f"{self.app_id}-balances-changelog"
        self.state: list[dict[bytes, bytes]] = [{} for _ in range(PARTITIONS)]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic(f"{self.app_id}-source", PARTITIONS, 1),
                  NewTopic(self.changelog, PARTITIONS, 1, config={"cleanup.policy": "compact"})]
        for made in admin.create_topics(topics).values():
            made.result(30)

    def write(self, writes: list[Write], *, transaction: str | None = None) -> None:
        """Changelog records as Faust writes them: JSON keys and values, no value for a delete."""
        settings: dict[str, str] = {"bootstrap.servers": self.bootstrap, "linger.ms": "5"}
        producer = Producer(settings | ({"transactional.id": uuid.uuid4().hex} if transaction else {}))
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        for partition, key, value in writes:
            raw_key, raw = json.dumps(key).encode(), None if value is None else json.dumps(value).encode()
            producer.produce(self.changelog, raw, raw_key, partition)
            producer.poll(0)
            if raw is None:
                self.state[partition].pop(raw_key, None)
            else:
                self.state[partition][raw_key] = raw
        assert producer.flush(30) == 0
        if transaction:
            producer.commit_transaction(30)

    def fill(self) -> None:
        """Updates, deletes and keys that come back, in two of three partitions."""
        self.write([(n % 2, f"key-{n % 1500}", n) for n in range(4000)])
        self.write([(n % 2, f"key-{n}", None) for n in range(0, 300)])
        self.write([(n % 2, f"key-{n}", -n) for n in range(0, 100)])

    def fill_tail(self) -> None:
        """After the cut: deletes, keys that come back, new keys."""
        self.write([(n % 2, f"key-{n}", None) for n in range(0, 40)])
        self.write([(n % 2, f"key-{n}", n) for n in range(200, 220)])
        self.write([(n % 2, f"new-{n}", n) for n in range(30)])

    def snapshot(self, url: Path | str, *, age_ms: int = 0) -> list[Manifest]:
        """What the pipeline writes, without Spark."""
        connection = {"bootstrap_servers": self.bootstrap}
        log = look_at(connection, self.changelog)
        job = plan_job(log, str(url), created_ms=round(time.time() * 1000) - age_ms)
        return publish(job, run_here(job, connection))

    def ends(self) -> dict[int, int]:
        """The end of each partition of the changelog."""
        extents = look_at({"bootstrap_servers": self.bootstrap}, self.changelog).extents
        return {partition: extent.end for partition, extent in extents.items()}

    def model_hash(self) -> str:
        """What benchmarks/workers/recovery.py prints of a table that equals the model."""
        digest = hashlib.sha256()
        for partition, state in enumerate(self.state):
            for key, value in sorted(state.items()):
                digest.update(b"%d %d %d " % (partition, len(key), len(value)) + key + value)
        return digest.hexdigest()

    def worker(self, datadir: Path, *, snapshots: Path | None = None, **settings: Any) -> dict[str, Any]:
        """Run a Faust worker until it has recovered; what it says of itself."""
        process = self.start_worker(datadir, snapshots=snapshots, **settings)
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == 0, err[-3000:]
        return json.loads(out.splitlines()[-1]) | {"log": err}

    def start_worker(
        self, datadir: Path, *, snapshots: Path | None = None, **settings: Any,
    ) -> "subprocess.Popen[str]":
        """The process."""
        given = {"bootstrap": self.bootstrap, "app_id": self.app_id, "partitions": PARTITIONS,
                 "datadir": str(datadir), **settings}
        environment = {**os.environ, "FAUST_ASSIGNER_SNAPSHOTS": str(snapshots or "")}
        return subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(given)], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])])
def app(request: pytest.FixtureRequest) -> App:
    """The app on our broker and on Kafka."""
    server = request.getfixturevalue("kafka" if request.param == "kafka" else "embedded_broker")
    return App(server.bootstrap)


@pytest.fixture
def local(embedded_broker: Any) -> App:
    """The app on our broker, filled, with a snapshot's worth of records and a tail to come."""
    app = App(embedded_broker.bootstrap)
    app.fill()
    return app


@pytest.mark.processes
def test_a_worker_restores_snapshot_and_tail_as_stock_faust_replays(app: App, tmp_path: Path) -> None:
    """Three workers, one table: replayed by stock Faust, from the snapshot, then from its own files."""
    app.fill()
    app.snapshot(tmp_path / "snapshots")
    app.fill_tail()
    stock = app.worker(tmp_path / "stock")
    ours = app.worker(tmp_path / "ours", restore=True, snapshots=tmp_path / "snapshots")
    again = app.worker(tmp_path / "ours", restore=True, snapshots=tmp_path / "snapshots")
    assert stock["state"]["hash"] == app.model_hash()
    assert ours["state"]["hash"] == app.model_hash()
    assert ours["sources"] == {"0": "snapshot", "1": "snapshot"}
    assert again["state"]["hash"] == app.model_hash()
    assert again["sources"] == {}  # nothing was left to do
    assert ours["state"]["offsets"]["0"] == app.ends()[0] - 1
    assert not list((tmp_path / "ours").rglob(f"{SCRATCH_PREFIX}*"))


@pytest.mark.slow
@pytest.mark.processes
def test_a_worker_without_usable_snapshot_replays(local: App, tmp_path: Path) -> None:
    """Damaged in one partition, expired for none: nothing fails, the state is the replay's."""
    manifests = local.snapshot(tmp_path / "snapshots")
    damage(tmp_path / "snapshots", manifests[0])
    local.fill_tail()
    ours = local.worker(tmp_path / "ours", restore=True, snapshots=tmp_path / "snapshots")
    assert ours["state"]["hash"] == local.model_hash()
    assert ours["sources"] == {"0": "replay", "1": "snapshot"}
    assert "is replayed, its snapshot failed" in ours["log"]


@pytest.mark.slow
@pytest.mark.processes
def test_a_standby_far_behind_is_exchanged_for_a_snapshot(embedded_broker: Any, tmp_path: Path) -> None:
    """Two workers: the second one's standby goes on from the snapshot while the first one works."""
    app = App(embedded_broker.bootstrap)
    app.write([(n % 2, f"key-{n % 9000}", n) for n in range(30_000)])
    app.snapshot(tmp_path / "snapshots")
    app.fill_tail()
    first = app.start_worker(tmp_path / "first", restore=True, stay=True, standbys=1)
    try:
        assert first.stdout is not None
        first.stdout.readline()  # it has recovered and stays
        second = app.worker(tmp_path / "second", restore=True, standbys=1, settle_s=40, partial=True,
                            snapshots=tmp_path / "snapshots")
    finally:
        first.kill()
        first.communicate()
    assert "goes on from snapshot" in second["log"]
    assert second["standby_remaining"] == 0
    held = second["state"]["partitions"]
    assert held["0"] == partition_hash(app.state[0])
    assert held["1"] == partition_hash(app.state[1])


# -- the thread's work itself, on stores as Faust opens them


def partition_hash(state: dict[bytes, bytes]) -> str:
    """What benchmarks/workers/recovery.py prints of one partition."""
    digest = hashlib.sha256()
    for key, value in sorted(state.items()):
        digest.update(b"%d %d " % (len(key), len(value)) + key + value)
    return digest.hexdigest()


def damage(url: Path, manifest: Manifest) -> None:
    """Flip a bit in the middle of the first file."""
    path = url / folder_of(manifest) / manifest.files[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


class Stores:
    """Empty databases as Faust opens them, and what a restore made of them."""

    def __init__(self, app: App, folder: Path, snapshots: Path | None) -> None:
        self.app = app
        self.settings = Settings(str(snapshots) if snapshots else None, True,
                                 {"bootstrap_servers": app.bootstrap}, "read_committed", folder)
        self.databases = {n: RocksDBOptions(max_open_files=64).open(folder / f"balances-{n}.db")
                          for n in range(PARTITIONS)}

    def cold(self) -> list[Cold]:
        """The partitions that lag, as the recovery would hand them over."""
        found = []
        for partition, end in self.app.ends().items():
            offset = int(self.databases[partition].get(OFFSET_KEY) or -1)
            if end - 1 > offset:
                tp = TopicPartition(self.app.changelog, partition)
                found.append(Cold(tp, self.databases[partition], offset, end - 1, True))
        return found

    def bring_up(self, stop: Stop | None = None, **settings: Any) -> dict[int, str]:
        """Run, and say where each partition's state came from."""
        done = bring_up(replace(self.settings, **settings), self.cold(), stop or Stop())
        return {tp.partition: each.source for tp, each in sorted(done.items())}

    def contents(self, partition: int) -> dict[bytes, bytes]:
        """Keys and values, Faust's offset included."""
        return dict(self.databases[partition].items())

    def assert_up_to_date(self) -> None:
        """Every database equals the model and says so."""
        ends = self.app.ends()
        for partition, state in enumerate(self.app.state):
            offset = {OFFSET_KEY: str(ends[partition] - 1).encode()} if ends[partition] else {}
            assert self.contents(partition) == state | offset

    def close(self) -> None:
        """Release the locks."""
        for database in self.databases.values():
            database.close()


@pytest.fixture
def stores(local: App, tmp_path: Path) -> Iterator[Stores]:
    """Empty stores of the local app, snapshots beside them."""
    made = Stores(local, tmp_path / "tables", tmp_path / "snapshots")
    yield made
    made.close()


def test_snapshot_and_tail_equal_the_replay(stores: Stores, tmp_path: Path) -> None:
    """Deletes after the cut, keys that come back, an empty partition."""
    stores.app.snapshot(tmp_path / "snapshots")
    stores.app.fill_tail()
    assert stores.bring_up() == {0: "snapshot", 1: "snapshot"}
    stores.assert_up_to_date()


def test_a_replay_in_batches_equals_the_model(stores: Stores) -> None:
    """No snapshot at all."""
    assert stores.bring_up(snapshots=None) == {0: "replay", 1: "replay"}
    stores.assert_up_to_date()


def test_local_files_go_before_snapshots(stores: Stores, tmp_path: Path) -> None:
    """A database that holds anything takes the tail only."""
    stores.bring_up(snapshots=None)
    stores.app.snapshot(tmp_path / "snapshots")
    stores.app.fill_tail()
    assert stores.bring_up() == {0: "local", 1: "local"}
    stores.assert_up_to_date()


def test_under_transactions_the_committed_end_is_asked_for(stores: Stores) -> None:
    """Faust takes it from the last fetch, and there may have been none: -1, as if nothing were to restore."""
    unknown = [replace(cold, highwater=-1) for cold in stores.cold()]
    bring_up(replace(stores.settings, snapshots=None), unknown, Stop())
    stores.assert_up_to_date()


@pytest.mark.kafka
def test_gaps_of_control_records_are_passed_over(kafka: Any, tmp_path: Path) -> None:
    """Transactions leave offsets without records, at the end of the snapshot and of the log."""
    app = App(kafka.bootstrap)
    app.write([(0, f"key-{n}", n) for n in range(100)], transaction="commit")
    app.snapshot(tmp_path / "snapshots")
    app.write([(0, "key-5", None), (1, "late", 1)], transaction="commit")
    stores = Stores(app, tmp_path / "tables", tmp_path / "snapshots")
    assert stores.bring_up() == {0: "snapshot", 1: "snapshot"}
    assert app.ends()[0] == 100 + 1 + 1 + 1
    stores.assert_up_to_date()
    stores.close()


def test_a_snapshot_older_than_delete_retention_is_refused(
    stores: Stores, tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka's default is a day; what the tail then lacks are tombstones."""
    stores.app.snapshot(tmp_path / "snapshots", age_ms=86_400_000 + 60_000)
    assert stores.bring_up() == {0: "replay", 1: "replay"}
    assert "delete.retention.ms" in caplog.text
    stores.assert_up_to_date()


@pytest.mark.parametrize("what", ["file", "sha256", "missing", "manifest"])
def test_a_snapshot_whose_hash_differs_is_refused(stores: Stores, tmp_path: Path, what: str) -> None:
    """A bit of a file, the manifest's hash, a missing file, a half-written manifest."""
    manifest = stores.app.snapshot(tmp_path / "snapshots")[0]
    folder = tmp_path / "snapshots" / folder_of(manifest)
    if what == "file":
        damage(tmp_path / "snapshots", manifest)
    elif what == "sha256":
        (folder / MANIFEST_NAME).write_bytes(replace(manifest, sha256="0" * 64).to_json())
    elif what == "missing":
        (folder / manifest.files[0]).unlink()
    else:
        (folder / MANIFEST_NAME).write_bytes(manifest.to_json()[:100])
    assert stores.bring_up() == {0: "replay", 1: "snapshot"}
    stores.assert_up_to_date()


def test_a_snapshot_of_a_longer_changelog_is_refused(stores: Stores, tmp_path: Path) -> None:
    """The topic was recreated: its old snapshots end beyond its end."""
    for manifest in stores.app.snapshot(tmp_path / "snapshots"):
        if manifest.next_offset:
            beyond = manifest.next_offset + 50_000
            folder = tmp_path / "snapshots" / folder_of(manifest)
            moved = folder.rename(folder.with_name(f"{beyond:020d}"))
            edited = replace(manifest, next_offset=beyond, snapshot_id=moved.name)
            (moved / MANIFEST_NAME).write_bytes(edited.to_json())
    assert stores.bring_up() == {0: "replay", 1: "replay"}
    stores.assert_up_to_date()


@pytest.mark.parametrize("url", ["/nonexistent/folder", "nosuch://bucket", "memory://empty"])
def test_storage_that_does_not_answer_means_replay(stores: Stores, url: str) -> None:
    """No snapshot, no driver, nothing there."""
    assert stores.bring_up(snapshots=url) == {0: "replay", 1: "replay"}
    stores.assert_up_to_date()


def test_an_unreachable_kafka_leaves_everything_to_faust(stores: Stores, tmp_path: Path) -> None:
    """Nothing raises; nothing is written."""
    stores.app.snapshot(tmp_path / "snapshots")
    done = stores.bring_up(connection={"bootstrap_servers": "127.0.0.1:1", "request_timeout_ms": 500})
    assert done == {0: "replay", 1: "replay"}
    assert stores.contents(0) == {}


def test_a_stopped_replay_keeps_what_it_has_and_goes_on_later(stores: Stores) -> None:
    """A rebalance in the middle: state and offset agree, the next recovery starts there."""

    class AfterOneBatch(Stop):
        def __call__(self) -> bool:
            return any(database.get(OFFSET_KEY) for database in stores.databases.values())

    slow = {"bootstrap_servers": stores.app.bootstrap, "max_partition_fetch_bytes": 2000}
    stores.bring_up(AfterOneBatch(), snapshots=None, connection=slow)
    partly = [cold for cold in stores.cold() if cold.offset >= 0]
    assert partly
    assert len(stores.contents(partly[0].tp.partition)) > 1
    assert stores.bring_up(snapshots=None)[partly[0].tp.partition] == "local"
    stores.assert_up_to_date()


def test_a_restore_told_to_stop_before_it_began_does_nothing(stores: Stores, tmp_path: Path) -> None:
    """A second rebalance right after the first."""
    stores.app.snapshot(tmp_path / "snapshots")
    stop = Stop()
    stop.set()
    stores.bring_up(stop)
    assert stores.contents(0) == {}


def test_the_time_limit_stops_too() -> None:
    """A silent consumer loses its membership: Faust's loop takes over before that."""
    assert not Stop(60.0)()
    assert Stop(-1.0)()


def test_object_storage_is_downloaded_beside_the_tables(stores: Stores, s3_folder: str) -> None:
    """No scratch folder stays."""
    stores.app.snapshot(s3_folder)
    stores.app.fill_tail()
    assert stores.bring_up(snapshots=s3_folder) == {0: "snapshot", 1: "snapshot"}
    stores.assert_up_to_date()
    assert not list(stores.settings.folder.glob(f"{SCRATCH_PREFIX}*"))


def test_an_exchange_that_fails_leaves_the_old_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half an exchange would be an empty database that passes for a full one."""
    opened = RocksDBOptions(max_open_files=64).open
    path, built = tmp_path / "balances-0.db", tmp_path / "scratch" / "database"
    store: Any = SimpleNamespace(partition_path=lambda _: path, _dbs={0: opened(path)})
    store._db_for_partition = lambda partition: (
        store._dbs[partition] if partition in store._dbs else store._dbs.setdefault(partition, opened(path)))
    store._dbs[0].put(b"a", b"old")
    built.parent.mkdir()
    other = opened(built)
    other.put(b"a", b"new")
    other.close()
    move = os.replace

    def failing(source: Path, target: Path) -> None:
        if source == built:
            raise OSError(5, os.strerror(5))
        move(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match=os.strerror(5)):
        _replace_database(store, 0, built)
    assert store._db_for_partition(0).get(b"a") == b"old"
    monkeypatch.setattr(os, "replace", move)
    _replace_database(store, 0, built)
    assert store._db_for_partition(0).get(b"a") == b"new"
    store._dbs[0].close()


def test_scratch_folders_of_killed_processes_are_swept(tmp_path: Path) -> None:
    """After a day, not before: another worker may share the folder."""
    old, young = (tmp_path / f"{SCRATCH_PREFIX}{name}" for name in ("old", "young"))
    for folder in (old, young):
        (folder / "deep").mkdir(parents=True)
    long_ago = time.time() - SCRATCH_MAX_AGE_S - 60
    os.utime(old, (long_ago, long_ago))
    sweep_scratch(tmp_path)
    assert not old.exists()
    assert young.exists()
