"""Measure ``history`` per million ledger lines: ``python -m benchmarks.history [LINES]`` (1,000,000).

Writes a ledger of eight files (decisions of 480 placements, one recovery and twelve samples each) and runs
the job twice in a local[2] session. Prints processor seconds of Spark and its Python workers, independent of
other load on the machine, and wall seconds, which depend on other load.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from faust_assigner.ledger import encode
from faust_assigner.pipeline.history.job import run
from faust_assigner.pipeline.history.options import HistoryOptions
from faust_assigner.pipeline.session import spark_session

START = 1_795_232_422.0
MEMBERS = [f"faust-0.15.3-{number:036d}" for number in range(24)]


def lines(count: int) -> Iterator[bytes]:
    """Yield about ``count`` lines of a group, with a decision every ten minutes."""
    written, number = 0, 0
    while written < count:
        at, name = START + 600 * number, f"{number}-0123456789abcdef"
        yield encode(
            "decision",
            {
                "group_id": "shop",
                "decision_id": name,
                "ts": at,
                "generation": number,
                "trigger": "join",
                "policy": "faust-assigner",
                "config": {"replicas": "1", "deploy": f"v{number // 100}"},
                "members": [
                    {"member_id": m, "rack": None, "capacity": 1.0, "epoch": number}
                    for m in MEMBERS
                ],
                "solve_ms": 1.0,
            },
        )
        for partition in range(480):
            yield encode(
                "assignment",
                {
                    "group_id": "shop",
                    "decision_id": name,
                    "topic": "orders",
                    "partition": partition,
                    "role": "active" if partition % 3 else "standby",
                    "member_id": MEMBERS[partition % 24],
                    "prev_member_id": MEMBERS[partition % 24],
                    "moved": partition % 40 == 0,
                    "standby_hit": False,
                    "cold": False,
                    "rule": "kept",
                    "rejected": [],
                    "restore": "none",
                },
            )
        yield encode(
            "recovery",
            {
                "group_id": "shop",
                "decision_id": name,
                "topic": "orders",
                "partition": number % 480,
                "member_id": MEMBERS[0],
                "source": "standby",
                "started": at,
                "ended": at + number % 7,
                "start_offset": 0,
                "end_offset": 100,
                "records": 100,
                "bytes": 10_000,
            },
        )
        for partition in range(12):
            yield encode(
                "partition_sample",
                {
                    "group_id": "shop",
                    "ts": at + partition,
                    "topic": "orders",
                    "partition": partition,
                    "end_offset": 100,
                    "committed_offset": 100,
                    "bytes_in": 1000,
                    "records_in": 10 + partition,
                    "cpu_ms": 1.0,
                    "state_bytes": 0,
                },
            )
        written, number = written + 494, number + 1


def processor_seconds(root: int) -> float:
    """Return the processor seconds of ``root`` and all its descendants, including ended children."""
    parents, spent = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)], spent[int(entry.name)] = (
            int(fields[1]),
            sum(map(int, fields[11:15])),
        )
    tree = {root}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(spent.get(pid, 0) for pid in tree) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Generate the ledger, run twice, print the times."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory(prefix="faust-assigner-history-") as folder:
        files = [(Path(folder) / f"w{number}.jsonl").open("wb") for number in range(8)]
        written = 0
        for written, line in enumerate(lines(count), 1):
            files[written * 8 // (count + 500)].write(line)
        for file in files:
            file.close()
        size = sum(path.stat().st_size for path in Path(folder).glob("*.jsonl"))
        print(f"{written:,} lines, {size / 1e6:.0f} MB")
        spark = spark_session("local[2]", "benchmark")
        root = spark.sparkContext._gateway.proc.pid
        for name in ("first run", "second run, warm"):
            began, spent = time.monotonic(), processor_seconds(root)
            run(spark, HistoryOptions((folder,), f"{folder}/out"))
            spent, took = processor_seconds(root) - spent, time.monotonic() - began
            print(
                f"{name}: {spent / written * 1e6:.1f} processor s, {took / written * 1e6:.1f} wall s "
                "per million lines"
            )
        spark.stop()


if __name__ == "__main__":
    main()
