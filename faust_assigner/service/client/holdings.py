"""The partitions that one consumer holds and may work on. Pure: messages and times are arguments.

The service states how long the registration surely lives. This time counts from the moment at which
the client *sent* the answered request. A consumer that was stopped or disconnected for longer may
work on no partition until it has registered again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from faust_assigner.service.client.commands import Assigned, Grant, Lost, Release
from faust_assigner.service.digest import Held, digest_of
from faust_assigner.service.handoff import TopicPartition


class Holdings:
    """The owned and the releasing partitions, valid until the time ``until``, in seconds."""

    def __init__(self) -> None:
        self.owned: dict[TopicPartition, Grant] = {}
        self.until = -math.inf
        self.highest = 0  # the highest epoch of all grants so far
        self._releasing: dict[TopicPartition, Release] = {}
        self._parts: list[Grant] = []
        self._asked: set[TopicPartition] = set()
        self._is_partial = False
        self._held: Held | None = None
        self._lost: tuple[TopicPartition, ...] = ()

    def confirm(self, until: float) -> None:
        """Note that the registration surely lives until ``until``."""
        self.until = max(self.until, until)

    def begin(self, until: float) -> None:
        """Begin a new registration that surely lives until ``until``."""
        self.until = until
        self._is_partial = False

    def update(
        self,
        assigned: Sequence[Grant],
        unassigned: Iterable[TopicPartition],
        *,
        snapshot: bool = False,
        more: bool = False,
        releasing: Iterable[TopicPartition] = (),
    ) -> Assigned | None:
        """Apply one AssignmentUpdate.

        ``releasing`` are partitions of a snapshot for which a Release follows. The consumer keeps
        those that it holds until their Release. Return the change, or None if the snapshot
        continues in a later message.
        """
        if snapshot:
            self._parts, self._asked = [], set()
        if snapshot or self._is_partial:
            self._parts.extend(assigned)
            self._asked.update(releasing)
            self._is_partial = more
            if more:
                return None
            assigned, self._parts = self._parts, []
            return self._become({p: g for p, g in self.owned.items() if p in self._asked}, assigned)
        gone = set(unassigned)
        return self._become({p: g for p, g in self.owned.items() if p not in gone}, assigned)

    def _become(self, kept: dict[TopicPartition, Grant], given: Sequence[Grant]) -> Assigned:
        before, self._held = self.owned, None
        self.highest = max([self.highest, *(grant.epoch for grant in given)])
        self.owned = owned = kept | {grant.partition: grant for grant in given}
        self._lost = () if owned else self._lost
        # A partition that is granted during its release counts as added: work on it resumes.
        again = {grant.partition for grant in given} & self._releasing.keys()
        added = tuple(
            g
            for p, g in owned.items()
            if p not in before or before[p].epoch != g.epoch or p in again
        )
        anew = {grant.partition for grant in added}
        # A releasing partition is removed by released(), not here.
        removed = tuple(
            p for p in before if (p not in owned or p in anew) and p not in self._releasing
        )
        for partition in anew:
            self._releasing.pop(partition, None)
        return Assigned(dict(owned), added, removed)

    def release(self, command: Release) -> None:
        """Mark the partition as releasing: the consumer may work on it until :meth:`released`."""
        self._releasing[command.partition], self._held = command, None

    def released(self, command: Release) -> None:
        """Remove a releasing partition: the consumer has stopped its work."""
        if self._releasing.get(command.partition) == command:
            del self._releasing[command.partition]
            self.owned.pop(command.partition, None)

    def held(self) -> Held | None:
        """Return the digest of the owned partitions that are not releasing.

        Return None while a snapshot is incomplete. Cost: some microseconds for each partition after
        a change, otherwise none.
        """
        if self._is_partial:
            return None
        if self._held is None:
            self._held = digest_of(
                (p.topic, p.partition, grant.epoch)
                for p, grant in self.owned.items()
                if p not in self._releasing
            )
        return self._held

    def former(self) -> tuple[TopicPartition, ...]:
        """Return the owned partitions; if there are none, the partitions of the last session."""
        return tuple(sorted(self.owned)) or self._lost

    def at_work(self) -> tuple[TopicPartition, ...]:
        """Return the owned and the releasing partitions, on which the consumer may be working."""
        return tuple(sorted({*self.owned, *self._releasing}))

    def epoch(self, partition: TopicPartition) -> int:
        """Return the epoch of the partition's grant, 0 without a grant."""
        grant = self.owned.get(partition)
        return 0 if grant is None else grant.epoch

    def may_work(self, partition: TopicPartition, now: float) -> bool:
        """Return whether the session lives at ``now`` and the partition is owned or releasing."""
        return now < self.until and (partition in self.owned or partition in self._releasing)

    def expire(self, now: float) -> Lost | None:
        """Remove and return all partitions if the session is over; return None if none are lost."""
        if now < self.until or not (self.owned or self._releasing):
            return None
        lost = self.at_work()
        self._lost = tuple(sorted(self.owned))
        self.owned, self._releasing, self._held = {}, {}, None
        return Lost(lost)
