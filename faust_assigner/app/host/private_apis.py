"""Each private or undocumented name of Faust, mode and aiokafka that the app's parts use.

``page.py`` writes docs/reference/host.md from this table. ``check.py`` checks the host against the
table before any part is installed. Each row names the test that fails if the meaning of the name
changes.
"""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.cooperation import COOPERATION
from faust_assigner.app.host.failures import FAILURES
from faust_assigner.app.host.members import MEMBERS
from faust_assigner.app.host.private_api import PrivateApi as PrivateApi
from faust_assigner.app.host.private_api import rows_of
from faust_assigner.app.host.reading import READS
from faust_assigner.app.host.sets import SETS
from faust_assigner.app.host.windows import WINDOWS

#: Distribution -> the first tested version, and the first untested version; as in setup.cfg.
VERSIONS: Final = {"faust-streaming": ("0.15.3", "0.16"), "aiokafka": ("0.14", "0.15")}

_LOST = "tests/integration/app/consumer/test_nothing_lost.py::test_"
_WHOLE = "tests/integration/app/transactions/test_whole_transactions.py::test_"
_WHOLE_BATCHES = "tests/integration/app/consumer/test_whole_batches.py::test_"
_RESTORE = "tests/unit/app/recovery/test_restoring.py::test_"
_SNAPSHOT = "tests/integration/snapshots/test_snapshot_restore.py::test_"
_METER = "tests/unit/app/ledger/test_recovery_meter.py::test_"
_FIXUP = "tests/unit/app/test_fixup.py::test_"
_ASSIGNOR = "tests/unit/app/test_assignor.py::test_"
_SAYS = "tests/unit/app/rebalance/test_what_members_say.py::test_"
_SPAN = "tests/unit/app/rebalance/test_whatever_fails.py::test_a_tracer_gets_a_span_like_stocks"
_SENSORS = "tests/unit/app/test_sensors.py::test_"
_GUARD = "tests/integration/app/membership/test_assignor_guard.py::test_the_group_goes_on"
_LEDGER = (
    "tests/integration/app/test_ledger_worker.py::test_workers_tell_decisions_recoveries_and_load"
)
_TOPIC = "tests/integration/app/test_weights_group.py::test_weights_reach_an_app_through_a_compacted_topic"
_LABELS = "tests/unit/app/test_labels.py::test_the_labels_of_a_repaired_app_are_the_stock_apps"
_POSITIONS = "tests/unit/app/rebalance/test_positions.py::test_"
_FOLLOW = "tests/unit/app/rebalance/test_follow_up.py::test_"
_ASKED = "tests/integration/app/test_stop_all.py::test_a_death_off_target_is_set_right_by_one_further_round"
_FINAL = _LOST + "the_final_commit_reaches_the_broker"
_BOOKS = _WHOLE + "a_commit_falls_between_two_records"
_OUTPUTS = _WHOLE + "outputs_are_in_the_transaction_that_commits_their_records"
_PAUSED = _LOST + "no_record_is_processed_before_its_table_is_restored"
_HEAD = _LOST + "the_head_of_the_first_batch_after_a_recovery_is_processed"
_PENDING = _LOST + "a_fetch_under_way_takes_no_records_of_paused_partitions"
_OVERTAKEN = _LOST + "a_recovery_overtaken_by_a_rebalance_starts_no_flow"
_UNREADABLE = _LOST + "recovery_ends_although_the_last_record_cannot_be_read"
_RESTORED = _RESTORE + "a_restored_offset_is_what_recovery_goes_on_from"
_REPLAYED = _SNAPSHOT + "a_replay_in_batches_equals_the_model"
_DECODED = "tests/unit/app/recovery/test_decoding.py::test_together_they_decode_as_one_by_one"
_EXCHANGED = _SNAPSHOT + "a_standby_far_behind_is_exchanged_for_a_snapshot"
_ABORTED = _WHOLE + "what_a_revocation_leaves_half_done_is_aborted"
_BATCHES = _WHOLE_BATCHES + "what_a_batch_sends_is_in_the_transaction_that_commits_its_records"
_IN_TIME = (
    "tests/integration/app/rebalance/test_incremental.py::test_"
    "a_batch_that_is_being_made_is_handed_out_when_its_partitions_go"
)
_OVERLAP = _WHOLE_BATCHES + "a_commit_comes_while_records_flow_that_overlap"
_ONE_LINE = _LOST + "one_line_of_settings_repairs_the_app"

