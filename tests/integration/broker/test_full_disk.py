"""A full disk: the broker refuses records, deletions work, and freed space is used again."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.storage import rocks_store
from tests.support.clients.raw_client import RawClient, batch, one_record

STORAGE_ERROR = 56
VALUE = random.Random(1).randbytes(100_000)


class Usage(NamedTuple):
    """The result of shutil.disk_usage."""

    total: int
    used: int
    free: int


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that reports the size of a 48 MiB disk."""
    total = 48 * 2**20

    def usage(folder: Path) -> Usage:
        used = 0
        for path in Path(folder).glob("*"):
            with contextlib.suppress(FileNotFoundError):  # RocksDB removes files meanwhile
                used += path.stat().st_size
        return Usage(total, used, max(total - used, 0))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    return tmp_path


def fill(client: RawClient, topic: str) -> int:
    """Produce until the broker refuses; return the number of accepted records."""
    for taken in range(1_000):
        error = client.produce(topic, 0, batch(one_record(VALUE))).error_code
        if error:
            assert error == STORAGE_ERROR
            return taken
    raise AssertionError("the disk never filled")


def test_deleting_works_on_a_full_disk_and_gives_its_space_back(small_disk: Path) -> None:
    """DeleteRecords, DeleteTopics and commits work; after that the broker takes records again."""
    with EmbeddedBroker(small_disk) as broker, RawClient(broker.bootstrap, 60) as client:
        for name in ("a", "b"):
            broker.call(lambda node, name=name: node.catalogue.create(name, 1, {}))
        first = fill(client, "a")
        assert first > 100
        part = {"partition_index": 0, "committed_offset": 1}
        topics = [{"name": "a", "partitions": [part]}]
        committed = client.call(
            8, 5, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
        )
        assert committed.topics[0].partitions[0].error_code == 0
        cut = client.call(
            21, 1, topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 50}]}]
        )
        assert cut.topics[0].partitions[0].error_code == 0
        assert client.call(20, 5, topic_names=("a",)).responses[0].error_code == 0
        again = 0
        for _ in range(20):  # until the disk has freed the deleted data
            again += fill(client, "b")
            while broker.call(lambda node: node.space.reclaiming is not None):
                pass
        assert again > first // 2


def test_a_store_that_ran_out_of_space_is_usable_once_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB refuses writes after a failed one; reopened, it has all acknowledged data."""
    rocks = rocks_store.RocksStore(tmp_path)
    rocks.write([(b"k1", b"v1")])
    broken = rocks._db

    class Full:
        def __getattr__(self, name: str) -> object:
            return getattr(broken, name)

        def write(self, *_: object) -> None:
            raise OSError("No space left on device")

    rocks._db = Full()
    with pytest.raises(rocks_store.StoreFailed):
        rocks.write([(b"k2", b"v2")])
    rocks.write([(b"k3", b"v3")])
    assert rocks.get_many([b"k1", b"k2", b"k3"]) == [b"v1", None, b"v3"]
    rocks.close()
