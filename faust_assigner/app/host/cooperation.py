"""The host names that the repairs use for cooperative rounds; see ``private_apis.py``."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.private_api import PrivateApi, rows_of

_PLAYED = "tests/integration/app/membership/test_coordinator.py::test_"
_FLOWS = _PLAYED + "what_a_member_keeps_flows_through_both_rounds"
_COMMIT = _PLAYED + "a_commit_that_meets_a_round_is_sent_again_after_it"
_LOST = _PLAYED + "a_lost_membership_gives_everything_up_and_commits_nothing"
_SILENT = _PLAYED + "a_coordinator_silent_for_a_session_stops_the_flow"
_PARKED = _PLAYED + "kept_partitions_flow_while_a_round_waits_longer_than_a_session"
_TWICE = _PLAYED + "two_rounds_without_a_step_in_between_do_not_end_the_coordination"
_ASKED = _PLAYED + "a_partition_that_goes_while_its_offset_is_asked_for_holds_up_nobody"
_FLIGHT = _PLAYED + "a_fetch_in_flight_for_a_partition_that_went_ends_nothing"
_IDLE = _PLAYED + "a_live_partition_does_not_wait_for_idle_ones"
_FETCHED = "tests/integration/app/consumer/test_fetcher.py::test_"
_LOOKED_UP = _FETCHED + "what_is_kept_flows_while_what_is_gained_is_looked_up"
_FOLLOWED = _FETCHED + "a_fetch_that_ends_while_records_are_taken_is_followed_by_the_next"
_TURNS = (
    "tests/integration/app/consumer/test_turns.py::"
    "test_what_keeps_up_comes_first_and_backlogs_share_the_rest"
)
_AT_END = (
    "tests/integration/app/consumer/test_turns.py::"
    "test_a_backlog_of_which_a_fetch_has_been_emptied_is_one_still"
)
_UNREADABLE = "tests/integration/app/consumer/test_unreadable.py::test_"
_HOLES = _UNREADABLE + "others_flow_without_a_hole_beside_a_partition_that_cannot_be_read"
_REFUSED = _UNREADABLE + "what_a_broker_refuses_is_left_out_of_the_fetches_of_others"
_HANDS = "tests/integration/app/rebalance/test_incremental.py::test_"
_KEPT = _HANDS + "kept_partitions_flow_while_others_come_and_go"
_GOES = _HANDS + "what_goes_is_committed_up_to_its_last_processed_record"
_PAUSED = _FETCHED + "nobody_complains_that_a_paused_partition_is_not_fetched"
_FULL = _HANDS + "a_full_queue_lets_go_of_what_leaves"
_SEEN = _HANDS + "a_round_is_seen_by_sensors_and_its_partitions_by_handlers"
_ADDED = (
    "tests/unit/app/rebalance/test_rounds.py::"
    "test_a_topic_added_during_a_round_is_subscribed_to_after_it"
)
_LEAVE = (
    "tests/integration/app/membership/test_leave.py::"
    "test_a_worker_that_is_stopped_hands_over_before_it_leaves"
)

_COORDINATOR: Final = rows_of(
    "aiokafka.consumer.group_coordinator:GroupCoordinator",
    (
        "_lookup_assignor",
        "(self, name)",
        "repairs",
        "overridden: one assignor under two names",
        _FLOWS,
    ),
    (
        "_send_req",
        "async (self, request)",
        "repairs",
        "overridden: offers both protocol names, records the answers, and asks for committed "
        "offsets",
        _SILENT,
    ),
    (
        "_heartbeat_interval_ms",
        "set in __init__",
        "repairs",
        "heartbeats go on beside JoinGroup and SyncGroup",
        _PARKED,
    ),
    (
        "ensure_active_group",
        "async (self, subscription, prev_assignment)",
        "repairs",
        "overridden: a membership lost within a round is given up",
        _LOST,
    ),
    (
        "_stop_heartbeat_task",
        "async (self)",
        "repairs",
        "overridden: a task that has not begun is not cancelled",
        _TWICE,
    ),
    ("_start_heartbeat_task", "(self)", "repairs", "before partitions are let go", _TWICE),
    (
        "_on_join_prepare",
        "async (self, previous_assignment)",
        "repairs",
        "overridden: no partition is revoked before the leader's answer",
        _FLOWS,
    ),
    (
        "_performed_join_prepare",
        "set in __init__",
        "repairs",
        "set back where all is lost",
        _LOST,
    ),
    (
        "_group_subscription",
        "set in __init__",
        "repairs",
        "set back before a round, as aiokafka does",
        _COMMIT,
    ),
    (
        "_do_rejoin_group",
        "async (self, subscription)",
        "repairs",
        "overridden: when a round begins and ends",
        _COMMIT,
    ),
    (
        "_on_join_complete",
        "async (self, generation, member_id, protocol, member_assignment_bytes)",
        "repairs",
        "overridden: the answer revokes only the partitions that move",
        _FLOWS,
    ),
    ("_subscription", "set in __init__", "repairs", "the assigned partitions", _FLOWS),
    (
        "reset_generation",
        "(self)",
        "repairs",
        "overridden: an old commit loses no membership; wrapped: tells that it is lost",
        _COMMIT,
    ),
    (
        "commit_offsets",
        "async (self, assignment, offsets)",
        "repairs",
        "overridden: sent again after the round",
        _COMMIT,
    ),
    (
        "_do_commit_offsets",
        "async (self, assignment, offsets)",
        "repairs",
        "one commit",
        _COMMIT,
    ),
    ("_commit_lock", "set in __init__", "repairs", "one commit at a time", _COMMIT),
    (
        "_retry_backoff_ms",
        "set in __init__",
        "repairs",
        "between two tries of a commit",
        _COMMIT,
    ),
    ("_session_timeout_ms", "set in __init__", "repairs", "how long silence may last", _SILENT),
    ("_closing", "set in __init__", "repairs", "whether the consumer stops", _SILENT),
    (
        "_group_instance_id",
        "set in __init__",
        "repairs",
        "a static member is expected back",
        _LEAVE,
    ),
)

_CLIENT: Final = (
    *rows_of(
        "aiokafka.consumer.fetcher:Fetcher",
        (
            "_records",
            "set in __init__",
            "repairs",
            "the buffers of revoked partitions, and records as they are parsed",
            _FLIGHT,
        ),
        ("_notify", "(self, future)", "repairs", "wakes the fetcher after a change", _FLOWS),
        (
            "_wait_consume_future",
            "set in __init__",
            "repairs",
            "the events that the fetcher waits for",
            _FLOWS,
        ),
        (
            "_fetch_max_wait_ms",
            "set in __init__",
            "repairs",
            "how long a broker may hold a fetch",
            _IDLE,
        ),
        (
            "_get_actions_per_node",
            "(self, assignment)",
            "repairs",
            "overridden: a partition without buffered records is fetched independently of the "
            "other partitions",
            _IDLE,
        ),
        (
            "_update_fetch_positions",
            "async (self, assignment, node_id, tps)",
            "repairs",
            "looks positions up beside the fetches",
            _LOOKED_UP,
        ),
        (
            "_pending_tasks",
            "set in __init__",
            "repairs",
            "further events that the fetcher waits for",
            _LOOKED_UP,
        ),
        (
            "_in_flight",
            "set in __init__",
            "repairs",
            "brokers whose fetch answer is not processed yet",
            _FOLLOWED,
        ),
        (
            "_subscriptions",
            "set in __init__",
            "repairs",
            "the positions of assigned partitions",
            _AT_END,
        ),
        (
            "_isolation_level",
            "set in __init__",
            "repairs",
            "which end of a log is reached",
            _AT_END,
        ),
        (
            "fetched_records",
            "async (self, partitions, timeout=, max_records=)",
            "repairs",
            "overridden: partitions take turns, and one that cannot be read is set aside",
            _TURNS,
        ),
        (
            "_proc_fetch_request",
            "async (self, assignment, node_id, request)",
            "repairs",
            "overridden: refused partitions are set aside; a replay's records stay as parsed",
            _REFUSED,
        ),
        (
            "_set_error",
            "(self, tp, error)",
            "repairs",
            "overridden: a record that was cut off is not passed over",
            _HOLES,
        ),
        ("_create_fetch_waiter", "(self)", "repairs", "waits for records", _HOLES),
        ("_closed", "set in __init__", "repairs", "whether the consumer stops", _HOLES),
    ),
    *rows_of(
        "faust.transport.drivers.aiokafka:AIOKafkaConsumerThread",
        (
            "verify_event_path",
            "(self, now, tp)",
            "repairs",
            "wrapped: paused partitions are not fetched, and do not count as missing",
            _PAUSED,
        ),
    ),
    *rows_of(
        "aiokafka.consumer.subscription_state:SubscriptionState",
        (
            "_notify_assignment_waiters",
            "(self)",
            "repairs",
            "wakes the tasks that wait for an assignment",
            _FLOWS,
        ),
    ),
    *rows_of(
        "aiokafka.consumer.subscription_state:Assignment",
        ("_topic_partitions", "set in __init__", "repairs", "changed in place", _FLOWS),
        ("_tp_state", "set in __init__", "repairs", "changed in place", _FLIGHT),
    ),
    *rows_of(
        "aiokafka.consumer.subscription_state:TopicPartitionState",
        (
            "highwater",
            "set in __init__",
            "repairs",
            "where a log ended at the last fetch",
            _AT_END,
        ),
        ("lso", "set in __init__", "repairs", "the same for committed records", _AT_END),
        (
            "_committed_futs",
            "set in __init__",
            "repairs",
            "answered when the partition is revoked",
            _ASKED,
        ),
    ),
    *rows_of(
        "aiokafka.protocol.group:JoinGroupRequest",
        ("_group_protocols", "set in __init__", "repairs", "the names a member offers", _FLOWS),
    ),
)

COOPERATION: Final[tuple[PrivateApi, ...]] = (
    *_COORDINATOR,
    *_CLIENT,
    *rows_of(
        "faust.app.base:App",
        (
            "_update_assignment",
            "(self, assigned)",
            "repairs",
            "the app knows its partitions",
            _KEPT,
        ),
        (
            "_stop_consumer",
            "async (self)",
            "repairs",
            "wrapped: partitions are handed over first",
            _LEAVE,
        ),
        ("on_rebalance_start", "(self)", "repairs", "sensors hear of a round", _SEEN),
        ("on_rebalance_return", "(self)", "repairs", "sensors hear of its answer", _SEEN),
        ("on_rebalance_end", "(self)", "repairs", "sensors hear that it is over", _SEEN),
    ),
    *rows_of(
        "faust.transport.conductor:Conductor",
        (
            "_subscription_changed",
            "set in __init__",
            "repairs",
            "topics added during a round are subscribed to after it",
            _ADDED,
        ),
        ("_topic_name_index", "set in __init__", "repairs", "the subscribed topics", _ADDED),
    ),
    *rows_of(
        "faust.tables.base:Collection",
        (
            "call_recover_callbacks",
            "async (self)",
            "repairs",
            "called by us: a round does not cancel a callback",
            "tests/integration/app/rebalance/test_kinds_of_tables.py::"
            "test_a_round_during_a_callback_of_on_recover_costs_neither_it_nor_sets",
        ),
    ),
    *rows_of(
        "faust.transport.consumer",
        (
            "CONSUMER_PARTITIONS_ASSIGNED",
            "class attribute",
            "repairs",
            "the state that is shown while partitions are taken on",
            _KEPT,
        ),
    ),
    *rows_of(
        "faust.transport.consumer:Consumer",
        (
            "_set_active_tps",
            "(self, tps)",
            "repairs",
            "the partitions that may be fetched",
            _KEPT,
        ),
        ("_clean_unacked_messages", "(self)", "repairs", "unfinished records", _GOES),
    ),
    *rows_of(
        "faust.transport.consumer:ThreadDelegateConsumer",
        (
            "_method_queue",
            "set in __init__",
            "repairs",
            "from the consumer's thread to the app's",
            _KEPT,
        ),
    ),
    *rows_of(
        "mode.services:Service",
        (
            "_crash_reason",
            "set in __init__",
            "repairs",
            "a crashed worker hands no partitions over",
            _LEAVE,
        ),
    ),
    *rows_of(
        "mode.utils.queues:FlowControlEvent",
        ("_queues", "set in __init__", "repairs", "where records wait", _GOES),
    ),
    *rows_of(
        "mode.utils.queues:ThrowableQueue",
        (
            "_queue",
            "set in _init",
            "repairs",
            "records of partitions that go are taken out",
            _FULL,
        ),
        ("_putters", "set in __init__", "repairs", "the tasks that wait for space", _FULL),
        ("_wakeup_next", "(self, waiters)", "repairs", "there is room", _FULL),
    ),
)
