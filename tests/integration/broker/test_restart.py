"""Acknowledged data survives a restart, kill -9 under load, a torn tail and an interrupted deletion."""

from __future__ import annotations

import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.node import Node
from faust_assigner.broker.storage import write_audit
from faust_assigner.broker.storage.records import parse_batch
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.testing.broker import BrokerProcess
from tests.support.clients.raw_client import RawClient, batch, one_record
from tests.support.waiting import PATIENCE_S

KILLS = 3


def create(client: RawClient, name: str, partitions: int = 1) -> None:
    """Create a topic unless it exists."""
    client.call(
        19, 5, topics=[{"name": name, "num_partitions": partitions, "replication_factor": 1}]
    )


def read_all(client: RawClient, topic: str) -> dict[int, bytes]:
    """Return offset -> batch of partition 0."""
    found: dict[int, bytes] = {}
    offset = 0
    while True:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10**6}
        answer = client.call(
            1, 11, max_bytes=10**7, topics=[{"topic": topic, "partitions": [part]}]
        )
        data = bytes(answer.responses[0].partitions[0].records or b"")
        if not data:
            return found
        while data:
            base, length = struct.unpack_from(">qi", data)
            (count,) = struct.unpack_from(">i", data, 57)
            found[base] = data[: length + 12]
            offset, data = base + count, data[length + 12 :]


