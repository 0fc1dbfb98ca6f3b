"""The broker's topics as the groups receive them: an immutable value, replaced only after a change."""

from __future__ import annotations

from faust_assigner.broker.topics import Catalogue as BrokerCatalogue
from faust_assigner.coordinator.catalogue import Catalogue, Topic


class TopicNotifier:
    """The topics of one broker as one value per change; a change costs a copy of O(topics), one digest."""

    def __init__(self, catalogue: BrokerCatalogue) -> None:
        self._catalogue = catalogue
        self._value = Catalogue.of(
            Topic(t.name, t.topic_id.bytes, len(t.partitions)) for t in catalogue
        )
        self._changed: set[str] = set()

    def changed(self, name: str) -> None:
        """Record that a topic was created, deleted or extended."""
        self._changed.add(name)

    @property
    def is_stale(self) -> bool:
        """Whether a topic has changed since the last call of :meth:`now`."""
        return bool(self._changed)

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
        self._value = Catalogue(by_name, by_id, digests)
        return self._value
