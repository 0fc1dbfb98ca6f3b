"""Restores of real workers and stores from snapshot and tail equal a full replay."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import faust
import pytest
from confluent_kafka import TopicPartition as CTopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from faust_assigner.app.recovery.bring_up import bring_up
from faust_assigner.app.recovery.decoding import decoding_of
from faust_assigner.app.recovery.from_snapshots import (
    SCRATCH_MAX_AGE_S,
    SCRATCH_PREFIX,
    sweep_scratch,
)
from faust_assigner.app.recovery.restore_task import Stop
from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots.run import take_snapshot
from faust_assigner.pipeline.snapshots.spans import plan_job
from faust_assigner.snapshots.catalog import Catalog, folder_of
from faust_assigner.snapshots.changelog import look_at
from faust_assigner.snapshots.manifest import MANIFEST_NAME
from faust_assigner.snapshots.retention import collect_garbage
from faust_assigner.snapshots.sst import OFFSET_KEY, read_items
from faust_assigner.snapshots.storage import open_storage
from faust_assigner.snapshots.verification import verify
from tests.integration.snapshots.balances import App, Stores, damage, partition_hash


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow])]
)
def app(request: pytest.FixtureRequest) -> App:
    """The app on our broker and on Kafka."""
    server = request.getfixturevalue("kafka" if request.param == "kafka" else "embedded_broker")
    return App(server.bootstrap)


@pytest.fixture
def local(embedded_broker: Any) -> App:
    """The app on our broker, filled, for a snapshot and a later tail."""
    app = App(embedded_broker.bootstrap)
    app.fill()
    return app


@pytest.mark.slow
@pytest.mark.processes
def test_a_worker_restores_snapshot_and_tail_as_stock_faust_replays(
    app: App, tmp_path: Path
) -> None:
    """One table three times: replayed by stock, restored from layers, kept in its own files."""
    app.fill()
    app.snapshot(tmp_path / "snapshots")
    app.write([(n % 2, f"key-{n}", None if n % 3 else -n) for n in range(300, 310)])
    assert app.snapshot(tmp_path / "snapshots", previous=True)[0].layers == (1, 1)
    app.fill_tail()
    stock = app.worker(tmp_path / "stock")
    ours = app.worker(tmp_path / "ours", restore=True, snapshots=tmp_path / "snapshots")
    again = app.worker(tmp_path / "ours", restore=True, snapshots=tmp_path / "snapshots")
    assert stock["state"]["hash"] == app.model_hash()
    assert ours["state"]["hash"] == app.model_hash()
    assert ours["sources"] == {"0": "snapshot", "1": "snapshot"}
    assert again["state"]["hash"] == app.model_hash()
    assert again["sources"] == {}  # the restart had no recovery to do
    assert ours["state"]["offsets"]["0"] == app.ends()[0] - 1
    assert not list((tmp_path / "ours").rglob(f"{SCRATCH_PREFIX}*"))


@pytest.mark.slow
@pytest.mark.processes
def test_a_worker_without_usable_snapshot_replays(local: App, tmp_path: Path) -> None:
    """One snapshot is damaged, the other usable: no error, and the state equals the replay's."""
    manifests = local.snapshot(tmp_path / "snapshots")
    damage(tmp_path / "snapshots", manifests[0])
    local.fill_tail()
    ours = local.worker(tmp_path / "ours", restore=True, snapshots=tmp_path / "snapshots")
    assert ours["state"]["hash"] == local.model_hash()
    assert ours["sources"] == {"0": "replay", "1": "snapshot"}
    assert f"snapshot {manifests[0].snapshot_id} is refused" in ours["log"]
    assert "no snapshot to restore from" in ours["log"]


@pytest.mark.slow
@pytest.mark.processes
def test_a_standby_far_behind_is_restored_as_an_active_is(
    embedded_broker: Any, tmp_path: Path
) -> None:
    """From snapshot and tail, or in batches: here partition 1 has lost its snapshot."""
    app = App(embedded_broker.bootstrap)
    app.write([(n % 2, f"key-{n % 9000}", n) for n in range(30_000)])
    manifests = app.snapshot(tmp_path / "snapshots")
    shutil.rmtree(tmp_path / "snapshots" / folder_of(manifests[1]))
    app.write([(n % 2, f"key-{n % 9000}", -n) for n in range(6_000)])
    first = app.start_worker(tmp_path / "first", restore=True, stay=True, standbys=1)
    try:
        assert first.stdout is not None
        first.stdout.readline()  # it has recovered and stays
        second = app.worker(
            tmp_path / "second",
            restore=True,
            standbys=1,
            settle_s=40,
            partial=True,
            snapshots=tmp_path / "snapshots",
        )
    finally:
        first.kill()
        first.communicate()
    assert second["sources"] == {"0": "snapshot", "1": "replay"}
    assert second["standby_remaining"] == 0
    held = second["state"]["partitions"]
    assert held["0"] == partition_hash(app.state[0])
    assert held["1"] == partition_hash(app.state[1])


# -- the restore thread's work, on stores as Faust opens them


