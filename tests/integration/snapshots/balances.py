"""A table of balances on a real broker: its changelog, model, and databases as Faust opens them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiokafka import TopicPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from faust.stores.rocksdb import RocksDBOptions

from faust_assigner.app.recovery.bring_up import bring_up
from faust_assigner.app.recovery.decoding import ANYTHING
from faust_assigner.app.recovery.restore_task import Cold, Settings, Stop
from faust_assigner.pipeline.snapshots.spans import plan_job, publish
from faust_assigner.pipeline.snapshots.writer import run_here
from faust_assigner.snapshots.catalog import folder_of
from faust_assigner.snapshots.changelog import look_at
from faust_assigner.snapshots.manifest import Manifest
from faust_assigner.snapshots.sst import OFFSET_KEY

PARTITIONS = 3
EMPTY = 2
WORKER = Path(__file__).parents[3] / "benchmarks" / "workers" / "recovery.py"
Write = tuple[int, str, int | None]


class App:
    """A source and a changelog as in a Faust app, and the model of the table."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.app_id = f"shop-{uuid.uuid4().hex[:8]}"
        self.changelog = f"{self.app_id}-balances-changelog"
        self.state: list[dict[bytes, bytes]] = [{} for _ in range(PARTITIONS)]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [
            NewTopic(f"{self.app_id}-source", PARTITIONS, 1),
            NewTopic(self.changelog, PARTITIONS, 1, config={"cleanup.policy": "compact"}),
        ]
        for made in admin.create_topics(topics).values():
            made.result(30)

    def write(self, writes: list[Write], *, transaction: str | None = None) -> None:
        """Write changelog records as Faust does: JSON keys and values, no value for a delete."""
        settings: dict[str, str] = {"bootstrap.servers": self.bootstrap, "linger.ms": "5"}
        producer = Producer(
            settings | ({"transactional.id": uuid.uuid4().hex} if transaction else {})
        )
        if transaction:
            producer.init_transactions(30)
            producer.begin_transaction()
        for partition, key, value in writes:
            raw_key, raw = (
                json.dumps(key).encode(),
                None if value is None else json.dumps(value).encode(),
            )
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
        """Write updates, deletes and returning keys to two of three partitions."""
        self.write([(n % 2, f"key-{n % 1500}", n) for n in range(4000)])
        self.write([(n % 2, f"key-{n}", None) for n in range(0, 300)])
        self.write([(n % 2, f"key-{n}", -n) for n in range(0, 100)])

    def fill_tail(self) -> None:
        """Write deletes, returning keys and new keys after the cut."""
        self.write([(n % 2, f"key-{n}", None) for n in range(0, 40)])
        self.write([(n % 2, f"key-{n}", n) for n in range(200, 220)])
        self.write([(n % 2, f"new-{n}", n) for n in range(30)])

    def poison(self, partition: int, key: str, payload: bytes) -> None:
        """Write a value that a replay skips."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(self.changelog, payload, json.dumps(key).encode(), partition)
        assert producer.flush(30) == 0

    def snapshot(
        self, url: Path | str, *, age_ms: int = 0, previous: bool = False
    ) -> list[Manifest]:
        """Publish the snapshots that the pipeline writes, without Spark."""
        connection = {"bootstrap_servers": self.bootstrap}
        log = look_at(connection, self.changelog)
        created_ms = round(time.time() * 1000) - age_ms
        job = plan_job(log, str(url), created_ms=created_ms, previous=previous)
        return publish(job, run_here(job, connection))

    def ends(self) -> dict[int, int]:
        """Return the end of each partition of the changelog."""
        extents = look_at({"bootstrap_servers": self.bootstrap}, self.changelog).extents
        return {partition: extent.end for partition, extent in extents.items()}

    def model_hash(self) -> str:
        """The hash that benchmarks/workers/recovery.py prints for a table equal to the model."""
        digest = hashlib.sha256()
        for partition, state in enumerate(self.state):
            for key, value in sorted(state.items()):
                digest.update(b"%d %d %d " % (partition, len(key), len(value)) + key + value)
        return digest.hexdigest()

    def worker(
        self, datadir: Path, *, snapshots: Path | None = None, **settings: Any
    ) -> dict[str, Any]:
        """Run a Faust worker until it has recovered; return its report."""
        process = self.start_worker(datadir, snapshots=snapshots, **settings)
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
        assert process.returncode == 0, err[-3000:]
        return json.loads(out.splitlines()[-1]) | {"log": err}

    def start_worker(
        self, datadir: Path, *, snapshots: Path | None = None, **settings: Any
    ) -> subprocess.Popen[str]:
        """Start the worker's process."""
        given = {
            "bootstrap": self.bootstrap,
            "app_id": self.app_id,
            "partitions": PARTITIONS,
            "datadir": str(datadir),
            **settings,
        }
        environment = {**os.environ, "FAUST_ASSIGNER_SNAPSHOTS": str(snapshots or "")}
        return subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(given)],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def partition_hash(state: dict[bytes, bytes]) -> str:
    """Return the hash that benchmarks/workers/recovery.py prints for a partition."""
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
    """Empty databases as Faust opens them, and the result of a restore."""

    def __init__(self, app: App, folder: Path, snapshots: Path | None) -> None:
        self.app = app
        self.decoding = ANYTHING
        self.settings = Settings(
            str(snapshots) if snapshots else None,
            True,
            {"bootstrap_servers": app.bootstrap},
            "read_committed",
            folder,
        )
        self.databases = {
            n: RocksDBOptions(max_open_files=64).open(folder / f"balances-{n}.db")
            for n in range(PARTITIONS)
        }

    def cold(self) -> list[Cold]:
        """The lagging partitions in the form in which the recovery passes them."""
        found = []
        for partition, end in self.app.ends().items():
            offset = int(self.databases[partition].get(OFFSET_KEY) or -1)
            if end - 1 > offset:
                tp = TopicPartition(self.app.changelog, partition)
                database = self.databases[partition]
                found.append(Cold(tp, database, offset, end - 1, True, self.decoding))
        return found

    def bring_up(self, stop: Stop | None = None, **settings: Any) -> dict[int, str]:
        """Run the restore; return the source of each partition's state."""
        done = bring_up(replace(self.settings, **settings), self.cold(), stop or Stop())
        return {tp.partition: each.source for tp, each in sorted(done.items())}

    def contents(self, partition: int) -> dict[bytes, bytes]:
        """Return keys and values, including Faust's offset."""
        return dict(self.databases[partition].items())

    def assert_up_to_date(self) -> None:
        """Assert that every database equals the model and has its offset."""
        ends = self.app.ends()
        for partition, state in enumerate(self.app.state):
            offset = {OFFSET_KEY: str(ends[partition] - 1).encode()} if ends[partition] else {}
            assert self.contents(partition) == state | offset

    def close(self) -> None:
        """Close the databases."""
        for database in self.databases.values():
            database.close()