_APP: Final = rows_of(
    "faust.app.base:App",
    (
        "_default_options",
        "set in __init__",
        "assignor",
        "keywords of faust.App that Faust does not know are kept there",
        _SAYS + "rack_and_capacity_come_from_keywords_and_environment",
    ),
    (
        "_config_source",
        "class attribute",
        "assignor",
        "the argument of app.config_from_object, which may contain our settings",
        _FIXUP + "settings_of_a_configuration_source_are_read",
    ),
    (
        "_load_settings_from_source",
        "(self, source, *, silent=)",
        "assignor",
        "the configuration source as a mapping",
        _FIXUP + "settings_of_a_configuration_source_are_read",
    ),
    (
        "_consumer",
        "class attribute",
        "assignor repairs driver_assignor metrics",
        "whether there is a consumer, without making one",
        _FIXUP + "too_late_is_said",
    ),
    (
        "_extra_services",
        "set in __init__",
        "follow_up",
        "services that start with the app",
        "tests/unit/app/rebalance/test_follow_up_service.py::test_it_is_installed_with_the_app",
    ),
    (
        "_new_consumer",
        "(self)",
        "repairs driver_assignor",
        "replaced, so that the consumer's class is ours",
        _ONE_LINE,
    ),
    (
        "_span_add_default_tags",
        "(self, span)",
        "assignor",
        "the span of an assignment looks like stock's",
        _SPAN,
    ),
    (
        "_start_span_from_rebalancing",
        "(self, name)",
        "repairs",
        "the span of a revocation looks like stock's",
        _FINAL,
    ),
    (
        "flow_control",
        "property",
        "repairs",
        "replaced: the new method clears only the records that were queued before",
        _HEAD,
    ),
    (
        "in_recovery",
        "class attribute",
        "repairs ledger",
        "sources before standbys only once tables are restored",
        _LOST + "a_standby_that_catches_up_does_not_stop_the_streams",
    ),
    (
        "rebalancing",
        "set in on_rebalance_end",
        "repairs ledger follow_up",
        "whether a rebalance is under way: no follow-up round is asked for meanwhile",
        _FOLLOW + "never_while_there_is_something_under_way",
    ),
    (
        "in_transaction",
        "property",
        "repairs",
        "whether exactly_once asks for transactions",
        _OUTPUTS,
    ),
    (
        "consumer_generation_id",
        "class attribute",
        "repairs",
        "records of a former generation are left out",
        _HEAD,
    ),
)

