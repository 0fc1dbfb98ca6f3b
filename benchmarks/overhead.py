"""Measure the cost of metrics, page and ledger: a busy worker with and without them, in turns.

    python -m benchmarks.overhead [--blocks 384] [--block 1000] [--partitions 8] [--seed 1] [--json FILE]

A worker adds up values in a table at full speed, from filled topics of the embedded broker. Every
``--block`` records its sensors are removed or restored, and its page is switched off or on
(``workers/busy.py``). A reader keeps the page open like a browser: it follows the event stream and fetches
the parts after each update. The main figure is processor time of the worker's process per record, the
figure least affected by other processes: the mean of all blocks with them, divided by the mean without.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.ports import free_port

WORKER = Path(__file__).parent / "workers" / "busy.py"
KEYS = 2_000
DEADLINE_S = 1_200


def load(bootstrap: str, app_id: str, records: int, partitions: int) -> None:
    """Produce ``records`` records, evenly over the partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(f"{app_id}-{name}", partitions, 1) for name in ("source", "totals-changelog")]
    for made in admin.create_topics(new).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(records):
        key = b"key-%d" % (number % KEYS)
        while True:
            try:
                producer.produce(f"{app_id}-source", b"1", key, number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError("the records were not written")


def read_page(port: int, ended: threading.Event) -> None:
    """Keep the page open until ``ended``; fetch its compressed parts after each update."""
    page = f"http://127.0.0.1:{port}/assignor/"
    while not ended.is_set():
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(page + "events", timeout=10) as events,
        ):
            for line in events:
                if ended.is_set():
                    return
                if line == b"event: look\n":
                    parts = urllib.request.Request(
                        page + "parts", headers={"Accept-Encoding": "gzip"}
                    )
                    with urllib.request.urlopen(parts, timeout=10) as answer:
                        answer.read()
        ended.wait(0.2)


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """Return way -> microseconds of processor time per record and records per second, by block."""
    app_id, ended = f"busy-{time.time_ns()}", threading.Event()
    with broker_process() as broker, tempfile.TemporaryDirectory() as folder:
        load(broker.bootstrap, app_id, (asked.blocks + 1) * asked.block, asked.partitions)
        settings = {
            "bootstrap": broker.bootstrap,
            "app_id": app_id,
            "datadir": folder,
            "partitions": asked.partitions,
            "blocks": asked.blocks,
            "block": asked.block,
            "seed": asked.seed,
            "deadline_s": DEADLINE_S,
            "web_port": free_port(),
        }
        threading.Thread(target=read_page, args=(settings["web_port"], ended), daemon=True).start()
        try:
            said = subprocess.run(
                [sys.executable, str(WORKER), json.dumps(settings)],
                stdout=subprocess.PIPE,
                check=True,
                timeout=DEADLINE_S + 60,
            )
        finally:
            ended.set()
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=384)
    parser.add_argument("--block", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = run(asked)
    on, off = ([cpu for cpu, _ in found[way]] for way in ("on", "off"))
    means = {"off": statistics.fmean(off), "on": statistics.fmean(on) + found["page_us"]}
    print("| way | us of processor time per record | records per second |\n| --- | ---: | ---: |")
    for way, mean in means.items():
        print(f"| {way} | {mean:.1f} | {statistics.median(rate for _, rate in found[way]):,.0f} |")
    ratio = means["on"] / means["off"]
    rest = [one + found["page_us"] - ratio * other for one, other in zip(on, off, strict=True)]
    spread = statistics.stdev(rest) / means["off"] / len(rest) ** 0.5
    print(f"\nof these {found['page_us']:.1f} us are of the page's thread")
    print(f"processor time with them / without them: {ratio:.3f} (standard error {spread:.3f})")
    if asked.json is not None:
        asked.json.write_text(json.dumps({"ratio": ratio, **found}))


if __name__ == "__main__":
    main()
