"""The choice of the next hand-offs, under the limit on hand-offs at once (the *places*).

A consumer that never gets ready must not hold all places. Orphans take no place: the leader assigns
them at once. Partitions of a leaving consumer go before moves for balance, and a quarter of the
group's places is kept for them. An unproven new owner (see :class:`Suitability`) takes no place of
this quarter. A stuck consumer has a single place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set

from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.leading.copartitioned import copartitioned_with
from faust_assigner.service.leading.record import Suitability, unreserved
from faust_assigner.service.view import View
from faust_assigner.settings.service import ServiceSettings


def beginning(
    view: View,
    wanted: Mapping[TopicPartition, str],
    due: Collection[TopicPartition],
    leaving: Set[TopicPartition],
    bound: Mapping[str, tuple[str, ...]],
    standing: Suitability,
    settings: ServiceSettings,
) -> Iterator[tuple[str, list[TopicPartition]]]:
    """Choose from the ``due`` partitions; yield (new owner, partitions that begin together).

    ``leaving``: the due partitions whose owners leave.
    """
    held = Counter(
        entry.value.new_owner
        for entry in view.handoffs.values()
        if entry.value.phase is not Phase.COMPLETE
    )
    copartitioned_groups = {copartitioned_with(at, bound) for at in due}
    for copartitioned in sorted(
        copartitioned_groups,
        key=lambda copartitioned: (leaving.isdisjoint(copartitioned), copartitioned),
    ):
        moving = [at for at in copartitioned if at in due]
        for new in sorted({wanted[at] for at in moving}):
            mine = [at for at in moving if wanted[at] == new]
            most, each = settings.max_handoffs, settings.max_handoffs_per_consumer
            if leaving.isdisjoint(mine) or new not in standing.proven:
                most = unreserved(most)
            if new in standing.stuck:
                each = 1
            room, free = most - held.total(), each - held[new]
            # Co-partitioned hand-offs begin together, even if they exceed the limit of one consumer.
            if room <= 0 or (len(mine) > free and held[new]):
                continue
            held[new] += len(mine)
            yield new, mine
