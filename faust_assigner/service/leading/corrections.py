"""Corrects the planned targets: avoids barred targets, and obeys the operator's pins."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading.copartitioned import copartitioned_with
from faust_assigner.service.records import Consumer
from faust_assigner.service.view import View


def avoid(
    owner: dict[TopicPartition, str],
    barred: Collection[tuple[TopicPartition, str]],
    consumers: Mapping[str, Consumer],
    mine: Mapping[TopicPartition, str],
    bound: Mapping[str, tuple[str, ...]],
    moving: Collection[TopicPartition] = (),
) -> None:
    """Replace the target of each partition whose (partition, target) is ``barred``, in place.

    The least loaded allowed consumer becomes the target; without an allowed consumer the target
    stays. A partition in ``moving`` stays with the new owner of its hand-off, if that owner is
    allowed. ``mine`` maps partitions to their owners, or to the new owners of their hand-offs.
    """
    load = dict.fromkeys(consumers, 0)
    for name in owner.values():
        load[name] += 1
    for at in sorted(at for at, name in barred if owner.get(at) == name):
        name = owner[at]
        copartitioned = [
            other for other in copartitioned_with(at, bound) if owner.get(other) == name
        ]
        if (at, name) not in barred:
            continue
        load[name] -= len(copartitioned)
        others = [
            other
            for other, consumer in consumers.items()
            if all(
                (one, other) not in barred and consumer.wants(one.topic) for one in copartitioned
            )
        ]
        holder = mine.get(at)
        best = min(
            others,
            default=name,
            key=lambda other: (load[other] / consumers[other].capacity, other != holder, other),
        )
        stays = holder in others and (
            at in moving
            or (load[best] + len(copartitioned)) / consumers[best].capacity
            > load[holder] / consumers[holder].capacity
        )
        chosen = holder if stays and holder is not None else best
        owner.update(dict.fromkeys(copartitioned, chosen))
        load[chosen] += len(copartitioned)


def pinned(
    view: View, consumers: Mapping[str, Consumer], bound: Mapping[str, tuple[str, ...]]
) -> dict[TopicPartition, str]:
    """Map each pinned partition, and its co-partitioned partitions, to the consumer of the pin.

    A pin has no effect while its consumer is not among ``consumers``, does not subscribe to all
    the co-partitioned topics, or has a cool-down for one of the partitions.
    """
    found: dict[TopicPartition, str] = {}
    for at, entry in sorted(view.pins.items()):
        name, copartitioned = entry.value.consumer, copartitioned_with(at, bound)
        if (
            name in consumers
            and view.exists(at)
            and all(consumers[name].wants(one.topic) for one in copartitioned)
            and not any((one, name) in view.cooldowns for one in copartitioned)
        ):
            found |= {one: found.get(one, name) for one in copartitioned}
    return found


def pin(
    owner: dict[TopicPartition, str],
    pins: Mapping[TopicPartition, str],
    barred: Collection[tuple[TopicPartition, str]],
    consumers: Mapping[str, Consumer],
    mine: Mapping[TopicPartition, str],
    bound: Mapping[str, tuple[str, ...]],
) -> None:
    """Put each pinned partition on its consumer, in place.

    To keep the loads even, each pin is an exchange: the previous target of the pinned partition
    becomes the target of another partition of the consumer. Partitions that the consumer does not
    own yet are preferred.
    """
    held: dict[str, list[TopicPartition]] = {}
    for at, name in owner.items() if pins else ():
        held.setdefault(name, []).append(at)
    for at, name in sorted(pins.items()):
        displaced = owner.get(at)
        if displaced == name:
            continue
        copartitioned = copartitioned_with(at, bound)
        owner.update(dict.fromkeys(copartitioned, name))
        if displaced is None:
            continue
        others = (copartitioned_with(one, bound) for one in held.get(name, ()))
        back = min(
            (
                other
                for other in others
                if len(other) == len(copartitioned)
                and all(
                    owner.get(one) == name
                    and one not in pins
                    and (one, displaced) not in barred
                    and consumers[displaced].wants(one.topic)
                    for one in other
                )
            ),
            default=(),
            key=lambda other: (
                mine.get(other[0]) == name,
                mine.get(other[0]) != displaced,
                other[0].topic != at.topic,
                other,
            ),
        )
        owner.update(dict.fromkeys(back, displaced))
