"""A whole worker in a simulation: a real app with all parts and the real assignor, on logs in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
from aiokafka.errors import CommitFailedError, IllegalOperation, ProducerFenced
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import RecordMetadata

from faust_assigner.app import compose as compose
from faust_assigner.app.membership.changelog_guard import NoMember
from faust_assigner.app.membership.coordinator import CooperativeCoordinator
from faust_assigner.app.metrics.probes import MARK
from faust_assigner.app.queries.decide import Asked
from faust_assigner.app.queries.router import MARK as STANDING
from faust_assigner.app.rebalance import leader as leader
from faust_assigner.app.rebalance.consumer_thread import ThreadListener
from faust_assigner.page import mount as mount
from faust_assigner.wire.join import COOPERATIVE
from tests.support.workers.simulated import SimulatedConsumer, SimulatedTransport
from tests.support.workers.virtual_kafka import Logs, Record
from tests.unit.app.lives.told import WORKER, Sensed, Told, tps

APP_ID = "shop"
#: Fields of the status document that differ on other machines and in other releases.
MACHINE = frozenset(
    [
        "host",
        "pid",
        "software",
        "faust",
        "aiokafka",
        "python",
        "settings",
        "disk_free_bytes",
        "disk_size_bytes",
    ]
)
PARTITIONS = 3
#: Figures of the machine, of the package's release, and of a fence that no coordinator renews here.
UNSTEADY = frozenset({"disk_free_bytes", "disk_size_bytes", "info", "group_silent_seconds"})


class Member(SimpleNamespace):
    """The coordinator of a worker that hands over when it stops, with a fence that heartbeats renew."""

    #: Whether the worker stops, and asks whether it can hand over.
    stops = False

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """The class that isinstance() sees at a hand-over; an instance of it would need connections."""
        return CooperativeCoordinator if self.stops else Member

    def __init__(self, client: Client) -> None:
        super().__init__(
            **vars(client._coordinator),
            membership=SimpleNamespace(
                chosen=COOPERATIVE, lost=False, gave_up=False, round=None, own=lambda: None
            ),
        )
        self.client = client

    async def _do_heartbeat(self) -> bool:
        return True

    def reset_generation(self) -> None:
        """Do nothing: the life decides when the membership is lost."""

    async def close(self) -> None:
        """Tell that the worker leaves the group, unless it is a static member."""
        if self._group_instance_id is None:
            self.client.say("leave_group")


class Client(SimulatedConsumer):
    """The client; it tells its calls."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.logs, worker.app.conf.broker_max_poll_records)
        self.worker, self.topics = worker, frozenset[str]()
        self._client.cluster.partitions_for_topic = self._planned
        self._coordinator.member_id = worker.name
        self._coordinator._group_instance_id = None
        self._coordinator._rejoin_needed_fut = asyncio.get_running_loop().create_future()
        self._coordinator.request_rejoin = self.request_rejoin
        self._coordinator.revoke_all_and_rejoin = self.revoke_all_and_rejoin
        if worker.is_member:
            self._coordinator = Member(self)
            self._coordinator._group_instance_id = worker.app.conf.consumer_group_instance_id

    def say(self, text: str) -> None:
        """Tell a call."""
        self.worker.told.say("client", text)

    def _planned(self, topic: str) -> set[int] | None:
        """Return the partitions of a subscribed topic: the client has no metadata of other topics."""
        return set(range(PARTITIONS)) if topic in self.topics else None

    def request_rejoin(self) -> None:
        """Note that a round is due; the life decides when it takes place."""
        if not self._coordinator._rejoin_needed_fut.done():
            self._coordinator._rejoin_needed_fut.set_result(None)
            self.say("request_rejoin")

    def revoke_all_and_rejoin(self) -> None:
        """Note that the membership is lost."""
        self.say("revoke_all_and_rejoin")

    def subscribe(self, topics: set[str], listener: Any) -> None:
        """Tell the subscription."""
        self.topics = frozenset(topics)
        self.say(f"subscribe {' '.join(sorted(topics))}")
        super().subscribe(topics, listener)

    def seek(self, tp: TP, offset: int) -> None:
        """Tell the seek."""
        self.say(f"seek {tps([tp])} to {offset}")
        super().seek(tp, offset)

    async def _committed(self, wanted: Iterable[TP]) -> dict[TP, Any]:
        found = await super()._committed(wanted)
        self.say(f"committed {' '.join(f'{tps([tp])}@{found[tp].offset}' for tp in sorted(found))}")
        return found

    async def position(self, tp: TP) -> int:
        """Tell the position."""
        found = await super().position(tp)
        self.say(f"position {tps([tp])} is {found}")
        return found

    async def commit(self, offsets: dict[TP, Any]) -> None:
        """Tell the offsets and their metadata."""
        committed = (f"{tps([tp])}@{m.offset}{m.metadata}" for tp, m in sorted(offsets.items()))
        self.say(f"commit {' '.join(committed)}")
        if self.worker.is_lost():
            raise CommitFailedError("The group has already rebalanced")
        if self.worker.commit_error is not None:
            raise self.worker.commit_error
        await asyncio.sleep(self.worker.commit_s)
        await super().commit(offsets)

    async def beginning_offsets(self, partitions: Iterable[TP]) -> dict[TP, int]:
        """Tell the partitions."""
        wanted = sorted(partitions)
        self.say(f"beginning_offsets {tps(wanted)}")
        return {tp: self.logs.begins.get(tp, 0) for tp in wanted}

    async def end_offsets(self, partitions: Iterable[TP]) -> dict[TP, int]:
        """Tell the partitions."""
        wanted = sorted(partitions)
        self.say(f"end_offsets {tps(wanted)}")
        return await super().end_offsets(wanted)

    def last_stable_offset(self, tp: TP) -> int:
        """Return the end of the log."""
        return self.highwater(tp)

    async def stop(self) -> None:
        """Tell the stop."""
        self.say("stop")
        await super().stop()


