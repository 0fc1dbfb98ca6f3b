"""A join whose changelogs have no record, from the newcomer's reads to the leader's assignment.

All records of such a log are compacted away or aborted. No file and no table shows that the log has
been read. The broker and its log, the members' clients, the follow-up service, all metadata bytes
and the leader's planning are real; the test plays the rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from crc32c import crc32c
from faust.types import TP

from faust_assigner.app.rebalance.follow_up import FollowUp
from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.storage.records import Batch
from faust_assigner.claims import claim_on, offsets_at
from faust_assigner.wire.join import decode_join
from tests.support.faust_group import WireGroup, make_app
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.timeout(120)

PARTITIONS = 8
#: More records than a newcomer may replay while a partition stands still.
END = 151


class Coordinator:
    """The part of aiokafka's coordinator that the service uses: the generation and a rejoin."""

    def __init__(self, app: Any) -> None:
        self.app, self.asked = app, 0
        self._rejoin_needed_fut = asyncio.get_running_loop().create_future()

    @property
    def generation(self) -> int:
        """The generation of the last assignment."""
        found: int = self.app.assignor.generation
        return found

    def request_rejoin(self) -> None:
        """Count the request; the test plays the round."""
        self.asked += 1


async def called(function: Any, *arguments: Any) -> Any:
    """Call the function directly: there is only one thread here."""
    return await function(*arguments)


class Group(WireGroup):
    """Cooperative workers with one table in RocksDB, whose clients read committed records."""

    def __init__(
        self, bootstrap: str, app_id: str, folder: Path, stack: contextlib.AsyncExitStack
    ) -> None:
        self.log = f"{app_id}-totals-changelog"
        super().__init__({"orders": PARTITIONS, self.log: PARTITIONS})
        self.bootstrap, self.app_id, self.folder, self.stack = bootstrap, app_id, folder, stack

    async def join(self, name: str) -> Any:
        """Add a worker that takes part from the next round on."""
        app = make_app(
            f"http://{name}:6066",
            app_id=self.app_id,
            tables=["totals"],
            store="rocksdb://",
            datadir=str(self.folder / name),
            processing_guarantee="exactly_once",
        )
        client = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        await client.start()
        self.stack.push_async_callback(client.stop)

        async def highwaters(*tps: TP) -> Any:
            return await client.end_offsets(tps)

        app.consumer = SimpleNamespace(
            highwaters=highwaters,
            client=client,
            _thread=SimpleNamespace(
                call_thread=called,
                thread_loop=asyncio.get_running_loop(),
                _consumer=SimpleNamespace(
                    _coordinator=Coordinator(app),
                    position=client.position,
                    end_offsets=client.end_offsets,
                    partitions_for_topic=lambda topic: range(self.partitions[topic]),
                ),
            ),
        )
        app.assignor.cooperative = True
        self.add(name, app, self.partitions)
        return app

    def said(self, app: Any) -> dict[int, int]:
        """Return the offsets of its state that the member claims in its metadata."""
        sent = ConsumerProtocolMemberMetadata.decode(
            app.assignor.metadata(self.partitions).encode()
        )
        told = decode_join(sent.user_data, sorted(self.partitions)).positions
        assert told is not None
        numbers = np.arange(PARTITIONS)
        found = offsets_at(claim_on(told, self.log), numbers)
        return {
            p: offset for p, offset in zip(numbers.tolist(), found.tolist(), strict=True) if offset
        }

    async def play(self, leader: str) -> None:
        """Run a round that keeps all state; owners then fetch the log ends, as in a recovery."""
        for app in self.apps.values():
            app.assignor.holds = bool(app.assignor.assigned_actives())
        self.rebalance(leader)
        for app in self.apps.values():
            recovery = app.tables.recovery
            mine = {tp for tp in app.assignor.assigned_actives() if tp.topic == self.log}
            await recovery._build_highwaters(
                app.consumer, mine, recovery.active_highwaters, "active"
            )

    def owned(self, name: str) -> set[int]:
        """Return the partitions that a worker processes."""
        return {p for p, m in self.actives("orders").items() if m == name}


