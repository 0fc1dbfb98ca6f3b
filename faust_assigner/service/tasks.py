"""Helpers that cancel asyncio tasks and wait for their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

logger = logging.getLogger(__name__)


async def cancel_and_wait(task: asyncio.Task[object]) -> None:
    """Cancel the task, wait for its end, and log its exception if it failed."""
    task.cancel()
    while not task.done():
        await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s failed", task.get_name(), exc_info=error)


async def first(*works: Coroutine[object, None, object]) -> None:
    """Run the coroutines until the first of them ends, then cancel the other coroutines."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            await cancel_and_wait(task)
