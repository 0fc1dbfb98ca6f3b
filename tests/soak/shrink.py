"""A compacted topic shrinks during writes and reads, while a member sends heartbeats.

    python -m tests.soak.shrink --updates 1000000 --keys 10000 --seed 1

The embedded broker runs as a process with its data on disk. A producer writes updates of random
keys, a reader follows them, and a member of a group sends a heartbeat every 50 ms. After the last
update the topic must shrink to ``MOST_PER_KEY`` records a key. The run ends with 1 if

- the topic keeps more records, or a key's value differs from its last acknowledged value;
- the reader misses a key's last value, or gets an offset not above the previous offset;
- a heartbeat is refused or takes longer than ``LONGEST_BEAT_S``.
"""

from __future__ import annotations

import datetime
import random
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.testing.broker import BrokerProcess
from tests.soak.kills import read_all, reader
from tests.support.clients.raw_client import RawClient

TOPIC = "table"
SETTINGS = ("log.cleaner.backoff.ms=1000",)
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
HEARTBEAT, PAUSE_S = 68, 0.05
#: The session timeout: a longer heartbeat loses the membership. The durations are printed.
LONGEST_BEAT_S = 45.0
#: A tenth of the bytes may be dirty; cleaned single-record batches take more bytes than new ones.
MOST_PER_KEY = 2.0
PATIENCE_S = 600.0
VALUE = "%010d" + "x" * 90


@dataclass
class Member:
    """A member of the consumer protocol, with the seconds of each heartbeat."""

    bootstrap: str
    beats: list[float] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def run(self, stopping: threading.Event) -> None:
        """Join, then send a heartbeat after each pause."""
        name, epoch = str(uuid.uuid4()), 0
        joins = {
            "rebalance_timeout": datetime.timedelta(seconds=60),
            "subscribed_topic_names": (TOPIC,),
            "topic_partitions": (),
        }
        with RawClient(self.bootstrap, 60) as client:
            while not stopping.is_set():
                began = time.monotonic()
                values = {"group_id": "beating", "member_id": name, "member_epoch": epoch}
                answer = client.call(HEARTBEAT, 1, **values, **(joins if epoch == 0 else {}))
                self.beats.append(time.monotonic() - began)
                if answer.error_code:
                    self.refused.append(int(answer.error_code))
                    return
                epoch = answer.member_epoch
                time.sleep(PAUSE_S)


@dataclass
class Reader:
    """Read the topic from its start: each key's newest value, and decreasing offsets."""

    bootstrap: str
    newest: dict[bytes, bytes] = field(default_factory=dict)
    records: int = 0
    last: int = -1
    wrong: list[str] = field(default_factory=list)

    def run(self, stopping: threading.Event) -> None:
        """Read until ``stopping`` is set."""
        reading = reader(self.bootstrap, "reading", "read_uncommitted")
        reading.assign([TopicPartition(TOPIC, 0, 0)])
        while not stopping.is_set():
            for message in reading.consume(5_000, 0.2):
                if message.error() is None:
                    if message.offset() <= self.last:
                        self.wrong.append(f"offset {message.offset()} after {self.last}")
                    self.last = message.offset()
                    self.newest[message.key()] = message.value()
                    self.records += 1
        reading.close()


def write(bootstrap: str, updates: int, keys: int, seed: int) -> dict[bytes, bytes]:
    """Write the updates of random keys; return each key's last value. Raises TimeoutError."""
    draw, last = random.Random(seed), dict[bytes, bytes]()
    failed: list[str] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    )

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    for number in range(updates):
        key, value = b"key-%d" % draw.randrange(keys), (VALUE % number).encode()
        while True:
            try:
                producer.produce(TOPIC, value, key, partition=0, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
        last[key] = value
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(PATIENCE_S) or failed:
        raise TimeoutError(f"{len(producer)} updates were not acknowledged, {failed[:1]}")
    return last


def shrunk(bootstrap: str, most: float) -> list[tuple[int, bytes, bytes]]:
    """Return the topic's records once there are at most ``most``, else those of the last read."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := read_all(bootstrap, TOPIC, "read_uncommitted")) > most:
        if time.monotonic() > deadline:
            break
        time.sleep(2.0)
    return found


def differences(
    found: list[tuple[int, bytes, bytes]], last: dict[bytes, bytes], keys: int
) -> list[str]:
    """Compare the topic's records with the last value of each of the ``keys``."""
    wrong = []
    if len(found) > MOST_PER_KEY * keys:
        wrong.append(f"the topic kept {len(found):,} records of {keys:,} keys")
    if {key: value for _, key, value in found} != last:
        wrong.append("a key has another value than its last one")
    return wrong


def size_of(folder: Path) -> float:
    """Return the MB of a folder's files; a vanished file counts as empty."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total / 1e6


def milliseconds(beats: Sequence[float]) -> str:
    """Return p50, p99 and the longest of the heartbeats."""
    times = sorted(beats) or [0.0]
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    return f"{p50 * 1e3:.1f} / {p99 * 1e3:.1f} / {times[-1] * 1e3:.1f} ms of {len(beats)}"


def play(folder: Path, updates: int, keys: int, seed: int, say: Callable[[str], None]) -> list[str]:
    """Run the test; return the differences."""
    broker, stopping = BrokerProcess(folder, *SETTINGS), threading.Event()
    try:
        at = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": at})  # a dropped client cancels its requests
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result(60)
        member, following = Member(at), Reader(at)
        threads = [
            threading.Thread(target=one.run, args=(stopping,), daemon=True)
            for one in (member, following)
        ]
        threads[0].start()
        time.sleep(5.0)
        quiet = len(member.beats)
        threads[1].start()
        began = time.monotonic()
        last = write(at, updates, keys, seed)
        say(f"{updates:,} updates in {time.monotonic() - began:.0f} s, {size_of(folder):.0f} MB")
        found = shrunk(at, MOST_PER_KEY * keys)
        say(
            f"{len(found):,} records of {len(last):,} keys after {time.monotonic() - began:.0f} s, "
            f"{size_of(folder):.0f} MB; the reader got {following.records:,} records"
        )
        end = time.monotonic() + PATIENCE_S
        while following.newest != last and time.monotonic() < end and threads[1].is_alive():
            time.sleep(0.2)
        stopping.set()
        for thread in threads:
            thread.join(60)
        say(f"heartbeats before: {milliseconds(member.beats[:quiet])} (p50 / p99 / longest)")
        say(f"heartbeats beside it: {milliseconds(member.beats[quiet:])}")
        wrong = following.wrong[:5]
        if following.newest != last:
            wrong.append("the reader missed the last value of a key")
        if member.refused or max(member.beats) > LONGEST_BEAT_S:
            wrong.append(f"heartbeats: {member.refused} refused, {milliseconds(member.beats)}")
        return [*differences(found, last, keys), *wrong]
    finally:
        stopping.set()
        broker.kill()


@click.command()
@click.option("--updates", default=1_000_000, show_default=True)
@click.option("--keys", default=10_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(updates: int, keys: int, seed: int) -> None:
    """Write UPDATES of KEYS to a compacted topic beside a reader and a member of a group."""
    click.echo(f"seed {seed}, {updates:,} updates of {keys:,} keys")
    with tempfile.TemporaryDirectory(prefix="shrink-") as folder:
        wrong = play(Path(folder) / "data", updates, keys, seed, click.echo)
    for line in wrong:
        click.echo(f"WRONG {line}")
    click.echo(f"seed {seed}: {len(wrong)} differences")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
