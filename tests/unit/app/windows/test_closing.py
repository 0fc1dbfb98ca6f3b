"""What closing windows may delete."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.streams import _current_event
from faust.types import TP

from faust_assigner.app.windows.closing import Closing

KEY = ("a", (0.0, 9.9))


class Table(dict[Any, Any]):
    """Rows, and the places where the closing hooks in."""

    last_closed_window = 0.0
    _window_ranges = apply_changelog_batch = None


@pytest.mark.parametrize("is_assigned", [True, False])
def test_rows_of_a_partition_whose_source_was_revoked_meanwhile_stay(is_assigned: bool) -> None:
    """Its next owner closes these windows; a deletion of ours would take the rows from it."""
    source, table = TP("orders", 0), Table({KEY: 1})
    consumer = SimpleNamespace(assignment=lambda: {source} if is_assigned else set())
    closing = Closing(SimpleNamespace(consumer=consumer), table)
    event = SimpleNamespace(message=SimpleNamespace(tp=source))
    token = _current_event.set(lambda: event)  # type: ignore[arg-type]
    try:
        closing._delete([KEY])
    finally:
        _current_event.reset(token)
    assert (KEY not in table) == is_assigned
