"""The embedded broker with a clock under the test's control, and with faults.

>>> with VirtualBroker() as broker:
...     before = broker.now_ms
...     broker.advance(60_000)
...     broker.now_ms - before
60000
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

from faust_assigner.broker import EmbeddedBroker
from faust_assigner.broker.node import Node
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import LeaveGroup, Leaver
from faust_assigner.coordinator.group_views import GroupView
from faust_assigner.testing.faults import Faults, with_faults

START_MS: Final = 1_700_000_000_000


class VirtualBroker:
    """An embedded broker whose clock the test moves; clients connect to ``broker.bootstrap``.

    The timers of groups (sessions, rebalances, initial delays) follow only the virtual clock.
    Clients use real time: they send heartbeats at their usual intervals, but ``advance(45_000)``
    ends a session of 45 s. Methods name members by their client id.
    """

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._now_ms = START_MS
        self._broker = EmbeddedBroker(settings=settings, clock=lambda: self._now_ms)
        self._faults = Faults()

    def __enter__(self) -> Self:
        self._broker.__enter__()
        self._broker.call(lambda node: with_faults(self._broker.server, self._faults))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._broker.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        """The broker's address for clients, ``host:port``."""
        return self._broker.bootstrap

    @property
    def broker(self) -> EmbeddedBroker:
        """The embedded broker."""
        return self._broker

    # -- time ------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The broker's time, milliseconds since 1970."""
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        """Advance the time; every timer that becomes due fires, in order and at its own time."""

        def ring(node: Node) -> None:
            node.group_timers.fire_until(self._now_ms + milliseconds, self._set)

        self._broker.call(ring)

    def _set(self, now_ms: int) -> None:
        self._now_ms = now_ms

    # -- groups ----------------------------------------------------------------------------------

    def group(self, group_id: str) -> GroupView | None:
        """Return a group as an administrator sees it, or None."""

        def look(node: Node) -> GroupView | None:
            group = node.groups.get(group_id)
            return group.describe() if group is not None else None

        return self._broker.call(look)

    def member_ids(self, group_id: str) -> dict[str, str]:
        """Return member ids by client id; empty for an unknown group."""
        view = self.group(group_id)
        return {m.client_id: m.member_id for m in view.members} if view is not None else {}

    def expire(self, group_id: str, client_id: str) -> None:
        """Remove a member as if its session had ended. Raises KeyError for an unknown member."""
        member_id = self.member_ids(group_id)[client_id]
        errors: list[Code] = []
        self._broker.call(
            lambda node: node.groups.ask(
                group_id,
                lambda token: LeaveGroup(token, (Leaver(member_id, reason="expired by a test"),)),
                lambda reply: errors.append(reply.error),
            )
        )
        assert errors == [Code.NONE], errors

    # -- faults ----------------------------------------------------------------------------------

    def kill(self, client_id: str) -> None:
        """Cut a client off permanently, without notice to the group, as SIGKILL does."""
        self._apply_fault(lambda faults: faults.kill(client_id))

    def stall(self, client_id: str) -> None:
        """Hold a client's requests until :meth:`resume`, as SIGSTOP or a full network would."""
        self._apply_fault(lambda faults: faults.stall(client_id))

    def resume(self, client_id: str) -> None:
        """Serve the held requests, in order."""
        self._apply_fault(lambda faults: faults.resume(client_id))

    def lose_response(self, client_id: str, api_key: int | None = None, times: int = 1) -> None:
        """Apply the client's next ``times`` requests, but close the connection before the response.

        With ``api_key`` only requests of this API count.
        """
        self._apply_fault(lambda faults: faults.lose(client_id, api_key, times))

    @property
    def responses_lost(self) -> int:
        """The number of lost responses so far."""
        return self._faults.lost

    def _apply_fault(self, fault: Callable[[Faults], None]) -> None:
        self._broker.call(lambda node: fault(self._faults))
