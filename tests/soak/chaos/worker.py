"""A consumer process that writes to the sink; SIGUSR1 stops it between ``may_work()`` and a write.

    python -m tests.soak.chaos.worker TARGETS NAME NUMBER SINK_PORT

The first line has its name and number; the second is ``registered``, sent after the registration. A
write is a line ``partition epoch checked``. On SIGTERM the consumer leaves. Exit code 3: the
service replaced the process; 4: the service expelled the process.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time

from faust_assigner.service.errors import Expelled, Replaced
from tests.support.assigning.instances import Consumer

REPLACED, EXPELLED = 3, 4
EVERY_S = 0.1


class Pause:
    """Whether the process shall stop itself before its next write."""

    def __init__(self) -> None:
        self.is_wanted = False

    def want(self) -> None:
        """Request a stop at the next write."""
        self.is_wanted = True

    def take(self) -> None:
        """Stop here if requested, until SIGCONT."""
        if self.is_wanted:
            self.is_wanted = False
            os.kill(os.getpid(), signal.SIGSTOP)


async def live(targets: str, name: str, number: int, sink_port: int) -> int:
    """Write until the service or a signal ends the process; return the exit code."""
    chance, pause, loop = random.Random(f"{name}-{number}"), Pause(), asyncio.get_running_loop()
    consumer = Consumer(
        targets.split(","), name, warm_s=chance.uniform(0, 1), release_s=chance.uniform(0, 0.5)
    ).start()
    leaving: list[asyncio.Task[None]] = []
    loop.add_signal_handler(signal.SIGUSR1, pause.want)
    loop.add_signal_handler(
        signal.SIGTERM, lambda: leaving.append(loop.create_task(consumer.leave()))
    )
    assert consumer.task is not None
    # From the first line on, signals have their intended effect.
    _, sink = await asyncio.open_connection("127.0.0.1", sink_port)
    sink.write(f"{name} {number}\n".encode())
    while not (consumer.task.done() or consumer.client.streams):
        await asyncio.wait((consumer.task,), timeout=EVERY_S)
    sink.write(b"registered\n")
    while not consumer.task.done():
        for partition, epoch in list(consumer.working.items()):
            if consumer.client.may_work(partition):
                checked = time.monotonic()
                pause.take()
                sink.write(f"{partition.partition} {epoch} {checked:.4f}\n".encode())
        await asyncio.wait((consumer.task,), timeout=EVERY_S)
    await asyncio.gather(*leaving, return_exceptions=True)
    await sink.drain()
    sink.close()
    try:
        consumer.task.result()
    except Replaced as error:
        print(error)
        return REPLACED
    except Expelled as error:
        print(error)
        return EXPELLED
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(live(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
