"""The hand-over of a stopping worker: it processes its partitions until their new owners take over.

The worker announces its leave in a rebalance that it requests. The leader assigns the worker's
partitions to other members, preferably to members with a copy of their tables. Then the worker
revokes its partitions and leaves, and the second rebalance assigns them to the new owners. The
partitions pause only between these two steps. The hand-over has a time limit, the setting
``LEAVE_S``. A static member does not hand over, because it is expected to return. To retire a
static member, an operator creates the file of the setting ``RETIRE_FILE`` before the stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from mode import get_logger

from faust_assigner.app.host.group_member import coordinator_of
from faust_assigner.app.membership.coordinator import CooperativeCoordinator
from faust_assigner.app.settings import read_or_default
from faust_assigner.settings.table import LEAVE_S, RETIRE_FILE
from faust_assigner.wire.join import COOPERATIVE

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.transports import ConsumerT

logger = get_logger(__name__)

MARK = "_faust_assigner_leave"
#: The default name of the file that retires a static member, in the app's data directory.
RETIRE = "retire"


def install(app: AppT) -> None:
    """Make ``app`` hand over its partitions before it stops its consumer; a second call has no effect."""
    if not getattr(app, MARK, False):
        setattr(app, MARK, True)
        app._stop_consumer = partial(stop, app, app._stop_consumer)


async def stop(app: AppT, stop_consumer: Callable[[], Awaitable[None]]) -> None:
    """Hand over if possible, for up to the seconds of ``LEAVE_S``; then stop the consumer as Faust does."""
    retires = is_to_retire(app)
    try:
        await hand_over(app, read_or_default(app, LEAVE_S), retires=retires)
    except Exception:
        logger.exception(
            "The hand-over failed; the partitions are reassigned when this worker exits"
        )
    if retires:
        _send_leave_on_close(app)  # even if no other member took over in time
    if (rounds := getattr(app._consumer, "rounds", None)) is not None:
        rounds.end()  # during a rebalance, Faust's fetcher would otherwise treat the stop as a crash
    try:
        await stop_consumer()
    except Exception:
        # Do not raise: the app's next steps end the consumer's thread, and so this worker's membership.
        logger.exception(
            "Could not commit the last processed records; the next owner processes them again"
        )


def is_to_retire(app: AppT) -> bool:
    """Return whether an operator retires this static member; remove the file that requests this."""
    if not app.conf.consumer_group_instance_id:
        return False
    path = read_or_default(app, RETIRE_FILE) or Path(app.conf.appdir) / RETIRE
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        logger.warning("Could not remove the file %s: %s", path, error)
        if not path.is_file():
            return False
    logger.info(
        "Static member %s leaves the group because the file %s exists: it hands its partitions "
        "over first",
        app.conf.consumer_group_instance_id,
        path,
    )
    return True


def _send_leave_on_close(app: AppT) -> None:
    """Make the consumer send LeaveGroup when it closes; aiokafka sends none for a static member."""
    coordinator = coordinator_of(app._consumer)
    if coordinator is not None:
        coordinator._group_instance_id = None


async def hand_over(app: AppT, seconds: float, *, retires: bool = False) -> bool:
    """Hand all partitions over; return whether they all moved within ``seconds``.

    A static member hands over only if it ``retires``.
    """
    consumer = app._consumer
    if (
        seconds <= 0
        or consumer is None
        or not isinstance(getattr(consumer, "left", None), asyncio.Event)
    ):
        return False
    thread = consumer._thread
    if thread.should_stop or not app.tables.recovery.is_flowing or app.crash_reason is not None:
        return False
    began = monotonic()
    try:
        async with asyncio.timeout(seconds):
            if not await thread.call_thread(_ask, app, thread._consumer, retires):
                return False
            await consumer.left.wait()
        if app.assignor.assigned_actives():
            return False
        if retires:
            _send_leave_on_close(app)
        await consumer.leave_group()
    except TimeoutError:
        logger.warning(
            "Hand-over timed out after %.0f s (FAUST_ASSIGNER_LEAVE_S); the partitions are "
            "reassigned "
            "when this worker exits",
            seconds,
        )
        return False
    finally:
        app.assignor.leaves = False
    logger.info("Handed all partitions over in %.1f s", monotonic() - began)
    return True


async def _ask(app: AppT, consumer: ConsumerT, retires: bool) -> bool:
    """Request the rebalance that moves all partitions; return False if this member cannot hand over.

    Runs on the consumer's thread.
    """
    coordinator = consumer._coordinator
    if not isinstance(coordinator, CooperativeCoordinator) or (
        coordinator._group_instance_id is not None and not retires
    ):
        return False
    member = coordinator.membership
    if member.chosen != COOPERATIVE or member.lost or member.gave_up:
        return False
    app.assignor.leaves = True
    coordinator.request_rejoin()
    return True
