"""Commits during a rebalance round, and the variable that marks commits and heartbeats during a round.

The answers to marked requests do not affect the round. A round is the member's part in one rebalance, from
JoinGroup to the answer to SyncGroup.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.consumer.group_coordinator import GroupCoordinator
from mode import get_logger

if TYPE_CHECKING:
    from aiokafka.consumer.subscription_state import Assignment
    from faust.types.tuples import TP

    from faust_assigner.app.membership.cooperative_member import CooperativeMember

logger = get_logger(__name__)

#: The generation in which the current task commits or sends a heartbeat during a round; None otherwise.
BESIDE: ContextVar[int | None] = ContextVar("beside", default=None)
#: Seconds between two attempts to commit, as in aiokafka.
RETRY_S = 0.1


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether to log a line of aiokafka.

    aiokafka logs "will rejoin" after a refused commit or heartbeat. During a round the member does not
    rejoin.
    """
    return BESIDE.get() is None or not str(record.msg).endswith(
        ("will rejoin", "because it is rebalancing")
    )


logging.getLogger(GroupCoordinator.__module__).addFilter(_is_worth_logging)


async def commit(
    coordinator: GroupCoordinator,
    member: CooperativeMember,
    assignment: Assignment,
    offsets: Mapping[TP, object],
) -> None:
    """Commit; if a round interrupts the commit, repeat it after the round for partitions still owned.

    Raises CommitFailedError if this worker is no longer a member, and aiokafka's errors that cannot be
    retried.
    """
    while offsets:
        await coordinator.ensure_coordinator_known()
        # Check after the lookup: it may take as long as the broker is away.
        if member.lost or member.must_skip_records():
            raise errors.CommitFailedError("Could not commit: the group has already rebalanced")
        generation = coordinator.generation
        try:
            await _commit_once(coordinator, member, assignment, offsets)
            return
        except (
            errors.UnknownMemberIdError,
            errors.IllegalGenerationError,
            errors.RebalanceInProgressError,
        ) as error:
            under_way = member.round
            if member.lost or (under_way is None and generation == coordinator.generation):
                logger.warning(
                    "The group has rebalanced without this worker, so the commit is dropped: %s",
                    error,
                )
                raise errors.CommitFailedError("The group has already rebalanced") from error
            if under_way is not None:
                await asyncio.shield(under_way)
            offsets = {tp: offset for tp, offset in offsets.items() if tp in assignment.tps}
        except errors.KafkaError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(RETRY_S)


async def _commit_once(
    coordinator: GroupCoordinator,
    member: CooperativeMember,
    assignment: object,
    offsets: Mapping[TP, object],
) -> None:
    async with member.committing:
        await asyncio.shield(_commit_without_effect(coordinator, assignment, offsets))


async def _commit_without_effect(
    coordinator: GroupCoordinator, assignment: object, offsets: Mapping[TP, object]
) -> None:
    """Commit once, marked by ``BESIDE``, so that a refused commit does not affect the round."""
    BESIDE.set(coordinator.generation)
    await coordinator._do_commit_offsets(assignment, offsets)
