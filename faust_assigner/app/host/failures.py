"""The host names that the repairs after failures use; see ``private_apis.py``.

The failures are unresponsive brokers, frozen workers, full disks, corrupt files and aborts.
"""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.private_api import PrivateApi, rows_of

_SILENT = (
    "tests/integration/app/recovery/test_silent_broker.py::"
    "test_a_broker_silent_in_a_recovery_leaves_a_worker_that_works"
)
_GOODBYE = (
    "tests/integration/app/recovery/test_silent_broker.py::"
    "test_sigterm_ends_a_worker_while_the_broker_is_silent"
)
_FULL = (
    "tests/integration/app/tables/test_files.py::test_a_worker_works_again_after_its_disk_was_full"
)
_ROOM = (
    "tests/integration/app/tables/test_files.py::"
    "test_a_worker_that_starts_on_a_full_disk_waits_for_room"
)
_CORRUPT = (
    "tests/integration/app/tables/test_files.py::"
    "test_a_corrupt_folder_is_set_aside_and_its_changelog_replayed"
)
_ENDS = (
    "tests/integration/app/transactions/test_whole_transactions.py::"
    "test_a_changelog_ends_where_the_broker_says"
)
_SPANS = (
    "tests/integration/app/recovery/test_replay_loop.py::"
    "test_the_spans_of_actives_and_standbys_are_finished_when_they_are_ready"
)
_PASSED = (
    "tests/integration/app/recovery/test_replay_loop.py::"
    "test_the_last_readable_record_is_never_passed_over"
)
_UNDECODED = (
    "tests/integration/app/recovery/test_replay_loop.py::"
    "test_records_that_do_not_decode_are_counted_named_and_kept"
)
_WATCHED = "tests/integration/app/membership/test_watchdog.py::test_what_has_ended_ends_the_worker"
_TOPICS = "tests/integration/app/test_topics.py::test_a_mismatch_of_partitions_ends_every_worker"
_LOADED = (
    "tests/integration/app/consumer/test_committed_offsets.py::"
    "test_a_group_that_is_being_loaded_has_not_committed_nothing"
)
_SEEK = (
    "tests/integration/app/membership/test_parting.py::test_committed_offsets_are_asked_for_at_once"
)
_LEAVES = (
    "tests/integration/app/membership/test_parting.py::"
    "test_a_worker_leaves_the_group_before_it_closes_its_tables"
)
_FORMER = (
    "tests/integration/app/membership/test_fence.py::"
    "test_changes_of_a_former_member_are_dropped_and_the_rest_is_sent"
)
_ANSWER = (
    "tests/integration/app/membership/test_fence.py::"
    "test_an_answer_counts_from_when_it_was_asked_for"
)
_ASKED_FOR = (
    "tests/integration/app/consumer/test_produced_topics.py::"
    "test_a_batch_outlives_the_first_send_to_an_unknown_topic"
)
_LEADERLESS = (
    "tests/integration/app/consumer/test_produced_topics.py::"
    "test_a_producer_without_a_leader_pauses_between_two_questions"
)
_UNSENT = (
    "tests/integration/app/consumer/test_waits.py::"
    "test_the_log_names_topics_whose_batches_were_not_delivered"
)
_LOOKED = (
    "tests/integration/app/membership/test_fence.py::"
    "test_a_request_that_waited_for_its_connection_is_looked_at_again"
)
_FROZEN = (
    "tests/integration/app/membership/test_fence.py::"
    "test_a_worker_frozen_for_longer_than_its_session_spoils_no_row"
)
_MISSED = (
    "tests/integration/app/membership/test_fence.py::"
    "test_a_record_whose_change_did_not_arrive_is_not_committed"
)
_OVERLAID = (
    "tests/integration/app/tables/test_sigkill.py::"
    "test_at_least_once_a_file_is_its_changelog_up_to_its_offset"
)
_OVER = "tests/unit/app/tables/test_store.py::test_"
_RESET = _OVER + "a_table_that_is_reset_has_no_rows"
_STOPPED = _OVER + "what_is_acknowledged_is_written_before_a_store_stops"
_FULL_OVERLAY = _OVER + "a_record_waits_while_too_many_changes_do"

