"""The broker's topics as the groups receive them: an immutable value, replaced only after a change."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Final, NamedTuple

from faust_assigner.broker.security.acls import DESCRIBE, TOPIC
from faust_assigner.broker.security.authorizer import EVERYBODY, Authorizer
from faust_assigner.broker.throttle import HandlerQueue, Throttle
from faust_assigner.broker.topics import Catalogue as BrokerCatalogue
from faust_assigner.coordinator.catalogue import Catalogue, Hidden, Topic, nothing_hidden

TELL_AFTER_S: Final = 0.01  # changes of topics within this time reach the groups together


class KnownTopics:
    """The topics as each group last received them; ``current`` returns the present topics."""

    def __init__(self, current: Callable[[], Catalogue]) -> None:
        self._current = current
        self._delivered: dict[str, Catalogue] = {}

    def deliver(self, group_id: str) -> Catalogue:
        """Return the topics, and record that the group knows them from now on."""
        self._delivered[group_id] = topics = self._current()
        return topics

    def are_outdated(self, group_id: str) -> bool:
        """Whether the topics have changed since the group received them."""
        return self._delivered.get(group_id) is not self._current()

    def forget(self, group_id: str) -> None:
        """Forget a removed group."""
        self._delivered.pop(group_id, None)


class TopicNotifier:
    """Keeps an immutable value of the broker's topics, and informs the groups of changes.

    Cost of a change: a copy of O(topics) and one digest. After :meth:`start`, the groups are informed;
    changes within TELL_AFTER_S share one update.
    """

    def __init__(self, catalogue: BrokerCatalogue, authorizer: Authorizer | None = None) -> None:
        self._catalogue = catalogue
        self._authorizer = authorizer
        self._start_update: Callable[[], asyncio.Task[None]] | None = None
        self.update: asyncio.Task[None] | None = None  # an update that waits for further changes
        self._value = Catalogue.of(
            Topic(t.name, t.topic_id.bytes, len(t.partitions)) for t in catalogue
        )
        self._value = replace(self._value, hidden_from=self._rights(self._value))
        self._changed: set[str] = set()

    def changed(self, name: str) -> None:
        """Record that a topic was created, deleted or extended."""
        self._changed.add(name)
        self._update_soon()

    def rights_changed(self) -> None:
        """Record a change of the access control lists, which hide other topics from each client."""
        self._value = replace(self._value, hidden_from=self._rights(self._value))
        self._update_soon()

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        line: HandlerQueue,
        tell_groups: Callable[[], Iterable[object]],
    ) -> None:
        """Inform the groups of changes from now on; ``tell_groups`` informs one group at a time."""
        self._start_update = lambda: loop.create_task(self._update_groups(line, tell_groups))

    def close(self) -> None:
        """Stop informing the groups of changes."""
        self._start_update = None
        if self.update is not None:
            self.update.cancel()

    def _update_soon(self) -> None:
        if self._start_update is not None and self.update is None:
            self.update = self._start_update()

    async def _update_groups(
        self, line: HandlerQueue, tell_groups: Callable[[], Iterable[object]]
    ) -> None:
        throttle = Throttle(line, timeout_s=math.inf)
        try:
            await asyncio.sleep(TELL_AFTER_S)
            self.update = None  # later changes start another update
            for _ in tell_groups():
                await throttle.checkpoint()
        finally:
            throttle.end()

    def _rights(self, value: Catalogue) -> Hidden:
        return nothing_hidden if self._authorizer is None else HiddenTopics(self._authorizer, value)

    def now(self) -> Catalogue:
        """Return the current topics; the same object until a change."""
        if not self._changed:
            return self._value
        by_name, by_id = dict(self._value.by_name), dict(self._value.by_id)
        digests = dict(self._value.digests)
        for name in self._changed:
            before = by_name.pop(name, None)
            if before is not None:
                del by_id[before.topic_id], digests[name]
            topic = self._catalogue.get(name)
            if topic is not None:
                told = Topic(name, topic.topic_id.bytes, len(topic.partitions))
                by_name[name] = by_id[told.topic_id] = told
                digests[name] = told.digest()
        self._changed.clear()
        value = Catalogue(by_name, by_id, digests)
        self._value = replace(value, hidden_from=self._rights(value))
        return self._value


class HiddenTopics:
    """The topics that each client may not describe, by an authorizer's present rules.

    Few rules name a given principal. So the result differs in few topics from the result of a client that no
    rule names. Cost: O(topics) once; then, for each principal, O(topics for which a rule names the principal)
    and a copy of the set. All hosts that no rule names share one result.
    """

    def __init__(self, authorizer: Authorizer, topics: Catalogue) -> None:
        self._authorizer = authorizer
        self._topics = topics
        self._found: dict[tuple[str, str], frozenset[str]] = {}

    def __call__(self, principal: str, host: str) -> frozenset[str]:
        """Return the names of the topics that are hidden from a client."""
        if self._authorizer.is_super_user(principal):
            return frozenset()
        address = host.removeprefix("/")
        place = address if address in self._named.hosts else ""
        own = self._named.topics.get(principal, frozenset())
        client = principal if own else "", place
        if client not in self._found:
            self._found[client] = (
                (self("", place) - own) | self._hidden_topics(client, own)
                if own
                else self._hidden_topics(client, self._topics.by_name)
            )
        return self._found[client]

    @cached_property
    def _named(self) -> _Named:
        named: defaultdict[str, set[str]] = defaultdict(set)
        acls = self._authorizer.acls
        for name in self._topics.by_name:
            for acl in acls.for_resource(TOPIC, name):
                if acl.principal != EVERYBODY:
                    named[acl.principal].add(name)
        return _Named(
            {principal: frozenset(names) for principal, names in named.items()},
            frozenset(acl.host for acl in acls),
        )

    def _hidden_topics(self, client: tuple[str, str], names: Iterable[str]) -> frozenset[str]:
        may = self._authorizer.may
        return frozenset(name for name in names if not may(*client, DESCRIBE, TOPIC, name))


class _Named(NamedTuple):
    """The topics for which rules name each principal, and the hosts that rules name."""

    topics: dict[str, frozenset[str]]
    hosts: frozenset[str]
