"""Duties of Faust's tables: their manager, their recovery and their stores."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.duties.row import HERE, ORIGINAL, Taken, alike, taken

_RECOVERY = "faust.tables.recovery:Recovery"
_MANAGER = "faust.tables.manager:TableManager"
_STORE = "faust.stores.rocksdb:Store"
_SETS = "faust.tables.objects:ChangeloggedObjectManager"
_BY_STATE = "recovery.by_partition:PartitionRecovery"
_STEADY = "recovery.loop:RecoveryLoop"
_LOOP = "recovery.replay_loop:ReplayLoop"
_SILENT = "Our recovery logs what it took on, and how far it is."

_RECOVERY_ROWS = (
    taken(
        f"{_RECOVERY}._slurp_changelogs",
        f"{_LOOP}._slurp_changelogs",
        "A recovery is over when all that can be read is applied, whatever the last offset held.",
        ("event signal_recovery_end.set", f"{_LOOP}._maybe_end"),
        ("event signal_recovery_end.clear", f"{_LOOP}._set_recovery_started"),
        ("logs Aborted tx until highwater for", f"{_LOOP}._restored_without"),
        (
            "logs recovery unknown topic",
            "",
            "ChangelogQueue leaves out records of partitions that are not replayed.",
        ),
        ("calls on_changelog_event", f"{_LOOP}._take"),
        ("event buf.clear", f"{_STEADY}.flush_buffers"),
        ("sets _last_flush_at", f"{_STEADY}.flush_buffers"),
        ("sets _last_active_event_processed_at", f"{_LOOP}._count"),
        ("sets _standbys_span", f"{_LOOP}._maybe_end"),
        ("calls on_standbys_ready", f"{_LOOP}._maybe_end"),
        ("logs Error in recovery", f"{_LOOP}._take {_LOOP}.name_unreadable"),
        ("also tags the span of actives", f"{_LOOP}._trace_actives"),
    ),
    taken(
        f"{_RECOVERY}.flush_buffers",
        f"{_STEADY}.flush_buffers",
        "A batch that a disk refuses is replayed, one that a table refuses is applied record by record.",
        ("event buffer.clear", HERE),
        ("sets _last_flush_at", HERE),
    ),
    taken(
        f"{_RECOVERY}.on_recovery_completed",
        f"{_BY_STATE}.on_recovery_completed",
        "The flow is opened with every partition paused, and tables are restored beside it.",
        ("logs Restore complete!", "", _SILENT),
        ("calls on_rebalance_complete", f"{_BY_STATE}._finish"),
        ("calls on_recovery_completed", f"{_BY_STATE}._tell_tables {_BY_STATE}._begin_callbacks"),
        (
            "logs Recovery rebalancing again app id",
            "",
            "Our recovery begins anew with each answer of a round.",
        ),
        ("logs Seek stream partitions to committed offs", "", _SILENT),
        ("event completed.set", f"{_BY_STATE}._finish"),
        ("calls on_actives_ready", f"{_BY_STATE}._finish"),
        ("calls on_standbys_ready", f"{_BY_STATE}._finish {_LOOP}._maybe_end"),
        ("calls on_rebalance_end", "rebalance.rounds:Rounds.end"),
        ("logs Worker ready", "rebalance.rounds:Rounds._ready"),
        ("also seeks and resumes sources", f"{_BY_STATE}._let_flow"),
        ("also starts the fetcher", HERE),
    ),
    taken(
        f"{_RECOVERY}.on_rebalance",
        f"{_BY_STATE}.assign",
        "In a cooperative round.",
        ("logs generation id", "membership.coordinator:CooperativeCoordinator._take"),
        (
            "logs rebalance again generation id",
            "",
            "Answers are taken in the order of their rounds.",
        ),
        ("event standby_tps.clear", f"{_BY_STATE}._clear_books"),
        ("event active_tps.clear", f"{_BY_STATE}._clear_books"),
        ("event actives_for_table.clear", f"{_BY_STATE}._clear_books"),
        ("event standbys_for_table.clear", f"{_BY_STATE}._clear_books"),
        ("event active_offsets.clear", f"{_BY_STATE}._take_roles"),
        (
            "sets _recovery_span",
            "",
            "The rebalance has a span; of what is restored progress and metrics tell.",
        ),
        (
            "event signal_recovery_start.set",
            "",
            "A task of ours restores, Faust's loop stays as it is.",
        ),
        (
            "sets _generation_id",
            "",
            "Records of kept partitions carry the number of their eager round.",
        ),
        ("also revokes offsets", f"{_BY_STATE}._tell_stores"),
    ),
    taken(
        f"{_RECOVERY}._restart_recovery",
        f"{_BY_STATE}._take_on",
        "In cooperative rounds; Faust's own runs with nothing to do.",
        ("event signal_recovery_start.clear", "", "A task of ours restores; it is not signalled."),
        ("sets standbys_pending", "", "Nobody reads it."),
        ("raises ConsistencyError", "recovery.consistency:Consistency.ahead"),
        (
            "logs Restarting Recovery",
            f"{_BY_STATE}.interrupt",
            "A round that begins anew logs its own line.",
        ),
        (
            "logs Restoring state from changelog topics...",
            "recovery.restoring:RestoringRecovery._tell_progress",
        ),
        ("logs Resuming flow...", "", "The flow is not stopped."),
        ("sets _actives_span", f"{_LOOP}._trace_actives"),
        ("logs Done reading from changelog topics", f"{_BY_STATE}._take_on"),
        ("logs Recovery complete", f"{_BY_STATE}._take_on"),
        ("logs Starting standby partitions...", f"{_BY_STATE}._take_on"),
        ("sets _standbys_span", f"{_LOOP}._trace_standbys"),
        ("calls on_recovery_completed", f"{_BY_STATE}._tell_tables {_BY_STATE}._begin_callbacks"),
        ("also flushes the producer", "rebalance.incremental:IncrementalRebalance.revoke"),
    ),
)

_MANAGER_ROWS = (
    taken(
        f"{_MANAGER}.changelog_queue",
        "recovery.table_manager:RecoveringTables.changelog_queue",
        "The queue leaves out records of other generations.",
        ("sets _changelog_queue", HERE),
    ),
    taken(
        f"{_MANAGER}.recovery",
        "recovery.table_manager:RecoveringTables.recovery",
        "The recovery is of our class.",
        ("sets _recovery", HERE),
    ),
    taken(
        f"{_MANAGER}.on_rebalance",
        f"{_BY_STATE}.assign",
        "In a cooperative round.",
        ("event _recovery_started.set", "", "The first round of a worker is eager, and sets it."),
        ("calls on_rebalance", f"{_BY_STATE}._tell_stores"),
    ),
    taken(
        f"{_MANAGER}.on_partitions_revoked",
        "rebalance.incremental:IncrementalRebalance.revoke",
        "In a cooperative round.",
        (
            "calls on_partitions_revoked",
            HERE,
            "The recovery is interrupted, and its buffers are written.",
        ),
        ("also writes what was replayed", HERE),
    ),
    taken(
        "faust.tables.base:Collection.on_recovery_completed",
        f"{_BY_STATE}._tell_tables",
        "In cooperative rounds.",
        ("calls on_recovery_completed", HERE),
        ("also calls on_recover callbacks", "recovery.callbacks:RecoverCallbacks.begin"),
    ),
    taken(
        "faust.tables.base:Collection._on_changelog_sent",
        "tables.store:WriteBehindStore.arrived",
        "Row and offset are written together, once the record counts.",
        ("also keeps the offset", "tables.store:WriteBehindStore.flush"),
    ),
)

_STORE_ROWS = (
    taken(
        f"{_STORE}._set",
        "tables.store:WriteBehindStore._set",
        "The original is called unless the change waits for its changelog record.",
        ("asserts event is not None", ORIGINAL),
    ),
    *alike(
        _STORE,
        "tables.store:WriteBehindStore",
        "_del _get apply_changelog_batch _dbs_for_actives",
        "Rows are read over the file and written behind their changelog.",
    ),
    *alike(
        _STORE,
        "tables.files:TableStore",
        "_get _contains",
        "The original is called outside of a request for a key; within it the key's partition is read.",
    ),
    *alike(
        _STORE,
        "tables.files:TableStore",
        "set_persisted_offset",
        "The original is called unless the file lacks a change.",
    ),
    taken(
        f"{_STORE}.revoke_partitions",
        "tables.files:TableStore.revoke_partitions",
        "No garbage is collected: streams would stand still for it.",
        ("logs closing db", HERE),
    ),
    taken(
        f"{_STORE}._try_open_db_for_partition",
        "tables.files:TableStore._try_open_db_for_partition",
        "What does not open is opened by the recovery, which waits for it.",
        (
            "logs opening partition",
            "",
            "The recovery opens all databases, and logs what does not open.",
        ),
        (
            "logs DB for partition %r retries timed out",
            "recovery.loop:RecoveryLoop._open_tables",
        ),
        ("logs DB for partition %r is locked! Retry in", HERE),
        (
            "logs Rebalanced again giving up partition",
            "",
            "A round that comes meanwhile begins anew.",
        ),
        ("also tries again", "recovery.loop:RecoveryLoop._open_tables"),
    ),
    taken(
        f"{_STORE}.on_rebalance",
        f"{_BY_STATE}._tell_stores",
        "In a cooperative round.",
        (
            "sets rebalance_ack",
            "",
            "It ends opening that a later round made void: ours is interrupted.",
        ),
        ("also closes what went", HERE),
        ("also opens what came", f"{_BY_STATE}._open"),
    ),
    taken(
        f"{_SETS}.apply_changelog_batch",
        "tables.sets:WriteBehindSets.apply_changelog_batch",
        "The original is called for sets in memory.",
        (
            "raises RuntimeError",
            ORIGINAL,
            "In RocksDB a record without a key fails as it is unpacked, and is named by the recovery.",
        ),
        ("also keeps the offset", HERE),
    ),
    *alike(
        _SETS,
        "tables.sets:WriteBehindSets",
        "send_changelog_event sync_from_storage",
        "The original is called for sets in memory; in RocksDB a row is the set after the operation.",
    ),
)

_COLLECTION = "faust.tables.base:Collection"
_CLOSING = "tables.window_closing:Closing"

_WINDOW_ROWS = (
    taken(
        f"{_COLLECTION}._del_old_keys",
        f"{_CLOSING}.close_windows",
        "Windows are closed by partition, by the partition's own time, and by its owner only.",
        ("asserts window", f"{_CLOSING}._expires"),
        ("calls on_window_close", f"{_CLOSING}._close"),
        ("sets last_closed_window", f"{_CLOSING}._delete"),
    ),
    taken(
        f"{_COLLECTION}._maybe_set_key_ttl",
        f"{_CLOSING}._changed",
        "Open windows are kept by partition.",
        ("also notes the latest time", "tables.open_windows:OpenWindows.add"),
    ),
    taken(
        f"{_COLLECTION}._maybe_del_key_ttl",
        f"{_CLOSING}._deleted",
        "Open windows are kept by partition.",
        ("also forgets the key", "tables.open_windows:OpenWindows.discard"),
    ),
)

TABLES: Final[tuple[Taken, ...]] = (
    *_RECOVERY_ROWS,
    *_MANAGER_ROWS,
    *_STORE_ROWS,
    *_WINDOW_ROWS,
)
