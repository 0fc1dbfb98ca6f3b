"""The decision: a look, the settings and the memory -> a size, its reasons, the new memory. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from faust_assigner.scaler.look import Look
from faust_assigner.scaler.memory import Memory, Sample, observed, rate_at_work
from faust_assigner.scaler.settings import Settings
from faust_assigner.scaler.sizes import capacity, is_within_tolerance, most_tasks, useful_sizes

#: The decisions about the size.
HOLD, GROW, SHRINK, STAY, SLEEP = "hold", "grow", "shrink", "stay", "sleep"
#: A backlog that has not shrunk for this many seconds requires the next size, whatever the rates.
BEHIND_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A size with its reasons.

    ``decision`` is ``hold`` (the group is not at rest), ``grow``, ``shrink``, ``stay`` or ``sleep``; the size
    changes from ``present`` to ``size`` workers. ``useful`` are the useful sizes. ``arrival`` and
    ``worker_rate`` are in records per second, None if not yet known; ``backlog`` is in records.
    ``notes`` are sentences about missing data.
    """

    size: int
    present: int
    decision: str
    reasons: tuple[str, ...]
    is_active: bool = True
    tasks: int = 0
    useful: tuple[int, ...] = ()
    arrival: float | None = None
    backlog: int = 0
    worker_rate: float | None = None
    notes: tuple[str, ...] = ()


def recommend(look: Look, settings: Settings, memory: Memory) -> tuple[Recommendation, Memory]:
    """Return (the recommendation, the memory for the next look). Never raises.

    Cost: O(source partitions + samples of the longest window x useful sizes).
    """
    known = observed(memory, look, settings)
    present, known, reasons = _present(look, settings, known)
    found = _decide(look, settings, known, present, reasons)
    changed = found.size != known.size and known.size is not None
    size = found.size if found.decision != HOLD or known.size is not None else None
    return found, replace(
        known,
        size=size,
        changed_at=look.taken_at if changed and size is not None else known.changed_at,
    )


def _present(look: Look, settings: Settings, memory: Memory) -> tuple[int, Memory, tuple[str, ...]]:
    """Return (the size to start from, the memory, the reason to wait for the group to reach the size)."""
    size = look.members if not memory.size else memory.size
    # While the group is restless, members come and go; the time to follow starts at rest.
    if look.busy or look.members == size or (look.members == 0 and size > 0):
        return size, replace(memory, parted_at=None), ()
    parted_at = look.taken_at if memory.parted_at is None else memory.parted_at
    if look.taken_at - parted_at < settings.settle_s:
        verb = "have joined" if look.members < size else "are still there"
        why = f"{look.members} workers {verb}, {size} are recommended"
        return size, replace(memory, parted_at=parted_at), (why,)
    given_up = replace(memory, size=look.members, parted_at=None, changed_at=look.taken_at)
    return look.members, given_up, ()


