"""The transactional id of each partition, and the changes of ids in a round. Pure.

The id consists of the application id, the number of the co-partitioned group and the partition number: the
topics of a task share one transaction. A rolling deploy that adds or removes an agent merges or splits
groups, which gives some partitions a different id. Kafka fences the producer of an id as soon as a different
member starts a producer with that id. Therefore a transaction ends as a whole. The old member stops its
producer before the new member starts a producer with the same id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from faust.types.tuples import TP


def id_for(app_id: str, group_id: int, partition: int) -> str:
    """Return the transactional id that commits the offsets of this partition of the group's topics."""
    return f"{app_id}-{group_id}-{partition}"


class IdChange(NamedTuple):
    """The ids whose producers end, and the ids whose producers begin."""

    ended: frozenset[str]
    begun: frozenset[str]


def diff_ids(before: Mapping[TP, str], after: Mapping[TP, str]) -> IdChange:
    """Return the ids that end and begin when the map partition -> id changes to ``after``."""
    were, are = frozenset(before.values()), frozenset(after.values())
    return IdChange(were - are, are - were)


def without(ids: Mapping[TP, str], revoked: Collection[TP]) -> dict[TP, str]:
    """Return ``ids`` without ``revoked`` and the partitions that share transactions with these."""
    ended = {ids[tp] for tp in revoked if tp in ids}
    return {tp: of for tp, of in ids.items() if of not in ended}


def partitions_to_restart(
    own: Collection[TP], stays: Collection[TP], before: Mapping[str, int], after: Mapping[str, int]
) -> frozenset[TP]:
    """Return the partitions in ``stays`` to revoke and assign again, as their transaction ends.

    ``own`` are the active partitions before the round; ``before`` and ``after`` are the group ids by topic.
    A transaction ends if any of its partitions moves to a different member or gets a different group id. The
    offsets of its remaining partitions belong to the same transaction.
    """
    ending = {
        (before.get(tp.topic), tp.partition)
        for tp in own
        if tp not in stays or before.get(tp.topic) != after.get(tp.topic)
    }
    return frozenset(
        tp for tp in own if tp in stays and (before.get(tp.topic), tp.partition) in ending
    )
