"""The conformance test: our client keeps every rule, and each planted bug breaks its rule."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from examples.conformance.client import Worker
from faust_assigner.service.client import Assigned, AssignerClient, Lost, Release, Retry, Warm
from faust_assigner.service.conformance.rules import RULES, broken
from faust_assigner.service.conformance.simulated_service import TOPIC, Write
from faust_assigner.service.conformance.subjects import Start, Subject, process_of
from faust_assigner.service.errors import ServiceRefused
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.support.assigning.instances import calls_ended
from tests.support.waiting import PATIENCE_S

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/service-clients.md"
#: The rule stops the test's whole process, and with it concurrent scenarios.
ALONE = "freeze"


class Noting(Worker):
    """Records its writes instead of printing them."""

    def __init__(self, client: AssignerClient) -> None:
        super().__init__(client)
        self.written: list[Write] = []

    def write(self, partition: Any, epoch: int) -> None:
        """Record a write."""
        at = TopicPartition(partition.topic, partition.partition)
        self.written.append(Write(time.monotonic(), at, epoch))


class Inside:
    """A client in the test's process."""

    def __init__(self, worker: Noting) -> None:
        self.work = worker.written

    async def freeze(self, seconds: float) -> None:
        """Block the whole process."""
        time.sleep(seconds)


def inside(
    kind: type[AssignerClient] = AssignerClient, worker: type[Noting] = Noting, *, lives: int = 1
) -> Start:
    """Start clients of this kind; with several ``lives``, a new run after each end."""

    @contextlib.asynccontextmanager
    async def started(target: str, name: str) -> AsyncIterator[Subject]:
        client = kind(target, name, topics=[TOPIC], retry=Retry(first_s=0.05, most_s=0.2))
        working = worker(client)

        async def run() -> None:
            for _ in range(lives):
                with contextlib.suppress(ServiceRefused):
                    await client.run(working)

        tasks = [asyncio.create_task(run()), asyncio.create_task(working.work())]
        try:
            yield Inside(working)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

    return started


# -- bugs --------------------------------------------------------------------------------------------------


class Forgetful(AssignerClient):
    """Bug: a new incarnation for each registration."""

    def __init__(self, *said: Any, **options: Any) -> None:
        super().__init__(*said, **options)
        hold_one = self._streams.hold_one

        async def anew(patience_s: float) -> bool:
            self._requests._who["incarnation"] += "x"
            return await hold_one(patience_s)

        self._streams.hold_one = anew  # type: ignore[method-assign]


class _Hearing(AssignerClient):
    """A client that changes messages before it reads them."""

    def __init__(self, *said: Any, **options: Any) -> None:
        super().__init__(*said, **options)
        take = self._inbox.take

        def heard(message: pb.AssignmentCommand, *, is_first: bool) -> None:
            self.spoil(message, is_first=is_first)
            take(message, is_first=is_first)

        self._inbox.take = heard  # type: ignore[method-assign]

    def spoil(self, message: pb.AssignmentCommand, *, is_first: bool) -> None:
        """Change the message."""


class Adding(_Hearing):
    """Bug: adds a later snapshot to its partitions."""

    def spoil(self, message: pb.AssignmentCommand, *, is_first: bool) -> None:
        """Accept only the first message of a stream as a snapshot."""
        message.assignment.snapshot = message.assignment.snapshot and is_first


class Strict(_Hearing):
    """Bug: ends at an unknown command."""

    def spoil(self, message: pb.AssignmentCommand, *, is_first: bool) -> None:
        """End the task."""
        if message.WhichOneof("command") is None:
            raise ValueError("what is this?")


class Timeless(AssignerClient):
    """Bug: ignores the time to live."""

    def __init__(self, *said: Any, **options: Any) -> None:
        super().__init__(*said, **options)
        self._session.check_time = lambda: False  # type: ignore[method-assign]

    def may_work(self, partition: tuple[str, int]) -> bool:
        """Return True."""
        return True


class Believing(AssignerClient):
    """Bug: takes every heartbeat as confirmed."""

    def __init__(self, *said: Any, **options: Any) -> None:
        super().__init__(*said, **options)
        once = self._calls.once

        async def believed(method: str, request: Any, **more: Any) -> Any:
            answer = await once(method, request, **more)
            if method == "Heartbeat":
                answer.known = True
                answer.lives_ms = 2_000
            return answer

        self._calls.once = believed  # type: ignore[method-assign]


class Patient(AssignerClient):
    """Bug: waits on a silent stream."""

    def __init__(self, *said: Any, **options: Any) -> None:
        super().__init__(*said, **options)
        begin = self._session.begin

        def begun(said: pb.AssignmentUpdate, until: float) -> None:
            begin(said, until)
            self._session.is_pulsing = False

        self._session.begin = begun  # type: ignore[method-assign]


class FirstEpoch(Noting):
    """Bug: keeps the first epoch of a partition."""

    async def assigned(self, command: Assigned) -> None:
        """Ignore new epochs."""
        self.epochs = {p: self.epochs.get(p, g.epoch) for p, g in command.owned.items()}


