"""A changelog deleted and created again under its name: old snapshots never become its state."""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from faust.stores.rocksdb import RocksDBOptions

from faust_assigner.app.recovery.bring_up import bring_up
from faust_assigner.app.recovery.restore_task import Cold, Settings, Stop
from faust_assigner.cli import main
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots import run as snapshot_run
from faust_assigner.pipeline.snapshots.run import take_snapshot
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.changelog import look_at
from faust_assigner.snapshots.manifest import MANIFEST_NAME, Manifest, SnapshotError
from faust_assigner.snapshots.sst import OFFSET_KEY, read_items
from faust_assigner.snapshots.storage import open_storage


class Log:
    """A changelog of one partition that can be recreated."""

    def __init__(self, bootstrap: str) -> None:
        self.cluster = Cluster(bootstrap)
        self.topic = f"app-{uuid.uuid4().hex[:8]}-changelog"
        self.create(AdminClient({"bootstrap.servers": bootstrap}))

    def create(self, admin: AdminClient) -> None:
        """Create the topic as Faust does."""
        new = NewTopic(self.topic, 1, 1, config={"cleanup.policy": "compact"})
        admin.create_topics([new])[self.topic].result(30)

    def recreate(self) -> None:
        """Delete and recreate the topic; brokers delete a topic with a delay."""
        # A new client: a client that outlives the test keeps a connection.
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        admin.delete_topics([self.topic])[self.topic].result(30)
        deadline = time.monotonic() + 30
        while self.topic in admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
            time.sleep(0.1)
        self.create(admin)

    def write(self, life: str, count: int) -> None:
        """Write ``count`` keys that are unique to this ``life`` of the topic."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for number in range(count):
            producer.produce(self.topic, b"1", json.dumps(f"{life}-{number}").encode(), 0)
        assert producer.flush(30) == 0

    def expected(self, life: str, count: int) -> dict[bytes, bytes]:
        """Return the state after :meth:`write`, with Faust's offset."""
        keys = {json.dumps(f"{life}-{number}").encode(): b"1" for number in range(count)}
        return keys | {OFFSET_KEY: str(count - 1).encode()}


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
def log(request: pytest.FixtureRequest) -> Log:
    """A changelog on our broker and on Kafka."""
    server = request.getfixturevalue("kafka" if request.param == "kafka" else "embedded_broker")
    return Log(server.bootstrap)


def forget_ids(folder: Path) -> None:
    """Remove the topic ids, as in manifests of older versions."""
    for path in folder.rglob(MANIFEST_NAME):
        path.write_bytes(replace(Manifest.from_json(path.read_bytes()), topic_id=None).to_json())


def two_lives(log: Log, folder: Path, *, with_ids: bool) -> None:
    """Take old snapshots at 10 and 40; the new log has 30 records, between both."""
    log.write("old", 10)
    take_snapshot(log.cluster, log.topic, str(folder))
    log.write("old", 30)
    take_snapshot(log.cluster, log.topic, str(folder))
    if not with_ids:
        forget_ids(folder)
    log.recreate()
    log.write("new", 30)


def restore(log: Log, folder: Path, tables: Path) -> tuple[str, dict[bytes, bytes]]:
    """Return the source of a worker's restored state, and the state."""
    database = RocksDBOptions(max_open_files=64).open(tables / "balances-0.db")
    settings = Settings(str(folder), True, log.cluster.connection(), "read_committed", tables)
    tp = TopicPartition(log.topic, 0)
    end = look_at(log.cluster.connection(), log.topic).extents[0].end
    try:
        done = bring_up(settings, [Cold(tp, database, -1, end - 1, True)], Stop())
        return done[tp].source, dict(database.items())
    finally:
        database.close()


def run(*arguments: str) -> Result:
    """Run ``faust-assigner snapshot``."""
    return CliRunner().invoke(main, ["snapshot", *arguments])


