"""The documents of workers that may be as long as an unpacked answer, and not longer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from faust_assigner.errors import MetadataRefused
from faust_assigner.wire import worker_status
from faust_assigner.wire.bounded import USER_DATA_BYTES
from faust_assigner.wire.worker_status import decode_peers, decode_rounds, decode_status


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