_CONSUMER: Final = rows_of(
    "faust.transport.consumer:Consumer",
    (
        "_acked",
        "set in __init__",
        "repairs",
        "acknowledged offsets that are not yet committed",
        _BOOKS,
    ),
    ("_acked_index", "set in __init__", "repairs", "the same, as sets", _BOOKS),
    ("_gap", "set in __init__", "repairs", "offsets that hold no record", _BOOKS),
    (
        "_read_offset",
        "set in __init__",
        "repairs",
        "forgotten after the final commit, not before it",
        _FINAL,
    ),
    (
        "_committed_offset",
        "set in __init__",
        "repairs ledger",
        "how far each partition is committed",
        _BOOKS,
    ),
    (
        "_unacked_messages",
        "set in __init__",
        "repairs metrics",
        "records that are half processed",
        _BOOKS,
    ),
    (
        "_active_partitions",
        "set in _reset_state",
        "repairs",
        "partitions that are fetched",
        _PENDING,
    ),
    (
        "_paused_partitions",
        "set in _reset_state",
        "repairs metrics",
        "partitions that wait for their recovery",
        _PAUSED,
    ),
    (
        "_buffered_partitions",
        "set in __init__",
        "repairs",
        "partitions that wait for room in a queue",
        _PAUSED,
    ),
    (
        "_on_partitions_revoked",
        "set in __init__",
        "repairs",
        "the app's callback, which stops streams and commits",
        _FINAL,
    ),
    (
        "_commit_tps",
        "async (self, tps, start_new_transaction)",
        "repairs",
        "overridden: a commit falls between two records",
        _BOOKS,
    ),
    (
        "_commit_offsets",
        "async (self, offsets, start_new_transaction=)",
        "repairs",
        "commits the offsets that were cut between two records",
        _BOOKS,
    ),
    (
        "_handle_attached",
        "async (self, commit_offsets)",
        "repairs",
        "sends the messages that are attached to committed offsets",
        _WHOLE + "changes_in_the_buffer_are_committed_with_their_records",
    ),
    (
        "_filter_committable_offsets",
        "(self, tps)",
        "repairs",
        "how far the books are free of holes",
        _BOOKS,
    ),
    (
        "_reset_state",
        "(self)",
        "repairs",
        "overridden: our events are made on the consumer's loop",
        _PAUSED,
    ),
    (
        "_wait_next_records",
        "async (self, timeout)",
        "repairs",
        "overridden: no second is slept when partitions resume",
        _LOST + "the_fetcher_does_not_oversleep_a_recovery",
    ),
    (
        "flow_active",
        "set in _reset_state",
        "repairs",
        "whether fetched records may be delivered",
        _OVERTAKEN,
    ),
    ("transactions", "set in __init__", "repairs", "the transaction manager", _OUTPUTS),
    (
        "on_partitions_revoked",
        "async (self, revoked)",
        "repairs",
        "overridden: the books are closed after the final commit",
        _FINAL,
    ),
    (
        "on_partitions_assigned",
        "async (self, assigned, generation_id=)",
        "repairs",
        "overridden: a generation begins with everything paused",
        _PAUSED,
    ),
    (
        "resume_flow",
        "(self)",
        "repairs",
        "overridden: no partition resumes between generations",
        _OVERTAKEN,
    ),
    ("stop_flow", "(self)", "repairs", "called when a generation begins", _PAUSED),
    (
        "resume_partitions",
        "(self, tps)",
        "repairs",
        "overridden: sources resume after the seek",
        _HEAD,
    ),
    (
        "on_buffer_drop",
        "(self, tp)",
        "repairs",
        "overridden: room in a queue resumes no paused partition",
        _PAUSED,
    ),
    (
        "topic_partitions",
        "(self, topic)",
        "repairs",
        "overridden: an unknown topic is not an empty one",
        _LOST + "a_changelog_the_cluster_has_not_told_of_yet_ends_no_agent",
    ),
    (
        "commit_and_end_transactions",
        "async (self)",
        "repairs",
        "overridden: the final commit waits for one under way",
        _LOST + "the_final_commit_follows_a_commit_under_way",
    ),
    (
        "maybe_wait_for_commit_to_finish",
        "async (self)",
        "repairs",
        "called before the final commit",
        _LOST + "the_final_commit_follows_a_commit_under_way",
    ),
)

