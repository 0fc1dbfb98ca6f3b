"""The membership fence: a worker that is no longer a member does not write to changelogs.

A process may stand still for longer than its session timeout (SIGSTOP, a suspended machine, swapping). It
does not know that other members own its partitions afterwards. A stock worker processes its queues until a
heartbeat fails. Its changes then follow the changes of the new owners in the changelogs, permanently. It also
stores the offset of its own last change as the position of its files. These files lack the new owners'
changes before this offset. Both faults lose rows.

Kafka fences only transactional producers. So a worker measures the time since it sent the last answered
request that renewed its session. Within the session timeout no other member can own its partitions. After
the timeout, changes wait right before they are sent to changelogs, until the group answers. If the group has
continued without the worker, the changes are dropped. Their records were not committed, and their owner
processes them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaError, NodeNotReadyError, NoError, RequestTimedOutError
from aiokafka.protocol.group import SyncGroupRequest
from mode import get_logger

from faust_assigner.app.membership.watchdog import must_run
from faust_assigner.app.tables.write_behind import discard

if TYPE_CHECKING:
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.group_coordinator import GroupCoordinator
    from aiokafka.producer.message_accumulator import MessageBatch
    from aiokafka.producer.sender import Sender
    from aiokafka.protocol.api import Request, RequestStruct, Response
    from faust.transport.drivers.aiokafka import Producer
    from faust.types.tuples import TP, FutureMessage

    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object

logger = get_logger(__name__)

#: Seconds between two checks for the answer to a heartbeat.
LOOK_S = 0.05

#: Seconds between two checks, before a commit, that changes have been delivered.
ARRIVE_S = 0.005

_MARK = "_faust_assigner_membership"


class NoMember(KafkaError):  # type: ignore[misc]
    """A change of a table was not sent: the group has continued without this worker."""


class HeartbeatFence:
    """The time for which this worker may act as the owner of its partitions; read from any thread.

    The group may remove a member whose last heartbeat is older than the session timeout. Kafka renews a
    session with each answered Heartbeat, and with each answered SyncGroup, by which the group admits the
    member in a new generation. Only these two answers keep the fence open: for example, a coordinator answers
    OffsetFetch even if it no longer knows the member. Without SyncGroup, rounds in faster succession than
    heartbeats would close the fence. An answer counts from the time of its request. ``session_s`` is the
    session timeout in seconds; times are values of ``clock()``.
    """

    def __init__(self, session_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._session_s, self._clock = session_s, clock
        self._heard_at = clock()
        #: The begin of the current membership after a loss; older changes belong to a former membership.
        self._since = float("-inf")
        self.lost = False
        #: The number of memberships that have ended.
        self.losses = 0

    def hear(self, asked_at: float) -> None:
        """Note that a request sent at ``asked_at`` was answered: the session began then or later."""
        self._heard_at = max(self._heard_at, asked_at)

    def lose(self) -> None:
        """Note that the group does not know this member, or does not know it in this generation."""
        self.lost = True
        self.losses += 1

    def join(self) -> None:
        """Note that the app gets an assignment: the group had admitted this member in a new generation.

        If the process was stopped meanwhile, this admission may be old: only an answer opens the fence.
        """
        if self.lost:
            self._since, self.lost = self._clock(), False

    def silent_s(self) -> float:
        """Seconds since this worker sent the last request whose answer renewed its session."""
        return self._clock() - self._heard_at

    def is_sure(self) -> bool:
        """Whether no other member can own this worker's partitions."""
        return not self.lost and self.silent_s() < self._session_s

    def is_stale(self, made_at: float) -> bool:
        """Whether a change made at ``made_at`` belongs to a membership that has ended."""
        return self.lost or made_at < self._since


