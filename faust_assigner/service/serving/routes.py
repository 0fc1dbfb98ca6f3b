"""The owners of partitions, for clients that send requests to owners.

A client gets the whole table once, then its changes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from faust_assigner.service.clock import Clock
from faust_assigner.service.errors import NotReached, StoreUnavailable
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.instance_state import InstanceState
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.tasks import first
from faust_assigner.service.view import Change, View

#: Seconds for which changes are gathered into one update.
TOGETHER_S: Final = 0.05
#: The number of partitions in one slice of a large table; a slice takes some milliseconds.
SLICE: Final = 2_000
#: Seconds for which a watch waits until its instance reaches the caller's revision.
LEAST_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Route:
    """A partition, its registered owner, and the owner's address for requests."""

    at: TopicPartition
    owner: str
    epoch: int
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class RouteUpdate:
    """The table of owners at ``revision``, or its changes.

    ``full`` marks the first part of a whole table, ``more`` every part except the last. A partition
    has no owner if it is in no part of the table. An empty update means that no route has changed.
    """

    revision: int
    routes: tuple[Route, ...] = ()
    unowned: tuple[TopicPartition, ...] = ()
    full: bool = False
    more: bool = False


class _Watch:
    """Collects the changes since the last update; it listens to the mirror."""

    def __init__(self, mirror: Mirror, topics: Collection[str]) -> None:
        self._mirror = mirror
        self._topics = frozenset(topics)
        self._changed: set[TopicPartition] = set()
        self._anew = True
        self.wake = asyncio.Event()

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Note the partitions whose route may have changed."""
        view = self._mirror.view
        for change in changes:
            if change.kind == "assignments":
                self._note([change.name])
            elif change.kind == "consumers" and _routing_identity(
                change.before
            ) != _routing_identity(change.after):
                self._note(view.owned.get(change.name, ()))
            elif change.kind == "bases":
                self._anew = True  # all epochs have changed
                self.wake.set()

    def _note(self, partitions: Collection[TopicPartition]) -> None:
        mine = {at for at in partitions if not self._topics or at.topic in self._topics}
        if mine:
            self._changed |= mine
            self.wake.set()

    def updates(self) -> Iterator[RouteUpdate]:
        """Yield the next update; a large table in slices, between which other tasks run.

        A route in a later slice may be newer than the slice's revision. The next update then
        repeats this route.
        """
        self.wake.clear()
        view, revision, full = self._mirror.view, self._mirror.dated, self._anew
        if not full:
            changed, self._changed = sorted(self._changed), set()
            routes = _routes_of(view, changed)
            known = {route.at for route in routes}
            yield RouteUpdate(revision, routes, tuple(at for at in changed if at not in known))
            return
        self._changed, self._anew = set(), False
        mine = [at for at in view.assignments if not self._topics or at.topic in self._topics]
        for start in range(0, len(mine), SLICE) or (0,):
            routes = _routes_of(view, mine[start : start + SLICE])
            yield RouteUpdate(revision, routes, (), start == 0, start + SLICE < len(mine))


def _routing_identity(entry: object) -> object:
    """Return the parts of a registration on which its routes depend."""
    value = getattr(entry, "value", None)
    return None if value is None else (value.incarnation, value.endpoint)


def _routes_of(view: View, partitions: Iterable[TopicPartition]) -> tuple[Route, ...]:
    """Return the routes of the partitions that a registered process owns."""
    found: list[Route] = []
    for at in partitions:
        entry = view.assignments.get(at)
        owner = None if entry is None else view.consumers.get(entry.value.owner)
        if entry and owner and owner.value.incarnation == entry.value.incarnation:
            epoch = view.base + entry.value.epoch
            found.append(Route(at, owner.value.name, epoch, owner.value.endpoint))
    return tuple(found)


async def followed(
    mirror: Mirror,
    condition: InstanceState,
    clock: Clock,
    topics: Collection[str],
    *,
    least: int,
    every_s: float,
) -> AsyncIterator[RouteUpdate]:
    """Yield updates forever, at least one every ``every_s`` seconds.

    The first update is not older than the revision ``least``. Raises NotReached if this instance
    does not reach ``least`` within :data:`LEAST_S` seconds, and StoreUnavailable if the store has
    not answered recently: the caller may ask another instance.
    """
    await _wait_for_revision(mirror, condition, clock, least)
    watch = _Watch(mirror, topics)
    mirror.listeners.append(watch.on_changes)
    try:
        while True:
            if not condition.hears_store:
                raise StoreUnavailable("this instance gets no updates from the store")
            for update in watch.updates():
                yield update
                await asyncio.sleep(0)
            await first(watch.wake.wait(), clock.sleep(every_s))
            if watch.wake.is_set():
                await clock.sleep(TOGETHER_S)
    finally:
        with contextlib.suppress(ValueError):
            mirror.listeners.remove(watch.on_changes)


async def _wait_for_revision(
    mirror: Mirror, condition: InstanceState, clock: Clock, least: int
) -> None:
    until = clock.monotonic() + LEAST_S
    while mirror.dated < least:
        if not condition.hears_store:
            return  # the caller gets this error
        if clock.monotonic() >= until:
            raise NotReached(
                f"this instance has read up to revision {mirror.dated}, the caller up to {least}"
            )
        await clock.sleep(TOGETHER_S)
