"""SIGKILL of the embedded broker under three client libraries, with compaction; then a model.

    python -m tests.soak.kills --kills 200 --seed 1

Each library has its own thread, writes to a plain topic and a compacted topic, commits offsets, and
runs transactions. A transaction writes numbers to an output topic and a compacted topic, with the
offset behind the last number; about a fifth of the transactions are aborted. A reader of committed
records follows all outputs. After each library has an answer from the running broker, the broker is
killed at a time drawn from the seed, and restarted with its data on its port. The run ends with 1
if the log differs from the model:

- each acknowledged record is at its offset, and no record occurs twice;
- each committed offset is the last acknowledged offset or a later attempt;
- the output is 0, 1, 2, ... without gaps or repeats, up to the committed offset, at any time;
- no reader of committed records ever gets an aborted record;
- each key of a compacted topic has its last acknowledged value or a later value.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.testing.broker import BrokerProcess
from tests.soak.kill_clients import LIBRARIES, Client, Unknown

SETTINGS = ("log.cleaner.backoff.ms=50",)
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
ABORTED = b"aborted"
KEYS = 20
#: The maximum seconds that a kill waits for an answer of each library.
PROGRESS_S = 10.0
#: The seconds from then to the kill, drawn evenly.
LATEST_S = 1.5
#: Seconds for the load to end, a new client to start and a reader to reach the end.
PATIENCE_S = 180.0


@dataclass
class Load:
    """The acknowledged effects of a library, and its attempted numbers."""

    name: str
    bootstrap: str
    seed: int
    stopping: threading.Event
    #: offset in the plain topic -> number
    acknowledged: dict[int, int] = field(default_factory=dict)
    #: key of the table -> acknowledged number
    latest: dict[bytes, int] = field(default_factory=dict)
    tried: int = 0  # numbers written to the plain topic and to the table
    committed: tuple[int, int] = (-1, -1)  # the last acknowledged and the last attempted commit
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failure: BaseException | None = None

    def topic(self, kind: str) -> str:
        """The library's topic ``plain``, ``table``, ``out`` or ``states``."""
        return f"{kind}-{self.name}"

    def run(self) -> None:
        """Work until ``stopping`` is set; keep any error except a lost acknowledgement."""
        draw = random.Random(f"{self.seed} {self.name}")
        client: Client | None = None
        try:
            while not self.stopping.is_set():
                try:
                    client = client or LIBRARIES[self.name](self.bootstrap, f"tx-{self.name}")
                    position = committed_offset(self.bootstrap, f"work-{self.name}", "input")
                    while not self.stopping.is_set():
                        self._write(client, draw)
                        position = self._transact(client, draw, position)
                except Unknown as unknown:
                    self.counts["unknown"] += 1
                    self.reasons[str(unknown)[:60]] += 1
                    if client is not None:
                        client.close()
                    client = None
                    time.sleep(0.05)
        except BaseException as error:
            self.failure = error
        finally:
            if client is not None:
                client.close()

    def _write(self, client: Client, draw: random.Random) -> None:
        numbers = range(self.tried, self.tried + draw.randint(1, 20))
        self.tried = numbers.stop
        key_of = {n: b"key-%d" % draw.randrange(KEYS) for n in numbers}
        offsets = client.send([(self.topic("plain"), None, b"%d" % n) for n in numbers])
        self.counts["answered"] += 1
        self.acknowledged.update(zip(offsets, numbers, strict=True))
        client.send([(self.topic("table"), key_of[n], b"%d" % n) for n in numbers])
        self.latest.update({key_of[n]: n for n in numbers})
        self.committed = (self.committed[0], numbers.stop)
        client.commit(f"commits-{self.name}", self.topic("plain"), numbers.stop)
        self.committed = (numbers.stop, numbers.stop)
        self.counts["written"] += 2 * len(numbers)
        self.counts["commits"] += 1

    def _transact(self, client: Client, draw: random.Random, position: int) -> int:
        numbers = range(position, position + draw.randint(1, 10))
        commits = draw.random() > 0.2
        values = [(b"%d" % n if commits else ABORTED, b"key-%d" % (n % KEYS)) for n in numbers]
        records = [(self.topic("out"), None, value) for value, _ in values]
        records += [(self.topic("states"), key, value) for value, key in values]
        client.transact(records, f"work-{self.name}", "input", numbers.stop, commits=commits)
        self.counts["answered"] += 1
        self.counts["transactions" if commits else "aborted"] += 1
        return numbers.stop if commits else position


