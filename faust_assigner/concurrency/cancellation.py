"""Tells a cancellation of the running task from a cancellation of the work that it awaits.

Both arrive as ``asyncio.CancelledError``. Only a cancellation of the task itself must end the task.
"""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Return whether the running task itself was cancelled; False outside of a task."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
