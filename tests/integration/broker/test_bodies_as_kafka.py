"""Record bodies that no correct producer sends: Apache Kafka and the embedded broker agree on each."""

from __future__ import annotations

import datetime
import gzip
import random
import struct
import time
from collections.abc import Mapping
from typing import Any

import cramjam
import pytest
from aiokafka.codec import lz4_encode, snappy_encode

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.testing.kafka import KafkaServer
from tests.support.clients.raw_client import RawClient, _varint, batch

YEAR_5000_MS = 95_617_584_000_000
NOT_YET = (3, 5, 6)
Cases = Mapping[str, bytes]


def record(
    value: bytes = b"v",
    key: bytes | None = None,
    *,
    time_delta: int = 0,
    offset_delta: int = 0,
    headers: bytes = b"\0",
    attributes: bytes = b"\0",
    length: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """A record, valid or invalid."""
    named = _varint(-1) if key is None else _varint(len(key)) + key
    fields = attributes + _varint(time_delta) + _varint(offset_delta) + named
    fields += _varint(len(value)) + value + headers + tail
    return _varint(len(fields) if length is None else length) + fields


def bare(key_length: int, value_length: int) -> bytes:
    """A record that has only lengths."""
    return _varint(6) + b"\0\0\0" + _varint(key_length) + _varint(value_length) + b"\0"


GOOD, TWO = record(), record() + record(offset_delta=1)
HEADER = _varint(1) + _varint(1) + b"k" + _varint(1) + b"x"
NAMELESS = _varint(1) + _varint(-1) + _varint(1) + b"x"
NOISE = random.Random(7).randbytes(50)


def packed(codec: int, body: bytes, count: int = 2, tail: bytes = b"") -> bytes:
    """A compressed batch."""
    pack = {
        1: gzip.compress,
        2: snappy_encode,
        3: lz4_encode,
        4: lambda b: bytes(cramjam.zstd.compress(b)),
    }
    return batch(pack[codec](body) + tail, count=count, attributes=codec)


def with_field(fmt: str, position: int, value: int) -> bytes:
    """A valid batch with one overwritten header field that the checksum does not cover."""
    data = bytearray(batch(GOOD))
    struct.pack_into(fmt, data, position, value)
    return bytes(data)


BODIES: Cases = {
    "good": batch(GOOD),
    "two": batch(TWO, count=2),
    "noise": batch(b"\x93\x12\x88abc\xff\xfe\x01qq"),
    "empty": batch(b""),
    "more claimed": batch(GOOD, count=2),
    "fewer claimed": batch(TWO, count=1),
    "last delta": batch(TWO, count=2, last_delta=5),
    "none": batch(b"", count=0),
    "negative count": batch(GOOD, count=-1, last_delta=0),
    "negative headers": batch(record(headers=_varint(-1))),
    "headers that are not there": batch(record(headers=_varint(5))),
    "header without name": batch(record(headers=NAMELESS)),
    "header without value": batch(record(headers=_varint(1) + _varint(1) + b"k" + _varint(-1))),
    "header": batch(record(headers=HEADER)),
    "length short": batch(record(length=3)),
    "length long": batch(record(length=50)),
    "length negative": batch(record(length=-1)),
    "tail in a record": batch(record(tail=b"zz")),
    "value of -5": batch(bare(-1, -5)),
    "value too long": batch(bare(-1, 63)),
    "key of -3": batch(bare(-3, -1)),
    "no value": batch(bare(-1, -1)),
    "record attributes": batch(record(attributes=b"\xff")),
    "offsets inside": batch(record(offset_delta=7) + record(offset_delta=3), count=2),
}
CODECS: Cases = {
    f"{name} {codec}": data
    for codec in (1, 2, 3, 4)
    for name, data in {
        "noise": batch(NOISE, attributes=codec),
        "sound": packed(codec, TWO),
        "of noise": packed(codec, b"\x93\x12\x88abc\xff\xfe"),
        "more claimed": packed(codec, GOOD),
        "fewer claimed": packed(codec, TWO, 1),
        "empty": batch(b"", attributes=codec),
        "offsets inside": packed(codec, record(offset_delta=7) + record(offset_delta=3)),
        "headers that are not there": packed(codec, record(headers=_varint(5)), 1),
        "header without name": packed(codec, record(headers=NAMELESS), 1),
    }.items()
} | {
    "gzip cut": batch(gzip.compress(TWO)[:-12], count=2, attributes=1),
    "gzip tail": packed(1, TWO, tail=b"junk"),
    "gzip in two": packed(1, GOOD, tail=gzip.compress(record(offset_delta=1))),
    "snappy tail": packed(2, TWO, tail=b"jj"),
    "snappy bare": batch(bytes(cramjam.snappy.compress_raw(TWO)), count=2, attributes=2),
    "lz4 linked": batch(bytes(cramjam.lz4.compress(TWO)), count=2, attributes=3),
    "zstd tail": packed(4, TWO, tail=b"junk"),
    "codec 5": batch(GOOD, attributes=5),
    "codec 7": batch(GOOD, attributes=7),
}
HEADERS: Cases = {
    "sequence -1": batch(GOOD, producer_id=4711, epoch=0, sequence=-1),
    "epoch -1": batch(GOOD, producer_id=4711, epoch=-1, sequence=0),
    "sequence without producer": batch(GOOD, producer_id=-1, epoch=0, sequence=-5),
    "producer -2": batch(GOOD, producer_id=-2, epoch=0, sequence=0),
    "year 5000": batch(GOOD, timestamp=YEAR_5000_MS),
    "year 5000 in the header": batch(GOOD, max_timestamp=YEAR_5000_MS),
    "year 5000 by delta": batch(record(time_delta=YEAR_5000_MS)),
    "later than the header": batch(record(time_delta=500), max_timestamp=2),
    "earlier than the base": batch(record(time_delta=-500)),
    "time -1": batch(GOOD, timestamp=-1),
    "time -5": batch(GOOD, timestamp=-5),
    "smallest time": batch(GOOD, timestamp=-(2**63)),
    "tail of 1": batch(GOOD) + b"x",
    "tail of 60": batch(GOOD) + b"x" * 60,
    "tail of zeros": batch(GOOD) + b"\0" * 80,
    "two batches": batch(GOOD) + batch(GOOD),
    "no batch": b"",
    "zeros": b"\0" * 60,
    "cut": batch(TWO, count=2)[:-1],
    "broker's time": batch(GOOD, attributes=8),
    "broker's time 5000": batch(GOOD, attributes=8, max_timestamp=5_000),
    "broker's time in the year 5000": batch(GOOD, attributes=8, max_timestamp=YEAR_5000_MS),
    "broker's time in gzip": batch(gzip.compress(GOOD), attributes=9, max_timestamp=5_000),
    "transactional": batch(GOOD, attributes=16),
    "control": batch(GOOD, attributes=32),
    "delete horizon": batch(GOOD, attributes=64),
    "unused attributes": batch(GOOD, attributes=0x7F80),
    "format 0": batch(GOOD, magic=0),
    "format 1": batch(GOOD, magic=1),
    "format 3": batch(GOOD, magic=3),
    "checksum": batch(GOOD)[:-1] + b"\x55",
    "base offset 77": with_field(">q", 0, 77),
    "base offset -77": with_field(">q", 0, -77),
    "leader epoch 9": with_field(">i", 12, 9),
    "size -5": with_field(">i", 8, -5),
    "size 10": with_field(">i", 8, 10),
    "size 30": with_field(">i", 8, 30),
    "largest size": with_field(">i", 8, 2**31 - 1),
}


def topic(client: RawClient, name: str, **configs: str) -> str:
    """Create a topic that is ready for records; configs use Kafka's names (``_`` for ``.``)."""
    given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    client.call(
        19,
        5,
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1, "configs": given}],
    )
    while client.produce(name, 0, batch(record(key=b"k"))).error_code in NOT_YET:
        time.sleep(0.05)
    return name


