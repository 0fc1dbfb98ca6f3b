"""Tables ahead of their changelogs, on whole workers: refused at start, in a round, and in service."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from faust.exceptions import ConsistencyError
from faust.types import TP

from faust_assigner.app.recovery import loop as recovery_loop
from faust_assigner.testing.broker import BrokerProcess, broker_process
from faust_assigner.testing.kafka import KafkaServer
from faust_assigner.testing.waiting import wait_until
from tests.integration.app.tables.test_sigkill import KEYS, Killed
from tests.support.workers.cooperative import CooperativeWorker
from tests.support.workers.virtual import running

pytestmark = pytest.mark.timeout(150)


class Rows(CooperativeWorker):
    """Count orders in RocksDB; ``stable`` has the ends that a committed reader sees, by partition."""

    def install_more(self) -> None:
        """Use a broker that takes high watermarks from the logs."""
        self.stable: dict[TP, int] = {}
        super().install_more()

    def begin(self) -> None:
        """Prepare the worker once the app has a recovery."""
        self.app._create_directories()
        self.refusals: list[BaseException] = []
        self.app.tables.recovery.consistency._pause_s = 0.01
        self.app.tables.recovery.consistency._ask = self.ends
        self.app.crash = self.app.tables.recovery.crash = self.note  # both would end the process

    async def ends(self, tps: Any) -> dict[TP, int]:
        """Return the high watermarks."""
        return {tp: self.logs.ends[tp] for tp in tps}

    async def note(self, reason: BaseException) -> None:
        """Record the error instead of ending the app."""
        self.refusals.append(reason)

    async def watch_ends(self) -> None:
        """Give committed readers earlier ends if the test sets ``stable``."""

        async def end_offsets(partitions: Any) -> dict[TP, int]:
            return {tp: self.stable.get(TP(*tp), self.logs.ends[TP(*tp)]) for tp in partitions}

        self.consumer.end_offsets = end_offsets  # type: ignore[method-assign]

    def make_again(self, partition: int, records: int = 0) -> None:
        """Recreate the changelog with ``records`` rows of another app."""
        log = self.changelog(partition)
        self.logs.records[log].clear()
        self.logs.ends[log] = 0
        for number in range(records):
            self.logs.append(log, b'"other-%d"' % number, b"5")


class EagerRows(Rows):
    """The same worker in eager rounds."""

    def install_more(self) -> None:
        """As with ``FAUST_ASSIGNER_COOPERATIVE=0``."""
        self.stable = {}


Kind = Callable[..., Rows]


async def given(worker: Rows, actives: list[int], standbys: list[int] = []) -> None:  # noqa: B006
    """Run a round of the worker's kind until the round is over or the worker refuses."""
    if isinstance(worker, EagerRows):
        await worker.rebalance(actives, standbys)
        done = lambda: not worker.app.rebalancing and not worker.app.in_recovery  # noqa: E731
    else:
        await worker.give(actives, standbys)
        done = lambda: worker.at_rest  # noqa: E731
    assert await worker.until(lambda: done() or bool(worker.refusals))


async def counted(worker: Rows, count: int, partition: int = 0) -> None:
    """Send ``count`` orders and wait until the file has them."""
    before = len(worker.of(partition))
    worker.send_orders(count, partition)
    assert await worker.until(lambda: len(worker.of(partition)) == before + count)
    store = worker.counts.data
    assert await worker.until(lambda: not any(store.overlays.values()))


@pytest.mark.parametrize("kind", [Rows, EagerRows])
@pytest.mark.parametrize("records", [0, 3])
async def test_a_partition_that_comes_back_ahead_of_its_changelog_is_refused(
    kind: Kind, records: int
) -> None:
    """The worker ends with an error that has the partition and both offsets."""
    worker = kind(partitions=2, store="rocksdb://")
    worker.begin()
    async with running(worker):
        await worker.rebalance([0])
        await counted(worker, 9)
        await given(worker, [1])
        worker.make_again(0, records)
        await given(worker, [0, 1])
        assert await worker.until(lambda: bool(worker.refusals))
        [refusal] = worker.refusals
        assert isinstance(refusal, ConsistencyError)
        assert f"reach offset 8 of {worker.changelog(0).topic}" in str(refusal)
        assert f"(8 > {records - 1})" in str(refusal)


