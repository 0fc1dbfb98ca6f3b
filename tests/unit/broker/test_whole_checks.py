"""Whole results of checks: stored batches with all header fields, broken batches, fenced producers."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.claims import has_codec
from faust_assigner.broker.storage.log import PartitionLog
from faust_assigner.broker.storage.losses import unreadable
from faust_assigner.broker.storage.records import (
    HEADER,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    SMALLEST_LENGTH,
    TRANSACTIONAL,
    BadBatch,
    RecordRules,
    check_records,
    cut_batch,
    parse_batch,
)
from faust_assigner.broker.storage.recovery import CLUSTER, open_cluster
from faust_assigner.broker.storage.restoring import restore_logs
from faust_assigner.broker.storage.store import FORMAT, MemoryStore, StoreFailed
from faust_assigner.broker.storage.unpacking import pack
from faust_assigner.broker.transactions.transaction_store import load_transactions
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.transactions import State
from faust_assigner.coordinator.transactions.events import InitProducer
from tests.support.clients.raw_client import batch, keyed_record
from tests.support.logs import open_log
from tests.unit.broker.test_transactions import TIMEOUT, Bench

GZIP, ZSTD = 1, 4


@pytest.mark.parametrize(
    ("attributes", "stamps", "newest", "stored"),
    [
        (TRANSACTIONAL | GZIP, True, 1_007, (TRANSACTIONAL | GZIP | LOG_APPEND_TIME, 5_000)),
        (ZSTD, True, 1_007, (ZSTD | LOG_APPEND_TIME, 5_000)),
        (0, True, 1_007, (LOG_APPEND_TIME, 5_000)),
        (TRANSACTIONAL | ZSTD, False, 9, (TRANSACTIONAL | ZSTD, 1_007)),
        (TRANSACTIONAL | GZIP | LOG_APPEND_TIME, False, 1_004, (TRANSACTIONAL | GZIP, 1_004)),
        (TRANSACTIONAL | GZIP, False, 1_007, None),
    ],
)
def test_only_the_time_of_a_batch_changes_at_its_check(
    attributes: int, stamps: bool, newest: int, stored: tuple[int, int] | None
) -> None:
    """Codec, transaction, producer and records stay; None: the client's bytes are stored."""
    records = [keyed_record(b"k", b"v", offset_delta=n, time_delta=7 - n) for n in range(3)]
    body = b"".join(records)
    data = batch(
        pack(attributes & 7, body) if attributes & 7 else body,
        count=3,
        attributes=attributes,
        timestamp=1_000,
        max_timestamp=newest,
        producer_id=41,
        epoch=3,
        sequence=12,
    )
    found, parsed = check_records(data, parse_batch(data), RecordRules(5_000, stamps, keys=True))
    if stored is None:
        assert found is data
        return
    before, after = list(HEADER.unpack_from(data)), list(HEADER.unpack_from(found))
    assert (after[5], after[8]) == stored
    for fields in (before, after):
        del fields[8], fields[4:6]  # the greatest time, the checksum and the attributes
    assert after == before
    assert found[HEADER.size :] == data[HEADER.size :]
    assert parsed == parse_batch(found)


@pytest.mark.parametrize("broken", [(0,), (1,), (2,), (0, 2), ()])
def test_of_batches_that_are_read_together_only_the_broken_ones_are_lost(
    broken: Sequence[int],
) -> None:
    """A failed read of several batches is repeated for each of them."""
    log = open_log(MemoryStore(), bytes(16), 0)
    for n in range(3):
        data = batch(count=n + 1, timestamp=n)
        log.append(parse_batch(data), data, n)
    bases = [0, 1, 3]
    keys = {log.batch_key(bases[n]) for n in broken}
    get_many = log.store.get_many
    asked: list[int] = []

    def reading(wanted: Sequence[bytes]) -> list[bytes | None]:
        asked.append(len(wanted))
        if not keys.isdisjoint(wanted):
            raise StoreFailed("a damaged block")
        return get_many(wanted)

    log.store.get_many = reading  # type: ignore[method-assign]
    spans = [(0, 1), (1, 3), (3, 6)]
    assert list(unreadable(log, 1 << 20, lambda: None)) == [spans[n] for n in broken]
    assert asked == ([3, 1, 1, 1] if broken else [3])


