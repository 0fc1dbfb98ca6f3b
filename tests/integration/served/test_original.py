"""The test scenarios of the first assigner over real sockets, in memory and in etcd."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.service.client import AssignerClient, Release, Warm
from faust_assigner.service.client.operator import Operator
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    Instance,
    calls_ended,
    consumers,
    settled,
    until,
    until_state,
)
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.processes
CONVERGE_S = 3 + 0.2 + 2  # time to live, debounce, and two seconds


@pytest.fixture
def start(tmp_path: Path, store: tuple[str, ...]) -> Iterator[Any]:
    """Return a function that starts an instance with these flags and returns its address."""
    running: list[Instance] = []

    def begin(*flags: str) -> str:
        running.append(Instance(tmp_path, *QUICK, *store, *flags))
        return running[-1].target

    yield begin
    for one in running:
        one.stop()


async def test_single_consumer_gets_all(start: Any) -> None:
    """No hand-off is needed, as the partitions have no owner."""
    target = start("--topic", "orders=8")
    async with consumers(Consumer(target, "a")) as (first,):
        await settled([first], [8])
        assert first.warmed == []


@pytest.mark.slow
async def test_two_at_once_split_evenly_without_handoffs(start: Any) -> None:
    """The debounce puts both joins into one rebalance."""
    target = start("--topic", "orders=8", "--debounce-s", "1")
    async with consumers(Consumer(target, "a"), Consumer(target, "b")) as members:
        await settled(members, [4, 4])
        assert [one.warmed for one in members] == [[], []]


@pytest.mark.slow
async def test_scale_up_triggers_handoffs_and_their_full_lifecycle(start: Any) -> None:
    """Each moving partition is warmed, assigned and released once."""
    target = start("--topic", "orders=9")
    async with consumers(Consumer(target, "a"), Consumer(target, "b")) as (first, second):
        await settled([first, second], [5, 4])
        async with consumers(Consumer(target, "c")) as (third,):
            await settled([first, second, third], [3, 3, 3])
            said = await until_state(target, lambda state: not state.handoffs)
            assert len(said.assignments) == 9
            assert len(third.warmed) == 3
            told = [
                one for member in (first, second) for one in member.told if isinstance(one, Release)
            ]
            assert sorted(one.partition for one in told) == sorted(third.warmed)


@pytest.mark.slow
async def test_several_topics_are_balanced_together(start: Any) -> None:
    """3 + 3 + 3 partitions on two consumers are 5 and 4: remainders do not add up on one consumer."""
    target = start("--topic", "a=3", "--topic", "b=3", "--topic", "c=3")
    async with consumers(Consumer(target, "x"), Consumer(target, "y")) as members:
        await settled(members, [5, 4])


@pytest.mark.slow
async def test_no_consumers_means_no_assignments(start: Any) -> None:
    """After the last consumer left, its partitions are kept for it as absent."""
    target = start("--topic", "orders=4")
    assert len((await until_state(target, lambda state: len(state.topics) == 1)).assignments) == 0
    async with consumers(Consumer(target, "a")) as (first,):
        await settled([first], [4])
    left = await until_state(target, lambda state: not state.consumers)
    assert [(one.owner, one.absent) for one in left.assignments] == [("a", True)] * 4


@pytest.mark.slow
async def test_no_topics_means_no_assignments(start: Any) -> None:
    """A consumer of no topic receives an empty assignment as its first message."""
    target = start()
    async with consumers(Consumer(target, "a")) as (first,):
        await until(lambda: bool(first.told))
        assert first.working == {}


@pytest.mark.slow
async def test_a_dead_consumers_partitions_are_reassigned_directly(start: Any) -> None:
    """Its partitions move without a hand-off, after its time to live."""
    target = start("--topic", "orders=6")
    async with consumers(*(Consumer(target, name) for name in "abc")) as (first, second, third):
        await settled([first, second, third], [2, 2, 2])
        warmed = len(first.warmed) + len(second.warmed)
        await third.stop()
        assert await settled([first, second], [3, 3]) < CONVERGE_S
        assert len(first.warmed) + len(second.warmed) == warmed


@pytest.mark.slow
async def test_a_crash_during_warming_leaves_it_to_the_old_owner(start: Any) -> None:
    """The hand-off is deleted, and the old owner processes without a break."""
    target = start("--topic", "orders=4")
    async with consumers(Consumer(target, "a")) as (first,):
        await settled([first], [4])
        async with consumers(Consumer(target, "b", warm_s=1000)) as (second,):
            await until(lambda: any(isinstance(told, Warm) for told in second.told))
        await until_state(target, lambda state: not state.handoffs)
        assert len(first.working) == 4
        assert not any(isinstance(told, Release) for told in first.told)


@pytest.mark.slow
async def test_rapid_scale_up_is_debounced(start: Any) -> None:
    """Ten joins within the debounce are one plan, so no partition moves twice."""
    target = start("--topic", "orders=20", "--debounce-s", "1")
    async with consumers(*(Consumer(target, f"c{number}") for number in range(10))) as members:
        await settled(members, [2] * 10)
        assert sum(len(one.warmed) for one in members) == 0


@pytest.mark.slow
async def test_rapid_reconnect_keeps_the_partitions(start: Any) -> None:
    """Five reconnects within the time to live move no partition."""
    target = start("--topic", "orders=8")
    async with consumers(Consumer(target, "a"), Consumer(target, "b")) as (first, second):
        await settled([first, second], [4, 4])
        held = dict(first.working)
        for _ in range(5):
            await second.stop()
            second = Consumer(target, "b").start()
            await settled([first, second], [4, 4])
        assert first.working == held
        await second.stop()


@pytest.mark.slow
async def test_sequential_crashes_converge(start: Any) -> None:
    """The group shrinks from four consumers to one, with even loads after each crash."""
    target = start("--topic", "orders=12")
    members = [Consumer(target, name) for name in "abcd"]
    async with consumers(*members):
        await settled(members, [3] * 4)
        while len(members) > 1:
            await members.pop().stop()
            assert await settled(members, [12 // len(members)] * len(members)) < CONVERGE_S


@pytest.mark.slow
async def test_drain_hands_off_and_still_answers_as_old_owner(start: Any) -> None:
    """The consumer gets no new partitions, releases all of its own, and its stream ends."""
    target = start("--topic", "orders=8")
    async with consumers(Consumer(target, "a", warm_s=0.5), Consumer(target, "b")) as (
        first,
        second,
    ):
        await settled([first, second], [4, 4])
        async with Operator(target) as operator:
            assert await operator.drain("b")
            draining = await until_state(
                target,
                lambda state: (
                    pb.CONSUMER_STATUS_DRAINING in {one.status for one in state.consumers}
                ),
            )
            assert {one.new_owner for one in draining.handoffs} <= {"a"}
        await settled([first, second], [8, 0])
        assert second.task is not None
        await asyncio.wait_for(second.task, PATIENCE_S)
        assert sum(isinstance(told, Release) for told in second.told) == 4


@pytest.mark.slow
async def test_deregister_of_an_unknown_consumer_is_shutdown_now(start: Any) -> None:
    """An unknown consumer has nothing to hand over."""
    target = start("--topic", "orders=4")
    client = AssignerClient(target, "nobody")
    one = Consumer(target, "other")
    async with consumers(one):
        await settled([one], [4])
        one.client.name = "nobody"
        assert await one.client.leave() is False
    await client.close()
    await calls_ended()


@pytest.mark.slow
async def test_scale_from_1_to_20_and_down_to_4(start: Any) -> None:
    """40 partitions: two for each of 20 consumers, then ten for each of 4."""
    target = start("--topic", "orders=40")
    members = [Consumer(target, f"c{number:02}") for number in range(20)]
    async with consumers(members[0]):
        await settled(members[:1], [40])
        async with consumers(*members[1:]):
            await settled(members, [2] * 20)
            for one in members[4:]:
                await one.stop()
            assert await settled(members[:4], [10] * 4) < CONVERGE_S


# -- a consumer generated from the first assigner's proto -----------------------------------------------


class Original:
    """A process that uses only the first assigner's proto."""

    def __init__(self, folder: Path, target: str, name: str, topic: str = "orders") -> None:
        script = Path(__file__).with_name("original.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder / f"generated-{name}"), target, name, topic],
            stdin=subprocess.PIPE,
            stdout=(folder / f"{name}.jsonl").open("wb"),
        )
        self._file = folder / f"{name}.jsonl"

    def told(self, *kinds: str) -> list[dict[str, Any]]:
        """The process's lines of these kinds, in order."""
        rows = map(json.loads, self._file.read_text().splitlines())
        return [row for row in rows if row["kind"] in kinds]

    def owned(self) -> set[int]:
        """The partitions that were assigned and not released since."""
        owned: set[int] = set()
        for row in self.told("assignment", "release"):
            if row["kind"] == "release":
                owned.discard(row["partition"])
            else:
                owned = (owned | set(row["assigned"])) - set(row["unassigned"])
        return owned

    def leave(self) -> int:
        """Deregister and drain; return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(30)


@pytest.mark.slow
async def test_a_client_of_the_original_proto_lives_its_whole_life_here(
    start: Any, tmp_path: Path
) -> None:
    """The client registers, warms, owns, releases, deregisters and drains beside a consumer of ours."""
    target = start("--topic", "orders=8")
    async with consumers(Consumer(target, "ours")) as (ours,):
        await settled([ours], [8])
        theirs = Original(tmp_path, target, "theirs")
        try:
            await until(lambda: len(theirs.owned()) == 4 and len(ours.working) == 4)
            assert theirs.told("assignment")[0]["assigned"] == []
            assert {row["owner"] for row in theirs.told("warm")} == {"ours"}
            async with consumers(Consumer(target, "third")) as (third,):
                await until(
                    lambda: (
                        sorted((len(theirs.owned()), len(ours.working), len(third.working)))
                        == [2, 3, 3]
                    )
                )
                await third.leave()
            await until(lambda: len(theirs.owned()) + len(ours.working) == 8)
            assert await asyncio.to_thread(theirs.leave) == 0
            await settled([ours], [8])
            assert [row["action"] for row in theirs.told("deregister")] == ["WAIT_FOR_DRAIN"]
            assert theirs.told("ended") == [{"kind": "ended", "code": "OK"}]
            assert theirs.told("unknown") == []
        finally:
            theirs.process.kill()
            theirs.process.wait()