FAILURES: Final[tuple[PrivateApi, ...]] = (
    *rows_of(
        "faust.tables.recovery:Recovery",
        (
            "_slurp_changelogs",
            "class attribute",
            "repairs",
            "overridden: the end is decided by the loop that applies records",
            _PASSED,
        ),
        (
            "_restart_recovery",
            "class attribute",
            "repairs",
            "the watchdog sees that it runs",
            _WATCHED,
        ),
        (
            "_set_recovery_started",
            "(self)",
            "repairs",
            "overridden: each recovery decides its end anew",
            _PASSED,
        ),
        (
            "_resume_streams",
            "async (self, generation_id=)",
            "repairs",
            "overridden: notes which generation is recovered, without tables",
            _WATCHED,
        ),
        (
            "_add",
            "(self, table, tp, offsets)",
            "repairs",
            "overridden: a database that does not open now is opened later",
            _ROOM,
        ),
        (
            "_recovery_started_at",
            "set in _set_recovery_started",
            "repairs",
            "tells one recovery from the next",
            _PASSED,
        ),
        ("_last_flush_at", "set in flush_buffers", "repairs", "for stock's warning", _FULL),
        (
            "_last_active_event_processed_at",
            "set in _set_recovery_ended",
            "repairs",
            "for stock's estimate",
            _PASSED,
        ),
        ("_processing_times", "set in __init__", "repairs", "for stock's estimate", _PASSED),
        (
            "_active_events_received_at",
            "set in __init__",
            "repairs",
            "for stock's warning",
            _PASSED,
        ),
        (
            "_standby_events_received_at",
            "set in __init__",
            "repairs",
            "for stock's warning",
            _PASSED,
        ),
        ("_actives_span", "class attribute", "repairs", "tagged when actives are ready", _SPANS),
        ("_recovery_span", "class attribute", "repairs", "the parent of both spans", _SPANS),
        (
            "_standbys_span",
            "class attribute",
            "repairs",
            "finished when standbys are ready",
            _SPANS,
        ),
        ("standby_remaining_total", "(self)", "repairs", "whether standbys lag", _PASSED),
    ),
    *rows_of(
        "faust.tables.manager:TableManager",
        (
            "add",
            "(self, table)",
            "repairs",
            "overridden: the table's store is told to be careful",
            _CORRUPT,
        ),
        (
            "on_start",
            "async (self)",
            "repairs",
            "overridden: a topic that is a pattern is an error",
            _TOPICS,
        ),
        (
            "_update_channels",
            "async (self)",
            "repairs",
            "overridden: records that do not decode are logged",
            _UNDECODED,
        ),
        ("_channels", "set in __init__", "repairs", "the channels of changelogs", _UNDECODED),
    ),
    *rows_of(
        "faust.stores.rocksdb:Store",
        (
            "_open_for_partition",
            "(self, partition)",
            "repairs",
            "overridden: a corrupt folder is set aside",
            _CORRUPT,
        ),
        (
            "_try_open_db_for_partition",
            "async (self, partition, max_retries=, retry_delay=, generation_id=)",
            "repairs",
            "overridden: the recovery waits, the group does not",
            _ROOM,
        ),
        ("_get", "(self, key)", "repairs", "overridden: a failed read is reported", _FULL),
        (
            "_set",
            "(self, key, value)",
            "repairs",
            "overridden: a failed write stops the streams",
            _FULL,
        ),
        ("_del", "(self, key)", "repairs", "overridden: a failed write stops the streams", _FULL),
        ("_contains", "(self, key)", "repairs", "overridden: a failed read is reported", _FULL),
        (
            "set_persisted_offset",
            "(self, tp, offset)",
            "repairs",
            "overridden: none is remembered past a failed write",
            _FULL,
        ),
        ("_key_index", "set in __init__", "repairs", "where a key was seen last", _OVERLAID),
        (
            "_visible_keys",
            "(self, db)",
            "repairs",
            "overridden: changes that wait for their changelog are visible",
            _OVERLAID,
        ),
        (
            "_visible_items",
            "(self, db)",
            "repairs",
            "overridden: changes that wait for their changelog are visible",
            _OVERLAID,
        ),
        (
            "apply_changelog_batch",
            "(self, batch, to_key, to_value)",
            "repairs",
            "overridden: rows and offset are written in one",
            _OVERLAID,
        ),
        (
            "reset_state",
            "(self)",
            "repairs",
            "overridden: waiting changes are dropped, too",
            _RESET,
        ),
        (
            "stop",
            "async (self)",
            "repairs",
            "overridden: acknowledged changes are written first",
            _STOPPED,
        ),
        (
            "revoke_partitions",
            "(self, table, tps)",
            "repairs",
            "overridden: no garbage is collected for each table at each rebalance",
            _CORRUPT,
        ),
    ),
    *rows_of(
        "faust.tables.base:Collection",
        (
            "_verify_source_topic_partitions",
            "(self, source_topic)",
            "repairs",
            "wrapped: a mismatch ends the worker",
            _TOPICS,
        ),
        ("_new_store_by_url", "(self, url)", "repairs", "wrapped: makes a careful store", _CORRUPT),
        (
            "send_changelog",
            "(self, partition, key, value, key_serializer=, value_serializer=)",
            "repairs",
            "wrapped: the record is the change of a row",
            _OVERLAID,
        ),
        (
            "_on_changelog_sent",
            "(self, fut)",
            "repairs",
            "replaced: the change lands with its offset",
            _OVERLAID,
        ),
    ),
    *rows_of(
        "faust.transport.drivers.aiokafka:Consumer",
        (
            "force_commit",
            "async (self, topics=, start_new_transaction=)",
            "repairs",
            "overridden: the last one has a few seconds",
            _GOODBYE,
        ),
        (
            "wait_empty",
            "async (self)",
            "repairs",
            "overridden: no stream is waited for that waits for a silent broker",
            _GOODBYE,
        ),
        (
            "highwaters",
            "async (self, *partitions)",
            "repairs follow_up",
            "overridden: the broker is asked under exactly_once, too",
            _ENDS,
        ),
        (
            "perform_seek",
            "async (self)",
            "repairs",
            "overridden: asked again while the broker is silent",
            _SILENT,
        ),
        (
            "callback",
            "set in __init__",
            "repairs",
            "wrapped: a record waits while too many changes do",
            _FULL_OVERLAY,
        ),
        ("_is_changelog_tp", "(self, tp)", "repairs", "those of changelogs do not", _FULL_OVERLAY),
        (
            "_commit",
            "async (self, offsets)",
            "repairs",
            "overridden: an offset is committed only after its table changes have arrived",
            _MISSED,
        ),
    ),
    *rows_of(
        "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread",
        ("_ensure_consumer", "(self)", "repairs", "the AIOKafkaConsumer", _SEEK),
        (
            "seek_to_committed",
            "async (self)",
            "repairs",
            "replaced: all offsets are asked for at once",
            _SEEK,
        ),
        (
            "on_thread_stop",
            "async (self)",
            "repairs",
            "replaced: a silent broker is left in time",
            _GOODBYE,
        ),
    ),
    *rows_of(
        "faust.transport.drivers.aiokafka:Producer",
        ("flush", "async (self)", "repairs", "replaced: the last one has a few seconds", _GOODBYE),
        ("on_stop", "async (self)", "repairs", "replaced: has a few seconds", _GOODBYE),
        ("_producer", "set in on_start", "repairs", "the AIOKafkaProducer, to be closed", _GOODBYE),
        (
            "_new_producer",
            "(self, transactional_id=)",
            "repairs",
            "wrapped: the created client requests all topics to which it has sent",
            _ASKED_FOR,
        ),
    ),
    *rows_of(
        "faust.transport.drivers.aiokafka:ThreadedProducer",
        (
            "_new_producer",
            "(self, transactional_id=)",
            "repairs",
            "wrapped: the created client requests all topics to which it has sent",
            _ASKED_FOR,
        ),
    ),
    *rows_of(
        "faust.transport.producer:Producer",
        (
            "threaded_producer",
            "class attribute",
            "repairs",
            "the producer in a thread of its own, if there is one",
            _ASKED_FOR,
        ),
    ),
    *rows_of(
        "faust.app.base:App",
        ("_fetcher", "property", "repairs", "the watchdog sees that it runs", _WATCHED),
    ),
    *rows_of(
        "mode.services:Service",
        ("_futures", "set in __init__", "repairs", "which tasks of a service run", _WATCHED),
        (
            "wait_for_stopped",
            "async (self, *coros, timeout=)",
            "repairs",
            "overridden: notes when no recovery runs",
            _WATCHED,
        ),
    ),
    *rows_of(
        "aiokafka:AIOKafkaConsumer",
        ("_closed", "set in __init__", "repairs", "whether it has been stopped", _WATCHED),
        ("_fetcher", "set in __init__", "repairs", "whether it fetches", _WATCHED),
    ),
    *rows_of(
        "aiokafka.consumer.group_coordinator:GroupCoordinator",
        (
            "_coordination_task",
            "set in __init__",
            "repairs",
            "whether the membership continues",
            _WATCHED,
        ),
        (
            "_pending_exception",
            "set in __init__",
            "repairs",
            "the error that holds it up until it is asked for",
            _WATCHED,
        ),
        (
            "fetch_committed_offsets",
            "async (self, partitions)",
            "repairs",
            "all committed offsets in one request",
            _SEEK,
        ),
        (
            "_do_fetch_commit_offsets",
            "async (self, partitions)",
            "repairs",
            "replaced: while a group is loading, missing offsets do not count as uncommitted",
            _LOADED,
        ),
        ("coordinator_dead", "(self)", "repairs", "where it is another's", _LOADED),
        ("close", "async (self)", "repairs", "leaves the group before tables are closed", _LEAVES),
        (
            "_do_heartbeat",
            "async (self)",
            "repairs",
            "wrapped: an answer tells that this is a member",
            _ANSWER,
        ),
    ),
    *rows_of(
        "aiokafka:AIOKafkaProducer",
        (
            "_message_accumulator",
            "set in __init__",
            "repairs",
            "the batches that were not delivered, named when a flush takes long",
            _UNSENT,
        ),
        (
            "_sender",
            "set in __init__",
            "repairs",
            "the last stage that has table changes before the broker",
            _FROZEN,
        ),
    ),
    *rows_of(
        "aiokafka.producer.sender:Sender",
        (
            "_send_produce_req",
            "async (self, node_id, batches)",
            "repairs",
            "wrapped: a worker without membership sends no changes",
            _FORMER,
        ),
        ("_in_flight", "set in __init__", "repairs", "nodes that are sent to", _FORMER),
        ("_muted_partitions", "set in __init__", "repairs", "partitions that are sent to", _FORMER),
        ("_txn_manager", "set in __init__", "repairs", "whether it counts sent messages", _FROZEN),
    ),
    *rows_of(
        "aiokafka.client:AIOKafkaClient",
        (
            "ready",
            "async (self, node_id, *, group=)",
            "repairs",
            "connects; a client that is ready writes at once",
            _LOOKED,
        ),
        (
            "_wait_on_metadata",
            "async (self, topic)",
            "repairs",
            "wrapped: notes each topic that is sent to",
            _ASKED_FOR,
        ),
        ("_topics", "set in __init__", "repairs", "the topics to ask for", _ASKED_FOR),
        (
            "_metadata_update",
            "async (self, cluster_metadata, topics)",
            "repairs",
            "wrapped: pauses between two questions",
            _LEADERLESS,
        ),
        ("_retry_backoff", "set in __init__", "repairs", "how long it pauses", _LEADERLESS),
    ),
    *rows_of(
        "aiokafka.protocol.produce:ProduceRequest",
        ("_topics", "set in __init__", "repairs", "whether it carries changes", _LOOKED),
    ),
    *rows_of(
        "aiokafka.producer.message_accumulator:MessageAccumulator",
        ("_batches", "set in __init__", "repairs", "batches that wait to be sent", _UNSENT),
        ("_pending_batches", "set in __init__", "repairs", "batches without an answer", _UNSENT),
    ),
    *rows_of(
        "aiokafka.producer.message_accumulator:MessageBatch",
        ("tp", "property", "repairs", "its partition, named when a flush takes long", _UNSENT),
        ("_ctime", "set in __init__", "repairs", "when its first record was made", _FORMER),
        (
            "_msg_futures",
            "set in __init__",
            "repairs",
            "the tasks that wait for its records",
            _FORMER,
        ),
        ("failure", "(self, exception)", "repairs", "gives its records up", _FORMER),
    ),
    *rows_of(
        "aiokafka.consumer.fetcher:Fetcher",
        ("_fetch_task", "set in __init__", "repairs", "whether it fetches", _WATCHED),
    ),
)
