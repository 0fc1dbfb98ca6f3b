"""What one consumer holds and may still work on: pure, fed with the stream's messages, time an argument.

The service says how long the registration lives for sure; that is counted from the moment the request was
*sent* whose answer says so. A consumer that was stopped, or cut off, past that moment may work on nothing,
whatever it remembers, until it has registered anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from faust_assigner.service.client.commands import Assigned, Grant, Lost, Release, TopicPartition
from faust_assigner.service.digest import Held, held


class Holdings:
    """The owned partitions, those being released, and until when all of it counts; times in seconds."""

    def __init__(self) -> None:
        self.owned: dict[TopicPartition, Grant] = {}
        self.until = -math.inf
        self._releasing: dict[TopicPartition, Release] = {}
        self._parts: list[Grant] = []
        self._is_partial = False
        self._held: Held | None = None
        self._lost: tuple[TopicPartition, ...] = ()

    def confirm(self, until: float) -> None:
        """The registration lives until then, for sure."""
        self.until = max(self.until, until)

    def begin(self, until: float) -> None:
        """A new registration lives until then."""
        self.until = until
        self._is_partial = False

    def update(
        self,
        assigned: Sequence[Grant],
        unassigned: Iterable[TopicPartition],
        *,
        snapshot: bool = False,
        more: bool = False,
    ) -> Assigned | None:
        """Take one AssignmentUpdate; what changed, None for a part of a snapshot that goes on."""
        if snapshot:
            self._parts = []
        if snapshot or self._is_partial:
            self._parts.extend(assigned)
            self._is_partial = more
            if more:
                return None
            assigned, self._parts = self._parts, []
            return self._become({}, assigned)
        gone = set(unassigned)
        return self._become({p: g for p, g in self.owned.items() if p not in gone}, assigned)

    def _become(self, kept: dict[TopicPartition, Grant], given: Sequence[Grant]) -> Assigned:
        before, self._held = self.owned, None
        self.owned = owned = kept | {grant.partition: grant for grant in given}
        self._lost = () if owned else self._lost
        # What is given while it is being released is to be worked on again: nobody takes it over.
        again = {grant.partition for grant in given} & self._releasing.keys()
        added = tuple(
            g
            for p, g in owned.items()
            if p not in before or before[p].epoch != g.epoch or p in again
        )
        anew = {grant.partition for grant in added}
        # What is being released goes when its release is done, and not in the middle of it.
        removed = tuple(
            p for p in before if (p not in owned or p in anew) and p not in self._releasing
        )
        for partition in anew:
            self._releasing.pop(partition, None)
        return Assigned(dict(owned), added, removed)

    def release(self, command: Release) -> None:
        """The partition is to be released: it may be worked on until :meth:`released`."""
        self._releasing[command.partition], self._held = command, None

    def released(self, command: Release) -> None:
        """The consumer stopped working on it."""
        if self._releasing.get(command.partition) == command:
            del self._releasing[command.partition]
            self.owned.pop(command.partition, None)
            self._held = None

    def held(self) -> Held | None:
        """What is owned and not being released; None while a snapshot is half told.

        Cost: some microseconds for each partition after a change, nothing otherwise.
        """
        if self._is_partial:
            return None
        if self._held is None:
            self._held = held(
                (p.topic, p.partition, grant.epoch)
                for p, grant in self.owned.items()
                if p not in self._releasing
            )
        return self._held

    def former(self) -> tuple[TopicPartition, ...]:
        """What is owned; where nothing is, what was lost with the last session."""
        return tuple(sorted(self.owned)) or self._lost

    def epoch(self, partition: TopicPartition) -> int:
        """Of the partition's grant; 0 where there is none."""
        grant = self.owned.get(partition)
        return 0 if grant is None else grant.epoch

    def may_work(self, partition: TopicPartition, now: float) -> bool:
        """Whether the consumer owns the partition now, as far as it can know."""
        return now < self.until and (partition in self.owned or partition in self._releasing)

    def expire(self, now: float) -> Lost | None:
        """What is lost because the session's time is over; None where nothing is."""
        if now < self.until or not (self.owned or self._releasing):
            return None
        lost = tuple(sorted({*self.owned, *self._releasing}))
        self._lost = tuple(sorted(self.owned))
        self.owned, self._releasing, self._held = {}, {}, None
        return Lost(lost)
