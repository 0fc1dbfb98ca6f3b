"""The worker of ``app.py``, which a test can hold at a place within a cooperative round.

While a file with the place's name is in the folder ``hold`` beside the workers' own, a worker that
reaches the place writes a line to its journal and waits until the file is removed:

    {"kind": "held", "place": "letting go"}
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest

from faust_assigner.app.membership.coordinator import CooperativeCoordinator
from faust_assigner.app.rebalance.consumer import RepairedConsumer
from faust_assigner.app.recovery.actives import ActiveRestore
from tests.support.workers.app import JOURNAL, app, journal
from tests.support.workers.places import BETWEEN, JOINED, LETTING_GO, RESTORING

HOLD = JOURNAL.parent.parent / "hold"


async def hold(place: str) -> None:
    """Wait here while the test requires it."""
    if (HOLD / place).exists():
        journal.write("held", place=place)
        while (HOLD / place).exists():
            await asyncio.sleep(0.005)


def holding(method: Callable[..., Awaitable[Any]], place: Callable[..., str | None]) -> Any:
    """Return ``method``, held before its start at the place that ``place`` returns for it."""

    async def held(*args: Any, **kwargs: Any) -> Any:
        if (at := place(*args, **kwargs)) is not None:
            await hold(at)
        return await method(*args, **kwargs)

    return held


def before_request(coordinator: Any, request: Any) -> str | None:
    """Return the place before a request that starts the second half of a round, or None."""
    if isinstance(request, SyncGroupRequest):
        return JOINED
    if isinstance(request, JoinGroupRequest) and vars(coordinator).pop("is_between", False):
        return BETWEEN
    return None


def before_answer(coordinator: Any, assignment: Any, generation: int) -> None:
    """Note whether another round follows this answer."""
    coordinator.is_between = coordinator.membership.assignor.is_followed(assignment)


def before_commit(consumer: Any, *args: Any, **kwargs: Any) -> str | None:
    """Return the place before a commit during a revocation, or None."""
    return LETTING_GO if consumer.leaving else None


def make_holdable() -> None:
    """Make every place holdable."""
    coordinator, consumer = CooperativeCoordinator, RepairedConsumer
    coordinator._send_req = holding(coordinator._send_req, before_request)  # type: ignore[method-assign]
    coordinator._take = holding(coordinator._take, before_answer)  # type: ignore[method-assign]
    ActiveRestore.restore = holding(  # type: ignore[method-assign]
        ActiveRestore.restore, lambda _, pending: RESTORING if pending else None
    )

    async def commit(self: Any, *args: Any, **kwargs: Any) -> Any:
        if (at := before_commit(self)) is not None:
            await hold(at)
        return await super(RepairedConsumer, self).commit(*args, **kwargs)

    consumer.commit = commit  # type: ignore[method-assign]


if __name__ == "__main__":
    make_holdable()
    app.main()
