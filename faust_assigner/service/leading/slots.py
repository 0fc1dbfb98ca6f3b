"""Which hand-offs begin now: places are few, and a consumer that never gets ready must not hold them all.

Orphans take no place: they are given at once. Partitions of a consumer that leaves go before those that move
for balance, and a quarter of the group's places is kept for them. A new owner that has not shown yet that it
gets partitions ready takes none of that quarter, whatever it is given. A stuck one has one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set

from faust_assigner.service.handoff import Phase, TopicPartition
from faust_assigner.service.leading.record import Standing, unreserved
from faust_assigner.service.leading.targets import crew_of
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.view import View


def beginning(
    view: View,
    wanted: Mapping[TopicPartition, str],
    due: Collection[TopicPartition],
    leaving: Set[TopicPartition],
    bound: Mapping[str, tuple[str, ...]],
    standing: Standing,
    settings: ServiceSettings,
) -> Iterator[tuple[str, list[TopicPartition]]]:
    """(new owner, partitions that begin together) of those ``due``; the owners of those ``leaving`` leave."""
    held = Counter(
        entry.value.new_owner
        for entry in view.handoffs.values()
        if entry.value.phase is not Phase.COMPLETE
    )
    crews = {crew_of(at, bound) for at in due}
    for crew in sorted(crews, key=lambda crew: (leaving.isdisjoint(crew), crew)):
        moving = [at for at in crew if at in due]
        for new in sorted({wanted[at] for at in moving}):
            mine = [at for at in moving if wanted[at] == new]
            most, each = settings.max_handoffs, settings.max_handoffs_per_consumer
            if leaving.isdisjoint(mine) or new not in standing.proven:
                most = unreserved(most)
            if new in standing.stuck:
                each = 1
            room, free = most - held.total(), each - held[new]
            # What travels together begins together, even where one consumer's limit is less than that.
            if room <= 0 or free <= 0 or (len(mine) > free and held[new]):
                continue
            held[new] += len(mine)
            yield new, mine
