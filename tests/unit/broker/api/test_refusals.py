"""The answer that refuses a request: an error element for each requested element."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker.answers import encode_response
from faust_assigner.broker.api import APIS
from faust_assigner.broker.api.refusals import refuse
from tests.support.asking import read

METADATA, OFFSET_FETCH = 3, 9
ERROR = ErrorCode.unknown_server_error


@pytest.mark.parametrize("topics", [None, ()])
def test_a_list_of_all_has_no_element(topics: Any) -> None:
    """Null stands for all topics, whose names are unknown here; an empty list has no topics."""
    assert refuse(METADATA, 12, SimpleNamespace(topics=topics), ERROR) == {"topics": []}


def test_a_null_list_within_an_element_leaves_the_element() -> None:
    """OffsetFetch requests all offsets of a group by a null list of topics."""
    asked = SimpleNamespace(groups=(SimpleNamespace(group_id="g", topics=None),))
    (group,) = refuse(OFFSET_FETCH, 8, asked, ERROR)["groups"]
    assert (group["group_id"], group["error_code"]) == ("g", ERROR)


def test_elements_of_two_lists_are_refused_in_one() -> None:
    """AlterUserScramCredentials has creations and deletions; its answer has one list of users."""
    asked = SimpleNamespace(
        upsertions=(SimpleNamespace(name="a"), SimpleNamespace(name="b")),
        deletions=(SimpleNamespace(name="c"),),
    )
    refused = refuse(51, 0, asked, ERROR)
    assert refused == {"results": [{"user": name, "error_code": ERROR} for name in "abc"]}


def test_a_request_that_cannot_be_read_is_refused_with_one_element() -> None:
    """The element has no name; an answer with its own error field has no element."""
    assert refuse(METADATA, 12, None, ERROR) == {"topics": [{"error_code": ERROR}]}
    assert refuse(11, 5, None, ERROR) == {"error_code": ERROR}


def test_each_partition_of_each_topic_is_refused_under_its_own_names() -> None:
    """Fetch has different field names in its request and in its answer."""
    topics = tuple(
        SimpleNamespace(topic=name, partitions=tuple(SimpleNamespace(partition=n) for n in numbers))
        for name, numbers in (("t", (3, 1)), ("u", ()))
    )
    assert refuse(1, 4, SimpleNamespace(topics=topics), ERROR) == {
        "responses": [
            {
                "topic": "t",
                "partitions": [{"partition_index": n, "error_code": ERROR} for n in (3, 1)],
                "error_code": ERROR,
            },
            {"topic": "u", "partitions": [], "error_code": ERROR},
        ]
    }


@pytest.mark.parametrize("key", sorted(APIS))
def test_a_refusal_of_every_api_has_its_error_in_the_bytes_of_every_version(key: int) -> None:
    """The error is at the top level, or in the only element for an unreadable request."""
    for version in range(APIS[key].low, APIS[key].high + 1):
        values = refuse(key, version, None, ErrorCode.request_timed_out)
        answer = read(key, version, encode_response(key, version, values))
        assert errors_in(answer) == {ErrorCode.request_timed_out}, version


def errors_in(answer: Any) -> set[ErrorCode]:
    """Return all error codes of an answer and its elements, without successes."""
    found = set()
    for item in dataclasses.fields(answer):
        value = getattr(answer, item.name)
        if isinstance(value, ErrorCode):
            found.add(value)
        elif isinstance(value, tuple):
            for one in value:
                found |= errors_in(one) if dataclasses.is_dataclass(one) else set()
    return found - {ErrorCode.none}
