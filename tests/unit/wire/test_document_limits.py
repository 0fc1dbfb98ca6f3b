"""The documents of workers that may be as long as an unpacked answer, and not longer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire import worker_status
from faust_assigner.wire.bounded import USER_DATA_BYTES
from faust_assigner.wire.documents import of_json, whole_number
from faust_assigner.wire.worker_status import (
    TableStatus,
    decode_peers,
    decode_rounds,
    decode_status,
)


@pytest.mark.parametrize("decode", [decode_status, decode_peers, decode_rounds])
@pytest.mark.parametrize(("more", "is_refused"), [(-1, False), (0, False), (1, True)])
def test_a_document_of_the_limit_is_read(
    monkeypatch: pytest.MonkeyPatch, decode: Callable[[bytes], Any], more: int, is_refused: bool
) -> None:
    """The limit is longer than that of a member's metadata."""
    read: list[Any] = []
    monkeypatch.setattr(worker_status, "of_json", lambda kind, fields: read.append(len(fields)))
    assert worker_status.UNPACKED_BYTES == 4 * 2**20
    limit = USER_DATA_BYTES + 9
    monkeypatch.setattr(worker_status, "UNPACKED_BYTES", limit)
    data = json.dumps({"a": "", "b": 1})
    data = data.replace('""', f'"{"x" * (limit + more - len(data))}"')
    assert len(data) == limit + more
    if is_refused:
        with pytest.raises(MetadataRefused, match=f"^{limit + 1} bytes, the limit is {limit}$"):
            decode(data.encode())
    else:
        decode(data.encode())
        assert read == [2]


def test_the_keys_of_a_document_are_cut_like_its_texts() -> None:
    """The sizes of a table have partition numbers as keys, which readers convert to numbers."""
    document = {"name": "t", "changelog": "c", "store": "", "bytes": {"9" * 5000: 1}}
    assert [*of_json(TableStatus, document).bytes] == ["9" * 4096]


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("-1", None), ("", None)],
)
def test_a_whole_number_has_less_than_19_digits(text: str, number: int | None) -> None:
    """Thousands of digits would be an error of Python."""
    assert whole_number(text) == number
