"""Unit tests of the question whether the running task itself was cancelled."""

from __future__ import annotations

import asyncio

import pytest

from faust_assigner.concurrency.cancellation import is_cancelled


async def _seen_by_the_task(*, cancels_task: bool) -> bool:
    """Return the answer of a task whose wait ends with CancelledError."""
    loop = asyncio.get_running_loop()
    work: asyncio.Future[None] = loop.create_future()

    async def wait() -> bool:
        with pytest.raises(asyncio.CancelledError):
            await work
        return is_cancelled()

    task = loop.create_task(wait())
    await asyncio.sleep(0)
    (task if cancels_task else work).cancel()
    return await task


async def test_a_cancelled_task_is_cancelled() -> None:
    """A cancellation of the task counts."""
    assert await _seen_by_the_task(cancels_task=True)


async def test_a_task_whose_work_is_cancelled_is_not() -> None:
    """A cancellation of the awaited work alone does not count."""
    assert not await _seen_by_the_task(cancels_task=False)


async def test_no_task_is_not_cancelled() -> None:
    """A callback of the event loop, which is no task, is not cancelled."""
    answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: answered.set_result(is_cancelled()))
    assert not await answered
