"""Faults on the assigner service in strict mode, with a sink that compares epochs: ``make chaos``.

    python -m tests.soak.chaos --seed 1 --seconds 600

There are three etcd members, three instances and seven consumer processes, which write ten times a
second to each of their partitions. Rounds of faults are drawn from the seed: a second process of a
name, SIGSTOP between ``may_work()`` and a write, SIGKILL, etcd members cut from their peers, and
instances killed or cut off. After the last fault of a round, each partition must have a write
within the time to live and 10 s.

- No process may write in the epoch of another process, whatever their names.
- No process may write to a partition after a later process of its name has written.
- No write may be refused within a second of its ``may_work()``: strict mode has one owner at a time.
- A replaced process must end, and no other process may end.
- The records in etcd must follow the rules of a hand-off.

The exit code is 1 after a broken promise; then the logs are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.soak.chaos.cluster import cluster
from tests.soak.chaos.schedule import ETCD, INSTANCES, Fault, rounds
from tests.soak.chaos.world import PARTITIONS, PREFIX, TTL_S, World, world
from tests.support.assigning.history import faults as broken_rules
from tests.support.assigning.history import history

NAMES = tuple(f"c{number}" for number in range(7))
#: Seconds from the end of a round's last fault until each partition must have a write.
WITHIN_S = TTL_S + 10.0
#: Seconds for processes to start, and for the first hand-offs.
START_S = 90.0
#: Faults that start another process of a name while the previous process is alive.
TWINS = ("twin", "twin-cut", "twin-paused")
#: Seconds for a process to come to its next write and stop there.
PAUSE_S = 3.0


async def _until_stopped(world: World, name: str) -> None:
    """Stop the newest process of the name before its next write; stop an idle process as is."""
    process = world.newest(name)
    process.send(signal.SIGUSR1)
    deadline = time.monotonic() + PAUSE_S
    while not process.is_stopped and process.popen.poll() is None:
        if time.monotonic() > deadline:
            process.send(signal.SIGSTOP)
            return
        await asyncio.sleep(0.02)


async def _on_consumer(world: World, fault: Fault) -> None:
    name = NAMES[fault.number]
    process = await world.begun(world.newest(name))
    if fault.kind in TWINS:
        await world.registered(process)
    if fault.kind == "twin":
        world.spawn(name)
        await asyncio.sleep(fault.for_s)
    elif fault.kind == "twin-cut":
        for door in process.doors:
            door.cut()
        world.spawn(name)
        await asyncio.sleep(fault.for_s)
        for door in process.doors:
            door.heal()
    elif fault.kind in ("pause", "twin-paused"):
        await _until_stopped(world, name)
        if fault.kind == "twin-paused":
            world.spawn(name)
        await asyncio.sleep(fault.for_s)
        process.send(signal.SIGCONT)
    elif fault.kind == "stop":
        process.send(signal.SIGSTOP)
        await asyncio.sleep(fault.for_s)
        process.send(signal.SIGCONT)
    else:
        process.send(signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM)
        await asyncio.sleep(fault.for_s)
        world.spawn(name)


async def _until_started(world: World, number: int) -> None:
    """Start an instance like a supervisor: retry after an exit caused by a missing etcd."""
    deadline = time.monotonic() + START_S
    while True:
        world.start_instance(number)
        try:
            await asyncio.to_thread(world.instances[number].wait)
            return
        except AssertionError:
            if time.monotonic() > deadline:
                raise


async def _on_instance(world: World, fault: Fault) -> None:
    number = fault.number
    instance = world.instances[number]
    if fault.kind in ("kill-instance", "term-instance"):
        instance.send(signal.SIGKILL if fault.kind == "kill-instance" else signal.SIGTERM)
        await asyncio.to_thread(instance.process.wait, 60)
        await asyncio.sleep(fault.for_s)
        await _until_started(world, number)
    elif fault.kind == "stop-instance":
        instance.send(signal.SIGSTOP)
        await asyncio.sleep(fault.for_s)
        instance.send(signal.SIGCONT)
    else:
        cut = [world.doors[number]] if fault.kind == "cut-consumers" else world.cables[number]
        for cable in cut:
            cable.cut()
        await asyncio.sleep(fault.for_s)
        for cable in cut:
            cable.heal()


async def _on_etcd(world: World, fault: Fault) -> None:
    etcd, number = world.etcd, fault.number
    if fault.kind == "cut-peer":
        etcd.cut_off = number
        await asyncio.sleep(fault.for_s)
        etcd.cut_off = None
    elif fault.kind == "kill-etcd":
        await asyncio.to_thread(etcd.kill, number)
        await asyncio.sleep(fault.for_s)
        etcd.start(number)
        await asyncio.to_thread(etcd.wait)
    else:
        is_leader = await asyncio.to_thread(etcd.is_leader, number)
        etcd.send(number, signal.SIGSTOP)
        await asyncio.sleep(fault.for_s)
        if is_leader and etcd.loses_leases():
            # After SIGCONT, etcd itself would end the leases of living consumers.
            await asyncio.to_thread(etcd.kill, number)
            etcd.start(number)
            await asyncio.to_thread(etcd.wait)
        else:
            etcd.send(number, signal.SIGCONT)


async def _play(world: World, fault: Fault) -> None:
    if fault.kind in ETCD:
        await _on_etcd(world, fault)
    elif fault.kind in INSTANCES:
        await _on_instance(world, fault)
    else:
        await _on_consumer(world, fault)


async def _written(world: World, since: float, within_s: float) -> float | None:
    """Return the seconds from ``since`` until each partition has a write; None if too late."""
    while silent := world.book.silent(since, time.monotonic()):
        if time.monotonic() - since > within_s:
            print(f"  silent after {within_s:g} s: {silent}", flush=True)
            return None
        await asyncio.sleep(0.05)
    return time.monotonic() - since


async def _strays(world: World) -> list[str]:
    """Return the processes in a wrong state after the deadline of the partitions."""
    deadline = time.monotonic() + WITHIN_S
    while (found := list(world.strays())) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    return found


async def _chaos(world: World, seed: int, seconds: float) -> tuple[list[str], list[float], int]:
    """Return the broken promises, the recovery time of each round, and the number of faults."""
    for name in NAMES:
        world.spawn(name)
    began, broken, times, played = time.monotonic(), list[str](), list[float](), 0
    if await _written(world, began, START_S) is None:
        return ["the group did not settle at the start"], times, played
    for number, faults in enumerate(rounds(seed, len(NAMES)), 1):
        if time.monotonic() - began > seconds or broken:
            break
        print(
            f"{time.monotonic() - began:6.1f} {number:4d} {', '.join(map(str, faults))}", flush=True
        )
        await asyncio.gather(*(_play(world, fault) for fault in faults))
        played += len(faults)
        took = await _written(world, time.monotonic(), WITHIN_S)
        if took is None:
            broken.append(f"round {number}: not all partitions are owned within {WITHIN_S:g} s")
        else:
            times.append(took)
        broken += [f"round {number}: {one}" for one in await _strays(world)]
        broken += [f"round {number}: {one}" for one in world.book.faults]
    events = await history(world.etcd.endpoints[0], PREFIX)
    return broken + broken_rules(events, PREFIX, strict=True), times, played


async def _run(seed: int, seconds: float, folder: Path) -> list[str]:
    with cluster(folder) as etcd:
        async with world(folder, etcd) as made:
            broken, times, played = await _chaos(made, seed, seconds)
            book = made.book
    processes = sum(map(len, made.processes.values()))
    print(
        f"seed {seed}: {played} faults in {len(times)} rounds on {PARTITIONS} partitions; "
        f"{book.taken} writes taken, {book.late} late ones refused; {processes} processes, "
        f"{book.owners.total()} changes of owner; longest time until all was owned "
        f"{max(times, default=0):.1f} s; {len(broken)} promises broken"
    )
    return broken


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=600.0)
    said = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"seed {said.seed}, {said.seconds:g} s", flush=True)
    broken = asyncio.run(_run(said.seed, said.seconds, folder))
    for one in broken:
        print(f"BROKEN: {one}")
    if broken:
        print(f"logs: {folder}")
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
