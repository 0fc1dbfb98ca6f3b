"""The host names that requests for keys use; see ``private_apis.py``."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.private_api import PrivateApi, rows_of

_ROUTING = "tests/integration/app/queries/test_routing.py::test_"
_PLACED = _ROUTING + "a_key_is_placed_as_the_streams_have_it"
_DEAD = _ROUTING + "a_dead_owner_is_a_503_with_the_time_to_ask_again"
_STANDS_IN = _ROUTING + "a_dead_owner_is_stood_in_for_by_the_copy_here"
_ROW = _ROUTING + "a_row_comes_from_the_partition_of_its_key"
_ONLY = _ROUTING + "from_a_copy_only_rows_of_the_key_are_read"
_GOES_ON = (
    "tests/integration/app/queries/test_reads.py::"
    "test_reads_go_on_from_copies_when_a_worker_is_killed_and_are_its_heirs_then"
)

READS: Final[tuple[PrivateApi, ...]] = (
    *rows_of(
        "faust.app.router:Router",
        (
            "route_req",
            "async (self, table_name, key, web, request)",
            "reads",
            "overridden: asks the workers that can answer, or reports that no worker can",
            _DEAD,
        ),
        (
            "route_topic_req",
            "async (self, topic, key, web, request)",
            "reads",
            "overridden: a dead worker is a 503",
            _ROUTING + "a_topics_reader_that_is_dead_is_a_503",
        ),
        ("_get_table", "(self, name)", "reads", "the table that is asked for", _STANDS_IN),
        ("_get_table_topic", "(cls, table)", "reads", "its changelog", _STANDS_IN),
        (
            "_get_serialized_key",
            "(cls, table, key)",
            "reads",
            "overridden: the key as the streams have it",
            _PLACED,
        ),
    ),
    *rows_of(
        "faust.app.base:App",
        (
            "table_route",
            "(self, table, shard_param=, *, query_param=, match_info=, exact_key=)",
            "reads",
            "wrapped: a view reads within the scope of its request",
            _ROW,
        ),
    ),
    *rows_of(
        "faust.stores.rocksdb:Store",
        (
            "_dbs_for_actives",
            "(self)",
            "reads repairs",
            "overridden: a copy is not read as a whole; databases come and go between two rows",
            _ONLY,
        ),
        ("offset_key", "class attribute", "reads repairs", "how far a copy has come", _GOES_ON),
    ),
    *rows_of(
        "faust.stores.base:SerializedStore",
        ("_decode_key", "(self, key)", "reads", "whether it is the key that was asked for", _ROW),
    ),
    *rows_of(
        "faust.tables.base:Collection",
        ("data", "property", "reads", "overridden: rows in memory do not count as a copy", _ONLY),
        ("window", "set in __init__", "reads", "whether keys are windows of keys", _ONLY),
    ),
    *rows_of(
        "faust.transport.consumer:ThreadDelegateConsumer",
        (
            "key_partition",
            "(self, topic, key, partition=)",
            "assignor",
            "asked for partitions to which the producer has not written yet",
            _GOES_ON,
        ),
    ),
)