def reader(bootstrap: str, group: str, level: str) -> Consumer:
    """Return a consumer that reconnects soon."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """Return a group's stable committed offset, or 0. Raises Unknown after PATIENCE_S."""
    asking = reader(bootstrap, group, "read_committed")
    try:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                (found,) = asking.committed([TopicPartition(topic, 0)], 5.0)
                if found.error is None:
                    return max(found.offset, 0)
        raise Unknown(f"no committed offset of {group} within {PATIENCE_S:g} s")
    finally:
        asking.close()


class Follower:
    """Read the committed outputs of all libraries during the kills."""

    def __init__(self, bootstrap: str, loads: Sequence[Load]) -> None:
        self.wrong: list[str] = []
        self.next: dict[str, int] = {load.topic("out"): 0 for load in loads}
        self._reader = reader(bootstrap, "follower", "read_committed")
        topics = [load.topic(kind) for load in loads for kind in ("out", "states")]
        self._reader.assign([TopicPartition(topic, 0, 0) for topic in topics])

    def run(self, stopping: threading.Event) -> None:
        """Check each received record."""
        while not stopping.is_set():
            for message in self._reader.consume(500, 0.2):
                if message.error() is None:
                    self.take(message.topic(), message.offset(), message.value())
        self._reader.close()

    def take(self, topic: str, offset: int, value: bytes) -> None:
        """Check a committed record."""
        if value == ABORTED:
            self.wrong.append(f"{topic} at {offset}: an aborted record was read")
        elif topic in self.next:
            if int(value) != self.next[topic]:
                self.wrong.append(f"{topic} at {offset}: {int(value)} came, not {self.next[topic]}")
            self.next[topic] = int(value) + 1


def read_all(bootstrap: str, topic: str, level: str) -> list[tuple[int, bytes, bytes]]:
    """Return all (offset, key, value) of partition 0. Raises TimeoutError after PATIENCE_S."""
    reading = reader(bootstrap, "audit", level)
    reading.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes]] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            for message in reading.consume(5_000, 1.0):
                if message.error() is not None:
                    if message.error().name() == "_PARTITION_EOF":
                        return found
                    continue
                found.append((message.offset(), message.key() or b"", message.value()))
        raise TimeoutError(f"the end of {topic} was not reached within {PATIENCE_S:g} s")
    finally:
        reading.close()


def differences(load: Load, follower: Follower) -> list[str]:
    """Return the differences between the log and a library's acknowledgements."""
    at = load.bootstrap
    wrong: list[str] = []
    plain = {o: int(value) for o, _, value in read_all(at, load.topic("plain"), "read_uncommitted")}
    lost = [o for o, number in load.acknowledged.items() if plain.get(o) != number]
    repeated = len(plain) - len(set(plain.values()))
    if lost or repeated:
        wrong.append(f"plain: {len(lost)} acknowledged records lost, {repeated} there twice")
    table = read_all(at, load.topic("table"), "read_uncommitted")
    newest = {key: int(value) for _, key, value in table}
    behind = [key for key, number in load.latest.items() if newest.get(key, -1) < number]
    if behind:
        wrong.append(f"table: {len(behind)} keys have an older value than the acknowledged one")
    load.counts["table"] = len(table)
    position = committed_offset(at, f"work-{load.name}", "input")
    out = [int(value) for _, _, value in read_all(at, load.topic("out"), "read_committed")]
    if out != list(range(position)):
        wrong.append(f"out: {len(out)} numbers beside the committed offset {position}")
    if follower.next[load.topic("out")] > position:
        wrong.append(f"out: a reader saw {follower.next[load.topic('out')]} of {position} numbers")
    states = read_all(at, load.topic("states"), "read_committed")
    last = {key: int(value) for _, key, value in states if value != ABORTED}
    if any(value == ABORTED for _, _, value in states):
        wrong.append("states: an aborted record was read")
    if last != {b"key-%d" % (n % KEYS): n for n in range(position)}:
        wrong.append("states: the keys' last values are not the committed ones")
    load.counts["states"], load.counts["output"] = len(states), position
    group = committed_offset(at, f"commits-{load.name}", load.topic("plain"))
    if not max(load.committed[0], 0) <= group <= max(load.committed[1], 0):
        wrong.append(f"commits: {group} is committed, {load.committed} were acknowledged and tried")
    return [f"{load.name}: {text}" for text in wrong]


