"""The requests that wait for their group's answer, and the count and the log of fenced requests."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from faust_assigner.broker.groups.fences import Refusal
from faust_assigner.broker.groups.meter import FENCING, Meter
from faust_assigner.broker.rate_limited_log import RateLimitedLog
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Request, Token

Answer = Callable[[fx.Reply], None]


class ParkedRequests:
    """The requests of all groups, by token, until their answers."""

    def __init__(
        self,
        meter: Meter,
        peer_log: RateLimitedLog,
        timer: Callable[[], int],
        group_of: Callable[[str], Group | None],
    ) -> None:
        self._meter, self._peer_log, self._timer = meter, peer_log, timer
        self._group_of = group_of
        self._parked: dict[Token, tuple[Answer, str, Request]] = {}
        self._tokens = itertools.count()

    def park(self, group_id: str, event_for: Callable[[Token], Request], answer: Answer) -> Request:
        """Return the event of a new request, whose answer goes to ``answer``."""
        token = next(self._tokens)
        event = event_for(token)
        self._parked[token] = (answer, group_id, event)
        return event

    def answer(self, reply: fx.Reply) -> None:
        """Answer the request with the reply's token; a second reply is dropped."""
        parked = self._parked.pop(reply.token, None)
        if parked is None:
            return
        answer, group_id, event = parked
        if reply.error in FENCING:
            self.fenced(group_id, event, reply.error)
        answer(reply)

    def fenced(self, group_id: str, event: Request, error: Code) -> None:
        """Count and log a request that is refused because its member is outdated."""
        self._meter.fenced[error.name] += 1
        refusal = Refusal(group_id, self._group_of(group_id), event, error)
        self._peer_log.log(error.name, self._timer() / 1000, "%s", refusal)
