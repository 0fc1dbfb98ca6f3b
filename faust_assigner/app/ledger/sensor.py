"""A worker's measurements for the ledger: samples of partition load, and ended recoveries."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import faust
from mode import Service, get_logger

from faust_assigner.app.ledger.recovery_meter import RecoveryMeter
from faust_assigner.app.ledger.rows import TableRow, decision_rows
from faust_assigner.app.ledger.writer import LedgerWriter
from faust_assigner.app.tables.disk import state_sizes
from faust_assigner.settings.table import LEDGER_SAMPLE_S

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.streams import StreamT
    from faust.types.transports import ProducerT
    from faust.types.tuples import TP, Message

    from faust_assigner.app.rebalance.observers import DecisionInputs
    from faust_assigner.planner import Plan

logger = get_logger(__name__)

#: Seconds for the broker's answer with end offsets; after that this round of samples is left out.
ASK_TIMEOUT_S = 10.0


class Input:
    """The input of one partition since the last sample; updated for every record."""

    __slots__ = ("began", "held_s", "received_bytes", "records", "sent_bytes")

    def __init__(self) -> None:
        #: The time up to which ``held_s`` is counted; None before the first record.
        self.began: float | None = None
        self.clear()

    def clear(self) -> None:
        """Begin the next sample; an agent may hold a record meanwhile."""
        self.records = self.received_bytes = 0
        #: Bytes that this worker sent to the partition by its number, as it sends to changelogs.
        self.sent_bytes = 0
        #: Seconds for which agents held the partition's events.
        self.held_s = 0.0


class LedgerSensor(faust.Sensor):  # type: ignore[misc]
    """A Faust sensor that feeds the ledger. Its hooks for single records only add numbers.

    ``cpu_ms`` is a partition's share of the event loop thread's CPU time, in proportion to the time
    for which agents held its events. So the samples never add up to more than the time spent.
    """

    def __init__(
        self,
        app: AppT,
        writer: LedgerWriter,
        *,
        config: Mapping[str, str],
        sample_s: float = LEDGER_SAMPLE_S.default,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.writer = writer
        self.meter = RecoveryMeter(app, writer)
        self._config = dict(config)
        self._sample_s = sample_s
        #: (topic, partition) -> the input since the last sample.
        self._inputs: defaultdict[tuple[str, int], Input] = defaultdict(Input)
        self._cpu_at = 0.0
        self._changelog_ends: dict[TP, int] = {}
        #: The number of rounds so far: a round during a sample's requests ends the sample.
        self._rounds = 0

    async def on_start(self) -> None:
        """Connect to the app's assignor and tables, which exist by now."""
        connect = getattr(self.app.assignor, "on_decision", None)
        if connect is not None:
            connect(self.on_decision)
        # The signal comes in each round and includes kept partitions: see :meth:`forget_others`.
        self.app.on_partitions_assigned.connect(self.forget_others)
        self.meter.attach()
        self._cpu_at = time.thread_time()

    async def on_stop(self) -> None:
        """Close the writer, which waits a moment for the disk or the broker.

        Counts since the last sample are lost.
        """
        await asyncio.get_running_loop().run_in_executor(None, self.writer.close)

    async def forget_others(self, app: AppT, *_: object, **__: object) -> None:
        """Forget the counts of partitions that this worker no longer owns.

        When such a partition returns, records of other workers have moved its end offset.
        """
        self._rounds += 1
        owned = app.assignor.assigned_actives()
        for found in (self._inputs, self._changelog_ends):
            for tp in found.keys() - owned:
                del found[tp]

    def on_decision(self, inputs: DecisionInputs, plan: Plan) -> None:
        """Write a decision of this leader; called in the assignor's own thread."""
        at = time.time()
        session_timeout_s = self.app.conf.broker_session_timeout
        self.writer.put(
            lambda: decision_rows(
                inputs, plan, at=at, config=self._config, session_timeout_s=session_timeout_s
            )
        )

    def on_message_in(self, tp: TP, offset: int, message: Message) -> None:
        """Count a record of a source topic that arrived."""
        found = self._inputs[tp]  # a single lookup, because this runs for every record
        found.records += 1
        found.received_bytes += message.serialized_key_size + message.serialized_value_size
        found.began = time.monotonic()  # the first agent's share of the time begins now

    def on_send_initiated(
        self, producer: ProducerT, topic: str, message: Message, keysize: int, valsize: int
    ) -> Any:
        """Count a sent record with an explicit partition, as the owner sends changelog records."""
        if message.partition is not None:
            self._inputs[topic, message.partition].sent_bytes += keysize + valsize

    def on_stream_event_out(
        self, tp: TP, offset: int, stream: StreamT[object], event: object, state: object = None
    ) -> None:
        """Add the time since the last record or event, for which an agent held this event."""
        found = self._inputs[tp]
        if found.began is not None and stream.enable_acks:
            now = time.monotonic()
            found.held_s += now - found.began
            found.began = now  # the next agent's share of the time begins now

    @Service.task  # type: ignore[untyped-decorator]
    async def _sample_regularly(self) -> None:
        while not self.should_stop:
            await self.sleep(self._sample_s)
            if not self.should_stop:
                await self._sample()

    async def _sample(self) -> None:
        """Write a row for each active partition, with its input since the last sample."""
        try:
            rows = await self._sample_rows()
        except Exception as error:
            # A rebalance may revoke partitions before the broker answers; the next sample follows.
            logger.debug("Could not sample the partitions; the ledger lacks this sample: %r", error)
            return
        if rows:
            self.writer.put(lambda: rows)

    async def _sample_rows(self) -> list[TableRow]:
        app, consumer = self.app, self.app.consumer
        assignor = app.assignor
        actives = sorted(
            consumer.assignment() - (assignor.assigned_standbys() - assignor.assigned_actives())
        )
        # In a cooperative round retained partitions are processed without a pause.
        between = getattr(consumer, "between_generations", app.rebalancing)
        if not actives or between or app.in_recovery:
            return []
        rounds = self._rounds
        async with asyncio.timeout(ASK_TIMEOUT_S):
            ends = await consumer.highwaters(*actives)
        tables = {table.changelog_topic.get_topic_name(): table for table in app.tables.values()}
        sizes = await asyncio.get_running_loop().run_in_executor(None, state_sizes, actives, tables)
        if self._rounds != rounds:
            return []
        for tp in self._inputs.keys() - set(actives):
            del self._inputs[tp]  # drops inputs of other topics and of revoked partitions
        cpu_ms = self._share_cpu()
        at = time.time()
        return [
            (
                "partition_sample",
                {
                    "group_id": app.conf.id,
                    "ts": at,
                    "topic": tp.topic,
                    "partition": tp.partition,
                    **self._sample_one(tp, ends.get(tp) or 0, is_changelog=tp.topic in tables),
                    "cpu_ms": round(cpu_ms.get(tp, 0.0), 3),
                    "state_bytes": sizes.get(tp, 0),
                },
            )
            for tp in actives
        ]

    def _sample_one(self, tp: TP, end: int, *, is_changelog: bool) -> dict[str, int]:
        """Return the offsets and the input of one partition; begin the next sample of its input."""
        found = self._inputs[tp]
        records, arrived = found.records, found.received_bytes
        if is_changelog:
            # No agent reads a changelog: its input is the difference of two end offsets.
            records, arrived = end - self._changelog_ends.get(tp, end), found.sent_bytes
            self._changelog_ends[tp] = end
        found.clear()
        committed = self.app.consumer._committed_offset.get(tp)
        return {
            "end_offset": end,
            "committed_offset": -1 if committed is None else committed,
            "bytes_in": arrived,
            "records_in": max(0, records),
        }

    def _share_cpu(self) -> dict[object, float]:
        """Return the loop thread's CPU ms since the last call, by partition and held time."""
        now = time.thread_time()
        spent_ms, self._cpu_at = (now - self._cpu_at) * 1000, now
        total = sum(one.held_s for one in self._inputs.values()) or math.inf
        return {tp: spent_ms * one.held_s / total for tp, one in self._inputs.items()}
