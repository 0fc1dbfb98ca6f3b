"""The words of the simulator as frozen values: a fleet, what happens to it, and what things cost.

A *task* is (group, partition number), as in the planner; arrays over tasks are flat, in the order
of the groups. Times are seconds of virtual time; state is counted in changelog records, because
records are what a worker replays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from faust_assigner.model import Bools, Claims, Floats, Ints, Member

#: (topic, partition) -> cost relative to an ordinary partition (1.0).
Weights = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class Costs:
    """What an event costs, in seconds and records per second. The defaults were measured.

    Measured with faust-streaming 0.15.3 on Apache Kafka 4.3.1: kept partitions stand still for
    0.5-0.9 s at a rebalance; a worker that held a standby takes over in about 1 s; a cold table is
    replayed at about 3,700 records/s; the default session is 60 s.

    ``acceptable_recovery_lag``: a copy at most this many records behind counts as warm (KIP-441);
    ``acceptable_from_nothing``: a longer log is not read from its start while its owner lives;
    ``follow_up_s``: the least time between a cooperative round and the follow-up round after it.
    """

    session_timeout_s: float = 60.0
    rebalance_pause_s: float = 0.7
    warm_takeover_s: float = 1.0
    replay_records_per_s: float = 3_700.0
    acceptable_recovery_lag: float = 10_000.0
    acceptable_from_nothing: float = 100.0
    follow_up_s: float = 5.0


@dataclass(frozen=True)
class Worker:
    """A process of the fleet: its member id, its rack and its share of the load."""

    member_id: str
    rack_id: str | None = None
    capacity: float = 1.0


@dataclass(frozen=True)
class TaskGroup:
    """A co-partitioned group: one source topic and, where it is stateful, one changelog."""

    topic: str
    partitions: int
    changelog: str | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that travel together."""
        return (self.topic,) if self.changelog is None else (self.topic, self.changelog)


class Kind(Enum):
    """What can happen to a worker."""

    JOIN = "join"  #: a new worker starts
    LEAVE = "leave"  #: SIGTERM, for good (scale-in)
    CRASH = "crash"  #: SIGKILL, for good (or longer than the scenario)
    RESTART = "restart"  #: SIGTERM and back after ``down_s`` with its files (one step of a deploy)
    BOUNCE = "bounce"  #: SIGKILL and back after ``down_s`` with its files


@dataclass(frozen=True)
class Event:
    """``kind`` happens to ``member_id`` at ``at_s``; ``down_s`` is how long its process is away."""

    at_s: float
    kind: Kind
    member_id: str
    down_s: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """A fleet and what happens to it, the same for every policy that is tried on it.

    ``workers``  every worker that ever runs, those of the start and those that join
    ``start``    the member ids that run at time 0
    ``rates``    float64[T] records/s that arrive for each task
    ``records``  float64[T] changelog records of each task's state, 0 where it has none
    ``learned_weights`` float64[T] what a weights file would say of each task (1.0 is ordinary)
    """

    scenario_id: int
    seed: int
    group_id: str
    dt: str
    workers: tuple[Worker, ...]
    start: tuple[str, ...]
    groups: tuple[TaskGroup, ...]
    rates: Floats
    records: Floats
    events: tuple[Event, ...]
    learned_weights: Floats = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def tasks(self) -> int:
        """T, the number of tasks."""
        return sum(group.partitions for group in self.groups)

    @cached_property
    def offsets(self) -> Ints:
        """int64[G+1]: where each group's tasks begin in the flat arrays."""
        return np.cumsum([0, *(group.partitions for group in self.groups)])

    @cached_property
    def stateful(self) -> Bools:
        """bool[T]: the tasks that carry state."""
        return np.repeat(
            [group.changelog is not None for group in self.groups],
            [group.partitions for group in self.groups],
        )

    @cached_property
    def partitions(self) -> dict[str, int]:
        """Topic -> partition count, changelogs included: the planner's second argument."""
        return {topic: group.partitions for group in self.groups for topic in group.topics}

    @cached_property
    def changelogs(self) -> tuple[str, ...]:
        """The topics behind tables."""
        return tuple(group.changelog for group in self.groups if group.changelog is not None)

    @cached_property
    def weights(self) -> dict[tuple[str, int], float]:
        """``learned_weights`` under the topics' names; a changelog weighs what its source weighs."""
        if not self.learned_weights.size:
            return {}
        return {
            (topic, number): float(self.learned_weights[start + number])
            for group, start in zip(self.groups, self.offsets.tolist(), strict=False)
            for topic in group.topics
            for number in range(group.partitions)
        }


class PlanLike(Protocol):
    """What a policy answers; :class:`faust_assigner.Plan` is one."""

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Topic -> partitions the member owns."""

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Changelog topic -> partitions the member keeps a spare replica of."""

    def awaited(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Of these the ones that a follow-up round waits for; asked of cooperative arms alone."""


class Policy(Protocol):
    """Anything that assigns: the signature of :func:`faust_assigner.plan`."""

    def __call__(
        self,
        members: Sequence[Member],
        partitions: Mapping[str, int],
        *,
        replicas: int,
        changelogs: Sequence[str],
        weights: Weights | None,
        **warm: Any,
    ) -> PlanLike:
        """Assign every partition to one of ``members``."""


@dataclass(frozen=True)
class Arm:
    """One policy with one choice of settings: a row of the comparison.

    ``claims_files``: a worker that starts says whose state it has on disk (ours does, stock does not).
    ``cooperative``: rounds stop only what moves, and a living owner keeps a task until its new owner has
    caught up; the policy then takes ``warmups``. ``eager`` says in the label that this is switched off.
    """

    policy: str
    replicas: int
    static: bool = False
    weighted: bool = False
    claims_files: bool = True
    cooperative: bool = False
    eager: bool = False

    @property
    def label(self) -> str:
        """The policy column: ``ours+static+weights``."""
        switches = {"static": self.static, "weights": self.weighted, "eager": self.eager}
        return "+".join([self.policy, *(name for name, is_on in switches.items() if is_on)])


class Outcome(NamedTuple):
    """What one arm did in one scenario: the columns of table ``sim_result`` and a few more.

    ``moved``          tasks given to another worker than the one that owned them, start excluded
    ``cold_moves``     those of them whose new owner had to replay more than the acceptable lag
    ``imbalance``      heaviest member's load / the mean, averaged over the rebalances
    ``worst_load``     the highest of these
    ``unavailable_s``  seconds without processing, summed over partitions
    ``worst_gap_s``    the longest single standstill of a partition
    ``restored``       records replayed into standbys and new owners
    ``idle_members``   most members without a task after any rebalance
    """

    moved: float
    cold_moves: float
    imbalance: float
    worst_load: float
    unavailable_s: float
    worst_gap_s: float
    restored: float
    rebalances: int
    idle_members: int


def claims_of(groups: Sequence[TaskGroup], offsets: Ints, mine: Bools) -> Claims:
    """Topic -> partition numbers of the tasks set in ``mine`` (bool[T])."""
    claims: dict[str, Any] = {}
    for group, start in zip(groups, offsets.tolist(), strict=False):
        numbers = np.flatnonzero(mine[start : start + group.partitions])
        if numbers.size:
            for topic in group.topics:
                claims[topic] = numbers
    return claims
