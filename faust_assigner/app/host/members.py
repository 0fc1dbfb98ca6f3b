"""The aiokafka names that replaced members and long idle members use; see ``private_apis.py``."""

from __future__ import annotations

from typing import Final

from faust_assigner.app.host.private_api import PrivateApi, rows_of

_IDLE = (
    "tests/integration/app/membership/test_idle.py::"
    "test_a_member_that_was_idle_for_too_long_comes_back"
)
_FENCED = (
    "tests/integration/app/transactions/test_transactions.py::"
    "test_a_worker_whose_producer_was_fenced_joins_again"
)
_REPLACED = (
    "tests/integration/app/membership/test_instance.py::"
    "test_a_replaced_member_ends_at_its_next_heartbeat"
)

MEMBERS: Final[tuple[PrivateApi, ...]] = (
    *rows_of(
        "aiokafka.consumer.group_coordinator:GroupCoordinator",
        (
            "_maybe_leave_group",
            "async (self)",
            "repairs",
            "replaced: a member reports why it leaves; a member without partitions is not idle",
            _IDLE,
        ),
        (
            "_max_poll_interval",
            "set in __init__",
            "repairs",
            "how long a member may take no records",
            _IDLE,
        ),
    ),
    *rows_of(
        "aiokafka.consumer.subscription_state:SubscriptionState",
        (
            "_fetch_count",
            "set in __init__",
            "repairs",
            "whether records are being taken",
            _IDLE,
        ),
        (
            "_last_fetch_ended",
            "set in __init__",
            "repairs",
            "set to now: a member without partitions is not idle",
            _IDLE,
        ),
    ),
    *rows_of(
        "aiokafka.producer.transaction_manager:TransactionManager",
        (
            "_transaction_waiter",
            "set in __init__",
            "repairs",
            "why a producer can send no more",
            _FENCED,
        ),
    ),
    *rows_of(
        "aiokafka.protocol.group:JoinGroupRequest",
        ("_member_id", "set in __init__", "repairs", "whether it joins as a new member", _REPLACED),
    ),
)
