"""The scaler's memory between queries: its last answer, loads over time, measured rates. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.settings import Settings
from faust_assigner.scaler.sizes import most_tasks
from faust_assigner.status.evidence import Place

#: The averaging time of arrivals, in seconds.
RATE_S = 60.0
#: A query within this many seconds after the last query gives no sample, because workers commit only every
#: few seconds.
LEAST_APART_S = 5.0
#: The number of latest measurements of which a worker's rate is the median.
MOST_RATES = 15
#: The maximum number of samples that are kept.
MOST_SAMPLES = 4096


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The load at a query.

    ``arrived`` and ``processed`` are records since the first query; ``arrival`` is in records per second over
    the last :data:`RATE_S`, None at the first query. ``backlog`` is in records.
    """

    at: float
    arrived: int = 0
    processed: int = 0
    backlog: int = 0
    arrival: float | None = None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The scaler's state between two queries.

    ``size`` is the last recommended size, None before the first; ``changed_at`` is the time of its last
    change. ``parted_at`` is the time since which the group's size differs from ``size``. ``busy_at`` is the
    time of the last query at which the group was not at rest. ``samples`` cover the longest window, oldest
    first. ``rates`` are measured rates of single workers in records per second, oldest first.
    """

    size: int | None = None
    changed_at: float | None = None
    parted_at: float | None = None
    busy_at: float | None = None
    tasks: int = 0
    standbys: int = 0
    samples: tuple[Sample, ...] = ()
    rates: tuple[float, ...] = ()
    last: Look | None = None

    def since(self, at: float) -> tuple[Sample, ...]:
        """Return the samples with an arrival rate from ``at`` on."""
        return tuple(one for one in self.samples if one.at >= at and one.arrival is not None)

    def covers(self, seconds: float, now: float) -> bool:
        """Return whether the samples cover the last ``seconds``, without a change of the size."""
        known = self.samples[0].at if self.samples else now
        begin = known if self.changed_at is None else max(known, self.changed_at)
        return begin <= now - seconds

    def reaches(self, seconds: float, now: float) -> bool:
        """Return whether the samples cover the last ``seconds``, even if the size changed."""
        return bool(self.samples) and self.samples[0].at <= now - seconds

    def worker_rate(self, settings: Settings) -> float | None:
        """Return a worker's maximum rate in records per second; None if never measured.

        A configured rate is ignored if measurements show slower workers.
        """
        known = [] if settings.worker_rate is None else [settings.worker_rate]
        known += [median(self.rates)] if self.rates else []
        return min(known, default=None)

    def processed_rate(self) -> float:
        """Return the group's rate over the last :data:`RATE_S`, in records per second."""
        if len(self.samples) < 2:
            return 0.0
        last = self.samples[-1]
        first = next(one for one in self.samples if one.at >= last.at - RATE_S or one is last)
        spent = last.at - first.at
        return (last.processed - first.processed) / spent if spent > 0 else 0.0


def observed(memory: Memory, look: Look, settings: Settings) -> Memory:
    """Return the memory after a query; a query too soon after the last query gives no sample."""
    known = replace(
        memory,
        tasks=look.tasks or memory.tasks,
        standbys=memory.standbys if look.standbys is None else look.standbys,
        busy_at=look.taken_at if look.busy else memory.busy_at,
    )
    last = memory.last
    if last is not None and look.taken_at - last.taken_at < LEAST_APART_S:
        return known
    if last is None or not memory.samples:
        first = Sample(at=look.taken_at, backlog=look.backlog)
        return replace(known, samples=(first,), last=look)
    horizon = look.taken_at - max(settings.down_s, settings.up_s, RATE_S) - RATE_S
    old = sum(one.at < horizon for one in memory.samples)
    # One sample from before the window stays, so that rare queries still cover the window.
    kept = memory.samples[max(0, old - 1) :][-MOST_SAMPLES:]
    samples = (*kept, _sample(kept, last, look))
    rates = (*memory.rates, *_busy_rates(last, look))[-MOST_RATES:]
    return replace(known, samples=samples, rates=rates, last=look)


def _sample(before: Sequence[Sample], last: Look, look: Look) -> Sample:
    both = [(last.sources[place], look.sources[place]) for place in _common(last, look)]
    arrived = before[-1].arrived + sum(max(0, now.end - then.end) for then, now in both)
    processed = before[-1].processed + sum(_count_processed(then, now) for then, now in both)
    since = next(
        (one for one in before if one.at >= look.taken_at - RATE_S - LEAST_APART_S), before[-1]
    )
    return Sample(
        at=look.taken_at,
        arrived=arrived,
        processed=processed,
        backlog=look.backlog,
        arrival=(arrived - since.arrived) / (look.taken_at - since.at),
    )


def _common(last: Look, look: Look) -> Iterator[Place]:
    return (place for place in look.sources if place in last.sources)


def _count_processed(then: Source, now: Source) -> int:
    if then.committed is None or now.committed is None:
        return 0
    return max(0, now.committed - then.committed)


def _busy_rates(last: Look, look: Look) -> Iterator[float]:
    """Yield the rates of the workers that were busy for the whole time between two queries.

    A worker was busy if it processed no more records than waited at the first query. Only queries of a
    group at rest are compared.
    """
    if last.busy or look.busy or last.members != look.members:
        return
    waiting: defaultdict[str, int] = defaultdict(int)
    done: defaultdict[str, int] = defaultdict(int)
    moved = set()
    for place in _common(last, look):
        then, now = last.sources[place], look.sources[place]
        if then.owner != now.owner:
            moved |= {then.owner, now.owner}
        waiting[now.owner] += then.lag
        done[now.owner] += _count_processed(then, now)
    for owner in sorted(waiting):
        if owner and owner not in moved and 0 < done[owner] <= waiting[owner]:
            yield done[owner] / (look.taken_at - last.taken_at)


def rate_at_work(memory: Memory, size: int) -> float | None:
    """Return a lower bound of a worker's rate, from the whole group's rate; None if the group was idle."""
    processed = memory.processed_rate()
    if processed <= 0 or not memory.tasks or size < 1:
        return None
    return processed * most_tasks(memory.tasks, size) / memory.tasks
