"""The example's writer, which freezes right before a step if the file of ``--ice`` exists.

python -m tests.support.clients.frozen_writer begin|write|commit --ice FILE ...
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from examples.single_writer import writer


class FrozenProducer(AIOKafkaProducer):  # type: ignore[misc]
    """Stop the process before a step, for example between the permission to write and the write."""

    step, ice = "", Path()

    async def begin_transaction(self) -> None:
        """Begin a transaction after the freeze."""
        self._freeze("begin")
        await super().begin_transaction()

    async def send_and_wait(self, *arguments: Any, **options: Any) -> Any:
        """Send after the freeze."""
        self._freeze("write")
        return await super().send_and_wait(*arguments, **options)

    async def commit_transaction(self) -> None:
        """Commit after the freeze."""
        self._freeze("commit")
        await super().commit_transaction()

    def _freeze(self, step: str) -> None:
        if step == self.step and self.ice.exists():
            print("freezes", flush=True)
            self.ice.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    FrozenProducer.step, FrozenProducer.ice = sys.argv[1], Path(sys.argv[3])
    del sys.argv[1:4]
    writer.AIOKafkaProducer = FrozenProducer
    asyncio.run(writer.main(writer.read_arguments()))
