"""The host names that the closing of windows uses; see ``private_apis.py``."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.private_api import rows_of

_TEST = "tests/integration/app/tables/test_windows.py::test_"
_MOVES = _TEST + "a_window_is_closed_once_with_its_last_value_by_whoever_owns_it"
_FOUR = _TEST + "each_partition_closes_its_windows_by_its_own_time"
_GIVEN = _TEST + "who_gave_a_partition_away_closes_none_of_its_windows"
_KEPT = (
    "tests/unit/app/tables/test_window_closing.py::"
    "test_a_changelog_keeps_windows_longer_than_they_are_open"
)

WINDOWS: Final = (
    *rows_of(
        "faust.tables.base:Collection",
        (
            "_new_changelog_topic",
            "(self, *, retention=, compacting=, deleting=)",
            "repairs",
            "makes the topic of a table's changelog",
            _KEPT,
        ),
        ("_window_ranges", "(self, timestamp)", "repairs", "tells the time of a change", _FOUR),
        ("_del_old_keys", "async (self)", "repairs", "replaced: closes windows", _FOUR),
        ("_maybe_set_key_ttl", "(self, key, partition)", "repairs", "a window is open", _MOVES),
        ("_maybe_del_key_ttl", "(self, key, partition)", "repairs", "a row is deleted", _MOVES),
        ("_should_expire_keys", "(self)", "repairs", "whether windows are closed", _FOUR),
        (
            "_partition_timestamps",
            "set in __init__",
            "repairs",
            "the heap of each partition's open windows",
            _GIVEN,
        ),
        (
            "_partition_timestamp_keys",
            "set in __init__",
            "repairs",
            "the rows of each open window",
            _GIVEN,
        ),
        (
            "_partition_latest_timestamp",
            "set in __init__",
            "repairs",
            "the time source of relative_to_now()",
            _MOVES,
        ),
    ),
    *rows_of(
        "faust.tables.recovery:Recovery",
        (
            "revoke",
            "(self, tp)",
            "repairs",
            "overridden: drops a revoked partition's windows",
            _GIVEN,
        ),
    ),
    *rows_of(
        "faust.tables.manager:TableManager",
        ("on_commit", "(self, offsets)", "repairs", "overridden: time passes", _FOUR),
    ),
)
