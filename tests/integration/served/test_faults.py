"""Several instances on one etcd converge after an instance, a consumer or etcd dies, stops or is
cut off.

After each fault, within the time to live, the debounce and two seconds: every partition has one
living owner, no hand-off is open, and one instance leads. A sink that checks epochs saw no two
owners at once, and etcd's history keeps the rules of a hand-off.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from faust_assigner.service.client import Warm
from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.operator import is_serving
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from tests.integration.served.group import (
    CONVERGE_S,
    PARTITIONS,
    TTL_S,
    consumer,
    group,
    leader_of,
    until_led_by,
    within,
    writing,
)
from tests.support.assigning.instances import (
    Consumer,
    calls_ended,
    consumers,
    counts,
    settled,
    until,
    until_state,
)
from tests.support.assigning.proofs import HeardClient, lie
from tests.support.assigning.rules import NO_ID, Said
from tests.support.etcd import EtcdServer, etcd_server

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.parametrize("count", [2, 3])
async def test_a_killed_leader_is_followed_by_another(
    tmp_path: Path, etcd: EtcdServer, count: int
) -> None:
    """SIGKILL: the dead instance's consumers reconnect elsewhere and keep their partitions."""
    with group(tmp_path, etcd, count) as g:
        members = [
            consumer(g.targets[n % count :] + g.targets[: n % count], f"c{n}") for n in range(4)
        ]
        async with consumers(*members[:3]), writing(members):
            await settled(members[:3], [11, 11, 10])
            held = {one.name: dict(one.working) for one in members[:3]}
            leader = await leader_of(g.running)
            left = next(one for one in g.running if one is not leader)
            async with within(CONVERGE_S, f"leader of {count} killed", g.ids()) as taken:
                leader.process.kill()
                await leader_of(g.running)
                await settled(members[:3], [11, 11, 10])
            # If the machine took longer than a lease can spare, some leases expired.
            assert {
                one.name: one.working for one in members[:3]
            } == held or taken.seconds > TTL_S / 3
            async with consumers(members[3]):
                await settled(members, [8, 8, 8, 8])
                await g.is_sound(left.target)


