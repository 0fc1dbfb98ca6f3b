"""A raw Kafka client on a blocking socket: any API in any version, and bytes of no real client."""

from __future__ import annotations

import functools
import io
import socket
import struct
from types import TracebackType
from typing import Any, Self

from crc32c import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from faust_assigner.broker.answers import _response_builder
from faust_assigner.broker.storage.records import HEADER
from tests.support.waiting import PATIENCE_S

request_schema = functools.cache(load_request_schema)
response_schema = functools.cache(load_response_schema)


def request_frame(api_key: int, version: int, correlation: int, values: dict[str, Any]) -> bytes:
    """Return a request frame, which begins with its size."""
    schema = request_schema(api_key, version)
    out = io.BytesIO()
    out.write(struct.pack(">hhih", api_key, version, correlation, 3) + b"raw")
    if schema.__flexible__:
        out.write(b"\0")
    entity_writer(schema)(out, _response_builder(schema)(values))
    return struct.pack(">i", len(out.getvalue())) + out.getvalue()


def one_record(value: bytes = b"v", *, offset_delta: int = 0) -> bytes:
    """The body of a batch with one record without a key."""
    return keyed_record(None, value, offset_delta=offset_delta)


def keyed_record(
    key: bytes | None, value: bytes | None, *, offset_delta: int = 0, time_delta: int = 0
) -> bytes:
    """The body of a batch with one record; a value of None is a tombstone."""
    deltas = _varint(time_delta) + _varint(offset_delta)
    fields = b"\0" + deltas + _sized(key) + _sized(value) + _varint(0)
    return _varint(len(fields)) + fields


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(value: int) -> bytes:
    zigzag, out = (value << 1) ^ (value >> 63), bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*out, zigzag])


def batch(
    body: bytes | None = None,
    *,
    count: int = 1,
    attributes: int = 0,
    timestamp: int = 1_000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    magic: int = 2,
    last_delta: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """A record batch with a valid checksum and any header."""
    body = one_record() * count if body is None else body
    newest = timestamp if max_timestamp is None else max_timestamp
    delta = count - 1 if last_delta is None else last_delta
    header = HEADER.pack(
        0,
        49 + len(body),
        -1,
        magic,
        0,
        attributes,
        delta,
        timestamp,
        newest,
        producer_id,
        epoch,
        sequence,
        count,
    )
    data = bytearray(header + body)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


class RawClient:
    """A client: ``with RawClient(bootstrap) as client: client.call(3, 12, topics=None)``."""

    def __init__(self, bootstrap: str, timeout_s: float = PATIENCE_S) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, **values: Any) -> int:
        """Send a request; return its correlation id."""
        self._correlation += 1
        self.socket.sendall(request_frame(api_key, version, self._correlation, values))
        return self._correlation

    def receive(self, api_key: int, version: int) -> Any:
        """Return the next response of that API. Raises ConnectionError if the broker has closed."""
        frame = self.receive_frame()
        schema = response_schema(api_key, version)
        start = 5 if schema.__header_schema__.__flexible__ else 4
        message, _ = entity_reader(schema)(frame, start)
        return message

    def receive_frame(self) -> bytes:
        """Return the next response frame without its size. Raises ConnectionError after a close."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def call(self, api_key: int, version: int, **values: Any) -> Any:
        """Send a request and return the response."""
        self.send(api_key, version, **values)
        return self.receive(api_key, version)

    def is_closed(self) -> bool:
        """Return whether the broker closes this connection (waits up to the timeout)."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def produce(
        self, topic: str, partition: int, data: bytes, *, acks: int = -1, version: int = 9
    ) -> Any:
        """Send a batch; return the partition's response."""
        values = {
            "acks": acks,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": partition, "records": data}]}
            ],
        }
        if acks == 0:
            self.send(0, version, **values)
            return None
        return self.call(0, version, **values).responses[0].partition_responses[0]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data