_THREAD: Final = (
    *rows_of(
        "faust.transport.consumer:ThreadDelegateConsumer",
        (
            "_thread",
            "set in __init__",
            "assignor ledger follow_up",
            "the way to aiokafka's generation and member id",
            _SAYS + "generation_is_kafkas_where_the_consumer_knows_it",
        ),
        (
            "_new_consumer_thread",
            "(self)",
            "repairs driver_assignor",
            "overridden: a thread of our class",
            _PENDING,
        ),
        (
            "_getmany",
            "async (self, active_partitions, timeout)",
            "repairs",
            "overridden: batches are counted",
            _UNREADABLE,
        ),
    ),
    *rows_of(
        "faust.transport.consumer:ConsumerThread",
        ("consumer", "set in __init__", "repairs", "the consumer whose thread it is", _PENDING),
    ),
    *rows_of(
        "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread",
        (
            "_consumer",
            "set in on_start",
            "assignor ledger follow_up",
            "the AIOKafkaConsumer, once there is one",
            _LEDGER,
        ),
        (
            "_assignor",
            "set in _create_worker_consumer",
            "driver_assignor",
            "the assignor the thread tells of revocations",
            _FIXUP + "without_tables_and_standbys_ours_is_asked",
        ),
        (
            "_create_worker_consumer",
            "(self, transport)",
            "driver_assignor",
            "replaced: it is given the app's assignor",
            _FIXUP + "without_tables_and_standbys_ours_is_asked",
        ),
        (
            "Worker",
            "class attribute",
            "repairs",
            "overridden: a thread that ends with its process",
            "tests/unit/app/membership/test_shutdown.py::test_the_consumers_thread_is_of_that_kind",
        ),
        (
            "_fetch_records",
            "async (self, consumer, active_partitions, timeout=, max_records=)",
            "repairs",
            "replaced: records that arrive while the flow is stopped are put back",
            _PENDING,
        ),
    ),
    *rows_of(
        "faust.transport.consumer",
        ("ensure_TPset", "(tps)", "repairs", "partitions as Faust compares them", _PAUSED),
        (
            "CONSUMER_PARTITIONS_REVOKED",
            "class attribute",
            "repairs",
            "the state that is shown during a revocation",
            _FINAL,
        ),
    ),
    *rows_of(
        "faust.transport.drivers.aiokafka",
        (
            "server_list",
            "(urls, default_port)",
            "repairs weights",
            "the app's brokers as aiokafka takes them",
            _TOPIC,
        ),
        (
            "credentials_to_aiokafka_auth",
            "(credentials=, ssl_context=)",
            "repairs weights",
            "TLS and SASL as aiokafka takes them",
            _TOPIC,
        ),
    ),
    *rows_of(
        "faust.utils.tracing",
        (
            "traced_from_parent_span",
            "(parent_span=, callback=, **extra_context)",
            "repairs",
            "the span of a revocation looks like stock's",
            _FINAL,
        ),
    ),
    *rows_of(
        "faust.streams",
        ("current_event", "()", "repairs", "the record that is processed now", _OUTPUTS),
        (
            "_current_event",
            "class attribute",
            "repairs",
            "a batch is its agent's current event",
            _BATCHES,
        ),
    ),
    *rows_of(
        "faust.streams:Stream",
        (
            "_processors",
            "set in __init__",
            "repairs",
            "the first one holds new records back",
            _OVERLAP,
        ),
        ("_active_agens", "set in __init__", "repairs", "batches end with their stream", _BATCHES),
        (
            "_enable_passive",
            "(self, channel, *, declare=)",
            "repairs",
            "batches are read in the background",
            _BATCHES,
        ),
        (
            "enable_acks",
            "set in __init__",
            "repairs",
            "a batch acknowledges its own records",
            _BATCHES,
        ),
        ("add_processor", "(self, processor)", "repairs", "collects records for batches", _BATCHES),
        (
            "wait_for_stopped",
            "async (self, *coros, timeout=)",
            "repairs",
            "overridden: stock's batches are handed out in time",
            _IN_TIME,
        ),
        (
            "take",
            "(self, max_, within)",
            "repairs",
            "overridden: batches own the sent messages",
            _BATCHES,
        ),
        ("take_events", "(self, max_, within)", "repairs", "overridden as take is", _BATCHES),
        (
            "take_with_timestamp",
            "(self, max_, within, timestamp_field_name)",
            "repairs",
            "overridden as take is",
            _BATCHES,
        ),
        ("noack_take", "(self, max_, within)", "repairs", "overridden as take is", _BATCHES),
    ),
    *rows_of(
        "faust.app.base:App",
        (
            "_attachments",
            "set in __init__",
            "repairs",
            "messages that records have attached to their commit",
            _WHOLE_BATCHES + "what_is_published_on_commit_is_in_that_transaction",
        ),
    ),
    *rows_of(
        "faust.app._attached:Attachments",
        (
            "_pending",
            "set in __init__",
            "repairs",
            "messages attached to revoked records are dropped",
            _WHOLE_BATCHES + "nothing_of_a_generation_is_left_in_the_one_after_the_next",
        ),
    ),
)

