"""The source partitions that this worker owns but does not process now, with reason and start time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.transports import ConsumerT
    from faust.types.tuples import TP

#: Seconds that agents may take for a record before its partition counts as stalled.
RECORD_S = 30.0


class StalledPartition(NamedTuple):
    """``tp`` has not been processed since ``since`` (monotonic seconds), for one of REASONS."""

    tp: TP
    reason: str
    since: float


class StalledPartitions:
    """Finds the stalled partitions and remembers when each stopped; runs on the app's thread."""

    def __init__(self, app: AppT) -> None:
        self._app = app
        self._since: dict[TP, tuple[str, float]] = {}
        #: Partition -> its oldest unfinished record, and the time since which this is the oldest.
        self._oldest: dict[TP, tuple[int, float]] = {}

    def state_at(self, now: float) -> tuple[StalledPartition, ...]:
        """Return the state at ``now``, by partition. Cost: O(owned partitions + unfinished records)."""
        self._note_oldest(now)
        found = dict(self._reasons(now))
        since = {}
        for tp, reason in found.items():
            before, began = self._since.get(tp, ("", now))
            since[tp] = (reason, began if before == reason else now)
            if reason == "record":
                since[tp] = (reason, self._oldest[tp][1])
        self._since = since
        return tuple(StalledPartition(tp, *since[tp]) for tp in sorted(since))

    def _reasons(self, now: float) -> Iterator[tuple[TP, str]]:
        app = self._app
        consumer, changelogs = app._consumer, app.tables._changelogs
        if consumer is None:
            return
        sources = [tp for tp in app.assignor.assigned_actives() if tp.topic not in changelogs]
        whole = self._reason_of_all(consumer)
        leaving: frozenset[TP] = getattr(consumer, "leaving", frozenset())
        aside, refused = unreadable(consumer), refused_by_brokers(consumer)
        is_taking_on = getattr(app.tables.recovery, "is_taking_on", False)
        for tp in sources:
            if whole:
                yield tp, whole
            elif tp in leaving:
                yield tp, "hand_over"
            elif tp in consumer._paused_partitions:
                yield tp, "restoring" if is_taking_on else "paused"
            elif tp in aside:
                yield tp, "unreadable"
            elif tp in refused:
                yield tp, "refused"
            elif tp in self._oldest and now - self._oldest[tp][1] >= RECORD_S:
                yield tp, "record"

    def _reason_of_all(self, consumer: ConsumerT) -> str:
        """Return the reason why no partition is processed; "" if some partitions may be processed."""
        app = self._app
        if not getattr(consumer, "is_surely_member", lambda: True)():
            return "group"
        if getattr(consumer, "between_generations", False):
            return "round"
        if app.in_recovery or app.tables.recovery.in_recovery:
            # During a cooperative worker's replay of a table other partitions are processed: see
            # is_taking_on.
            return "" if getattr(app.tables.recovery, "is_flowing", False) else "restoring"
        return ""

    def _note_oldest(self, now: float) -> None:
        consumer = self._app._consumer
        oldest: dict[TP, int] = {}
        for message in tuple(consumer._unacked_messages) if consumer is not None else ():
            if not message.acked:
                oldest[message.tp] = min(message.offset, oldest.get(message.tp, message.offset))
        self._oldest = {
            tp: before
            if (before := self._oldest.get(tp, (-1, now)))[0] == offset
            else (offset, now)
            for tp, offset in oldest.items()
        }


def unreadable(consumer: ConsumerT) -> frozenset[TP]:
    """Return the partitions with unreadable records; a cooperative worker processes its others."""
    fetcher = getattr(consumer, "fetcher", None)
    return frozenset() if fetcher is None else frozenset(fetcher.aside.partitions())


def refused_by_brokers(consumer: ConsumerT) -> frozenset[TP]:
    """Return the partitions for which a broker answered with an error at the last try."""
    fetcher = getattr(consumer, "fetcher", None)
    return frozenset() if fetcher is None else frozenset(fetcher.refused.partitions())
