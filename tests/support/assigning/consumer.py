"""A consumer as a process, for tests that stop and kill it: it writes its work to a journal.

    python -m tests.support.assigning.consumer TARGETS NAME JOURNAL

A line is ``time partition epoch``: a line per partition that the consumer may work on, every 20 ms.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from tests.support.assigning.instances import Consumer


async def live(targets: str, name: str, journal: Path) -> None:
    """Work until the service or a signal ends the consumer."""
    consumer = Consumer(targets.split(","), name).start()
    assert consumer.task is not None
    with journal.open("a", buffering=1) as out:
        while not consumer.task.done():
            for partition, epoch in list(consumer.working.items()):
                if consumer.client.may_work(partition):
                    out.write(f"{time.time():.6f} {partition} {epoch}\n")
            await asyncio.sleep(0.02)
    consumer.task.result()


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