def test_a_producer_that_is_fenced_at_its_begin_has_ended_its_open_transaction() -> None:
    """The abort is stored with its marker although the answer is an error."""
    bench = Bench()
    bench.begin()
    bench.write()
    known = bench.of("tx")
    expected = (known.producer_id, known.epoch + 4)
    answer = bench.node.transactions.ask("tx", InitProducer(TIMEOUT, 77, expected))
    assert answer is Code.PRODUCER_FENCED
    ended = bench.of("tx")
    assert (ended.state, ended.epoch) == (State.COMPLETE_ABORT, known.epoch + 1)
    assert list(load_transactions(bench.node.store)) == [ended]
    assert bench.aborted(0, 9) == [(0, 1)]
    assert bench.log.end_offset == 2
    assert bench.node.counters["transactions_aborted"] == 1
    bench.node.close()


def test_a_new_store_gets_an_id_of_22_characters_and_keeps_it() -> None:
    """Kafka's ids have no padding; the format is the oldest, until newer features are used."""
    store = MemoryStore()
    cluster_id = open_cluster(store, Settings())
    assert len(base64.urlsafe_b64decode(cluster_id + "==")) == 16
    assert len(cluster_id) == 22
    assert list(store.scan(b"")) == [(CLUSTER, cluster_id.encode()), (FORMAT, b"1")]
    assert open_cluster(store, Settings()) == cluster_id
    assert open_cluster(MemoryStore(), Settings()) != cluster_id


def test_a_partition_without_an_open_transaction_has_its_aborted_ones_after_a_start() -> None:
    """A second partition has only an open transaction, a third one has both, a fourth one none."""
    store = MemoryStore()
    logs = [open_log(store, bytes(16), n) for n in range(4)]

    def write(log: PartitionLog, producer_id: int) -> None:
        data = batch(
            attributes=TRANSACTIONAL, producer_id=producer_id, epoch=0, sequence=0, timestamp=1
        )
        log.append(parse_batch(data), data, 1)

    for log in (logs[0], logs[2]):
        write(log, 7)
        ending = log.end_transaction(7, 0, 1, commits=False)
        store.write(ending.puts, ending.deletes)
        ending.stored()
    for log in (logs[1], logs[2]):
        write(log, 8)
    again = [PartitionLog(store, bytes(16), n) for n in range(4)]
    restore_logs(store, again)
    assert [log.aborted(0, 9) for log in again] == [[(7, 0, 1, 2)], [], [(7, 0, 1, 2)], []]
    assert [dict(log.transactions.open) for log in again] == [{}, {8: 0}, {8: 2}, {}]
    assert [log.stable_offset for log in again] == [2, 0, 2, 0]


@pytest.mark.parametrize("length", [-13, -12, -1, 0])
def test_the_search_for_a_codec_ends_also_in_broken_batches(length: int) -> None:
    """A negative length would keep the search at its place."""
    data = bytearray(batch() + batch(pack(ZSTD, b""), attributes=ZSTD))
    struct.pack_into(">i", data, 8, length)
    assert not has_codec(bytes(data[:70]), ZSTD)
    sound = batch() + batch(attributes=2) + batch(pack(ZSTD, b""), attributes=ZSTD)
    assert [has_codec(sound, codec) for codec in range(5)] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("length", "error"),
    [
        (2**31 - 1 - LENGTH_OVERHEAD, ErrorCode.invalid_record),
        (2**31 - LENGTH_OVERHEAD, ErrorCode.unknown_server_error),
        (2**31 - 1, ErrorCode.unknown_server_error),
        (SMALLEST_LENGTH - 1, ErrorCode.corrupt_message),
        (-1, ErrorCode.corrupt_message),
    ],
)
def test_a_batch_that_claims_an_impossible_length_has_kafkas_error(
    length: int, error: ErrorCode
) -> None:
    """A size above 2 GiB overflows in Kafka; the greatest possible size is only not there."""
    data = bytearray(batch())
    struct.pack_into(">i", data, 8, length)
    with pytest.raises(BadBatch) as refused:
        cut_batch(bytes(data))
    assert refused.value.error is error


@pytest.mark.parametrize("version", [b"1", b"2", b"3"])
def test_a_store_of_each_known_format_is_opened_and_keeps_its_id(version: bytes) -> None:
    """A second life neither lowers the format nor makes a new id."""
    store = MemoryStore()
    store.write([(CLUSTER, b"old"), (FORMAT, version)])
    assert open_cluster(store, Settings()) == "old"
    assert list(store.scan(b"")) == [(CLUSTER, b"old"), (FORMAT, version)]
