"""Duties of Faust's consumer, its transactions and streams."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.duties.row import HERE, ORIGINAL, Taken, alike, taken

_CONSUMER = "faust.transport.consumer:Consumer"
_THREADED = "faust.transport.consumer:ThreadDelegateConsumer"
_TRANSACTIONS = "faust.transport.consumer:TransactionManager"
_OWN = "transactions.manager:PartitionTransactions"
_HANDS = "rebalance.incremental:IncrementalRebalance"
_TWO_ROADS = (
    "The original is called if the flow belongs to this generation; otherwise no stream may resume."
)

_TAKES = tuple(
    taken(
        f"faust.streams:Stream.{name}",
        f"consumer.batches:TransactionalBatches.{name}",
        "The original is called without transactions; with them a batch holds records of one partition.",
        ("raises RuntimeError", "consumer.batches:Basket.collect"),
        ("event buffer_full.set", "consumer.batches:Basket.collect"),
        ("event buffer_full.clear", "consumer.batches:Basket.make_batches"),
        ("event buffer_consumed.set", "consumer.batches:Basket.make_batches"),
        ("event buffer_consumed.clear", "consumer.batches:Basket.collect"),
        ("event buffer.clear", "consumer.batches:Basket.make_batches"),
        ("event events.clear", "consumer.batches:Basket.make_batches"),
        ("does notify", "consumer.batches:Basket.make_batches"),
        (
            "logs Error adding to take buffer: %r",
            "",
            "An error in the reader crashes the stream, which logs.",
        ),
        (
            "does crash",
            "",
            "An error in the reader is one of a task of the stream: mode crashes it.",
        ),
        ("sets enable_acks", "consumer.batches:TransactionalBatches._collected"),
        ("also acknowledges each record", "consumer.batches:TransactionalBatches._hand_out"),
        ("also restores enable_acks at the end", "", "The basket outlives an agent that fails."),
    )
    for name in ("take", "take_events", "take_with_timestamp", "noack_take")
)

CONSUMER: Final[tuple[Taken, ...]] = (
    taken(
        f"{_CONSUMER}.on_partitions_revoked",
        "consumer.commits:FinalCommit.on_partitions_revoked",
        "The books are closed after the final commit, not before it.",
        ("state CONSUMER_PARTITIONS_REVOKED", HERE),
        ("calls _on_partitions_revoked", HERE),
        ("also forgets what was acknowledged", "consumer.commits:FinalCommit._forget"),
        ("also makes a span", HERE),
    ),
    taken(
        f"{_CONSUMER}.on_partitions_revoked",
        f"{_HANDS}.revoke",
        "In a cooperative round: of the partitions that go.",
        ("state CONSUMER_PARTITIONS_REVOKED", HERE),
        ("calls _on_partitions_revoked", HERE, "The app's part is done here: see App."),
        ("also forgets what was acknowledged", "consumer.commits:FinalCommit._forget"),
        ("also makes a span", f"{_HANDS}._send_revoked"),
    ),
    taken(
        f"{_CONSUMER}.on_partitions_assigned",
        f"{_HANDS}.assign",
        "In a cooperative round.",
        ("state CONSUMER_PARTITIONS_ASSIGNED", HERE),
        ("calls _on_partitions_assigned", HERE, "The app's part is done here: see App."),
        ("calls on_rebalance_return", "rebalance.rounds:Rounds.answered"),
        ("also makes a span", HERE),
    ),
    taken(
        f"{_CONSUMER}._wait_next_records",
        "consumer.fetching:FlowGate._wait_next_records",
        "Where no partition is active, ours waits until one is resumed; stock sleeps a second.",
        (
            "event not_waiting_next_records.set",
            ORIGINAL,
            "Stock Faust sets it and never clears it, so no code can wait for it.",
        ),
        ("also waits until the flow may go on", HERE),
    ),
    taken(
        f"{_CONSUMER}.resume_flow",
        "consumer.fetching:FlowGate.resume_flow",
        _TWO_ROADS,
        ("sets flow_active", ORIGINAL),
        ("event can_resume_flow.set", ORIGINAL),
        ("event suspend_flow.clear", ORIGINAL),
    ),
    *alike(
        _CONSUMER,
        "consumer.fetching:FlowGate",
        "on_buffer_drop resume_partitions",
        _TWO_ROADS,
    ),
    *alike(
        "faust.transport.drivers.aiokafka:Consumer",
        "compose:RepairedConsumer",
        "_new_consumer_thread",
        "Stock names the thread's class in its code; ours stands over the class that the app names.",
    ),
    *alike(
        _THREADED,
        "consumer.fetching:FlowGate",
        "highwaters",
        "The broker is asked: under exactly_once stock says how far it has read.",
    ),
    taken(
        f"{_CONSUMER}.force_commit",
        "membership.shutdown:BoundedShutdown.force_commit",
        "The original is called, unless the worker stops after its thread has crashed.",
        ("state CONSUMER_COMMITTING", ORIGINAL),
        ("calls on_commit_initiated", ORIGINAL),
        ("calls on_commit_completed", ORIGINAL),
    ),
    taken(
        f"{_CONSUMER}._commit_tps",
        "consumer.whole_records:RecordBoundaryCommits._commit_tps",
        "The original is called without transactions; with them a commit falls between two records.",
        ("does crash", HERE),
        (
            "also publishes what is attached",
            "consumer.whole_records:RecordBoundaryCommits._publish_attached",
        ),
        ("also commits the offsets", HERE),
    ),
    taken(
        f"{_TRANSACTIONS}.commit",
        f"{_OWN}.commit",
        "One transaction after the other, each by the original.",
        ("transaction commit_transactions", ORIGINAL),
        ("logs ProducerFenced", ORIGINAL),
        ("does crash", ORIGINAL),
    ),
    taken(
        f"{_TRANSACTIONS}.on_rebalance",
        f"{_OWN}.on_rebalance",
        "Transactions are distinguished by the offsets that they commit, not by the assigned "
        "topics.",
        ("transaction _tps_to_transactional_ids", f"{_OWN}.ids_for"),
        ("logs Stopping %r transactional %s for %r revo", f"{_OWN}.end"),
        ("logs Starting %r transactional %s for %r assi", f"{_OWN}.begin"),
        ("also stops the producers of what went", f"{_OWN}.end"),
        ("also begins the transactions of what came", f"{_OWN}.begin"),
    ),
    taken(
        f"{_TRANSACTIONS}.on_rebalance",
        "transactions.manager:PartitionTransactions.revoke",
        "In a cooperative round: for revoked partitions; new partitions follow later.",
        ("transaction _tps_to_transactional_ids", f"{_OWN}.ids_for"),
        ("logs Stopping %r transactional %s for %r revo", f"{_OWN}.end"),
        ("logs Starting %r transactional %s for %r assi", f"{_OWN}.begin"),
        (
            "also begins the transactions of what came",
            "transactions.manager:PartitionTransactions.assign",
        ),
    ),
    *alike(
        _TRANSACTIONS,
        _OWN,
        "send",
        "The original is called for messages without a source record; all other messages join "
        "the transaction of their record.",
    ),
    taken(
        f"{_TRANSACTIONS}.send_soon",
        f"{_OWN}.send_soon",
        "Stock has none.",
        ("raises NotImplementedError", "", "Ours is there and sends."),
    ),
    *_TAKES,
)