class Producer:
    """``aiokafka.AIOKafkaProducer`` over the logs; it tells its calls."""

    def __init__(self, worker: Worker, transactional_id: str | None) -> None:
        self.worker, self.id = worker, transactional_id
        self.client = SimpleNamespace(
            _wait_on_metadata=None,
            _metadata_update=None,
            coordinator_lookup=None,
            api_version=(3, 0),
            close=self.stop,
        )
        self.open: list[tuple[TP, bytes | None, bytes | None]] | None = None
        self.fenced = False
        self.offsets = dict[TP, int]()
        self._txn_manager = SimpleNamespace(
            is_in_transaction=lambda: self.open is not None and not self.fenced,
            is_fatal_error=lambda: self.fenced,
            _transaction_waiter=SimpleNamespace(exception=ProducerFenced),
            wait_for_transaction_end=lambda: None,
        )

    def say(self, text: str) -> None:
        """Tell a call, with the transactional id if there is one."""
        self.worker.told.say("producer", f"{self.id} {text}" if self.id else text)

    async def start(self) -> None:
        """Tell the start; it fences an earlier producer of this id."""
        self.say("start")
        if self.id:
            last = self.worker.logs.producers.get(self.id)
            if last is not None:
                last.fenced, last.open = last.open is not None or last.fenced, None
            self.worker.logs.producers[self.id] = self

    async def stop(self) -> None:
        """Tell the stop."""
        self.say("stop")

    async def flush(self) -> None:
        """Do nothing: a record is written when it is sent."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None = None,
        **_: Any,
    ) -> Any:
        """Write the record, or keep it until the commit; return a finished future."""
        number = zlib.crc32(key or b"") % PARTITIONS if partition is None else partition
        tp = TP(topic, number)
        said = f"{tps([tp])} {text(key)}: {text(value)}"
        self.say(f"send {said}")
        done = asyncio.get_running_loop().create_future()
        if self.id is None and self.worker.drops(topic):
            done.set_exception(NoMember(topic))
            return done
        if self.fenced:
            raise IllegalOperation("Can't send messages while not in transaction")
        if self.id is None:
            offset = self.worker.logs.append(tp, key, value)
        else:
            assert self.open is not None
            self.open.append((tp, key, value))
            offset = self.worker.logs.ends[tp] + sum(one[0] == tp for one in self.open) - 1
        done.set_result(RecordMetadata(*tp, tp, offset))
        return done

    async def begin_transaction(self) -> None:
        """Begin a transaction; a second open one is an error, as in aiokafka."""
        self.say("begin")
        assert self.open is None, "Invalid state transition"
        self.open, self.offsets = [], {}

    async def send_offsets_to_transaction(self, offsets: Mapping[TP, int], group_id: str) -> None:
        """Keep the offsets."""
        self.say(f"offsets {' '.join(f'{tps([tp])}@{o}' for tp, o in sorted(offsets.items()))}")
        self.offsets = dict(offsets)

    async def commit_transaction(self) -> None:
        """Write the transaction's records and its markers."""
        self.say("commit")
        if self.fenced:
            raise ProducerFenced
        assert self.open is not None
        await asyncio.sleep(self.worker.commit_s)
        self._end(self.open)
        self.worker.logs.committed.update(self.offsets)
        self.open = None

    async def abort_transaction(self) -> None:
        """Drop the transaction's records."""
        self.say("abort")
        self._end([])
        self.open = None

    def _end(self, records: list[tuple[TP, bytes | None, bytes | None]]) -> None:
        for tp, key, value in records:
            self.worker.logs.append(tp, key, value)
        for tp in sorted({tp for tp, _, _ in records}):
            self.worker.logs.append_marker(tp)


