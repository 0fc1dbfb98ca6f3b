"""A worker that is no member any more writes to no changelog.

A process that stood still for longer than its session (SIGSTOP, a suspended machine, swapping) does not know
that others own its partitions by now. Stock's goes on with what is in its queues until a heartbeat tells: its
changes land in the changelogs behind those of the new owners, and for good; and it takes the offset of its
own last change for how far its files have come, over all the others' in between. Both lose rows.

Kafka fences no producer without transactions. So a worker counts the time since it sent the last request that
began its session anew and was answered. Within a session of that nobody else can own its partitions; beyond
it, what goes to changelogs waits, at the last moment before it is sent, until an answer tells. Where the
group has gone on without the worker, it is dropped: its records were not committed and are processed again,
by whoever owns them.
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
    from faust_assigner.app.host.bases import ConsumerBase as Consumer
else:
    Consumer = object

logger = get_logger(__name__)

#: Seconds between two looks for the answer to a heartbeat.
LOOK_S = 0.05

#: Seconds between two looks whether changes have arrived, before a commit.
ARRIVE_S = 0.005

_MARK = "_faust_assigner_membership"


class NoMember(KafkaError):  # type: ignore[misc]
    """A change of a table was not sent: the group has gone on without this worker."""


class HeartbeatFence:
    """How long this worker may act as the owner of its partitions; read from any thread.

    The group may remove a member whose last heartbeat is older than the session timeout. Kafka begins a
    session anew with each answered Heartbeat and with each answered SyncGroup, when the group admits the
    member in a new generation. So these two answers keep the fence open, and no others: OffsetFetch, for
    instance, is answered by a coordinator that need not know this member any more. Without SyncGroup, rounds
    that follow each other faster than heartbeats would close it. An answer counts from the time when it was
    asked for. ``session_s`` is the session timeout; times are those of ``clock()``.
    """

    def __init__(self, session_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._session_s, self._clock = session_s, clock
        self._heard_at = clock()
        #: The time since which this worker is a member again; older changes belong to a former membership.
        self._since = float("-inf")
        self.lost = False
        #: The number of memberships that have ended.
        self.losses = 0

    def hear(self, asked_at: float) -> None:
        """Note that a request sent at ``asked_at`` was answered: the session lasts from there at least."""
        self._heard_at = max(self._heard_at, asked_at)

    def lose(self) -> None:
        """Note that the group does not know this member, or not in this generation."""
        self.lost = True
        self.losses += 1

    def join(self) -> None:
        """Note that the app hears of an assignment: the group had admitted this member in a new generation.

        That may be long ago, where the process was stopped meanwhile: only an answer opens the fence.
        """
        if self.lost:
            self._since, self.lost = self._clock(), False

    def silent_s(self) -> float:
        """Seconds since the last request was sent whose answer began a session."""
        return self._clock() - self._heard_at

    def is_sure(self) -> bool:
        """Whether no other member can own the partitions of this worker."""
        return not self.lost and self.silent_s() < self._session_s

    def is_stale(self, made_at: float) -> bool:
        """Whether a change made at ``made_at`` belongs to a membership that has ended."""
        return self.lost or made_at < self._since


def watch(coordinator: Any, fence: HeartbeatFence) -> bool:
    """Have aiokafka's group coordinator renew ``fence``; returns whether it does.

    A second call changes nothing. A coordinator of a consumer without a group renews nothing.
    """
    if not hasattr(coordinator, "_do_heartbeat"):
        return False
    if hasattr(coordinator, _MARK):
        return True
    setattr(coordinator, _MARK, fence)
    if not hasattr(
        coordinator, "membership"
    ):  # a cooperative one has watched its rounds from the start
        coordinator._send_req = partial(sent, coordinator._send_req, fence)
        fence.hear(monotonic())  # it has just been answered
    beat, reset = coordinator._do_heartbeat, coordinator.reset_generation

    async def do_heartbeat() -> Any:
        asked_at = monotonic()
        is_known = await beat()
        if is_known:
            # Not the time of the answer: a process that was stopped finds answers that are as old.
            fence.hear(asked_at)
        return is_known

    def reset_generation() -> None:
        reset()
        if not getattr(
            coordinator, "member_id", ""
        ):  # cooperative rounds keep it where it is still known
            fence.lose()

    coordinator._do_heartbeat, coordinator.reset_generation = do_heartbeat, reset_generation
    return True


async def sent(send: Callable[[Any], Awaitable[Any]], fence: HeartbeatFence, request: Any) -> Any:
    """The answer to a request of aiokafka's group coordinator; one to SyncGroup renews ``fence``."""
    asked_at = monotonic()
    response = await send(request)
    if isinstance(request, SyncGroupRequest) and response.error_code == NoError.errno:
        fence.hear(asked_at)
    return response