_TRANSACTIONS: Final = (
    *rows_of(
        "faust.transport.consumer:TransactionManager",
        (
            "send",
            "async (self, topic, key, value, partition, timestamp, headers, *, transactional_id=)",
            "repairs",
            "overridden: a record's sends go into its transaction",
            _OUTPUTS,
        ),
        (
            "commit",
            "async (self, offsets, start_new_transaction=)",
            "repairs",
            "overridden: all of a transaction's sends go before it",
            _BOOKS,
        ),
        ("consumer", "set in __init__", "repairs", "the consumer that knows partitions", _OUTPUTS),
        ("producer", "set in __init__", "repairs", "the producer that sends", _OUTPUTS),
    ),
    *rows_of(
        "faust.transport.drivers.aiokafka:Producer",
        (
            "_transaction_producers",
            "class attribute",
            "repairs",
            "which transactions there are",
            _ABORTED,
        ),
        (
            "_trn_locks",
            "class attribute",
            "repairs",
            "each app of a process has its own",
            _WHOLE_BATCHES + "a_rebalance_of_one_app_leaves_the_transactions_of_another_open",
        ),
        (
            "abort_transaction",
            "async (self, transactional_id)",
            "repairs",
            "aborts the transactions that the final commit left open",
            _ABORTED,
        ),
    ),
    *rows_of(
        "faust.transport.producer:Producer",
        (
            "send_soon",
            "(self, fut)",
            "repairs",
            "replaced: table changes keep their turn",
            _WHOLE + "changes_in_the_buffer_are_committed_with_their_records",
        ),
    ),
    *rows_of(
        "faust.channels:SerializedChannel",
        (
            "publish_message",
            "async (self, fut, wait=)",
            "repairs",
            "sends one table change in its turn",
            _WHOLE + "changes_in_the_buffer_are_committed_with_their_records",
        ),
    ),
)

_TABLES: Final = (
    *rows_of(
        "faust.tables.manager:TableManager",
        (
            "_pending_persisted_offsets",
            "set in __init__",
            "positions",
            "the offset up to which an owner has written changes that are committed later",
            _POSITIONS + "what_is_written_and_not_yet_committed_counts",
        ),
        (
            "_changelogs",
            "set in __init__",
            "assignor",
            "which topics are changelogs, of which tables",
            _ASSIGNOR + "a_global_table_is_everywhere",
        ),
        (
            "_changelog_queue",
            "set in __init__",
            "repairs",
            "the queue is ours",
            _LOST + "a_changelog_record_of_no_table_of_ours_is_left_out",
        ),
        ("_recovery", "class attribute", "repairs", "the recovery is ours", _ONE_LINE),
        (
            "changelog_queue",
            "property",
            "repairs follow_up",
            "overridden: records of other generations are left out",
            _LOST + "a_changelog_record_of_no_table_of_ours_is_left_out",
        ),
        ("recovery", "property", "repairs", "overridden: makes our recovery", _ONE_LINE),
        (
            "changelog_topics",
            "property",
            "repairs",
            "tells standbys from sources",
            _LOST + "a_standby_that_catches_up_does_not_stop_the_streams",
        ),
        (
            "on_partitions_revoked",
            "(self, revoked)",
            "repairs",
            "overridden: restoring stops first",
            _RESTORE + "a_rebalance_stops_the_thread_and_waits_for_it",
        ),
        (
            "on_rebalance",
            "async (self, assigned, revoked, newly_assigned, generation_id=)",
            "repairs",
            "overridden: no thread of ours holds a database then",
            _RESTORE + "a_rebalance_stops_the_thread_and_waits_for_it",
        ),
    ),
    *rows_of(
        "faust.tables.base:Collection",
        (
            "_store",
            "set in __init__",
            "assignor",
            "whether the table is in RocksDB",
            "tests/unit/app/tables/test_disk.py::test_a_table_with_a_store_of_its_own",
        ),
        (
            "_on_changelog_event",
            "set in __init__",
            "repairs",
            "a table with a callback is left to Faust's loop",
            _RESTORED,
        ),
        (
            "apply_changelog_batch",
            "(self, batch)",
            "ledger",
            "wrapped: records of a recovery are counted",
            _METER + "partition_without_state_is_replayed",
        ),
    ),
    *rows_of(
        "faust.stores.rocksdb:Store",
        (
            "_db_for_partition",
            "(self, partition)",
            "repairs",
            "opens a partition's database",
            _EXCHANGED,
        ),
        ("_dbs", "set in __init__", "repairs", "the open databases; one is exchanged", _EXCHANGED),
        (
            "use_rocksdict",
            "set in __init__",
            "repairs",
            "rocksdict's databases are the ones we write",
            _RESTORE + "stores_whose_values_are_not_the_changelogs_take_no_files",
        ),
        (
            "read_only",
            "set in __init__",
            "repairs",
            "such a database is not ours to write",
            _RESTORED,
        ),
        (
            "rocksdb_options",
            "set in __init__",
            "repairs",
            "a database with a TTL takes no files",
            _RESTORE + "stores_whose_values_are_not_the_changelogs_take_no_files",
        ),
        (
            "partition_path",
            "(self, partition)",
            "repairs ledger positions",
            "where a database lies",
            _EXCHANGED,
        ),
        (
            "persisted_offset",
            "(self, tp)",
            "repairs positions",
            "how far a database has come",
            _RESTORED,
        ),
    ),
)

