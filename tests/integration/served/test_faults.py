"""Several instances on one etcd while something dies, stops, or is cut off: afterwards the group converges.

After each fault every partition has one living owner within the time to live, the debounce and two seconds,
no handoff is left, one instance leads, a sink that knows epochs saw no two owners at once, and etcd's history
keeps the rules of a handoff.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.health import is_well
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.testing.etcd import EtcdServer, etcd_server
from tests.integration.served.conftest import on
from tests.support.assigning.history import faults, history
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    Instance,
    Sink,
    calls_ended,
    consumers,
    instances,
    settled,
    until,
    until_state,
)
from tests.support.tcp_proxy import proxy_to

pytestmark = [pytest.mark.processes, pytest.mark.slow]
TTL_S = 3.0
CONVERGE_S = TTL_S + 0.2 + 2.0
#: The machine of the tests may be busy: a process that is to answer within seconds may get no turn for some.
BUSY_S = 5.0
STRICT = ("--strict", "--topic", "orders=24", "--topic", "rates=8")


@contextlib.asynccontextmanager
async def writing(members: Sequence[Consumer]) -> AsyncIterator[Sink]:
    """All of them write to one sink, all the time; no two may be taken under one epoch."""
    sink = Sink()

    async def write() -> None:
        while True:
            for one in members:
                one.write(sink)
            await asyncio.sleep(0.005)

    task = asyncio.create_task(write())
    try:
        yield sink
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert sink.violations == []
    assert sink.taken > 100


async def leader_of(running: Sequence[Instance], *, seconds: float = 30.0) -> Instance:
    """The instance that leads, once exactly one does."""
    found: list[Instance] = []

    async def look() -> bool:
        living = [one for one in running if one.process.poll() is None]
        well = await asyncio.gather(*(
            is_well(one.target, "leader", Access(), patience_s=0.5) for one in living))
        found[:] = [one for one, leads in zip(living, well, strict=True) if leads]
        return len(found) == 1

    async with asyncio.timeout(seconds):
        while not await look():
            await asyncio.sleep(0.1)
    return found[0]


async def is_sound(flags: Sequence[str], target: str, partitions: int, *, strict: bool = True) -> None:
    """Everything is owned once, nothing is under way, and the history keeps the rules."""
    said = await until_state(
        target, lambda state: len(state.assignments) == partitions and not state.handoffs)
    living = {one.consumer_name for one in said.consumers}
    assert {one.owner for one in said.assignments} <= living
    endpoint, prefix = flags[1].removeprefix("http://"), flags[3]
    assert faults(await history(endpoint, prefix), prefix, strict=strict) == []
    await calls_ended()


@pytest.mark.parametrize("count", [2, 3])
async def test_a_killed_leader_is_followed_by_another(tmp_path: Path, etcd: EtcdServer, count: int) -> None:
    """SIGKILL; consumers of the dead instance find another and keep their partitions."""
    flags = on(etcd)
    with instances(tmp_path, *QUICK, *flags, *STRICT, count=count) as running:
        targets = [one.target for one in running]
        members = [Consumer(targets[n % count:] + targets[:n % count], f"c{n}") for n in range(4)]
        async with consumers(*members[:3]), writing(members):
            await settled(members[:3], [11, 11, 10])
            held = {one.name: dict(one.working) for one in members[:3]}
            leader = await leader_of(running)
            leader.process.kill()
            await leader_of(running, seconds=CONVERGE_S + BUSY_S)
            assert {one.name: one.working for one in members[:3]} == held
            async with consumers(members[3]):
                await settled(members, [8, 8, 8, 8])
                left = next(one for one in running if one is not leader)
                await is_sound(flags, left.target, 32)


async def test_a_leader_stopped_past_its_lease_wakes_as_a_follower(tmp_path: Path, etcd: EtcdServer) -> None:
    """SIGSTOP, SIGCONT: it writes nothing under a lease that is gone, and serves on."""
    flags = on(etcd)
    with instances(tmp_path, *QUICK, *flags, *STRICT, count=2) as running:
        leader = await leader_of(running)
        other = next(one for one in running if one is not leader)
        members = [Consumer(other.target, f"c{n}") for n in range(3)]
        async with consumers(*members[:2]), writing(members):
            await settled(members[:2], [16, 16])
            leader.send(signal.SIGSTOP)
            await until_led_by(other)
            async with consumers(members[2]):
                await settled(members, [11, 11, 10])
                leader.send(signal.SIGCONT)
                assert await leader_of(running) is other
                await asyncio.sleep(1)
                await settled(members, [11, 11, 10])
                await is_sound(flags, leader.target, 32)


async def until_led_by(one: Instance) -> None:
    """Wait until this instance says that it leads."""
    async with asyncio.timeout(CONVERGE_S + BUSY_S):
        while not await is_well(one.target, "leader", Access(), patience_s=0.5):
            await asyncio.sleep(0.05)


async def test_a_leader_cut_from_etcd_steps_down_before_another_leads(
    tmp_path: Path, etcd: EtcdServer,
) -> None:
    """Nothing gets through to etcd, and nothing is said; its consumers go to the other instance."""
    flags = on(etcd)
    with proxy_to(etcd.endpoint) as cable:
        cut_off = ("--etcd", f"http://{cable.endpoint}", *flags[2:])
        with instances(tmp_path, *QUICK, *cut_off, *STRICT) as (first,):
            await leader_of([first])
            with instances(tmp_path, *QUICK, *flags, *STRICT) as (second,):
                members = [Consumer([first.target, second.target], f"c{n}") for n in range(3)]
                async with consumers(*members), writing(members):
                    await settled(members, [11, 11, 10])
                    cable.cut()
                    await until_led_by(second)
                    assert not await is_well(first.target, "leader", Access())
                    await settled(members, [11, 11, 10], seconds=3 * CONVERGE_S + BUSY_S)
                    await until_state(second.target, lambda state: len(state.consumers) == 3)
                    cable.heal()
                    await asyncio.sleep(2)
                    await settled(members, [11, 11, 10])
                    await is_sound(flags, second.target, 32)


async def test_etcd_killed_and_started_again(tmp_path: Path) -> None:
    """Consumers stop when their time is over and not later; when etcd is back the group is."""
    with etcd_server() as etcd:
        flags = on(etcd)
        with instances(tmp_path, *QUICK, *flags, *STRICT, count=2) as running:
            members = [Consumer([one.target for one in running], f"c{n}") for n in range(3)]
            async with consumers(*members), writing(members):
                await settled(members, [11, 11, 10])
                etcd.kill()
                await asyncio.sleep(TTL_S * 2)
                assert not any(one.client.may_work(p) for one in members for p in list(one.working))
                etcd.start()
                await settled(members, [11, 11, 10], seconds=2 * CONVERGE_S + BUSY_S)
                await leader_of(running)
                await is_sound(flags, running[0].target, 32)


async def test_etcd_compacted_under_the_watches(tmp_path: Path) -> None:
    """An instance that was stopped wakes behind a compaction, and lists anew."""
    with etcd_server() as etcd:
        flags = on(etcd)
        with instances(tmp_path, *QUICK, *flags, *STRICT, count=2) as running:
            leader = await leader_of(running)
            other = next(one for one in running if one is not leader)
            members = [Consumer(leader.target, f"c{n}") for n in range(4)]
            async with consumers(*members[:2]), writing(members):
                await settled(members[:2], [16, 16])
                other.send(signal.SIGSTOP)
                async with consumers(*members[2:]):
                    await settled(members, [8, 8, 8, 8])
                    await until_state(leader.target, lambda state: not state.handoffs)
                    await asyncio.to_thread(compact, etcd)
                    other.send(signal.SIGCONT)
                    said = await until_state(other.target, lambda state: len(state.consumers) == 4)
                    assert len(said.assignments) == 32
                    await leader_of(running)
                    await settled(members, [8, 8, 8, 8])
            await calls_ended()


async def test_etcd_over_its_quota(tmp_path: Path) -> None:
    """It takes no writes: nobody is let in, those who are work on; with room again everything goes on."""
    with etcd_server(options=["--quota-backend-bytes", str(2 * 2**20)]) as etcd:
        flags = on(etcd)
        with instances(tmp_path, *QUICK, *flags, *STRICT) as (service,):
            members = [Consumer(service.target, f"c{n}") for n in range(3)]
            async with consumers(*members[:2]), writing(members):
                await settled(members[:2], [16, 16])
                await asyncio.to_thread(fill, etcd)
                late = members[2].start()
                await asyncio.sleep(2)
                assert late.working == {}
                assert [len(one.working) for one in members[:2]] == [16, 16]
                assert all(one.client.may_work(p) for one in members[:2] for p in one.working)
                await asyncio.to_thread(empty, etcd)
                await settled(members, [11, 11, 10])
                await until_state(service.target, lambda state: not state.handoffs)
                await late.stop()
            await calls_ended()


def compact(etcd: EtcdServer) -> None:
    """Forget the history."""
    status = etcd.tool("get", "/", "--prefix", "--limit=1", "-w", "json")
    revision = re.search(r'"revision":(\d+)', status)
    assert revision
    etcd.tool("compact", revision[1])


def fill(etcd: EtcdServer) -> None:
    """Write until it refuses."""
    tool = str(etcd.program.with_name("etcdctl"))
    for number in range(100):
        put = subprocess.run(
            [tool, "--endpoints", etcd.endpoint, "put", f"/filler/{number}"],
            input=b"x" * 500_000, capture_output=True, check=False)
        if b"exceeded" in put.stderr:
            return
    raise AssertionError("the quota was never reached")


def empty(etcd: EtcdServer) -> None:
    """Make room, as an operator does."""
    etcd.tool("del", "/filler/", "--prefix")
    compact(etcd)
    etcd.tool("defrag")
    etcd.tool("alarm", "disarm")


class Worker:
    """A consumer as a process, with its journal."""

    def __init__(self, folder: Path, targets: Sequence[str], name: str) -> None:
        self.journal = folder / f"{name}.journal"
        self.journal.touch()
        command = [sys.executable, "-m", "tests.support.assigning.consumer", ",".join(targets), name]
        self.process = subprocess.Popen([*command, str(self.journal)])

    def lines(self) -> list[tuple[float, str, int]]:
        """When it worked on what under which epoch."""
        rows = [line.split() for line in self.journal.read_text().splitlines()]
        return [(float(row[0]), row[1], int(row[2])) for row in rows if len(row) == 3]

    def end(self) -> None:
        """Kill it, stopped or not."""
        self.process.kill()
        self.process.wait()


def owners_at_once(workers: Sequence[Worker]) -> list[str]:
    """Work of an old owner after a new one, which has a higher epoch, has begun."""
    rows = sorted((at, partition, epoch, worker.journal.stem)
                  for worker in workers for at, partition, epoch in worker.lines())
    highest: dict[str, tuple[int, str]] = {}
    found = []
    for at, partition, epoch, name in rows:
        known, owner = highest.get(partition, (0, name))
        if epoch < known or (epoch == known and name != owner):
            found.append(f"{at}: {name} on {partition} under {epoch}, {owner} has {known}")
        elif epoch > known:
            highest[partition] = (epoch, name)
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_consumer_killed_or_stopped_is_replaced_and_wakes_without_harm(
    tmp_path: Path, etcd: EtcdServer, how: signal.Signals,
) -> None:
    """What it held goes to the living in time; one that wakes works on nothing that is another's by then."""
    flags = on(etcd)
    with instances(tmp_path, *QUICK, *flags, *STRICT, count=2) as running:
        targets = [one.target for one in running]
        workers = [Worker(tmp_path, targets, f"w{n}") for n in range(3)]
        try:
            await until_owned(targets[0], [11, 11, 10])
            workers[2].process.send_signal(how)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await until_owned(targets[0], [16, 16])
            print(f"\n{how.name}: the others own all after {loop.time() - began:.1f} s")
            assert loop.time() - began < CONVERGE_S + BUSY_S
            if how is signal.SIGSTOP:
                workers[2].process.send_signal(signal.SIGCONT)
                await until_owned(targets[0], [11, 11, 10])
            await asyncio.sleep(0.5)
            assert owners_at_once(workers) == []
            await is_sound(flags, targets[1], 32)
        finally:
            for worker in workers:
                worker.end()


