"""A consumer's registration request, and its retry times."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from faust_assigner.service.handoff import TopicPartition


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Waits between tries: a random time up to ``first_s``, doubled with each try up to ``most_s``.

    ``answer_s``: if a target does not answer a registration in this time, the client tries the next
    target. This time is also doubled with each try, up to 32 times ``answer_s``. ``leave_s``: a
    leave ends after this time, even if partitions are not handed over. The leave ends earlier if no
    registration has lived for ``answer_s``.
    """

    first_s: float = 0.2
    most_s: float = 10.0
    answer_s: float = 12.0  # above the 10 s for which the service waits for Kafka
    leave_s: float = 600.0

    def wait(self, attempt: int, chance: random.Random) -> float:
        """Return the seconds to wait before try ``attempt`` (from 0)."""
        return chance.uniform(0.0, min(self.most_s, self.first_s * 2.0 ** min(attempt, 30)))


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A consumer's request to the service. Without ``topics``, it requests all topics.

    ``copartitioned`` names sets of topics; their partitions of equal number belong on one consumer.
    ``weights`` are costs of partitions. ``replicas`` returns the replicas held at that moment. With
    ``keeps_replicas`` the service commands which replicas to hold. ``former`` returns the
    partitions of an earlier process whose state is on disk: after an outage of the whole group they
    return to this consumer. ``endpoint`` is the consumer's address for requests, as a URL or
    ``host:port``; a ``Router`` passes the endpoint to callers.
    """

    topics: Collection[str] = ()
    copartitioned: Collection[Collection[str]] = ()
    rack: str = ""
    capacity: float = 1.0
    weights: Mapping[TopicPartition, float] = field(default_factory=dict)
    replicas: Callable[[], Iterable[tuple[str, int]]] = tuple
    keeps_replicas: bool = False
    former: Callable[[], Iterable[tuple[str, int]]] = tuple
    endpoint: str = ""