@pytest.fixture
def stores(local: App, tmp_path: Path) -> Iterator[Stores]:
    """Empty stores of the local app, with a folder for snapshots."""
    made = Stores(local, tmp_path / "tables", tmp_path / "snapshots")
    yield made
    made.close()


def test_snapshot_and_tail_equal_the_replay(stores: Stores, tmp_path: Path) -> None:
    """This includes deletes after the cut, returning keys and an empty partition."""
    stores.app.snapshot(tmp_path / "snapshots")
    stores.app.fill_tail()
    assert stores.bring_up() == {0: "snapshot", 1: "snapshot"}
    stores.assert_up_to_date()


def test_a_chain_of_snapshots_and_the_tail_equal_the_replay(stores: Stores, tmp_path: Path) -> None:
    """A later layer restores a deleted key; gc keeps all files that the newest snapshot lists."""
    url, app = tmp_path / "snapshots", stores.app
    whole = app.snapshot(url, age_ms=2_000)
    app.write([(0, "key-500", None), (0, "key-502", 7), (1, "key-501", None)])
    app.snapshot(url, age_ms=1_000, previous=True)
    app.write([(0, "key-500", -1), (0, "key-502", None)])
    newest = app.snapshot(url, previous=True)
    assert [each.layers for each in newest[:2]] == [(1, 1, 1), (1, 1)]
    assert (newest[0].new_bytes or 0) < whole[0].bytes / 2
    catalog = Catalog(open_storage(url))
    assert len(collect_garbage(catalog, now_ms=round(time.time() * 1000), keep=1)) >= 3
    assert not any(verdict.problem for verdict in verify(catalog))
    app.fill_tail()
    assert stores.bring_up() == {0: "snapshot", 1: "snapshot"}
    stores.assert_up_to_date()


def test_a_replay_in_batches_equals_the_model(stores: Stores) -> None:
    """There is no snapshot."""
    assert stores.bring_up(snapshots=None) == {0: "replay", 1: "replay"}
    stores.assert_up_to_date()


def test_local_files_go_before_snapshots(stores: Stores, tmp_path: Path) -> None:
    """A database with rows reads only the tail."""
    stores.bring_up(snapshots=None)
    stores.app.snapshot(tmp_path / "snapshots")
    stores.app.fill_tail()
    assert stores.bring_up() == {0: "local", 1: "local"}
    stores.assert_up_to_date()


def test_under_transactions_the_committed_end_is_asked_for(stores: Stores) -> None:
    """Faust takes the end from its last fetch; without a fetch it is -1, an empty changelog."""
    unknown = [replace(cold, highwater=-1) for cold in stores.cold()]
    bring_up(replace(stores.settings, snapshots=None), unknown, Stop())
    stores.assert_up_to_date()


@pytest.mark.kafka
def test_gaps_of_control_records_are_passed_over(kafka: Any, tmp_path: Path) -> None:
    """Transactions leave offsets without records at the end of the snapshot and of the log."""
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
    stores: Stores, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's default is a day; the tail then lacks tombstones."""
    stores.app.snapshot(tmp_path / "snapshots", age_ms=86_400_000 + 60_000)
    assert stores.bring_up() == {0: "replay", 1: "replay"}
    assert "delete.retention.ms" in caplog.text
    stores.assert_up_to_date()


@pytest.mark.parametrize("what", ["file", "sha256", "missing", "manifest"])
def test_a_snapshot_whose_hash_differs_is_refused(
    stores: Stores, tmp_path: Path, what: str
) -> None:
    """A flipped bit, another hash in the manifest, a missing file, a half-written manifest."""
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


def test_the_older_snapshot_serves_where_the_newest_is_damaged(
    stores: Stores, tmp_path: Path
) -> None:
    """The tail then also has the records between both snapshots; a replay would read all."""
    first = stores.app.snapshot(tmp_path / "snapshots", age_ms=60_000)
    stores.app.fill_tail()
    damage(tmp_path / "snapshots", stores.app.snapshot(tmp_path / "snapshots")[0])
    done = bring_up(stores.settings, stores.cold(), Stop())
    [restored] = [each for tp, each in done.items() if tp.partition == 0]
    end = stores.app.ends()[0]
    assert (restored.source, restored.replayed) == ("snapshot", end - first[0].next_offset)
    stores.assert_up_to_date()


@pytest.mark.parametrize(
    ("payload", "source"),
    [(b"{not json", "snapshot"), (b'"seven"', "replay")],
    ids=["no JSON", "no number"],
)
def test_a_record_that_does_not_decode_leaves_the_row_before_it(
    stores: Stores, tmp_path: Path, payload: bytes, source: str
) -> None:
    """The job skips invalid JSON; only the worker can see values of another type."""
    app = faust.App("shop", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)
    stores.decoding = decoding_of(app.Table("balances", key_type=str, value_type=int))
    stores.app.poison(0, "key-200", payload)
    take_snapshot(Cluster(stores.app.bootstrap), stores.app.changelog, str(tmp_path / "s"))
    stores.app.fill_tail()
    stores.app.write([(0, "key-200", None)])
    stores.app.write([(0, "key-202", 7)])
    stores.app.poison(0, "key-202", payload)
    take_snapshot(
        Cluster(stores.app.bootstrap), stores.app.changelog, str(tmp_path / "s"), previous=True
    )
    assert stores.bring_up(snapshots=str(tmp_path / "s")) == {0: source, 1: "snapshot"}
    assert stores.contents(0)[b'"key-202"'] == b"7"
    stores.assert_up_to_date()


