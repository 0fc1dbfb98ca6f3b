"""Partitions that no leader has noticed: a worker requests a round that assigns them.

aiokafka's leader compares the partition counts of all topics with each answer to a metadata
request, every five minutes at the latest. But a static leader that restarts within its session does
not lead again (KIP-814: only with JoinGroup version 9, and aiokafka sends version 5). Then no
member compares the counts, and the records of new partitions would not be read until the next
rebalance. So each worker compares its own metadata with the partitions of the last answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faust.types.app import AppT

#: Seconds between two comparisons.
LOOK_S = 30.0
#: Seconds for which a difference must last: a leader notices it within five minutes.
UNNOTICED_S = 360.0


class UnplannedPartitions:
    """Compares the partition counts of topics, as this worker knows them, with the last answer."""

    def __init__(self, app: AppT) -> None:
        self._app = app
        self._next = 0.0
        #: (topic, count) -> the time since which the count differs from the last answer.
        self._since: Mapping[tuple[str, int], float] = {}
        #: The differences for which this worker has requested a round. It requests none twice: a leader
        #: with other metadata would plan the same again.
        self._asked: set[tuple[str, int]] = set()

    def unnoticed(self, now: float) -> list[str]:
        """Return the topics, by name, whose new count no leader has noticed for a long time."""
        if now < self._next:
            return []
        self._next = now + LOOK_S
        self._since = {
            each: self._since.get(each, now) for each in self._differences() - self._asked
        }
        return sorted(
            topic for (topic, _), since in self._since.items() if now - since >= UNNOTICED_S
        )

    def asked(self) -> None:
        """Note that a round was requested for all present differences."""
        self._asked |= self._since.keys()

    def _differences(self) -> set[tuple[str, int]]:
        found = set()
        for topic, planned in self._app.assignor.planned_counts().items():
            client = self._app.consumer._thread._consumer
            count = len(client.partitions_for_topic(topic) or ())
            if count not in (0, planned):
                found.add((topic, count))
        return found
