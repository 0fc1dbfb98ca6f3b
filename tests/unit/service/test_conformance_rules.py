"""Each rule's verdict about a correct client, and about clients with one bug."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from faust_assigner.service.conformance import __main__ as command
from faust_assigner.service.conformance import subjects
from faust_assigner.service.conformance.rules import RULES
from faust_assigner.service.conformance.simulated_service import Write, at
from faust_assigner.service.conformance.stage import RuleBroken
from tests.unit.service.puppet import conforms


@pytest.mark.parametrize("rule", RULES)
def test_a_correct_client_keeps_every_rule(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """No verdict depends on the machine's speed: the clock is the loop's."""
    assert conforms(monkeypatch, rule) == ""


#: Rule -> bug -> the beginning of the verdict.
BUGS = {
    "identity": {
        "no incarnation": "the registration has no incarnation",
        "no heartbeats set": "the registration does not set `heartbeats`",
        "first returns": "a first registration sets `returns`",
        "never returns": "a second registration does not set `returns`",
        "new incarnation": "several incarnations of one process: {'i",
        "other name": "several names of one process: {'",
        "never beats": "expected: a heartbeat comes, within 7 s",
        "silent about hand-offs": "expected: PartitionReady comes, within 7 s",
    },
    "snapshot": {
        "adds snapshots": "expected: the client stops work on partition 1, within 7 s",
        "only the last part": "expected: the client works on partition 0 under epoch 5, within",
        "only the first part": "expected: the client works on partition 0 under epoch 5, within",
    },
    "epoch": {
        "first epoch": "expected: the client works on partition 0 under epoch 9, within 7 s",
        "both epochs": "writes under {",
    },
    "unassigned": {
        "keeps what is taken": "expected: the client stops work on partition 1, within 7 s",
        "drops all": "expected: the client works on partition 0 under epoch 5, within 7 s",
    },
    "lease": {
        "timeless": "28 writes up to 2.70 s too late",
        "takes no second snapshot": "expected: the client works on partition 0 under epoch 6",
    },
    "freeze": {
        "timeless": "12 writes after it woke",
        "two late writes": "2 writes after it woke",
        "takes no second snapshot": "expected: the client works on partition 0 under epoch 6",
    },
    "release": {
        "silent about hand-offs": "expected: PartitionReleased comes, within 7 s",
        "no hand-off id": "handoff_id is 0",
        "other partition": "another partition is released",
        "works on after its release": "10 writes after PartitionReleased",
        "one late write": "1 writes after PartitionReleased",
        "stops all at a release": "the other partition stands still",
    },
    "warm": {
        "silent about hand-offs": "expected: PartitionReady comes, within 7 s",
        "no hand-off id": "handoff_id is 0",
        "works while it warms": "writes to a partition that was not granted",
        "writes of the neighbour": "writes to a partition that was not granted",
        "takes no grants": "expected: the client works on partition 1 under epoch 6, within 7 s",
    },
    "keep": {
        "silent about hand-offs": "expected: PartitionReleased comes, within 7 s",
        "believes no keep": "expected: the client works on partition 0 under epoch 5, within 7 s",
    },
    "replaced": {
        "registers after its end": "it registers again",
        "works after its end, timeless": "expected: the client stops work on partition 0, within",
        "wakes up later": "it continues to work",
    },
    "expelled": {
        "registers after its end": "it registers again",
        "works after its end, timeless": "expected: the client stops work on partition 0, within",
        "wakes up later": "it continues to work",
    },
    "unknown": {
        "believes": "expected: registration 2 comes, within 7 s",
        "adds snapshots": "expected: the client stops work on partition 0, within 7 s",
        "takes no second snapshot": "expected: the client works on partition 1 under epoch 6",
    },
    "silence": {"patient": "expected: registration 2 comes, within 7 s"},
    "future": {
        "leaves at an unknown command": "expected: the client works on partition 1 under epoch 6",
        "registers again at an unknown command": "it registers again",
        "drops the rest": "expected: the client works on partition 0 under epoch 5, within 7 s",
    },
}


@pytest.mark.parametrize(
    ("rule", "bug"), [(rule, bug) for rule, verdicts in BUGS.items() for bug in verdicts]
)
def test_each_bug_has_its_own_verdict(monkeypatch: pytest.MonkeyPatch, rule: str, bug: str) -> None:
    """The verdict names the broken part of the rule."""
    found = conforms(monkeypatch, rule, *bug.split(", "))
    assert found.startswith(BUGS[rule][bug])


def test_every_rule_has_a_bug() -> None:
    """A rule without a bug could pass every client."""
    assert BUGS.keys() == RULES.keys()


def test_one_write_that_was_decided_before_a_stop_breaks_no_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sink refuses this write by its epoch."""
    assert conforms(monkeypatch, "freeze", "one write after the stop") == ""


