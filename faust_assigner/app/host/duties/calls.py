"""Methods of ours that call the host's own on every path: all that it does is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Our class -> names of its methods, with spaces between them. Checked in the source of each.
CALLS: Final[Mapping[str, str]] = {
    "cooperative.by_state:ByState": "_resume_streams on_rebalance on_stop",
    "cooperative.by_state:TablesByState": "on_partitions_revoked",
    "cooperative.coordinator:CooperativeCoordinator": (
        "_do_rejoin_group _lookup_assignor _stop_heartbeat_task close ensure_active_group"
    ),
    "cooperative.fetcher:PromptFetcher": "_get_actions_per_node _proc_fetch_request",
    "cooperative.handing_over:HandsOver": (
        "_getmany _new_consumer_thread _set_active_tps on_partitions_assigned resume_partitions"
    ),
    "overlay.consumer:Lands": "on_partitions_revoked",
    "overlay.store:OverlaidStore": "_contains _visible_items _visible_keys reset_state stop",
    "reads.router:ReadsRouter": "route_topic_req",
    "reads.scope:ScopedStore": "_dbs_for_actives",
    "reads.scope:ScopedTable": "data",
    "repairs.batches:BatchesInTime": "wait_for_stopped",
    "repairs.batches:OwnedBatches": "__aiter__",
    "repairs.commits:FinalCommit": "_filter_committable_offsets commit_and_end_transactions",
    "repairs.driver_assignor:AsksOurs": "_new_consumer_thread",
    "repairs.fetching:FlowControl": "is_active",
    "repairs.fetching:KnownPartitions": "topic_partitions",
    "repairs.fetching:SteadyPartitions": (
        "_getmany _new_consumer_thread _reset_state on_partitions_assigned "
        "on_partitions_revoked perform_seek"
    ),
    "repairs.goodbye:LeavesInTime": "_new_consumer_thread maybe_wait_for_commit_to_finish wait_empty",
    "repairs.membership:OnlyMembersWrite": "_commit on_partitions_assigned",
    "repairs.recovery_loop:SteadyRecovery": (
        "_add _build_highwaters _build_offsets _resume_streams _seek_offsets _wait "
        "on_rebalance on_recovery_completed revoke wait_for_stopped"
    ),
    "repairs.recovery_loop:SteadyTables": "_update_channels add on_commit on_stop",
    "repairs.replay_loop:ChangelogQueue": "get",
    "repairs.replay_loop:ReplayLoop": "_set_recovery_started",
    "repairs.topics:ChecksTopics": "add on_rebalance on_start",
    "repairs.whole_records:WholeRecords": "on_partitions_revoked",
    "repairs.waits:Waited": "_commit force_commit on_partitions_assigned on_partitions_revoked",
    "restore.batched_replay:BareFetcher": "_proc_fetch_request",
    "restore.recovery:RestoringRecovery": "_wait on_recovery_completed on_stop",
    "restore.recovery:RestoringTables": "on_partitions_revoked on_rebalance",
    "restore.table_files:CarefulStore": "_contains _del _get _open_for_partition _set apply_changelog_batch",
}
