"""``faust-assigner status`` as a command: exit codes, a pipe, a terminal, and --watch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from click.testing import CliRunner, Result

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.cli import main
from faust_assigner.wire.answer import AnswerWriter
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import JoinData, encode_join

#: No server listens at this address.
NOBODY = "http://127.0.0.1:1"


class Ours(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """An assignor with the metadata and answers of our workers."""

    name = "faust-cooperative"

    @classmethod
    def metadata(cls, topics: Any) -> Any:
        """Return the metadata of a cooperative worker whose web server is down."""
        said = encode_join(JoinData(NOBODY, {}, cooperative=True, rack_id="az-a"), sorted(topics))
        return ConsumerProtocolMemberMetadata(0, sorted(topics), said)

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        """Assign all partitions to each member."""
        (topic,) = {t for said in members.values() for t in said.subscription}
        writer = AnswerWriter(Directory(), {topic: 0}, generation=1, is_uniform=True)
        return {
            member_id: ConsumerProtocolMemberAssignment(
                0, [(topic, [0, 1])], writer.for_ours({topic: [0, 1]}, {}, NOBODY)
            )
            for member_id in members
        }


@contextlib.asynccontextmanager
async def a_member(bootstrap: str) -> AsyncIterator[str]:
    """Run a group with one member; yield the group's name."""
    group, topic = f"shop-{uuid.uuid4().hex[:8]}", f"orders-{uuid.uuid4().hex[:8]}"
    one = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, partition_assignment_strategy=[Ours]
    )
    one.subscribe([topic])
    await one.start()
    try:
        async with asyncio.timeout(60.0):
            while not one.assignment():
                await asyncio.sleep(0.05)
        yield group
    finally:
        await one.stop()


async def with_member(broker: EmbeddedBroker, work: Callable[[str], Any]) -> Any:
    """Return the result of ``work``, run in its own thread while the member is in the group."""
    async with a_member(broker.bootstrap) as group:
        return await asyncio.to_thread(work, group)


def command(*more: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["status", *more])


async def test_a_member_whose_web_server_is_down_is_shown_by_the_group_alone(
    embedded_broker: EmbeddedBroker,
) -> None:
    """The report has its partitions, its rack and the connection error; the command succeeds."""
    here = ("--bootstrap", embedded_broker.bootstrap, "--deadline", "20")

    def work(group: str) -> tuple[Result, Result]:
        return command(*here, "--group", group), command(*here, "--group", group, "--json")

    text, as_json = await with_member(embedded_broker, work)
    assert text.exit_code == as_json.exit_code == 0, text.output + as_json.output
    (member,) = json.loads(as_json.stdout)["members"]
    assert (member["answer"], member["rack"], member["kind"]) == (
        "unreachable",
        "az-a",
        "cooperative",
    )
    assert [*member["actives"].values()] == [[0, 1]]
    assert "Connect" in member["detail"] or "refused" in member["detail"]
    assert "rack az-a" in text.stdout
    assert "unreachable" in text.stdout


def test_a_group_that_is_not_there_is_an_error(embedded_broker: EmbeddedBroker) -> None:
    """The command prints one line, exits with 1, and names the command that lists groups."""
    done = command("--bootstrap", embedded_broker.bootstrap, "--group", "nobody")
    assert done.exit_code == 1
    assert "no classic group 'nobody'" in done.output
    assert "groups list" in done.output


def test_a_cluster_that_is_not_there_may_be_asked_again() -> None:
    """Exit code 75."""
    done = command("--bootstrap", "127.0.0.1:1", "--group", "shop")
    assert done.exit_code == 75, done.output
    assert done.output.count("\n") == 1


def test_a_group_must_be_named() -> None:
    """Exit code 2."""
    assert command("--bootstrap", "127.0.0.1:1").exit_code == 2


def watching(bootstrap: str, group: str, *more: str) -> list[str]:
    """Return the command line that repeats the report."""
    return [
        *(sys.executable, "-m", "faust_assigner", "status", "--watch", "--every", "0.1"),
        *("--bootstrap", bootstrap, "--group", group, *more),
    ]


@pytest.mark.slow
@pytest.mark.processes
async def test_watching_into_a_pipe_prints_a_line_of_json_for_each_look(
    embedded_broker: EmbeddedBroker,
) -> None:
    """SIGINT ends the command with exit code 0."""

    def work(group: str) -> tuple[list[Any], int]:
        with subprocess.Popen(
            watching(embedded_broker.bootstrap, group, "--json"), stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            lines = [json.loads(process.stdout.readline()) for _ in range(2)]
            process.send_signal(signal.SIGINT)
            return lines, process.wait(30)

    (first, second), code = await with_member(embedded_broker, work)
    assert first["taken_at"] < second["taken_at"]
    assert len(second["members"]) == 1
    assert code == 0


@pytest.mark.slow
@pytest.mark.processes
async def test_watching_on_a_terminal_draws_the_report_anew(
    embedded_broker: EmbeddedBroker,
) -> None:
    """The report has its own screen, which Ctrl-C leaves."""

    def work(group: str) -> tuple[bytes, int]:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
        with subprocess.Popen(
            watching(embedded_broker.bootstrap, group), stdout=theirs, env=environment
        ) as process:
            os.close(theirs)
            shown, end = b"", time.monotonic() + 60
            while shown.count(b"Stable") < 2 and time.monotonic() < end:
                shown += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the other end is closed
                while more := os.read(ours, 65536):
                    shown += more
            code = process.wait(30)
        os.close(ours)
        return shown, code

    shown, code = await with_member(embedded_broker, work)
    assert code == 0
    assert shown.count(b"Stable") >= 2
    assert b"\x1b[?1049h" in shown
    assert b"\x1b[?1049l" in shown
