"""The promises of the service, checked at every revision of the store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.questions import awaited
from faust_assigner.service.records import Assigned, Status
from faust_assigner.service.store.base import Compare, Event, Write
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.service.view import Entry, View
from faust_assigner.settings.service import ServiceSettings
from tests.property.service_sim.book import Violation, must
from tests.property.service_sim.process import Process
from tests.support.assigning.rules import Moment, uncompared

ORDER = {Phase.WARMING: 0, Phase.READY: 1, Phase.COMPLETE: 2}


class WatchedStore(MemoryStore):
    """An in-memory store that passes each revision to the promises."""

    promises: Promises

    def _write(self, writes: Sequence[Write]) -> int:
        first = len(self._log)
        revision = super()._write(writes)
        fresh = (
            [event for event in self._log[first:] if event.revision == revision]
            if self._log
            else []
        )
        with self.promises.noting():
            self.promises.written(fresh)
        return revision


class Promises:
    """The earlier states, to judge new states; ``history`` has each partition's states with times."""

    def __init__(self, settings: ServiceSettings, clock: Process) -> None:
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self.view = View(self.keys)
        self.history: dict[TopicPartition, list[Moment]] = {}
        self.broken: Violation | None = None
        self.completed = self.aborted = 0
        self.began_at: dict[tuple[TopicPartition, int], float] = {}
        self._clock = clock
        self._renewed: dict[int, float] = {}

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Keep the first Violation: an instance only logs a Violation, but the run must fail."""
        try:
            yield
        except Violation as violation:
            self.broken = self.broken or violation
            raise

    # -- transactions --------------------------------------------------------------------------------

    def renewed(self, process: Process, lease_id: int, sent: float) -> None:
        """Note the send time of a request that granted or renewed a lease."""
        self._renewed[lease_id] = max(sent, self._renewed.get(lease_id, sent))

    def fence_of(self, lease_id: int) -> float:
        """The time at which the lease's holder must stop acting."""
        return self._renewed.get(lease_id, 0.0) + self.settings.leader_ttl_s * 2 / 3

    def sent(self, process: Process, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        """Check C3 and C4 for a transaction that leaves a process."""
        with self.noting():
            self._sent(process, compares, writes)

    def _sent(self, process: Process, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        for fault in uncompared(self.keys, compares, writes):
            must(False, fault, process.name)
        guard = next((compare for compare in compares if compare.key == self.keys.leader), None)
        leader = self.view.leader
        if (
            guard
            and guard.expected
            and writes
            and leader
            and leader.kv.mod_revision == guard.expected
        ):
            must(
                self._clock.monotonic() < self.fence_of(leader.value.lease_id) + 1e-6,
                "C4 a fenced leader writes nothing",
                process.name,
                writes,
            )

    # -- revisions -----------------------------------------------------------------------------------

    def written(self, events: Sequence[Event]) -> None:
        """Check C1, C2 and C5 for a revision."""
        before_owner = {at: entry.value for at, entry in self.view.assignments.items()}
        before_handoff = dict(self.view.handoffs)
        living = {(name, entry.value.incarnation) for name, entry in self.view.consumers.items()}
        living |= set(self.view.fences)
        absent = awaited(self.view) if self.view.awaiting else set()
        touched: set[TopicPartition] = set()
        for event in events:
            change = self.view.apply(event)
            if change is not None and change.kind in ("assignments", "handoffs"):
                touched.add(change.name)
        for at in sorted(touched):
            was, now = before_handoff.get(at), self.view.handoffs.get(at)
            self._phases(at, was, now)
            owner = self.view.assignments.get(at)
            self._ownership(at, before_owner.get(at), owner.value if owner else None, was, living)
            self._awaited(at, before_owner.get(at), owner.value if owner else None, was, absent)
            when = self._clock.monotonic()
            self.history.setdefault(at, []).append(
                Moment(when, when, now, owner.value if owner else None)
            )

    def _phases(
        self, at: TopicPartition, was: Entry[Handoff] | None, now: Entry[Handoff] | None
    ) -> None:
        """C1: a hand-off goes through Warming, Ready, Complete and deletion, or is aborted."""
        if now is None or was is None or was.kv.create_revision != now.kv.create_revision:
            if was is not None:
                self.completed += was.value.phase is Phase.COMPLETE
                self.aborted += was.value.phase is not Phase.COMPLETE
            if now is not None:
                must(
                    now.value.phase is Phase.WARMING and not now.value.released,
                    "C1 begins as Warming",
                    now,
                )
                must(now.value.old_owner != now.value.new_owner, "C1 has two owners", now)
                self.began_at[at, now.kv.create_revision] = self._clock.monotonic()
            return
        one, two = was.value, now.value
        must(
            ORDER[two.phase] - ORDER[one.phase] in (0, 1),
            "C1 phases go forward one by one",
            one,
            two,
        )
        must(
            (one.old_owner, one.new_owner, one.strict, one.started_at)
            == (two.old_owner, two.new_owner, two.strict, two.started_at),
            "C1 a hand-off stays itself",
            one,
            two,
        )
        must(not (one.released and not two.released), "C1 a release is not taken back", one, two)

    def _ownership(
        self,
        at: TopicPartition,
        was: Assigned | None,
        now: Assigned | None,
        handoff: Entry[Handoff] | None,
        living: set[tuple[str, str]],
    ) -> None:
        """C2: a living owner loses a partition only by a ready hand-off, which is released if strict."""
        if now is not None and was is not None:
            must(now.epoch > was.epoch or now == was, "C2 epochs rise", was, now)
        if was is None or (was.owner, was.incarnation) not in living:
            return
        if now is not None and (now.owner, now.incarnation) == (was.owner, was.incarnation):
            return
        if now is None:
            must(
                not self.view.exists(at)
                or not (
                    self.view.is_registered(was.owner, was.incarnation)
                    and self.view.consumers[was.owner].value.wants(at.topic)
                ),
                "C6 a living owner keeps what there is",
                at,
                was,
            )
            return
        ready = handoff is not None and handoff.value.phase is Phase.READY
        must(
            ready
            and handoff is not None
            and (handoff.value.old_owner, handoff.value.new_owner) == (was.owner, now.owner),
            "C2 a living owner loses only by a ready hand-off",
            at,
            was,
            now,
            handoff,
        )
        assert handoff is not None
        if self.settings.strict:
            must(
                handoff.value.released, "C2 strict: released before it is given", at, handoff.value
            )
            must(
                now.offset is not None and now.offset == handoff.value.offset,
                "C2 strict: the final offset goes along",
                now,
                handoff,
            )

    def _awaited(
        self,
        at: TopicPartition,
        was: Assigned | None,
        now: Assigned | None,
        handoff: Entry[Handoff] | None,
        absent: set[str],
    ) -> None:
        """C11: partitions of an awaited consumer stay reserved, unless a hand-off was under way."""
        must(
            was is None
            or was.owner not in absent
            or (now is not None and now.owner == was.owner)
            or (handoff is not None and now is not None and handoff.value.new_owner == now.owner)
            or not self.view.exists(at),
            "C11 what an awaited consumer had is kept for it",
            at,
            was,
            now,
        )

    def unowned(self) -> list[TopicPartition]:
        """The partitions without a living owner whose owner's lease has already ended."""
        return [
            at
            for at in self.view.partitions()
            if (entry := self.view.assignments.get(at)) is None
            or not self.view.may_work(entry.value.owner, entry.value.incarnation)
        ]

    def parted(self) -> list[int]:
        """The numbers of twin partitions with different owners, if both topics have equal counts."""
        counts = {topic: entry.value.partition_count for topic, entry in self.view.topics.items()}
        if counts.get("t") != counts.get("twin"):
            return []
        owners = [
            {
                n: e.value.owner
                for n in range(counts["t"])
                if (e := self.view.assignments.get(TopicPartition(topic, n)))
            }
            for topic in ("t", "twin")
        ]
        return [n for n in range(counts["t"]) if owners[0].get(n) != owners[1].get(n)]

    def overdue(self) -> list[TopicPartition]:
        """The hand-offs that exceed the sum of their timeouts."""
        s = self.settings
        most = s.handoff_timeout_s + s.release_timeout_s + s.consumer_ttl_s + 5.0
        limit = self._clock.monotonic() - most
        return [
            at
            for at, entry in self.view.handoffs.items()
            if self.began_at[at, entry.kv.create_revision] < limit
        ]

    def ready_names(self) -> set[str]:
        """The consumers that may receive partitions."""
        return {
            name
            for name, entry in self.view.consumers.items()
            if entry.value.status is Status.READY
        }
