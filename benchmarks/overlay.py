"""Measure the delay of rows until their changelog record is acknowledged: time per change, both ways.

    python benchmarks/overlay.py [--changes 20000] [--rounds 5] [--bytes 1000]

A real Faust table on RocksDB is read and changed as in an agent, ``table[key] = new value`` of this size,
1,000 keys, one partition. The producer is a stub: it acknowledges 16 changes at a time, the size of an
aiokafka batch. ``at once`` works without the overlay: it writes the row at once, and the file's offset with
each answer. ``exactly once`` uses transactions of 2,000 changes and always has the overlay. The ways take
turns within each round, with separate files. Printed are medians over the rounds: wall time, and the CPU
time of the changing thread, which depends less on other load.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
from faust.streams import _current_event

from faust_assigner.app.tables.write_behind import install_write_behind
from faust_assigner.app.transactions.shares import Share
from faust_assigner.settings.table import OVERLAY

KEYS, BATCH, TRANSACTION = 1_000, 16, 2_000
WAYS = ("at once", "overlay", "exactly once")


class Bench:
    """A table with a stub producer."""

    def __init__(self, way: str, folder: Path) -> None:
        exactly = way == "exactly once"
        self.app = faust.App(
            f"bench-{way.replace(' ', '-')}",
            datadir=str(folder),
            store="rocksdb://",
            processing_guarantee="exactly_once" if exactly else "at_least_once",
            **{OVERLAY.keyword: way != "at once"},
        )
        self.app.in_transaction = exactly
        self.app._create_directories()
        self.sent: list[Any] = []
        self.share: Share | None = Share("one", begun=True) if exactly else None
        self.app._producer = SimpleNamespace(send_soon=self.sent.append)
        self.app._consumer = SimpleNamespace(
            topic_partitions=lambda topic: None,
            transactions=SimpleNamespace(share_at_hand=lambda: self.share),
        )
        self.table = self.app.Table("rows", key_type=str, value_type=bytes, partitions=1)
        install_write_behind(self.table)
        self.table.data._db_for_partition(0)
        self.table.data.flushing.resume(0)
        self.offset = self.changes = 0

    async def run(self, changes: int, size: int) -> tuple[float, float]:
        """Return microseconds per change: wall time, and CPU time of this thread."""
        event = SimpleNamespace(message=SimpleNamespace(topic="source", partition=0, timestamp=5.0))
        _current_event.set(lambda: event)
        table, sent = self.table, self.sent
        value, began, worked = b"x" * (size - 8), time.perf_counter(), time.thread_time()
        for number in range(changes):
            key = f"key-{number % KEYS}"
            table.get(key)
            table[key] = b"%08d" % number + value
            if len(sent) >= BATCH:
                self.answer()
                await asyncio.sleep(0)
            if self.share is not None and number % TRANSACTION == TRANSACTION - 1:
                self.answer()
                before, self.share = self.share, Share("one", begun=True)
                before.commit()
        self.answer()
        await asyncio.sleep(0)
        return (
            (time.perf_counter() - began) / changes * 1e6,
            (time.thread_time() - worked) / changes * 1e6,
        )

    def answer(self) -> None:
        """Acknowledge all sent records."""
        for record in self.sent:
            record.set_result(
                SimpleNamespace(
                    offset=self.offset, topic_partition=SimpleNamespace(topic="rows", partition=0)
                )
            )
            record.message.callback(record)
            self.offset += 1
        self.sent.clear()


async def measured(changes: int, rounds: int, size: int) -> dict[str, list[tuple[float, float]]]:
    """Return way -> microseconds per change for each round, without the warm-up round."""
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    folder = Path(tempfile.mkdtemp())
    try:
        benches = {way: Bench(way, folder / way.replace(" ", "-")) for way in WAYS}
        for round_ in range(rounds + 1):
            for way in WAYS[round_ % len(WAYS) :] + WAYS[: round_ % len(WAYS)]:
                took = await benches[way].run(changes, size)
                if round_:
                    times[way].append(took)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return times


def main() -> None:
    """Run the benchmark and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=1_000)
    asked = parser.parse_args()
    times = asyncio.run(measured(asked.changes, asked.rounds, asked.bytes))
    plain: list[float] = []
    print(f"{asked.changes} changes of {asked.bytes} bytes, {asked.rounds} rounds\n")
    print(
        "| way | us per change, median | least | most | ratio | us of CPU, median | ratio |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for way, found in times.items():
        passed, worked = ([pair[place] for pair in found] for place in range(2))
        medians = [statistics.median(passed), statistics.median(worked)]
        plain = plain or medians
        print(
            f"| {way} | {medians[0]:.1f} | {min(passed):.1f} | {max(passed):.1f} | "
            f"{medians[0] / plain[0]:.2f} | {medians[1]:.1f} | {medians[1] / plain[1]:.2f} |"
        )


if __name__ == "__main__":
    main()
