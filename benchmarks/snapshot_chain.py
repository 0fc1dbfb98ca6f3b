"""Compare chained snapshots with whole snapshots: bytes written, time to restore, equal rows.

    python -m benchmarks.snapshot_chain [--records 5000000] [--keys 1000000] [--share 0.01] [--snapshots 24]

The first snapshot covers a changelog of ``--records`` over ``--keys``. Before each further snapshot,
``--share`` of the keys change, drawn at random over all keys: every key range changes, the worst case for a
chain. Each snapshot builds on the previous one, with the default bound of layers. The first and the last are
also taken whole; their mean, times the number of snapshots, is the cost of whole snapshots. This process
makes the records, so the times include neither Kafka nor Spark. A restore fetches the files (with their
hashes) and ingests them into empty stores as Faust opens them. Exit code 1 unless the last snapshot has the
same rows from the chain and from the whole.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from faust.stores.rocksdb import RocksDBOptions

from faust_assigner.pipeline.snapshots.spans import Job, Span, publish
from faust_assigner.pipeline.snapshots.writer import SpanWriter
from faust_assigner.snapshots.catalog import Catalog
from faust_assigner.snapshots.manifest import Manifest
from faust_assigner.snapshots.sst import OFFSET_KEY, ingest
from faust_assigner.snapshots.storage import open_storage

TOPIC = "shop-balances-changelog"
PAD = "x" * 70
BATCH = 50_000
HOUR_MS = 3_600_000


def records(first: int, keys: np.ndarray) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """Yield (offset, keys, values) in batches; a value has its offset, so each record changes its row."""
    for start in range(0, len(keys), BATCH):
        some, offset = keys[start : start + BATCH], first + start
        yield (
            offset,
            [b'"customer-%d"' % key for key in some],
            [
                b'{"balance": %d, "note": "%s"}' % (offset + n, PAD.encode())
                for n in range(len(some))
            ],
        )


class Log:
    """The keys of each partition's records, by offset."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.noise = np.random.default_rng(options.seed)
        self.keys_each = options.keys // options.partitions
        size = options.records // options.partitions
        # Each key appears at least once, so the table has exactly ``--keys`` rows.
        self.parts = [
            np.concatenate(
                [
                    self.noise.permutation(self.keys_each),
                    self.noise.integers(self.keys_each, size=max(0, size - self.keys_each)),
                ]
            )
            for _ in range(options.partitions)
        ]

    def change(self, share: float) -> None:
        """Change ``share`` of each partition's keys, at random."""
        size = round(self.keys_each * share)
        self.parts = [
            np.concatenate([part, self.noise.choice(self.keys_each, size, replace=False)])
            for part in self.parts
        ]

    def take(self, url: Path, hour: int, bases: Sequence[Manifest] = ()) -> list[Manifest]:
        """Take snapshots of all partitions, upon ``bases`` if given."""
        spans = tuple(
            Span(number, base.next_offset if base else 0, len(part), base)
            for number, part in enumerate(self.parts)
            for base in [bases[number] if bases else None]
        )
        job = Job(TOPIC, str(url), spans, created_ms=hour * HOUR_MS)
        done = []
        for span in spans:
            with SpanWriter(job, span) as writer:
                for at, keys, values in records(
                    span.start, self.parts[span.partition][span.start :]
                ):
                    writer.add(keys, values, first_offset=at, last_offset=at + len(keys) - 1)
                done.append(writer.finish())
        return publish(job, done)


def restore(url: Path, manifests: Sequence[Manifest]) -> tuple[float, tuple[int, int]]:
    """Return (seconds until all stores hold the rows, (keys, sum of CRC-32 of key and value))."""
    catalog, keys, total, seconds = Catalog(open_storage(url)), 0, 0, 0.0
    for manifest in manifests:
        with tempfile.TemporaryDirectory() as work:
            store = RocksDBOptions(max_open_files=64).open(Path(work) / "table.db")
            began = time.monotonic()
            ingest(store, catalog.fetch(manifest, Path(work)))
            seconds += time.monotonic() - began
            for key, value in store.items():
                if key != OFFSET_KEY:
                    keys += 1
                    total += zlib.crc32(key + value)
            store.close()
    return seconds, (keys, total)


def main(arguments: list[str] | None = None) -> int:
    """Print a row for each snapshot and the comparison; return 0 if the rows are equal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--snapshots", type=int, default=24)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print(
        f"{options.records:,} records, {options.keys:,} keys, {options.partitions} partitions, "
        f"{options.share:.1%} of the keys change between {options.snapshots} snapshots, "
        f"seed {options.seed}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        chain, whole = Path(folder) / "chain", Path(folder) / "whole"
        log = Log(options)
        taken: list[list[Manifest]] = []
        for hour in range(1, options.snapshots + 1):
            if taken:
                log.change(options.share)
            began = time.monotonic()
            taken.append(log.take(chain, hour, taken[-1] if taken else ()))
            print(_row(hour, taken[-1], time.monotonic() - began), flush=True)
        first, last = taken[0], taken[-1]
        alone = log.take(whole, options.snapshots)
        times = [restore(chain, each)[0] for each in (first, last, first, last)]
        seconds, rows = restore(chain, last)
        expected = restore(whole, alone)[1]
    written = sum(each.new_bytes or 0 for manifests in taken for each in manifests)
    full = options.snapshots * sum(each.bytes for each in (*first, *alone)) / 2
    print(
        f"  bytes written {written:,}, whole ones {full:,.0f}: {full / written:.1f} times\n"
        f"  restore: first {min(times[0], times[2]):.2f} s, last {min(times[1], times[3], seconds):.2f} s, "
        f"{max(len(each.files) for each in last)} files at most\n"
        f"  rows {rows[0]:,}, sum {rows[1]:x}; of the whole snapshot {expected[0]:,}, sum {expected[1]:x}"
    )
    return int(rows != expected)


def _row(hour: int, manifests: Sequence[Manifest], seconds: float) -> str:
    new, size = (
        sum(getattr(each, name) or 0 for each in manifests) for name in ("new_bytes", "bytes")
    )
    layers = max(len(each.layers or (1,)) for each in manifests)
    return f"  {hour:>3}  {new:>13,} new of {size:>13,} bytes, {layers} layers, {seconds:6.1f} s"


if __name__ == "__main__":
    sys.exit(main())
