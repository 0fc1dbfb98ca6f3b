"""The guard in front of kio: it trusts no byte of a frame and admits every valid request."""

from __future__ import annotations

import io
import os
import random
import resource
import struct
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from faust_assigner.broker import answers, wire
from faust_assigner.broker.api import APIS
from faust_assigner.broker.limits import MAX_ARRAY_ELEMENTS
from faust_assigner.broker.request_walk import MalformedFrame, NullArray, Walk, entity_shape
from faust_assigner.broker.wire import decode_request, read_header
from tests.support.clients.raw_client import request_frame
from tests.support.examples import examples
from tests.support.work import instructions

VERSIONS = [(api.key, version) for api in APIS.values() for version in range(api.low, api.high + 1)]
APIS_VERSIONS = {api.key: range(api.low, api.high + 1) for api in APIS.values()}
REQUESTS: dict[int, dict[str, Any]] = {
    0: {
        "acks": -1,
        "topic_data": [{"name": "t", "partition_data": [{"index": 1, "records": b"abc"}]}],
    },
    1: {
        "topics": [
            {
                "topic": "t",
                "partitions": [{"partition": 1, "fetch_offset": 5, "partition_max_bytes": 9}],
            }
        ]
    },
    2: {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "timestamp": -1}]}]},
    3: {"topics": [{"name": "t"}]},
    8: {
        "group_id": "g",
        "generation_id_or_member_epoch": 1,
        "member_id": "m",
        "topics": [{"name": "t", "partitions": [{"partition_index": 1, "committed_offset": 3}]}],
    },
    9: {
        "group_id": "g",
        "topics": [{"name": "t", "partition_indexes": (1, 2)}],
        "groups": [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": (1, 2)}]}],
    },
    10: {"key": "g", "coordinator_keys": ("g", "h")},
    11: {
        "group_id": "g",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"xyz"}],
    },
    14: {
        "group_id": "g",
        "member_id": "m",
        "assignments": [{"member_id": "m", "assignment": b"xyz"}],
    },
    19: {
        "topics": [
            {
                "name": "t",
                "num_partitions": 1,
                "replication_factor": 1,
                "configs": [{"name": "a", "value": None}],
            }
        ]
    },
}


def sound_frame(key: int, version: int) -> bytes:
    """Return a request with content, without its size."""
    return request_frame(key, version, 7, REQUESTS.get(key, {}))[4:]


@pytest.mark.parametrize("key", APIS_VERSIONS)
def test_every_version_served_passes_the_guard_whole(key: int) -> None:
    """The walk ends where kio's own reader ends, and the header and the message are read."""
    for version in APIS_VERSIONS[key]:
        frame = sound_frame(key, version)
        header = read_header(frame)
        assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (
            key,
            version,
            7,
            "raw",
        )
        schema = load_request_schema(key, version)
        end = entity_shape(schema).skip(Walk(frame), header.body)
        message, size = entity_reader(schema)(frame, header.body)
        assert end == header.body + size == len(frame), version
        assert decode_request(key, version, frame, header.body) == message


@pytest.mark.parametrize("key", APIS_VERSIONS)
def test_every_cut_of_a_frame_is_refused_or_read(key: int) -> None:
    """A truncated frame raises MalformedFrame or NullArray and no other exception."""
    for version in APIS_VERSIONS[key]:
        frame = sound_frame(key, version)
        for end in range(len(frame)):
            try:
                header = read_header(frame[:end])
                decode_request(key, version, frame[:end], header.body)
            except (MalformedFrame, NullArray):
                continue
            pytest.fail(f"version {version}: {end} of {len(frame)} bytes were taken for a message")