@contextlib.asynccontextmanager
async def compacted() -> AsyncIterator[tuple[str, str]]:
    """A broker whose changelog was compacted: each batch keeps its end offset and no record."""
    body = struct.pack(">hiqqqhii", 0, END - 1, 0, 0, -1, -1, -1, 0)
    data = struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body
    async with EmbeddedBroker() as broker:
        topic = broker.node.catalogue.create("shop-totals-changelog", PARTITIONS, {})
        for log in topic.partitions:
            log.append(Batch(0, len(data), 0, END - 1, 0, 0, -1, -1, -1, 0), data, 0)
        yield broker.bootstrap, "shop"


@contextlib.asynccontextmanager
async def aborted(bootstrap: str) -> AsyncIterator[tuple[str, str]]:
    """A Kafka whose changelog has one aborted transaction; its marker has an offset, too."""
    app_id = f"shop-{time.time_ns()}"
    log = f"{app_id}-totals-changelog"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(log, PARTITIONS, 1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=app_id) as producer:
        await producer.begin_transaction()
        for number in range(PARTITIONS * (END - 1)):
            await producer.send(log, b"v", b"k", partition=number % PARTITIONS)
        await producer.flush()
        await producer.abort_transaction()
    yield bootstrap, app_id


def follow(app: Any) -> None:
    """Start to read the awaited copies, as a recovery does."""
    app.consumer.client.assign(set(app.assignor.awaited.tps))
    for tp in app.assignor.awaited.tps:
        app.consumer.client.seek(tp, 0)
        app.tables.recovery.standby_offsets[tp] = -1
    app.tables.recovery.standbys.followed |= app.assignor.awaited.tps


async def taken(app: Any) -> list[Any]:
    """Return the records that the member's client returns."""
    return [
        one
        for batch in (await app.consumer.client.getmany(timeout_ms=50)).values()
        for one in batch
    ]


@pytest.mark.parametrize(
    "logs", ["compacted", pytest.param("aborted", marks=[pytest.mark.slow, pytest.mark.kafka])]
)
async def test_a_copy_of_a_log_without_a_record_is_promoted_once_it_has_been_read(
    logs: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Once its member claims the offset, the leader accepts the copy; not before."""
    place = (
        compacted() if logs == "compacted" else aborted(request.getfixturevalue("kafka").bootstrap)
    )
    async with place as (bootstrap, app_id), contextlib.AsyncExitStack() as stack:
        group = Group(bootstrap, app_id, tmp_path, stack)
        for name in "abc":
            await group.join(name)
        for _ in range(2):
            await group.play("a")
        d = await group.join("d")
        await group.play("a")
        awaited = d.assignor.awaited.tps
        assert len(awaited) == 2
        follow(d)
        watch = FollowUp(d, None, deadline_s=900.0)
        for now in (0.0, 31.0, 32.0):
            await watch.look(now)
        assert group.said(d) == {}
        await group.play("b")
        assert not group.owned("d")
        assert d.assignor.awaited.tps == awaited, "what is not done goes on"

        records: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while {await d.consumer.client.position(tp) for tp in awaited} != {END}:
                records += await taken(d)
        assert records == [], "nothing that a table or a file could tell of"
        for now in (40.0, 71.0, 72.0):
            await watch.look(now)
        assert d.consumer._thread._consumer._coordinator.asked == 1
        assert group.said(d) == {tp.partition: END for tp in awaited}

        await group.play("b")
        assert not group.owned("d"), "those who own them let go first"
        assert d.assignor.awaited.follows
        await group.play("c")
        assert group.owned("d") == {tp.partition for tp in awaited}
        assert not any(app.assignor.awaited.tps for app in group.apps.values())
