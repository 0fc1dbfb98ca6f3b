"""Unusable RocksDB files under a real worker: a full disk, and folders damaged while it was down."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.pipeline.snapshots.run import take_snapshot
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.sst import read_items
from faust_assigner.snapshots.storage import open_storage
from tests.support.workers.damage import Damage, remove, replace_by_file, scramble, truncate
from tests.support.workers.load import judge
from tests.support.workers.troubled import Troubled, fill, small_disk, troubled

pytestmark = pytest.mark.timeout(240)


def databases(it: Troubled, table: str = "totals") -> list[Path]:
    """Return the folders of the table's partitions."""
    return sorted(it.worker.folder.glob(f"data/**/{table}-?.db"))


def is_as_the_model_says(it: Troubled) -> None:
    """Assert that no order is lost and that each row's count and sum are exact."""
    verdict = judge(it.load, it.worker.orders, it.fleet.totals())
    assert (verdict.lost, verdict.wrong_rows) == (0, ())


@pytest.mark.slow
def test_a_worker_works_again_after_its_disk_was_full(tmp_path: Path) -> None:
    """The worker waits, logs some lines and loses no record; stock logs thousands, loses rows."""
    with (
        small_disk(tmp_path / "worker-1" / "data", 24) as disk,
        troubled(tmp_path, preload=2000) as it,
    ):
        it.start()
        it.load.start()
        assert it.until(lambda _: it.done > 100), it.log()[-3000:]
        ballast = fill(disk)
        assert it.until(lambda _: "cannot be read or written" in it.log()), it.log()[-3000:]
        before = it.log().count("\n")
        stuck = it.done
        assert not it.until(lambda worker: not worker.alive, 15.0), it.log()[-3000:]
        assert it.log().count("\n") - before < 1000
        ballast.unlink()
        assert it.until(lambda _: it.done > stuck + 50), it.log()[-3000:]
        it.load.stop()
        it.fleet.drain(sum(it.load.sent))
        is_as_the_model_says(it)


@pytest.mark.slow
def test_a_worker_that_starts_on_a_full_disk_waits_for_room(tmp_path: Path) -> None:
    """The worker does not restart over and over, at the cost of a rebalance each time."""
    with (
        small_disk(tmp_path / "worker-1" / "data", 24) as disk,
        troubled(tmp_path, preload=2000) as it,
    ):
        it.start()
        assert it.until(lambda _: it.done == 20), it.log()[-3000:]
        it.fleet.kill("worker-1")
        for path in databases(it) + databases(it, "rates"):
            for file in path.glob("*"):
                file.unlink()
            path.rmdir()
        ballast = fill(disk)
        it.start()
        it.load.start()
        assert it.until(lambda worker: worker.generation >= 0)
        assert not it.until(lambda worker: not worker.alive, 10.0)
        ballast.unlink()
        assert it.until(lambda _: it.done > 60)
        it.load.stop()
        it.fleet.drain(sum(it.load.sent))
        is_as_the_model_says(it)


def twice(damage: Damage) -> tuple[Damage, Damage]:
    """Return the same damage twice."""
    return damage, damage


@pytest.mark.slow
@pytest.mark.parametrize(
    "damages",
    [
        pytest.param(twice(scramble("MANIFEST*")), id="manifest scrambled"),
        pytest.param(twice(remove("MANIFEST*")), id="manifest gone"),
        pytest.param(twice(truncate("CURRENT")), id="CURRENT cut"),
        pytest.param(twice(replace_by_file), id="a file"),
        pytest.param((replace_by_file, truncate("CURRENT")), id="a file, then a folder"),
        pytest.param((truncate("CURRENT"), replace_by_file), id="a folder, then a file"),
    ],
)
def test_a_corrupt_folder_is_set_aside_and_its_changelog_replayed(
    tmp_path: Path, damages: tuple[Damage, Damage]
) -> None:
    """Stock ends at each start, and each start rebalances the group."""
    with troubled(tmp_path, preload=500) as it:
        it.start()
        it.load.start()
        assert it.until(lambda _: it.done > 20)
        for damage in damages:
            it.fleet.terminate("worker-1")
            damage(databases(it)[0])
            done = it.done
            it.start()
            assert it.until(lambda _, done=done: it.done > done + 20), it.log()[-3000:]
        it.load.stop()
        it.fleet.drain(sum(it.load.sent))
        is_as_the_model_says(it)
        aside = sorted(path.name for path in it.worker.folder.glob("data/**/*.corrupt"))
        assert aside == [databases(it)[0].name + ".corrupt"]
        assert it.log().count("were set aside as") == 2


@pytest.mark.slow
def test_changelog_rows_that_do_not_decode_reach_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows before them stay, in a replay and in snapshots; an agent would end at each of them."""
    with troubled(tmp_path, preload=500) as it:
        topic = f"{it.load.app_id}-totals-changelog"
        asyncio.run(
            write_rows(
                it.load.bootstrap,
                topic,
                [
                    (b'"customer-0-0"', b"{no json"),
                    (b"{no json", b"{}"),
                    (b'"customer-1-1"', b"[1]"),
                ],
            )
        )
        flows_for(it, 60)
        assert "Batched replay failed" not in it.log()  # Faust's own loop would have read them then
        kept = [
            line
            for path in it.worker.folder.glob("data/**/unreadable/*.jsonl")
            for line in path.read_text().splitlines()
        ]
        assert len(kept) >= 3

        rows = it.fleet.totals()
        it.fleet.terminate("worker-1")
        cluster, url = Cluster(it.load.bootstrap), str(tmp_path / "snapshots")
        poisoned = ["customer-0-0", "customer-1-0"]
        for previous in (False, True):
            asyncio.run(
                write_rows(
                    it.load.bootstrap,
                    topic,
                    [(json.dumps(key).encode(), b"{no json") for key in poisoned]
                    # A row of another type would make the worker refuse the snapshot.
                    + [(b'"customer-1-1"', None), (b'"bulk-1"', b"{}"), (b'"bulk-0"', b"{}")],
                )
            )
            newest = take_snapshot(cluster, topic, url, previous=previous)
        catalog = Catalog(open_storage(url))
        for key, manifest in zip(poisoned, newest, strict=True):
            found = dict(read_items(catalog.fetch(manifest, tmp_path)))
            assert json.loads(found[json.dumps(key).encode()])["numbers"] == rows[key]["numbers"]

        shutil.rmtree(it.worker.folder / "data")
        monkeypatch.setenv("FAUST_ASSIGNER_SNAPSHOTS", url)
        flows_for(it, it.done + 60)
        for partition in range(2):
            assert f"Restored {topic}-{partition} from snapshot" in it.log()


def flows_for(it: Troubled, orders: int) -> None:
    """Start the worker, wait until ``orders`` are done, and assert that the rows are right."""
    it.start()
    it.load.start()
    assert it.until(lambda _: it.done > orders), it.log()[-3000:]
    it.load.stop()
    it.fleet.drain(sum(it.load.sent))
    is_as_the_model_says(it)


async def write_rows(
    bootstrap: str, topic: str, rows: Sequence[tuple[bytes, bytes | None]]
) -> None:
    """Write the rows to partitions 0 and 1 in turn."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number, (key, value) in enumerate(rows):
            await producer.send_and_wait(topic, value, key, number % 2)
