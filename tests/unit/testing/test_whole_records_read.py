"""Records that are read from whole batches: offsets, aborted transactions, and empty keys."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from faust_assigner.broker.storage.transactions import Aborted
from faust_assigner.testing import log
from faust_assigner.testing.log import Record


def batch(base: int, *values: bytes, producer: int = -1, transactional: bool = False) -> bytes:
    """Return a batch of records whose first has the offset ``base``."""
    built = DefaultRecordBatchBuilder(2, 0, int(transactional), producer, 0, 0, 1 << 20)
    for number, value in enumerate(values):
        built.append(number, 1_500 + base + number, b"", value, [])
    return base.to_bytes(8, "big") + bytes(built.build())[8:]


def test_each_record_has_its_own_offset_and_aborted_ones_are_left_out() -> None:
    """A transaction is aborted from its first offset on, up to the end; other producers' are not."""
    data = b"".join(
        (
            batch(3, b"1", b"two", b"\xff", producer=7),
            batch(6, b"6", producer=7, transactional=True),
            batch(7, b"[7]", b"8", producer=7, transactional=True),
            batch(9, b"9", producer=8, transactional=True),
            batch(10, b"null", producer=7, transactional=True),
        )
    )
    aborted = [Aborted(8, 3, 9, 11), Aborted(7, 7, 10, 11)]
    found = list(log._decode_records(data, 4, aborted))
    assert found == [
        Record("", 1, 1.503, 4, 3),
        Record("", "two", 1.504, 4, 4),
        Record("", b"\xff", 1.505, 4, 5),
        Record("", 6, 1.506, 4, 6),
        Record("", 9, 1.509, 4, 9),
        Record("", None, 1.51, 4, 10),
    ]
    plain = list(log._decode_records(data, 4, [Aborted(7, 3, 10, 11)]))
    assert [record.offset for record in plain] == [3, 4, 5, 9, 10]


@pytest.mark.parametrize("count", [3, 5, 7, 11])
def test_an_empty_key_is_a_key(count: int) -> None:
    """Only a record without a key goes to partition 0 in any case."""
    wanted = (murmur2(b"") & 0x7FFFFFFF) % count
    assert log._partition_of_key(b"", count) == wanted
    assert log._partition_of_key(None, count) == 0


def test_other_values_than_bytes_are_no_bytes() -> None:
    """A bytearray is not a value that a client could send."""
    with pytest.raises(TypeError):
        log.encoded(bytearray(b"x"))


def test_control_batches_are_no_records() -> None:
    """The markers of transactions stand between the batches; the records after them count."""
    parts = [
        batch(3, b"1", producer=7, transactional=True),
        control(batch(4, b"marker", producer=7, transactional=True)),
        batch(5, b"2", b"3"),
        control(batch(7, b"marker", producer=8)),
        batch(8, b"4", producer=8, transactional=True),
    ]
    found = list(log._decode_records(b"".join(parts), 2, []))
    assert found == [
        Record("", 1, 1.503, 2, 3),
        Record("", 2, 1.505, 2, 5),
        Record("", 3, 1.506, 2, 6),
        Record("", 4, 1.508, 2, 8),
    ]


def control(data: bytes) -> bytes:
    """Return the batch with the attribute of a control batch."""
    attributes = int.from_bytes(data[21:23], "big") | 0x20
    return data[:21] + attributes.to_bytes(2, "big") + data[23:]
