"""A file matches its table at the file's offset, at whatever moment its worker is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import rocksdict
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.testing.broker import broker_process
from faust_assigner.testing.kafka import KafkaServer
from tests.support.clients.end_offsets import end_offset

ROOT = Path(__file__).resolve().parents[4]
OFFSET = b"__faust\0offset__"
PARTITIONS = range(2)
KEYS = 50
TABLES = ("sums", "counts")
#: The files of this table are behind by the records being read.
SHARED = "shared"
#: A table of sets, whose changelog has operations.
SETS = "seen"


class Killed:
    """A worker of ``tests/support/workers/rows.py`` that is killed during its work and restarted."""

    def __init__(self, bootstrap: str, folder: Path, guarantee: str, app_id: str = "") -> None:
        self.app_id = app_id or f"rows-{uuid.uuid4().hex[:6]}"
        self.bootstrap, self.folder = bootstrap, folder
        self.guarantee = guarantee
        self.process: subprocess.Popen[bytes] | None = None
        self.admin = AdminClient({"bootstrap.servers": bootstrap})  # keeps its futures alive
        # The changelog, too: Faust asks for the partition of a key before its metadata has a new
        # topic.
        topics = [
            NewTopic(f"{self.app_id}-numbers", 2, 1),
            NewTopic(
                f"{self.app_id}-{SHARED}-changelog", 2, 1, config={"cleanup.policy": "compact"}
            ),
        ]
        for made in self.admin.create_topics(topics).values():
            made.result(30)
        self.producer = Producer({"bootstrap.servers": bootstrap})
        self.ends = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{self.app_id}-reader",
                "isolation.level": "read_uncommitted",
            }
        )
        self.sent = 0

    def send(self, count: int) -> None:
        """Send ``count`` numbers; each key has one partition."""
        for number in range(self.sent, self.sent + count):
            key = number % KEYS
            self.producer.produce(f"{self.app_id}-numbers", b"%d" % number, b'"k%d"' % key, key % 2)
            self.producer.poll(0)
        assert self.producer.flush(60) == 0
        self.sent += count

    def start(self) -> None:
        """Start the worker with the files of its earlier runs."""
        environment = os.environ | {
            "ROWS_APP_ID": self.app_id,
            "ROWS_BOOTSTRAP": self.bootstrap,
            "ROWS_DATA": str(self.folder / "data"),
            "ROWS_GUARANTEE": self.guarantee,
        }
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.support.workers.rows",
                    "worker",
                    "-l",
                    "info",
                    "--without-web",
                ],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def stop(self) -> None:
        """End the worker and the reader of the changelogs' ends."""
        self.kill()
        self.ends.close()

    def kill(self) -> None:
        """SIGKILL the worker."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def log(self) -> str:
        """Return the end of the log of all runs."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    # -- state

    def changelog(self, table: str, partition: int) -> list[tuple[int, bytes, bytes | None]]:
        """Return offset, key and value of the records that committed readers see."""
        reader = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.app_id}-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found: list[tuple[int, bytes, bytes | None]] = []
        try:
            reader.assign([TopicPartition(f"{self.app_id}-{table}-changelog", partition, 0)])
            while True:
                message = reader.poll(30.0)
                assert message is not None
                if message.error() is not None:
                    return found
                found.append((message.offset() or 0, message.key() or b"", message.value()))
        finally:
            reader.close()

    def changes(self) -> int:
        """Return the number of records in the changelogs, committed or not."""
        changelog = f"{self.app_id}-sums-changelog"
        return sum(end_offset(self.ends, changelog, partition) for partition in PARTITIONS)

    def wait_for_changes(self, count: int) -> None:
        """Wait until the changelogs have ``count`` more records."""
        least, deadline = self.settled() + count, time.monotonic() + 180.0
        while self.settled() < least:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def settled(self) -> int:
        """Return ``changes()``, or 0 while there is no changelog."""
        topics = self.admin.list_topics(timeout=30.0).topics
        return self.changes() if f"{self.app_id}-sums-changelog" in topics else 0

    def file(self, table: str, partition: int) -> tuple[int, dict[bytes, bytes]]:
        """Return the offset and the rows of the file."""
        (path,) = self.folder.glob(f"data/**/{table}-{partition}.db")
        database = rocksdict.Rdict(
            str(path),
            rocksdict.Options(raw_mode=True),
            access_type=rocksdict.AccessType.read_only(),
        )
        try:
            rows = dict(database.items())
        finally:
            database.close()
        return int(rows.pop(OFFSET, b"-1")), rows


