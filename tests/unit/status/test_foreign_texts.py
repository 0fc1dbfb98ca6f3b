"""Texts from other machines in a status: topics of a similar app, wrong URLs, unprintable errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

from faust_assigner.status import described
from faust_assigner.status.build import changelogs_of
from faust_assigner.status.described import STRANGER, decode_group
from faust_assigner.status.evidence import Evidence
from faust_assigner.status.members import host_of, views_of
from tests.unit.status.test_looks import group, member


def test_the_changelogs_of_an_app_with_a_longer_name_are_not_its_own() -> None:
    """The names of Faust's changelogs begin with the app's id and a dash."""
    names = ("shop-t-changelog", "shopping-t-changelog", "shop-t", "x-shop-t-changelog", "orders")
    seen = Evidence(group=group(member("m", topics=frozenset(names))))
    assert changelogs_of(seen, views_of(seen)) == {"shop-t-changelog"}


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://w1:6066/x", "w1"),
        ("http://[::1]:6066", "::1"),
        ("http://[", ""),
        ("http://w1:port", ""),
        ("", ""),
        ("w1", ""),
    ],
)
def test_the_host_of_a_wrong_url_is_empty(url: str, host: str) -> None:
    """A member chooses its URL."""
    assert host_of(url) == host


@pytest.mark.parametrize("part", ["Metadata", "Assignment"])
def test_the_reason_of_unreadable_bytes_is_printable(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """The bytes may contain a terminal's control characters; other members are read."""

    def decode(given: bytes) -> Any:
        raise ValueError("bad \x1b[31mbytes\n")

    monkeypatch.setattr(described, f"ConsumerProtocolMember{part}", SimpleNamespace(decode=decode))
    one = SimpleNamespace(
        member_id="m\x1b1",
        client_id="c\n2",
        client_host="/10.0.0.3",
        group_instance_id="",
        member_metadata=b"abc",
        member_assignment=b"defgh",
    )
    found = decode_group(
        SimpleNamespace(
            group_id="g",
            group_state="Stable",
            protocol_type="consumer",
            protocol_data="range",
            members=[one],
        ),
        coordinator="k:9",
    )
    [shown] = found.members
    assert shown.problem.isprintable()
    assert shown.member_id.isprintable()
    assert shown.client_id.isprintable()
    assert (shown.address, shown.instance_id, shown.record_bytes) == (
        "10.0.0.3",
        "",
        3 + 5 + 6 + 150,
    )
    assert (found.protocol, found.protocol_type, found.coordinator) == ("range", "consumer", "k:9")


def test_a_plain_consumer_is_reported_as_such() -> None:
    """Earlier its assignment was reported as cut off zlib data."""
    one = SimpleNamespace(
        member_id="m1",
        client_id="c",
        client_host="/10.0.0.3",
        group_instance_id=None,
        member_metadata=ConsumerProtocolMemberMetadata(0, ["orders"], b"").encode(),
        member_assignment=ConsumerProtocolMemberAssignment(0, [("orders", [0])], b"").encode(),
    )
    described = SimpleNamespace(
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[one],
    )
    [shown] = decode_group(described).members
    assert (shown.kind, shown.topics, shown.given) == (STRANGER, {"orders"}, None)
    assert shown.problem == "it is not a Faust worker: it joined without user data"
