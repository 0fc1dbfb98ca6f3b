"""A request of the protocol: which version is sent."""

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
    [
        (4, 0, (0, 5), 4),
        (4, 0, (0, 3), 3),
        (4, 0, (0, 0), 0),
        (4, 3, (0, 3), 3),
        (4, 4, (4, 9), 4),
    ],
)
def test_the_highest_version_that_both_sides_know_is_sent(
    newest: int, at_least: int, known: tuple[int, int], sent: int
) -> None:
    """Of those from ``at_least`` to ``newest``."""
    request = KioRequest(LIST_GROUPS, newest, at_least)
    assert sent == request.prepare({LIST_GROUPS: known}).API_VERSION


@pytest.mark.parametrize(
    ("newest", "at_least", "versions"),
    [
        (4, 4, {LIST_GROUPS: (0, 3)}),
        (4, 0, {LIST_GROUPS: (5, 6)}),
        (4, 0, {}),
    ],
)
def test_without_a_common_version_nothing_is_sent(
    newest: int, at_least: int, versions: Mapping[int, tuple[int, int]]
) -> None:
    """A server that does not list the API at all knows no version of it."""
    with pytest.raises(IncompatibleBrokerVersion):
        KioRequest(LIST_GROUPS, newest, at_least).prepare(versions)


@pytest.mark.parametrize(
    ("version", "request_header", "answer_header"),
    [(2, RequestHeader_v1, 4), (3, RequestHeader_v2, 5)],
)
def test_headers_carry_tags_from_the_first_flexible_version_on(
    version: int, request_header: type, answer_header: int
) -> None:
    """ListGroups became flexible with version 3: a byte for the tags follows the correlation id."""
    request = KioRequest(LIST_GROUPS, version).prepare({LIST_GROUPS: (0, version)})
    assert type(request.build_request_header(7, "me")) is request_header
    data = io.BytesIO(struct.pack(">i", 7) + b"\0" * 8)
    assert request.parse_response_header(data).correlation_id == 7
    assert data.tell() == answer_header


def test_fields_that_a_version_lacks_are_left_out() -> None:
    """ListGroups knows states from version 4 on."""
    requests = [KioRequest(LIST_GROUPS, n, states_filter=("Stable",)) for n in (3, 4)]
    sizes = [len(one.prepare({LIST_GROUPS: (0, 9)}).encode()) for one in requests]
    assert sizes[1] > sizes[0] + len("Stable")