def play(folder: Path, kills: int, seed: int, say: Callable[[str], None]) -> list[str]:
    """Run the test; return the differences, and print a line for each library."""
    draw, stopping = random.Random(seed), threading.Event()
    broker = BrokerProcess(folder, *SETTINGS)
    port = broker.port
    try:
        loads = [Load(name, broker.bootstrap, seed, stopping) for name in LIBRARIES]
        create_topics(broker.bootstrap, loads)
        follower = Follower(broker.bootstrap, loads)
        threads = [threading.Thread(target=load.run, name=load.name, daemon=True) for load in loads]
        threads.append(
            threading.Thread(target=follower.run, args=(stopping,), name="follower", daemon=True)
        )
        for thread in threads:
            thread.start()
        try:
            for number in range(kills):
                wait_for_progress(loads)
                time.sleep(draw.uniform(0.0, LATEST_S))
                broker.kill()
                broker = BrokerProcess(folder, *SETTINGS, port=port)
                if number % 10 == 9:
                    say(f"{number + 1} kills, {sum(len(o.acknowledged) for o in loads)} records")
                if any(load.failure for load in loads):
                    break
        finally:
            stopping.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        wrong = [f"{t.name} did not end" for t in threads if t.is_alive()]
        if wrong:
            faulthandler.dump_traceback(sys.stderr)
        wrong += [f"{load.name}: {load.failure!r}" for load in loads if load.failure]
        wrong += follower.wrong[:10]
        for load in loads:
            wrong += differences(load, follower)
            say(f"{load.name:16} {dict(sorted(load.counts.items()))} {load.reasons.most_common(3)}")
        return wrong
    finally:
        if broker.process.poll() is None:
            broker.kill()


def wait_for_progress(loads: Sequence[Load]) -> None:
    """Wait until each library has an answered call, at most PROGRESS_S."""
    before = [load.counts["answered"] for load in loads]
    deadline = time.monotonic() + PROGRESS_S
    while time.monotonic() < deadline:
        if all(load.counts["answered"] > old for load, old in zip(loads, before, strict=True)):
            return
        time.sleep(0.02)


def create_topics(bootstrap: str, loads: Sequence[Load]) -> None:
    """Create the topics, each with one partition."""
    topics = [NewTopic("input", 1, 1)]
    for load in loads:
        topics += [NewTopic(load.topic(kind), 1, 1) for kind in ("plain", "out")]
        topics += [NewTopic(load.topic(kind), 1, 1, config=COMPACT) for kind in ("table", "states")]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(topics).values():
        made.result(30)


@click.command()
@click.option("--kills", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(kills: int, seed: int) -> None:
    """Kill the embedded broker KILLS times under load, and compare the log with a model."""
    for noisy in ("aiokafka", "kafka"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    began = time.monotonic()
    click.echo(f"seed {seed}, {kills} kills")
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        wrong = play(Path(folder) / "data", kills, seed, click.echo)
    for line in wrong:
        click.echo(f"WRONG {line}")
    click.echo(f"seed {seed}: {len(wrong)} differences after {time.monotonic() - began:.0f} s")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
