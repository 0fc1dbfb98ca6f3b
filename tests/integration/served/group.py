"""Instances on one etcd, their promises checked from recorded traffic, and time limits after faults."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from faust_assigner.service.client import TopicPartition
from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.operator import is_serving
from faust_assigner.service.keys import Keys
from faust_assigner.service.leases import FENCE_AT
from faust_assigner.service.store.base import Event
from faust_assigner.service.values import load_base
from tests.integration.served.conftest import on
from tests.support.assigning import convergence
from tests.support.assigning.history import Recorder, faults, history, recorded
from tests.support.assigning.instances import (
    QUICK,
    Consumer,
    Instance,
    Sink,
    calls_ended,
    instances,
    until_state,
)
from tests.support.assigning.proofs import (
    HeardClient,
    after_the_term,
    moments,
    unfitting,
    without_compares,
)
from tests.support.assigning.wiretap import Tap, taps
from tests.support.clients.tcp_proxy import Proxy, proxy_to
from tests.support.etcd import EtcdServer

TTL_S = 3.0
DEBOUNCE_S = 0.2
#: The limit after each fault; ``within`` adds the time that the machine took.
CONVERGE_S = TTL_S + DEBOUNCE_S + 2.0
STRICT = ("--strict", "--topic", "orders=24", "--topic", "rates=8")
PARTITIONS = [TopicPartition("orders", n) for n in range(24)] + [
    TopicPartition("rates", n) for n in range(8)
]


def within(
    bound_s: float, what: str, ids: Sequence[int]
) -> AbstractAsyncContextManager[convergence.Taken]:
    """Allow a third of a time to live as spare: renewals start after one third and may take another."""
    return convergence.within(bound_s, what, ids, spare_s=TTL_S / 3)


@dataclass
class Group:
    """Instances on one etcd, each behind a tap that records its writes, with checks of their promises."""

    etcd: EtcdServer
    flags: tuple[str, ...]
    running: list[Instance] = field(default_factory=list)
    taps: list[Tap] = field(default_factory=list)
    cables: list[Proxy] = field(default_factory=list)
    _recorder: Recorder | None = None

    @property
    def targets(self) -> list[str]:
        """The addresses for consumers."""
        return [one.target for one in self.running]

    def ids(self, *workers: subprocess.Popen[bytes]) -> list[int]:
        """The ids of all processes in the scenario."""
        found = [*(one.process for one in self.running), self.etcd.process, *workers]
        return [
            *(process.pid for process in found if process is not None),
            *(tap.pid for tap in self.taps),
        ]

    @contextlib.asynccontextmanager
    async def recorded(self) -> AsyncIterator[None]:
        """Record the history from now on, for scenarios in which etcd loses data or dies."""
        async with recorded(self.etcd.endpoint, self.flags[3]) as self._recorder:
            yield

    async def _history(self) -> list[Event]:
        if self._recorder is not None:
            return await self._recorder.so_far()
        return await history(self.etcd.endpoint, self.flags[3])

    async def is_sound(self, target: str) -> None:
        """Assert one owner per partition, no open hand-off, and C1 to C6 and C9 for the whole history."""
        said = await until_state(
            target, lambda state: len(state.assignments) == len(PARTITIONS) and not state.handoffs
        )
        assert {one.owner for one in said.assignments} <= {
            one.consumer_name for one in said.consumers
        }
        keys = Keys(self.flags[3])
        events = await self._history()
        assert faults(events, keys.prefix, strict=True) == []
        bases = [load_base(one.kv.value) for one in events if one.key == keys.epochs and one.kv]
        assert all(base <= time.time() * 1000 for base in bases), "nobody took it for restored"
        assert without_compares(self.taps, keys) == []
        # The fence leaves a third of the lease for calls in flight, plus the delays of the machine.
        late_s = TTL_S * (1 - FENCE_AT) + sum(convergence.queued_s(self.ids()).values())
        assert after_the_term(self.taps, events, keys, TTL_S, late_s=late_s) == []
        carried = [one for tap in self.taps for one in tap.transactions]
        assert any(one.revision and one.writes for one in carried), "the taps saw the writes"
        strangers = unfitting(HeardClient.heard, moments(events, carried, keys))
        assert not strangers, "\n".join(strangers)
        await calls_ended()


@contextlib.contextmanager
def group(
    folder: Path, etcd: EtcdServer, count: int, *, cabled: bool = False, options: Sequence[str] = ()
) -> Iterator[Group]:
    """Start ``count`` instances; ``cabled`` puts a proxy that can be cut between each and etcd."""
    HeardClient.heard.clear()
    flags = on(etcd)
    with contextlib.ExitStack() as ends:
        tapped = ends.enter_context(taps(etcd.endpoint, count, folder))
        started = Group(etcd, flags, taps=tapped)
        for tap in tapped:
            if cabled:
                started.cables.append(ends.enter_context(proxy_to(tap.endpoint)))
            way = (
                "--etcd",
                f"http://{(started.cables[-1] if cabled else tap).endpoint}",
                *flags[2:],
            )
            started.running += ends.enter_context(
                instances(folder, *QUICK, *way, *STRICT, *options)
            )
        yield started


def consumer(targets: str | Sequence[str], name: str) -> Consumer:
    """A consumer that keeps its acknowledgements."""
    return Consumer(targets, name, kind=HeardClient)


@contextlib.asynccontextmanager
async def writing(members: Sequence[Consumer], *, strict: bool = True) -> AsyncIterator[Sink]:
    """Let all members write to one sink all the time.

    Two consumers must not write under the same epoch. In strict mode the sink must not refuse any
    write.
    """
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
    assert sink.refused == 0 or not strict


async def leader_of(running: Sequence[Instance], *, seconds: float = 30.0) -> Instance:
    """Wait for exactly one leader and return this instance."""
    found: list[Instance] = []

    async def look() -> bool:
        living = [one for one in running if one.process.poll() is None]
        well = await asyncio.gather(
            *(is_serving(one.target, "leader", Access(), patience_s=0.5) for one in living)
        )
        found[:] = [one for one, leads in zip(living, well, strict=True) if leads]
        return len(found) == 1

    async with asyncio.timeout(seconds):
        while not await look():
            await asyncio.sleep(0.1)
    return found[0]


async def until_led_by(one: Instance) -> None:
    """Wait until this instance reports that it leads."""
    async with asyncio.timeout(30.0):
        while not await is_serving(one.target, "leader", Access(), patience_s=0.5):
            await asyncio.sleep(0.05)
