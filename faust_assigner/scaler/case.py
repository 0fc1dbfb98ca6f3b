"""The figures of one decision (useful sizes, rates, allowed backlog), and the recommendation."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.scaler.look import Look
from faust_assigner.scaler.memory import Memory, Sample, rate_at_work
from faust_assigner.scaler.settings import Settings
from faust_assigner.scaler.sizes import capacity, useful_sizes

#: The decisions about the size.
HOLD, GROW, SHRINK, STAY, SLEEP = "hold", "grow", "shrink", "stay", "sleep"


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A size with its reasons.

    ``decision`` is ``hold`` (the group is changing or restoring), ``grow``, ``shrink``, ``stay`` or
    ``sleep``; the size changes from ``present`` to ``size`` workers. ``useful`` are the sizes at
    which no worker is superfluous.
    ``arrival`` and ``worker_rate`` are in records per second, None if not yet known. ``backlog`` is in
    records.
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """The input of a decision; ``present`` is the current size, or the size that is already recommended."""

    look: Look
    settings: Settings
    memory: Memory
    present: int

    @property
    def floor(self) -> int:
        """The minimum number of workers: ``min``, or one more than the standbys of each table."""
        return max(self.settings.least, 1 + self.memory.standbys)

    @property
    def has_work(self) -> bool:
        """Whether a group without members has records to process.

        A partition without a committed offset has no known backlog. Its new records count, and at
        the first query all its records.
        """
        arrival = self.memory.samples[-1].arrival if self.memory.samples else None
        is_first = self.memory.size is None
        return bool(self.look.backlog or arrival) or (
            is_first and any(s.committed is None and s.end for s in self.look.sources.values())
        )

    @property
    def useful(self) -> tuple[int, ...]:
        """The useful sizes from the minimum to the maximum number of workers."""
        tasks = self.memory.tasks
        most = tasks if self.settings.most is None else min(self.settings.most, tasks)
        floor = self.floor if self.settings.most is None else min(self.floor, self.settings.most)
        return useful_sizes(tasks, floor, most)

    @property
    def rate(self) -> float | None:
        """A worker's maximum rate in records per second, None if unknown.
        If no rate was ever measured and the backlog is too large, the current rate is a lower bound.
        """
        found = self.memory.worker_rate(self.settings)
        if found is None and self.is_behind(self.memory.samples[-1]):
            found = rate_at_work(self.memory, self.look.members)
        return found

    def answer(
        self, size: int, decision: str, *reasons: str, is_active: bool | None = None
    ) -> Recommendation:
        """Return the recommendation of ``size`` workers, with the figures that led to it."""
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

    def target(self, sample: Sample) -> float:
        """Return the allowed backlog in records."""
        if self.settings.target_lag is not None:
            return self.settings.target_lag * max(1, self.look.members)
        return self.settings.target_lag_s * (sample.arrival or 0.0)

    def is_behind(self, sample: Sample) -> bool:
        """Return whether the backlog exceeds the allowed backlog."""
        return sample.backlog > self.target(sample)

    def required(self, sample: Sample) -> float:
        """Return the rate in records per second that the group needs, also to reduce a backlog."""
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
        """Return the arrival rate above which ``size`` workers are too few, in records per second.
        The limit is the part ``grow_at`` of the rate of ``size`` workers, and at most the rate without
        ``spare`` of them."""
        left = size - self.settings.spare
        without = capacity(rate, self.memory.tasks, left) if left > 0 else 0.0
        return min(capacity(rate, self.memory.tasks, size) * self.settings.grow_at, without)
