"""Refuse a whole request with one error, at the top level of the answer or in each element."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.call import Values


@dataclass(frozen=True, slots=True)
class Listing:
    """The fields of a request's elements, and how the answer repeats them.

    ``names`` maps a field of the answer to a field of the request; ``""`` stands for the element itself.
    """

    asked: str
    answered: str
    names: Mapping[str, str]
    inner: Listing | None = None
    more: Mapping[str, object] = field(default_factory=dict)
    error: str = "error_code"


def _numbered_listing(
    asked: str, answered: str, number: str, asked_number: str | None = None
) -> Listing:
    return Listing(asked, answered, {number: number if asked_number is None else asked_number})


_NAMED: Final = {"name": "name", "topic_id": "topic_id"}
_RESOURCE: Final = {"resource_type": "resource_type", "resource_name": "resource_name"}
_PARTITIONS: Final = Listing(
    "topics", "topics", _NAMED, _numbered_listing("partitions", "partitions", "partition_index")
)
_INDEXES: Final = Listing(
    "topics",
    "topics",
    _NAMED,
    _numbered_listing("partition_indexes", "partitions", "partition_index", ""),
)
_ANSWERS: Final[Mapping[int, tuple[Listing, ...]]] = {
    0: (
        Listing(
            "topic_data",
            "responses",
            _NAMED,
            _numbered_listing("partition_data", "partition_responses", "index"),
        ),
    ),
    1: (
        Listing(
            "topics",
            "responses",
            {"topic": "topic", "topic_id": "topic_id"},
            _numbered_listing("partitions", "partitions", "partition_index", "partition"),
        ),
    ),
    2: (_PARTITIONS,),
    3: (Listing("topics", "topics", _NAMED),),
    8: (_PARTITIONS,),
    9: (Listing("groups", "groups", {"group_id": "group_id"}), _INDEXES),
    10: (
        Listing("coordinator_keys", "coordinators", {"key": ""}, more={"node_id": -1, "port": -1}),
    ),
    15: (Listing("groups", "groups", {"group_id": ""}),),
    19: (Listing("topics", "topics", {"name": "name"}),),
    20: (Listing("topics", "responses", _NAMED), Listing("topic_names", "responses", {"name": ""})),
    21: (_PARTITIONS,),
    23: (
        Listing(
            "topics",
            "topics",
            {"topic": "topic"},
            _numbered_listing("partitions", "partitions", "partition"),
        ),
    ),
    24: (
        Listing(
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
            {"name": "name"},
            Listing(
                "partitions",
                "results_by_partition",
                {"partition_index": ""},
                error="partition_error_code",
            ),
        ),
    ),
    28: (_PARTITIONS,),
    30: (Listing("creations", "results", {}),),
    31: (Listing("filters", "filter_results", {}),),
    32: (Listing("resources", "results", _RESOURCE),),
    33: (Listing("resources", "responses", _RESOURCE),),
    35: (Listing("topics", "results", {}, more={"log_dir": "", "topics": ()}),),
    37: (Listing("topics", "results", {"name": "name"}),),
    42: (Listing("groups_names", "results", {"group_id": ""}),),
    43: (
        Listing(
            "topic_partitions",
            "replica_election_results",
            {"topic": "topic"},
            _numbered_listing("partitions", "partition_result", "partition_id", ""),
        ),
    ),
    44: (Listing("resources", "responses", _RESOURCE),),
    45: (
        Listing(
            "topics",
            "responses",
            _NAMED,
            _numbered_listing("partitions", "partitions", "partition_index"),
        ),
    ),
    50: (Listing("users", "results", {}),),  # Kafka omits the names, too
    47: (_PARTITIONS,),
    49: (
        Listing(
            "entries",
            "entries",
            {},
            Listing(
                "entity", "entity", {"entity_type": "entity_type", "entity_name": "entity_name"}
            ),
        ),
    ),
    51: (
        Listing("upsertions", "results", {"user": "name"}),
        Listing("deletions", "results", {"user": "name"}),
    ),
    61: (_INDEXES,),
    65: (Listing("transactional_ids", "transaction_states", {"transactional_id": ""}),),
    69: (Listing("group_ids", "groups", {"group_id": ""}),),
    75: (Listing("topics", "topics", {"name": "name"}),),
}


def refuse(api_key: int, version: int, request: Any, error: ErrorCode) -> Values:
    """Return the answer that refuses ``request``; lists have one element if it is unreadable (None)."""
    answer = {f.name for f in fields(load_response_schema(api_key, version))}
    if "error_code" in answer:
        return {"error_code": error}
    return refuse_elements(api_key, version, request, error)


def refuse_elements(
    api_key: int, version: int, request: Any, error: ErrorCode
) -> dict[str, list[Values]]:
    """Return the answer's lists, with the error for each element of ``request``."""
    answer = {f.name for f in fields(load_response_schema(api_key, version))}
    found: dict[str, list[Values]] = {}
    for listing in _ANSWERS.get(api_key, ()):
        if listing.answered in answer and (request is None or hasattr(request, listing.asked)):
            found.setdefault(listing.answered, []).extend(_element_values(listing, request, error))
    return found


def _element_values(listing: Listing, parent: object, error: ErrorCode) -> Sequence[Values]:
    asked: Iterable[object] = (
        (None,) if parent is None else getattr(parent, listing.asked, None) or ()
    )
    elements = []
    for item in asked:
        values = {name: _field_value(item, source) for name, source in listing.names.items()}
        inner = (
            {}
            if listing.inner is None
            else {listing.inner.answered: _element_values(listing.inner, item, error)}
        )
        elements.append(
            {k: v for k, v in values.items() if v is not None}
            | inner
            | {listing.error: error}
            | dict(listing.more)
        )
    return elements


def _field_value(item: object, source: str) -> Any:
    if item is None:
        return None
    return getattr(item, source, None) if source else item