@pytest.mark.parametrize("kind", [Rows, EagerRows])
async def test_a_standby_ahead_of_its_changelog_is_refused(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standby would apply none of the owner's changes; the check runs when it starts."""
    monkeypatch.setattr(recovery_loop, "COMPARE_S", 60.0)
    worker = kind(partitions=2, store="rocksdb://")
    worker.begin()
    async with running(worker):
        await worker.rebalance([0])
        await counted(worker, 9)
        await given(worker, [1])
        worker.make_again(0, 3)
        await given(worker, [1], [0])
        assert await worker.until(lambda: bool(worker.refusals))
        assert "(8 > 2)" in str(worker.refusals[0])


@pytest.mark.parametrize("kind", [Rows, EagerRows])
async def test_without_the_check_rows_are_kept_and_the_changelog_is_applied(kind: Kind) -> None:
    """The whole changelog is applied, and later changes are written to the file."""
    worker = kind(partitions=2, store="rocksdb://", recovery_consistency_check=False)
    worker.begin()
    async with running(worker):
        await worker.rebalance([0])
        await counted(worker, 9)
        await given(worker, [1])
        worker.make_again(0, 3)
        await given(worker, [0, 1])
        await counted(worker, 2)
        assert not worker.refusals
        store = worker.counts.data
        rows = {
            key: json.loads(store.file_row(0, b'"%s"' % key.encode()))
            for key in ("key-0", "other-2", "key-9")
        }
        assert rows == {"key-0": 1, "other-2": 5, "key-9": 1}
        assert store.persisted_offset(worker.changelog(0)) == 4


@pytest.mark.parametrize("kind", [Rows, EagerRows])
async def test_a_file_beyond_an_open_transaction_is_not_refused(kind: Kind) -> None:
    """A committed reader's end is before the committed changes; stock refuses these files."""
    worker = kind(partitions=2, store="rocksdb://")
    worker.begin()
    async with running(worker):
        await worker.watch_ends()
        await worker.rebalance([0])
        await counted(worker, 9)
        await given(worker, [1])
        worker.stable[worker.changelog(0)] = 4
        await given(worker, [1], [0])
        await given(worker, [0, 1])
        await counted(worker, 2)
        assert not worker.refusals
        assert worker.counts["key-0"] == 1


async def test_a_changelog_made_again_beside_streams_ends_the_worker_at_its_next_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of records in the new changelog does not matter."""
    monkeypatch.setattr(recovery_loop, "COMPARE_S", 60.0)
    worker = Rows(partitions=2, store="rocksdb://")
    worker.begin()
    async with running(worker):
        await worker.rebalance([0])
        await counted(worker, 9)

        worker.make_again(0)
        worker.send_orders(30)
        assert await worker.until(lambda: bool(worker.refusals))
        assert isinstance(worker.refusals[0], ConsistencyError)
        assert "reach offset 8" in str(worker.refusals[0])
        assert "(8 > 0)" in str(worker.refusals[0])


@pytest.mark.parametrize("standby", [False, True])
async def test_a_changelog_made_again_beside_streams_is_found_without_a_change(
    standby: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker checks owned and followed changelogs every few seconds."""
    monkeypatch.setattr(recovery_loop, "COMPARE_S", 0.05)
    worker = Rows(partitions=2, store="rocksdb://")
    worker.begin()
    async with running(worker):
        await worker.rebalance([0])
        await counted(worker, 9)
        if standby:
            await given(worker, [1], [0])
            assert await worker.until(lambda: worker.at_rest)
        worker.make_again(0, 2)
        assert await worker.until(lambda: bool(worker.refusals))
        assert "(8 > 1)" in str(worker.refusals[0])


async def test_without_the_check_a_changelog_made_again_beside_streams_is_applied() -> None:
    """The rows stay, and later changes are written to the file."""
    worker = Rows(partitions=2, store="rocksdb://", recovery_consistency_check=False)
    worker.begin()
    async with running(worker):
        await worker.rebalance([0])
        await counted(worker, 9)
        worker.make_again(0)
        await counted(worker, 5)
        store = worker.counts.data
        assert await worker.until(
            lambda: store.persisted_offset(worker.changelog(0)) == 4 and worker.at_rest
        )
        assert [worker.counts[f"key-{n}"] for n in (0, 8, 9, 13)] == [1, 1, 1, 1]
        assert store.file_row(0, b'"key-13"') == b"1"
        assert not worker.refusals


# -- real workers


def make_again(it: Killed, table: str) -> None:
    """Delete the changelog and create it again.

    Apache Kafka may auto-create the topic for a worker in between; that topic is deleted, too.
    """
    topic = f"{it.app_id}-{table}-changelog"
    new = NewTopic(topic, 2, 1, config={"cleanup.policy": "compact"})
    deadline = time.monotonic() + 30.0
    while True:
        it.admin.delete_topics([topic])[topic].result(30)
        try:
            it.admin.create_topics([new])[topic].result(30)
            return
        except KafkaException as error:
            exists = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            if not exists or time.monotonic() > deadline:
                raise


def ends(it: Killed, timeout_s: float = 45.0) -> int:
    """Wait until the worker ends by itself and return its exit code."""
    assert it.process is not None
    try:
        return it.process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise AssertionError(it.log()) from None


def refuses(it: Killed, table: str) -> None:
    """Assert that a worker with files ahead of ``table``'s changelog ends with the reason."""
    log = (it.folder / "log").read_text(errors="replace")
    assert f"Table {table}: this worker's rows of partition" in log, it.log()
    assert "ConsistencyError" in log


def refused_at_start(it: Killed) -> None:
    """Assert that the worker ends with the reason, before it changes any row."""
    log, before = it.folder / "log", it.settled()
    begin = log.stat().st_size
    it.start()
    assert ends(it) != 0
    said = log.read_bytes()[begin:].decode(errors="replace")
    assert "Table sums: this worker's rows of partition" in said, it.log()
    assert "ConsistencyError" in said
    assert it.settled() == before, "changes were computed from rows of another changelog"


def copied(broker: BrokerProcess, data: Path, copy: Path) -> None:
    """Copy the broker's data as a crash would leave it at this moment."""
    broker.process.send_signal(signal.SIGSTOP)
    shutil.copytree(data, copy)
    broker.process.send_signal(signal.SIGCONT)


def written(it: Killed) -> list[list[object]]:
    """Return the keys and values in the changelog of ``sums``, by partition."""
    return [
        [
            (json.loads(key), None if value is None else int(value))
            for _, key, value in it.changelog("sums", partition)
        ]
        for partition in range(2)
    ]


def changes_after(rows: dict[bytes, bytes], numbers: range, partition: int) -> list[object]:
    """Return the keys and values that ``rows.py`` writes to ``sums`` for ``numbers``."""
    sums = {json.loads(key): int(value) for key, value in rows.items()}
    written: list[object] = []
    for number in (n for n in numbers if n % KEYS % 2 == partition):
        key = f'"k{number % KEYS}"'
        sums[key] = sums.get(key, 0) + number
        written.append((key, sums[key]))
        if sums[key] % 7 == 0:
            del sums[key]
            written.append((key, None))
    return written


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(150)
def test_a_real_worker_refuses_files_ahead_of_an_older_log_and_of_another_clusters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row changes before the worker ends; with the check off its rows are kept, and continued.

    The older log is the broker's earlier data, as a leader that lacks records: the topic has its id.
    """
    data = tmp_path / "data"
    for folder in (data, tmp_path / "worker"):
        folder.mkdir()
    with contextlib.ExitStack() as stack:
        with broker_process(data) as broker:
            it = Killed(broker.bootstrap, tmp_path / "worker", "at_least_once")
            stack.callback(it.stop)
            it.send(400)
            it.start()
            it.wait_for_changes(300)
            copied(broker, data, tmp_path / "earlier")
            it.send(400)
            it.wait_for_changes(300)
            time.sleep(1.0)
            it.kill()
            files = [it.file("sums", partition) for partition in range(2)]
        with broker_process(tmp_path / "earlier", port=broker.port):
            changelog = f"{it.app_id}-sums-changelog"
            for partition in range(2):
                it.producer.produce(changelog, b"1", b'"other"', partition)
            assert it.producer.flush(60) == 0
            assert it.settled() < sum(offset for offset, _ in files)
            refused_at_start(it)
        with broker_process(None, "log.cleaner.backoff.ms=3600000") as another:
            new = Killed(another.bootstrap, tmp_path / "worker", "at_least_once", it.app_id)
            stack.callback(new.stop)
            new.send(100)
            refused_at_start(new)
            monkeypatch.setenv("RECOVERY_CONSISTENCY_CHECK", "0")
            new.start()
            expected = [changes_after(files[p][1], range(100), p) for p in range(2)]
            wait_until(lambda: written(new) == expected, lambda: f"{written(new)}, not {expected}")


def made_again_beside_streams(it: Killed) -> None:
    """Recreate the changelog of a running worker, whose next changes end the worker."""
    try:
        it.send(2_000)
        it.start()
        it.wait_for_changes(1_000)
        make_again(it, "sums")
        deadline = time.monotonic() + 60.0
        while it.process is not None and it.process.poll() is None:
            assert time.monotonic() < deadline, it.log()
            it.send(200)
            time.sleep(0.5)
        refuses(it, "sums")
    finally:
        it.kill()


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(150)
def test_a_real_worker_ends_when_its_changelog_is_made_again(tmp_path: Path) -> None:
    """On the embedded broker."""
    with broker_process(None, "group.min.session.timeout.ms=1000") as broker:
        made_again_beside_streams(Killed(broker.bootstrap, tmp_path, "at_least_once"))


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_a_real_worker_ends_when_its_changelog_is_made_again_under_exactly_once(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    """On Apache Kafka."""
    made_again_beside_streams(Killed(kafka.bootstrap, tmp_path, "exactly_once"))
