"""All groups of this broker: pass events to them, store before answering, keep their timers.

The state machines are pure (:mod:`faust_assigner.coordinator`); this module does their I/O. Parked requests
are callbacks by token. Single-threaded: called from the broker's event loop only.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, cast

from faust_assigner.broker import limits
from faust_assigner.broker.group_quota import GroupCreator, GroupQuota
from faust_assigner.broker.groups.books import GroupBooks
from faust_assigner.broker.groups.fences import Refusal
from faust_assigner.broker.groups.meter import FENCING, Meter
from faust_assigner.broker.storage import group_records, group_store
from faust_assigner.broker.storage.rate_limited_log import RateLimitedLog
from faust_assigner.broker.storage.store import Store, StoreFailed, prefix_range
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.absent import answer_absent, refuse_join
from faust_assigner.coordinator.assignors import GroupSpec, Target, compute
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits
from faust_assigner.coordinator.consumer import ConsumerGroup
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
    Tick,
    Token,
)
from faust_assigner.coordinator.group import Group
from faust_assigner.coordinator.records import GroupRecord, Kind, Record
from faust_assigner.coordinator.restore import restore
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.unknown import answer_unknown

logger = logging.getLogger(__name__)
Answer = Callable[[fx.Reply], None]
SetTimer = Callable[[str, int], None]  # (group id, time in ms): schedules GroupService.tick
Outcome = Callable[[Target | None, str], None]  # the target, or None and the reason
Compute = Callable[[GroupSpec, Outcome], None]
STATE: Final = "state"  # the event of a changed state; any other event name is a reason


def compute_now(spec: GroupSpec, done: Outcome) -> None:
    """Compute a target synchronously. An assignor's exception is an outcome: the group keeps its target."""
    try:
        target = compute(spec)
    except Exception as error:
        logger.exception("assignor %r failed", spec.assignor)
        done(None, repr(error))
    else:
        done(target, "")


