"""Checks the lengths of a request's lists before the lists are read.

A message of 4 MiB can contain two million empty entries. A loop over them would block this instance
for seconds, and all its consumers would lose their registrations. Each entry therefore counts as a
claim, even if the entry is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from faust_assigner.service.errors import MAX_CLAIMS, BadRequest, TooManyClaims
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

#: Maximum number of consumers that a dry run adds or leaves out.
MAX_SUPPOSED: Final = 1_000


def check_counts(
    name: str,
    *,
    flat: Sequence[Sequence[Any]] = (),
    numbered: Sequence[Sequence[Any]] = (),
    grouped: Sequence[Sequence[Any]] = (),
) -> None:
    """Raise TooManyClaims if the lists of the request ``name`` have too many entries.

    ``flat``: lists of entries without lists. ``numbered``: lists of entries with partitions.
    ``grouped``: lists of groups of topics. Cost: one step for each list, and, unless there are
    too many entries already, one step for each numbered or grouped entry.
    """
    claims = sum(map(len, (*flat, *numbered, *grouped)))
    if claims <= MAX_CLAIMS:
        claims += sum(len(one.partitions) for said in numbered for one in said)
        claims += sum(len(group.topics) for said in grouped for group in said)
    if claims > MAX_CLAIMS:
        raise TooManyClaims(name, claims)


def check_registrations(name: str, requests: Sequence[pb.RegisterRequest]) -> None:
    """Raise TooManyClaims if the registrations together have too many entries."""
    check_counts(
        name,
        flat=[said for one in requests for said in (one.topics, one.weights, one.replicas)],
        numbered=[
            said
            for one in requests
            for said in (one.former, one.replicas_by_topic, one.weights_by_topic)
        ],
        grouped=[one.copartitioned for one in requests],
    )


def check_plan(request: pb.PlanRequest) -> None:
    """Raise BadRequest or TooManyClaims if a dry run is too large."""
    supposed = len(request.extra) + len(request.without)
    if supposed > MAX_SUPPOSED:
        raise BadRequest(
            f"a dry run adds and leaves out at most {MAX_SUPPOSED} consumers, got {supposed}"
        )
    check_registrations("a dry run", request.extra)
