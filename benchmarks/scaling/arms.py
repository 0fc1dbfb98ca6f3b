"""Two autoscalers behind a horizontal pod autoscaler: KEDA's Kafka scaler by lag alone, and ours."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.scaling.day import STEP_S, Costs, Day, Fleet
from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.memory import Memory
from faust_assigner.scaler.recommend import recommend
from faust_assigner.scaler.settings import Settings

#: Kubernetes' defaults: seconds between two decisions, and the window of a scale-down.
SYNC_S, DOWN_S, TOLERANCE = 15.0, 300.0, 0.1
#: At each decision a scale-up may double the size or add this many pods.
MORE_PODS = 4


class Metric(Protocol):
    """An external metric and its target for each pod."""

    target: float

    def read(self, fleet: Fleet, seen: Seen) -> float:
        """Return the metric's current value."""


class Seen(NamedTuple):
    """The broker's end offsets and committed offsets, int64[T]."""

    end: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
    committed: np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass
class LagOnly:
    """KEDA's Kafka scaler: the lag of all partitions, at most the target times the partitions."""

    target: float

    def read(self, fleet: Fleet, seen: Seen) -> float:
        """Return the number of uncommitted records."""
        lag = float((seen.end - seen.committed).sum())
        return min(lag, self.target * fleet.costs.partitions)


@dataclass
class Ours:
    """The recommended size; the target is 1."""

    settings: Settings
    target: float = 1.0
    memory: Memory = field(default_factory=Memory)
    reasons: list[str] = field(default_factory=list)

    def read(self, fleet: Fleet, seen: Seen) -> float:
        """Recommend a size from the group's current state."""
        dead = fleet.dead.keys() - fleet.copies.keys()
        look = Look(
            taken_at=fleet.now,
            members=len(fleet.copies) + len(dead),
            tasks=fleet.costs.partitions,
            standbys=fleet.costs.standbys,
            sources={
                ("orders", task): Source(
                    owner=owner, committed=int(seen.committed[task]), end=int(seen.end[task])
                )
                for task, owner in enumerate(fleet.owner)
            },
            busy=tuple(fleet.busy()),
        )
        found, self.memory = recommend(look, self.settings, self.memory)
        if found.size != found.present:
            at = f"{fleet.now / 3600:5.2f} h"
            self.reasons.append(f"{at} {found.present} -> {found.size}: {'; '.join(found.reasons)}")
        return float(found.size)


@dataclass
class Autoscaler:
    """Kubernetes' horizontal pod autoscaler with its default behaviour, for an external metric."""

    least: int
    most: int
    down_s: float = DOWN_S
    answers: deque[tuple[float, int]] = field(default_factory=deque)

    def desired(self, now: float, replicas: int, value: float, target: float) -> int:
        """Return the new number of pods."""
        ratio = value / (target * replicas)
        wanted = replicas if abs(1 - ratio) <= TOLERANCE else math.ceil(value / target)
        self.answers.append((now, wanted))
        while self.answers[0][0] < now - self.down_s:
            self.answers.popleft()
        if wanted < replicas:
            wanted = min(replicas, max(size for _, size in self.answers))
        elif wanted > replicas:
            wanted = min(wanted, max(2 * replicas, replicas + MORE_PODS))
        return min(max(wanted, self.least), self.most)


class Outcome(NamedTuple):
    """A day's results of an arm. Lags are in seconds: waiting records over records that arrive a second."""

    moves: int
    cold_moves: int
    changes: int
    worker_hours: float
    lag_median_s: float
    lag_p95_s: float
    lag_max_s: float


def live(
    day: Day,
    metric: Metric,
    costs: Costs,
    *,
    down_s: float = DOWN_S,
    least: int = 2,
    first: int = 2,
) -> Outcome:
    """Play the whole day under an autoscaler with a scale-down window of ``down_s``."""
    fleet, pods = Fleet(costs), _Pods(first)
    scaler = Autoscaler(least, costs.partitions, down_s)
    fleet.start([f"w{n:04}" for n in range(first)])
    deaths, lags = list(day.deaths), []
    since_sync, hours = 0.0, 0.0
    changes = 0
    for load in day.load:
        before = fleet.lag.copy()
        fleet.step(float(load))
        done = before + load * STEP_S / costs.partitions - fleet.lag
        pods.arrive(fleet)
        if deaths and fleet.now >= deaths[0][0]:
            pods.kill(fleet, deaths.pop(0)[1])
        since_sync += STEP_S
        if since_sync >= SYNC_S:
            since_sync = 0.0
            processed = fleet.arrived - fleet.lag - done * (costs.commit_s / STEP_S)
            seen = Seen(fleet.arrived.astype(np.int64), np.maximum(processed, 0).astype(np.int64))
            wanted = scaler.desired(
                fleet.now, pods.replicas, metric.read(fleet, seen), metric.target
            )
            changes += wanted != pods.replicas
            pods.scale(fleet, wanted)
        lags.append(float(fleet.lag.sum() / load))
        hours += pods.replicas * STEP_S / 3600
    median, p95 = np.quantile(lags, [0.5, 0.95])
    return Outcome(
        moves=fleet.moves,
        cold_moves=fleet.cold_moves,
        changes=changes,
        worker_hours=hours,
        lag_median_s=float(median),
        lag_p95_s=float(p95),
        lag_max_s=max(lags),
    )


class _Pods:
    """The pods of a Deployment: running pods are workers of the fleet, further pods are starting."""

    def __init__(self, first: int) -> None:
        self.replicas = self.count = first
        #: Each starting pod's time of joining the group.
        self.starting: list[float] = []

    def arrive(self, fleet: Fleet) -> None:
        """Join the started pods to the group, together."""
        up = [at for at in self.starting if at <= fleet.now]
        if up:
            self.starting = [at for at in self.starting if at > fleet.now]
            names = [f"w{self.count + n:04}" for n in range(len(up))]
            self.count += len(up)
            fleet.join(names)

    def kill(self, fleet: Fleet, which: int) -> None:
        """Kill a pod and start its replacement."""
        names = sorted(fleet.copies)
        if len(names) > 1:
            fleet.die(names[which % len(names)])
            self.starting.append(fleet.now + fleet.costs.pod_restart_s)

    def scale(self, fleet: Fleet, wanted: int) -> None:
        """Start pods, or stop starting pods first and then the youngest."""
        more = wanted - self.replicas
        self.replicas = wanted
        if more > 0:
            self.starting += [fleet.now + fleet.costs.pod_start_s] * more
            return
        dropped = min(-more, len(self.starting))
        self.starting = sorted(self.starting)[: len(self.starting) - dropped]
        gone = -more - dropped
        if gone > 0:
            fleet.leave(sorted(fleet.copies)[-gone:])
