"""Compare recovery without standby and snapshot: stock Faust and ours, and the delay of live records.

    python -m benchmarks.replay [--records 1000000] [--bytes 100] [--partitions 8] [--broker embedded|kafka]
                                [--stock-records 100000] [--share 0.5] [--rounds 1]

Each worker starts without files and replays a changelog, from ``assigned`` to ``ready``; stock replays
``--stock-records`` of it. Then, as ``live``, ours runs again while 200 records a second arrive for a
partition without state to restore. The benchmark reports their time to the agent: during the restore, and,
as the control, for as long afterwards on the otherwise idle worker.

Processor seconds are those of the worker's process from ``assigned`` to ``ready``. Exit code 1 if a table
differs from the written records.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.recovery import broker_of

WORKER = Path(__file__).parent / "workers" / "replay.py"


def load(bootstrap: str, app_id: str, records: int, options: argparse.Namespace) -> None:
    """Write a changelog of ``records`` keys over all partitions except 0, which stays empty."""
    topics = [f"{app_id}-source", f"{app_id}-rows-changelog"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, options.partitions + 1, 1) for topic in topics]
    for made in admin.create_topics(new).values():
        made.result(30)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    value = b'"' + b"x" * (options.bytes - 2) + b'"'
    for number in range(records):
        while True:
            try:
                producer.produce(
                    topics[1], value, b'"key-%09d"' % number, 1 + number % options.partitions
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 5000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("the changelog was not written")


def work(
    bootstrap: str,
    app_id: str,
    options: argparse.Namespace,
    *,
    stock: bool = False,
    live_for_s: float = 0.0,
) -> dict[str, Any]:
    """Run a new worker; return its report (see workers/replay.py)."""
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "bootstrap": bootstrap,
            "app_id": app_id,
            "datadir": folder,
            "stock": stock,
            "partitions": options.partitions + 1,
            "share": options.share,
            "live_for_s": live_for_s,
        }
        done = subprocess.run(
            [sys.executable, str(WORKER), json.dumps(given)],
            text=True,
            capture_output=True,
            timeout=options.timeout,
        )
    if done.returncode or not done.stdout:
        raise RuntimeError(done.stderr[-3000:])
    for line in done.stderr.splitlines():
        if "records remain" in line or "Restored " in line:
            print(f"    {line.split(':', 2)[-1]}", flush=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def waits_said(name: str, waits_ms: list[float]) -> str:
    """Format median, 99th percentile and maximum."""
    cuts = statistics.quantiles(waits_ms, n=100) if len(waits_ms) > 1 else [0.0] * 99
    return (
        f"  {name:<16}{len(waits_ms):>7,} records, median {cuts[49]:>7.1f} ms, p99 {cuts[98]:>7.1f} ms, "
        f"maximum {max(waits_ms, default=0.0):>7.1f} ms"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run all measurements and print the table; return 0 if every table is complete."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--stock-records", type=int, default=100_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--broker", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds a worker may take")
    options = parser.parse_args(arguments)
    whole = True
    with broker_of(options.broker) as bootstrap:
        print(
            f"{options.records:,} records x {options.bytes} B, {options.partitions} partitions, "
            f"{options.broker}",
            flush=True,
        )
        for number in range(options.rounds):
            load(bootstrap, f"ours-{number}", options.records, options)
            load(bootstrap, f"stock-{number}", options.stock_records, options)
            stock = work(bootstrap, f"stock-{number}", options, stock=True)
            ours = work(bootstrap, f"ours-{number}", options)
            live = work(bootstrap, f"ours-{number}", options, live_for_s=2.0)
            rates = {
                "stock": options.stock_records / stock["seconds"],
                "ours": options.records / ours["seconds"],
                "ours, live": options.records / live["seconds"],
            }
            print(
                f"{'worker':<12}{'records':>11}{'seconds':>9}{'records/s':>11}{'x stock':>9}"
                f"{'processor s':>13}{'records/s of it':>17}"
            )
            for name, found in (("stock", stock), ("ours", ours), ("ours, live", live)):
                count = options.stock_records if found is stock else options.records
                print(
                    f"{name:<12}{count:>11,}{found['seconds']:>9.2f}{rates[name]:>11,.0f}"
                    f"{rates[name] / rates['stock']:>9.1f}{found['cpu_s']:>13.2f}"
                    f"{count / found['cpu_s']:>17,.0f}",
                    flush=True,
                )
                whole = whole and found["keys"] == count
            print(waits_said("live, restoring", live["during_ms"]))
            print(waits_said("live, control", live["after_ms"]), flush=True)
    return int(not whole)


if __name__ == "__main__":
    sys.exit(main())
