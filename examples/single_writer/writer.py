"""A member of a group with a single writer: ``python -m examples.single_writer.writer --name a``.

The group elects the writer: the current writer, else the first member by id. An election alone does not
exclude a second writer: a frozen process may not know its successor. With ``--fence transactions`` all
members share a transactional id; a new writer's first use of the id fences the previous writer. On a broker
without transactions (``--fence generation``) the writer asks the coordinator before each record, and adds
the generation of its election to the record. A writer that freezes between the answer and the write still
writes a single late record; readers with ``reader.Turns`` drop it.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Mapping
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced

from examples.single_writer.reader import GENERATION
from faust_assigner.clients import GroupMember, NotInGroup, Share

WRITES, WAITS = b"writes", b"waits"


class OneWriter:
    """The strategy: a single member writes, the rest wait."""

    name = "one-writer"

    def __init__(self) -> None:
        self.writing = False

    def metadata(self) -> bytes:
        """Encode whether this member writes now."""
        return WRITES if self.writing else WAITS

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Choose the current writer, else the first member by id."""
        writers = [member_id for member_id, said in members.items() if said == WRITES]
        chosen = min(writers or members)
        return {member_id: WRITES if member_id == chosen else WAITS for member_id in members}


class Writer:
    """The work: send records with this process's name while this member is the writer."""

    def __init__(self, options: argparse.Namespace, strategy: OneWriter) -> None:
        self.options = options
        self.strategy = strategy
        self.member: GroupMember | None = None

    async def on_assigned(self, share: Share) -> None:
        """Write if this member is elected."""
        self.strategy.writing = share.state == WRITES
        print(
            f"{self.options.name}: generation {share.generation}, {share.state.decode()}",
            flush=True,
        )
        if not self.strategy.writing:
            return
        fenced = self.options.fence == "transactions"
        producer = AIOKafkaProducer(
            bootstrap_servers=self.options.bootstrap,
            transaction_timeout_ms=5_000,
            **({"transactional_id": f"{self.options.group}-writer"} if fenced else {}),
        )
        try:
            async with producer:
                await (
                    self._write_fenced(producer) if fenced else self._write_checked(producer, share)
                )
        except (ProducerFenced, NotInGroup) as reason:
            print(f"{self.options.name}: fenced ({type(reason).__name__})", flush=True)
            await producer.client.close()  # a fenced producer raises again during stop()
            self.strategy.writing = False
            assert self.member is not None
            self.member.rejoin()

    async def _write_fenced(self, producer: Any) -> None:
        while True:
            async with producer.transaction():
                await producer.send_and_wait(self.options.topic, self.options.name.encode())
            await asyncio.sleep(self.options.pause)

    async def _write_checked(self, producer: Any, share: Share) -> None:
        assert self.member is not None
        headers = [(GENERATION, str(share.generation).encode())]
        while True:
            await self.member.check()
            await producer.send_and_wait(
                self.options.topic, self.options.name.encode(), headers=headers
            )
            await asyncio.sleep(self.options.pause)

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """Stop writing if this member was removed; a rebalance alone does not revoke the right to write."""
        if lost:
            self.strategy.writing = False
            print(f"{self.options.name} is no longer in the group", flush=True)

    async def on_failed(self, reason: str) -> None:
        """Print that the leader's strategy raised an error."""
        print(f"{self.options.name}: no round: {reason}", flush=True)


async def main(options: argparse.Namespace) -> None:
    """Run until SIGTERM or Ctrl-C."""
    strategy = OneWriter()
    writer = Writer(options, strategy)
    member = writer.member = GroupMember(
        options.group,
        protocol_type="single-writer",
        strategies=[strategy],
        work=writer,
        session_timeout_s=options.session,
        heartbeat_interval_s=options.session / 20,
        bootstrap_servers=options.bootstrap,
    )
    async with member:
        ends = asyncio.create_task(member.wait())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ends.cancel)
        try:
            await ends
        except asyncio.CancelledError:
            print(f"{options.name}: leaves", flush=True)


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="One writer among several.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--group", default="writers")
    parser.add_argument("--topic", default="written")
    parser.add_argument("--fence", choices=("transactions", "generation"), default="transactions")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between records")
    parser.add_argument(
        "--session", type=float, default=6.0, help="seconds until a silent one is replaced"
    )
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(read_arguments()))
