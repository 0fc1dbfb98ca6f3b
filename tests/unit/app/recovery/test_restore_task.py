"""The threads of a restore, and their stop."""

from __future__ import annotations

import asyncio
import threading

from faust_assigner.app.recovery.restore_task import RestoreThreads
from tests.support.waiting import PATIENCE_S


async def test_a_thread_is_waited_for_after_its_caller_was_cancelled() -> None:
    """It holds a database until it ends, whoever waits for its result."""
    threads, may_end, ended = RestoreThreads(), threading.Event(), list[str]()

    def work() -> None:
        may_end.wait(PATIENCE_S)
        ended.append("ended")

    call = asyncio.ensure_future(threads.run(work))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    waiting = asyncio.ensure_future(threads.stop_and_wait())
    for _ in range(3):
        await asyncio.sleep(0)
    assert (call.cancelled(), waiting.done(), threads.stop_signal()) == (True, False, True)
    may_end.set()
    await waiting
    assert ended == ["ended"]
