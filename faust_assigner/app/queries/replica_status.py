"""The state of the partitions that requests may read from this worker: ownership, lag and age."""

from __future__ import annotations

from collections.abc import Collection
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from mode import Service, get_logger

from faust_assigner.app.queries.decide import Here
from faust_assigner.app.queries.freshness import Look, Marks
from faust_assigner.app.recovery.changelog_extents import without_leader
from faust_assigner.app.tables.store import WriteBehindStore

if TYPE_CHECKING:
    from faust.types.app import AppT
    from faust.types.tuples import TP

logger = get_logger(__name__)

#: The least and the greatest interval between two looks at the changelogs' end offsets, in seconds.
#: The interval is a quarter of ``bound_s`` within these limits.
LEAST_LOOK_S, MOST_LOOK_S = 0.1, 0.5


class _HandedOut(NamedTuple):
    """The number of fetches (``rounds``) by which all records before ``end`` had been fetched.

    ``began`` identifies the generation and the recovery; the number has no meaning in later
    generations and recoveries.
    """

    rounds: int
    end: int
    began: object


class ReplicaStatus(Service):  # type: ignore[misc]
    """One app's service that measures the age of its copies; idle if ``bound_s`` is 0.

    ``bound_s`` is the greatest age in seconds of a copy that may answer. A copy is the RocksDB
    database of a standby, or of a former standby that this worker now restores as the owner. A
    table in memory cannot answer as a copy, because it does not store the offset of its rows.
    """

    def __init__(self, app: AppT, bound_s: float, **kwargs: object) -> None:
        self.app = app
        self.bound_s = bound_s
        self.marks: dict[TP, Marks] = {}
        self._handed_out: dict[TP, _HandedOut] = {}
        super().__init__(**kwargs)

    def here(self, tp: TP) -> Here:
        """Return this worker's state of a changelog partition, without a request to the broker."""
        if self.is_owner(tp):
            return Here(is_owner=True)
        applied, marks = self._last_offset_of(tp), self.marks.get(tp)
        if applied is None or marks is None:
            return Here()
        fresh_at = marks.fresh_at(applied)
        return Here(
            lag=marks.lag(applied), age_s=None if fresh_at is None else monotonic() - fresh_at
        )

    def is_owner(self, tp: TP) -> bool:
        """Return whether this worker owns ``tp``, has restored it, and is surely still a member."""
        app = self.app
        return bool(
            self._owns(tp)
            and app.tables.recovery.is_restored(tp)
            and app.consumer.is_surely_member()
        )

    def _owns(self, tp: TP) -> bool:
        """Return whether this worker owns ``tp``.

        Every worker has all partitions of a global table; the owner of such a partition is its
        writer.
        """
        assignor = self.app.assignor
        if not assignor.is_active(tp):
            return False
        if not self.app.tables._changelogs[tp.topic].is_global:
            return True
        try:
            return str(assignor.owner_of(tp)).rstrip("/") == str(
                self.app.conf.canonical_url
            ).rstrip("/")
        except KeyError:
            return True

    # -- copies

    def _last_offset_of(self, tp: TP) -> int | None:
        """Return the offset of the copy's last record; None without a copy.

        If possible, records in the recovery's buffer are written first, so that they count.
        """
        app, assignor = self.app, self.app.assignor
        store = self.app.tables._changelogs[tp.topic].data
        database = store._dbs.get(tp.partition) if isinstance(store, WriteBehindStore) else None
        if database is None or not (assignor.is_standby(tp) or assignor.is_active(tp)):
            return None
        recovery = app.tables.recovery
        between = app.consumer.between_generations
        if not recovery.in_recovery and not between and recovery.buffers.get(store.table):
            recovery.flush_buffers()
        offset = database.get(store.offset_key)
        return None if offset is None else int(offset)

    @Service.task  # type: ignore[untyped-decorator]
    async def _watch(self) -> None:
        if self.bound_s <= 0:
            return
        while not self.should_stop:
            await self.sleep(min(MOST_LOOK_S, max(LEAST_LOOK_S, self.bound_s / 4)))
            try:
                await self.request_ends()
            except Exception as exc:  # the broker did not answer, so the copies' age increases
                logger.debug(
                    "Could not read the end offsets of changelogs; lags are out of date: %r", exc
                )

    async def request_ends(self) -> None:
        """Ask the broker once for the ends of all copies' changelogs."""
        app, assignor = self.app, self.app.assignor
        for tp in [
            tp for tp in self.marks if not (assignor.is_standby(tp) or assignor.is_active(tp))
        ]:
            del self.marks[tp]
        held = {tp for tp in tuple(app.tables.recovery.standby_tps) if assignor.is_standby(tp)}
        if not held:
            return
        thread = app.consumer._thread
        client = thread._ensure_consumer()
        # A request waits until each of its partitions has a leader.
        copies = sorted(held - without_leader(client, held))
        if not copies:
            return
        asked_at = monotonic()
        # Ask the broker: under exactly_once Faust returns the end offsets that its last fetch
        # reported.
        ends = await thread.call_thread(client.end_offsets, copies)
        for tp in copies:
            if (end := ends.get(tp)) is not None and assignor.is_standby(tp):
                self.marks.setdefault(tp, Marks()).note(Look(asked_at, end))
        if app.in_transaction:
            # A copy that this worker lost during the request has no marks.
            await self._pass_markers([tp for tp in copies if tp in self.marks])

    async def _pass_markers(self, copies: Collection[TP]) -> None:
        """Note the copies with only transaction markers between their offset and an end.

        When a new fetch has begun, all records of earlier fetches are in the queue. If the queue
        and the recovery's buffer are empty then, all these records have been written.
        """
        app, recovery = self.app, self.app.tables.recovery
        for tp in copies:
            # Use the group's generation as well: Faust's own number does not change in cooperative
            # rounds.
            began = (app.assignor.generation, app.consumer_generation_id, recovery.replays)
            out, applied = self._handed_out.get(tp), self._last_offset_of(tp)
            if out is not None and (out.began != began or applied is None):
                del self._handed_out[tp]
            elif (
                out is not None
                and applied is not None
                and out.rounds < app.consumer.fetch_rounds
                and self._is_all_written(tp)
            ):
                self.marks[tp].note_empty_range(applied, self._handed_out.pop(tp).end)
            if tp not in self._handed_out and app.consumer.may_fetch(tp):
                end, position = self.marks[tp].looks[-1].end, await app.consumer.position(tp)
                if position is not None and position >= end:
                    self._handed_out[tp] = _HandedOut(app.consumer.fetch_rounds, end, began)

    def _is_all_written(self, tp: TP) -> bool:
        recovery = self.app.tables.recovery
        return self.app.tables.changelog_queue.empty() and not recovery.buffers.get(
            recovery.tp_to_table[tp]
        )
