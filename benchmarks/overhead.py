"""What metrics, page and ledger cost a busy worker: the same worker with and without them, in turns.

    python -m benchmarks.overhead [--blocks 64] [--block 1000] [--partitions 8] [--json FILE]

One worker adds up values in a table, as fast as it can, from topics of the embedded broker that were filled
before. Every ``--block`` records its sensors are taken out or put back, and its page is closed or opened
(``workers/busy.py``). The main figure is processor time of the worker's process per record, which other
processes on the machine spoil least. Printed are the medians of all blocks, and the median of the ratios of
neighbours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import free_port

WORKER = Path(__file__).parent / "workers" / "busy.py"
KEYS = 2_000
DEADLINE_S = 1_200


def load(bootstrap: str, app_id: str, records: int, partitions: int) -> None:
    """So many records, evenly over the partitions."""
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


def run(blocks: int, block: int, partitions: int) -> dict[str, list[tuple[float, float]]]:
    """Way -> microseconds of processor time per record and records per second, by block."""
    app_id = f"busy-{time.time_ns()}"
    with broker_process() as broker, tempfile.TemporaryDirectory() as folder:
        load(broker.bootstrap, app_id, (blocks + 1) * block, partitions)
        settings = {
            "bootstrap": broker.bootstrap,
            "app_id": app_id,
            "datadir": folder,
            "partitions": partitions,
            "blocks": blocks,
            "block": block,
            "deadline_s": DEADLINE_S,
            "web_port": free_port(),
        }
        said = subprocess.run(
            [sys.executable, str(WORKER), json.dumps(settings)],
            stdout=subprocess.PIPE,
            check=True,
            timeout=DEADLINE_S + 60,
        )
    found: dict[str, list[tuple[float, float]]] = json.loads(said.stdout)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=64)
    parser.add_argument("--block", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = run(asked.blocks, asked.block, asked.partitions)
    print("| way | us of processor time per record | records per second |\n| --- | ---: | ---: |")
    for way, rows in found.items():
        cpu, rate = (statistics.median(column) for column in zip(*rows, strict=True))
        print(f"| {way} | {cpu:.1f} | {rate:,.0f} |")
    ratios = [on[0] / off[0] for off, on in zip(found["off"], found["on"], strict=True)]
    ratio = statistics.median(ratios)
    spread = statistics.stdev(ratios) / len(ratios) ** 0.5 * 1.25
    print(f"\nprocessor time with them / without them: {ratio:.3f} (standard error {spread:.3f})")
    if asked.json is not None:
        asked.json.write_text(json.dumps({"ratio": ratio, **found}))


if __name__ == "__main__":
    main()
