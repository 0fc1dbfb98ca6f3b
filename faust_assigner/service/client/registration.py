"""What a consumer asks for, and how patient it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from faust_assigner.service.client.commands import TopicPartition
from faust_assigner.service.client.messages import by_topic
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

#: Former partitions in a registration: a hint, that must not make it too long for the service.
MOST_FORMER: Final = 50_000


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Waits between tries: a random time up to ``first_s``, doubled each time up to ``most_s``.

    ``answer_s``: a target that takes a registration and does not answer for so long is left for the next; it
    is doubled with each try too, up to 32 times. ``leave_s``: a consumer that leaves ends after it, with its
    partitions handed over or not.
    """

    first_s: float = 0.2
    most_s: float = 10.0
    answer_s: float = 12.0  # the service waits for Kafka, where it has to ask for a topic, up to 10
    leave_s: float = 600.0

    def wait(self, attempt: int, chance: random.Random) -> float:
        """Seconds before try ``attempt`` (from 0)."""
        return chance.uniform(0.0, min(self.most_s, self.first_s * 2.0 ** min(attempt, 30)))


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What a consumer asks for. No topics: all of the service.

    ``copartitioned`` names sets of topics whose partitions of one number belong on one consumer; ``weights``
    are costs of partitions; ``replicas``
    gives those it holds at that moment; with ``keeps_replicas`` it is told which to hold. ``former`` gives
    the partitions that a process before this one owned, where its state is on disk: after an outage of the
    whole group they come back to it. ``endpoint`` is where the consumer takes requests, as a URL or
    ``host:port``: a ``Router`` tells it to callers.
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

    def message(
        self,
        name: str,
        incarnation: str = "",
        *,
        returns: bool = False,
        former: Iterable[tuple[str, int]] = (),
    ) -> pb.RegisterRequest:
        """The request, with the replicas held now; ``returns``: the incarnation was registered before.

        ``former``: what it owns, or owned last; in its absence what :attr:`former` says.
        """
        owned = islice(sorted(set(former) or set(self.former())), MOST_FORMER)
        return pb.RegisterRequest(
            consumer_name=name,
            incarnation=incarnation,
            returns=returns,
            topics=sorted(self.topics),
            rack=self.rack,
            endpoint=self.endpoint,
            capacity=self.capacity,
            copartitioned=[pb.TopicGroup(topics=sorted(group)) for group in self.copartitioned],
            weights_by_topic=_weights(self.weights),
            replicas_by_topic=by_topic(sorted(self.replicas())),
            keeps_replicas=self.keeps_replicas,
            heartbeats=True,
            former=by_topic(owned),
        )


def _weights(said: Mapping[TopicPartition, float]) -> list[pb.TopicWeights]:
    found: dict[str, pb.TopicWeights] = {}
    for (topic, number), weight in sorted(said.items()):
        mine = found.setdefault(topic, pb.TopicWeights(topic=topic))
        mine.partitions.append(number)
        mine.weights.append(weight)
    return list(found.values())
