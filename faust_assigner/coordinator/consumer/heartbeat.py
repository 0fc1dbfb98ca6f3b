"""The rules for ConsumerGroupHeartbeat: join, stay and leave. Each request is answered at once."""

from __future__ import annotations

from dataclasses import replace

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.consumer.partitions import plain, within
from faust_assigner.coordinator.consumer.refusals import (
    JOIN,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    Refusal,
    refuse_heartbeat,
    refuse_pattern,
)
from faust_assigner.coordinator.consumer.targets import Targets
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import ConsumerGroupHeartbeat
from faust_assigner.coordinator.records import (
    CurrentAssignment,
    Kind,
    MemberMetadata,
    MemberState,
    TargetAssignment,
)
from faust_assigner.coordinator.timers import Purpose

AWAY = LEAVE_FOR_A_WHILE  # the epoch of a static member that has left temporarily


class Heartbeats(Targets):
    """The rules for members that use the consumer protocol (KIP-848)."""

    def _heartbeat_848(self, event: ConsumerGroupHeartbeat) -> None:
        refusal = refuse_heartbeat(event, self.limits, self.group_id)
        if refusal is not None:
            self._refuse_848(event, refusal)
        elif event.member_epoch in (LEAVE, LEAVE_FOR_A_WHILE):
            self._leave_848(event)
        else:
            self._stay_848(event, event.member_id or event.new_member_id)

    def _refuse_848(self, event: ConsumerGroupHeartbeat, refusal: Refusal) -> None:
        code, why = refusal
        if code in (Code.FENCED_MEMBER_EPOCH, Code.FENCED_INSTANCE_ID, Code.UNRELEASED_INSTANCE_ID):
            self._report("fenced", event.member_id, f"{code.name}: {why}")
        self._emit(fx.ConsumerHeartbeatReply(event.token, code, why))

    # -- joining and staying ---------------------------------------------------------------------

    def _stay_848(self, event: ConsumerGroupHeartbeat, member_id: str) -> None:
        refusal = self._check_848(event, member_id) or refuse_pattern(event.subscribed_topic_regex)
        if refusal is not None:
            self._refuse_848(event, refusal)
            return
        if event.member_epoch == JOIN:
            self._report(
                "member_joined" if member_id not in self.book.members else "member_rejoined",
                member_id,
            )
            if event.instance_id in self.book.instances:
                self._take_over(self.book.instances[event.instance_id], member_id)
        before = self.book.at(member_id)
        known = self.book.members.get(member_id, MemberMetadata())
        reads_anew = self._update_metadata(member_id, _reported_metadata(event, known))
        self._follow_epoch()
        after = self._reconcile(member_id, event.owned, reads_anew=reads_anew)
        self._watch_848(member_id, before, after)
        changed = plain(before.assigned) != plain(after.assigned)
        told = plain(after.assigned) if changed or _requests_full_answer(event) else None
        self._emit(fx.ConsumerHeartbeatReply(
            event.token, Code.NONE, None, member_id, after.epoch, self.limits.heartbeat_interval_ms, told,
        ))  # fmt: skip

    def _check_848(self, event: ConsumerGroupHeartbeat, member_id: str) -> Refusal | None:
        joins, book = event.member_epoch == JOIN, self.book
        replaced = book.instances.get(event.instance_id) if event.instance_id is not None else None
        if (
            len(book.members) >= self.limits.max_size
            and member_id not in book.members
            and replaced is None
        ):
            return Code.GROUP_MAX_SIZE_REACHED, f"the group is full: {self.limits.max_size} members"
        if event.instance_id is not None and joins:
            return self._check_release(event.instance_id)
        if event.instance_id is not None:
            error = self._fence_instance(member_id, event.instance_id)
            if error is Code.UNKNOWN_MEMBER_ID:
                return error, f"no member has the instance id {event.instance_id!r}"
            if error is not Code.NONE:
                return (
                    error,
                    f"instance id {event.instance_id!r} belongs to {replaced}, not to {member_id}",
                )
        if member_id not in book.members:
            return (
                None
                if joins
                else (Code.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of this group")
            )
        return check_epoch(book.at(member_id), event.member_epoch, event.owned)

    def _check_release(self, instance_id: str) -> Refusal | None:
        """Check that an instance id is free: its member left with epoch -2 or is a classic member."""
        holder = self.book.instances.get(instance_id)
        if (
            holder is None
            or holder in self.book.classic_members
            or self.book.at(holder).epoch == AWAY
        ):
            return None
        return Code.UNRELEASED_INSTANCE_ID, f"instance id {instance_id!r} is in use by {holder}"

    def _take_over(self, old_id: str, new_id: str) -> None:
        """Replace a static member: the new id gets the old id's partitions and target, at epoch 0."""
        metadata, stood = self.book.members[old_id], self.book.at(old_id)
        target = self.book.target.get(old_id)
        was_member = old_id != new_id and new_id in self.book.members
        if old_id != new_id:
            self._report("static_member_replaced", new_id, old_id)
            if was_member:
                self._erase(new_id)
            self._erase(old_id)
            self._write(Kind.MEMBER, metadata, new_id)
            if target is not None:
                self._write(Kind.TARGET, TargetAssignment(target), new_id)
        self._write(Kind.CURRENT, replace(stood, epoch=0, previous_epoch=0), new_id)
        if was_member:  # the partitions of its first membership have no owner now
            self._raise_epoch(f"{new_id} replaced a static member and gave up its own partitions")

    def _erase(self, member_id: str) -> None:
        """Remove a member without a rebalance."""
        self._write(Kind.CURRENT, None, member_id)
        self._write(Kind.TARGET, None, member_id)
        self._write(Kind.MEMBER, None, member_id)
        self.timers.drop_member(member_id)

    def _update_metadata(self, member_id: str, said: MemberMetadata) -> bool:
        """Store a member's metadata; return whether its subscription changed."""
        known = self.book.members.get(member_id)
        if said == known:
            return False
        self._write(Kind.MEMBER, said, member_id)
        if known is None:
            self._raise_epoch(f"{member_id} joined")
            return True
        reads_anew = (known.topic_names, known.topic_regex) != (said.topic_names, said.topic_regex)
        if not reads_anew and said.pattern != known.pattern:  # the principal or host changed
            reads_anew = self.topics.read_by(known) != self.topics.read_by(said)
        if reads_anew:
            self._raise_epoch(f"{member_id} changed its subscription")
        return reads_anew

    def _watch_848(
        self, member_id: str, before: CurrentAssignment, after: CurrentAssignment
    ) -> None:
        """Set the timers of a member after its request."""
        self.timers.set(Purpose.SESSION, member_id, self._now + self.limits.session_timeout_ms)
        self.timers.drop(Purpose.JOIN, member_id)
        self.timers.drop(Purpose.SYNC, member_id)
        if after.state is not MemberState.UNREVOKED:
            self.timers.drop(Purpose.REBALANCE, member_id)
        elif (
            after.revoking != before.revoking
            or self.timers.get(Purpose.REBALANCE, member_id) is None
        ):
            timeout = self.book.members[member_id].rebalance_timeout_ms
            self.timers.set(Purpose.REBALANCE, member_id, self._now + timeout)

    # -- leaving ---------------------------------------------------------------------------------

    def _leave_848(self, event: ConsumerGroupHeartbeat) -> None:
        member_id = event.member_id
        error = Code.NONE if member_id in self.book.members else Code.UNKNOWN_MEMBER_ID
        if event.instance_id is not None:
            error = self._fence_instance(member_id, event.instance_id)
        if error is not Code.NONE:
            self._refuse_848(
                event, (error, f"{member_id} is not a member, or not the owner of the instance id")
            )
            return
        self._emit(
            fx.ConsumerHeartbeatReply(event.token, Code.NONE, None, member_id, event.member_epoch)
        )
        if event.member_epoch == LEAVE_FOR_A_WHILE:
            self._report("static_member_away", member_id)
            stood = self.book.at(member_id)
            self._write(Kind.CURRENT, replace(stood, epoch=AWAY, revoking={}), member_id)
            self.timers.drop(Purpose.REBALANCE, member_id)
        else:
            self._report("member_left", member_id)
            self._remove([member_id])

    def _remove(self, gone: list[str]) -> None:
        """Remove members, with a rebalance."""
        for member_id in gone:
            self._erase(member_id)
        self._raise_epoch(f"{', '.join(gone)} left")
        self._follow_epoch()


def check_epoch(
    stood: CurrentAssignment, received: int, owned: Partitions | None
) -> Refusal | None:
    """Check the member epoch of a request.

    Epoch 0 always joins again. The previous epoch is accepted from a member that missed the answer with the
    current epoch, if the member's owned partitions are a subset of its assignment.
    """
    if received in (JOIN, stood.epoch):
        return None
    if received > stood.epoch:
        return (
            Code.FENCED_MEMBER_EPOCH,
            f"member epoch {received} is above the known one, {stood.epoch}",
        )
    lost_answer = (
        received == stood.previous_epoch and owned is not None and within(owned, stood.assigned)
    )
    if lost_answer:
        return None
    return (
        Code.FENCED_MEMBER_EPOCH,
        f"member epoch {received} is below the current one, {stood.epoch}",
    )


def _reported_metadata(event: ConsumerGroupHeartbeat, before: MemberMetadata) -> MemberMetadata:
    """Return the member's metadata; omitted fields keep their values."""
    names, regex, timeout = (
        event.subscribed_topic_names,
        event.subscribed_topic_regex,
        event.rebalance_timeout_ms,
    )
    return MemberMetadata(
        instance_id=event.instance_id if event.instance_id is not None else before.instance_id,
        rack_id=event.rack_id if event.rack_id is not None else before.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=timeout if timeout != -1 else before.rebalance_timeout_ms,
        topic_names=frozenset(names) if names is not None else before.topic_names,
        topic_regex=regex if regex is not None else before.topic_regex,
        server_assignor=event.server_assignor
        if event.server_assignor is not None
        else before.server_assignor,
        principal=event.principal,
    )


def _requests_full_answer(event: ConsumerGroupHeartbeat) -> bool:
    """Return whether the heartbeat repeats all fields, which requests a full answer."""
    subscribes = (
        event.subscribed_topic_names is not None or event.subscribed_topic_regex is not None
    )
    repeats = event.rebalance_timeout_ms != -1 and subscribes and event.owned is not None
    return event.member_epoch == JOIN or repeats
