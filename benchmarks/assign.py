"""Compare Faust's ``assign()`` with ours: ``python benchmarks/assign.py [--repeat N] [--json FILE]``.

Real apps with a source topic, its tables' changelogs and one standby. Each round does the leader's work
between JoinGroup and SyncGroup, from metadata bytes to assignment bytes. Two rounds are timed: no change,
and a joined member. Times are CPU time: assign() is a single thread that never waits, and machines are
shared. ``join`` and ``sync`` are all members' metadata and all assignments; ``record`` is the group's record
in Kafka, which refuses records above 1 MiB by default: ours then leaves the directory of owners out (see
FAUST_ASSIGNER_GROUP_RECORD_BYTES). Stock runs once per case, in its own process, for at most ``--limit``
seconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import multiprocessing
import statistics
import sys
import tempfile
import time
import warnings
import zlib
from dataclasses import dataclass
from typing import Any

import faust
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.structs import PartitionMetadata
from faust.assignor.partition_assignor import PartitionAssignor as StockAssignor

from faust_assigner import PartitionAssignor

#: Bytes that Kafka adds per member to the group's record: ids, host, timeouts, protocol names.
PER_MEMBER = 250


@dataclass(frozen=True)
class Case:
    """A group's size; the source topic and each table's changelog have ``partitions`` partitions."""

    members: int
    partitions: int
    tables: int = 1

    @property
    def name(self) -> str:
        """The case as the table prints it."""
        return f"{self.members:,} x {self.partitions:,}" + (
            f", {self.tables} tables" * (self.tables > 1)
        )

    @property
    def topics(self) -> dict[str, int]:
        """Topic -> partition count."""
        logs = [f"shop-table{i}-changelog" for i in range(self.tables)]
        return dict.fromkeys(["orders", *logs], self.partitions)


CASES = (Case(100, 1_000), Case(300, 3_000), Case(1_000, 10_000), Case(300, 1_000, tables=3))


def app_of(case: Case, number: int, assignor: Any, folder: str) -> faust.App:
    """Create a worker's app."""
    app = faust.App(
        "shop",
        PartitionAssignor=assignor,
        canonical_url=f"http://worker-{number}.shop.svc:6066",
        table_standby_replicas=1,
        datadir=folder,
        store="memory://",
    )
    for i in range(case.tables):
        app.Table(f"table{i}")
    return app


def cluster_of(topics: dict[str, int]) -> ClusterMetadata:
    """Build aiokafka's view of a cluster with these topics."""
    cluster = ClusterMetadata()
    cluster._partitions = {
        t: {p: PartitionMetadata(t, p, 0, [0], [0], None) for p in range(n)}
        for t, n in topics.items()
    }
    return cluster


class OurGroup:
    """Members with our assignor; each joins with its own assignor's metadata."""

    def __init__(self, case: Case, folder: str) -> None:
        self.case, self.folder = case, folder
        self.assignors: dict[str, Any] = {}
        for i in range(case.members):
            self.add(i)

    def add(self, number: int) -> None:
        """Add a member."""
        self.assignors[member_id(number)] = app_of(
            self.case, number, PartitionAssignor, self.folder
        ).assignor

    def metadata(self) -> dict[str, bytes]:
        """Return all members' JoinGroup metadata."""
        return {m: a.metadata(set(self.case.topics)).encode() for m, a in self.assignors.items()}

    def take(self, answers: dict[str, bytes]) -> None:
        """Decode all SyncGroup answers in the members' assignors."""
        for m, raw in answers.items():
            self.assignors[m].on_assignment(ConsumerProtocolMemberAssignment.decode(raw))

    @property
    def leader(self) -> Any:
        """The first member's assignor."""
        return self.assignors[member_id(0)]


class StockGroup(OurGroup):
    """Stock members: each joins with the leader's last answer, so members need no apps."""

    def __init__(self, case: Case, folder: str) -> None:
        self.stock = app_of(case, 0, StockAssignor, folder).assignor
        self.said: dict[str, bytes] = {}
        super().__init__(case, folder)

    def add(self, number: int) -> None:
        """Add a member without an assignment."""
        empty = {
            "assignment": {"actives": {}, "standbys": {}},
            "url": f"http://worker-{number}.shop.svc:6066",
            "changelog_distribution": {},
            "external_topic_distribution": {},
            "topic_groups": {},
        }
        self.said[member_id(number)] = json.dumps(empty).encode()

    def metadata(self) -> dict[str, bytes]:
        """Return all members' JoinGroup metadata."""
        return {
            m: ConsumerProtocolMemberMetadata(4, list(self.case.topics), raw).encode()
            for m, raw in self.said.items()
        }

    def take(self, answers: dict[str, bytes]) -> None:
        """Keep each member's answer; its next metadata is the same JSON."""
        for m, raw in answers.items():
            self.said[m] = zlib.decompress(ConsumerProtocolMemberAssignment.decode(raw).user_data)

    @property
    def leader(self) -> Any:
        """The single assignor."""
        return self.stock


