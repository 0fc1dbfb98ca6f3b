"""Compare brokers under cheap attacks: ours, another checkout of ours, and Apache Kafka, in a table.

    python -m benchmarks.broker_attacks [--before CHECKOUT] [--no-kafka] [--only WORD]

Each attack runs against its own broker process, with limits on count and time (LIMIT_S), and fills one cell.
During the attack a second client sends heartbeats on another connection; the cell reports the delay of its
slowest heartbeat. Attacks that damage files have no cell for Kafka.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gzip
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import group_attacks
from benchmarks.broker_target import HERE, LIMIT_S, Target, felt
from benchmarks.broker_widest import worst_wait
from faust_assigner.testing.kafka import KafkaServer, kafka_server
from tests.support.clients.raw_client import batch, one_record

Attack = Callable[[Target], str]


# -- restart after trimming ------------------------------------------------------------------

MAKE_TRIMMED = """
import inspect, pathlib, sys, os
from faust_assigner.broker.storage import records
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
data = bytes.fromhex(sys.argv[2])
node = Node(Settings(), pathlib.Path(sys.argv[1]))
topics = [node.catalogue.create(f"t{n}", 6000, {}) for n in range(2)]
parsed = records.parse_batch(data)
takes = inspect.signature(PartitionLog.append).parameters
more = {"flush_every": 2**62} if "flush_every" in takes else {}  # of other checkouts
for topic in topics:
    for log in topic.partitions:
        for _ in range(25):
            log.append(parsed, data, 0, **more)
node.store._db.flush()
for topic in topics:
    for log in topic.partitions:
        log.trim(log.end_offset)