def text(data: bytes | None) -> str:
    """Return a key or a value as text."""
    return "null" if data is None else data.decode(errors="backslashreplace").replace("\0", "\\0")


class Cluster(Logs):
    """The logs, their first offsets, and the last producer of each transactional id."""

    def __init__(self) -> None:
        super().__init__(PARTITIONS)
        self.begins: dict[TP, int] = {}
        self.producers: dict[str, Producer] = {}

    def cut(self, tp: TP, begin: int) -> None:
        """Remove the records before ``begin``."""
        self.records[tp] = [record for record in self.records[tp] if record.offset >= begin]
        self.begins[tp] = begin

    def compact(self, tp: TP) -> None:
        """Keep the last record of each key only."""
        last = {record.key: record.offset for record in self.records[tp]}
        self.records[tp] = [r for r in self.records[tp] if last[r.key] == r.offset]


class Worker:
    """A worker that counts orders in a table, and passes each count on to the topic ``totals``."""

    def __init__(self, told: Told, logs: Cluster, name: str, folder: Path, **settings: Any) -> None:
        self.told, self.logs, self.name = told, logs, name
        self.commit_s, self.work_s = 0.0, 0.0
        self.hurry = asyncio.Event()
        self.commit_error: Exception | None = None
        #: The topics' records on which the agent fails.
        self.poisoned = frozenset[str]()
        token = WORKER.set(name)
        try:
            self.app = self.make_app(folder, settings)
            self.declare()
        finally:
            WORKER.reset(token)
        self.starting: asyncio.Task[None] | None = None

    def make_app(self, folder: Path, settings: Mapping[str, Any]) -> Any:
        """Return the app with the simulated transport and told producers."""
        app: Any = faust.App(
            APP_ID,
            **{
                "broker": "kafka://simulated",
                "PartitionAssignor": "faust_assigner:PartitionAssignor",
                "canonical_url": f"http://{self.name}:6066",
                "datadir": str(folder / self.name),
                "store": "rocksdb://",
                "topic_partitions": PARTITIONS,
                "topic_disable_leader": True,
                "web_enabled": False,
                "consumer_auto_offset_reset": "earliest",
                "broker_commit_interval": 60.0,
                "table_standby_replicas": 0,
                "faust_assigner_batched_replay": False,
                **settings,
            },
        )
        app.transport = SimulatedTransport(app.conf.broker_consumer, app)
        app.new_client = lambda: Client(self)
        app.in_worker = True
        worker = self

        class Told(driver.Producer):
            _transaction_producers, _trn_locks = {}, {}

            def _new_producer(self, transactional_id: str | None = None) -> Any:
                return Producer(worker, transactional_id)

            async def create_topic(self, topic: str, *args: Any, **kwargs: Any) -> None:
                """Do nothing: a topic exists after the first write."""

        app.transport.Producer = Told
        app.sensors.add(Sensed(self.told))
        for signal in (
            "on_partitions_revoked",
            "on_partitions_assigned",
            "on_rebalance_complete",
            "on_before_shutdown",
        ):
            getattr(app, signal).connect(self.hears(signal), weak=False)
        return app

    def hears(self, signal: str) -> Any:
        """Return a handler that tells the signal."""

        async def handler(app: Any, *args: Any, **kwargs: Any) -> None:
            self.told.say("signal", f"{signal} {tps(args[0]) if args else ''}".strip())

        return handler

    #: The number of the agent's instances.
    concurrency = 1
    #: Whether the worker has a membership that can end: it hands over when it stops, and has a fence.
    is_member = False

    def drops(self, topic: str) -> bool:
        """Whether the guard of changelogs drops a record: the membership is lost."""
        return topic in self.app.tables.changelog_topics and self.is_lost()

    def is_lost(self) -> bool:
        """Whether the membership is lost."""
        return self.is_member and bool(self.app.consumer.fence.lost)

    def beat(self) -> None:
        """Renew the fence, as an answered heartbeat does."""
        self.app.consumer.fence.note_renewal(asyncio.get_running_loop().time())

    def declare(self) -> None:
        """Add the topics, the table and the agent."""
        app = self.app
        self.orders = app.topic("orders", key_type=str, value_type=int, partitions=PARTITIONS)
        self.totals = app.topic("totals", key_type=str, value_type=int, partitions=PARTITIONS)
        self.counts = app.Table(
            "counts", key_type=str, value_type=int, default=int, partitions=PARTITIONS
        )
        app.agent(self.orders, name="count", concurrency=self.concurrency)(self.count)

    async def count(self, orders: Any) -> None:
        """The agent."""
        async for event in orders.events():
            self.told.say("agent", f"begins {tps([event.message.tp])}@{event.message.offset}")
            if event.key.strip('"') in self.poisoned:
                raise ValueError(f"the record of {event.key}")
            self.counts[event.key] += event.value
            await self.work()
            await self.totals.send(key=event.key, value=self.counts[event.key])

    async def work(self) -> None:
        """Take ``work_s`` seconds for a record, or until ``hurry`` is set."""
        if self.work_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.work_s):
                    await self.hurry.wait()

    # -- the life of the process

    async def start(self) -> None:
        """Start the app until it waits for its first assignment."""
        WORKER.set(self.name)
        app = self.app
        app.finalize()
        app._create_directories()

        async def at_once() -> None:
            await app.tables._update_channels()
            await app.tables.recovery.start()

        app.tables.on_start = at_once  # Faust sleeps a second here
        self.starting = asyncio.create_task(app.start())
        while not self.is_subscribed:
            assert not self.starting.done(), self.starting
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stop the app."""
        WORKER.set(self.name)
        await self.app.stop()
        if self.starting is not None:
            self.starting.cancel()
            await asyncio.gather(self.starting, return_exceptions=True)

    @property
    def is_subscribed(self) -> bool:
        """Whether the client has a subscription."""
        consumer = self.app._consumer and self.app.consumer._thread._consumer
        return bool(consumer is not None and consumer.listener is not None)

    @property
    def client(self) -> Client:
        """The client."""
        client: Client = self.app.consumer._thread._consumer
        return client

    @property
    def listener(self) -> ThreadListener:
        """The interface that the group's coordinator calls."""
        return ThreadListener(self.app.consumer._thread)

    @property
    def at_rest(self) -> bool:
        """Whether all assigned partitions have started."""
        recovery = self.app.tables.recovery
        return bool(recovery.is_flowing and not recovery.is_taking_on)

    # -- the state

    def state(self) -> dict[str, str]:
        """Return name -> text of the state that an operator or the next step may see."""
        app, consumer, recovery = self.app, self.app.consumer, self.app.tables.recovery
        found = {
            "positions": offsets(self.client.positions),
            "active": tps(consumer._active_partitions or ()),
            "paused": tps(consumer._paused_partitions),
            "buffered": tps(consumer._buffered_partitions),
            "acked": offsets({tp: len(acked) for tp, acked in consumer._acked.items() if acked}),
            "unacked": tps(m.tp for m in list(consumer._unacked_messages)),
            "committed": offsets(consumer._committed_offset),
            "read": offsets(consumer._read_offset),
            "first read": offsets(consumer.first_read),
            "flow": f"{consumer.flow_active} {app.flow_control.is_active()}",
            "recovery actives": offsets(
                {tp: recovery.active_offsets.get(tp) for tp in recovery.active_tps}
            ),
            "recovery ends": offsets(recovery.active_highwaters),
            "recovery standbys": offsets(
                {tp: recovery.standby_offsets.get(tp) for tp in recovery.standby_tps}
            ),
            "standby ends": offsets(recovery.standby_highwaters),
            "complete": tps(recovery.actives.complete),
            "followed": tps(recovery.standbys.followed),
            "rebalancing": str(app.rebalancing),
            "ready": f"{app.tables.actives_ready} {app.tables.standbys_ready}",
            "restored": " ".join(
                f"{tps([tp])}:{one.source}@{one.start_offset}-{one.end_offset}"
                for tp, one in sorted(recovery.restored.items())
            )
            or "none",
            "assignor": json.dumps(dict(sorted(app.assignor.counters.items()))),
            **self.rows(),
        }
        sensor = getattr(app, MARK, None)
        if sensor is not None:
            sensor.read_figures()
            snapshot = sensor.snapshot()
            for name, series in snapshot.series.items():
                for labels, value in series.items():
                    if value and name not in UNSTEADY:
                        found[f"metric {name}{{{','.join(labels)}}}"] = f"{value:g}"
            for name, spread in snapshot.spreads.items():
                if sum(spread.counts):
                    found[f"metric {name}"] = f"{sum(spread.counts)} in {spread.total:.2f} s"
        return found

    async def watched(self) -> list[str]:
        """Return the status document, the last rounds, and the routes of requests, as lines."""
        sensor, standing = getattr(self.app, MARK), getattr(self.app, STANDING)
        found = []
        for name, value in vars(await sensor.document()).items():
            if value and name not in MACHINE:
                found.append(f"{name}: {value}")
        found += [f"round: {one}" for one in sensor.rounds().rounds]
        for tp in sorted({tp for tp in self.logs.ends if tp.topic.endswith("changelog")}):
            routes = self.app.router._steps(tp, Asked(True, False))
            found.append(f"asked for {tps([tp])}: {standing.here(tp)} {routes}")
        return found

    def rows(self) -> dict[str, str]:
        """Return each table's rows in its files, and the offset of the files."""
        found = {}
        for name, table in sorted(self.app.tables.items()):
            store = table.data
            for partition, database in sorted(getattr(store, "_dbs", {}).items()):
                rows = {text(key): text(value) for key, value in database.items()}
                found[f"file {name}-{partition}"] = " ".join(
                    f"{key}={value}" for key, value in sorted(rows.items())
                )
        return found


def offsets(found: Mapping[Any, Any]) -> str:
    """Return partitions with their offsets, as text."""
    return " ".join(f"{tps([tp])}@{found[tp]}" for tp in sorted(found)) or "none"


__all__ = ["Client", "Cluster", "Producer", "Record", "Worker"]
