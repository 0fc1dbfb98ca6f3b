"""Each rule of the check of a request: lengths, counts, nulls, tagged fields and their limits."""

from __future__ import annotations

import datetime
import struct

import pytest

from faust_assigner.broker import answers, request_walk
from faust_assigner.broker.limits import MAX_STRING_BYTES
from faust_assigner.broker.request_walk import (
    MAX_SPAN_MS,
    LongRequest,
    MalformedFrame,
    NullArray,
    Shape,
    Walk,
    _array_rule,
    _fixed_size_rule,
    _length_prefixed_rule,
    _nullable_rule,
    read_varint,
    tag_section,
)
from faust_assigner.broker.wire import decode_request, milliseconds, read_header
from tests.support.clients.raw_client import request_frame

NAME, COMPACT_NAME = _length_prefixed_rule(2, compact=False), _length_prefixed_rule(2, compact=True)
BYTES = _length_prefixed_rule(4, compact=False)


def end(shape: Shape, data: bytes) -> int:
    """Return the position after the value at the start of ``data``."""
    return shape.skip(Walk(data), 0)


def is_refused(shape: Shape, data: bytes) -> bool:
    """Return whether the value at the start of ``data`` is malformed."""
    try:
        shape.skip(Walk(data), 0)
    except MalformedFrame:
        return True
    return False


def test_a_varint_has_at_most_five_bytes() -> None:
    """The varint also ends within the frame."""
    assert read_varint(b"\xff\x80\x80\x80\x80\x01", 1) == (1 << 28, 6)
    for data in (b"", b"\x80", b"\x80" * 5 + b"\x01"):
        with pytest.raises(MalformedFrame):
            read_varint(data, 0)


def test_bytes_may_be_longer_than_a_text() -> None:
    """Record batches and the metadata of members exceed the limit of texts."""
    size = MAX_STRING_BYTES + 1
    assert end(BYTES, struct.pack(">i", size) + bytes(size)) == 4 + size
    assert is_refused(BYTES, struct.pack(">i", size) + bytes(size - 1))


def test_a_text_is_null_or_has_up_to_32767_bytes() -> None:
    """-1 is null and no other negative length is one; both ways to write a length."""
    longest = b"x" * 32_767
    assert [end(NAME, data) for data in (b"\xff\xff", b"\0\0", b"\x7f\xff" + longest)] == [
        2, 2, 32_769
    ]  # fmt: skip
    assert [end(COMPACT_NAME, data) for data in (b"\0", b"\1", b"\x80\x80\2" + longest)] == [
        1, 1, 32_770
    ]  # fmt: skip
    assert [end(BYTES, data) for data in (b"\xff" * 4, b"\0\0\0\1x")] == [4, 5]
    assert is_refused(COMPACT_NAME, b"\x81\x80\2" + longest + b"x")
    for shape, width in ((NAME, 2), (BYTES, 4)):
        assert is_refused(shape, (-2).to_bytes(width, "big", signed=True) + bytes(9))


def test_a_number_ends_within_the_frame() -> None:
    """Its last byte may be the frame's last byte."""
    assert end(_fixed_size_rule(4), b"abcd") == 4
    assert is_refused(_fixed_size_rule(4), b"abc")


def test_a_text_is_null_or_has_a_length_within_the_frame_and_within_its_limit() -> None:
    """Only -1 is null; a value of bytes may be longer than a text."""
    assert end(NAME, b"\xff\xff") == 2
    assert end(NAME, b"\0\0") == 2
    assert end(NAME, b"\0\2ab") == 4
    assert is_refused(NAME, b"\0\3ab")
    assert is_refused(NAME, b"\xff\xfe")
    assert is_refused(NAME, b"\0")
    assert end(COMPACT_NAME, b"\0") == end(COMPACT_NAME, b"\1") == 1
    assert end(COMPACT_NAME, b"\3ab") == 3
    assert is_refused(COMPACT_NAME, b"\4ab")
    longest = MAX_STRING_BYTES
    assert end(COMPACT_NAME, b"\x80\x80\x02" + b"a" * longest) == longest + 3
    assert is_refused(COMPACT_NAME, b"\x81\x80\x02" + b"a" * (longest + 1))
    assert end(BYTES, struct.pack(">i", longest + 1) + b"a" * (longest + 1)) == longest + 5
    assert is_refused(BYTES, struct.pack(">i", -2))


def test_many_short_texts_end_where_each_of_them_ends() -> None:
    """Null, empty and long texts are included; the last text ends within the frame."""
    assert COMPACT_NAME.skip_many is not None
    parts = (b"\3ab", b"\0", b"\1", b"\x81\x01" + b"x" * 128, b"\2c")
    data = b"".join(parts)
    assert COMPACT_NAME.skip_many(Walk(data), 0, len(parts)) == len(data)
    assert COMPACT_NAME.skip_many(Walk(b"\0\2a"), 0, 2) == 3
    for cut in range(1, len(data)):
        with pytest.raises(MalformedFrame):
            COMPACT_NAME.skip_many(Walk(data[:cut]), 0, len(parts))


