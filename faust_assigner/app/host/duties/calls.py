"""Methods of ours that call the host's method on every path, and so fulfil all its duties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Our class -> names of its methods, separated by spaces; a test checks the source of each method.
CALLS: Final[Mapping[str, str]] = {
    "recovery.by_partition:PartitionRecovery": "_resume_streams on_rebalance on_stop",
    "membership.coordinator:CooperativeCoordinator": (
        "_do_rejoin_group _lookup_assignor _stop_heartbeat_task close ensure_active_group"
    ),
    "consumer.fetcher:FairFetcher": "_get_actions_per_node _proc_fetch_request",
    "rebalance.incremental:IncrementalRebalance": (
        "_getmany _set_active_tps on_partitions_assigned resume_partitions"
    ),
    "consumer.back_pressure:BackPressure": "on_partitions_revoked",
    "tables.store:WriteBehindStore": "_contains _visible_items _visible_keys reset_state stop",
    "queries.router:KeyRouter": "route_topic_req",
    "tables.scope:ScopedTable": "data",
    "consumer.batches:BatchesInTime": "wait_for_stopped",
    "consumer.batches:TransactionalBatches": "__aiter__",
    "consumer.commits:FinalCommit": "_filter_committable_offsets commit_and_end_transactions",
    "rebalance.consumer_thread:AssigningThread": "_create_worker_consumer on_start",
    "rebalance.consumer_thread:RepairedThread": (
        "_fetch_records on_thread_stop seek_to_committed verify_event_path"
    ),
    "consumer.fetching:FlowControl": "is_active",
    "consumer.fetching:KnownPartitions": "topic_partitions",
    "consumer.fetching:FlowGate": (
        "_getmany _reset_state on_partitions_assigned on_partitions_revoked perform_seek"
    ),
    "membership.shutdown:BoundedShutdown": "maybe_wait_for_commit_to_finish wait_empty",
    "membership.fence:MembershipFence": "_commit on_partitions_assigned",
    "recovery.loop:RecoveryLoop": "_add _wait revoke wait_for_stopped",
    "recovery.table_manager:RecoveringTables": (
        "_update_channels add on_commit on_partitions_revoked on_rebalance on_stop"
    ),
    "recovery.replay_loop:ChangelogQueue": "get",
    "recovery.replay_loop:ReplayLoop": "_set_recovery_started",
    "membership.watchdog:Watched": "add on_rebalance on_start",
    "consumer.whole_records:RecordBoundaryCommits": "on_partitions_revoked",
    "consumer.waits:DeadlineWaits": "_commit force_commit on_partitions_assigned on_partitions_revoked",
    "recovery.batched_replay:BareFetcher": "_proc_fetch_request",
    "recovery.restoring:RestoringRecovery": "on_stop",
    "tables.files:TableStore": "_dbs_for_actives _del _open_for_partition _set apply_changelog_batch",
}
