"""The changes of tables on their way to their changelogs: sent by a member only, and before a commit.

``fence.py`` describes why. Transactions are fenced by Kafka itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError, NodeNotReadyError, RequestTimedOutError
from mode import get_logger

from faust_assigner.app.membership.watchdog import must_run
from faust_assigner.app.tables.write_behind import discard

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

#: Seconds between two checks, before a commit, that changes have been delivered.
ARRIVE_S = 0.005

#: The attribute of a sender that has been guarded.
_MARK = "_faust_assigner_changes"


class NoMember(KafkaError):  # type: ignore[misc]
    """A change of a table was not sent: the group has continued without this worker."""


async def send_as_member(
    sender: Sender,
    send: Callable[[int, Mapping[TP, MessageBatch]], Awaitable[None]],
    fence: HeartbeatFence,
    is_changelog: Callable[[str], bool],
    dropped: Callable[[], None],
    node: int,
    batches: Mapping[TP, MessageBatch],
) -> None:
    """Send aiokafka's produce request once the membership is sure or lost, without stale changelog batches.

    The futures of dropped records are cleared, as stock would log two lines for each; ``dropped()`` is called
    once.
    """
    changes = {tp: batch for tp, batch in batches.items() if is_changelog(tp.topic)}
    while changes and not fence.is_sure() and not fence.lost:
        await asyncio.sleep(LOOK_S)
    stale = {tp: batch for tp, batch in changes.items() if fence.is_stale(batch._ctime)}
    for tp, batch in stale.items():
        batch._msg_futures.clear()
        batch.failure(exception=NoMember(f"{tp.topic}-{tp.partition}"))
        batch.future.exception()  # mark as retrieved; otherwise only flush() reads this future
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
    """A producer's client of aiokafka that writes table changes only while the membership is sure.

    Between the creation and the write of a request, a new connection or a freeze may take long.
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
        """Send ``request`` once the membership is sure.

        Raises RequestTimedOutError if the membership is lost; the sender then checks its batches again.
        Raises NodeNotReadyError without a connection to the node.
        """
        fence, losses = self._fence, self._fence.losses
        changes = any(self._is_changelog(topic) for topic, _ in getattr(request, "_topics", ()))
        while changes:
            # A ready client writes at once, so there is no wait between the check below and the write.
            if not await self._client.ready(node_id):
                raise NodeNotReadyError(f"node {node_id}")
            if fence.losses != losses or fence.lost:
                raise RequestTimedOutError("the group has rebalanced without this worker")
            if fence.is_sure():
                break
            await asyncio.sleep(LOOK_S)
        return await self._client.send(node_id, request, **options)


class ChangelogGuard:
    """Sends the table changes of ``app`` as a member only; a record with a lost change is not committed."""

    def __init__(self, app: AppT, fence: HeartbeatFence) -> None:
        self._app, self._fence = app, fence
        #: Whether a change of this generation is missing in its changelog: its record must be repeated.
        self._unwritten = False
        #: Changes that have not reached their changelog yet, without dropped changes.
        self._under_way: set[FutureMessage] = set()
        if not app.in_transaction:
            producer: Producer = app.producer
            producer.send_soon = partial(self._send_soon, producer.send_soon)
            must_run(app, "changelogs", self._unwritten_problem)

    def _send_soon(
        self, send_soon: Callable[[FutureMessage], object], change: FutureMessage
    ) -> object:
        """Replace the producer's ``send_soon``, by which tables send their changes."""
        if self._is_changelog(change.message.channel.get_topic_name()):
            self._under_way.add(change)
            change.add_done_callback(self._change_ended)
        return send_soon(change)

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
        """Begin a new generation of changes; the producer of a member of a group is guarded."""
        if is_member and not self._app.in_transaction:
            self._guard_producer()
        if self._unwritten:
            discard(self._app)  # a change that never arrives would hold back all later changes
        self._unwritten = False
        self._under_way.clear()

    def _guard_producer(self) -> None:
        producer: Any = getattr(self._app.producer, "_producer", None)
        sender = getattr(producer, "_sender", None)
        # Not for an idempotent producer: it needs every batch of a sequence.
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

    async def have_arrived(self) -> bool:
        """Wait for all changes so far; return False if a change of this generation is lost.

        A commit that is left out then has its records processed again. Stock flushes before a commit, but
        waits at most 0.1 s for a change in its buffer.
        """
        awaited = set(self._under_way)
        while awaited & self._under_way:
            await asyncio.sleep(ARRIVE_S)
        return not self._unwritten