@pytest.mark.parametrize("compact", [True, False])
def test_an_array_is_null_only_where_it_may_be(*, compact: bool) -> None:
    """Any other negative count is malformed."""
    null = b"\0" if compact else struct.pack(">i", -1)
    may = _array_rule(_fixed_size_rule(2), compact=compact, name="topics", may_be_null=True)
    must = _array_rule(_fixed_size_rule(2), compact=compact, name="topics", may_be_null=False)
    assert end(may, null) == len(null)
    with pytest.raises(NullArray, match="topics must not be null"):
        must.skip(Walk(null), 0)
    empty, two = (b"\1", b"\3") if compact else (struct.pack(">i", 0), struct.pack(">i", 2))
    assert end(must, empty) == len(empty)
    assert end(must, two + b"abcd") == len(two) + 4
    assert is_refused(must, two + b"abc")
    if not compact:
        assert is_refused(may, struct.pack(">i", -2))
        assert is_refused(may, b"\0\0\0")


def test_an_array_of_texts_ends_behind_its_last_text() -> None:
    """A count beyond the remaining bytes is malformed before any element is read."""
    names = _array_rule(NAME, compact=False, name="names", may_be_null=False)
    assert end(names, struct.pack(">i", 2) + b"\0\1a\0\0") == 9
    with pytest.raises(MalformedFrame, match="claims 3 elements with 5 bytes left"):
        names.skip(Walk(struct.pack(">i", 3) + b"\0\1a\0\0"), 0)


