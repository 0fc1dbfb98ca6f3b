"""Checks a registration against limits that protect the store and the planner."""

from __future__ import annotations

from itertools import chain
from typing import Final

from faust_assigner.service.errors import MAX_CLAIMS, BadRequest, TooManyClaims
from faust_assigner.service.keys import MAX_PARTITIONS, checked_topic
from faust_assigner.service.records import Consumer

#: Maximum number of topics that one consumer may declare co-partitioned: each pass of the leader
#: reads all these topics.
MAX_BOUND: Final = 1_000
MAX_RACK: Final = 256  #: characters
MAX_NUMBER: Final = 1e18  #: for a weight or a capacity: sums and quotients stay finite


def check_claims(consumer: Consumer) -> None:
    """Raise ``BadRequest`` or ``TooManyClaims`` if the registration exceeds a limit."""
    if not 1 / MAX_NUMBER <= consumer.capacity <= MAX_NUMBER:
        raise BadRequest(
            f"{consumer.name}: capacity must be above 0, up to {MAX_NUMBER:g}, "
            f"got {consumer.capacity!r}"
        )
    weights = list(chain.from_iterable(known.values() for known in consumer.weights.values()))
    if any(not 0 <= weight <= MAX_NUMBER for weight in weights):
        raise BadRequest(f"{consumer.name}: weights must be 0 or more, up to {MAX_NUMBER:g}")
    rack = consumer.rack or ""
    if len(rack) > MAX_RACK or not rack.isprintable():
        raise BadRequest(
            f"{consumer.name}: a rack's name has at most {MAX_RACK} characters, all printable"
        )
    if sum(map(len, consumer.co_partitioned)) + len(consumer.co_partitioned) > MAX_BOUND:
        raise BadRequest(f"{consumer.name} declares more than {MAX_BOUND} topics co-partitioned")
    claimed = (consumer.holds, consumer.former)
    for topics in (consumer.topics, *consumer.co_partitioned, *claimed, consumer.weights):
        for topic in topics:
            checked_topic(topic)
    numbered = chain(consumer.weights.values(), *(said.values() for said in claimed))
    for numbers in filter(None, numbered):
        if min(numbers) < 0 or max(numbers) >= MAX_PARTITIONS:
            raise BadRequest(
                f"{consumer.name}: a partition is 0 to {MAX_PARTITIONS - 1}, "
                f"got {min(numbers)} to {max(numbers)}"
            )
    claims = len(weights) + len(consumer.topics)
    claims += sum(len(numbers) for said in claimed for numbers in said.values())
    if claims > MAX_CLAIMS:
        raise TooManyClaims(consumer.name, claims)
