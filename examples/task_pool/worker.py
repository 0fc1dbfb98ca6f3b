"""A worker of a pool: ``python -m examples.task_pool.worker --name a --tasks mail,index,clean``.

The leader assigns the tasks with the planner for partitions: task counts differ by at most 1, and a task
moves only for balance. Each printed line is an event of a task; the lines show that no task runs twice.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from collections.abc import Mapping

from faust_assigner import Member, plan
from faust_assigner.clients import GroupMember, Share
from faust_assigner.clients.user_data import (
    Answer,
    UserData,
    decode_answer,
    decode_user_data,
    encode_answer,
    encode_user_data,
    next_round,
)
from faust_assigner.errors import MetadataRefused


class EvenTasks:
    """The strategy: each task runs on a single worker. To the planner, a task is a topic with 1 partition."""

    name = "even-tasks"

    def __init__(self, tasks: list[str]) -> None:
        self.tasks = tasks
        self.mine = UserData()

    def metadata(self) -> bytes:
        """Encode this worker's tasks and the round that assigned them."""
        return encode_user_data(self.mine)

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Assign the tasks evenly with the fewest moves; treat unreadable user_data as empty."""
        reports = {member_id: self._read(said) for member_id, said in members.items()}
        made = plan(
            [
                Member(member_id, self.tasks, actives=data.active, generation=data.round)
                for member_id, data in reports.items()
            ],
            dict.fromkeys(self.tasks, 1),
            co_partitioned=(),
        )
        number = next_round(reports.values())
        return {
            member_id: encode_answer(Answer(round=number, spare=made.actives(member_id)))
            for member_id in members
        }

    def _read(self, said: bytes) -> UserData:
        try:
            return decode_user_data(said)
        except MetadataRefused:
            return UserData()


class Worker:
    """The work: each assigned task runs in its own loop."""

    def __init__(self, name: str, strategy: EvenTasks) -> None:
        self.name = name
        self.strategy = strategy
        self.running: dict[str, asyncio.Task[None]] = {}

    def say(self, what: str) -> None:
        """Print a line with the time."""
        print(f"{time.monotonic():.3f} {self.name} {what}", flush=True)

    async def on_assigned(self, share: Share) -> None:
        """Start the newly assigned tasks."""
        answer = decode_answer(share.state)
        self.strategy.mine = UserData(round=answer.round, active=answer.spare)
        for task in sorted(answer.spare.keys() - self.running.keys()):
            self.running[task] = asyncio.create_task(self._run(task))

    async def _run(self, task: str) -> None:
        self.say(f"begins {task}")
        while True:
            await asyncio.sleep(0.1)  # placeholder for the task's work

    async def on_revoked(self, share: Share, *, lost: bool) -> None:
        """Stop all tasks before each round: the next round may assign them to another worker."""
        for task, loop in sorted(self.running.items()):
            loop.cancel()
            self.say(f"ends {task}")
        self.running.clear()

    async def on_failed(self, reason: str) -> None:
        """Print that the leader's strategy raised an error."""
        self.say(f"hears that no round came about: {reason}")


async def main(options: argparse.Namespace) -> None:
    """Run until SIGTERM or Ctrl-C."""
    strategy = EvenTasks(sorted(options.tasks.split(",")))
    worker = Worker(options.name, strategy)
    async with GroupMember(
        options.group,
        protocol_type="tasks",
        strategies=[strategy],
        work=worker,
        session_timeout_s=options.session,
        heartbeat_interval_s=options.session / 20,
        bootstrap_servers=options.bootstrap,
    ) as member:
        ends = asyncio.create_task(member.wait())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ends.cancel)
        try:
            await ends
        except asyncio.CancelledError:
            worker.say("leaves")


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="One worker of a pool.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--tasks", required=True, help="all of the pool's tasks: a,b,c")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--group", default="pool")
    parser.add_argument(
        "--session", type=float, default=6.0, help="seconds until a silent one is replaced"
    )
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(read_arguments()))
