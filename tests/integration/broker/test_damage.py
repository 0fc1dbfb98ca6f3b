"""Lost or broken acknowledged data is found at start: the broker refuses it, or skips it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.storage.reads import plan_read
from faust_assigner.broker.storage.recovery import StoreDamaged
from faust_assigner.broker.storage.rocks_store import RocksStore
from faust_assigner.testing.broker import BrokerProcess, BrokerUnavailable
from tests.integration.broker.test_restart import create, read_all
from tests.support.clients.raw_client import RawClient, batch, one_record

RECORDS = 500
ACCEPT = "log.recovery.accept.loss=true"


def killed_broker(folder: Path, value_bytes: int = 10) -> None:
    """Run a broker that acknowledges 500 records, and kill it."""
    broker = BrokerProcess(folder)
    with RawClient(broker.bootstrap) as client:
        create(client, "t")
        for number in range(RECORDS):
            client.produce("t", 0, batch(one_record(b"%0*d" % (value_bytes, number))))
    broker.kill()


def largest(folder: Path, pattern: str) -> Path:
    """Return the largest file that matches."""
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


def flip(path: Path) -> None:
    """Flip a byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Truncate a file to half its size."""
    os.truncate(path, path.stat().st_size // 2)


def refusal(folder: Path) -> str:
    """Return the broker's refusal to start; the exit code is 1."""
    with pytest.raises(BrokerUnavailable) as refused:
        BrokerProcess(folder)
    return str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, cut, os.unlink])
def test_damage_in_the_middle_of_the_write_ahead_log_is_refused_and_the_loss_is_named(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """A bad recovery would keep 402 of 500 records and assign the lost offsets again."""
    killed_broker(tmp_path)
    damage(largest(tmp_path, "*.log"))
    said = refusal(tmp_path)
    assert "the store is damaged" in said
    assert "acknowledged writes are missing" in said


@pytest.mark.slow
def test_a_damaged_log_is_started_on_request_and_gives_no_offset_twice(tmp_path: Path) -> None:
    """log.recovery.accept.loss: the rest is served; new records follow the acknowledged ones."""
    killed_broker(tmp_path)
    flip(largest(tmp_path, "*.log"))
    broker = BrokerProcess(tmp_path, ACCEPT)
    with RawClient(broker.bootstrap) as client:
        left = read_all(client, "t")
        assert 0 < len(left) < RECORDS
        assert client.produce("t", 0, batch()).base_offset == RECORDS
    assert broker.stop() == 0
    assert f"t-0: offsets {len(left)} to {RECORDS - 1}" in broker.errors()
    again = BrokerProcess(tmp_path)
    with RawClient(again.bootstrap) as client:
        assert sorted(read_all(client, "t")) == [*range(len(left)), RECORDS]
    assert again.stop() == 0


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(flip, marks=pytest.mark.slow),
        pytest.param(cut, marks=pytest.mark.slow),
        os.unlink,
    ],
)
def test_a_damaged_or_deleted_blob_is_refused_then_left_behind_on_request(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Large batches are in blob files; lost offsets are named, the others are served."""
    killed_broker(tmp_path, value_bytes=2_000)
    store = RocksStore(tmp_path)
    store._db.flush()
    store.close()
    damage(largest(tmp_path, "*.blob"))
    assert "t-0: offsets" in refusal(tmp_path)
    broker = BrokerProcess(tmp_path, ACCEPT)
    with RawClient(broker.bootstrap) as client:
        left = read_all(client, "t")
        assert len(left) < RECORDS
        assert client.produce("t", 0, batch()).base_offset == RECORDS
    assert broker.stop() == 0
    with EmbeddedBroker(tmp_path) as again, RawClient(again.bootstrap) as client:
        assert client.produce("t", 0, batch()).base_offset == RECORDS + 1


def test_a_store_that_lost_everything_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """Every file of RocksDB is gone; only the write audit remains."""
    killed_broker(tmp_path)
    for path in tmp_path.iterdir():
        if path.name != "WITNESS":
            path.unlink()
    with pytest.raises(OSError, match=r"damaged|cannot open"):
        EmbeddedBroker(tmp_path).__enter__()


def test_a_blob_that_breaks_while_the_broker_runs_is_an_error_and_not_an_empty_answer(
    tmp_path: Path,
) -> None:
    """KAFKA_STORAGE_ERROR: a reader must not take the error for the end of the log."""
    killed_broker(tmp_path, value_bytes=2_000)
    with EmbeddedBroker(tmp_path) as broker:
        pass
    with EmbeddedBroker(tmp_path, settings={"log.recovery.check.batches": "false"}) as broker:
        topic = broker.call(lambda node: node.catalogue.get("t"))
        assert topic is not None
        broker.call(
            lambda node: node.store.write(
                (), [plan_read(topic.partitions[0], 7, 1, at_least_one=True).keys[0]]
            )
        )  # type: ignore[union-attr]
        with RawClient(broker.bootstrap) as client:
            part = {"partition": 0, "fetch_offset": 7, "partition_max_bytes": 10**6}
            answer = client.call(
                1, 11, max_bytes=10**7, topics=[{"topic": "t", "partitions": [part]}]
            )
            assert answer.responses[0].partitions[0].error_code == 56
    with pytest.raises(StoreDamaged, match="t-0: offsets 7 to 7"):
        EmbeddedBroker(tmp_path).__enter__()