def is_its_changelog(it: Killed) -> Iterator[int]:
    """Compare each file with its changelog up to its offset; yield the number of missing records."""
    held = dict.fromkeys((*TABLES, SETS), 0)
    for table in (*TABLES, SHARED):
        for partition in PARTITIONS:
            offset, rows = it.file(table, partition)
            log, folded = it.changelog(table, partition), dict[bytes, bytes]()
            for _, key, value in (record for record in log if record[0] <= offset):
                if value is None:
                    folded.pop(key, None)
                else:
                    folded[key] = value
            assert rows == folded, (
                f"{table}-{partition} is not what its changelog holds up to {offset}"
            )
            if table in TABLES:
                held[table] += len(rows)
                yield sum(at > offset for at, _, _ in log)
    for partition in PARTITIONS:
        offset, rows = it.file(SETS, partition)
        sets: dict[bytes, set[int]] = {}
        for _, key, value in (
            record for record in it.changelog(SETS, partition) if record[0] <= offset
        ):
            operation, name = json.loads(key)
            change = set.add if operation == 1 else set.discard
            change(sets.setdefault(json.dumps(name).encode(), set()), json.loads(value or b""))
        assert {key: set(json.loads(row)) for key, row in rows.items()} == sets, (
            f"{SETS}-{partition}"
        )
        held[SETS] += len(rows)
    assert all(held.values()), f"no file has a row: {held}"


def is_killed_amid_its_work(it: Killed, lives: int, numbers: int) -> list[int]:
    """Run ``lives`` times and check the files each time; return the missing records per run."""
    lacked = []
    for _ in range(lives):
        it.send(numbers)
        it.start()
        it.wait_for_changes(600)
        it.kill()
        lacked.append(sum(is_its_changelog(it)))
    return lacked


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_at_least_once_a_file_is_its_changelog_up_to_its_offset(tmp_path: Path) -> None:
    """SIGKILL comes twice while rows are written, deleted and counted in windows.

    Compaction is off: it would remove the records that a file behind its changelog was made from.
    """
    with broker_process(
        None, "group.min.session.timeout.ms=1000", "log.cleaner.backoff.ms=3600000"
    ) as broker:
        it = Killed(broker.bootstrap, tmp_path, "at_least_once")
        try:
            is_killed_amid_its_work(it, 2, 20_000)
        finally:
            it.stop()


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_exactly_once_a_file_is_what_was_committed_up_to_its_offset(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    """Three SIGKILLs during transactions; at the end each number is counted once.

    Only milliseconds pass between a commit and the write of its rows. At least one of three runs
    ends outside of them, and the files of that run lack no row.
    """
    it = Killed(kafka.bootstrap, tmp_path, "exactly_once")
    try:
        lacked = is_killed_amid_its_work(it, 3, 1_000)
        assert min(lacked) == 0, lacked
        it.start()
        model = Counter(f'"k{number % KEYS}"' for number in range(it.sent))
        deadline = time.monotonic() + 120.0
        for counter in (counts, shared):
            while (counted := counter(it)) != model:
                assert sum(counted.values()) <= it.sent, it.log()
                assert time.monotonic() < deadline, it.log()
                time.sleep(1.0)
    finally:
        it.stop()


def counts(it: Killed) -> Counter[str]:
    """Return the count of each key over all windows, as committed readers see it."""
    latest = {
        (partition, key): value
        for partition in PARTITIONS
        for _, key, value in it.changelog("counts", partition)
    }
    found: Counter[str] = Counter()
    for (_, key), value in latest.items():
        found[json.loads(key)[0]] += int(value or b"0")
    return found


def shared(it: Killed) -> Counter[str]:
    """Return the counts of the table that every worker has."""
    latest = {
        key: value for partition in PARTITIONS for _, key, value in it.changelog(SHARED, partition)
    }
    return Counter(
        {json.loads(key).removeprefix("all-"): int(value or b"0") for key, value in latest.items()}
    )
