"""The example's writer, which freezes itself right before a write, once there is the file of ``--ice``."""

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
    """Stops its process between being told that it may write and the write."""

    ice = Path()

    async def send_and_wait(self, *arguments: Any, **options: Any) -> Any:
        """The write, after the frost."""
        if self.ice.exists():
            print("freezes", flush=True)
            self.ice.unlink()
            os.kill(os.getpid(), signal.SIGSTOP)
        return await super().send_and_wait(*arguments, **options)


if __name__ == "__main__":
    at = sys.argv.index("--ice")
    FrozenProducer.ice = Path(sys.argv[at + 1])
    del sys.argv[at : at + 2]
    writer.AIOKafkaProducer = FrozenProducer
    asyncio.run(writer.main(writer.read_arguments()))
