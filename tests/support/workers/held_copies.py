"""The worker process under test; the file ``hold-copies`` in its folder stops its standbys."""

from __future__ import annotations

import asyncio

from tests.support.workers.app import JOURNAL
from tests.support.workers.measured import app

HOLD = "hold-copies"


@app.task
async def hold_copies() -> None:
    """Fetch no record for standbys; owned partitions continue."""
    while not app.should_stop:
        if (JOURNAL.parent / HOLD).exists():
            app.consumer.pause_partitions(set(app.assignor.assigned_standbys()))
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    app.main()
