"""The base of a consumer group: its members and targets (the book), its timers, and the save of a change.

A step applies records to the book immediately and requests their save; its answers are delayed
until the save succeeds. If the save fails, the book is restored and the answer is the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.consumer.book import Book
from faust_assigner.coordinator.consumer.subscriptions import Topics
from faust_assigner.coordinator.effects import Group
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.events import Event, JoinGroup
from faust_assigner.coordinator.records import Key, Kind, Record, Value
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.states import GroupLimits
from faust_assigner.coordinator.timers import Purpose, Timers

RETRY_MS = 1_000  # time from a failed write or assignor to the next attempt


class RestoreClassic(Protocol):
    """A function that makes a classic group of a record: ``ClassicGroup.restore``."""

    def __call__(
        self,
        record: fx.GroupRecord,
        limits: GroupLimits,
        now_ms: int,
        *,
        consumer: ConsumerLimits,
        catalogue: Catalogue,
    ) -> Group:
        """Return the classic group; each member has a fresh session."""


class GroupCore:
    """The state of a consumer group; each field is documented by its invariant."""

    def __init__(
        self,
        group_id: str,
        limits: ConsumerLimits,
        catalogue: Catalogue,
        now_ms: int,
        *,
        restore_classic: RestoreClassic,
        classic_limits: GroupLimits | None = None,
    ) -> None:
        self.group_id = group_id
        self.limits = limits
        self.restore_classic = restore_classic
        self.classic_limits = classic_limits if classic_limits is not None else GroupLimits()
        self.catalogue = catalogue
        self.topics = Topics(catalogue)
        self.book = Book(group_id)
        self.timers = Timers()
        #: Set when the group has been dropped: every later request gets the answer "unknown group".
        self.is_dead = False
        #: The records of this step so far, each with the record that undoes it.
        self._batch: list[Record] = []
        self._undo: list[Record] = []
        self._save_counter = 0
        #: The id of the pending save, or None. No other event arrives before the outcome of the save.
        self._saving: int | None = None
        self._held: list[fx.Effect] = []
        #: The event that caused the save and is refused after a failure, and the members whose timers fired.
        self._cause: Event | None = None
        self._rang: set[str] = set()
        #: The group's new machine after the save, and the first event for the new machine.
        self._successor: tuple[Group, JoinGroup | None] | None = None
        #: The time of the last event: on the timers' clock, and on the wall clock (for a classic group's
        #: record).
        self._now = self._wall = now_ms
        self._out: list[fx.Effect] = []
        #: The state that was reported last.
        self._shown_state = "Empty"
        #: The time of the last computed target; None before the first.
        self._computed_at_ms: int | None = None
        #: The value of ``_computed_at_ms`` before this step, for an undo.
        self._computed_before_ms: int | None = None
        #: The pending request: its id, its group epoch, and member id -> instance id.
        self._asked: tuple[int, int, dict[str, str]] | None = None
        #: The oldest request without a result for ASK_AGAIN_MS; its result still counts.
        self._overdue: tuple[int, int, dict[str, str]] | None = None
        self._requests = 0
        #: A failed assignor is not called again before this time.
        self._not_before_ms = 0

    # -- records ---------------------------------------------------------------------------------

    def _write(self, kind: Kind, value: Value | None, member_id: str = "") -> None:
        """Change the book, and add the record to the pending save."""
        record = Record(Key(kind, self.group_id, member_id), value)
        self._undo.append(self.book.apply(record))
        self._batch.append(record)

    def _rewind(self, undo: Iterable[Record]) -> None:
        touched = set(self._rang)
        for record in undo:
            self.book.apply(record)
            touched.add(record.key.member_id)
        for member_id in sorted(touched - {""}):
            self._restart_timers(member_id)
        self.timers.set(Purpose.RETRY, "", self._now + RETRY_MS)

    def _restart_timers(self, member_id: str) -> None:
        """Restart the timers of a member whose last change failed."""
        raise NotImplementedError

    # -- small parts -----------------------------------------------------------------------------

    def _report(self, what: str, member_id: str = "", detail: str = "") -> None:
        self._out.append(fx.Happened(what, member_id, detail))

    def _emit(self, effect: fx.Effect) -> None:
        self._out.append(effect)

    def _fence_instance(self, member_id: str, instance_id: str) -> Code:
        """Check that this member is the current owner of the instance id (KIP-345)."""
        current = self.book.instances.get(instance_id)
        if current is None:
            return Code.UNKNOWN_MEMBER_ID
        return Code.NONE if current == member_id else Code.FENCED_INSTANCE_ID
