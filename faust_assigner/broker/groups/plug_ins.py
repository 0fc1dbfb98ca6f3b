"""Server-side assignors of other packages: ``NAME=MODULE:FUNCTION`` in ``group.consumer.assignors``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from faust_assigner.coordinator.assignors import Assign, GroupSpec, Target, register
from faust_assigner.coordinator.catalogue import Topic, TopicId
from faust_assigner.errors import ConfigError


def names_in(text: str) -> tuple[str, ...]:
    """Return the names of server-side assignors in the setting, the default first."""
    return tuple(item.partition("=")[0] for item in text.split(","))


def places_in(text: str) -> dict[str, str]:
    """Return the assignors of other packages in the setting: name -> ``MODULE:FUNCTION``."""
    parts = [item.partition("=") for item in text.split(",")]
    return {name: place for name, equals, place in parts if equals}


def load_plug_ins(places: Mapping[str, str]) -> None:
    """Import each function and register it as an assignor. Raises ConfigError with the assignor's name."""
    for name, place in places.items():
        module, _, attribute = place.partition(":")
        try:
            function = getattr(importlib.import_module(module), attribute)
        except Exception as error:  # a module may raise anything at its import
            raise ConfigError(f"assignor {name}: cannot import {place!r}: {error!r}") from error
        if not callable(function):
            raise ConfigError(f"assignor {name}: {place!r} is not a function")
        try:
            register(name, _CheckedAssignor(name, place, function))
        except ValueError as error:
            raise ConfigError(str(error)) from None


class _CheckedAssignor:
    """A wrapper that checks an assignor's targets. Wrappers of the same name and place are equal."""

    def __init__(self, name: str, place: str, assign: Assign) -> None:
        self._name, self._place, self._assign = name, place, assign

    def __call__(self, spec: GroupSpec, topics: Mapping[TopicId, Topic], /) -> Target:
        """Return the target of every member. Raises ValueError for an invalid target."""
        target = self._assign(spec, topics)
        strangers = sorted(target.keys() - spec.members.keys())
        if strangers:
            raise ValueError(
                f"assignor {self._name} assigns to {strangers[0]!r}, which is not a member"
            )
        for member_id in sorted(target):
            for topic_id, numbers in target[member_id].items():
                self._check(spec, topics, member_id, topic_id, numbers)
        return {
            member_id: {t: tuple(sorted(n)) for t, n in target.get(member_id, {}).items() if n}
            for member_id in spec.members
        }

    def _check(
        self,
        spec: GroupSpec,
        topics: Mapping[TopicId, Topic],
        member_id: str,
        topic_id: TopicId,
        numbers: tuple[int, ...],
    ) -> None:
        topic = topics.get(topic_id)
        if topic is None or topic_id not in spec.members[member_id].topics:
            name = topic_id.hex() if topic is None else topic.name
            raise ValueError(
                f"assignor {self._name} assigns topic {name} to {member_id!r}, "
                "which does not subscribe to it"
            )
        if len(set(numbers)) < len(numbers) or not all(0 <= n < topic.partitions for n in numbers):
            raise ValueError(
                f"assignor {self._name} assigns partitions {sorted(numbers)} of topic {topic.name}, "
                f"which has {topic.partitions} partitions"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CheckedAssignor) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str]:
        return self._name, self._place
