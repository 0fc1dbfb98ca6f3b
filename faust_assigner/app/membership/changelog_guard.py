"""The guard of changelogs: only a member of the group sends table changes, and it commits after they
arrived.

``fence.py`` explains why this is necessary. Under ``exactly_once`` this guard is off, because Kafka fences
transactions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError, NodeNotReadyError, RequestTimedOutError
from faust.exceptions import ProducerSendError
from faust.streams import current_event
from mode import get_logger

from faust_assigner.app.membership.watchdog import must_run
from faust_assigner.app.tables.flushing import discard

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.producer.message_accumulator import MessageBatch
    from aiokafka.producer.sender import Sender
    from aiokafka.protocol.api import Request, RequestStruct
    from faust.transport.drivers.aiokafka import Producer
    from faust.types.app import AppT
    from faust.types.tuples import TP, FutureMessage

    from faust_assigner.app.membership.fence import HeartbeatFence

logger = get_logger(__name__)

#: Seconds between two checks for the answer to a heartbeat.
LOOK_S = 0.05

#: Seconds between two checks, before a commit, whether changes have been delivered.
ARRIVE_S = 0.005

#: The attribute that marks a guarded sender.
_MARK = "_faust_assigner_changes"


class NoMember(KafkaError):  # type: ignore[misc]
    """The error of an unsent table change: the group has continued without this worker."""


async def send_as_member(
    sender: Sender,
    send: Callable[[int, Mapping[TP, MessageBatch]], Awaitable[None]],
    fence: HeartbeatFence,
    is_changelog: Callable[[str], bool],
    dropped: Callable[[], None],
    node: int,
    batches: Mapping[TP, MessageBatch],
) -> None:
    """Send aiokafka's produce request to ``node``, without the changelog batches of a lost membership.

    The request waits until the membership is either sure or lost (see ``fence.py``). The futures of dropped
    records are cleared, because stock Faust logs two lines for each failed future. If batches are dropped,
    ``dropped()`` is called once.
    """
    changes = {tp: batch for tp, batch in batches.items() if is_changelog(tp.topic)}
    while changes and not fence.is_sure() and not fence.lost:
        await asyncio.sleep(LOOK_S)
    stale = {tp: batch for tp, batch in changes.items() if fence.is_stale(batch._ctime)}
    for tp, batch in stale.items():
        batch._msg_futures.clear()
        batch.failure(exception=NoMember(f"{tp.topic}-{tp.partition}"))
        batch.future.exception()  # mark as retrieved, so that asyncio does not log the exception
        sender._muted_partitions.discard(tp)
    if stale:
        dropped()
        logger.warning(
            "Changes of %d changelog partitions were not sent: the group has rebalanced without "
            "this worker; their records are processed again",
            len(stale),
        )
    if len(stale) < len(batches):
        await send(node, {tp: batch for tp, batch in batches.items() if tp not in stale})
    else:
        sender._in_flight.discard(node)


class MembersClient:
    """A wrapper of a producer's client; it sends table changes only while the membership is sure.

    A check at the creation of the request is not enough. Later the connection to the broker, or a
    suspension of the process, may delay the write.
    """

    def __init__(
        self, client: AIOKafkaClient, fence: HeartbeatFence, is_changelog: Callable[[str], bool]
    ) -> None:
        self._client, self._fence, self._is_changelog = client, fence, is_changelog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(
        self, node_id: int, request: Request[RequestStruct], **options: object
    ) -> object:
        """Send ``request``; a request with table changes waits until the membership is sure.

        Raises RequestTimedOutError if the membership is lost; the sender then checks its batches again.
        Raises NodeNotReadyError without a connection to the node.
        """
        fence, losses = self._fence, self._fence.losses
        changes = any(self._is_changelog(topic) for topic, _ in getattr(request, "_topics", ()))
        while changes:
            # A connected client writes at once, so nothing delays the write after the check below.
            if not await self._client.ready(node_id):
                raise NodeNotReadyError(f"node {node_id}")
            if fence.losses != losses or fence.lost:
                raise RequestTimedOutError("the group has rebalanced without this worker")
            if fence.is_sure():
                break
            await asyncio.sleep(LOOK_S)
        return await self._client.send(node_id, request, **options)


class ChangelogGuard:
    """Guards the changelogs of ``app``: only a member sends changes, and a lost change prevents commits."""

    def __init__(self, app: AppT, fence: HeartbeatFence) -> None:
        self._app, self._fence = app, fence
        #: Whether a change of this generation did not reach its changelog: its record must be repeated.
        self._unwritten = False
        #: Sent changes that the broker has not acknowledged yet, without dropped changes.
        self._under_way: set[FutureMessage] = set()
        if not app.in_transaction:
            producer: Producer = app.producer
            producer.send_soon = partial(self._send_soon, producer.send_soon)
            must_run(app, "changelogs", self._unwritten_problem)

    def _send_soon(
        self, send_soon: Callable[[FutureMessage], object], change: FutureMessage
    ) -> object:
        """Replace the producer's ``send_soon``, with which tables send their changes.

        Raises ProducerSendError if the record that makes the change belongs to a revoked partition.
        """
        if self._is_changelog(change.message.channel.get_topic_name()):
            self._refuse_given_up()
            self._under_way.add(change)
            change.add_done_callback(self._change_ended)
        return send_soon(change)

    def _refuse_given_up(self) -> None:
        # In the changelog the change would follow the changes of the partition's next owner.
        event = current_event()
        if event is not None and event.message in self._app.consumer.kept_back.given_up:
            raise ProducerSendError(
                f"{event.message.topic}-{event.message.partition} was revoked while this worker processed "
                f"the record at offset {event.message.offset}; the next owner processes the record again"
            )

    def _change_ended(self, change: FutureMessage) -> None:
        self._under_way.discard(change)
        if change.cancelled() or change.exception() is not None:
            self._change_missing()

    def _change_missing(self) -> None:
        self._unwritten = True
        self._under_way.clear()

    def _unwritten_problem(self) -> str | None:
        if not self._unwritten or self._fence.lost:
            return None
        return "a change of a table did not reach its changelog"

    def begin_generation(self, *, is_member: bool) -> None:
        """Begin a new generation without pending changes; guard the producer if the app has a group."""
        if is_member and not self._app.in_transaction:
            for producer in (self._app.producer, self._app.producer.threaded_producer):
                self._guard_producer(getattr(producer, "_producer", None))
        if self._unwritten:
            # Stores write changes in order, so a lost change would hold back all later changes.
            discard(self._app)
        self._unwritten = False
        self._under_way.clear()

    def _guard_producer(self, producer: Any) -> None:
        sender = getattr(producer, "_sender", None)
        # Do not guard an idempotent producer: it must send each batch of a sequence.
        if sender is None or producer._txn_manager is not None or hasattr(sender, _MARK):
            return
        setattr(sender, _MARK, self._fence)
        sender.client = MembersClient(sender.client, self._fence, self._is_changelog)
        sender._send_produce_req = partial(
            send_as_member,
            sender,
            sender._send_produce_req,
            self._fence,
            self._is_changelog,
            self._change_missing,
        )

    def _is_changelog(self, topic: str) -> bool:
        return topic in self._app.tables.changelog_topics

    async def wait_for_delivery(self) -> bool:
        """Wait until the broker has all changes so far; return False if a change of this generation is
        lost.

        After False the caller must not commit, so that the records are processed again. Stock Faust flushes
        before a commit, but waits at most 0.1 s for a change in its buffer.
        """
        awaited = set(self._under_way)
        while awaited & self._under_way:
            await asyncio.sleep(ARRIVE_S)
        return not self._unwritten
