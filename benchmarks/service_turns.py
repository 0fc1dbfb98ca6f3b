"""Measure the event loop of a service instance with a large group: its longest turns, in processor time.

    python -m benchmarks.service_turns [--sizes 20000x300,100000x1000] [--part 15]

A size is PARTITIONSxCONSUMERS. An instance with its state in memory runs a group's life in this process:
all consumers register and get their partitions, a rest follows, all register again, a consumer dies, a
consumer joins. For each part the benchmark prints the loop's longest turn: the milliseconds of processor time
of a single callback, during which the instance answers no request. Other threads and processes do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
from asyncio import events
from collections.abc import Sequence

from benchmarks.workers.turns import measured
from faust_assigner.service.commands import Command
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.records import HEARTBEATS, Consumer
from faust_assigner.service.server.convert import messages_of
from faust_assigner.service.serving.registry import Stream
from faust_assigner.service.store.base import Compare, TxnResult, Write
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.settings.service import ServiceSettings

TOPICS = 10
AT_ONCE = 50
#: Seconds of a part: enough for a debounce, a plan of 100,000 partitions and the following listing.
PART_S = 15.0


class Store(MemoryStore):
    """A store with a short delay before each transaction, like etcd; the loop continues meanwhile."""

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> TxnResult:
        """Run the transaction after the delay."""
        await asyncio.sleep(0.0005)
        return await super().txn(compares, writes)


class Turns:
    """The longest turn since the last reading, in seconds of this thread's processor time."""

    def __init__(self) -> None:
        self._longest = 0.0

    def heard(self, handle: events.Handle, took_s: float) -> None:
        """Record a turn."""
        self._longest = max(self._longest, took_s)

    def look(self) -> str:
        """Return the longest turn and start a new measurement."""
        longest, self._longest = self._longest, 0.0
        return f"{1000 * longest:.0f} ms"


class Group:
    """The consumers of a size as streams of a single node; they read all commands."""

    def __init__(self, node: AssignerNode, partitions: int, consumers: int) -> None:
        self._node = node
        self._partitions = partitions
        self._names = [f"c{number:05}" for number in range(consumers)]
        self._reading: list[asyncio.Task[None]] = []

    async def join(self, names: Sequence[str]) -> None:
        """Register the consumers, AT_ONCE at a time."""
        for start in range(0, len(names), AT_ONCE):
            streams = await asyncio.gather(*map(self._one, names[start : start + AT_ONCE]))
            self._reading += [asyncio.create_task(_read(stream)) for stream in streams]

    async def _one(self, name: str) -> Stream:
        consumer = Consumer(name=name, incarnation=f"{name}-1", capabilities=(HEARTBEATS,))
        return await self._node.register(consumer)

    async def play(self, turns: Turns, part_s: float) -> list[str]:
        """Play the parts of a group's life; return the longest turn of each part."""
        view = self._node._mirror.view
        said = []
        await self.join(self._names)
        while len(view.assignments) < self._partitions:
            await asyncio.sleep(0.1)
        said.append(f"all join {turns.look()}")
        await asyncio.sleep(part_s)
        said.append(f"rest {turns.look()}")
        await self.join(self._names)
        await asyncio.sleep(part_s / 15)
        said.append(f"all register again {turns.look()}")
        await self._node._mirror._store.revoke(view.consumers[self._names[0]].kv.lease)
        await asyncio.sleep(part_s / 3)
        said.append(f"one dies {turns.look()}")
        await self.join(["new"])
        await asyncio.sleep(part_s / 3)
        said.append(f"one joins {turns.look()}")
        return said

    async def end(self) -> None:
        """Stop reading."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)


async def _read(stream: Stream) -> None:
    command: Command
    async for command in stream:
        for _ in messages_of(command):
            await asyncio.sleep(0)


async def measure(partitions: int, consumers: int, part_s: float) -> None:
    """Measure a size and print its turns."""
    topics = {f"topic-{number}": partitions // TOPICS for number in range(TOPICS)}
    # Consumers send no heartbeats: their sessions must last for the whole run.
    settings = ServiceSettings(consumer_ttl_s=3_600.0, consumer_keepalive_s=600.0)
    store, turns = Store(), Turns()
    node = AssignerNode(store, settings, node_id="one", topics=topics)
    await node.start()
    group = Group(node, partitions, consumers)
    try:
        with measured(turns.heard):
            said = await group.play(turns, part_s)
    finally:
        await group.end()
        await node.stop()
        await store.close()
    print(f"{partitions} partitions, {consumers} consumers, longest turns: {', '.join(said)}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", default="20000x300,100000x1000")
    parser.add_argument("--part", type=float, default=PART_S, help="seconds of each part")
    said = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    for size in said.sizes.split(","):
        partitions, consumers = map(int, size.split("x"))
        asyncio.run(measure(partitions, consumers, said.part))
        gc.unfreeze()
        gc.collect()


if __name__ == "__main__":
    main()
