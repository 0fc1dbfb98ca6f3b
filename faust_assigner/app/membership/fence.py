"""The membership fence: a worker that is no longer a member does not write to changelogs.

A process may be suspended for longer than its session timeout (SIGSTOP, a suspended machine, swapping). Other
members then own its partitions, and the process does not notice this. A stock worker processes its queues
until a heartbeat fails. Its changes then follow the changes of the new owners in the changelogs, permanently.
The worker also stores the offset of its own last change as the position of its files. But these files lack
the new owners' changes before this offset. Both faults make tables lose rows.

Kafka fences only transactional producers. So a worker measures the time since it last renewed its session.
Within the session timeout no other member can own its partitions. After the timeout, changes wait right
before they are sent to changelogs, until the group answers. If the group has continued without the worker,
the changes are dropped. Their records were not committed, and their new owner processes them again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from aiokafka.errors import NoError
from aiokafka.protocol.group import SyncGroupRequest

if TYPE_CHECKING:
    from aiokafka.consumer.group_coordinator import GroupCoordinator
    from aiokafka.protocol.api import Request, RequestStruct, Response

_MARK = "_faust_assigner_membership"


class HeartbeatFence:
    """The time for which this worker may act as the owner of its partitions; read from any thread.

    The group may remove a member whose last heartbeat is older than the session timeout. Kafka renews the
    session with each answered Heartbeat, and with each answered SyncGroup, which admits the member to a new
    generation. Only these two answers renew the fence. An answer to OffsetFetch, for example, does not
    prove the membership. SyncGroup counts because rebalances may follow each other faster than heartbeats.
    The time of the request counts, not the time of the answer. ``session_s`` is the session timeout in
    seconds; times are values of ``clock()``.
    """

    def __init__(self, session_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._session_s, self._clock = session_s, clock
        self._heard_at = clock()
        #: The start of the current membership after a loss; older changes belong to a former membership.
        self._since = float("-inf")
        self.lost = False
        #: The number of memberships that have ended.
        self.losses = 0

    def note_renewal(self, asked_at: float) -> None:
        """Note that a request sent at ``asked_at`` has renewed the session."""
        self._heard_at = max(self._heard_at, asked_at)

    def lose(self) -> None:
        """Note that the group has refused this member or its generation: the membership is lost."""
        self.lost = True
        self.losses += 1

    def join(self) -> None:
        """Note that the app gets an assignment: the group has admitted this member to a new generation.

        If the process was suspended meanwhile, this admission may be old. So this method only clears
        ``lost``. The membership is sure again after the next answer of the group.
        """
        if self.lost:
            self._since, self.lost = self._clock(), False

    def silent_s(self) -> float:
        """Return the seconds since this worker sent the last request that renewed its session."""
        return self._clock() - self._heard_at

    def is_sure(self) -> bool:
        """Return whether the membership is sure: no other member can own this worker's partitions."""
        return not self.lost and not self.is_silent()

    def is_silent(self) -> bool:
        """Return whether the group has not renewed this session for a session timeout."""
        return self.silent_s() >= self._session_s

    def is_stale(self, made_at: float) -> bool:
        """Return whether a change made at ``made_at`` belongs to a membership that has ended."""
        return self.lost or made_at < self._since


def watch(coordinator: GroupCoordinator, fence: HeartbeatFence) -> bool:
    """Make aiokafka's group coordinator renew ``fence``; return False for a consumer without a group.

    A second call has no effect.
    """
    if not hasattr(coordinator, "_do_heartbeat"):
        return False
    if hasattr(coordinator, _MARK):
        return True
    setattr(coordinator, _MARK, fence)
    # A cooperative coordinator renews the fence in its rounds by itself, from the start.
    if not hasattr(coordinator, "membership"):
        coordinator._send_req = partial(sent, coordinator._send_req, fence)
        fence.note_renewal(monotonic())  # the group has just answered its SyncGroup
    beat, reset = coordinator._do_heartbeat, coordinator.reset_generation

    async def do_heartbeat() -> bool:
        asked_at = monotonic()
        is_known: bool = await beat()
        if is_known:
            # Use the time of the request: a process that was suspended reads old answers when it continues.
            fence.note_renewal(asked_at)
        return is_known

    def reset_generation() -> None:
        reset()
        # A cooperative coordinator keeps the member id here if the group still knows the member.
        if not getattr(coordinator, "member_id", ""):
            fence.lose()

    coordinator._do_heartbeat, coordinator.reset_generation = do_heartbeat, reset_generation
    return True


def has_left(coordinator: GroupCoordinator, fence: HeartbeatFence) -> bool:
    """Return whether this member has left its group, or was removed, and has not joined again.

    False while the group's coordinator is unknown, for example because its broker is away.
    """
    return fence.lost and not coordinator.member_id and coordinator.coordinator_id is not None


async def sent(
    send: Callable[[Request[RequestStruct]], Awaitable[Response]],
    fence: HeartbeatFence,
    request: Request[RequestStruct],
) -> Response:
    """Send a request of aiokafka's group coordinator; a good answer to SyncGroup renews ``fence``."""
    asked_at = monotonic()
    response = await send(request)
    if isinstance(request, SyncGroupRequest) and response.error_code == NoError.errno:
        fence.note_renewal(asked_at)
    return response