# -- the command -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "rules", "patience_s", "code"),
    [
        (["--rule", "keep", "--rule", "epoch"], ["keep", "epoch"], 20.0, 1),
        (["--rule", "keep", "--patience", "3.5"], ["keep"], 3.5, 0),
        ([], list(RULES), 20.0, 1),
    ],
)
def test_the_command_tries_the_named_rules_in_turn(
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    rules: list[str],
    patience_s: float,
    code: int,
) -> None:
    """Each rule has a line; one broken rule before kept rules is enough for the exit code 1."""
    asked: list[Any] = []

    async def broken(rule: str, start: Any, *, patience_s: float) -> str:
        asked.append((rule, start, patience_s))
        return "it works on" if rule == "epoch" else ""

    monkeypatch.setattr(command, "broken", broken)
    monkeypatch.setattr(command, "process_of", list)
    done = CliRunner().invoke(command.main, [*words, "--", "run", "--me"])
    assert asked == [(rule, ["run", "--me"], patience_s) for rule in rules]
    said = ["BROKEN: it works on" if rule == "epoch" else "kept" for rule in rules]
    assert done.output.splitlines() == [
        f"{rule}: {how}" for rule, how in zip(rules, said, strict=True)
    ]
    assert done.exit_code == code


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "No such file", "run"), ValueError("got 'WORK t 1'")]
)
def test_a_command_that_cannot_be_tried_is_an_error_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It breaks no rule, so its exit code differs."""

    async def broken(rule: str, start: Any, *, patience_s: float) -> str:
        raise error

    monkeypatch.setattr(command, "broken", broken)
    done = CliRunner().invoke(command.main, ["--", "run", "--me"])
    assert done.exit_code == 2
    assert f"could not test run: {error}" in done.output


# -- processes ---------------------------------------------------------------------------------------


class Child:
    """A process that ends by the named signal, or is gone; it is its own process id."""

    def __init__(self, *lines: bytes, ends_by: int = signal.SIGTERM, is_gone: bool = False) -> None:
        self.stdout = self._lines(lines)
        self.told: list[Any] = []
        self._ends_by, self._is_gone = ends_by, is_gone
        self._ended = asyncio.Event()
        self.pid = self

    async def _lines(self, lines: tuple[bytes, ...]) -> AsyncIterator[bytes]:
        for line in lines:
            yield line
            await asyncio.sleep(0)

    def send_signal(self, number: int) -> None:
        """Note the signal."""
        self.told.append(signal.Signals(number).name)
        if number == self._ends_by:
            self._ended.set()
        if self._is_gone:
            self._ended.set()
            raise ProcessLookupError

    async def wait(self) -> None:
        """Wait for the end."""
        self.told.append("wait")
        await self._ended.wait()


@pytest.fixture(autouse=True)
def _killpg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the signals of a group to the fake process."""
    monkeypatch.setattr(os, "killpg", lambda child, number: child.send_signal(number))


async def test_the_writes_of_a_process_are_read_from_its_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other lines go to stderr, also bytes that are no text; the process gets its three names."""
    made: list[Any] = []
    child = Child(
        b"WORK conformance 3 7 1.25\n",
        b"\n",
        b"hello WORK \xff\n",
        b"WORKING on\n",
        b"WORK  other 2 9 0.5 \n",
    )

    async def create(
        *words: str, stdout: int, start_new_session: bool, env: Any, limit: int
    ) -> Any:
        made.append((words, stdout, start_new_session, env))
        assert limit > 2**20, "a long line of a client's log would end the test"
        return child

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
    monkeypatch.setenv("OF_THE_USER", "kept")
    async with subjects.process_of(["run", "--me"])("h:1", "c-1") as subject:
        for _ in range(9):
            await asyncio.sleep(0)
        assert subject.work == [Write(1.25, at(3), 7), Write(0.5, type(at(0))("other", 2), 9)]
    [(words, stdout, is_group, env)] = made
    assert (words, stdout, is_group) == (("run", "--me"), asyncio.subprocess.PIPE, True)
    names = ("ASSIGNER_TARGET", "ASSIGNER_NAME", "ASSIGNER_TOPIC", "OF_THE_USER")
    assert [env[name] for name in names] == ["h:1", "c-1", "conformance", "kept"]
    assert child.told == ["SIGCONT", "SIGTERM", "wait", "SIGKILL", "wait"]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "\nhello WORK \ufffd\nWORKING on\n")


@pytest.mark.parametrize("broken", [None, RuleBroken("the client works")])
@pytest.mark.parametrize(
    "line", [b"WORK t 1 2\n", b"WORK t x 2 0.5\n", b"WORK t 1 2 0.5 6\n", b"WORK\n"]
)
async def test_a_wrong_line_of_a_process_is_an_error_at_its_end(
    monkeypatch: pytest.MonkeyPatch, line: bytes, broken: RuleBroken | None
) -> None:
    """The first wrong line is named, also as the reason of a missing write; later lines still count."""
    child = Child(b"WORK t 1 2 0.5\n", line, b"WORK t 1 2 0.75\n", b"WORK wrong, too\n")

    async def create(*_: Any, **__: Any) -> Any:
        return child

    monkeypatch.setattr(asyncio, "create_subprocess_exec", create)
    started = subjects.process_of(["x"])("h:1", "c")
    subject = await started.__aenter__()
    with pytest.raises(ValueError, match="expected WORK TOPIC PARTITION EPOCH SECONDS") as error:
        await started.__aexit__(broken and RuleBroken, broken, None)
    assert str(error.value).endswith(repr(line.decode().rstrip()))
    assert [one.when for one in subject.work] == [0.5, 0.75]


@pytest.mark.parametrize("child", [{}, {"ends_by": signal.SIGKILL}, {"is_gone": True}])
async def test_a_process_is_woken_asked_and_then_killed(
    monkeypatch: pytest.MonkeyPatch, child: dict[str, Any]
) -> None:
    """A process that has ended already is no error; its children may still run."""
    monkeypatch.setattr(subjects, "STOP_S", 0.001)
    process: Any = Child(**child)
    await subjects._stopped(process)
    assert process.told == ["SIGCONT", "SIGTERM", "wait", "SIGKILL", "wait"]


async def test_a_process_is_frozen_for_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGCONT follows the time."""
    process: Any = Child()

    async def sleep(seconds: float) -> None:
        process.told.append(seconds)

    monkeypatch.setattr(subjects, "asyncio", SimpleNamespace(sleep=sleep))
    await subjects.Process(process).freeze(4.5)
    assert process.told == ["SIGSTOP", 4.5, "SIGCONT"]
