"""The host names that tables of sets use; see ``private_apis.py``."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.private_api import PrivateApi, rows_of

_SETS = "tests/unit/app/tables/test_sets.py::test_"
_AFTER = _SETS + "a_row_is_the_set_after_the_operation_whose_offset_it_has"
_REPLAYED = _SETS + "what_was_replayed_is_in_the_file_and_stays_in_the_set"
_KEPT = _SETS + "the_end_of_a_recovery_takes_nothing_from_sets_that_were_kept"

SETS: Final[tuple[PrivateApi, ...]] = (
    *rows_of(
        "faust.tables.sets:SetTable",
        (
            "_new_store",
            "(self)",
            "repairs",
            "wrapped: makes sets that agree with their rows",
            _AFTER,
        ),
    ),
    *rows_of(
        "faust.tables.sets:ChangeloggedSetManager",
        ("storage", "property", "repairs", "the store of the rows", _AFTER),
        ("ValueType", "class attribute", "repairs", "makes a set", _AFTER),
        (
            "send_changelog_event",
            "(self, key, operation, value)",
            "repairs",
            "overridden: the row is the set after the operation",
            _AFTER,
        ),
        (
            "apply_changelog_batch",
            "(self, batch, to_key, to_value)",
            "repairs",
            "overridden: rows are written, too",
            _REPLAYED,
        ),
        ("sync_from_storage", "(self)", "repairs", "overridden: rows are lists of elements", _KEPT),
    ),
    *rows_of(
        "faust.tables.base:Collection",
        (
            "_send_changelog",
            "(self, event, key, value, key_serializer=, value_serializer=)",
            "repairs",
            "sends an operation",
            _AFTER,
        ),
        ("_to_key", "(self, k)", "repairs", "a key as agents have it", _REPLAYED),
    ),
    *rows_of(
        "faust.stores.base:SerializedStore",
        ("_encode_key", "(self, key)", "repairs", "the key of a row", _REPLAYED),
        ("_encode_value", "(self, value)", "repairs", "a set as a row", _REPLAYED),
    ),
    *rows_of("faust.stores.rocksdb:Store", ("_iteritems", "(self)", "repairs", "all rows", _KEPT)),
)