@pytest.mark.parametrize("count", [2**31 - 1, 2**30, MAX_ARRAY_ELEMENTS + 1, -2, -(2**31)])
def test_a_huge_or_negative_array_count_is_refused_before_anything_is_reserved(count: int) -> None:
    """Five bytes must not cost gigabytes: kio without the guard would end the process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(MalformedFrame):
        decode_request(3, 5, struct.pack(">i", count) + b"\1", 0)
    for nested in (struct.pack(">iiiibii", -1, 500, 1, 1, 0, 0, -1) + struct.pack(">i", count),):
        with pytest.raises(MalformedFrame):
            decode_request(1, 11, nested, 0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_huge_compact_array_count_is_refused() -> None:
    """The count is a varint."""
    for count in (
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\x7f",
    ):
        with pytest.raises(MalformedFrame):
            decode_request(3, 12, count + b"\1\0\0", 0)


def test_a_frame_full_of_tiny_elements_is_refused() -> None:
    """Four million numbers fit into 16 MiB and would need hundreds of MiB: elements are limited."""
    names = struct.pack(">i", MAX_ARRAY_ELEMENTS + 1) + b"\0\1a" * (MAX_ARRAY_ELEMENTS + 1)
    with pytest.raises(MalformedFrame, match="elements"):
        decode_request(3, 5, names + b"\1", 0)


def test_unknown_tagged_fields_are_ignored_as_the_protocol_demands() -> None:
    """A future client may add tagged fields; kio without the guard would refuse the request."""
    frame = bytearray(sound_frame(3, 12))
    assert frame[-1] == 0
    frame[-1:] = b"\2" + b"\5\3abc" + b"\x80\x01\0"
    frame[13:14] = b"\1\7\2xy"  # in the header as well
    header = read_header(bytes(frame))
    message = decode_request(3, 12, bytes(frame), header.body)
    assert [t.name for t in message.topics] == ["t"]


def test_a_header_with_many_tagged_fields_is_refused() -> None:
    """The header is read on the event loop; a frame of 500 KB would stop all clients for half a second."""
    frame = bytearray(sound_frame(3, 12))
    fields = b"".join(bytes([number, 0]) for number in range(1, 121))
    frame[13:14] = bytes([120]) + fields
    assert read_header(bytes(frame)).body == 14 + len(fields)
    frame[13 : 14 + len(fields)] = b"\x80\x08" + b"\1\0" * 1024
    with pytest.raises(MalformedFrame):
        read_header(bytes(frame))


def test_bytes_after_the_message_are_ignored() -> None:
    """librdkafka 2.16 sends three extra bytes in a request for all topics."""
    assert decode_request(3, 13, bytes.fromhex("00000000010000"), 0).topics is None


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\0",
        b"\0\3\0\5\0\0\0\1",
        b"\0\3\0\5\0\0\0\1\xff\xfe",
        b"\0\3\0\5\0\0\0\1\0\x09abc",
        b"\0\3\0\5\0\0\0\1\0\1\xff",
    ],
)
def test_a_broken_header_is_refused(header: bytes) -> None:
    """The client id is truncated, negative, too long, or not UTF-8."""
    with pytest.raises(MalformedFrame):
        read_header(header)


@given(st.sampled_from(VERSIONS), st.binary(max_size=200), st.integers(0, 2**32))
@settings(
    max_examples=examples(600, 200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_arbitrary_and_mutated_bytes_never_raise_anything_else(
    which: tuple[int, int], noise: bytes, seed: int
) -> None:
    """The result is a message, MalformedFrame or NullArray, whatever the bytes are."""
    dice = random.Random(seed)
    frame = bytearray(sound_frame(*which))
    for _ in range(dice.randint(1, 4)):
        position = dice.randrange(len(frame))
        frame[position : position + dice.randint(0, 4)] = dice.choice(
            [
                noise[:4],
                b"\xff\xff\xff\xff",
                b"\x7f\xff\xff\xff",
                b"\x80",
                bytes([dice.randrange(256)]),
            ]
        )
    for data in (noise, bytes(frame)):
        try:
            header = read_header(data)
            decode_request(*which, data, header.body)
        except (MalformedFrame, NullArray):
            continue


@pytest.mark.parametrize("key", APIS_VERSIONS)
def test_every_response_can_be_written_with_nothing_but_defaults(key: int) -> None:
    """Fields that a handler does not set have their schema's default, in every version."""
    for version in APIS_VERSIONS[key]:
        frame = b"".join(answers.encode_pieces(key, version, 99, {}))
        assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4, version
        assert struct.unpack(">i", frame[4:8])[0] == 99, version


def test_a_response_leaves_out_what_its_version_does_not_know() -> None:
    """A single handler serves all versions."""
    values = {
        "error_code": 0,
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "m",
        "member_id": "m",
        "skip_assignment": True,
        "members": [],
    }
    sizes = [len(answers.encode_response(11, version, values)) for version in (0, 9)]
    assert sizes[0] < sizes[1]


def test_an_error_message_that_repeats_a_long_name_is_shortened() -> None:
    """A legacy string has at most 32,767 bytes; the answer to such a name was UNKNOWN_SERVER_ERROR."""
    message = "é" * 32_767
    for version in (0, 3):
        results = [{"name": "t", "error_code": 3, "error_message": message}]
        assert message[:1_000].encode() in answers.encode_response(
            37, version, {"results": results}
        )


def test_kios_writer_and_the_walk_agree_on_random_messages() -> None:
    """The messages have nested arrays, nulls, empty and long strings in a few complete shapes."""
    dice = random.Random(os.environ.get("SEED", 1))
    for key, version in [(1, 11), (1, 12), (8, 8), (11, 9), (19, 7), (14, 5)]:
        schema = load_request_schema(key, version)
        for _ in range(20):
            values = {
                f.name: [dict(v) for v in REQUESTS[key].get(f.name, ())] * dice.randint(0, 5)
                if isinstance(REQUESTS[key].get(f.name), list)
                else REQUESTS[key].get(f.name)
                for f in fields(schema)
                if f.name in REQUESTS[key]
            }
            out = io.BytesIO()
            entity_writer(schema)(out, answers._response_builder(schema)(values))
            data = out.getvalue()
            assert entity_shape(schema).skip(Walk(data), 0) == len(data)


def test_a_long_list_of_names_is_passed_over_in_few_steps() -> None:
    """A client may name 20,000 topics in a request: no call runs for each name."""
    names = tuple(f"name{number}" for number in range(1_000))
    frame = request_frame(68, 1, 1, {"group_id": "g", "subscribed_topic_names": names})[4:]
    body = wire.read_header(frame).body
    # The first request of its kind builds its reader, which must not be counted.
    assert wire.decode_request(68, 1, frame, body).subscribed_topic_names == names
    assert instructions(lambda: wire.decode_request(68, 1, frame, body)) < 30 * len(names)