def _decide(
    look: Look,
    settings: Settings,
    memory: Memory,
    present: int,
    waits: tuple[str, ...],
) -> Recommendation:
    case = _Case(look=look, settings=settings, memory=memory, present=present)
    if memory.size == 0 and not look.backlog and (look.busy or not look.members):
        return case.answer(0, SLEEP, "no records wait, and min is 0")
    if look.busy or waits:
        reasons = (*look.busy, *waits)
        return case.answer(present or case.floor, HOLD, *reasons)
    if look.members == 0:
        return case.without_members()
    if not memory.tasks:
        return case.answer(present, HOLD, "no member reports its topics")
    if case.has_nothing_to_do():
        why = f"no records arrived or waited for {settings.down_s:g} s, and min is 0"
        return case.answer(0, SLEEP, why)
    return case.grown() or case.shrunk()


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A decision; ``present`` is the size to start from."""

    look: Look
    settings: Settings
    memory: Memory
    present: int

    @property
    def floor(self) -> int:
        """The minimum number of workers: one, plus one per standby of a table."""
        return max(self.settings.least, 1 + self.memory.standbys)

    @property
    def useful(self) -> tuple[int, ...]:
        """The allowed sizes."""
        tasks = self.memory.tasks
        most = tasks if self.settings.most is None else min(self.settings.most, tasks)
        floor = self.floor if self.settings.most is None else min(self.floor, self.settings.most)
        return useful_sizes(tasks, floor, most)

    @property
    def rate(self) -> float | None:
        """A worker's maximum rate; with a large backlog at least its current rate."""
        found = self.memory.worker_rate(self.settings)
        if found is None and self.is_behind(self.memory.samples[-1]):
            found = rate_at_work(self.memory, self.look.members)
        return found

    def answer(
        self, size: int, decision: str, *reasons: str, is_active: bool | None = None
    ) -> Recommendation:
        samples = self.memory.samples
        return Recommendation(
            size=size,
            present=self.present,
            decision=decision,
            reasons=reasons,
            is_active=size > 0 if is_active is None else is_active,
            tasks=self.memory.tasks,
            useful=self.useful if self.memory.tasks else (),
            arrival=samples[-1].arrival if samples else None,
            backlog=self.look.backlog,
            worker_rate=self.memory.worker_rate(self.settings),
            notes=self.look.notes,
        )

    # -- a group without work or workers

    def without_members(self) -> Recommendation:
        """Decide for a group without workers: scaled to zero, not started yet, or all lost."""
        if self.settings.least == 0 and not self.look.backlog and not self.present:
            return self.answer(0, SLEEP, "the group has no members, no records wait, and min is 0")
        size = self.present or self.floor
        waits = f"{self.look.backlog:,} records wait"
        return self.answer(size, HOLD, f"the group has no members; {waits}", is_active=True)

    def has_nothing_to_do(self) -> bool:
        """Whether the group may sleep."""
        now, down_s = self.look.taken_at, self.settings.down_s
        window = self.memory.since(now - down_s)
        return (
            self.settings.least == 0
            and self.memory.reaches(down_s, now)
            and not any(one.backlog or one.arrival for one in window)
        )

    # -- more workers

    def target(self, sample: Sample) -> float:
        """Return the allowed backlog in records."""
        if self.settings.target_lag is not None:
            return self.settings.target_lag * max(1, self.look.members)
        return self.settings.target_lag_s * (sample.arrival or 0.0)

    def is_behind(self, sample: Sample) -> bool:
        """Return whether the backlog exceeds the allowed backlog."""
        return sample.backlog > self.target(sample)

    def required(self, sample: Sample) -> float:
        """Return the required rate of the group, in records per second."""
        arrival = sample.arrival or 0.0
        if not self.is_behind(sample):
            return arrival
        return arrival + sample.backlog / self.settings.catch_up_s

    def needed(self, sample: Sample, rate: float) -> int:
        """Return the smallest useful size with the required rate; the largest size if none has it."""
        arrival, required = sample.arrival or 0.0, self.required(sample)
        tasks = self.memory.tasks
        return next(
            (
                n
                for n in self.useful
                if self.limit(rate, n) >= arrival and capacity(rate, tasks, n) >= required
            ),
            self.useful[-1],
        )

    def limit(self, rate: float, size: int) -> float:
        """Return the rate above which ``size`` workers are too few: a part of their rate, and at most
        the rate without the spare workers."""
        left = size - self.settings.spare
        without = capacity(rate, self.memory.tasks, left) if left > 0 else 0.0
        return min(capacity(rate, self.memory.tasks, size) * self.settings.grow_at, without)

    def grown(self) -> Recommendation | None:
        """Return a larger size if every look of the window requires more workers than are present."""
        now, rate, useful = self.look.taken_at, self.rate, self.useful
        if self.present < useful[0]:
            return self.answer(useful[0], GROW, self._why_floor(useful[0]))
        window = self.memory.since(now - self.settings.up_s)
        if rate is None or not window or not self.memory.covers(self.settings.up_s, now):
            return None
        wanted = self.needed(window[-1], rate)
        if any(self.needed(one, rate) <= self.present for one in window):
            wanted = self.present
        falls_behind = wanted <= self.present and self._falls_behind()
        if falls_behind:
            wanted = self.present + 1
        larger = [n for n in useful if n >= wanted and not is_within_tolerance(self.present, n)]
        if wanted <= self.present or not larger:
            return None
        if falls_behind:
            return self.answer(larger[0], GROW, self._why_behind(window[-1]))
        return self.answer(larger[0], GROW, *self._why_more(larger[0], window[-1], rate))

    def _falls_behind(self) -> bool:
        """Return whether the backlog grew for a while although the rates predict that it shrinks."""
        now, busy_at = self.look.taken_at, self.memory.busy_at
        if busy_at is not None and busy_at > now - BEHIND_S:
            return False
        long = self.memory.since(now - BEHIND_S)
        return (
            len(long) > 1
            and self.memory.covers(BEHIND_S, now)
            and all(map(self.is_behind, long))
            and long[-1].backlog >= long[0].backlog
        )

    def _why_behind(self, sample: Sample) -> str:
        return (
            f"{sample.backlog:,} records wait, and not fewer than {BEHIND_S:g} s ago, although the workers "
            "should be fast enough: the partitions are uneven, or the workers have become slower"
        )

    def _why_floor(self, size: int) -> str:
        if size > self.settings.least and size <= 1 + self.memory.standbys:
            return f"{self.memory.standbys} standbys of each table need {size} workers"
        return f"{size} is the smallest allowed and useful size"

    def _why_more(self, size: int, sample: Sample, rate: float) -> tuple[str, ...]:
        tasks, arrival = self.memory.tasks, sample.arrival or 0.0
        now_s = capacity(rate, tasks, self.present)
        reasons = [
            f"{arrival:,.0f} records/s arrive; {self.present} workers process at most {now_s:,.0f}"
        ]
        if self.is_behind(sample):
            reasons.append(
                f"{sample.backlog:,} records wait, the limit is {self.target(sample):,.0f}; "
                f"they must be processed within {self.settings.catch_up_s:g} s"
            )
        then_s = capacity(rate, tasks, size)
        reasons.append(
            f"{size} workers have at most {_tasks(most_tasks(tasks, size))} each "
            f"and process {then_s:,.0f} records/s"
        )
        if then_s < self.required(sample) and size == self.useful[-1]:
            reasons.append(
                f"{self.required(sample):,.0f} would be needed; no larger size is faster"
            )
        return tuple(reasons)

    # -- fewer workers

    def shrunk(self) -> Recommendation:
        """Return the next smaller useful size if it carries the load; else the current size."""
        useful = self.useful
        if self.present not in useful:
            return self._without_idle(useful)
        smaller = [
            n for n in useful if n < self.present and not is_within_tolerance(self.present, n)
        ]
        if not smaller:
            return self.answer(self.present, STAY, "it is the smallest allowed and useful size")
        size = smaller[-1]
        obstacle = self._obstacle(size)
        if obstacle:
            return self.answer(self.present, STAY, obstacle)
        return self.answer(size, SHRINK, self._why_less(size))

    def _without_idle(self, useful: Sequence[int]) -> Recommendation:
        """Decide for a size that is not useful: move to the next smaller size with the same rate."""
        size, tasks = max(n for n in useful if n < self.present), self.memory.tasks
        limit = self.settings.most
        if is_within_tolerance(self.present, size):
            why = f"{size} would suffice, but Kubernetes ignores a change of a tenth or less"
            return self.answer(self.present, STAY, why)
        if limit is not None and self.present > limit:
            return self.answer(size, SHRINK, f"max is {limit}")
        fullest = _tasks(most_tasks(tasks, size))
        why = (
            f"with {tasks} tasks the fullest of {self.present} workers has {fullest}, "
            f"as with {size}: more workers than {size} process no faster"
        )
        return self.answer(size, SHRINK, why)

    def _obstacle(self, size: int) -> str:
        """Return the reason against shrinking to ``size`` now, or ""."""
        now, down_s, rate = self.look.taken_at, self.settings.down_s, self.rate
        window = self.memory.since(now - down_s)
        if not window or not self.memory.covers(down_s, now):
            return f"{size} workers are considered once the load was low for {down_s:g} s"
        behind = max(window, key=lambda one: one.backlog - self.target(one))
        if self.is_behind(behind):
            ago = now - behind.at
            return (
                f"{behind.backlog:,} records waited {ago:.0f} s ago, "
                f"the limit is {self.target(behind):,.0f}"
            )
        peak = max(one.arrival or 0.0 for one in window)
        if rate is None:
            return ""
        carried = capacity(rate, self.memory.tasks, size)
        if peak > self.limit(rate, size) * self.settings.shrink_at / self.settings.grow_at:
            return (
                f"{peak:,.0f} records/s arrived at the peak of the last {down_s:g} s; {size} workers "
                f"process {carried:,.0f}, and their load must be {self.settings.shrink_at:.0%} at most"
            )
        return ""

    def _why_less(self, size: int) -> str:
        down_s, rate = self.settings.down_s, self.rate
        window = self.memory.since(self.look.taken_at - down_s)
        peak = max(one.arrival or 0.0 for one in window)
        if rate is None:
            return (
                f"the backlog was within its limit for {down_s:g} s, and no worker was ever busy "
                f"enough to measure its rate: {size} workers are tried"
            )
        carried = capacity(rate, self.memory.tasks, size)
        return (
            f"{peak:,.0f} records/s arrived at the peak of the last {down_s:g} s; "
            f"{size} workers process {carried:,.0f}"
        )


def _tasks(count: int) -> str:
    return f"{count} {'task' if count == 1 else 'tasks'}"