def commit(client: RawClient, offset: int) -> int:
    """Commit without a member; return the error."""
    part = {"partition_index": 0, "committed_offset": offset}
    topics = [{"name": "t", "partitions": [part]}]
    answer = client.call(
        8, 5, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    return int(answer.topics[0].partitions[0].error_code)


def committed(client: RawClient) -> int:
    """Return the group's committed offset."""
    topics = [{"name": "t", "partition_indexes": (0,)}]
    return int(
        client.call(9, 5, group_id="g", topics=topics).topics[0].partitions[0].committed_offset
    )


def load(bootstrap: str, acked: dict[int, bytes], commits: list[int], first: int) -> None:
    """Produce and commit until the broker dies; record only the acknowledged offsets."""
    with RawClient(bootstrap) as client:
        for number in range(first, first + 10**9):
            body = one_record(b"value-%d" % number)
            try:
                answer = client.produce("t", 0, batch(body))
                assert answer.error_code == 0
                acked[answer.base_offset] = body
                if number % 3 == 0:
                    assert commit(client, answer.base_offset) == 0
                    commits.append(answer.base_offset)
            except (ConnectionError, TimeoutError):
                return


@pytest.mark.slow
@pytest.mark.processes
def test_acknowledged_records_and_commits_survive_kill_9_under_load(tmp_path: Path) -> None:
    """Three kills in a row keep acknowledged records and the last commit, without a gap."""
    acked: dict[int, bytes] = {}
    commits: list[int] = []
    for round_number in range(KILLS):
        broker = BrokerProcess(tmp_path)
        with RawClient(broker.bootstrap) as client:
            create(client, "t")
        worker = threading.Thread(
            target=load, args=(broker.bootstrap, acked, commits, round_number * 10**6)
        )
        worker.start()
        before = len(acked)
        while len(acked) < before + 200:
            time.sleep(0.01)
        broker.kill()
        worker.join()
    broker = BrokerProcess(tmp_path)
    with RawClient(broker.bootstrap) as client:
        stored = read_all(client, "t")
        assert sorted(stored) == list(range(len(stored)))
        assert {o: stored[o][61:] for o in acked} == acked
        assert committed(client) >= max(commits)
    assert broker.stop() == 0


@pytest.mark.processes
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_tail_torn_by_a_power_loss_is_cut_and_the_broker_goes_on(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the log is missing or wrong: a prefix without gaps remains, appends work."""
    broker = BrokerProcess(tmp_path / "a")
    with RawClient(broker.bootstrap) as client:
        create(client, "t")
        for number in range(300):
            client.produce("t", 0, batch(one_record(b"%d" % number)))
    broker.kill()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    wal = max((tmp_path / "b").glob("*.log"), key=lambda p: p.stat().st_size)
    data = bytearray(wal.read_bytes())
    if damage == "cut":
        del data[-37:]
    else:
        data[-2_000] ^= 0xFF
    wal.write_bytes(data)
    monkeypatch.setattr(write_audit, "boot_id", lambda: b"another boot id.")
    with EmbeddedBroker(tmp_path / "b") as again, RawClient(again.bootstrap) as client:
        stored = read_all(client, "t")
        assert 250 < len(stored) < 300
        assert sorted(stored) == list(range(len(stored)))
        assert all(stored[n][61:] == one_record(b"%d" % n) for n in stored)
        assert client.produce("t", 0, batch()).base_offset == len(stored)


def test_a_data_folder_is_used_by_one_broker_only(tmp_path: Path) -> None:
    """The second broker fails with an error and does not affect the first."""
    with EmbeddedBroker(tmp_path) as first:
        with pytest.raises(StoreFailed, match=r"lock|Lock"):
            EmbeddedBroker(tmp_path).__enter__()
        with RawClient(first.bootstrap) as client:
            assert client.call(3, 12, topics=[]).cluster_id


def test_a_folder_written_in_another_format_is_refused(tmp_path: Path) -> None:
    """The broker does not guess the format."""
    store = RocksStore(tmp_path)
    store.write([(b"format", b"999")])
    store.close()
    with pytest.raises(StoreFailed, match="999"):
        EmbeddedBroker(tmp_path).__enter__()


def test_identity_topics_and_producer_ids_survive_a_restart(tmp_path: Path) -> None:
    """Cluster id, topic ids, configs, partitions, log start; no producer id is assigned twice."""
    broker = EmbeddedBroker(tmp_path)
    with broker, RawClient(broker.bootstrap) as client:
        create(client, "t", 3)
        client.call(37, 1, topics=[{"name": "t", "count": 5, "assignments": None}])
        for _ in range(3):
            client.produce("t", 0, batch())
        client.call(
            21, 1, topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}]
        )
        before = facts(client)
    with broker, RawClient(broker.bootstrap) as client:
        after = facts(client)
    assert after[:-1] == before[:-1]
    assert after[-1] > before[-1]


def facts(client: RawClient) -> list[Any]:
    """Return facts that a restart must keep, and a producer id, which it must not repeat."""
    metadata = client.call(3, 12, topics=None)
    part = {"partition_index": 0, "timestamp": -2}
    start = (
        client.call(2, 5, topics=[{"name": "t", "partitions": [part]}])
        .topics[0]
        .partitions[0]
        .offset
    )
    topics = [(t.name, t.topic_id, len(t.partitions)) for t in metadata.topics]
    return [
        metadata.cluster_id,
        topics,
        start,
        client.call(22, 4, transactional_id=None).producer_id,
    ]


def test_a_deletion_cut_short_is_finished_at_the_next_start(tmp_path: Path) -> None:
    """The deletion's note is on disk: no byte remains, and a new topic of that name is empty."""
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        create(client, "t")
        client.produce("t", 0, batch())
        topic = broker.call(lambda node: node.catalogue.get("t"))
        assert topic is not None
        note = b"d" + topic.topic_id.bytes
        broker.call(lambda node: node.store.write([(note, b"")], [b"tt"]))
    with EmbeddedBroker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        assert client.call(3, 12, topics=None).topics == ()
        left = broker.call(
            lambda node: [k for k, _ in node.store.scan(b"") if topic.topic_id.bytes in k]
        )
        assert left == []
        create(client, "t")
        assert read_all(client, "t") == {}


def test_a_start_walks_the_store_a_fixed_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of partitions does not matter; each pass may step over old tombstones."""
    with EmbeddedBroker(tmp_path) as broker:
        broker.call(lambda node: node.catalogue.create("t", 500, {}))
    passes: list[bytes] = []
    scan = RocksStore.scan

    def counted(store: RocksStore, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        passes.append(prefix)
        return scan(store, prefix)

    monkeypatch.setattr(RocksStore, "scan", counted)
    with EmbeddedBroker(tmp_path) as broker:
        assert broker.call(lambda node: len(node.catalogue.get("t").partitions)) == 500  # type: ignore[union-attr]
    assert len(passes) == len(set(passes)) < 16


def trimmed_store(folder: Path) -> None:
    """Write 600 partitions whose 60,000 deleted batches have left tombstones."""
    with EmbeddedBroker(folder) as broker:

        def fill(node: Node) -> None:
            topic = node.catalogue.create("t", 600, {})
            data = batch()
            for log in topic.partitions:
                for _ in range(100):
                    log.append(parse_batch(data), data, 0)
            node.store._db.flush()  # type: ignore[attr-defined]
            for log in topic.partitions:
                log.trim(log.end_offset)

        broker.call(fill)


@pytest.mark.slow
def test_a_trimmed_log_starts_and_is_stopped_by_a_signal_in_the_middle_of_it(
    tmp_path: Path,
) -> None:
    """SIGTERM while the store is read exits with 0; the next start has all offsets."""
    trimmed_store(tmp_path)
    starting = subprocess.Popen(
        [sys.executable, "-c", SLOW_START, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert starting.stdout is not None
    assert starting.stdout.readline() == "reading\n"
    starting.send_signal(signal.SIGTERM)
    assert starting.wait(PATIENCE_S) == 0
    broker = BrokerProcess(tmp_path)
    with RawClient(broker.bootstrap) as client:
        part = {"partition_index": 599, "timestamp": -1}
        found = (
            client.call(2, 5, topics=[{"name": "t", "partitions": [part]}]).topics[0].partitions[0]
        )
        assert found.offset == 100
    assert broker.stop() == 0


SLOW_START = """
import pathlib, sys, time
from faust_assigner.broker import serve, topics

def slowly(scan):
    def walk(store, prefix):
        for pair in scan(store, prefix):
            print("reading", flush=True)
            time.sleep(0.2)
            for _ in range(100):
                yield pair
    return walk

store = __import__("faust_assigner.broker.storage.rocks_store", fromlist=["RocksStore"]).RocksStore
store.scan = slowly(store.scan)
serve.serve(pathlib.Path(sys.argv[1]), "127.0.0.1", 0, {}, print)
"""
