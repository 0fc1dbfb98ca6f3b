"""A bounded leave: a worker that is stopped goes on processing until others are to take over.

It says so in a round of its own; what it has is given to the others, copies first. Then it lets go, leaves,
and the second round hands everything over: partitions stand still for that moment, not for as long as it
takes the others to notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import Any

from mode import get_logger

from faust_assigner.app.cooperative.coordinator import CooperativeCoordinator
from faust_assigner.app.settings import read_or_default
from faust_assigner.settings.table import LEAVE_S
from faust_assigner.wire.join import COOPERATIVE

logger = get_logger(__name__)

MARK = "_faust_assigner_leave"


def install(app: Any) -> None:
    """Have ``app`` hand over before it stops its consumer."""
    if not getattr(app, MARK, False):
        setattr(app, MARK, True)
        app._stop_consumer = partial(stop, app, app._stop_consumer)


async def stop(app: Any, stop_consumer: Callable[[], Awaitable[None]]) -> None:
    """Hand over if that is possible, for a few seconds; then stop as Faust does."""
    try:
        await hand_over(app, read_or_default(app, LEAVE_S))
    except Exception:
        logger.exception(
            "Partitions are not handed over, the others take them when this worker is gone"
        )
    await stop_consumer()


async def hand_over(app: Any, seconds: float) -> bool:
    """Whether everything was given away within ``seconds``."""
    consumer = app._consumer
    if (
        seconds <= 0
        or consumer is None
        or not isinstance(getattr(consumer, "left", None), asyncio.Event)
    ):
        return False
    thread = consumer._thread
    if thread.should_stop or not app.tables.recovery.is_flowing or app._crash_reason is not None:
        return False
    began = monotonic()
    if not await thread.call_thread(_ask, app, thread._consumer):
        return False
    try:
        async with asyncio.timeout(seconds):
            await consumer.left.wait()
        if app.assignor.assigned_actives():
            return False
        await consumer.leave_group()
    except TimeoutError:
        logger.warning(
            "The others did not take over within %.0f s; they do when it is gone", seconds
        )
        return False
    finally:
        app.assignor.leaves = False
    logger.info("Handed everything over in %.1f s", monotonic() - began)
    return True


async def _ask(app: Any, consumer: Any) -> bool:
    """On the consumer's thread: ask for the round that gives everything away; False where there is none."""
    coordinator = consumer._coordinator
    if (
        not isinstance(coordinator, CooperativeCoordinator)
        or coordinator._group_instance_id is not None
    ):
        return False
    member = coordinator.membership
    if member.chosen != COOPERATIVE or member.lost or member.gave_up:
        return False
    app.assignor.leaves = True
    coordinator.request_rejoin()
    return True
