"""A request of the protocol: the choice of its version."""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping

import pytest
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.api import RequestHeader_v1, RequestHeader_v2

from faust_assigner.clients.kio_request import KioRequest

LIST_GROUPS = 16


@pytest.mark.parametrize(
    ("newest", "at_least", "known", "sent"),
    [(4, 0, (0, 5), 4), (4, 0, (0, 3), 3), (4, 0, (0, 0), 0), (4, 3, (0, 3), 3), (4, 4, (4, 9), 4)],
)
def test_the_highest_version_that_both_sides_know_is_sent(
    newest: int, at_least: int, known: tuple[int, int], sent: int
) -> None:
    """The version lies between ``at_least`` and ``newest``."""
    request = KioRequest(LIST_GROUPS, newest, at_least)
    assert sent == request.prepare({LIST_GROUPS: known}).API_VERSION


@pytest.mark.parametrize(
    ("newest", "at_least", "versions", "shown"),
    [
        (4, 4, {LIST_GROUPS: (0, 3)}, "0-3"),
        (4, 0, {LIST_GROUPS: (5, 6)}, "5-6"),
        (4, 0, {}, "0--1"),
    ],
)
def test_without_a_common_version_nothing_is_sent(
    newest: int, at_least: int, versions: Mapping[int, tuple[int, int]], shown: str
) -> None:
    """A server that does not list the API knows no version of the API."""
    with pytest.raises(IncompatibleBrokerVersion, match=f"API 16: .* {shown}$"):
        KioRequest(LIST_GROUPS, newest, at_least).prepare(versions)


@pytest.mark.parametrize(
    ("version", "request_header", "answer_header"),
    [(2, RequestHeader_v1, 4), (3, RequestHeader_v2, 5)],
)
def test_headers_carry_tags_from_the_first_flexible_version_on(
    version: int, request_header: type, answer_header: int
) -> None:
    """ListGroups is flexible from version 3: a byte of tags follows the correlation id."""
    request = KioRequest(LIST_GROUPS, version).prepare({LIST_GROUPS: (0, version)})
    header = request.build_request_header(7, "me")
    assert type(header) is request_header
    assert header.encode()[:12] == struct.pack(">hhih2s", LIST_GROUPS, version, 7, 2, b"me")
    data = io.BytesIO(struct.pack(">i", 7) + b"\0" * 8)
    assert request.parse_response_header(data).correlation_id == 7
    assert data.tell() == answer_header


def test_fields_that_a_version_lacks_are_left_out() -> None:
    """ListGroups has states from version 4 on."""
    requests = [KioRequest(LIST_GROUPS, n, states_filter=("Stable",)) for n in (3, 4)]
    sizes = [len(one.prepare({LIST_GROUPS: (0, 9)}).encode()) for one in requests]
    assert sizes[1] > sizes[0] + len("Stable")


def test_every_field_of_a_request_is_sent() -> None:
    """ListGroups 5 has two lists of filters, each as a compact array, and no tag."""
    request = KioRequest(LIST_GROUPS, 5, states_filter=("Stable",), types_filter=("classic", "x"))
    body = request.prepare({LIST_GROUPS: (0, 5)}).encode()
    assert body == b"\x02\x07Stable\x03\x08classic\x02x\x00"


def test_an_answer_is_read_from_the_rest_of_the_frame() -> None:
    """ListGroups 3 answers with a throttle time, an error code and a group."""
    request = KioRequest(LIST_GROUPS, 3).prepare({LIST_GROUPS: (0, 3)})
    body = b"\x00\x00\x00\x05\x00\x0e\x02\x02g\x08connect\x00\x00"
    frame = io.BytesIO(b"skipped" + body)
    frame.seek(7)
    answer = request.RESPONSE_TYPE.decode(frame)
    assert answer.error_code == 14
    assert [(one.group_id, one.protocol_type) for one in answer.groups] == [("g", "connect")]