async def send_as_member(
    sender: Any,
    send: Callable[[int, Mapping[Any, Any]], Awaitable[None]],
    fence: HeartbeatFence,
    is_changelog: Callable[[str], bool],
    dropped: Callable[[], None],
    node: int,
    batches: Mapping[Any, Any],
) -> None:
    """aiokafka's produce request without the batches of changelogs that may be sent by nobody any more.

    Nobody is told of each record, stock would log two lines for each; ``dropped()`` is called once.
    """
    changes = {tp: batch for tp, batch in batches.items() if is_changelog(tp.topic)}
    while changes and not fence.is_sure() and not fence.lost:
        await asyncio.sleep(LOOK_S)
    stale = {tp: batch for tp, batch in changes.items() if fence.is_stale(batch._ctime)}
    for tp, batch in stale.items():
        batch._msg_futures.clear()
        batch.failure(exception=NoMember(f"{tp.topic}-{tp.partition}"))
        batch.future.exception()  # flush() has it; nobody else asks
        sender._muted_partitions.discard(tp)
    if stale:
        dropped()
        logger.warning(
            "Changes of %d changelog partitions were not sent: the group has gone on without this "
            "worker; their records are processed again",
            len(stale),
        )
    if len(stale) < len(batches):
        await send(node, {tp: batch for tp, batch in batches.items() if tp not in stale})
    else:
        sender._in_flight.discard(node)


class MembersClient:
    """A producer's client of aiokafka: a request with changes is written while this is sure to be a member.

    Between its making and its writing there may be the time that a connection takes, or a freeze in it.
    """

    def __init__(
        self, client: Any, fence: HeartbeatFence, is_changelog: Callable[[str], bool]
    ) -> None:
        self._client, self._fence, self._is_changelog = client, fence, is_changelog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        """Send it; raises RequestTimedOutError, after which the sender looks at its batches anew."""
        fence, losses = self._fence, self._fence.losses
        changes = any(self._is_changelog(topic) for topic, _ in getattr(request, "_topics", ()))
        while changes:
            # Once that is so, the client writes at once; there is no other wait from the look to the write.
            if not await self._client.ready(node_id):
                raise NodeNotReadyError(f"node {node_id}")
            if fence.losses != losses or fence.lost:
                raise RequestTimedOutError("the group has gone on without this worker")
            if fence.is_sure():
                break
            await asyncio.sleep(LOOK_S)
        return await self._client.send(node_id, request, **options)


class MembershipFence(Consumer):
    """Of the consumer: what goes to changelogs goes as a member, and what does not arrive is not committed.

    Transactions have the fence of their own.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fence = HeartbeatFence(self.app.conf.broker_session_timeout)
        self._is_watched = False
        #: Whether this generation has changes that are in no changelog: its records have to be repeated.
        self._unwritten = False
        #: Changes that have not reached their changelog yet; those that were dropped are not among them.
        self._under_way: set[Any] = set()
        if not self.in_transaction:
            producer = self.app.producer
            producer.send_soon = partial(self._send_soon, producer.send_soon)
            must_run(self.app, "changelogs", self._unwritten_problem)

    def _send_soon(self, send_soon: Callable[[Any], Any], change: Any) -> Any:
        """Of the producer: tables send their changes by it."""
        if self._is_changelog(change.message.channel.get_topic_name()):
            self._under_way.add(change)
            change.add_done_callback(self._change_ended)
        return send_soon(change)

    def _change_ended(self, change: asyncio.Future[Any]) -> None:
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

    async def on_partitions_assigned(self, assigned: set[Any], generation_id: int = 0) -> None:
        """From the first assignment on it is known whether this is a member."""
        coordinator = getattr(getattr(self._thread, "_consumer", None), "_coordinator", None)
        self._is_watched = watch(coordinator, self.fence)
        if self._is_watched:
            self.fence.join()
            if not self.in_transaction:
                self._guard_producer()
        if self._unwritten:
            discard(self.app)  # a change that never arrives would hold back all after it
        self._unwritten = False
        self._under_way.clear()
        await super().on_partitions_assigned(assigned, generation_id)

    def is_surely_member(self) -> bool:
        """Whether nobody else can own its partitions, as far as can be told."""
        return not self._is_watched or self.fence.is_sure()

    def _guard_producer(self) -> None:
        sender = getattr(getattr(self.app.producer, "_producer", None), "_sender", None)
        # An idempotent one could not do without a batch in the middle.
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

    async def _commit(self, offsets: Mapping[Any, int]) -> bool:
        """Commit once all changes so far have arrived; where one did not, its record must be processed again.

        Stock flushes first, but gives a change in its buffer no more than 0.1 s.
        """
        awaited = set(self._under_way)
        while awaited & self._under_way:
            await asyncio.sleep(ARRIVE_S)
        return not self._unwritten and bool(await super()._commit(offsets))
