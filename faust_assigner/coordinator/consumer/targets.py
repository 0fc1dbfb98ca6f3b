"""The computation of the target assignment: its causes, its input, and its adoption by the group.

A change of the group raises the group epoch. The target follows at most once per
``group.consumer.assignment.interval.ms`` (KIP-1263): a thousand members that join within a second cost two
computations. Small targets are computed within the step. The broker computes large targets, and targets of
other packages' assignors, in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.assignors import (
    ASSIGNORS,
    BUILT_IN,
    GroupSpec,
    MemberSpec,
    Target,
    compute,
)
from faust_assigner.coordinator.catalogue import Partitions, Topic, TopicId
from faust_assigner.coordinator.consumer.core import RETRY_MS, GroupCore
from faust_assigner.coordinator.consumer.partitions import pairs, plain
from faust_assigner.coordinator.consumer.reconcile import Aim, next_step
from faust_assigner.coordinator.events import TargetComputed
from faust_assigner.coordinator.records import (
    CurrentAssignment,
    GroupEpoch,
    Kind,
    Record,
    TargetAssignment,
    TargetEpoch,
)
from faust_assigner.coordinator.timers import Purpose

ASK_AGAIN_MS: Final = 60_000  # after this time without a result, the target is requested again


class Targets(GroupCore):
    """The group epoch, the target assignment, and each member's step towards it."""

    def _rewind(self, undo: Iterable[Record]) -> None:
        super()._rewind(undo)
        # The computed target and the pending request are lost: the retry requests a new computation.
        self._computed_at_ms = self._computed_before_ms
        self._asked = self._overdue = None

    # -- the group epoch -------------------------------------------------------------------------

    def _fingerprint(self) -> int:
        return self.topics.fingerprint(self.book.names.keys(), self.book.patterns)

    def _raise_epoch(self, why: str) -> None:
        """Raise the group epoch after a change of members, subscriptions or topics: a new target is due."""
        self._write(Kind.EPOCH, GroupEpoch(self.book.epoch + 1, self._fingerprint()))
        self._report("rebalance", detail=f"{why}: group epoch {self.book.epoch}")

    def _look_at_topics(self) -> None:
        """Raise the epoch if a subscribed topic was created, deleted, grew, moved, or was hidden or shown."""
        group = self.book.group
        if self.book.members and group is not None and self._fingerprint() != group.fingerprint:
            self._raise_epoch("topics changed")

    # -- the target ------------------------------------------------------------------------------

    def _follow_epoch(self) -> None:
        """If the target is behind the group epoch, compute the target now or set its timer."""
        if self.book.epoch <= self.book.target_epoch:
            self.timers.drop(Purpose.TARGET, "")
            return
        if not self.book.members:
            # An empty group is never behind its target, and its next member need not wait.
            self._asked = self._overdue = self._computed_at_ms = None
            self.timers.drop(Purpose.TARGET, "")
            self._write(Kind.TARGET_EPOCH, TargetEpoch(self.book.epoch))
            return
        if self._asked is not None:
            return
        last = self._computed_at_ms
        due = self._now if last is None else last + self.limits.assignment_interval_ms
        due = max(due, self._not_before_ms)
        if due > self._now:
            self.timers.set(Purpose.TARGET, "", due)
        else:
            self._compute()

    def _compute(self) -> None:
        self.timers.drop(Purpose.TARGET, "")
        spec = self.group_spec()
        if spec.size > self.limits.inline_size or spec.assignor not in BUILT_IN:
            self._ask_elsewhere(spec)
            return
        try:
            target = compute(spec)
        except Exception as error:  # an error of an assignor must not fail a member's heartbeat
            self._failed(str(error))
        else:
            self._adopt(target, self.book.epoch)

    def _ask_elsewhere(self, spec: GroupSpec) -> None:
        self._requests += 1
        instances = {m: i for i, m in self.book.instances.items()}
        self._asked = (self._requests, self.book.epoch, instances)
        self.timers.set(Purpose.TARGET, "", self._now + ASK_AGAIN_MS)
        self._emit(fx.ComputeTarget(self._requests, spec))

    def _may_ask_again(self) -> None:
        """Allow a further request; the first stays valid, because it may take longer than ASK_AGAIN_MS."""
        self._overdue, self._asked = self._overdue or self._asked, None

    def _target_computed(self, event: TargetComputed) -> None:
        pending = (one for one in (self._asked, self._overdue) if one is not None)
        asked = next((one for one in pending if one[0] == event.request_id), None)
        if asked is None or asked[1] <= self.book.target_epoch:
            return  # the result of an outdated request
        _, epoch, instances = asked
        self._asked = self._overdue = None
        if event.target is None:
            self._failed(event.reason)
        else:
            self._adopt(self._with_successors(event.target, instances), epoch)
        self._follow_epoch()

    def _adopt(self, target: Target, epoch: int) -> None:
        twice = given_twice(target)
        if twice is not None:
            self._failed(f"{twice} was assigned to two members")
            return
        self._computed_at_ms = self._now
        self._install(target, epoch)

    def _failed(self, reason: str) -> None:
        """Keep the current target, and schedule another computation."""
        self._report("assignor_failed", detail=reason)
        self._not_before_ms = self._now + max(self.limits.assignment_interval_ms, RETRY_MS)
        self.timers.set(Purpose.TARGET, "", self._not_before_ms)

    def _with_successors(self, target: Target, instances: Mapping[str, str]) -> Target:
        """Replace the ids of static members that returned with a new id during the computation."""
        known = self.book.members
        renamed = {m: self.book.instances.get(i, m) for m, i in instances.items() if m not in known}
        return {renamed.get(m, m): share for m, share in target.items()}

    def _install(self, target: Target, epoch: int) -> None:
        for member_id in self.book.members:
            share = dict(target.get(member_id, {}))
            if share != self.book.target.get(member_id):
                self._write(Kind.TARGET, TargetAssignment(share), member_id)
        self._write(Kind.TARGET_EPOCH, TargetEpoch(epoch))
        self._report(
            "target_computed", detail=f"group epoch {epoch} with {len(self.book.members)} members"
        )

    def group_spec(self) -> GroupSpec:
        """Return the input of the assignor."""
        members: dict[str, MemberSpec] = {}
        distinct: dict[int, frozenset[TopicId]] = {}  # many members have equal subscriptions
        for member_id, said in self.book.members.items():
            reads = self.topics.read_by(said)
            distinct[id(reads)] = reads
            members[member_id] = MemberSpec(
                reads,
                said.instance_id,
                said.rack_id,
                self.book.target.get(member_id, {}),
                plain(self.book.at(member_id).assigned),
            )
        wanted = frozenset[TopicId]().union(*distinct.values())
        topics: dict[TopicId, Topic] = {t: self.catalogue.by_id[t] for t in sorted(wanted)}
        return GroupSpec(self.assignor_name(), members, topics)

    def assignor_name(self) -> str:
        """Return the assignor that most members prefer (ties: the first name), or else the default."""
        known = [n for n in self.book.votes if n in self.limits.assignors and n in ASSIGNORS]
        votes = self.book.votes
        return min(known, key=lambda name: (-votes[name], name), default=self.limits.assignors[0])

    # -- one member ------------------------------------------------------------------------------

    def _reconcile(
        self, member_id: str, owned: Partitions | None, *, reads_anew: bool
    ) -> CurrentAssignment:
        """Apply a member's next step, if possible; return its current assignment."""
        before = self.book.at(member_id)
        aim = Aim(
            self.book.target_epoch,
            self.book.target.get(member_id, {}),
            self.topics.read_by(self.book.members[member_id]),
            lambda topic_id, number: self.book.owner(topic_id, number) not in (None, member_id),
            reads_anew,
        )
        after = next_step(before, aim, owned)
        if after != before:
            self._write(Kind.CURRENT, after, member_id)
        return after


def given_twice(target: Target) -> tuple[TopicId, int] | None:
    """Return a partition that the assignor gave to two members (the assignor's bug), or None."""
    given: set[tuple[TopicId, int]] = set()
    for member_id in sorted(target):
        for pair in pairs(target[member_id]):
            if pair in given:
                return pair
            given.add(pair)
    return None
