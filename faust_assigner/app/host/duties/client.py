"""Duties of aiokafka's group coordinator and fetcher."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.duties.row import HERE, ORIGINAL, Taken, taken

_COORDINATOR = "aiokafka.consumer.group_coordinator:GroupCoordinator"
_OURS = "membership.coordinator:CooperativeCoordinator"
_LEAVING = "membership.idle:"
_FETCHER = "aiokafka.consumer.fetcher:Fetcher"
_PROMPT = "consumer.fetcher:FairFetcher"

CLIENT: Final[tuple[Taken, ...]] = (
    taken(
        f"{_COORDINATOR}._on_join_prepare",
        f"{_OURS}._on_join_prepare",
        "The original is called where everything is given up. A cooperative round waits for its answer.",
        ("sets _group_subscription", HERE),
        (
            "logs OffsetCommit failed before join, ignorin",
            ORIGINAL,
            "Faust's clients commit by themselves.",
        ),
        ("logs Revoking previously assigned partitions", f"{_OURS}._take"),
        ("calls on_partitions_revoked", f"{_OURS}._take", "The listener's revoke() is called."),
        ("logs User provided subscription listener %s f", f"{_OURS}._take"),
        (
            "also begins a reassignment",
            ORIGINAL,
            "In a cooperative round the fetch of retained partitions continues.",
        ),
    ),
    taken(
        f"{_COORDINATOR}._on_join_complete",
        f"{_OURS}._on_join_complete",
        "The original is called if all partitions were revoked before.",
        ("asserts assignor", f"{_OURS}._lookup_assignor"),
        ("calls on_assignment", f"{_OURS}._take"),
        ("logs Setting newly assigned partitions %s for", f"{_OURS}._take"),
        ("calls on_partitions_assigned", f"{_OURS}._tell", "The listener's assigned() is called."),
        ("logs User provided listener %s for group %s f", f"{_OURS}._tell"),
        ("also assigns to the subscription", "consumer.fetcher:change_assignment"),
        (
            "also begins anew to refresh committed offsets",
            "",
            "The assignment is changed in place, and the task that refreshes its offsets goes on.",
        ),
    ),
    taken(
        f"{_COORDINATOR}.commit_offsets",
        f"{_OURS}.commit_offsets",
        "A commit that meets a round is sent again after it.",
        ("raises CommitFailedError", HERE),
        ("also tries again after errors that pass", HERE),
        ("also one commit at a time", f"{_OURS}._commit_once"),
    ),
    taken(
        f"{_COORDINATOR}._maybe_leave_group",
        "membership.idle:_leave",
        "The request has a reason (KIP-800). A member without partitions stays.",
        ("logs LeaveGroup request failed: %s", f"{_LEAVING}_say_goodbye"),
        (
            "logs LeaveGroup request succeeded",
            f"{_LEAVING}_say_goodbye",
            "The reason is logged with it.",
        ),
        ("also sends nothing for a static member", HERE),
        ("also sends the request once", f"{_LEAVING}_say_goodbye"),
        ("also resets the generation", HERE),
    ),
    taken(
        f"{_COORDINATOR}._send_req",
        f"{_OURS}._send_req",
        "The original is called but for requests of a round: heartbeats go on beside these.",
        ("raises GroupCoordinatorNotAvailableError", f"{_OURS}._send_in_round"),
        ("logs Error sending %s to node %s [%s] -- mark", f"{_OURS}._send_in_round"),
        ("also looks for another coordinator", f"{_OURS}._send_in_round"),
    ),
    taken(
        f"{_COORDINATOR}.request_rejoin",
        f"{_OURS}.request_rejoin",
        "The original is not called for a commit that has met the round under way.",
        ("does set_result", ORIGINAL),
    ),
    taken(
        f"{_COORDINATOR}.reset_generation",
        f"{_OURS}.reset_generation",
        "The original is not called for a refused commit of the generation before.",
        ("sets generation", ORIGINAL),
        ("sets member_id", ORIGINAL),
    ),
    taken(
        f"{_COORDINATOR}._do_fetch_commit_offsets",
        "consumer.committed_offsets:committed",
        "An error of the whole answer counts, and stable offsets are asked for (KIP-447).",
        ("raises error", "consumer.committed_offsets:_check"),
        ("raises error_type", "consumer.committed_offsets:_check"),
        ("raises KafkaError", "consumer.committed_offsets:_check"),
        ("logs OffsetFetchRequest -- unknown topic %s", "consumer.committed_offsets:_check"),
        (
            "logs Unknown error fetching offsets for %s: %",
            "",
            "The error is raised with its partition, and whoever asked logs it.",
        ),
        ("also looks for another coordinator", "consumer.committed_offsets:_check"),
    ),
    taken(
        f"{_FETCHER}.fetched_records",
        f"{_PROMPT}.fetched_records",
        "The original is called for each share of a turn.",
        ("asserts max_records >= 0", ORIGINAL),
        ("also waits for records", HERE),
        ("also raises what went wrong in the group", HERE),
    ),
    taken(
        f"{_FETCHER}._set_error",
        f"{_PROMPT}._set_error",
        "The original is called but for a record that was cut off: its partition is set aside.",
        ("asserts tp not in self._records", ORIGINAL),
    ),
)
