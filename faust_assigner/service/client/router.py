"""A table of the partitions' owners for callers of the owners; the service sends its changes.

async with Router("127.0.0.1:50051", topics=["orders"]) as router:
    await router.ready()
    route = router.owner(("orders", 7))
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import grpc
import grpc.aio

from faust_assigner.service.client.channel import Access
from faust_assigner.service.client.handlers import cancel_all
from faust_assigner.service.client.messages import partition_of
from faust_assigner.service.client.registration import Retry
from faust_assigner.service.clock import seconds
from faust_assigner.service.faults import refusal
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import KafkaAssignerStub

log = logging.getLogger(__name__)

#: The service sends at least one message in each interval of ``pulse_ms``. After this number of
#: silent intervals, the router connects to another instance.
SILENT_PULSES: Final = 4
#: Seconds to wait for the first message of a stream.
FIRST_S: Final = 10.0


@dataclass(frozen=True)
class Route:
    """The owner of a partition. ``endpoint`` comes from the owner's ``Registration(endpoint=...)``.

    Send ``epoch`` with each request: an owner with a different epoch can refuse the request.
    """

    partition: TopicPartition
    owner: str
    epoch: int
    endpoint: str = ""


class Router:
    """The table of owners; see the module's docstring. It is read-only and needs no registration.

    While no instance answers, or a file of ``access`` cannot be read, the last table stays, and
    :attr:`age_s` grows. The router skips an instance that is behind its table, so that the revision
    never falls. If every instance is behind, the store was reset, and the router accepts the lower
    revision.
    """

    def __init__(
        self,
        targets: str | Sequence[str],
        *,
        topics: Collection[str] = (),
        group: str = "",
        access: Access | None = None,
        retry: Retry | None = None,
        clock: Callable[[], float] = seconds,
    ) -> None:
        self.targets = (targets,) if isinstance(targets, str) else tuple(targets)
        self.revision = 0
        self._topics = sorted(topics)
        self._group = group
        self._access = access or Access()
        self._retry = retry or Retry()
        self._clock = clock
        self._chance = random.Random()
        self._routes: dict[TopicPartition, Route] = {}
        self._parts: list[pb.AssignmentsUpdate] = []
        self._heard_at = -math.inf
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow(), name="assigner-router")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            await cancel_all([self._task])

    @property
    def routes(self) -> Mapping[TopicPartition, Route]:
        """The whole table; it changes with each update."""
        return MappingProxyType(self._routes)

    @property
    def age_s(self) -> float:
        """Seconds since the last message of the service; infinite before the first message."""
        return self._clock() - self._heard_at

    def owner(self, partition: tuple[str, int]) -> Route | None:
        """Return the partition's owner, or None without a registered owner. Cost: one look-up."""
        return self._routes.get(TopicPartition(*partition))

    async def ready(self) -> None:
        """Wait for the first table.

        Raises ServiceRefused, and OSError if a file of the access cannot be read before the first
        table.
        """
        await self.until(1)

    async def until(self, revision: int) -> None:
        """Wait until the table has at least this revision.

        Raises the errors of :meth:`ready`, and RuntimeError outside of the router's ``async with``.
        """
        while self.revision < revision:
            if self._task is None:
                raise RuntimeError("the router is used outside its `async with`")
            moved = asyncio.ensure_future(self._moved.wait())
            await asyncio.wait([moved, self._task], return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
            if self._task.done():
                self._task.result()

    async def _follow(self) -> None:
        """Read one stream after another until the service refuses this caller."""
        attempt = refused = behind = 0
        while True:
            heard_at = self._heard_at
            # If no instance has reached our revision, the store was reset: accept any revision.
            # An instance that does not answer proves nothing.
            least = 0 if behind > len(self.targets) else self.revision
            try:
                await self._hold_one(self.targets[attempt % len(self.targets)], least)
            except grpc.aio.AioRpcError as error:
                if (told := refusal(error)) is not None:
                    raise told from error
                behind += error.code() is grpc.StatusCode.OUT_OF_RANGE
                log.info("The router lost its stream: %s: %s", error.code().name, error.details())
            except TimeoutError:
                log.info("The router's stream is silent; connecting to another instance")
            except OSError as error:
                if not self.revision:
                    raise
                # The file of a token or a certificate may be missing while it is replaced.
                log.warning("The router cannot connect again: %s", error)
            refused += 1
            if self._heard_at > heard_at:
                refused = behind = 0
            attempt += 1
            await asyncio.sleep(self._retry.wait(min(refused, 6), self._chance))

    async def _hold_one(self, target: str, least: int) -> None:
        """Read one stream until it ends."""
        request = pb.WatchAssignmentsRequest(
            topics=self._topics, least_revision=least, group=self._group
        )
        async with self._access.open(target) as channel:
            stub: Any = KafkaAssignerStub(channel)
            stream = stub.WatchAssignments(request, metadata=self._access.metadata())
            self._parts, patience_s = [], FIRST_S
            try:
                while True:
                    async with asyncio.timeout(patience_s):
                        update = await stream.read()
                    if update is grpc.aio.EOF:
                        return
                    patience_s = max(update.pulse_ms / 1000 * SILENT_PULSES, 1.0)
                    self._take(update)
            finally:
                stream.cancel()

    def _take(self, update: pb.AssignmentsUpdate) -> None:
        """Take one message; the parts of an update take effect together."""
        self._heard_at = self._clock()
        self._parts.append(update)
        if update.more:
            return
        parts, self._parts = self._parts, []
        if parts[0].snapshot:
            self._routes = {}
        self._routes.update(
            (route.partition, route) for part in parts for route in _routes(part.routes)
        )
        for part in parts:
            for gone in part.unowned:
                self._routes.pop(partition_of(gone), None)
        self.revision = update.revision
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()


def _routes(said: Iterable[pb.Route]) -> Iterable[Route]:
    return (Route(partition_of(one.partition), one.owner, one.epoch, one.endpoint) for one in said)
