"""The broker's topics as the groups are told of them: pure values, made anew only where something changed."""

from __future__ import annotations

from faust_assigner.broker.topics import Catalogue as BrokerCatalogue
from faust_assigner.coordinator.catalogue import Catalogue, Topic


class ToldTopics:
    """Remembers what it made, so that one new topic among thousands costs one digest."""

    def __init__(self) -> None:
        self._known: dict[str, Topic] = {}
        self._digests: dict[str, bytes] = {}

    def of(self, catalogue: BrokerCatalogue) -> Catalogue:
        """The topics now; cost O(topics), and a digest for each that is not as it was."""
        known: dict[str, Topic] = {}
        digests: dict[str, bytes] = {}
        for topic in catalogue:
            topic_id, count = topic.topic_id.bytes, len(topic.partitions)
            told = self._known.get(topic.name)
            if told is None or told.topic_id != topic_id or told.partitions != count:
                told = Topic(topic.name, topic_id, count)
                digests[topic.name] = told.digest()
            else:
                digests[topic.name] = self._digests[topic.name]
            known[topic.name] = told
        self._known, self._digests = known, digests
        return Catalogue(known, {told.topic_id: told for told in known.values()}, digests)
