"""A worker's document as strangers may send it: each value is of its field's type, or it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire.worker_status import decode_status

TABLE = {"name": "t", "changelog": "c", "store": "rocksdb"}
OF_ALL_TYPES: tuple[Any, ...] = ("x", 1, 1.5, True, None, [], {})


def decoded(**fields: Any) -> Any:
    """As it comes back."""
    return decode_status(json.dumps({"app": "shop", **fields}).encode())


@pytest.mark.parametrize(
    ("field", "read"),
    [
        ("host", {"x"}),
        ("instance_id", {"x", None}),
        ("pid", {1}),
        ("round_age_s", {1, 1.5, None}),
        ("is_leader", {True}),
    ],
)
def test_a_field_takes_values_of_its_type_alone(field: str, read: set[Any]) -> None:
    """In JSON true is no number, and 1.5 no whole one."""
    taken = []
    for value in OF_ALL_TYPES:
        try:
            taken.append(getattr(decoded(**{field: value}), field))
        except MetadataRefused:
            continue
    assert {(type(one), one) for one in taken} == {
        (float if field == "round_age_s" and one is not None else type(one), one) for one in read
    }


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" * 400, "-" + "1" * 400, str(1 << 63)])
@pytest.mark.parametrize("field", ["round_age_s", "pid"])
def test_a_number_that_nobody_means_is_refused(field: str, number: str) -> None:
    """No seconds and no bytes need more than 63 bits."""
    with pytest.raises(MetadataRefused):
        decode_status(f'{{"app": "shop", "{field}": {number}}}'.encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"not_ready": "recovering"},
        {"not_ready": [1]},
        {"actives": [["orders", 1]]},
        {"actives": {"orders": 1}},
        {"tables": [{**TABLE, "expires_s": "long"}]},
        {"tables": [TABLE, 1]},
        {"tables": [{"name": "t"}]},
        {"counters": {"rounds": 1.5}},
    ],
)
def test_what_stands_within_lists_and_objects_is_read_as_closely(fields: dict[str, Any]) -> None:
    """Down to each entry."""
    with pytest.raises(MetadataRefused):
        decoded(**fields)


def test_texts_are_short_and_printable() -> None:
    """They are shown on terminals."""
    found = decoded(host="a\x1b[2Jb", url="u" * 5_000, settings={"k\n": "v\r"})
    assert (found.host, len(found.url)) == ("a?[2Jb", 4_096)
    assert found.settings == {"k?": "v?"}
