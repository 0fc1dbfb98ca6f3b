"""Measures the duration and the source of each partition's restore, in Faust's own recovery."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from mode import get_logger

from faust_assigner.app.host.group_member import kafka_member_id
from faust_assigner.app.ledger.rows import TableRow
from faust_assigner.app.ledger.writer import LedgerWriter
from faust_assigner.app.recovery.restore_task import SNAPSHOT, Restored
from faust_assigner.app.tables.disk import offset_or_minus_one

if TYPE_CHECKING:
    from faust.tables.recovery import Recovery
    from faust.types.app import AppT
    from faust.types.events import EventT
    from faust.types.transports import ConsumerT
    from faust.types.tuples import TP

logger = get_logger(__name__)


@dataclass
class _Open:
    """The measurement of a partition's recovery. Offsets are of the last record applied, or -1."""

    source: str
    started: float
    start_offset: int = -1
    end_offset: int = -1
    records: int = 0
    bytes: int = 0
    ended: float | None = None
    #: Whether a rebalance interrupted the restore, which continues on this worker.
    is_continued: bool = False


P = ParamSpec("P")
T = TypeVar("T")


class RecoveryMeter:
    """Writes a ``recovery`` row for every active changelog partition that this worker restored.

    No row is written for a partition kept through a rebalance without records to read, or for an
    empty changelog. ``source`` is the origin of the state before the changelog's tail was
    read: ``standby`` (this worker was a standby), ``snapshot``, ``local`` (files of an earlier
    process), else ``replay``. ``records`` counts changelog records applied one by one and offsets
    passed in batches. ``bytes`` are the bytes of these records and of snapshot files.
    """

    def __init__(self, app: AppT, writer: LedgerWriter) -> None:
        self.app = app
        self.writer = writer
        self._open: dict[TP, _Open] = {}
        self._kept: set[TP] = set()

    def attach(self) -> None:
        """Connect to the app's recovery; called once, before the first recovery of the tables."""
        recovery = self.app.tables.recovery
        if hasattr(recovery, "meter"):
            recovery.meter = self  # the recovery by partition calls the meter
        else:
            recovery.on_rebalance = self._around_rebalance(recovery, recovery.on_rebalance)
            recovery._build_offsets = self._around_offsets(recovery._build_offsets)
            recovery.on_recovery_completed = self._before_completed(recovery.on_recovery_completed)
        for table in self.app.tables.values():
            table.apply_changelog_batch = self._after_apply(table.apply_changelog_batch)

    # -- called by the recovery by partition

    def begin(self, tps: Collection[TP], kept: Collection[TP], stood_by: Collection[TP]) -> None:
        """Begin to measure ``tps``; ``kept`` were owned before, ``stood_by`` were standbys."""
        self._guard(
            self._begin, self.app.tables.recovery, set(kept), set(stood_by), time.time(), set(tps)
        )

    def note_start(self, tps: Collection[TP], restored: Mapping[TP, Restored]) -> None:
        """Note the start offsets of ``tps``; some were ``restored`` outside of Faust's loop."""
        recovery = self.app.tables.recovery
        self._guard(
            self._note_start, recovery.active_offsets, recovery.active_highwaters, restored, tps
        )

    def finish(self, tps: Collection[TP]) -> None:
        """Write the rows of ``tps``, which are restored."""
        self._guard(self._finish, tps)

    # -- wrappers of Faust's own methods

    def _around_rebalance(
        self, recovery: Recovery, inner: Callable[P, Awaitable[T]]
    ) -> Callable[P, Awaitable[T]]:
        @wraps(inner)
        async def on_rebalance(*args: P.args, **kwargs: P.kwargs) -> T:
            started = time.time()
            actives, standbys = set(recovery.active_tps), set(recovery.standby_tps)
            done = await inner(*args, **kwargs)
            self._guard(self._begin, recovery, actives, standbys, started)
            return done

        return on_rebalance

    def _begin(
        self,
        recovery: Recovery,
        actives: set[TP],
        standbys: set[TP],
        started: float,
        tps: set[TP] | None = None,
    ) -> None:
        begun = recovery.active_tps if tps is None else tps
        before, kept = self._open, self._kept
        # Faust's own recovery begins anew after each rebalance; the recovery by partition continues.
        continued = {tp for tp in begun if tp in before and tp in actives and tps is not None}
        self._open = {tp: replace(before[tp], is_continued=True, ended=None) for tp in continued}
        self._kept = (actives & begun) - continued | kept & continued
        for tp in begun - continued:
            has_state = recovery.active_offsets.get(tp) is not None
            stood_by = "standby" if tp in standbys else "local"
            at = offset_or_minus_one(recovery.active_offsets.get(tp))
            self._open[tp] = _Open(stood_by if has_state else "replay", started, at, at)

    def _around_offsets(
        self, inner: Callable[..., Awaitable[object]]
    ) -> Callable[..., Awaitable[object]]:
        @wraps(inner)
        def build_offsets(
            consumer: ConsumerT, tps: set[TP], destination: Mapping[TP, int], title: str
        ) -> Awaitable[object]:
            # This function is not async, because the wrapped method may rely on an immediate call.
            return self._after_offsets(inner(consumer, tps, destination, title), destination, title)

        return build_offsets

    async def _after_offsets(
        self, offsets_built: Awaitable[object], destination: Mapping[TP, int], title: str
    ) -> object:
        done = await offsets_built
        if title == "active":
            self._guard(self._note_start, destination, self.app.tables.recovery.active_highwaters)
        return done

    def _note_start(
        self,
        offsets: Mapping[TP, int],
        highwaters: Mapping[TP, int],
        restored: Mapping[TP, Restored] | None = None,
        tps: Collection[TP] | None = None,
    ) -> None:
        now = time.time()
        if restored is None:
            restored = getattr(self.app.tables.recovery, "restored", {})
        for tp, measured in self._open.items():
            if tps is not None and tp not in tps:
                continue
            at = offset_or_minus_one(offsets.get(tp))
            if measured.is_continued:
                at = restored[tp].start_offset if tp in restored else at
                measured.records += max(0, at - measured.end_offset)
                measured.end_offset = max(at, measured.end_offset)
            else:
                measured.start_offset = measured.end_offset = at
            if tp in restored:
                _add_restore(measured, restored[tp])
            if measured.end_offset >= offset_or_minus_one(highwaters.get(tp)):
                measured.ended = measured.ended or now

    def _after_apply(self, inner: Callable[..., T]) -> Callable[..., T]:
        @wraps(inner)
        def apply_changelog_batch(
            batch: Iterable[EventT[object]], *args: object, **kwargs: object
        ) -> T:
            done = inner(batch, *args, **kwargs)
            if self._open:
                self._guard(self._note_applied, batch)
            return done

        return apply_changelog_batch

    def _note_applied(self, batch: Iterable[EventT[object]]) -> None:
        touched = {}
        for event in batch:
            message = event.message
            measured = self._open.get(message.tp)
            if measured is not None and message.offset > measured.end_offset:
                measured.records += 1
                measured.bytes += message.serialized_key_size + message.serialized_value_size
                measured.end_offset = max(measured.end_offset, message.offset)
                touched[message.tp] = measured
        highwaters = self.app.tables.recovery.active_highwaters
        now = time.time()
        for tp, measured in touched.items():
            if measured.end_offset >= offset_or_minus_one(highwaters.get(tp)):
                measured.ended = now

    def _before_completed(self, inner: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        @wraps(inner)
        async def on_recovery_completed(*args: P.args, **kwargs: P.kwargs) -> T:
            self._guard(self._finish)
            return await inner(*args, **kwargs)

        return on_recovery_completed

    def _finish(self, tps: Collection[TP] | None = None) -> None:
        now = time.time()
        recovery, assignor = self.app.tables.recovery, self.app.assignor
        decision = getattr(assignor, "decision_id", None) or f"{recovery._generation_id}-unknown"
        member = _member_id(self.app)
        finished = {tp: each for tp, each in self._open.items() if tps is None or tp in tps}
        self._open = {tp: each for tp, each in self._open.items() if tp not in finished}
        rows: list[TableRow] = []
        for tp, measured in sorted(finished.items()):
            # Use the higher offset, because batches may have advanced the recovery's offset
            # further.
            measured.end_offset = max(
                measured.end_offset, offset_or_minus_one(recovery.active_offsets.get(tp))
            )
            idle = measured.end_offset <= measured.start_offset
            if idle and (tp in self._kept or measured.source == "replay"):
                continue
            rows.append(
                (
                    "recovery",
                    {
                        "group_id": self.app.conf.id,
                        "decision_id": decision,
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "member_id": member,
                        "source": measured.source,
                        # The end may lie before the start if a rebalance cut the restore short, or
                        # if the clock was set back.
                        "started": measured.started,
                        "ended": max(measured.started, measured.ended or now),
                        "start_offset": measured.start_offset,
                        "end_offset": measured.end_offset,
                        "records": measured.records,
                        "bytes": measured.bytes,
                    },
                )
            )
        if rows:
            self.writer.put(lambda: rows)

    def _guard(self, note: Callable[P, None], *args: P.args, **more: P.kwargs) -> None:
        """Call ``note``; its failure is logged and does not affect the recovery."""
        try:
            note(*args, **more)
        except Exception:
            logger.exception("Could not measure a recovery; its row is missing in the ledger")


def _add_restore(measured: _Open, restored: Restored) -> None:
    """Add a restore that Faust's loop did not make: a snapshot, or records applied in batches."""
    if restored.source == SNAPSHOT:
        measured.source = SNAPSHOT
    measured.records += restored.replayed
    if not measured.is_continued:
        measured.start_offset = restored.start_offset
    measured.end_offset = restored.end_offset
    measured.bytes += restored.bytes + restored.replayed_bytes
    measured.started, measured.ended = min(measured.started, restored.started), restored.ended


def _member_id(app: AppT) -> str:
    """Return this worker's member id in the group, or its URL until it has a member id."""
    return kafka_member_id(app) or str(app.conf.canonical_url)
