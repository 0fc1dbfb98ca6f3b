"""All groups of this broker: events in, effects carried out (stored first, answered after), timers kept.

The machines are pure (:mod:`faust_assigner.coordinator.classic`); this is their surroundings. Parked requests
are callbacks by token. Single-threaded: called from the broker's event loop only.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

from faust_assigner.broker import limits
from faust_assigner.broker.founders import Founder, Founders
from faust_assigner.broker.storage import group_store
from faust_assigner.broker.storage.store import Store, StoreFailed
from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits, State, answer_absent, refuse_join
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import (
    CommitOffsets,
    DeleteGroup,
    Event,
    Heartbeat,
    JoinGroup,
    Saved,
    Tick,
    Token,
)
from faust_assigner.coordinator.offsets import Committed, OffsetBook, TopicPartition, group_topics

logger = logging.getLogger(__name__)
Answer = Callable[[fx.Reply], None]
Alarm = Callable[[str, int], None]  # (group id, when in ms): call GroupService.tick then


class GroupService:
    """Every group and its offsets, restored from the store and written to it."""

    def __init__(
        self,
        store: Store,
        group_limits: GroupLimits,
        clock: Callable[[], int],
        *,
        max_record_bytes: int,
        alarm: Alarm,
        counters: Counter[str],
    ) -> None:
        self._store = store
        self._limits = group_limits
        self._clock = clock
        self._max_record_bytes = max_record_bytes
        self._alarm = alarm
        self._counters = counters
        self._groups: dict[str, ClassicGroup] = {}
        self._books: dict[str, OffsetBook] = {}
        self._founders = Founders()
        self._readers: dict[str, set[str]] = {}  # topic -> groups that may have offsets of it
        self._parked: dict[Token, Answer] = {}
        self._tokens = itertools.count()
        self._replay()

    def _replay(self) -> None:
        now = self._clock()
        for record in group_store.load_groups(self._store):
            self._groups[record.group_id] = ClassicGroup.restore(record, self._limits, now)
        for group_id, key, entry in group_store.load_offsets(self._store):
            self._groups.setdefault(group_id, ClassicGroup(group_id, self._limits, now))
            self._books.setdefault(group_id, OffsetBook()).commit({key: entry})
            self._readers.setdefault(key[0], set()).add(group_id)
        for group_id, group in self._groups.items():
            self._founders.note(group_id, None, is_simple=not group.generation and not len(group.roster))
            self._set_alarm(group_id)

    def __iter__(self) -> Iterator[ClassicGroup]:
        return iter(self._groups.values())

    def get(self, group_id: str) -> ClassicGroup | None:
        """The group, or None."""
        return self._groups.get(group_id)

    # -- events ----------------------------------------------------------------------------------

    def ask(
        self,
        group_id: str,
        event_for: Callable[[Token], Event],
        answer: Answer,
        founder: Founder | None = None,
    ) -> None:
        """Put a request to a group; ``answer`` is called now, or when the group lets a parked request go.

        ``founder`` is who may make a group by asking; it is counted how many it made.
        """
        token = next(self._tokens)
        event = event_for(token)
        self._parked[token] = answer
        group = self._groups.get(group_id) or self._create_for(group_id, event, founder)
        if group is None:
            self._answer(self._refusal(group_id, event, founder))
            return
        if isinstance(event, JoinGroup):
            self._founders.has_members(group_id)
        self._feed(group, event)
        if not isinstance(event, CommitOffsets):
            self._set_alarm(group_id)  # a commit only ever moves a deadline back

    def beat(self, group_id: str, event: Heartbeat) -> Code:
        """A heartbeat's verdict: it is never parked, stores nothing and only ever moves a deadline back."""
        group = self._groups.get(group_id)
        (reply,) = (answer_absent(event),) if group is None else group.step(event, self._clock())
        return cast(fx.HeartbeatReply, reply).error

    def _create_for(self, group_id: str, event: Event, founder: Founder | None) -> ClassicGroup | None:
        newcomer = isinstance(event, JoinGroup) and not event.member_id
        outsider = isinstance(event, CommitOffsets) and event.generation < 0
        if not (newcomer or outsider) or self._refusal_code(group_id, event, founder) is not None:
            return None
        group = self._groups[group_id] = ClassicGroup(group_id, self._limits, self._clock())
        self._founders.note(group_id, founder, is_simple=outsider)
        return group

    def _refusal_code(self, group_id: str, event: Event, founder: Founder | None) -> Code | None:
        if not limits.is_group_id(group_id):
            return Code.INVALID_GROUP_ID
        if isinstance(event, JoinGroup):
            error = refuse_join(event, self._limits, group_id)
            if error is not Code.NONE:
                return error
        has_room = self._has_room(founder, is_simple=isinstance(event, CommitOffsets))
        return None if has_room else Code.GROUP_MAX_SIZE_REACHED

    def _has_room(self, founder: Founder | None, *, is_simple: bool) -> bool:
        """Where an address has its part, the oldest group goes that holds nothing but ids handed out."""
        if self._founders.makes_room(founder, is_simple=is_simple):
            for group_id in self._founders.fresh(founder, is_simple=is_simple):
                group = self._groups.get(group_id)
                if group and not (len(group.roster) or group.generation or self._books.get(group_id)):
                    del self._groups[group_id]
                    self._founders.gone(group_id)
                    self._counters["groups_forgotten"] += 1
                    break
        return self._founders.may_found(founder, is_simple=is_simple)

    def _refusal(self, group_id: str, event: Event, founder: Founder | None) -> fx.Reply:
        if isinstance(event, JoinGroup) and not event.member_id:
            return answer_absent(event, self._refusal_code(group_id, event, founder))
        if isinstance(event, CommitOffsets) and event.generation < 0:
            return answer_absent(event, self._refusal_code(group_id, event, founder))
        return answer_absent(event)

    def tick(self, group_id: str) -> None:
        """A timer of the group is due."""
        group = self._groups.get(group_id)
        if group is not None:
            self._feed(group, Tick())
            self._set_alarm(group_id)

    def _feed(self, group: ClassicGroup, event: Event) -> None:
        """Carry out the effects in order; the outcome of a save goes back into the machine."""
        for effect in group.step(event, self._clock()):
            match effect:
                case fx.SaveGroup(record, save_id):
                    error = self._save(record)
                    if save_id is not None:
                        self._feed(group, Saved(save_id, error))
                case fx.DropGroup(group_id):
                    self._drop(group_id)
                case fx.Happened(what, member_id, detail):
                    self._counters[f"group_{what}"] += 1
                    logger.debug("group %s: %s %s %s", group.group_id, what, member_id, detail)
                case _:
                    self._answer(effect)

    def _answer(self, reply: fx.Reply) -> None:
        answer = self._parked.pop(reply.token, None)
        if answer is not None:
            answer(reply)

    def _set_alarm(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is not None and group.next_deadline_ms is not None:
            self._alarm(group_id, group.next_deadline_ms)

    def _save(self, record: fx.GroupRecord) -> Code:
        size = group_store.record_size(record)
        if size > self._max_record_bytes:
            logger.warning(
                "group %s: its record has %d bytes, message.max.bytes is %d",
                record.group_id,
                size,
                self._max_record_bytes,
            )
            return Code.UNKNOWN_SERVER_ERROR  # what Kafka answers for a group record that is too large
        try:
            self._store.write([(group_store.group_key(record.group_id), group_store.dump_group(record))])
        except StoreFailed as error:
            logger.error("group %s could not be stored: %s", record.group_id, error)
            return Code.NOT_COORDINATOR
        return Code.NONE

    def _drop(self, group_id: str) -> None:
        self._groups.pop(group_id, None)
        self._founders.gone(group_id)
        book = self._books.pop(group_id, OffsetBook())
        for topic in {topic for topic, _ in book.entries}:
            self._readers.get(topic, set()).discard(group_id)
        deletes = [group_store.offset_key(group_id, *key) for key in book.entries]
        self._write_quietly([], [*deletes, group_store.group_key(group_id)])

    def _write_quietly(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        try:
            self._store.write(puts, deletes)
        except StoreFailed as error:
            logger.error("groups could not be tidied on disk, the next start sees the old state: %s", error)

    # -- offsets ---------------------------------------------------------------------------------

    def commit(self, group_id: str, changes: Mapping[TopicPartition, Committed]) -> Code:
        """Store offsets a group has admitted; on disk before this returns."""
        book = self._books.setdefault(group_id, OffsetBook())
        if len(book) + len(changes) > limits.MAX_OFFSETS_PER_GROUP and changes.keys() - book.entries.keys():
            return Code.INVALID_REQUEST
        pairs = [
            (group_store.offset_key(group_id, *key), group_store.dump_offset(e)) for key, e in changes.items()
        ]
        try:
            self._store.write(pairs)
        except StoreFailed as error:
            logger.error("offsets of group %s could not be stored: %s", group_id, error)
            return Code.NOT_COORDINATOR
        book.commit(changes)
        for topic in {topic for topic, _ in changes}:
            self._readers.setdefault(topic, set()).add(group_id)
        return Code.NONE

    def offsets(self, group_id: str) -> OffsetBook:
        """A group's offsets; an empty book for a group nobody knows."""
        return self._books.get(group_id) or OffsetBook()

    def delete_offsets(self, group_id: str, keys: Iterable[TopicPartition]) -> None:
        """Forget some offsets of one group."""
        book = self._books.get(group_id)
        if book is not None:
            gone = book.drop(keys)
            self._write_quietly([], [group_store.offset_key(group_id, *key) for key in gone])

    def topic_deleted(self, topic: str) -> Iterator[str]:
        """Drop offsets of a deleted topic, they would make no sense in a new one; yields group by group."""
        for group_id in self._readers.pop(topic, ()):
            book = self._books.get(group_id)
            if book is not None:
                self.delete_offsets(group_id, book.of_topic(topic))
            yield group_id

    def expire_offsets(self, retention_ms: int) -> Iterator[int]:
        """Apply KIP-211, group by group: how many offsets went. Empty groups without offsets go too."""
        now = self._clock()
        for group in list(self):
            book = self.offsets(group.group_id)
            expired = book.expired(group, retention_ms=retention_ms, now_ms=now)
            self.delete_offsets(group.group_id, expired)
            self._counters["offsets_expired"] += len(expired)
            idle = now - group.state_since_ms >= retention_ms or group.generation == 0
            if (
                group.state is State.EMPTY
                and not book.entries
                and not group.roster.pending
                and (expired or idle)
            ):
                self.ask(group.group_id, DeleteGroup, lambda reply: None)
            yield len(expired)

    def subscribed(self, group: ClassicGroup) -> Callable[[str], bool]:
        """Whether members of the group read a topic (KIP-496); unknown counts as yes."""
        if group.state is State.EMPTY:
            return lambda topic: False
        topics = group_topics(group)
        return lambda topic: topics is None or topic in topics
