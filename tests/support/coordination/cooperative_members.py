"""aiokafka consumers with our coordinator, in one process with the broker; the test leads.

``Plan.wanted`` has the target owner of each partition. The leader of a round assigns partitions
that no other member holds, as the two-phase rule requires, and states whether a second round
follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import KafkaError

from faust_assigner.app.membership.coordinator import CooperativeCoordinator, take_over
from faust_assigner.app.membership.fence import HeartbeatFence
from faust_assigner.broker import EmbeddedBroker

TOPIC = "t"
#: Longer than the event loop of a busy machine stands still.
SESSION_MS = 30_000


@dataclass
class Plan:
    """The plan of every leader: member's name -> its target partitions."""

    wanted: dict[str, set[int]] = field(default_factory=dict)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    #: The subscribed topics of each member, by round.
    topics: list[dict[str, list[str]]] = field(default_factory=list)
    #: Partitions that stay with their owner, and whose transaction ends in the next answer.
    torn: set[int] = field(default_factory=set)


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """The methods of our assignor that the coordinator calls."""

    name = "faust"
    leaves = False

    def __init__(self, member: str, plan: Plan) -> None:
        self.member, self.plan = member, plan
        self.holds = False
        self.given: set[TopicPartition] = set()

    def cache_file_offsets(self, topics: Collection[str]) -> None:
        """Do nothing: there are no files."""

    def metadata(self, topics: Collection[str]) -> ConsumerProtocolMemberMetadata:
        """Return the member's name and its held partitions."""
        said = {
            "name": self.member,
            "held": [tp.partition for tp in self.given] if self.holds else [],
        }
        return ConsumerProtocolMemberMetadata(4, list(topics), json.dumps(said).encode())

    def assign(self, cluster: Any, members: dict[str, Any]) -> dict[str, Any]:
        """Assign each member its target partitions that no other member holds."""
        said = {m: json.loads(data.user_data) for m, data in members.items()}
        held = {p: one["name"] for one in said.values() for p in one["held"]}
        self.plan.rounds.append({one["name"]: one["held"] for one in said.values()})
        self.plan.topics.append(
            {said[m]["name"]: sorted(data.subscription) for m, data in members.items()}
        )
        given, follows = {}, False
        for m, one in said.items():
            wanted = self.plan.wanted.get(one["name"], set())
            given[m] = sorted(p for p in wanted if held.get(p, one["name"]) == one["name"])
            follows |= len(given[m]) < len(wanted)
        word = b"again" if follows else b""
        return {
            m: ConsumerProtocolMemberAssignment(4, [(TOPIC, numbers)], word)
            for m, numbers in given.items()
        }

    @staticmethod
    def is_followed(assignment: Any) -> bool:
        """Return whether a second round follows."""
        return bool(assignment.user_data == b"again")

    def partitions_to_restart(self, assignment: Any) -> frozenset[TopicPartition]:
        """Return the plan's torn partitions in the first round that keeps them."""
        torn, self.plan.torn = self.plan.torn, set()
        return frozenset(TopicPartition(TOPIC, partition) for partition in torn)

    def on_assignment(self, assignment: Any) -> None:
        """Keep the assigned partitions."""
        self.given = set(assignment.partitions())

    def assigned_actives(self) -> set[TopicPartition]:
        """Return all assigned partitions."""
        return self.given

    def assigned_standbys(self) -> set[TopicPartition]:
        """Return no standbys."""
        return set()


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    """A consumer that reads in the background, and its callbacks in order."""

    def __init__(self, broker: EmbeddedBroker, name: str, plan: Plan, **settings: Any) -> None:
        self.name, self.flowing = name, True
        self.told: list[tuple[str, frozenset[int]]] = []
        #: The announced rounds, each with the number of earlier callbacks.
        self.rounds: list[tuple[str, int]] = []
        #: The partitions to own, by cooperative round.
        self.roles: list[frozenset[int]] = []
        self.read: list[tuple[float, int, int]] = []
        self.letting_go = asyncio.Event()
        self.may_let_go = asyncio.Event()
        self.may_let_go.set()
        self.assignor = Assignor(name, plan)
        self.commit_first = False
        self.fence = HeartbeatFence(settings.get("session_timeout_ms", SESSION_MS) / 1000)
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[self.assignor],
            **{"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 100, **settings},
        )

    async def start(self) -> Member:
        """Join and read in the background."""
        await self.consumer.start()
        await take_over(self.consumer, self.assignor, self, self.fence)
        self.guard()
        self.consumer.subscribe([TOPIC], listener=self)
        self.reading = asyncio.create_task(self._read())
        return self

    def guard(self) -> None:
        """Guard the started client; none by default."""

    async def stop(self) -> None:
        """Leave the group and stop."""
        self.may_let_go.set()
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)
        await self.consumer.stop()

    async def _read(self) -> None:
        while True:
            for tp, records in (await self.consumer.getmany(timeout_ms=50)).items():
                self.read += [(time.monotonic(), tp.partition, record.offset) for record in records]

    @property
    def coordinator(self) -> CooperativeCoordinator:
        """The client's coordinator."""
        coordinator: CooperativeCoordinator = self.consumer._coordinator
        return coordinator

    @property
    def owned(self) -> set[int]:
        """The assigned partitions."""
        return {tp.partition for tp in self.consumer.assignment()}

    def offsets(self, partition: int) -> list[int]:
        """Return the read offsets of a partition."""
        return [offset for _, p, offset in self.read if p == partition]

    async def commit(self, partition: int, offset: int) -> bool:
        """Commit an offset; return whether the group accepted it."""
        try:
            await self.consumer.commit({TopicPartition(TOPIC, partition): offset})
        except KafkaError:
            return False
        return True

    # -- eager

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Record that all partitions are given up."""
        self.told.append(("given up", frozenset(tp.partition for tp in revoked)))

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Record that all partitions are new."""
        self.fence.join()
        self.told.append(("assigned", frozenset(tp.partition for tp in assigned)))

    # -- cooperative

    def waiting(self, step: str) -> contextlib.nullcontext[None]:
        """Count no waits."""
        return contextlib.nullcontext()

    def is_flowing(self) -> bool:
        """Return whether the member keeps partitions."""
        return self.flowing

    async def revoke(self, revoked: Collection[Any]) -> None:
        """Record the revoked partitions."""
        numbers = frozenset(tp.partition for tp in revoked)
        self.letting_go.set()
        await self.may_let_go.wait()
        if self.commit_first:
            for number in sorted(numbers):
                assert await self.commit(number, 7)
        self.told.append(("let go", numbers))

    async def assigned(
        self,
        tps: Collection[Any],
        revoked: Collection[Any],
        gained: Collection[Any],
        roles: Any,
        generation: int,
    ) -> None:
        """Record the gained partitions."""
        self.roles.append(frozenset(tp.partition for tp in roles[0]))
        self.told.append(("gained", frozenset(tp.partition for tp in gained)))

    def round_started(self) -> None:
        """Record the start of a round."""
        self.rounds.append(("joins", len(self.told)))

    async def prepare_full_revocation(self) -> None:
        """Record that the member gives all partitions up."""
        self.rounds.append(("gives up", len(self.told)))

    def note_hand_over(self, everything: bool) -> None:
        """Ignore it: no member leaves here."""

    async def stand_still(self) -> None:
        """Record that no partition flows."""
        self.told.append(("stand still", frozenset(self.owned)))
