"""Whose each partition is, for clients that send requests to owners: everything once, then what changes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from faust_assigner.service.clock import Clock
from faust_assigner.service.condition import Condition
from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.records import Assigned
from faust_assigner.service.tasks import first
from faust_assigner.service.view import Change, View

#: Changes within so many seconds are told together.
TOGETHER_S: Final = 0.05
#: So long a watch waits until its instance has seen the revision that the caller has seen already.
LEAST_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Route:
    """A partition with the registered consumer that owns it; ``endpoint`` is where that takes requests."""

    at: TopicPartition
    owner: str
    epoch: int
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class RouteUpdate:
    """What is the case at ``revision``. ``full``: what is not in ``routes`` has no owner. Without routes and
    ``unowned`` nothing has changed."""

    revision: int
    routes: tuple[Route, ...] = ()
    unowned: tuple[TopicPartition, ...] = ()
    full: bool = False


class _Watch:
    """What has changed since the last update; a listener of the mirror."""

    def __init__(self, mirror: Mirror, topics: Collection[str]) -> None:
        self._mirror = mirror
        self._topics = frozenset(topics)
        self._changed: set[TopicPartition] = set()
        self._anew = True
        self.wake = asyncio.Event()

    def heard(self, changes: Sequence[Change]) -> None:
        """Note the partitions whose route may be another one."""
        view = self._mirror.view
        for change in changes:
            if change.kind == "assignments":
                self._note([change.name])
            elif change.kind == "consumers" and _who(change.before) != _who(change.after):
                self._note(view.owned.get(change.name, ()))
            elif change.kind == "bases":
                self._anew = True  # every epoch is another one
                self.wake.set()

    def _note(self, partitions: Collection[TopicPartition]) -> None:
        mine = {at for at in partitions if not self._topics or at.topic in self._topics}
        if mine:
            self._changed |= mine
            self.wake.set()

    def update(self) -> RouteUpdate:
        """The next update."""
        self.wake.clear()
        view, full = self._mirror.view, self._anew
        partitions = sorted(view.assignments if full else self._changed)
        if full and self._topics:
            partitions = [at for at in partitions if at.topic in self._topics]
        self._changed, self._anew = set(), False
        routes = tuple(route for at in partitions if (route := route_of(view, at)) is not None)
        known = {route.at for route in routes}
        unowned = () if full else tuple(at for at in partitions if at not in known)
        return RouteUpdate(self._mirror.dated, routes, unowned, full)


def _who(entry: object) -> object:
    """What a route says of a consumer."""
    value = getattr(entry, "value", None)
    return None if value is None else (value.incarnation, value.endpoint)


def route_of(view: View, at: TopicPartition) -> Route | None:
    """The partition's route; ``None`` where no registered process owns it."""
    entry = view.assignments.get(at)
    if entry is None or not view.is_registered(entry.value.owner, entry.value.incarnation):
        return None
    dated: Assigned = view.dated(entry.value)
    return Route(at, dated.owner, dated.epoch, view.consumers[dated.owner].value.endpoint)


async def followed(
    mirror: Mirror,
    condition: Condition,
    clock: Clock,
    topics: Collection[str],
    *,
    least: int,
    every_s: float,
) -> AsyncIterator[RouteUpdate]:
    """Updates for ever, one every ``every_s`` seconds at least.

    The first is not older than the revision ``least``. Raises StoreUnavailable where this instance has not
    seen that after :data:`LEAST_S`, and where it hears no news of the store: another one may.
    """
    await _reached(mirror, clock, least)
    watch = _Watch(mirror, topics)
    mirror.listeners.append(watch.heard)
    try:
        while True:
            if not condition.hears_store:
                raise StoreUnavailable("this instance hears no news of the store")
            yield watch.update()
            await first(watch.wake.wait(), clock.sleep(every_s))
            if watch.wake.is_set():
                await clock.sleep(TOGETHER_S)
    finally:
        with contextlib.suppress(ValueError):
            mirror.listeners.remove(watch.heard)


async def _reached(mirror: Mirror, clock: Clock, least: int) -> None:
    until = clock.monotonic() + LEAST_S
    while mirror.dated < least:
        if clock.monotonic() >= until:
            raise StoreUnavailable(
                f"this instance has seen revision {mirror.dated} alone, the caller {least}"
            )
        await clock.sleep(TOGETHER_S)