@pytest.mark.parametrize("with_ids", [True, False], ids=["ids", "no ids"])
def test_the_next_snapshot_builds_on_none_of_the_old_topic(
    log: Log, tmp_path: Path, with_ids: bool
) -> None:
    """The build uses neither the snapshot beyond the new end nor the older one."""
    two_lives(log, tmp_path / "s", with_ids=with_ids)
    [manifest] = take_snapshot(log.cluster, log.topic, str(tmp_path / "s"), previous=True)
    paths = Catalog(open_storage(tmp_path / "s")).fetch(manifest, tmp_path)
    assert dict(read_items(paths)) == log.expected("new", 30)
    assert manifest.topic_id == look_at(log.cluster.connection(), log.topic).topic_id is not None


@pytest.mark.parametrize("with_ids", [True, False], ids=["ids", "no ids"])
def test_a_worker_restores_nothing_of_the_old_topic(
    log: Log, tmp_path: Path, with_ids: bool
) -> None:
    """The worker replays instead; it restores from the new topic's own snapshot."""
    two_lives(log, tmp_path / "s", with_ids=with_ids)
    assert restore(log, tmp_path / "s", tmp_path / "first") == ("replay", log.expected("new", 30))
    take_snapshot(log.cluster, log.topic, str(tmp_path / "s"))
    assert restore(log, tmp_path / "s", tmp_path / "second") == (
        "snapshot",
        log.expected("new", 30),
    )


def test_an_old_snapshot_is_refused_once_the_new_log_has_outgrown_it(
    log: Log, tmp_path: Path
) -> None:
    """Then the offsets fit, and only the topic id differs."""
    two_lives(log, tmp_path / "s", with_ids=True)
    log.write("newer", 30)
    source, _ = restore(log, tmp_path / "s", tmp_path / "tables")
    assert source == "replay"
    [manifest] = take_snapshot(log.cluster, log.topic, str(tmp_path / "s"), previous=True)
    assert manifest.keys == 60


def test_verify_names_snapshots_of_the_old_topic_and_gc_drops_them(
    log: Log, tmp_path: Path
) -> None:
    """With a cluster at once; without one as soon as the new topic has a snapshot."""
    folder = str(tmp_path / "s")
    two_lives(log, tmp_path / "s", with_ids=True)
    asked = run("verify", folder, "--bootstrap", log.cluster.bootstrap)
    assert asked.exit_code == 1
    assert asked.output.count("the topic was recreated") == 2
    assert run("verify", folder).exit_code == 0
    take_snapshot(log.cluster, log.topic, folder)
    alone = run("verify", folder)
    assert alone.exit_code == 1
    assert alone.output.count("the topic was recreated") == 2
    assert run("gc", folder).exit_code == 0
    assert run("verify", folder, "--bootstrap", log.cluster.bootstrap).exit_code == 0
    [left] = Catalog(open_storage(folder)).snapshots(log.topic, 0)
    assert left.next_offset == 30


def test_a_topic_recreated_while_it_is_read_publishes_nothing(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records may be from both topics."""
    log.write("old", 10)
    read: Callable[..., object] = snapshot_run.run_here

    def slow(*arguments: object) -> object:
        done = read(*arguments)
        log.recreate()
        log.write("new", 20)
        return done

    monkeypatch.setattr(snapshot_run, "run_here", slow)
    with pytest.raises(SnapshotError, match="recreated while it was read"):
        take_snapshot(log.cluster, log.topic, str(tmp_path))
    assert not list(tmp_path.rglob(MANIFEST_NAME))


def test_a_running_topics_snapshots_are_built_upon_from_before_ids_too(
    log: Log, tmp_path: Path
) -> None:
    """An upgrade does not require a full read."""
    log.write("old", 10)
    take_snapshot(log.cluster, log.topic, str(tmp_path))
    forget_ids(tmp_path)
    catalog = Catalog(open_storage(tmp_path))
    assert [each.topic_id for each in catalog.snapshots(log.topic, 0)] == [None]
    log.write("more", 5)
    source, _ = restore(log, tmp_path, tmp_path / "tables")
    assert source == "snapshot"
    [after] = take_snapshot(log.cluster, log.topic, str(tmp_path), previous=True)
    assert (after.keys, after.next_offset, bool(after.topic_id)) == (15, 15, True)