async def test_a_leader_stopped_past_its_lease_wakes_as_a_follower(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """After SIGCONT the old leader writes nothing under its expired lease."""
    with group(tmp_path, etcd, 2) as g:
        leader = await leader_of(g.running)
        other = next(one for one in g.running if one is not leader)
        members = [consumer([leader.target, other.target], f"c{n}") for n in range(4)]
        async with consumers(*members[:2]), writing(members):
            await settled(members[:2], [16, 16])
            async with within(CONVERGE_S, "leader stopped", g.ids()):
                leader.send(signal.SIGSTOP)
                await until_led_by(other)
                await settled(members[:2], [16, 16])
            # A consumer that tries the stopped instance first gives up after a while.
            async with consumers(*members[2:]):
                await settled(members, [8, 8, 8, 8])
                async with within(CONVERGE_S, "it went on", g.ids()):
                    leader.send(signal.SIGCONT)
                    assert await leader_of(g.running) is other
                await asyncio.sleep(1)
                await settled(members, [8, 8, 8, 8])
                await g.is_sound(leader.target)


async def test_a_leader_cut_from_etcd_steps_down_before_another_leads(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """The network drops all packets to etcd; the leader's consumers reconnect to the other instance."""
    with group(tmp_path, etcd, 2, cabled=True) as g:
        first = await leader_of(g.running)
        second = next(one for one in g.running if one is not first)
        members = [consumer([first.target, second.target], f"c{n}") for n in range(3)]
        async with consumers(*members), writing(members):
            await settled(members, [11, 11, 10])
            cable = g.cables[g.running.index(first)]
            async with within(CONVERGE_S, "leader cut off", g.ids()):
                cable.cut()
                await until_led_by(second)
                assert not await is_serving(first.target, "leader", Access())
                await settled(members, [11, 11, 10])
                await until_state(second.target, lambda state: len(state.consumers) == 3)
            cable.heal()
            await asyncio.sleep(2)
            await settled(members, [11, 11, 10])
            await g.is_sound(second.target)


async def test_etcd_killed_and_started_again(tmp_path: Path) -> None:
    """Consumers are fenced while etcd is down; after its restart the group converges."""
    with etcd_server() as etcd, group(tmp_path, etcd, 2) as g:
        members = [consumer(g.targets, f"c{n}") for n in range(3)]
        async with g.recorded(), consumers(*members), writing(members):
            await settled(members, [11, 11, 10])
            etcd.kill()
            await asyncio.sleep(TTL_S * 2)
            assert not any(one.client.may_work(p) for one in members for p in list(one.working))
            etcd.start()
            async with within(CONVERGE_S, "etcd started again", g.ids()):
                await settled(members, [11, 11, 10])
                await leader_of(g.running)
            await g.is_sound(g.targets[0])


async def test_etcd_compacted_under_the_watches(tmp_path: Path) -> None:
    """A stopped instance resumes after a compaction, and lists etcd anew."""
    with etcd_server() as etcd, group(tmp_path, etcd, 2) as g:
        leader = await leader_of(g.running)
        other = next(one for one in g.running if one is not leader)
        members = [consumer(leader.target, f"c{n}") for n in range(4)]
        async with g.recorded(), consumers(*members[:2]), writing(members):
            await settled(members[:2], [16, 16])
            other.send(signal.SIGSTOP)
            async with consumers(*members[2:]):
                await settled(members, [8, 8, 8, 8])
                await until_state(leader.target, lambda state: not state.handoffs)
                await asyncio.to_thread(compact, etcd)
                async with within(CONVERGE_S, "compacted", g.ids()):
                    other.send(signal.SIGCONT)
                    said = await until_state(other.target, lambda state: len(state.consumers) == 4)
                    assert len(said.assignments) == 32
                    await leader_of(g.running)
                    await settled(members, [8, 8, 8, 8])
                await g.is_sound(other.target)


async def test_etcd_over_its_quota(tmp_path: Path) -> None:
    """etcd refuses writes: no consumer can join, owners keep processing; later the join succeeds."""
    quota = ["--quota-backend-bytes", str(2 * 2**20)]
    with etcd_server(options=quota) as etcd, group(tmp_path, etcd, 1) as g:
        members = [consumer(g.targets, f"c{n}") for n in range(3)]
        async with g.recorded(), consumers(*members[:2]), writing(members):
            await settled(members[:2], [16, 16])
            await asyncio.to_thread(fill, etcd)
            late = members[2].start()
            await asyncio.sleep(2)
            assert late.working == {}
            assert [len(one.working) for one in members[:2]] == [16, 16]
            assert all(one.client.may_work(p) for one in members[:2] for p in one.working)
            await asyncio.to_thread(empty, etcd)
            async with within(CONVERGE_S, "room made", g.ids()):
                await settled(members, [11, 11, 10])
                await until_state(g.targets[0], lambda state: not state.handoffs)
            await g.is_sound(g.targets[0])
            await late.stop()
        await calls_ended()


async def test_etcd_restored_from_a_snapshot(tmp_path: Path) -> None:
    """Consumers lost with the restore register again, and the sink accepts all writes of new owners."""
    with etcd_server() as etcd, group(tmp_path, etcd, 2) as g:
        members = [consumer(g.targets, f"c{n}") for n in range(4)]
        # Owners lost with the snapshot are not informed: a former owner processes until its fence.
        async with consumers(*members[:3]), writing(members, strict=False) as sink:
            await settled(members[:3], [11, 11, 10])
            await asyncio.to_thread(etcd.tool, "snapshot", "save", str(tmp_path / "snapshot"))
            async with consumers(members[3]):
                await settled(members, [8, 8, 8, 8])
                before = {
                    partition: epoch for one in members for partition, epoch in one.working.items()
                }
                await asyncio.to_thread(etcd.restore, tmp_path / "snapshot")
                await until(
                    lambda: (
                        counts(members) == [8, 8, 8, 8]
                        and all(
                            epoch > before[partition] and sink.epochs[partition] == epoch
                            for one in members
                            for partition, epoch in one.working.items()
                        )
                    ),
                    "writes are taken",
                )
                await settled(members, [8, 8, 8, 8])
            await calls_ended()


def compact(etcd: EtcdServer) -> None:
    """Compact the history."""
    status = etcd.tool("get", "/", "--prefix", "--limit=1", "-w", "json")
    revision = re.search(r'"revision":(\d+)', status)
    assert revision
    etcd.tool("compact", revision[1])


def fill(etcd: EtcdServer) -> None:
    """Write until etcd refuses a write."""
    tool = str(etcd.program.with_name("etcdctl"))
    for number in range(100):
        put = subprocess.run(
            [tool, "--endpoints", etcd.endpoint, "put", f"/filler/{number}"],
            input=b"x" * 500_000,
            capture_output=True,
            check=False,
        )
        if b"exceeded" in put.stderr:
            return
    raise AssertionError("the quota was never reached")


def empty(etcd: EtcdServer) -> None:
    """Make room like an operator."""
    etcd.tool("del", "/filler/", "--prefix")
    compact(etcd)
    etcd.tool("defrag")
    etcd.tool("alarm", "disarm")


class Worker:
    """A consumer process and its journal."""

    def __init__(self, folder: Path, targets: Sequence[str], name: str) -> None:
        self.journal = folder / f"{name}.journal"
        self.journal.touch()
        command = [
            sys.executable,
            "-m",
            "tests.support.assigning.consumer",
            ",".join(targets),
            name,
        ]
        self.process = subprocess.Popen([*command, str(self.journal)])

    def lines(self) -> list[tuple[float, str, int]]:
        """The journal's lines: time, partition, epoch."""
        rows = [line.split() for line in self.journal.read_text().splitlines()]
        return [(float(row[0]), row[1], int(row[2])) for row in rows if len(row) == 3]

    def end(self) -> None:
        """Kill the process, stopped or not."""
        self.process.kill()
        self.process.wait()


def owners_at_once(workers: Sequence[Worker]) -> list[str]:
    """Find work of an old owner after a new owner, with a higher epoch, has begun."""
    rows = sorted(
        (at, partition, epoch, worker.journal.stem)
        for worker in workers
        for at, partition, epoch in worker.lines()
    )
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
    tmp_path: Path, etcd: EtcdServer, how: signal.Signals
) -> None:
    """Its partitions are reassigned in time; a resumed process touches no reassigned partition."""
    with group(tmp_path, etcd, 2) as g:
        workers = [Worker(tmp_path, g.targets, f"w{n}") for n in range(3)]
        try:
            await until_owned(g.targets[0], [11, 11, 10])
            async with within(
                CONVERGE_S, f"consumer {how.name}", g.ids(*(one.process for one in workers))
            ):
                workers[2].process.send_signal(how)
                await until_owned(g.targets[0], [16, 16])
            if how is signal.SIGSTOP:
                async with within(
                    CONVERGE_S, "consumer woken", g.ids(*(one.process for one in workers))
                ):
                    workers[2].process.send_signal(signal.SIGCONT)
                    await until_owned(g.targets[0], [11, 11, 10])
            await asyncio.sleep(0.5)
            assert owners_at_once(workers) == []
            await g.is_sound(g.targets[1])
        finally:
            for worker in workers:
                worker.end()


async def until_owned(target: str, loads: Sequence[int]) -> None:
    """Wait until owners have these loads and no hand-off is open."""

    def fits(said: pb.State) -> bool:
        counted = Counter(one.owner for one in said.assignments)
        return sorted(counted.values(), reverse=True) == list(loads) and not said.handoffs

    await until_state(target, fits)


async def test_consumers_that_reconnect_all_the_time_keep_what_they_have(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """Each restarted process gets its partitions back within the time limit, at either instance."""
    with group(tmp_path, etcd, 2) as g:
        members = [consumer(g.targets, f"c{n}") for n in range(3)]
        async with consumers(*members):
            await settled(members, [11, 11, 10])
            held = [set(one.working) for one in members]
            for turn in range(6):
                at = turn % 3
                async with within(CONVERGE_S, f"c{at} came back", g.ids()):
                    await members[at].stop()
                    members[at] = consumer([g.targets[turn % 2]], f"c{at}").start()
                    await until(lambda at=at: members[at].working.keys() == held[at])  # type: ignore[misc]
            await asyncio.sleep(TTL_S)
            await until(lambda: [one.working.keys() for one in members] == held)
            await g.is_sound(g.targets[0])
            for one in members:
                await one.stop()
            await calls_ended()


async def test_answers_of_liars_are_refused_as_the_model_does(
    tmp_path: Path, etcd: EtcdServer
) -> None:
    """False answers name any consumer and any hand-off, while consumers change and the leader dies."""
    dice = random.Random(5)
    with group(tmp_path, etcd, 2) as g:
        members = [Consumer(g.targets, f"c{n}", kind=HeardClient, warm_s=0.3) for n in range(6)]
        lies: list[Said] = []

        async def lying() -> None:
            living = [one.target for one in g.running]
            while True:
                ids = [
                    one.handoff_id for m in members for one in m.told if isinstance(one, Warm)
                ] or [1]
                names = [*(one.name for one in members), "stranger"]
                ids = [*ids[-8:], ids[-1] - 1, NO_ID]
                said = await lie(dice.choice(living), PARTITIONS, names, ids, dice)
                lies.extend([said] if said is not None else [])
                await asyncio.sleep(0.02)

        async with consumers(*members[:2]), writing(members):
            await settled(members[:2], [16, 16])
            liars = [asyncio.create_task(lying()) for _ in range(4)]
            async with consumers(*members[2:]):
                await settled(members, [6, 6, 5, 5, 5, 5])
                (await leader_of(g.running)).process.kill()
                left = await leader_of(g.running)
            await settled(members[:2], [16, 16])
            async with asyncio.timeout(60):
                while len(lies) <= 200:
                    await asyncio.sleep(0.1)
            for task in liars:
                task.cancel()
            await asyncio.gather(*liars, return_exceptions=True)
            print(f"\n{len(lies)} lies, {sum(one.refused for one in lies)} refused")
            HeardClient.heard += lies
            await g.is_sound(left.target)
