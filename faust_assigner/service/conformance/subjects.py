"""Runs the client under test as a process.

The client may be a child of the command, as under a shell or ``go run``. So the process has its own
group, and each signal goes to the whole group.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from faust_assigner.service.conformance.simulated_service import TOPIC, Write
from faust_assigner.service.handoff import TopicPartition

#: Seconds that a process may take to stop after a signal.
STOP_S = 5.0
#: Maximum bytes of a line of a client's output; asyncio's default is less than a long log line.
LINE_BYTES = 2**24


class Subject(Protocol):
    """A running client."""

    work: list[Write]  #: its writes so far

    async def freeze(self, seconds: float) -> None:
        """Stop the whole client for this time, as SIGSTOP does."""


class Start(Protocol):
    """Starts a client that registers at a target; the client ends with the context."""

    def __call__(self, target: str, name: str) -> AbstractAsyncContextManager[Subject]:
        """Return the running client."""


class Process:
    """A client in a process of its own, which prints a line for each write and flushes it at once.

    The line is ``WORK TOPIC PARTITION EPOCH SECONDS``.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.work: list[Write] = []
        self.wrong: list[str] = []
        self._process = process

    async def read(self) -> None:
        """Read the client's writes from its output; print all other lines to stderr."""
        assert self._process.stdout is not None
        async for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()
            words = line.split()
            if words[:1] != ["WORK"]:
                print(line, file=sys.stderr)
                continue
            try:
                _, topic, number, epoch, seconds = words
                partition = TopicPartition(topic, int(number))
                self.work.append(Write(float(seconds), partition, int(epoch)))
            except ValueError:
                self.wrong.append(line)

    async def freeze(self, seconds: float) -> None:
        """Send SIGSTOP, and SIGCONT after this time."""
        _send(self._process, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        _send(self._process, signal.SIGCONT)


def process_of(command: Sequence[str]) -> Start:
    """Return a Start for the command.

    The process gets ``ASSIGNER_TARGET``, ``ASSIGNER_NAME`` and ``ASSIGNER_TOPIC``. Raises OSError if the
    command does not start, and at the end ValueError if a line of its output is invalid.
    """

    @contextlib.asynccontextmanager
    async def started(target: str, name: str) -> AsyncIterator[Subject]:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LINE_BYTES,
            env={
                **os.environ,
                "ASSIGNER_TARGET": target,
                "ASSIGNER_NAME": name,
                "ASSIGNER_TOPIC": TOPIC,
            },
        )
        subject = Process(process)
        reading = asyncio.create_task(subject.read())
        try:
            yield subject
        finally:
            await _stopped(process)
            await reading
            if subject.wrong:  # the reason for a missing write, which would count as a broken rule
                raise ValueError(
                    "expected WORK TOPIC PARTITION EPOCH SECONDS from the client's process, "
                    f"got {subject.wrong[0]!r}"
                )

    return started


async def _stopped(process: asyncio.subprocess.Process) -> None:
    _send(process, signal.SIGCONT)
    _send(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_S):
            await process.wait()
    _send(process, signal.SIGKILL)  # also to children that outlive the command
    await process.wait()


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