class GroupService(GroupBooks):
    """All groups and their offsets, restored from the store and written to it."""

    def __init__(
        self,
        store: Store,
        group_limits: GroupLimits,
        clock: Callable[[], int],
        *,
        timer: Callable[[], int] | None = None,
        max_record_bytes: int,
        set_timer: SetTimer,
        counters: Counter[str],
        consumer_limits: Callable[[str], ConsumerLimits] = lambda group_id: ConsumerLimits(),
        catalogue: Callable[[], Catalogue] = Catalogue,
        compute_target: Compute = compute_now,
        peer_log: RateLimitedLog | None = None,
    ) -> None:
        super().__init__(store, clock, counters)
        self._timer = timer if timer is not None else clock
        self._limits = group_limits
        self._consumer_limits = consumer_limits
        self._catalogue = catalogue
        self._told: dict[str, Catalogue] = {}  # the topics as each group last received them
        self._compute = compute_target
        self._max_record_bytes = max_record_bytes
        self._set_timer = set_timer
        self._peer_log = peer_log if peer_log is not None else RateLimitedLog()
        self.meter = Meter()
        self._groups: dict[str, Group] = {}
        self._quota = GroupQuota()
        self._parked: dict[Token, tuple[Answer, str, Request]] = {}
        self._tokens = itertools.count()
        self._replay()

    def _replay(self) -> None:
        records: dict[str, list[Record]] = {
            group_id: [] for group_id in (*self._books, *self.pending)
        }
        for record in group_records.load_records(self._store):
            records.setdefault(record.key.group_id, []).append(record)
        for group_id, found in records.items():
            self._groups[group_id] = restore(
                group_id,
                found,
                classic=self._limits,
                consumer=self._consumer_limits(group_id),
                catalogue=self._tell(group_id),
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
        """Send a request to a group; ``answer`` is called at once, or when a parked request ends.

        ``creator`` is the peer that may create the group with this request; its groups are counted.
        """
        token = next(self._tokens)
        event = event_for(token)
        self._parked[token] = (answer, group_id, event)
        known = self._groups.get(group_id)
        group = known or self._create_for(group_id, event, creator)
        if group is None:
            self._answer(self._refusal(group_id, event, creator))
            return
        if isinstance(event, JoinGroup | ConsumerGroupHeartbeat):
            self._quota.has_members(group_id)
        if (
            isinstance(event, ConsumerGroupHeartbeat)
            and self._told.get(group_id) is not self._catalogue()
        ):
            self._feed(
                group, CatalogueChanged(self._tell(group_id))
            )  # a member that has just created a topic gets its partitions
        self._feed(group, event)
        if not isinstance(event, CommitOffsets):
            self._set_alarm(group_id)  # a commit can only postpone a deadline
        if known is None:
            self._keep_created(group_id)

    def beat(self, group_id: str, event: Heartbeat) -> Code:
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
            self._fenced(group_id, event, error)
        return error

    def _create_for(
        self, group_id: str, event: Event, creator: GroupCreator | None
    ) -> Group | None:
        if not _creates_group(event) or self._refusal_code(group_id, event, creator) is not None:
            return None
        now, consumer, topics = self._timer(), self._consumer_limits(group_id), self._tell(group_id)
        group: Group
        if isinstance(event, ConsumerGroupHeartbeat):
            group = ConsumerGroup(group_id, consumer, topics, now, classic_limits=self._limits)
        else:
            group = ClassicGroup(group_id, self._limits, now, consumer=consumer, catalogue=topics)
        self._groups[group_id] = group
        self._quota.note(group_id, creator, is_simple=isinstance(event, CommitOffsets))
        return group

    def _keep_created(self, group_id: str) -> None:
        """Forget a new consumer group if the request that created it added no member."""
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.is_unproven:
            self._forget(group_id)

    def _forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._told.pop(group_id, None)
        self._quota.gone(group_id)
        self.meter.forget(group_id)

    def _refusal_code(
        self, group_id: str, event: Event, creator: GroupCreator | None
    ) -> Code | None:
        is_nameless_commit = not group_id and isinstance(event, CommitOffsets)  # allowed in Kafka
        is_refused_inside = not group_id and isinstance(
            event, ConsumerGroupHeartbeat
        )  # the state machine refuses it with Kafka's message
        if not limits.is_group_id(group_id) and not is_nameless_commit and not is_refused_inside:
            return Code.INVALID_GROUP_ID
        if isinstance(event, JoinGroup):
            error = refuse_join(event, self._limits, group_id)
            if error is not Code.NONE:
                return error
        has_room = self._has_room(creator, is_simple=isinstance(event, CommitOffsets))
        return None if has_room else Code.GROUP_MAX_SIZE_REACHED

    def _has_room(self, creator: GroupCreator | None, *, is_simple: bool) -> bool:
        """Whether a peer may create a group; if its address is full, first forget the oldest empty group."""
        if self._quota.needs_room(creator, is_simple=is_simple):
            for group_id in self._quota.fresh(creator, is_simple=is_simple):
                group = self._groups.get(group_id)
                if group is not None and group.is_unproven and not self._has_offsets(group_id):
                    self._forget(group_id)
                    self._counters["groups_forgotten"] += 1
                    break
        return self._quota.may_create(creator, is_simple=is_simple)

    def _has_offsets(self, group_id: str) -> bool:
        return bool(self._books.get(group_id)) or bool(self.pending.count(group_id))

    def _refusal(self, group_id: str, event: Request, creator: GroupCreator | None) -> fx.Reply:
        if _creates_group(event):
            return answer_absent(event, self._refusal_code(group_id, event, creator))
        return self._unknown(group_id, event)

    def _unknown(self, group_id: str, event: Request) -> fx.Reply:
        return answer_unknown(event, group_id, self._limits, self._consumer_limits(group_id))

    def tick(self, group_id: str) -> None:
        """Process a timer of the group that is due."""
        self._put(group_id, Tick())

    def _tell(self, group_id: str) -> Catalogue:
        self._told[group_id] = topics = self._catalogue()
        return topics

    def catalogue_changed(self) -> Iterator[str]:
        """Inform each group of changed topics, one at a time; yields after each group."""
        for group_id in list(self._groups):
            if group_id in self._groups and self._told.get(group_id) is not self._catalogue():
                self._put(group_id, CatalogueChanged(self._tell(group_id)))
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
                    error = self._save_group(record)
                    if save_id is not None:
                        self._feed(self._groups[group_id], Saved(save_id, error))
                case fx.SaveRecords(records, save_id):
                    self._feed(
                        self._groups[group_id], Saved(save_id, self._save(group_id, records))
                    )
                case fx.ReplaceMachine(machine):
                    self._groups[group_id] = machine  # its alarm is set after the event
                case fx.ComputeTarget(request_id, spec):
                    self._compute(spec, self._outcome(group_id, request_id))
                case fx.DropGroup():
                    self._drop(group_id)
                case fx.Happened(what, member_id, detail):
                    reason = reason or ("" if what == STATE else what)
                    self._counters[f"group_{what}"] += 1
                    logger.debug("group %s: %s %s %s", group_id, what, member_id, detail)
                case _:
                    self._answer(effect)
        self._watch(group_id, reason or type(event).__name__)

    def _step(self, group: Group, event: Event) -> tuple[fx.Effect, ...]:
        return group.step(event, self._timer(), self._clock())

    def _watch(self, group_id: str, reason: str) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            self.meter.state_seen(group_id, group.state_name, self._timer(), reason)

    def _outcome(self, group_id: str, request_id: int) -> Outcome:
        return lambda target, why: self._put(group_id, TargetComputed(request_id, target, why))

    def _answer(self, reply: fx.Reply) -> None:
        parked = self._parked.pop(reply.token, None)
        if parked is None:
            return
        answer, group_id, event = parked
        if reply.error in FENCING:
            self._fenced(group_id, event, reply.error)
        answer(reply)

    def _fenced(self, group_id: str, event: Request, error: Code) -> None:
        self.meter.fenced[error.name] += 1
        refusal = Refusal(group_id, self._groups.get(group_id), event, error)
        self._peer_log.say(error.name, self._timer() / 1000, "%s", refusal)

    def _set_alarm(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            due = group.next_deadline_ms
            if due is not None:
                self._set_timer(group_id, due)

    def _save_group(self, record: GroupRecord) -> Code:
        pair = (group_store.group_key(record.group_id), group_store.dump_group(record))
        return self._write(record.group_id, [pair], group_store.record_size(record))

    def _save(self, group_id: str, records: tuple[Record, ...]) -> Code:
        puts, deletes = group_records.as_writes(records)
        sizes = (
            group_store.record_size(r.value) if isinstance(r.value, GroupRecord) else 0
            for r in records
            if r.key.kind is Kind.CLASSIC
        )
        largest = max((len(value) for key, value in puts if key[:1] == b"m"), default=0)
        return self._write(group_id, puts, max(largest, *sizes, 0), deletes)

    def _write(
        self,
        group_id: str,
        puts: list[tuple[bytes, bytes]],
        size: int,
        deletes: list[bytes] | tuple[()] = (),
    ) -> Code:
        if size > self._max_record_bytes:
            logger.warning(
                "group %s: its record has %d bytes, message.max.bytes is %d",
                group_id,
                size,
                self._max_record_bytes,
            )
            return (
                Code.UNKNOWN_SERVER_ERROR
            )  # as Kafka answers for a group record that is too large
        try:
            self._store.write(puts, deletes)
        except StoreFailed as error:
            logger.error("group %s could not be stored: %s", group_id, error)
            return Code.NOT_COORDINATOR
        return Code.NONE

    def _drop(self, group_id: str) -> None:
        self._forget(group_id)
        deletes = [*self._close_book(group_id), group_store.group_key(group_id)]
        self._write_quietly([], deletes, [prefix_range(group_records.records_prefix(group_id))])

    # -- expired offsets -------------------------------------------------------------------------

    def expire_offsets(self, retention_ms: int) -> Iterator[int]:
        """Apply KIP-211; yield each group's number of expired offsets. Deletes empty groups without any."""
        for group in list(self):
            expired = self._expire(group, retention_ms)
            waited_for = isinstance(group, ClassicGroup) and group.roster.pending
            if (
                group.state_name == "Empty"
                and not self.offsets(group.group_id).entries
                and not self.pending.count(group.group_id)
                and not waited_for
            ):
                self.ask(group.group_id, DeleteGroup, lambda reply: None)
            yield len(expired)

    def subscribed(self, group: Group) -> Callable[[str], bool]:
        """Return a test whether members of the group read a topic (KIP-496); true if unknown."""
        if group.state_name == "Empty":
            return lambda topic: False
        topics = group.subscribed_topics()
        return lambda topic: topics is None or topic in topics


def _creates_group(event: Event) -> bool:
    """Whether an event may create a missing group."""
    match event:
        case JoinGroup():
            return not event.member_id
        case CommitOffsets():
            return event.generation < 0
        case ConsumerGroupHeartbeat():
            return event.member_epoch == 0
        case _:
            return False
