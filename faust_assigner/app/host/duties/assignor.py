"""Duties of Faust's partition assignor, and of its app and driver at a rebalance."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.duties.row import HERE, ORIGINAL, Taken, alike, taken

_STOCK = "faust.assignor.partition_assignor:PartitionAssignor"
_OURS = "assignor:PartitionAssignor"
_APP = "faust.app.base:App"
_LISTENER = "faust.transport.drivers.aiokafka:ConsumerRebalanceListener"
_HANDS = "rebalance.incremental:IncrementalRebalance"
_THREAD = "rebalance.incremental:ThreadListener"

ASSIGNOR: Final[tuple[Taken, ...]] = (
    taken(
        f"{_STOCK}.on_assignment",
        f"{_OURS}.on_assignment",
        "An invalid answer of the leader does not end a worker.",
        ("sets _assignment", f"{_OURS}._remember"),
        ("sets _topic_groups", HERE),
        ("sets _active_tps", HERE),
        ("sets _standby_tps", HERE),
        ("sets changelog_distribution", f"{_OURS}.changelog_distribution"),
        ("sets external_topic_distribution", f"{_OURS}.external_topic_distribution"),
        (
            "asserts a == b",
            f"{_OURS}._read",
            "Contradictions are counted and logged, and all partitions count as active.",
        ),
        (
            "asserts metadata.url == str(self._url)",
            HERE,
            "Counted (foreign_urls) and logged; a second worker of one instance id is ended by its group.",
        ),
    ),
    *alike(
        _STOCK,
        _OURS,
        "assign metadata",
        "The planner's answer, and the claims of this member, in stock's form for stock members.",
    ),
    taken(
        f"{_STOCK}._assign",
        f"{_OURS}.assign",
        "",
        ("calls on_assignment_start", HERE),
        ("calls on_assignment_error", f"{_OURS}.assign {_OURS}._conclude"),
        ("calls on_assignment_completed", f"{_OURS}._conclude"),
        (
            "also raises the error",
            "",
            "Without an answer the group would stand still, so the fallback assigns the partitions.",
        ),
    ),
    taken(
        f"{_STOCK}._trace_assign",
        f"{_OURS}._start_span",
        "",
        ("asserts self.app.tracer is not None", HERE),
        ("also tags the span", f"{_OURS}._finish_span"),
    ),
    taken(
        f"{_STOCK}._perform_assignment",
        "rebalance.leader:decide",
        "",
        (
            "asserts len(topics) > 0 and num_partitions > 0",
            "",
            "The grouper leaves such topics out.",
        ),
    ),
    taken(
        f"{_STOCK}._get_copartitioned_groups",
        "rebalance.leader:decide",
        "",
        ("logs Ignoring missing topic: %r", "rebalance.findings:say"),
    ),
    *alike(
        _STOCK,
        _OURS,
        "assigned_actives assigned_standbys is_active is_standby group_for_topic key_store table_metadata "
        "tables_metadata changelog_distribution external_topic_distribution external_key_store "
        "external_topics_metadata name version",
        "Answered from the last round, as stock does.",
    ),
    taken(
        f"{_LISTENER}.on_partitions_revoked",
        f"{_THREAD}.revoke",
        "In a cooperative round: together with the revoked partitions.",
        ("calls on_rebalance_start", "rebalance.rounds:Rounds.begin"),
        ("calls on_partitions_revoked", HERE, "The consumer's revoke() is called."),
    ),
    taken(
        f"{_LISTENER}.on_partitions_assigned",
        f"{_THREAD}.assigned",
        "In a cooperative round.",
        (
            "sets consumer_generation_id",
            "",
            "Records carry this number, and records with a different number are dropped; "
            "retained partitions are processed without a pause.",
        ),
        ("calls on_partitions_assigned", HERE, "The consumer's assign() is called."),
    ),
    taken(
        f"{_APP}._on_partitions_revoked",
        f"{_HANDS}.revoke",
        "In a cooperative round, retained partitions are processed without a pause.",
        (
            "calls _on_rebalance_when_stopped",
            "",
            "It closes the client of a worker that stops; ours leaves the group and closes it in stop().",
        ),
        ("calls on_partitions_revoked", f"{_HANDS}._send_revoked"),
        ("does crash", f"{_HANDS}._send_revoked"),
        ("also stops the tables of what goes", HERE),
        ("also pauses and clears queues", HERE),
        ("also waits for streams, commits and flushes", f"{_HANDS}.revoke {_HANDS}._finish"),
        ("also ends transactions", "transactions.manager:PartitionTransactions.revoke"),
    ),
    taken(
        f"{_APP}._on_partitions_assigned",
        f"{_HANDS}.assign",
        "In a cooperative round.",
        (
            "calls _on_rebalance_when_stopped",
            "",
            "It closes the client of a worker that stops; ours leaves the group and closes it in stop().",
        ),
        ("sets unassigned", HERE),
        (
            "logs Executing _on_partitions_assigned",
            "membership.coordinator:CooperativeCoordinator._take",
        ),
        ("calls on_rebalance", HERE),
        ("calls on_partitions_assigned", HERE),
        ("does crash", HERE),
        ("also waits for subscriptions", HERE),
        ("also begins transactions", "transactions.manager:PartitionTransactions.assign"),
    ),
    taken(
        "faust.app.router:Router.route_req",
        "queries.router:KeyRouter.route_req",
        "Whoever can answer is asked, within a bounded time.",
        (
            "raises ServiceUnavailable",
            "queries.reading:unavailable",
            "A 503 that says when to ask again.",
        ),
    ),
    taken(
        "faust.app.router:Router._route_req",
        "queries.forwarding:AllowlistRouter._route_req",
        "Only allowed URLs are asked, and credentials go to trusted ones alone.",
        ("raises SameNode", "queries.forwarding:AllowlistRouter.forward"),
    ),
    *alike(
        "faust.app.router:Router",
        "queries.router:KeyRouter",
        "_get_serialized_key",
        "The key is placed as the streams' topics have it.",
    ),
    taken(
        "mode.utils.queues:FlowControlEvent.resume",
        "consumer.fetching:FlowControl.resume",
        "The original is called where the flow stands still: a running flow loses no record.",
        ("event _suspend.clear", ORIGINAL),
        ("event _resume.set", ORIGINAL),
        ("event self.clear", ORIGINAL),
    ),
)
