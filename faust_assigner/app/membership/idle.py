"""Rejoining: a worker returns to the group after an idle time longer than ``broker_max_poll_interval``.

The idle time is the time in which the worker takes no records. After the interval aiokafka leaves the group,
so that other members get the partitions, and joins again at the next fetch. Faust does not fetch without
partitions, so such a worker never joined again. aiokafka also treats a worker without assigned partitions as
idle, so this worker left the group repeatedly. With this module such a worker stays in the group.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError
from mode import get_logger

from faust_assigner.app.membership.leave_request import IDLE, STOPS, LeaveGroup

if TYPE_CHECKING:
    from aiokafka.consumer.group_coordinator import GroupCoordinator
    from faust.types.transports import ConsumerT

logger = get_logger(__name__)


def rejoin_after_idle(consumer: ConsumerT, max_poll_s: float) -> None:
    """Make ``consumer`` join again after a long idle time; ``max_poll_s``: broker_max_poll_interval.

    The consumer has been started and has no subscription yet.
    """
    coordinator = consumer._coordinator
    if hasattr(coordinator, "_maybe_leave_group"):
        coordinator._maybe_leave_group = partial(_leave, coordinator, max_poll_s)
        coordinator._stop_heartbeat_task = partial(_stop_heartbeat_task, coordinator)


async def _leave(coordinator: GroupCoordinator, max_poll_s: float) -> None:
    """Leave the group, with the reason that the consumer stops or was idle for too long.

    An idle member without partitions does not leave. A static member sends no LeaveGroup.
    """
    reason = STOPS
    if not coordinator._closing.done():
        reason = IDLE
        if not coordinator._subscription.assigned_partitions():
            _reset_idle_time(coordinator)
            return  # without partitions there are no records to take
        logger.error(
            "No records were taken for %.1f s, and broker_max_poll_interval is %.1f s: this "
            "worker leaves the group, and other members get its partitions. It joins again when "
            "its agents have processed the records in progress. If a record always takes longer "
            "than this interval, it is never committed: raise broker_max_poll_interval, or do not "
            "block the event loop",
            coordinator._subscription.fetcher_idle_time,
            max_poll_s,
        )
    # A member that waits for its first answer has no generation yet, but the group knows its id.
    if coordinator.member_id and coordinator._group_instance_id is None:
        await _send_leave_group(coordinator, reason)
    coordinator.reset_generation()


async def _send_leave_group(coordinator: GroupCoordinator, reason: str) -> None:
    """Send LeaveGroup once; if it fails, the group removes the member after the session timeout."""
    try:
        await coordinator._send_req(LeaveGroup(coordinator.group_id, coordinator.member_id, reason))
    except KafkaError as error:
        logger.error("LeaveGroup request failed: %s", error)
    else:
        logger.info("LeaveGroup request succeeded: %s", reason)


async def _stop_heartbeat_task(coordinator: GroupCoordinator) -> None:
    """Stop heartbeats before a join; restart the idle time unless the member keeps its partitions."""
    await type(coordinator)._stop_heartbeat_task(coordinator)
    membership = getattr(coordinator, "membership", None)
    has_something = bool(coordinator._subscription.assigned_partitions())
    if membership is None or membership.gave_up or not has_something:
        _reset_idle_time(coordinator)


def _reset_idle_time(coordinator: GroupCoordinator) -> None:
    """Set the idle time to zero; during a fetch this has no effect, because there is no idle time."""
    with coordinator._subscription.fetch_context():
        pass  # aiokafka counts the idle time from the end of the last fetch, which is now