_RECOVERY: Final = rows_of(
    "faust.tables.recovery:Recovery",
    (
        "_build_offsets",
        "async (self, consumer, tps, destination, title)",
        "ledger",
        "wrapped: offsets at the start of a recovery without the repairs",
        _METER + "partition_without_state_is_replayed",
    ),
    (
        "_wait",
        "async (self, coro, timeout=)",
        "repairs",
        "overridden: no step has a time limit of Faust's",
        "tests/unit/app/recovery/test_loop.py::"
        "test_no_step_of_the_recovery_has_a_time_limit_of_fausts",
    ),
    (
        "_set_recovery_ended",
        "(self)",
        "repairs",
        "ends a recovery whose last record never comes",
        _UNREADABLE,
    ),
    (
        "_generation_id",
        "set in on_rebalance",
        "ledger",
        "names a recovery whose decision is unknown",
        _LEDGER,
    ),
    (
        "on_rebalance",
        "async (self, assigned, revoked, newly_assigned, generation_id=)",
        "repairs ledger",
        "overridden: from here on this generation resumes partitions",
        _OVERTAKEN,
    ),
    (
        "on_recovery_completed",
        "async (self, generation_id=)",
        "repairs ledger",
        "overridden: seek first, then resume",
        _HEAD,
    ),
    (
        "on_stop",
        "async (self)",
        "repairs",
        "overridden: databases are let go of first",
        _RESTORE + "a_rebalance_stops_the_thread_and_waits_for_it",
    ),
    (
        "flush_buffers",
        "(self)",
        "repairs",
        "writes the records that are read",
        _LOST + "a_standby_writes_what_it_reads",
    ),
    (
        "buffers",
        "set in __init__",
        "repairs",
        "records that are read and not yet written",
        _LOST + "a_standby_writes_what_it_reads",
    ),
    ("need_recovery", "(self)", "repairs", "whether actives still lag", _UNREADABLE),
    ("active_stats", "(self)", "repairs", "which actives lag", _UNREADABLE),
    (
        "active_tps",
        "set in __init__",
        "repairs ledger",
        "changelog partitions of this worker's own",
        _METER + "kept_partition_with_nothing_to_read_is_no_recovery",
    ),
    (
        "standby_tps",
        "set in __init__",
        "repairs ledger",
        "changelog partitions it follows",
        _METER + "state_of_a_standby_is_told_apart",
    ),
    (
        "active_offsets",
        "set in __init__",
        "repairs ledger metrics",
        "how far each active has come",
        _UNREADABLE,
    ),
    (
        "standby_offsets",
        "set in __init__",
        "repairs follow_up metrics",
        "how far each standby has come",
        _EXCHANGED,
    ),
    (
        "active_highwaters",
        "set in __init__",
        "repairs ledger positions",
        "where each active's changelog ends",
        _RESTORE + "an_offset_beyond_the_known_highwater_raises_the_highwater",
    ),
    (
        "standby_highwaters",
        "set in __init__",
        "repairs",
        "where each standby's changelog ended",
        _EXCHANGED,
    ),
    ("tp_to_table", "set in __init__", "repairs", "which table a partition belongs to", _RESTORED),
    (
        "in_recovery",
        "set in _set_recovery_ended",
        "repairs follow_up",
        "whether actives are being restored",
        _UNREADABLE,
    ),
    (
        "signal_recovery_start",
        "property",
        "repairs",
        "whether a rebalance led to a recovery",
        _OVERTAKEN,
    ),
    ("signal_recovery_end", "property", "repairs", "wakes whoever waits for its end", _UNREADABLE),
)

