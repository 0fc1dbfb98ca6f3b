"""The simulator's immutable values: a fleet (a group's workers), its events, and their costs.

A *task* is (group, partition number), as in the planner; arrays over tasks are flat, in the order
of the groups. Times are seconds of virtual time. State is measured in changelog records, because
a worker replays records.
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
    """The costs of events, in seconds and records per second, with measured defaults.

    The defaults were measured with faust-streaming 0.15.3 on Apache Kafka 4.3.1. At a rebalance,
    partitions that stay with their owner stop for 0.5-0.9 s. A worker with a standby takes over in
    about 1 s. A worker without a copy replays about 3,700 records/s. Faust's default session timeout
    is 60 s.

    ``acceptable_recovery_lag``: a copy at most this many records behind counts as warm (KIP-441).
    ``acceptable_from_nothing``: while the owner lives, a member without a copy gets the task at once only
    if the task's changelog has at most this many records. ``follow_up_s``: the minimum time between a
    cooperative round and its follow-up round.
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
    """A process of the fleet: its member id, its rack, and its capacity relative to 1.0."""

    member_id: str
    rack_id: str | None = None
    capacity: float = 1.0


@dataclass(frozen=True)
class TaskGroup:
    """A co-partitioned group: a source topic and, if the group has state, a changelog."""

    topic: str
    partitions: int
    changelog: str | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the group."""
        return (self.topic,) if self.changelog is None else (self.topic, self.changelog)


class Kind(Enum):
    """The kinds of events of a worker."""

    JOIN = "join"  #: a new worker starts
    LEAVE = "leave"  #: the worker gets SIGTERM and does not return (scale-in)
    CRASH = "crash"  #: the worker gets SIGKILL and does not return
    RESTART = "restart"  #: SIGTERM, then a restart after ``down_s`` with the files (a deploy)
    BOUNCE = "bounce"  #: SIGKILL, then a restart after ``down_s`` with the files


@dataclass(frozen=True)
class Event:
    """An event of one worker at ``at_s``; for a restart, the process is down for ``down_s`` seconds."""

    at_s: float
    kind: Kind
    member_id: str
    down_s: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """A fleet and its events, identical for every policy under test.

    ``workers``  all workers: the initial workers and the workers that join
    ``start``    the member ids that run at time 0
    ``rates``    float64[T] incoming records/s of each task
    ``records``  float64[T] changelog records of each task's state, 0 for a stateless task
    ``learned_weights`` float64[T] the weight of each task in a weights file (1.0 is ordinary)
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
        """int64[G+1]: the index of each group's first task in the flat arrays."""
        return np.cumsum([0, *(group.partitions for group in self.groups)])

    @cached_property
    def stateful(self) -> Bools:
        """bool[T]: the tasks with state."""
        return np.repeat(
            [group.changelog is not None for group in self.groups],
            [group.partitions for group in self.groups],
        )

    @cached_property
    def partitions(self) -> dict[str, int]:
        """Topic -> partition count, including changelogs: the planner's second argument."""
        return {topic: group.partitions for group in self.groups for topic in group.topics}

    @cached_property
    def changelogs(self) -> tuple[str, ...]:
        """The changelogs of all groups with state."""
        return tuple(group.changelog for group in self.groups if group.changelog is not None)

    @cached_property
    def weights(self) -> dict[tuple[str, int], float]:
        """``learned_weights`` by topic and partition; a changelog has the weight of its source."""
        if not self.learned_weights.size:
            return {}
        return {
            (topic, number): float(self.learned_weights[start + number])
            for group, start in zip(self.groups, self.offsets.tolist(), strict=False)
            for topic in group.topics
            for number in range(group.partitions)
        }


class PlanLike(Protocol):
    """A policy's result; :class:`faust_assigner.Plan` is an example."""

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return topic -> the member's partitions."""

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return changelog topic -> the partitions of the member's standbys."""

    def awaited(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return changelog topic -> the member's standbys that a follow-up round waits for.

        The simulator calls this method for cooperative arms only.
        """


class Policy(Protocol):
    """A function with the signature of :func:`faust_assigner.plan`."""

    def __call__(
        self,
        members: Sequence[Member],
        partitions: Mapping[str, int],
        *,
        replicas: int,
        changelogs: Sequence[str],
        weights: Weights | None,
        **warm: object,
    ) -> PlanLike:
        """Assign every partition to one of ``members``."""


@dataclass(frozen=True)
class Arm:
    """A policy with its settings and a number of standbys: one row of the comparison.

    ``claims_files``: a starting worker claims the state on its disk (with this package's assignor, not
    with stock Faust).
    ``cooperative``: a rebalance stops only the moving partitions, and a living owner keeps a task until
    its new owner has caught up; the policy then takes the argument ``warmups``. ``eager``: the user
    switched ``cooperative`` off; the label shows this.
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
        """The arm's name in the column ``policy``, such as ``ours+static+weights``."""
        switches = {"static": self.static, "weights": self.weighted, "eager": self.eager}
        return "+".join([self.policy, *(name for name, is_on in switches.items() if is_on)])


class Outcome(NamedTuple):
    """The figures of one arm in one scenario.

    ``moved``          tasks that changed their owner after the start
    ``cold_moves``     moved tasks whose new owner lacked more records than the acceptable lag
    ``imbalance``      heaviest member's load / mean load, averaged over the rebalances
    ``worst_load``     the maximum of the same ratio
    ``unavailable_s``  seconds without processing, summed over partitions
    ``worst_gap_s``    the longest downtime of a partition in seconds
    ``restored``       records replayed into standbys and new owners
    ``rebalances``     rebalances after the start
    ``idle_members``   the largest number of members without a task after a rebalance
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
    """Return topic -> the partition numbers of the tasks that are true in ``mine`` (bool[T])."""
    claims: dict[str, Any] = {}
    for group, start in zip(groups, offsets.tolist(), strict=False):
        numbers = np.flatnonzero(mine[start : start + group.partitions])
        if numbers.size:
            for topic in group.topics:
                claims[topic] = numbers
    return claims
