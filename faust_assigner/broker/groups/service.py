"""All groups of this broker: pass events to them, store before answering, keep their timers.

The state machines are pure (:mod:`faust_assigner.coordinator`); this module does their I/O. The answer of a
parked request is a callback, found by the request's token. Only the broker's event loop calls this module.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, cast

from faust_assigner.broker.groups.admission import (
    GroupCreator,
    GroupQuota,
    creates_group,
    creation_error,
)
from faust_assigner.broker.groups.books import GroupBooks
from faust_assigner.broker.groups.computing import Compute, Outcome
from faust_assigner.broker.groups.meter import FENCING, Meter
from faust_assigner.broker.groups.parked import Answer, ParkedRequests
from faust_assigner.broker.groups.saving import GroupSaver
from faust_assigner.broker.groups.topic_notifier import KnownTopics
from faust_assigner.broker.rate_limited_log import RateLimitedLog
from faust_assigner.broker.storage.store import Store
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.absent import answer_absent
from faust_assigner.coordinator.assignors import Target
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits
from faust_assigner.coordinator.consumer import ConsumerGroup
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CatalogueChanged,
    CommitOffsets,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    Event,
    Heartbeat,
    JoinGroup,
    Request,
    Saved,
    TargetComputed,
    TimersDue,
    Token,
)
from faust_assigner.coordinator.records import Key, Kind, Record
from faust_assigner.coordinator.refusals import refuse_join
from faust_assigner.coordinator.restore import new_group, restore
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.unknown import answer_unknown

logger = logging.getLogger(__name__)
SetTimer = Callable[[str, int], None]  # (group id, time in ms): schedules GroupService.tick
STATE: Final = "state"  # the event name for a changed state; any other name is a rebalance's reason


class GroupService:
    """All groups, restored from the store and written to it; ``books`` has their offsets."""

    def __init__(
        self,
        store: Store,
        group_limits: GroupLimits,
        clock: Callable[[], int],
        *,
        timer: Callable[[], int],
        max_record_bytes: int,
        set_timer: SetTimer,
        counters: Counter[str],
        consumer_limits: Callable[[str], ConsumerLimits],
        catalogue: Callable[[], Catalogue],
        compute_target: Compute,
        peer_log: RateLimitedLog,
    ) -> None:
        self.books = GroupBooks(store, clock, counters)
        self._saver = GroupSaver(store, max_record_bytes)
        self._clock = clock
        self._timer = timer
        self._counters = counters
        self._limits = group_limits
        self._consumer_limits = consumer_limits
        self._topics = KnownTopics(catalogue)
        self._compute = compute_target
        self._set_timer = set_timer
        self.meter = Meter()
        self._groups: dict[str, Group] = {}
        self._quota = GroupQuota()
        self._parked = ParkedRequests(self.meter, peer_log, timer, self.get)
        self._replay()

    def _replay(self) -> None:
        for group_id, found in self._saver.load(self.books).items():
            self._groups[group_id] = restore(
                group_id,
                found,
                classic=self._limits,
                consumer=self._consumer_limits(group_id),
                catalogue=self._topics.deliver(group_id),
                now_ms=self._timer(),
            )
            self._quota.note(group_id, None, is_simple=self._groups[group_id].is_unproven)
            self._set_alarm(group_id)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> Group | None:
        """Return the group, or None."""
        return self._groups.get(group_id)

    # -- events ----------------------------------------------------------------------------------

    def ask(
        self,
        group_id: str,
        event_for: Callable[[Token], Request],
        answer: Answer,
        creator: GroupCreator | None = None,
    ) -> None:
        """Apply a request to a group; ``answer`` is called at once, or when a parked request ends.

        ``creator`` is the peer that may create the group with this request; its groups are counted.
        """
        event = self._parked.park(group_id, event_for, answer)
        is_new = group_id not in self._groups
        refusal = self._create(group_id, event, creator) if is_new else None
        if refusal is not None:
            self._parked.answer(refusal)
            return
        group = self._groups[group_id]
        if isinstance(event, DeleteGroup) and group.state_name == "Empty":
            error = self._saver.drop(group_id, self.books.keys(group_id))
            if error is not Code.NONE:
                self._parked.answer(fx.DeleteReply(event.token, error))
                return
        if isinstance(event, JoinGroup | ConsumerGroupHeartbeat):
            self._quota.has_members(group_id)
        if isinstance(event, ConsumerGroupHeartbeat) and self._topics.are_outdated(group_id):
            # A member that has just created a topic gets the topic's partitions at once.
            self._feed(group, CatalogueChanged(self._topics.deliver(group_id)))
        self._feed(group, event)
        if isinstance(event, CommitOffsets):
            return  # a commit can only postpone a deadline, and its group needs no member
        self._set_alarm(group_id)
        created = self._groups.get(group_id) if is_new else None
        if created is not None and created.is_unused:
            self._forget(group_id)

    def heartbeat(self, group_id: str, event: Heartbeat) -> Code:
        """Return the result of a heartbeat at once: state machines never park heartbeats."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            replies: list[fx.Reply] = []
            self.ask(group_id, lambda token: replace(event, token=token), replies.append)
            return replies[0].error
        # In a classic group a heartbeat stores nothing and can only postpone a deadline.
        (reply,) = (self._unknown(group_id, event),) if group is None else self._step(group, event)
        error = cast(fx.HeartbeatReply, reply).error
        if error in FENCING:
            self._parked.fenced(group_id, event, error)
        return error

    def _create(
        self, group_id: str, event: Request, creator: GroupCreator | None
    ) -> fx.Reply | None:
        """Create the group of a request; return the refusal if the request may not create it."""
        if not creates_group(event):
            return self._unknown(group_id, event)
        is_simple = isinstance(event, CommitOffsets)
        error = creation_error(group_id, event)
        if (
            error is Code.NONE
            and isinstance(event, JoinGroup)
            and self._quota.needs_room(creator, is_simple=False)
        ):
            # A join that no group would accept must not displace another group.
            error = refuse_join(event, self._limits, group_id)
        if error is Code.NONE and not self._make_room(creator, is_simple=is_simple):
            error = Code.GROUP_MAX_SIZE_REACHED
        if error is not Code.NONE:
            return answer_absent(event, error)
        self._groups[group_id] = new_group(
            group_id,
            event,
            classic=self._limits,
            consumer=self._consumer_limits(group_id),
            catalogue=self._topics.deliver(group_id),
            now_ms=self._timer(),
        )
        self._quota.note(group_id, creator, is_simple=is_simple)
        return None

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._topics.forget(group_id)
        self._quota.gone(group_id)
        self.meter.forget(group_id)

    def _make_room(self, creator: GroupCreator | None, *, is_simple: bool) -> bool:
        """Forget an empty group of a peer at its limit; return whether the peer may create a group."""
        if self._quota.needs_room(creator, is_simple=is_simple):
            for group_id in self._quota.fresh(creator, is_simple=is_simple):
                group = self._groups.get(group_id)
                if group is not None and group.is_unproven and not self.books.has_any(group_id):
                    self._forget(group_id)
                    self.books.close(group_id)
                    self._counters["groups_forgotten"] += 1
                    break
        return self._quota.may_create(creator, is_simple=is_simple)

    def _unknown(self, group_id: str, event: Request) -> fx.Reply:
        return answer_unknown(event, group_id, self._limits, self._consumer_limits(group_id))

    def tick(self, group_id: str) -> None:
        """Process the due timers of a group."""
        self._put(group_id, TimersDue())

    def catalogue_changed(self) -> Iterator[str]:
        """Inform each group of changed topics, one at a time; yields after each group."""
        for group_id in list(self._groups):
            if group_id in self._groups and self._topics.are_outdated(group_id):
                self._put(group_id, CatalogueChanged(self._topics.deliver(group_id)))
            yield group_id

    def limits_changed(self, group_id: str) -> None:
        """Apply the group's changed configs."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.limits = self._consumer_limits(group_id)
        elif isinstance(group, ClassicGroup):
            group.consumer_limits = self._consumer_limits(group_id)

    def _put(self, group_id: str, event: Event) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            self._feed(group, event)
            self._set_alarm(group_id)

    # -- effects ---------------------------------------------------------------------------------

    def _feed(self, group: Group, event: Event) -> None:
        """Carry out effects in order; the result of a save returns to the state machine at once."""
        group_id = group.group_id
        reason = ""
        for effect in self._step(group, event):
            match effect:
                case fx.SaveGroup(record, save_id):
                    key = Key(Kind.CLASSIC, record.group_id)
                    error = self._saver.save(group_id, (Record(key, record),))
                    if save_id is not None:
                        self._feed(self._groups[group_id], Saved(save_id, error))
                case fx.SaveRecords(records, save_id):
                    error = self._saver.save(group_id, records)
                    self._feed(self._groups[group_id], Saved(save_id, error))
                case fx.ReplaceMachine(machine):
                    self._groups[group_id] = machine  # its timer is set after the event
                case fx.ComputeTarget(request_id, spec):
                    self._compute(spec, self._outcome(group_id, request_id))
                case fx.DropGroup():  # its records are deleted already
                    self._forget(group_id)
                    self.books.close(group_id)
                case fx.Happened(what, member_id, detail):
                    reason = reason or ("" if what == STATE else what)
                    self._counters[f"group_{what}"] += 1
                    logger.debug("group %s: %s %s %s", group_id, what, member_id, detail)
                case _:
                    self._parked.answer(effect)
        left = self._groups.get(group_id)
        if left is not None:
            now, why = self._timer(), reason or type(event).__name__
            self.meter.state_seen(group_id, left.state_name, now, why)

    def _step(self, group: Group, event: Event) -> tuple[fx.Effect, ...]:
        return group.step(event, self._timer(), self._clock())

    def _outcome(self, group_id: str, request_id: int) -> Outcome:
        group = self._groups.get(group_id)

        def computed(target: Target | None, why: str) -> None:
            # The outcome is dropped if the group was replaced: its successor numbers its own requests.
            if self._groups.get(group_id) is group:
                self._put(group_id, TargetComputed(request_id, target, why))

        return computed

    def _set_alarm(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        due = None if group is None else group.next_deadline_ms
        if due is not None:
            self._set_timer(group_id, due)