_ELSEWHERE: Final = (
    *rows_of(
        "faust.sensors.base:SensorDelegate",
        (
            "_sensors",
            "set in __init__",
            "assignor",
            "the sensors whose hooks are called",
            _SENSORS + "a_record_calls_no_hook_of_the_metrics_and_three_of_the_ledger",
        ),
        (
            "add",
            "(self, sensor)",
            "assignor",
            "overridden: adds the sensor to the hooks that it has",
            _SENSORS + "a_sensor_gets_the_state_that_it_returned",
        ),
        (
            "remove",
            "(self, sensor)",
            "assignor",
            "overridden: removes the sensor from all hooks",
            _SENSORS + "a_removed_sensor_is_called_no_more",
        ),
    ),
    *rows_of(
        "faust.app.router:Router",
        (
            "_route_req",
            "async (self, dest_url, web, request)",
            "router",
            "overridden: forwards to allowed URLs only, without credentials",
            "tests/integration/app/queries/test_forwarding.py::test_credentials_stay_and_the_rest_goes_along",
        ),
        (
            "_urlident",
            "(self, url)",
            "router",
            "host and port of a URL",
            "tests/integration/app/queries/test_forwarding.py::test_credentials_stay_and_the_rest_goes_along",
        ),
    ),
    *rows_of(
        "faust.types.settings.base:SettingsRegistry",
        (
            "getenv",
            "(self, env_name)",
            "assignor",
            "the environment with Faust's env_prefix",
            _SAYS + "rack_and_capacity_come_from_keywords_and_environment",
        ),
    ),
    *rows_of(
        "faust.assignor.copartitioned_assignor:CopartitionedAssignor",
        (
            "_free_up_partition",
            "(self, assignment, active)",
            "stock",
            "overridden: Faust's own algorithm is given an end",
            "tests/unit/pipeline/simulate/test_settings.py::test_every_built_in_policy_plays_every_scenario",
        ),
        (
            "_num_clients",
            "set in __init__",
            "stock",
            "named when it has none",
            "tests/unit/pipeline/simulate/test_settings.py::test_every_built_in_policy_plays_every_scenario",
        ),
    ),
    *rows_of(
        "mode.services:Service",
        (
            "_get_class_id",
            "(cls)",
            "repairs",
            "tasks are kept by module and qualified name",
            _LABELS,
        ),
    ),
    *rows_of(
        "mode.threads:QueueServiceThread",
        (
            "call_thread",
            "async (self, fun, *args, **kwargs)",
            "follow_up",
            "a round is asked for on the consumer's thread",
            _ASKED,
        ),
    ),
    *rows_of(
        "mode.utils.queues:FlowControlEvent",
        (
            "resume",
            "(self)",
            "repairs",
            "overridden: clears queues only when the flow was suspended",
            _HEAD,
        ),
        ("is_active", "(self)", "repairs", "whether it was", _HEAD),
    ),
    *rows_of(
        "mode.utils.queues:ThrowableQueue",
        (
            "get",
            "async (self)",
            "repairs",
            "overridden: records of other generations are left out",
            _LOST + "a_changelog_record_of_no_table_of_ours_is_left_out",
        ),
    ),
)

