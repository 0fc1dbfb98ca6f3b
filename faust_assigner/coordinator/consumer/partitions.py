"""Sets of partitions by topic id, optionally with the member epoch of each assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from faust_assigner.coordinator.catalogue import Partitions, TopicId
from faust_assigner.coordinator.records import Epochs


def plain(held: Epochs) -> dict[TopicId, tuple[int, ...]]:
    """Return the partitions without epochs."""
    return {topic_id: tuple(sorted(parts)) for topic_id, parts in held.items() if parts}


def dated(parts: Partitions, epoch: int) -> dict[TopicId, dict[int, int]]:
    """Return the partitions, all with the same epoch."""
    return {
        topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in parts.items() if numbers
    }


def pairs(
    held: Mapping[TopicId, Mapping[int, int] | tuple[int, ...]],
) -> Iterator[tuple[TopicId, int]]:
    """Yield every (topic id, partition)."""
    return ((topic_id, number) for topic_id, numbers in held.items() for number in numbers)


def keep(held: Epochs, wanted: Callable[[TopicId, int], bool]) -> dict[TopicId, dict[int, int]]:
    """Return the wanted partitions with their epochs."""
    kept = {
        t: {p: epoch for p, epoch in parts.items() if wanted(t, p)} for t, parts in held.items()
    }
    return {topic_id: parts for topic_id, parts in kept.items() if parts}


def merge(one: Epochs, other: Epochs) -> dict[TopicId, dict[int, int]]:
    """Return the union; the epochs of ``other`` have priority."""
    return {t: {**one.get(t, {}), **other.get(t, {})} for t in sorted(one.keys() | other.keys())}


def overlaps(one: Partitions, other: Epochs) -> bool:
    """Return whether the sets intersect. Cheap even if ``one`` is a client's very long list."""
    return any(
        not held.keys().isdisjoint(one.get(topic_id, ())) for topic_id, held in other.items()
    )


def within(one: Partitions, other: Epochs) -> bool:
    """Return whether ``one`` is a subset of ``other``."""
    return all(number in other.get(topic_id, {}) for topic_id, number in pairs(one))