def member_id(number: int) -> str:
    """Return a member id in aiokafka's format."""
    return f"faust-0.15.3-{number:05d}-4f6c1b1e-8a0e-4d0c-9f55-0a4cbb0f6f0e"


def measure(case: Case, kind: type[OurGroup], repeat: int) -> dict[str, Any]:
    """Measure a round without changes and a join in ms, and the bytes of the round after the join."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        group = kind(case, folder)
        cluster = cluster_of(case.topics)
        _, answers = assign(group, cluster, group.metadata())
        group.take(answers)
        # A real leader has a single app in memory; garbage collection must not walk a thousand apps.
        gc.collect()
        gc.freeze()
        joined = group.metadata()
        unchanged = [assign(group, cluster, joined)[0] for _ in range(repeat)]
        group.add(case.members)
        joined = group.metadata()
        rounds = [assign(group, cluster, joined) for _ in range(repeat)]
        answers = rounds[-1][1]
        gc.unfreeze()
        join, sync = sum(map(len, joined.values())), sum(map(len, answers.values()))
        return {
            "unchanged_ms": statistics.median(unchanged),
            "join_ms": statistics.median(r[0] for r in rounds),
            "join": join,
            "sync": sync,
            "record": join + sync + PER_MEMBER * len(answers),
        }


def assign(
    group: OurGroup, cluster: ClusterMetadata, joined: dict[str, bytes]
) -> tuple[float, dict[str, bytes]]:
    """Run ``assign()``; return its ms without aiokafka's decoding, and each member's answer."""
    metadata = {m: ConsumerProtocolMemberMetadata.decode(raw) for m, raw in joined.items()}
    started = time.process_time()
    answers = group.leader.assign(cluster, metadata)
    taken = (time.process_time() - started) * 1000
    return taken, {m: answer.encode() for m, answer in answers.items()}


def _child(pipe: Any, case: Case, kind: type[OurGroup], repeat: int) -> None:
    pipe.send(measure(case, kind, repeat))


def apart(case: Case, kind: type[OurGroup], repeat: int, limit_s: float) -> dict[str, Any] | None:
    """Run :func:`measure` in its own process; return None after the time limit."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, case, kind, repeat))
    child.start()
    try:
        return ours.recv() if ours.poll(limit_s) else None
    finally:
        child.kill()
        child.join()


def row(case: Case, ours: dict[str, Any], stock: dict[str, Any] | None) -> str:
    """Format a row of the table."""

    def beside(key: str, unit: float = 1.0) -> str:
        mine = f"{ours[key] / unit:,.1f}"
        if stock is None:
            return f"{mine:>9} {'-':>10} {'-':>6}"
        return f"{mine:>9} {stock[key] / unit:>10,.1f} {stock[key] / ours[key]:>5.0f}x"

    return (
        f"{case.name:<20}{beside('unchanged_ms')}{beside('join_ms')}"
        f"{beside('join', 1e6)}{beside('sync', 1e6)}{beside('record', 2**20)}"
    )


def main(argv: list[str]) -> int:
    """Print the table; return 1 if ours missed a goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--limit", type=float, default=300, help="seconds for stock, per case")
    parser.add_argument(
        "--largest", type=int, default=1_000, help="leave out cases with more members"
    )
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args(argv)
    print("assign() with one standby; ours, stock, stock/ours")
    print(
        f"{'members x partitions':<20}{'unchanged ms':^27}{'one joins ms':^27}"
        f"{'JoinGroup MB':^27}{'SyncGroup MB':^27}{'group record MiB':^27}"
    )
    found = []
    for case in (c for c in CASES if c.members <= options.largest):
        ours = apart(case, OurGroup, options.repeat, 300)
        stock = apart(case, StockGroup, 1, options.limit)
        if ours is None:
            print(f"{case.name:<20} did not end in 300 s")
            return 1
        print(row(case, ours, stock), flush=True)
        found.append({"case": case.name, "ours": ours, "stock": stock})
    if options.json:
        with open(options.json, "w") as out:
            json.dump(found, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