_SERIALIZERS: Final = rows_of(
    "faust.serializers.registry:Registry",
    (
        "_serializer",
        "(self, typ, *alt)",
        "repairs",
        "how the values of a changelog are written",
        _DECODED,
    ),
    (
        "_prepare_payload",
        "(self, typ, value)",
        "repairs",
        "whether a value fits its table",
        _DECODED,
    ),
)

_AIOKAFKA: Final = (
    *rows_of(
        "aiokafka:AIOKafkaConsumer",
        (
            "_coordinator",
            "set in __init__",
            "assignor driver_assignor ledger follow_up",
            "the way to generation and member id",
            _LEDGER,
        ),
        ("_client", "set in __init__", "weights", "looks for a topic without creating it", _TOPIC),
        (
            "_partition_assignment_strategy",
            "set in __init__",
            "driver_assignor",
            "replaced by the app's assignor",
            _FIXUP + "without_tables_and_standbys_ours_is_asked",
        ),
    ),
    *rows_of(
        "aiokafka.client:AIOKafkaClient",
        (
            "fetch_all_metadata",
            "async (self)",
            "weights",
            "looks for a topic without creating it",
            _TOPIC,
        ),
    ),
    *rows_of(
        "aiokafka.consumer.group_coordinator:GroupCoordinator",
        (
            "generation",
            "set in __init__",
            "assignor follow_up",
            "Kafka's generation dates a member's claims",
            _SAYS + "generation_is_kafkas_where_the_consumer_knows_it",
        ),
        (
            "member_id",
            "set in __init__",
            "assignor ledger",
            "names the member in the ledger and in its status",
            _LEDGER,
        ),
        (
            "_handle_metadata_update",
            "(self, cluster)",
            "repairs",
            "a coordinator that was replaced sees no metadata",
            "tests/unit/app/host/test_clients.py::"
            "test_the_former_parts_are_closed_and_see_no_metadata",
        ),
        ("request_rejoin", "(self)", "follow_up", "asks for a follow-up round", _ASKED),
        (
            "_rejoin_needed_fut",
            "set in __init__",
            "follow_up",
            "whether a round has been asked for",
            _FOLLOW + "a_round_that_has_begun_is_not_asked_for_again",
        ),
        (
            "_perform_assignment",
            "async (self, response)",
            "driver_assignor",
            "replaced: metadata is read with care first",
            _GUARD,
        ),
    ),
    *rows_of(
        "aiokafka.consumer.fetcher:PartitionRecords",
        (
            "_consumer_record",
            "(self, tp, record)",
            "repairs",
            "replaced: no object is made of each record",
            _REPLAYED,
        ),
    ),
    *rows_of(
        "aiokafka.consumer.fetcher:FetchResult",
        ("_partition_records", "set in __init__", "repairs", "where a record is made", _REPLAYED),
    ),
    *rows_of(
        "aiokafka:AIOKafkaProducer",
        ("_txn_manager", "set in __init__", "repairs", "whether a transaction is open", _ABORTED),
    ),
    *rows_of(
        "aiokafka.producer.transaction_manager:TransactionManager",
        ("is_in_transaction", "(self)", "repairs", "whether a transaction is open", _ABORTED),
    ),
)

_WEB: Final = rows_of(
    "faust.web.drivers.aiohttp:Web",
    (
        "_runner",
        "set in __init__",
        "page",
        "the web server's sockets, which the page's thread accepts at while the worker's loop is held up",
        "tests/integration/page/test_worker_page.py::test_the_page_answers_while_the_workers_loop_is_held_up",
    ),
)

PRIVATE_APIS: Final[tuple[PrivateApi, ...]] = (
    *_APP,
    *_WEB,
    *_CONSUMER,
    *_THREAD,
    *_TRANSACTIONS,
    *_TABLES,
    *_RECOVERY,
    *_ELSEWHERE,
    *_SERIALIZERS,
    *_AIOKAFKA,
    *FAILURES,
    *MEMBERS,
    *COOPERATION,
    *READS,
    *SETS,
    *WINDOWS,
)
