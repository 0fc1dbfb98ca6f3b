"""The periodic chores of a broker: retention, expiry of offsets and transactional ids, compaction."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from typing import Protocol

from faust_assigner.broker.compaction import Compaction, Host
from faust_assigner.broker.groups import GroupService
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.throttle import HandlerQueue, Throttle
from faust_assigner.broker.transactions import TransactionService
from faust_assigner.coordinator.classic import ClassicGroup
from faust_assigner.coordinator.effects import Reply
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import DeleteGroup

logger = logging.getLogger(__name__)


class Broker(Host, Protocol):
    """The part of the broker that the chores use."""

    settings: Settings
    line: HandlerQueue
    groups: GroupService
    transactions: TransactionService
    compaction: Compaction


def start_chores(broker: Broker, loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[None]]:
    """Start the chores of a broker, each at the interval of its own setting."""
    settings = broker.settings
    retention_ms = settings.log_retention_check_interval_ms
    expiry_ms = settings.offsets_retention_check_interval_ms
    return [
        loop.create_task(broker.compaction.run(settings.log_cleaner_backoff_ms)),
        loop.create_task(repeat(broker.line, retention_ms, lambda: retain(broker))),
        loop.create_task(repeat(broker.line, expiry_ms, lambda: expire(broker))),
    ]


async def repeat(line: HandlerQueue, interval_ms: int, chore: Callable[[], Iterator[int]]) -> None:
    """Run a chore at an interval, in slices between other work; log a failure and retry later."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            throttle = Throttle(line, timeout_s=math.inf)
            for _ in chore():
                await throttle.checkpoint()
        except StoreFailed as error:
            logger.error(
                "housekeeping (retention and expiry) failed; the broker tries again later: %s",
                error,
            )
        except Exception:
            logger.exception(
                "a bug in this broker stopped the housekeeping (retention and expiry); the broker "
                "tries again later"
            )
        finally:
            throttle.end()


async def drop_topic_offsets(broker: Broker, topic: str) -> None:
    """Delete the committed offsets of a deleted topic, in slices between other work."""
    throttle = Throttle(broker.line, timeout_s=math.inf)
    try:
        for _ in broker.groups.books.topic_deleted(topic):
            await throttle.checkpoint()
    finally:
        throttle.end()


def retain(broker: Broker) -> Iterator[int]:
    """Delete batches past retention.ms or over retention.bytes if cleanup.policy has 'delete'.

    Forgets idle producers, too. Yields the number of deleted records of each partition.
    """
    now = broker.clock()
    for topic in list(broker.catalogue):
        deletes = "delete" in broker.config(topic, "cleanup.policy")
        retention_ms = int(broker.config(topic, "retention.ms"))
        retention_bytes = int(broker.config(topic, "retention.bytes"))
        for log in topic.partitions:
            log.expire_producers(now - broker.settings.producer_id_expiration_ms)
            gone = 0
            if deletes and not log.deleted:
                gone = log.retain(now, retention_ms=retention_ms, retention_bytes=retention_bytes)
                broker.counters["records_deleted"] += gone
            yield gone
    broker.space.freed()


def expire(broker: Broker) -> Iterator[int]:
    """Apply offsets.retention.minutes, and forget idle transactional ids; yield the expired offsets."""
    yield from expire_offsets(broker.groups, broker.settings.offsets_retention_minutes * 60_000)
    for _ in broker.transactions.expire(broker.settings.transactional_id_expiration_ms):
        yield 0


def expire_offsets(groups: GroupService, retention_ms: int) -> Iterator[int]:
    """Delete expired offsets (KIP-211); yield the number for each group.

    Empty groups that have no offsets are deleted, too. Raises StoreFailed.
    """
    for group_id in [group.group_id for group in groups]:
        # Between two yields the caller serves requests, which may replace or delete this group.
        group = groups.get(group_id)
        if group is None:
            continue
        expired = groups.books.expire(group, retention_ms)
        waited_for = isinstance(group, ClassicGroup) and group.roster.pending
        has_any = groups.books.has_any(group.group_id)
        if group.state_name == "Empty" and not has_any and not waited_for:
            replies: list[Reply] = []
            groups.ask(group.group_id, DeleteGroup, replies.append)
            if replies[0].error is Code.NOT_COORDINATOR:
                raise StoreFailed(f"the empty group {group.group_id} is not deleted")
        yield len(expired)