async def until_owned(target: str, loads: Sequence[int]) -> None:
    """Wait until the service says that so many partitions are owned by each, and nothing is under way."""
    def fits(said: pb.State) -> bool:
        counted = Counter(one.owner for one in said.assignments)
        return sorted(counted.values(), reverse=True) == list(loads) and not said.handoffs

    await until_state(target, fits)


async def test_consumers_that_reconnect_all_the_time_keep_what_they_have(
    tmp_path: Path, etcd: EtcdServer,
) -> None:
    """Each comes back within its time, at another instance."""
    flags = on(etcd)
    with instances(tmp_path, *QUICK, *flags, *STRICT, count=2) as running:
        targets = [one.target for one in running]
        members = [Consumer(targets, f"c{n}") for n in range(3)]
        async with consumers(*members):
            await settled(members, [11, 11, 10])
            held = [dict(one.working) for one in members]
            for turn in range(6):
                at = turn % 3
                await members[at].stop()
                members[at] = Consumer([targets[turn % 2]], f"c{at}").start()
                await until(lambda at=at: members[at].working == held[at])  # type: ignore[misc]
            await asyncio.sleep(TTL_S)
            assert [one.working for one in members] == held
            await is_sound(flags, targets[0], 32)
            for one in members:
                await one.stop()
            await calls_ended()
