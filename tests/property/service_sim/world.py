"""One run: instances, consumers, the store and faults, with the promises checked at every step."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from faust_assigner.service.errors import ServiceRefused
from faust_assigner.service.handoff import HandoffEvent, TopicPartition
from faust_assigner.service.node import AssignerNode
from faust_assigner.service.serving.answering import OF_OLD_OWNER
from faust_assigner.settings.service import ServiceSettings
from tests.property.service_sim.acts import Act, Setting
from tests.property.service_sim.book import must
from tests.property.service_sim.consumer import Instance, SimConsumer
from tests.property.service_sim.linear import check_history
from tests.property.service_sim.process import FarStore, Process
from tests.property.service_sim.promises import Promises, WatchedStore
from tests.property.service_sim.sink import Sink
from tests.support.assigning.rules import Said

MAX_CONSUMERS = 6
STEP_S = 0.25


@dataclass(eq=False)
class Running(Instance):
    """An instance and its network."""

    far: FarStore
    starting: asyncio.Task[None]


class World:
    """One run's state; ``do`` executes an act, ``settle`` checks the promises that hold without faults."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.draw = random.Random(setting.seed ^ 0x5EED)
        self.settings = ServiceSettings(
            prefix="/g/",
            consumer_ttl_s=6.0,
            consumer_keepalive_s=1.0,
            leader_ttl_s=4.0,
            leader_keepalive_s=1.0,
            election_retry_s=1.0,
            debounce_s=1.0,
            handoff_timeout_s=15.0,
            release_timeout_s=8.0,
            cooldown_s=10.0,
            rebalance_delay_s=5.0,
            reconcile_s=3.0,
            strict=setting.strict,
            channel=setting.channel,
            max_handoffs=setting.limit * 4,
            max_handoffs_per_consumer=setting.limit,
        )
        self.outside = Process("outside")
        self.promises = Promises(self.settings, self.outside)
        self.store = WatchedStore(clock=self.outside)
        self.store.promises = self.promises
        self.sink = Sink(strict=setting.strict)
        self.instances: list[Running] = []
        self.consumers: list[SimConsumer] = []
        self.said: list[Said] = []
        self.counts = {"t": setting.partitions, "one.more": 2}
        if setting.pairs:
            self.counts["twin"] = setting.partitions
        self.names = self.processes = 0
        self._later: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Start the instances."""
        for number in range(self.setting.nodes):
            self.instances.append(self._instance(f"n{number}"))
        await asyncio.sleep(1.0)

    def _instance(self, name: str) -> Running:
        process = Process(name, skew_s=self.draw.choice((0.0, 0.0, 1.5, -1.5)))
        far = FarStore(
            self.store,
            process,
            random.Random(self.draw.random()),
            self.promises.sent,
            self.promises.renewed,
        )
        node = AssignerNode(
            far, self.settings, node_id=name, topics=dict(self.counts), clock=process
        )
        loop = asyncio.get_running_loop()
        return Running(node, process, far, loop.create_task(_started(node, process), name=name))

    # -- acts -----------------------------------------------------------------------------------------

    async def do(self, act: Act) -> None:
        """Execute an act, then let its waiting time pass."""
        handler = getattr(self, f"_{act.kind}")
        await handler(act)
        await self.passes(act.wait)

    async def passes(self, seconds: float) -> None:
        """Let time pass in small steps, and check the promises at each step."""
        while True:
            self.check()
            if seconds <= 0:
                return
            await asyncio.sleep(min(seconds, STEP_S))
            seconds -= STEP_S

    def check(self) -> None:
        """Check C2 and C4 now, and raise a Violation that was noted meanwhile."""
        if self.promises.broken is not None:
            raise self.promises.broken
        if self.setting.strict:
            self.sink.check(self.consumers)
        leading = [i.node for i in self.instances if not i.process.paused and i.node.leads]
        must(len(leading) <= 1, "C4 one leader at a time", [node.node_id for node in leading])
        leader = self.promises.view.leader
        for node in leading:
            must(
                leader is not None and leader.value.holder == node.node_id,
                "C4 it leads while its key is there",
                node.node_id,
                leader,
            )

    def _one(self, act: Act) -> SimConsumer | None:
        living = [consumer for consumer in self.consumers if not consumer.gone]
        return living[act.who % len(living)] if living else None

    def _node(self, act: Act) -> Running:
        """Choose an instance: half of the time the leader."""
        leaders = [i for i in self.instances if i.node.leads]
        if leaders and act.who % 2:
            return leaders[0]
        return self.instances[act.who // 2 % len(self.instances)]

    async def _nothing(self, act: Act) -> None:
        pass

    async def _join(self, act: Act) -> None:
        self.consumers = [consumer for consumer in self.consumers if not consumer.gone]
        if len(self.consumers) >= MAX_CONSUMERS:
            return
        self.names += 1
        self._begins(f"c{self.names}", act)

    def _begins(self, name: str, act: Act) -> None:
        """Start a process under this name, which may be in use already."""
        self.processes += 1
        consumer = SimConsumer(
            name,
            f"p{self.processes}",
            Process(name),
            random.Random(self.draw.random()),
            self.sink,
            self.instances,
            self.said,  # type: ignore[arg-type]
            warm_s=(0.05, 0.3, 1.5, 4.0)[act.who % 4],
            declares=(("t", "twin"),) if self.setting.pairs else (),
        )
        self.consumers.append(consumer)
        consumer.start()

    async def _crash(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.crash()

    async def _restart(self, act: Act) -> None:
        """Start a second process under a name whose first process is killed, paused or still works."""
        if consumer := self._one(act):
            if act.who % 3 == 0:
                consumer.crash()
            elif act.who % 3 == 1:
                consumer.process.pause()
                self._after(act.seconds, consumer.process.go_on)
            self._begins(consumer.name, act)

    async def _stall(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.process.pause()
            self._after(act.seconds, consumer.process.go_on)

    async def _reconnect(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.reconnect()

    async def _leave(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.drain = True
            consumer.reconnect()

    async def _stuck(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.stuck = not consumer.stuck

    async def _failing(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.failing = not consumer.failing

    async def _mute(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.mute = not consumer.mute

    async def _unable(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.unable = not consumer.unable

    async def _forget(self, act: Act) -> None:
        if consumer := self._one(act):
            consumer.forget(act.who)

    async def _pause(self, act: Act) -> None:
        process = self._node(act).process
        process.pause()
        self._after(act.seconds, process.go_on)

    async def _outage(self, act: Act) -> None:
        """Stop all instances for longer than the consumers' time to live."""
        for instance in self.instances:
            instance.process.pause()
            self._after(self.settings.consumer_ttl_s + act.seconds, instance.process.go_on)

    async def _cut(self, act: Act) -> None:
        far = self._node(act).far
        far.cut = True
        self._after(act.seconds, lambda: setattr(far, "cut", False))

    async def _lossy(self, act: Act) -> None:
        far = self._node(act).far
        far.loss = 0.3
        self._after(act.seconds, lambda: setattr(far, "loss", 0.0))

    async def _kill(self, act: Act) -> None:
        """Kill an instance; its replacement starts a while later."""
        old = self._node(act)
        place = self.instances.index(old)
        old.process.dead.set()
        await _killed(old)
        old.process.go_on()  # tasks that wait for the process find it dead
        self.names += 1
        self.instances[place] = self._instance(f"n{place}-{self.names}")

    async def _coup(self, act: Act) -> None:
        """Pause the leader beyond its lease: a second instance leads, then the first wakes up."""
        for instance in self.instances:
            if instance.node.leads:
                instance.process.pause()
                self._after(self.settings.leader_ttl_s + 2.0, instance.process.go_on)

    async def _skew(self, act: Act) -> None:
        self._node(act).process.skew_s = act.who % 7 - 3.0

    async def _compact(self, act: Act) -> None:
        await self.store.compact(self.store.revision)

    async def _grow(self, act: Act) -> None:
        self.counts["t"] = min(self.counts["t"] + 1, 14)
        with contextlib.suppress(Exception):
            async with asyncio.timeout(3.0):
                await self._node(act).node.set_topic("t", self.counts["t"])

    async def _drain(self, act: Act) -> None:
        if consumer := self._one(act):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(3.0):
                    await self._node(act).node.drain(consumer.name)

    async def _abort(self, act: Act) -> None:
        if found := sorted(self.promises.view.handoffs):
            with contextlib.suppress(Exception):
                async with asyncio.timeout(3.0):
                    await self._node(act).node.acks.abort(found[act.who % len(found)], None)

    async def _lie(self, act: Act) -> None:
        """C5: send an answer for the wrong consumer, an old hand-off or none, or too early."""
        consumer = self._one(act)
        if consumer is None:
            return
        known = sorted(self.promises.began_at)
        at, handoff_id = known[act.who % len(known)] if known else (TopicPartition("t", 0), 1)
        event = (HandoffEvent.WARM, HandoffEvent.LET_GO, HandoffEvent.GAVE_UP, HandoffEvent.CANNOT)[
            act.who % 4
        ]
        instance, name = self._node(act), f"c{act.who % (self.names + 1)}"
        entry = self.promises.view.handoffs.get(at)
        if event in OF_OLD_OWNER and entry is not None and entry.value.old_owner == name:
            name = "c0"  # a consumer that reports its release and still processes harms only itself
        with contextlib.suppress(Exception):
            async with asyncio.timeout(3.0):
                await consumer.say(
                    instance,
                    at,
                    handoff_id + act.who % 2 - act.who % 5 // 4,
                    event,
                    offset=self.sink.offset.get(at, 0),
                    name=name,
                    incarnation=next(
                        (c.incarnation for c in reversed(self.consumers) if c.name == name), ""
                    ),
                )

    def _after(self, seconds: float, then: object) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            then()  # type: ignore[operator]

        self._later.append(asyncio.get_running_loop().create_task(later()))

    # -- the end --------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """After all faults: owners within TTLs and debounce (C6), no hand-offs left (C7), even loads."""
        for task in self._later:
            task.cancel()
        for instance in self.instances:
            instance.process.go_on()
            instance.far.cut, instance.far.loss, instance.process.skew_s = False, 0.0, 0.0
        for consumer in self.consumers:
            consumer.process.go_on()
        s = self.settings
        await self.passes(
            s.consumer_ttl_s + s.leader_ttl_s + s.election_retry_s + s.debounce_s + 3.0
        )
        await self._awaited(s.rebalance_delay_s + s.debounce_s + 3.0)
        unowned = await self._unowned_throughout(s.debounce_s + 2.0)
        must(
            not unowned or not self.promises.ready_names(),
            "C6 nothing unowned while somebody lives",
            sorted(unowned),
            sorted(self.promises.ready_names()),
        )
        await self.passes(s.handoff_timeout_s + s.release_timeout_s + s.consumer_ttl_s)
        must(not self.promises.overdue(), "C7 every hand-off ends", self.promises.overdue())
        for consumer in self.consumers:
            consumer.stuck = consumer.failing = consumer.mute = consumer.unable = False
            consumer.warm_s = 0.3
        for _ in range(60):
            await self.passes(2.0)
            if self._settled():
                break
        else:
            must(False, "the group converges", self.promises.view.handoffs, self._loads())
        await self.passes(s.reconcile_s + 2.0)
        await self._check_copies()
        check_history(self.promises, self.said)

    async def _awaited(self, seconds: float) -> None:
        """C11: after an outage, a rebalance waits for absent consumers, but not beyond its delay."""
        while self.promises.view.awaiting and seconds > 0:
            await self.passes(STEP_S)
            seconds -= STEP_S
        names = self.promises.ready_names()
        must(not names or seconds > 0, "C11 nobody is awaited for longer than the delay", names)

    async def _unowned_throughout(self, seconds: float) -> set[TopicPartition]:
        """The partitions that stay unowned throughout: leases may end, and owners be expelled."""
        found = set(self.promises.unowned())
        while found and seconds > 0:
            await self.passes(STEP_S)
            seconds -= STEP_S
            found &= set(self.promises.unowned())
        return found

    def _loads(self) -> dict[str, int]:
        names = self.promises.ready_names()
        loads = dict.fromkeys(sorted(names), 0)
        for entry in self.promises.view.assignments.values():
            loads[entry.value.owner] = loads.get(entry.value.owner, 0) + 1
        return loads

    def _settled(self) -> bool:
        """Even loads, no open hand-off, no draining consumer; each consumer owns its assignment."""
        loads = self._loads()
        if not self.promises.ready_names():
            return not self.promises.view.handoffs
        if self.promises.view.handoffs or len(loads) != len(self.promises.ready_names()):
            return False
        all_of_them = len(list(self.promises.view.partitions()))
        if self.promises.parted():
            return False
        spread = max(loads.values()) - min(loads.values())
        if spread > (2 if self.setting.pairs else 1) or sum(loads.values()) != all_of_them:
            return False
        return all(
            set(consumer.owned)
            == {
                at
                for at, entry in self.promises.view.assignments.items()
                if (entry.value.owner, entry.value.incarnation)
                == (consumer.name, consumer.incarnation)
            }
            for consumer in self.consumers
            if not consumer.gone
        )

    async def _check_copies(self) -> None:
        """C8: each instance's copy equals the store within a few steps."""
        for instance in self.instances:
            for _ in range(8):
                truth = {key: kv.mod_revision for key, kv in self.store._keys.items()}
                copy = {key: kv.mod_revision for key, kv in instance.node._mirror.view.raw.items()}
                if copy == truth:
                    break
                await self.passes(STEP_S)
            must(
                copy == truth,
                "C8 copies are complete",
                instance.node.node_id,
                set(copy.items()) ^ set(truth.items()),
            )

    async def end(self) -> None:
        """Stop everything that still runs."""
        for task in self._later:
            task.cancel()
        for consumer in self.consumers:
            consumer.crash()
        for instance in self.instances:
            instance.process.go_on()
            await _killed(instance)
        await asyncio.sleep(0.1)
        await self.store.close()


async def _started(node: AssignerNode, process: Process) -> None:
    """Start a node, with retries."""
    while True:
        try:
            await node.start()
            return
        except ServiceRefused:
            raise
        except Exception:
            await process.sleep(0.5)


async def _killed(instance: Running) -> None:
    """Kill an instance as by SIGKILL: its tasks end, and it sends no message."""
    node = instance.node
    tasks: Sequence[asyncio.Task[None]] = [
        instance.starting,
        *node._tasks,
        *node._sessions._keeping.values(),
    ]
    node._tasks, node._sessions._keeping = [], {}
    node._mirror.listeners.clear()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