def test_a_snapshot_that_was_checked_as_json_is_refused_by_a_raw_table(
    stores: Stores, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows that are invalid JSON may be missing from the snapshot."""
    app = faust.App("shop", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)
    table = app.Table("balances", key_type=str, value_type=bytes)
    table.changelog_topic.schema.value_serializer = "raw"
    stores.decoding = decoding_of(table)
    stores.app.snapshot(tmp_path / "snapshots")
    assert stores.bring_up() == {0: "replay", 1: "replay"}
    assert "--value-codec raw" in caplog.text


def test_a_chain_of_snapshots_forgets_what_retention_removed(local: App, tmp_path: Path) -> None:
    """A full snapshot does the same: changelogs of windowed tables are compacted and deleted."""
    cluster, url = Cluster(local.bootstrap), str(tmp_path / "chain")
    [before, *_] = take_snapshot(cluster, local.changelog, url)
    admin = AdminClient({"bootstrap.servers": local.bootstrap})
    policy = ConfigEntry(
        "cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET
    )
    changelog = ConfigResource(
        ConfigResource.Type.TOPIC, local.changelog, incremental_configs=[policy]
    )
    admin.incremental_alter_configs([changelog])[changelog].result(30)
    cut = CTopicPartition(local.changelog, 0, before.next_offset - 10)
    for done in admin.delete_records([cut]).values():
        done.result(30)
    local.write([(0, "late", 1), (1, "late", 1)])
    chain = take_snapshot(cluster, local.changelog, url, previous=True)
    whole = take_snapshot(cluster, local.changelog, str(tmp_path / "whole"))
    for one, other in zip(chain, whole, strict=True):
        found = [
            dict(read_items(Catalog(open_storage(folder)).fetch(each, tmp_path)))
            for folder, each in ((url, one), (tmp_path / "whole", other))
        ]
        assert found[0] == found[1]
    assert chain[0].keys < before.keys
    assert [each.layers for each in chain[:2]] == [None, (1, 1)]
    again = plan_job(
        look_at(cluster.connection(), local.changelog),
        url,
        created_ms=round(time.time() * 1000),
        previous=True,
    )
    assert [span.start for span in again.spans] == [each.next_offset for each in chain]


def test_a_snapshot_of_a_longer_changelog_is_refused(stores: Stores, tmp_path: Path) -> None:
    """The topic was recreated: its old snapshots are beyond its end."""
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
    """No snapshot, an unknown protocol, an empty folder."""
    assert stores.bring_up(snapshots=url) == {0: "replay", 1: "replay"}
    stores.assert_up_to_date()


def test_an_unreachable_kafka_leaves_everything_to_faust(stores: Stores, tmp_path: Path) -> None:
    """The restore raises no error and writes no row."""
    stores.app.snapshot(tmp_path / "snapshots")
    done = stores.bring_up(
        connection={"bootstrap_servers": "127.0.0.1:1", "request_timeout_ms": 500}
    )
    assert done == {0: "replay", 1: "replay"}
    assert stores.contents(0) == {}


def test_a_stopped_replay_keeps_what_it_has_and_goes_on_later(stores: Stores) -> None:
    """A rebalance interrupts it: state and offset agree, and the next recovery continues there."""

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


def test_a_restore_told_to_stop_before_it_began_does_nothing(
    stores: Stores, tmp_path: Path
) -> None:
    """A second rebalance comes right after the first."""
    stores.app.snapshot(tmp_path / "snapshots")
    stop = Stop()
    stop.set()
    stores.bring_up(stop)
    assert stores.contents(0) == {}


def test_the_time_limit_stops_too() -> None:
    """A silent consumer loses its membership, so Faust's loop takes over earlier."""
    assert not Stop(60.0)()
    assert Stop(-1.0)()


def test_object_storage_is_downloaded_beside_the_tables(stores: Stores, s3_folder: str) -> None:
    """No scratch folder remains."""
    stores.app.snapshot(s3_folder)
    stores.app.fill_tail()
    assert stores.bring_up(snapshots=s3_folder) == {0: "snapshot", 1: "snapshot"}
    stores.assert_up_to_date()
    assert not list(stores.settings.folder.glob(f"{SCRATCH_PREFIX}*"))


def test_scratch_folders_of_killed_processes_are_swept(tmp_path: Path) -> None:
    """Only after a day, because another worker may share the folder."""
    old, young = (tmp_path / f"{SCRATCH_PREFIX}{name}" for name in ("old", "young"))
    for folder in (old, young):
        (folder / "deep").mkdir(parents=True)
    long_ago = time.time() - SCRATCH_MAX_AGE_S - 60
    os.utime(old, (long_ago, long_ago))
    sweep_scratch(tmp_path)
    assert not old.exists()
    assert young.exists()
