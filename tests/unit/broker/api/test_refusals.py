"""The answer that refuses a request: an element for each that was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker.api.refusals import refuse

METADATA, OFFSET_FETCH = 3, 9
ERROR = ErrorCode.unknown_server_error


@pytest.mark.parametrize("topics", [None, ()])
def test_a_list_of_all_has_no_element(topics: Any) -> None:
    """Null stands for all topics, whose names are not known here; an empty list has none."""
    assert refuse(METADATA, 12, SimpleNamespace(topics=topics), ERROR) == {"topics": []}


def test_a_null_list_within_an_element_leaves_the_element() -> None:
    """OffsetFetch asks for all offsets of a group by a null list of its topics."""
    asked = SimpleNamespace(groups=(SimpleNamespace(group_id="g", topics=None),))
    (group,) = refuse(OFFSET_FETCH, 8, asked, ERROR)["groups"]
    assert (group["group_id"], group["error_code"]) == ("g", ERROR)