def watch(coordinator: GroupCoordinator, fence: HeartbeatFence) -> bool:
    """Have aiokafka's group coordinator renew ``fence``; return whether the coordinator supports it.

    A second call has no effect. The coordinator of a consumer without a group does not renew the fence.
    """
    if not hasattr(coordinator, "_do_heartbeat"):
        return False
    if hasattr(coordinator, _MARK):
        return True
    setattr(coordinator, _MARK, fence)
    # A cooperative coordinator renews the fence in its rounds by itself, from the start.
    if not hasattr(coordinator, "membership"):
        coordinator._send_req = partial(sent, coordinator._send_req, fence)
        fence.hear(monotonic())  # the group has just answered its SyncGroup
    beat, reset = coordinator._do_heartbeat, coordinator.reset_generation

    async def do_heartbeat() -> bool:
        asked_at = monotonic()
        is_known: bool = await beat()
        if is_known:
            # Not the time of the answer: a process that was stopped reads old answers when it continues.
            fence.hear(asked_at)
        return is_known

    def reset_generation() -> None:
        reset()
        # Cooperative rounds keep the member id while the group still knows the member.
        if not getattr(coordinator, "member_id", ""):
            fence.lose()

    coordinator._do_heartbeat, coordinator.reset_generation = do_heartbeat, reset_generation
    return True


async def sent(
    send: Callable[[Request[RequestStruct]], Awaitable[Response]],
    fence: HeartbeatFence,
    request: Request[RequestStruct],
) -> Response:
    """Send a request of aiokafka's group coordinator; a good answer to SyncGroup renews ``fence``."""
    asked_at = monotonic()
    response = await send(request)
    if isinstance(request, SyncGroupRequest) and response.error_code == NoError.errno:
        fence.hear(asked_at)
    return response


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


class MembershipFence(Consumer):
    """A part of the consumer: send table changes as a member only, and commit no record with a lost change.

    Transactions are fenced by Kafka itself.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.fence = HeartbeatFence(self.app.conf.broker_session_timeout)
        self._is_watched = False
        #: Whether a change of this generation is missing in its changelog: its record must be repeated.
        self._unwritten = False
        #: Changes that have not reached their changelog yet, without dropped changes.
        self._under_way: set[FutureMessage] = set()
        if not self.in_transaction:
            producer: Producer = self.app.producer
            producer.send_soon = partial(self._send_soon, producer.send_soon)
            must_run(self.app, "changelogs", self._unwritten_problem)

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
        if not self._unwritten or self.fence.lost:
            return None
        return "a change of a table did not reach its changelog"

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Watch the membership from the first assignment on, and begin a new generation of changes."""
        coordinator = getattr(getattr(self._thread, "_consumer", None), "_coordinator", None)
        self._is_watched = watch(coordinator, self.fence)
        if self._is_watched:
            self.fence.join()
            if not self.in_transaction:
                self._guard_producer()
        if self._unwritten:
            discard(self.app)  # a change that never arrives would hold back all later changes
        self._unwritten = False
        self._under_way.clear()
        await super().on_partitions_assigned(assigned, generation_id)

    def is_surely_member(self) -> bool:
        """Whether no other member can own this worker's partitions; True while the fence is not watched."""
        return not self._is_watched or self.fence.is_sure()

    def _guard_producer(self) -> None:
        sender = getattr(getattr(self.app.producer, "_producer", None), "_sender", None)
        # Not for an idempotent producer: it needs every batch of a sequence.
        if sender is None or sender._txn_manager is not None or hasattr(sender, _MARK):
            return
        setattr(sender, _MARK, self.fence)
        sender.client = MembersClient(sender.client, self.fence, self._is_changelog)
        sender._send_produce_req = partial(
            send_as_member,
            sender,
            sender._send_produce_req,
            self.fence,
            self._is_changelog,
            self._change_missing,
        )

    def _is_changelog(self, topic: str) -> bool:
        return topic in self.app.tables.changelog_topics

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Commit after all changes so far have arrived; if a change is lost, return False without a commit.

        The records of this generation are then processed again.
        Stock flushes first, but waits at most 0.1 s for a change in its buffer.
        """
        awaited = set(self._under_way)
        while awaited & self._under_way:
            await asyncio.sleep(ARRIVE_S)
        return not self._unwritten and bool(await super()._commit(offsets))
