"""Recover a table in four ways in one run, with equal state required; and time its snapshot.

    python -m benchmarks.recovery [--keys 1000000] [--tail 0.01] [--partitions 8] [--broker kafka|embedded]

A real Faust app writes the table through an agent (or ``--direct``: the same changelog records by a
producer, much faster); Spark takes a snapshot of its changelog through the Kafka connector; the app writes
the tail. Then new workers recover, one after another:

    stock      Faust's own loop, the whole changelog
    batched    the whole changelog in batches (app/recovery/batched_replay.py)
    snapshot   files, then the tail
    local      the same worker again, from its own files

Each figure runs from the assignment of partitions to the ready worker, including fetch and download.
At the end ``history`` reads our workers' ledger. Exit code 1 if a state differs.
compaction.py compares ways of taking the snapshot on Spark.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.pipeline.cluster import Cluster
from faust_assigner.testing.kafka import kafka_server
from faust_assigner.testing.ports import free_port

APP_ID = "shop"
CHANGELOG = f"{APP_ID}-balances-changelog"
WORKER = Path(__file__).parent / "workers" / "recovery.py"
GOALS = {"snapshot": 30.0, "batched": 5.0}


@contextlib.contextmanager
def broker_of(kind: str) -> Iterator[str]:
    """Start a broker; yield its address."""
    if kind == "kafka":
        with kafka_server() as server:
            yield server.bootstrap
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        # In its own process, as in use: in this process it would share the benchmark's GIL.
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "faust_assigner.cli",
                "broker",
                "--data",
                data,
                "--port",
                str(port),
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", port), 1.0),
                ):
                    break
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


class Bench:
    """A broker with an app and its table."""

    def __init__(self, bootstrap: str, options: argparse.Namespace, work: Path) -> None:
        self.bootstrap, self.options, self.work = bootstrap, options, work
        self.snapshots, self.ledger = work / "snapshots", work / "ledger"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [
            NewTopic(f"{APP_ID}-source", options.partitions, 1),
            NewTopic(CHANGELOG, options.partitions, 1, config={"cleanup.policy": "compact"}),
        ]
        for made in admin.create_topics(topics).values():
            made.result(30)

    def write(self, start: int, end: int) -> None:
        """Write keys numbered [start, end) through the table, or directly into its changelog."""
        began = time.monotonic()
        if self.options.direct:
            self._produce(CHANGELOG, start, end)
        else:
            self._produce(f"{APP_ID}-source", start, end)
            report = self._worker("writer", restore=True, expect_offsets=self._ends(end))
            assert report["state"]["keys"] >= min(end, self.options.keys), report["state"]["keys"]
        print(
            f"  wrote {end - start:,} changes in {time.monotonic() - began:.1f} s "
            f"({'by a producer' if self.options.direct else 'through the app'})",
            flush=True,
        )

    def _produce(self, topic: str, start: int, end: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 20,
                "queue.buffering.max.messages": 500_000,
            }
        )
        for number in range(start, end):
            key = number % self.options.keys
            producer.produce(
                topic, b"%d" % number, b'"customer-%09d"' % key, key % self.options.partitions
            )
            if number % 5000 == 0:
                producer.poll(0)
                while len(producer) > 400_000:
                    producer.poll(0.1)
        assert producer.flush(120) == 0

    def _ends(self, written: int) -> dict[int, int]:
        """Return each partition's changelog offset after ``written`` changes through the table."""
        count, keys = self.options.partitions, self.options.keys
        ends = dict.fromkeys(range(count), -1)
        for full, rest in ((written // keys, written % keys),):
            for partition in range(count):
                ends[partition] += full * len(range(partition, keys, count))
                ends[partition] += len(range(partition, rest, count))
        return ends

    def snapshot(self) -> None:
        """Take a snapshot with Spark, through its Kafka connector."""
        from faust_assigner.pipeline.jars import connector_jars
        from faust_assigner.pipeline.session import spark_session
        from faust_assigner.pipeline.snapshots.run import take_snapshot

        began = time.monotonic()
        spark = spark_session("local[2]", "recovery bench", jars=connector_jars())
        started = time.monotonic()
        manifests = take_snapshot(
            Cluster(self.bootstrap), CHANGELOG, str(self.snapshots), spark=spark, connector="spark"
        )
        done = time.monotonic()
        print(
            f"  snapshot of {sum(m.keys for m in manifests):,} keys, "
            f"{sum(m.bytes for m in manifests) / 1e6:.0f} MB, in {done - started:.1f} s "
            f"(+ {started - began:.1f} s of session start)",
            flush=True,
        )
        spark.stop()

    def history(self) -> list[dict[str, Any]]:
        """Return the recoveries in the ledger, one row for each source."""
        from faust_assigner.pipeline.history.job import run
        from faust_assigner.pipeline.history.options import HistoryOptions
        from faust_assigner.pipeline.session import spark_session

        spark = spark_session("local[2]", "recovery bench")
        run(spark, HistoryOptions((str(self.ledger),), str(self.work / "history")))
        spark.stop()
        report = json.loads((self.work / "history" / "report.json").read_text())
        rows: list[dict[str, Any]] = report["recovery"]
        return rows

    def recover(
        self, name: str, *, restore: bool, snapshots: bool = False, datadir: str | None = None
    ) -> dict[str, Any]:
        """Run a new worker, or with ``datadir`` a restarted worker."""
        return self._worker(datadir or name, restore=restore, snapshots=snapshots)

    def _worker(
        self, datadir: str, *, restore: bool = False, snapshots: bool = False, **settings: Any
    ) -> dict[str, Any]:
        given = {
            "bootstrap": self.bootstrap,
            "app_id": APP_ID,
            "partitions": self.options.partitions,
            "datadir": str(self.work / datadir),
            "restore": restore,
            "log": "WARNING",
            **settings,
        }
        environment = {
            **os.environ,
            "FAUST_ASSIGNER_LEDGER": str(self.ledger),
            "FAUST_ASSIGNER_SNAPSHOTS": str(self.snapshots) if snapshots else "",
        }
        done = subprocess.run(
            [sys.executable, str(WORKER), json.dumps(given)],
            env=environment,
            text=True,
            capture_output=True,
            timeout=self.options.timeout,
        )
        if done.returncode or not done.stdout:
            raise RuntimeError(done.stderr[-3000:])
        report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return report


def main(arguments: list[str] | None = None) -> int:
    """Run all ways, print the table; return 0 if every state is equal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often each key is written before the cut"
    )
    parser.add_argument(
        "--tail", type=float, default=0.01, help="share of the keys written after it"
    )
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--broker", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--direct", action="store_true", help="write the changelog without the app")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds a worker may take")
    options = parser.parse_args(arguments)
    print(
        f"{options.keys:,} keys x {options.rounds}, tail {options.tail:.0%}, "
        f"{options.partitions} partitions, {options.broker}",
        flush=True,
    )
    with broker_of(options.broker) as bootstrap, tempfile.TemporaryDirectory() as folder:
        bench = Bench(bootstrap, options, Path(folder))
        cut = options.keys * options.rounds
        bench.write(0, cut)
        bench.snapshot()
        bench.write(cut, cut + round(options.keys * options.tail))
        reports = {
            "stock": bench.recover("stock", restore=False),
            "batched": bench.recover("batched", restore=True),
            "snapshot": bench.recover("snapshot", restore=True, snapshots=True),
            "local": bench.recover("local", restore=True, snapshots=True, datadir="snapshot"),
        }
        differ = show(reports)
        for row in bench.history():
            print(
                f"  in the ledger: {row['source']:<9}{row['recoveries']:>3} recoveries, "
                f"{row['records']:>11,} records, median {row['p50_s']:.2f} s"
            )
    return differ


def show(reports: dict[str, dict[str, Any]]) -> int:
    """Print the table of figures; return 1 if a state differs from stock Faust's."""
    stock = reports["stock"]
    print(
        f"\n{'recovery':<10}{'seconds':>9}{'x stock':>9}  {'aim':<6}{'keys':>11}  state", flush=True
    )
    for name, report in reports.items():
        aim = f"{GOALS[name]:.0f}x" if name in GOALS else ""
        equal = report["state"]["hash"] == stock["state"]["hash"]
        print(
            f"{name:<10}{report['seconds']:>9.2f}{stock['seconds'] / report['seconds']:>9.1f}  {aim:<6}"
            f"{report['state']['keys']:>11,}  {'equal' if equal else 'DIFFERENT'}"
        )
    print(
        f"snapshot against batched: {reports['batched']['seconds'] / reports['snapshot']['seconds']:.1f}x, "
        "aim 3x"
    )
    return int(
        any(report["state"]["hash"] != stock["state"]["hash"] for report in reports.values())
    )


if __name__ == "__main__":
    sys.exit(main())