def verdicts(bootstrap: str, name: str, cases: Cases, **configs: str) -> dict[str, Any]:
    """Return case -> error, refused records, and the stored batch without offset and checksum."""
    found: dict[str, Any] = {}
    with RawClient(bootstrap, 30) as client:
        topic(client, name, **configs)
        for case, data in cases.items():
            answer = client.produce(name, 0, data)
            refused = [r.batch_index for r in answer.record_errors]
            stored = b""
            if answer.error_code == 0:
                where = {
                    "partition": 0,
                    "fetch_offset": answer.base_offset,
                    "partition_max_bytes": 10**6,
                }
                topics = [{"topic": name, "partitions": [where]}]
                read = client.call(
                    1, 11, max_bytes=10**7, max_wait=datetime.timedelta(0), topics=topics
                )
                stored = bytes(read.responses[0].partitions[0].records or b"")
                stored = stored[:12] + stored[16:17] + stored[21:] if not configs else b"taken"
            found[case] = (int(answer.error_code), refused, stored[8:])
    return found


@pytest.mark.kafka
@pytest.mark.parametrize("cases", [BODIES, CODECS, HEADERS], ids=["bodies", "codecs", "headers"])
@pytest.mark.parametrize(
    "configs",
    [{}, {"message_timestamp_type": "LogAppendTime"}, {"cleanup_policy": "compact"}],
    ids=["plain", "stamped", "compacted"],
)
def test_kafka_and_the_broker_take_and_refuse_the_same_batches(
    kafka: KafkaServer, cases: Cases, configs: dict[str, str]
) -> None:
    """Error, blamed records and stored batch, on topics that stamp records or require keys."""
    name = f"bodies-{len(cases)}-{'-'.join(configs)}".replace("_", ".")
    theirs = verdicts(kafka.bootstrap, name, cases, **configs)
    with EmbeddedBroker() as broker:
        ours = verdicts(broker.bootstrap, name, cases, **configs)
    assert {c: (ours[c], theirs[c]) for c in cases if ours[c] != theirs[c]} == {}