class Greedy(Noting):
    """Bug: keeps unassigned partitions."""

    async def assigned(self, command: Assigned) -> None:
        """Only add partitions."""
        self.epochs |= {p: g.epoch for p, g in command.owned.items()}


class Unstopped(Noting):
    """Bug: confirms a release before the end of the work."""

    async def release(self, command: Release) -> int | None:
        """Continue for half a second."""
        asyncio.get_running_loop().call_later(0.5, self.epochs.pop, command.partition, None)
        return 1


class Early(Noting):
    """Bug: works on partitions during their warm-up."""

    async def warm(self, command: Warm) -> None:
        """Begin the work at once."""
        self.epochs[command.partition] = 1


class Done(Noting):
    """Bug: regards a release as final."""

    async def assigned(self, command: Assigned) -> None:
        """Leave out partitions that were released before."""
        gone = getattr(self, "gone", set())
        self.epochs = {p: g.epoch for p, g in command.owned.items() if p not in gone}

    async def release(self, command: Release) -> int | None:
        """Remember the release forever."""
        self.gone = {command.partition}
        return await super().release(command)


class Deaf(Noting):
    """Bug: ignores losses."""

    async def lost(self, command: Lost) -> None:
        """Do nothing."""


class Unheeding(Timeless):
    """Bug: continues after a refusal."""

    def __init__(self, *said: Any, **options: Any) -> None:
        super().__init__(*said, **options)
        self._session.give_up = lambda: None  # type: ignore[method-assign]


BUGS: dict[str, tuple[Start, ...]] = {
    "identity": (inside(Forgetful),),
    "snapshot": (inside(Adding), inside(Timeless, Greedy)),
    "epoch": (inside(worker=FirstEpoch),),
    "unassigned": (inside(Timeless, Greedy),),
    "lease": (inside(Timeless, Deaf),),
    "freeze": (inside(Timeless, Deaf),),
    "release": (inside(Timeless, Unstopped),),
    "warm": (inside(Timeless, Early),),
    "keep": (inside(worker=Done),),
    "replaced": (inside(lives=2), inside(Unheeding, Deaf)),
    "expelled": (inside(lives=2), inside(Unheeding, Deaf)),
    "unknown": (inside(Believing),),
    "silence": (inside(Patient),),
    "future": (inside(Strict),),
}


@pytest.mark.slow
@pytest.mark.processes  # a client that is paused for three seconds loses its registration
async def test_our_client_keeps_every_rule() -> None:
    """The scenarios run concurrently."""
    rules = [rule for rule in RULES if rule != ALONE]
    found = await asyncio.gather(*(broken(rule, inside()) for rule in rules))
    assert {r: how for r, how in zip(rules, found, strict=True) if how} == {}
    assert await broken(ALONE, inside()) == ""
    await calls_ended()


@pytest.mark.slow
async def test_a_client_with_a_bug_breaks_the_rule_of_the_bug() -> None:
    """Each rule detects at least one bug."""
    assert BUGS.keys() == RULES.keys()
    cases = [(rule, bug) for rule, bugs in BUGS.items() for bug in bugs if rule != ALONE]
    found = await asyncio.gather(*(broken(rule, bug, patience_s=4.0) for rule, bug in cases))
    assert [rule for (rule, _), how in zip(cases, found, strict=True) if not how] == []
    assert "after it woke" in await broken(ALONE, *BUGS[ALONE], patience_s=4.0)
    await calls_ended()


def test_the_page_lists_every_rule() -> None:
    """Authors of foreign clients use this page."""
    assert re.findall(r"^\| `([a-z]+)` \|", PAGE.read_text(), re.MULTILINE) == list(RULES)


@pytest.mark.processes
async def test_the_command_tries_a_client_that_is_a_process() -> None:
    """The example client keeps the rule; a program without a registration breaks it."""
    for client, code, said in (
        (["-m", "examples.conformance.client"], 0, "freeze: kept\n"),
        (["-c", "import time; time.sleep(60)"], 1, "freeze: BROKEN: expected: registration 1"),
    ):
        words = ["-m", "faust_assigner.service.conformance", "--rule", "freeze"]
        patience = ["--patience", "20" if code == 0 else "1"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            *patience,
            "--",
            sys.executable,
            *client,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert (process.returncode, out.decode()[: len(said)]) == (code, said)


async def test_a_client_under_a_shell_ends_with_its_rule() -> None:
    """The command may start the client as its child, as `go run` does; the child has the output, too."""
    client = "while :; do echo WORK conformance 0 5 1.5; sleep 0.01; done"
    started = process_of(["sh", "-c", f"sh -c '{client}' & wait"])
    async with asyncio.timeout(PATIENCE_S):
        async with started("h:1", "c") as subject:
            while not subject.work:
                await asyncio.sleep(0.01)
            before = len(subject.work)
            await subject.freeze(0.5)
            assert len(subject.work) < before + 5