def test_elements_of_all_arrays_of_a_request_count_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first limit moves the decoding to a thread, the second refuses the request."""
    walk = Walk(bytes(100), limit=5)
    walk.count(3, 1, 0)
    walk.count(2, 1, 0)
    with pytest.raises(LongRequest):
        walk.count(1, 1, 0)
    monkeypatch.setattr(request_walk, "MAX_ARRAY_ELEMENTS", 5)
    walk = Walk(bytes(100), limit=100)
    walk.count(5, 1, 0)
    with pytest.raises(MalformedFrame, match="claims 1 elements"):
        walk.count(1, 1, 0)


def test_an_array_needs_the_smallest_size_of_all_its_elements() -> None:
    """The check is exact to the last byte."""
    Walk(bytes(10)).count(3, 3, 1)
    with pytest.raises(MalformedFrame):
        Walk(bytes(10)).count(3, 3, 2)


def test_an_optional_struct_has_a_byte_before_it() -> None:
    """-1 is null."""
    shape = _nullable_rule(_fixed_size_rule(2))
    assert (end(shape, b"\xff"), end(shape, b"\1ab")) == (1, 3)
    assert is_refused(shape, b"")
    assert is_refused(shape, b"\1a")


def test_unknown_tagged_fields_are_cut_out_and_known_ones_stay() -> None:
    """A field has the size in its tag."""
    shape = tag_section({1: _fixed_size_rule(2)})
    walk = Walk(b"\3" + b"\1\2ab" + b"\5\3xyz" + b"\7\0" + b"rest")
    assert shape.skip(walk, 0) == 12
    assert walk.cuts == [(0, 1, b"\1"), (5, 10, b""), (10, 12, b"")]
    walk = Walk(b"\1\1\2ab")
    assert (shape.skip(walk, 0), walk.cuts) == (5, None)
    for wrong in (b"\1\1\3abc", b"\1\5\3ab", b"\3\5\0", b"\1\1\1a"):
        assert is_refused(shape, wrong), wrong


@pytest.mark.parametrize("repeated", [2, 130, 300])
def test_more_known_tagged_fields_than_tags_are_refused(repeated: int) -> None:
    """Beside an unknown field, 130 repetitions were misread, and 300 raised ValueError."""
    shape = tag_section({1: _fixed_size_rule(2)})
    count = two_bytes(repeated + 1)
    assert is_refused(shape, count + b"\1\2ab" * repeated + b"\7\0")


def two_bytes(value: int) -> bytes:
    """Return an unsigned varint of two bytes."""
    return bytes([value & 0x7F | 0x80, value >> 7])


def test_unknown_fields_inside_and_beside_a_known_tagged_struct_are_cut_out() -> None:
    """A later version of Kafka may add fields to Fetch and to its ReplicaState, which is a tagged field."""
    plain = request_frame(1, 15, 7, {"max_bytes": 7, "topics": []})[4:]
    header = read_header(plain)
    assert plain[-1] == 0
    state = struct.pack(">iq", 5, 9) + b"\1\x63\2ab"
    frame = plain[:-1] + b"\2" + b"\1" + bytes([len(state)]) + state + b"\x64\1z"
    message = decode_request(1, 15, frame, header.body)
    assert (message.replica_state.replica_id, message.replica_state.replica_epoch) == (5, 9)
    assert message.max_bytes == 7


@pytest.mark.parametrize(
    ("sent", "decoded"),
    [
        (-1, -1),
        (MAX_SPAN_MS, MAX_SPAN_MS),
        (MAX_SPAN_MS + 1, MAX_SPAN_MS),
        (2**63 - 1, MAX_SPAN_MS),
        (-MAX_SPAN_MS, -MAX_SPAN_MS),
        (-(2**63), -MAX_SPAN_MS),
    ],
)
def test_a_retention_beyond_the_decoders_range_is_cut_to_it(sent: int, decoded: int) -> None:
    """Kafka takes every retention; the fields after it keep their places."""
    values = {"group_id": "g", "member_id": "m", "topics": [{"name": "t", "partitions": ()}]}
    frame = request_frame(
        8, 2, 7, {**values, "retention_time": datetime.timedelta(milliseconds=7)}
    )[4:]
    seven, span = struct.pack(">q", 7), struct.pack(">q", sent)
    assert frame.count(seven) == 1
    header = read_header(frame)
    message = decode_request(8, 2, frame.replace(seven, span), header.body)
    assert milliseconds(message.retention_time) == decoded
    assert message.topics[0].name == "t"
    cut = frame[: frame.index(seven) + 7]
    with pytest.raises(MalformedFrame):
        decode_request(8, 2, cut, header.body)


def test_unknown_fields_are_cut_out_of_every_part_of_a_request() -> None:
    """Unknown fields are removed from each topic and from the request itself."""
    plain = request_frame(3, 12, 7, {"topics": [{"name": "a"}, {"name": "b"}]})[4:]
    header = read_header(plain)
    body = plain[header.body :]
    assert body.count(b"a\0") == body.count(b"b\0") == 1
    future = body.replace(b"a\0", b"a\1\5\1x").replace(b"b\0", b"b\1\6\2yz")[:-1] + b"\1\7\0"
    message = decode_request(3, 12, plain[: header.body] + future, header.body)
    assert [topic.name for topic in message.topics] == ["a", "b"]
    with pytest.raises(LongRequest):
        decode_request(3, 12, plain, header.body, limit=1)


def test_tagged_fields_count_as_elements() -> None:
    """A request with many tags is decoded in a thread; too many tags are refused immediately."""
    shape = tag_section({})
    for count, limit, error in ((3, 3, None), (3, 2, LongRequest), (4, 9, MalformedFrame)):
        walk = Walk(bytes([count]) + b"\5\0" * 3, limit)
        if error is None:
            assert shape.skip(walk, 0) == 7
        else:
            with pytest.raises(error):
                shape.skip(walk, 0)
        assert walk.elements == count


def test_a_client_id_may_be_null_and_ends_within_the_frame() -> None:
    """-1 is null; other negative lengths are malformed."""
    head = struct.pack(">hhi", 18, 0, 7)
    plain = read_header(head + b"\xff\xff")
    assert (plain.client_id, plain.body, plain.correlation_id) == ("", 10, 7)
    assert read_header(head + b"\0\2me").body == 12
    for wrong in (b"\xff\xfe", b"\0\3me"):
        with pytest.raises(MalformedFrame, match="client id"):
            read_header(head + wrong)


def test_a_time_span_of_days_is_counted_in_full_milliseconds() -> None:
    """A part of a millisecond does not count."""
    assert milliseconds(datetime.timedelta(days=2, milliseconds=3, microseconds=999)) == 172_800_003


# -- answers


def test_opaque_parts_of_an_answer_are_not_copied_and_written_once() -> None:
    """The size in front is the size of all pieces."""
    parts = (b"first batch", b"second batch")
    values = {
        "responses": [
            {"topic": "t", "partitions": [{"partition_index": 0, "records": answers.Chain(parts)}]}
        ]
    }
    pieces = answers.encode_pieces(1, 4, 7, values)
    whole = b"".join(pieces)
    assert struct.unpack_from(">ii", whole) == (len(whole) - 4, 7)
    assert all(any(piece is part for piece in pieces) for part in parts)
    assert whole.count(b"first batchsecond batch") == 1
    joined = {
        "responses": [
            {"topic": "t", "partitions": [{"partition_index": 0, "records": b"".join(parts)}]}
        ]
    }
    assert b"".join(answers.encode_pieces(1, 4, 7, joined)) == whole


def test_an_answer_is_long_by_its_elements_or_by_its_bytes_together() -> None:
    """Nested lists count; an answer at the limits is not long."""
    values = {"topics": [{"names": ["ab", "c"]}, {"names": ("d", b"e")}], "error": 0}
    assert not answers.is_long(values, 6, 5)
    assert answers.is_long(values, 5, 5)
    assert answers.is_long(values, 6, 4)
    assert answers.is_long({"records": bytes(9)}, 0, 8)
    assert not answers.is_long({"records": bytes(8), "names": ()}, 0, 8)
