"""Which transactional id commits the offsets of a partition, and what a round changes about it. Pure.

The id is made of the number of the co-partitioned group and the partition number: every topic of a task
shares one transaction. A rolling deploy that adds or removes an agent merges or splits groups, and so gives
some partitions another id. Kafka ends the producer of an id as soon as another member begins with that id.
Hence two rules: a transaction ends as a whole, and a member ends an id before another one begins with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple


def id_for(app_id: str, group_id: int, partition: int) -> str:
    """The id under which offsets of this partition of the group's topics are committed."""
    return f"{app_id}-{group_id}-{partition}"


class Change(NamedTuple):
    """The ids whose producers end, and those whose producers begin."""

    ended: frozenset[str]
    begun: frozenset[str]


def change(before: Mapping[Any, str], after: Mapping[Any, str]) -> Change:
    """What happens to the ids when the mapping partition -> id goes from ``before`` to ``after``."""
    were, are = frozenset(before.values()), frozenset(after.values())
    return Change(were - are, are - were)


def without(ids: Mapping[Any, str], revoked: Collection[Any]) -> dict[Any, str]:
    """``ids`` without ``revoked`` and without the partitions that shared a transaction with them."""
    ended = {ids[tp] for tp in revoked if tp in ids}
    return {tp: of for tp, of in ids.items() if of not in ended and tp not in revoked}


def torn(
    own: Collection[Any],
    stays: Collection[Any],
    before: Mapping[str, int],
    after: Mapping[str, int],
) -> frozenset[Any]:
    """The partitions in ``stays`` that have to be let go and taken on again, as their transaction ends.

    ``own`` are the active partitions before the round; ``before`` and ``after`` are the group ids by topic.
    A transaction ends where one of its partitions goes to another member or gets another group id; the
    offsets of the remaining ones are in the same transaction.
    """
    ending = {
        (before.get(tp.topic), tp.partition)
        for tp in own
        if tp not in stays or before.get(tp.topic) != after.get(tp.topic)
    }
    return frozenset(
        tp for tp in own if tp in stays and (before.get(tp.topic), tp.partition) in ending
    )