os._exit(0)
"""


def restart_after_trimming(target: Target) -> str:
    """Delete 300,000 batches from 12,000 partitions, start the broker, then send SIGTERM."""
    if target.code is None:
        return "-"
    subprocess.run(
        [sys.executable, "-c", MAKE_TRIMMED, str(target.folder / "data"), batch().hex()],
        env={**os.environ, "PYTHONPATH": str(target.code)},
        check=True,
    )
    seconds = target.start()
    assert target.process is not None
    target.process.send_signal(signal.SIGTERM)
    try:
        code: object = target.process.wait(5)
    except subprocess.TimeoutExpired:
        code = "ignored"
    listens = (
        f"listens after {seconds:.1f} s"
        if seconds is not None
        else f"not listening after {LIMIT_S:.0f} s"
    )
    return f"{listens}; SIGTERM: {code}"


# -- one small request -----------------------------------------------------------------------


def same_topic(target: Target) -> str:
    """Request Metadata with a topic of 10,000 partitions listed 400 times."""
    target.start()
    target.topic("wide", 10_000 if target.code is not None else 1_000)
    return felt(target, 3, 12, topics=[{"name": "wide"}] * 400)


def same_time(target: Target) -> str:
    """Request ListOffsets by time, 2,000 times the partition of a gzip batch of 50,000 records."""
    target.start()
    target.topic("t")
    records = b"".join(one_record(b"x" * 40, offset_delta=n) for n in range(50_000))
    with target.client() as client:
        client.produce(
            "t", 0, batch(gzip.compress(records), count=50_000, attributes=1, timestamp=5_000)
        )
    part = {"partition_index": 0, "timestamp": 4_999, "current_leader_epoch": -1}
    topics = [{"name": "t", "partitions": [part] * 2_000}]
    return felt(target, 2, 5, replica_id=-1, topics=topics)


def same_group(target: Target) -> str:
    """Request DescribeGroups with a group of 400 KB listed 1,000 times."""
    target.start()
    target.topic("t")
    with target.client() as member:
        values = {
            "group_id": "beating",
            "session_timeout": datetime.timedelta(seconds=30),
            "rebalance_timeout": datetime.timedelta(seconds=1),
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m" * 200_000}],
        }
        joined = member.call(11, 3, **values)
        given = [{"member_id": joined.member_id, "assignment": b"a" * 200_000}]
        member.call(
            14,
            2,
            group_id="beating",
            generation_id=1,
            member_id=joined.member_id,
            assignments=given,
        )
        return felt(target, 15, 4, groups=("beating",) * 1_000)


def same_offsets(target: Target) -> str:
    """Request OffsetFetch of all a group's offsets, 1,000 times in a request."""
    target.start()
    target.topic("t", 100)
    parts = [
        {"partition_index": n, "committed_offset": 1, "committed_metadata": "x" * 4_000}
        for n in range(100)
    ]
    with target.client() as client:
        topics = [{"name": "t", "partitions": parts}]
        client.call(
            8, 5, group_id="beating", generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
    return felt(target, 9, 8, groups=[{"group_id": "beating", "topics": None}] * 1_000)


def same_configs(target: Target) -> str:
    """Request DescribeConfigs of a topic, 20,000 times in a request."""
    target.start()
    target.topic("t")
    resource = {"resource_type": 2, "resource_name": "t"}
    return felt(target, 32, 4, resources=[resource] * 20_000)


def many_partitions(target: Target) -> str:
    """Request ListOffsets of 60,000 unknown partitions: a request of 1 MB without repetition."""
    target.start()
    target.topic("t")
    parts = [
        {"partition_index": n, "timestamp": -1, "current_leader_epoch": -1} for n in range(60_000)
    ]
    return felt(target, 2, 5, replica_id=-1, topics=[{"name": "t", "partitions": parts}])


def widest(target: Target) -> str:
    """Send each API its longest list of about 1 MB, one after another, on 100,000 partitions."""
    if target.code is None:
        return "-"
    target.start()
    return worst_wait(target)


def half_frames(target: Target) -> str:
    """Open 150 connections; each sends 16 MiB less a few bytes and then stalls."""
    target.start()
    before = target.memory_mib()
    with contextlib.ExitStack() as stack:
        chunk = b"x" * 2**20
        for _ in range(150):
            peer = stack.enter_context(target.client())
            peer.socket.settimeout(0.5)
            with contextlib.suppress(OSError):
                peer.socket.sendall(struct.pack(">i", 16 * 2**20))
                for _ in range(15):
                    peer.socket.sendall(chunk)
        return f"+{target.memory_mib() - before} MiB"


# -- bodies ----------------------------------------------------------------------------------


def bodies(target: Target) -> str:
    """Produce seven unreadable batches; count the stored batches."""
    target.start()
    target.topic("t")
    noise = random.Random(1).randbytes(60)
    wrong = {
        "noise": batch(noise),
        "noise as gzip": batch(noise, attributes=1),
        "noise as zstd": batch(noise, attributes=4),
        "headers that are not there": batch(bytes([14, 0, 0, 0, 1, 2, 118, 10])),
        "fewer records": batch(one_record(), count=2),
        "sequence -1": batch(producer_id=9, epoch=0, sequence=-1),
        "year 5000": batch(timestamp=95_617_584_000_000),
    }
    with target.client() as client:
        stored = [
            name for name, data in wrong.items() if client.produce("t", 0, data).error_code == 0
        ]
    return f"{len(stored)} of {len(wrong)} stored"


# -- one member poisons a group --------------------------------------------------------------


def poisoned_group(target: Target) -> str:
    """Join with a protocol type of 40,000 bytes, then send ListGroups in an old version."""
    target.start()
    target.topic("t")
    values = {
        "group_id": "beating",
        "session_timeout": datetime.timedelta(seconds=30),
        "rebalance_timeout": datetime.timedelta(seconds=1),
        "member_id": "",
        "group_instance_id": "i",
        "protocol_type": "x" * 40_000,
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    with target.client() as poisoner:
        with contextlib.suppress(ConnectionError, TimeoutError):
            poisoner.call(11, 7, **values)
        with target.client() as other:
            try:
                return f"ListGroups: {other.call(16, 2).error_code.name}"
            except ConnectionError:
                return "ListGroups: connection closed"


# -- damage ----------------------------------------------------------------------------------


def damaged_log(target: Target) -> str:
    """Produce 500 records, kill the broker, flip a byte in the middle of the write-ahead log."""
    if target.code is None:
        return "-"
    target.start()
    target.topic("t")
    with target.client() as client:
        for _ in range(499):
            client.produce("t", 0, batch())
    target.kill()
    log = max((target.folder / "data").glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    if target.start() is None:
        return "refused: " + target.errors().strip().split("\n")[-1].split(". ")[0][:90]
    with target.client() as client:
        return f"starts, silent; next offset {client.produce('t', 0, batch()).base_offset} of 500"


# -- the rest --------------------------------------------------------------------------------


def fresh_groups(target: Target) -> str:
    """Create 20,000 group ids on a connection; then another client joins a new group."""
    target.start()
    target.topic("t")
    values = {
        "session_timeout": datetime.timedelta(seconds=30),
        "rebalance_timeout": datetime.timedelta(seconds=1),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    end = time.monotonic() + LIMIT_S
    with target.client() as flood:
        for number in range(0, 20_000, 100):
            for n in range(number, number + 100):
                flood.send(11, 5, group_id=f"fresh-{n}", **values)
            for _ in range(100):
                flood.receive(11, 5)
            if time.monotonic() > end:
                return f"only {number} in {LIMIT_S:.0f} s"
    with target.client() as other:
        return f"then: {other.call(11, 5, group_id='mine', **values).error_code.name}"


def wildcard_host(target: Target) -> str:
    """Start with --host 0.0.0.0; return the address that Metadata reports to clients."""
    if target.code is None:
        return "refuses to start"
    target.start(host="0.0.0.0")
    with target.client() as client:
        return f"sent to {client.call(3, 9, topics=[]).brokers[0].host}"


def log_lines(target: Target) -> str:
    """Send 2,000 malformed frames; count the lines in the log."""
    if target.code is None:
        return "-"
    target.start()
    for _ in range(2_000):
        with target.client() as stranger:
            stranger.socket.sendall(struct.pack(">i", -1))
            stranger.is_closed()
    target.kill()
    return f"{len(target.errors().splitlines())} lines"


ATTACKS: dict[str, Attack] = {
    "restart after trimming": restart_after_trimming,
    "Metadata, one topic 400 times": same_topic,
    "ListOffsets by time, 2,000 times": same_time,
    "DescribeGroups, one 1,000 times": same_group,
    "OffsetFetch, one group 1,000 times": same_offsets,
    "DescribeConfigs, one 20,000 times": same_configs,
    "ListOffsets, 60,000 partitions": many_partitions,
    "the widest request of each API": widest,
    "150 half-sent frames": half_frames,
    "bodies no reader can use": bodies,
    "a member with long strings": poisoned_group,
    "a byte flipped in the log": damaged_log,
    "20,000 fresh group ids": fresh_groups,
    "--host 0.0.0.0": wildcard_host,
    "log of 2,000 refused frames": log_lines,
    **group_attacks.ATTACKS,
}


def run(attack: Attack, code: Path | None, kafka: KafkaServer | None) -> str:
    """Run an attack; return the text of its cell."""
    target = Target(code, kafka)
    try:
        return attack(target)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:80]
    finally:
        target.kill()
        shutil.rmtree(target.folder, ignore_errors=True)


@contextlib.contextmanager
def maybe_kafka(wanted: bool) -> Iterator[KafkaServer | None]:
    """Start a new Kafka for an attack."""
    if not wanted:
        yield None
        return
    with kafka_server() as server:
        yield server


def main() -> None:
    """Run the attacks and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--before", type=Path, help="another checkout of this repository, for a column of its own"
    )
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--only", default="", help="only attacks whose name has this in it")
    options = parser.parse_args()
    table = Table(title=f"attacks on a broker, load {os.getloadavg()[0]:.1f}")
    for name in ("attack", *(["before"] if options.before else []), "ours", "Apache Kafka 4.3.1"):
        table.add_column(name)
    for name, attack in ATTACKS.items():
        if options.only not in name:
            continue
        cells = [run(attack, options.before.resolve(), None)] if options.before else []
        cells.append(run(attack, HERE, None))
        with maybe_kafka(not options.no_kafka) as kafka:
            cells.append("" if kafka is None else run(attack, None, kafka))
        print(name, "|", " | ".join(cells), file=sys.stderr, flush=True)
        table.add_row(name, *cells)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
