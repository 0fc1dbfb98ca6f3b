"""The steps of a simulated fleet: downtimes, sessions, follow-up rounds and memos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member
from faust_assigner.simulation.fleet import (
    Arm,
    Event,
    Kind,
    Outcome,
    PlanLike,
    Scenario,
    TaskGroup,
    Worker,
)
from faust_assigner.simulation.simulator import Memo, Rebalance, _Downtime, simulate
from tests.unit.simulation.test_simulator import COSTS, OURS, fleet, run

ALL = np.ones(1, bool)


def test_two_stops_are_two_downtimes() -> None:
    """The downtimes are 5 s and 2 s: the sum has both, and the longest is the first."""
    down = _Downtime(1)
    for since, until in ((1.0, 6.0), (10.0, 12.0)):
        down.stop(ALL, since)
        down.resume(ALL, until)
    assert down.finish(100.0) == (7.0, 5.0)


def test_a_stop_before_the_resume_prolongs_the_downtime() -> None:
    """The task should resume at 10 s; the next round stops it at 5 s and resumes it at 20 s."""
    down = _Downtime(1)
    down.stop(ALL, 1.0)
    down.resume(ALL, 10.0)
    down.stop(ALL, 5.0)
    assert down.until.tolist() == [np.inf]
    down.resume(ALL, 20.0)
    assert down.finish(100.0) == (19.0, 19.0)


def test_a_stop_at_the_moment_of_the_resume_begins_a_downtime() -> None:
    """The task was processing at that moment."""
    down = _Downtime(1)
    down.stop(ALL, 1.0)
    down.resume(ALL, 5.0)
    down.stop(ALL, 5.0)
    assert down.finish(8.0) == (7.0, 4.0)


def test_a_task_that_never_resumes_is_down_until_the_end() -> None:
    """The downtime of a task that stops after the end is not negative."""
    down = _Downtime(2)
    down.stop(np.array([True, False]), 10.0)
    down.stop(np.array([False, True]), 50.0)
    assert down.finish(30.0) == (20.0, 20.0)


@dataclass
class Script:
    """A policy with scripted answers: member -> (tasks, standbys, awaited standbys) per round."""

    rounds: Sequence[Mapping[str, tuple[Sequence[int], Sequence[int], Sequence[int]]]]
    calls: int = 0

    def __call__(self, members: Sequence[Member], *_: object, **__: object) -> PlanLike:
        """Return the next answer; repeat the last answer."""
        found = self.rounds[min(self.calls, len(self.rounds) - 1)]
        self.calls += 1
        return _Answer(found)


@dataclass
class _Answer:
    given: Mapping[str, tuple[Sequence[int], Sequence[int], Sequence[int]]]
    changelog: str = "t-changelog"

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        return {"t": self.given.get(member_id, ((), (), ()))[0]}

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        return {self.changelog: self.given.get(member_id, ((), (), ()))[1]}

    def awaited(self, member_id: str) -> Mapping[str, Sequence[int]]:
        return {self.changelog: self.given.get(member_id, ((), (), ()))[2]}


def rounds_of(scenario: Scenario, policy: Any, **arm: Any) -> tuple[Outcome, list[Rebalance]]:
    """Return the figures, and each rebalance after the first."""
    trace: list[Rebalance] = []
    return simulate(scenario, Arm("mine", 0, **arm), policy, costs=COSTS, trace=trace), trace


def test_the_first_placement_is_no_rebalance() -> None:
    """Neither the figures nor the trace count it."""
    outcome, trace = rounds_of(fleet(), OURS)
    assert (outcome.rebalances, outcome.moved, trace) == (0, 0, [])


def test_a_static_workers_session_counts_from_its_last_crash() -> None:
    """The worker crashes at 100 s, returns at 110 s, crashes at 130 s and is removed at 190 s."""
    script = (Event(100.0, Kind.BOUNCE, "w1", 10.0), Event(130.0, Kind.CRASH, "w1"))
    _, trace = rounds_of(fleet(*script), OURS, static=True)
    assert [one.at_s for one in trace] == [190.0]


def test_a_later_round_replaces_the_follow_up_round_of_an_earlier_round() -> None:
    """The join at 100 s needs a round from 105 s on; the leave at 102 s settles the group."""
    policy = Script(
        [
            {"w0": ([0], [], []), "w1": ([1], [], [])},
            {"w0": ([0], [], []), "w1": ([1], [], []), "w2": ([], [0], [0])},
            {"w0": ([0, 1], [], [])},
        ]
    )
    events = (Event(100.0, Kind.JOIN, "w2"), Event(102.0, Kind.LEAVE, "w1"))
    scenario = fleet(*events, workers=3, start=2, records=[100.0, 100.0])
    _, trace = rounds_of(scenario, policy, cooperative=True)
    assert [one.at_s for one in trace] == [100.0, 102.0]


def test_a_follow_up_round_that_awaits_other_copies_is_followed_by_a_round() -> None:
    """The owners are the same; a round with equal owners and equal promises is the last."""
    first = {"w0": ([0, 1], [], []), "w1": ([], [0], [0])}
    second = {"w0": ([0, 1], [], []), "w1": ([], [1], [1])}
    policy = Script([{"w0": ([0, 1], [], [])}, first, second, second])
    scenario = fleet(Event(100.0, Kind.JOIN, "w1"), start=1, records=[100.0, 100.0])
    _, trace = rounds_of(scenario, policy, cooperative=True)
    assert [one.at_s for one in trace] == [100.0, 105.0, 110.0]


def test_a_static_worker_that_returns_in_a_round_starts_with_the_tasks_that_it_gains() -> None:
    """w2 is removed at 160 s; the round waits for w1 until 170 s, and w1 replays 20 s for w2."""
    start = {"w0": ([0], [], []), "w1": ([1], [], []), "w2": ([2], [], [])}
    policy = Script([start, {"w0": ([0], [], []), "w1": ([1, 2], [], [])}])
    events = (Event(100.0, Kind.CRASH, "w2"), Event(150.0, Kind.BOUNCE, "w1", 20.0))
    scenario = fleet(*events, workers=3, tasks=3)
    outcome, trace = rounds_of(scenario, policy, static=True, cooperative=True)
    assert [one.at_s for one in trace] == [170.0]
    ready = 170.0 + 0.7 + 1.0 + 20.0
    assert outcome.unavailable_s == pytest.approx((ready - 100.0) + (ready - 150.0))


def test_a_task_that_nobody_owned_does_not_move() -> None:
    """The only worker was away for longer than its session."""
    outcome = run(fleet(Event(100.0, Kind.RESTART, "w0", 100.0), workers=1), static=True)
    assert (outcome.rebalances, outcome.moved, outcome.cold_moves) == (1, 0, 0)


def test_a_new_owner_without_files_is_cold_however_short_the_table_is() -> None:
    """The only worker was away for longer than its session."""
    short = fleet(Event(100.0, Kind.LEAVE, "w1"), records=[50.0, 50.0])
    assert run(short).cold_moves == 1
    stateless = replace(short, groups=(TaskGroup("t", 2),), records=np.zeros(2))
    outcome = run(stateless)
    assert (outcome.moved, outcome.cold_moves) == (1, 0)


@pytest.mark.parametrize(("leaves_at", "cold"), [(140.0, 0), (139.0, 1)])
def test_a_copy_at_the_acceptable_lag_is_warm(leaves_at: float, cold: int) -> None:
    """At 140 s the standby lacks 10,000 of 50,000 records."""
    script = (Event(100.0, Kind.JOIN, "w1"), Event(leaves_at, Kind.LEAVE, "w0"))
    outcome = run(fleet(*script, start=1, tasks=1, records=[50_000.0]), 1)
    assert (outcome.moved, outcome.cold_moves) == (1, cold)


def test_a_task_of_a_dead_worker_starts_without_a_second_pause() -> None:
    """No worker revokes the task: w2 takes a task of dead w1, and w0 a task of living w3."""
    start = {f"w{n}": ([n], [], []) for n in range(4)}
    then = {"w0": ([0, 3], [], []), "w2": ([2, 1], [], []), "w3": ([], [], [])}
    scenario = fleet(Event(100.0, Kind.LEAVE, "w1"), workers=4, tasks=4, records=[0.0] * 4)
    outcome, _ = rounds_of(scenario, Script([start, then]), cooperative=True)
    assert outcome.unavailable_s == pytest.approx((0.7 + 1.0) + (2 * 0.7 + 1.0))


def test_a_worker_without_new_tasks_or_state_starts_without_a_takeover() -> None:
    """In an eager round the other workers only pause; a new worker opens its tables."""
    policy = Script([{"w0": ([0, 1], [], [])}, {"w0": ([0], [], []), "w1": ([1], [], [])}])
    scenario = fleet(Event(100.0, Kind.JOIN, "w1"), start=1, records=[0.0, 0.0])
    outcome, _ = rounds_of(scenario, policy)
    assert outcome.unavailable_s == pytest.approx(0.7 + 1.7)


def test_the_load_of_a_worker_counts_by_its_capacity() -> None:
    """w0 has three quarters of the load and of the capacity: all are as even as can be."""
    base = fleet(Event(10.0, Kind.RESTART, "w0", 5.0))
    workers = (Worker("w0", capacity=3.0), Worker("w1", capacity=1.0))
    scenario = replace(base, workers=workers, rates=np.array([0.3, 0.1]))
    policy = Script([{"w0": ([0], [], []), "w1": ([1], [], [])}])
    outcome, _ = rounds_of(scenario, policy, static=True)
    assert outcome.worst_load == pytest.approx(1.0)


def test_the_most_idle_members_of_any_round_count() -> None:
    """Four workers run two tasks at first, two workers at the end."""
    script = (Event(100.0, Kind.LEAVE, "w3"), Event(200.0, Kind.LEAVE, "w2"))
    assert run(fleet(*script, workers=4)).idle_members == 2


def test_a_stale_copy_falls_behind_by_no_more_than_its_table() -> None:
    """The worker is away for 1,000 s at 50 records a second, and its table has 20,000 records."""
    base = fleet(Event(100.0, Kind.RESTART, "w1", 1000.0), tasks=2)
    scenario = replace(base, rates=np.array([50.0, 50.0]))
    policy = Script([{"w0": ([0], [], []), "w1": ([1], [], [])}, {"w0": ([0, 1], [], [])}])
    policy.rounds = [*policy.rounds, policy.rounds[0]]
    outcome, trace = rounds_of(scenario, policy)
    assert [one.cold_moves for one in trace] == [1, 1]
    assert outcome.worst_gap_s == pytest.approx(1.7 + 20.0)


def test_the_copy_of_a_stopped_standby_falls_behind() -> None:
    """w1 keeps a standby of task 0, stops for 100 s, and takes task 0 after its return."""
    base = fleet(Event(100.0, Kind.BOUNCE, "w1", 50.0), Event(200.0, Kind.LEAVE, "w0"), tasks=1)
    scenario = replace(base, rates=np.array([10.0]))
    policy = Script([{"w0": ([0], [], []), "w1": ([], [0], [])}, {"w1": ([0], [], [])}])
    outcome, _ = rounds_of(scenario, policy, static=True)
    assert outcome.restored == pytest.approx(500.0)


def test_a_follow_up_round_waits_for_the_actives_of_its_worker_and_then_for_the_copy() -> None:
    """w1 replays 20 s for the dead worker's task, then 20 s for the awaited copy."""
    start = {"w0": ([0], [], []), "w1": ([], [], []), "w2": ([1], [], [])}
    first = {"w0": ([0], [], []), "w1": ([1], [0], [0])}
    policy = Script([start, first, {"w1": ([0, 1], [], [])}])
    scenario = fleet(Event(100.0, Kind.LEAVE, "w2"), workers=3)
    _, trace = rounds_of(scenario, policy, cooperative=True)
    assert [(one.at_s, one.cold_moves) for one in trace] == [(100.0, 1), (140.0, 0)]


@pytest.mark.parametrize("arm", [{}, {"cooperative": True}, {"claims_files": False}])
def test_a_worker_claims_its_files_and_positions_as_its_arm_says(arm: dict[str, bool]) -> None:
    """Stock Faust claims no files after a restart, and only a cooperative member reports positions."""
    told: list[Member] = []

    def watching(members: Sequence[Member], partitions: Mapping[str, int], **more: Any) -> PlanLike:
        told.extend(members)
        return OURS(members, partitions, **more)

    rounds_of(fleet(Event(100.0, Kind.RESTART, "w1", 5.0)), watching, **arm)
    back = told[-1]
    assert (back.member_id, back.generation) == ("w1", -1)
    assert bool(back.standbys) is arm.get("claims_files", True)
    assert (back.positions is not None) is arm.get("cooperative", False)


@dataclass
class Recorder:
    """A stateless policy that records its inputs: owners by id, standbys on the next member."""

    inputs: set[str] = field(default_factory=set)

    def __call__(
        self,
        members: Sequence[Member],
        partitions: Mapping[str, int],
        *,
        weights: object = None,
        **more: object,
    ) -> PlanLike:
        """Record the input; await each incomplete standby."""
        told = [
            (m.member_id, m.generation, m.actives, m.standbys, m.awaited, m.positions)
            for m in members
        ]
        self.inputs.add(repr((told, sorted(more), bool(weights))))
        given = {}
        for at, member in enumerate(members):
            mine = [p for p in range(partitions["t"]) if p % len(members) == at]
            spare = [p for p in range(partitions["t"]) if (p + 1) % len(members) == at]
            held = (member.positions or {}).get("t-changelog", (None, np.zeros(partitions["t"])))
            behind = [p for p in spare if p not in mine and np.asarray(held[1])[p] < 9]  # type: ignore[index]
            given[member.member_id] = (mine, [p for p in spare if p not in mine], behind)
        return _Answer(given)


@pytest.mark.parametrize("seed", range(12))
def test_arms_share_an_answer_only_for_equal_input(seed: int) -> None:
    """With a memo, a policy sees the same inputs as without a memo."""
    rng = Random(seed)
    events = [
        Event(
            50.0 * n + rng.choice((0.0, 3.0)),
            rng.choice((Kind.RESTART, Kind.BOUNCE, Kind.RESTART)),
            f"w{rng.randrange(3)}",
            rng.choice((2.0, 20.0, 90.0)),
        )
        for n in range(8)
    ]
    scenario = replace(
        fleet(*events, workers=3, tasks=3, records=[9.0, 9.0, 9.0]),
        learned_weights=np.ones(3),
        rates=np.full(3, 0.01),
    )
    arms = [
        Arm("mine", 1, static=static, cooperative=cooperative, weighted=weighted)
        for static in (False, True)
        for cooperative in (False, True)
        for weighted in (False, True)
    ]
    alone, shared = Recorder(), Recorder()
    memo: Memo = {}
    for arm in arms:
        one = simulate(scenario, arm, alone, costs=COSTS)
        assert simulate(scenario, arm, shared, costs=COSTS, memo=memo) == one
    assert shared.inputs == alone.inputs


@dataclass
class Toggle:
    """A policy with all tasks on w0 and a standby on w1, awaited every second time."""

    inputs: list[list[tuple[str, int, bool]]] = field(default_factory=list)

    def __call__(self, members: Sequence[Member], *_: object, **__: object) -> PlanLike:
        """Record each member's generation and whether its copy is awaited."""
        self.inputs.append([(m.member_id, m.generation, bool(m.awaited)) for m in members])
        waits = {m.member_id: bool(m.awaited) for m in members}
        return _Answer({"w0": ([0], [], []), "w1": ([], [0], [] if waits.get("w1") else [0])})


@pytest.mark.parametrize(
    ("changelog", "cooperative", "last"),
    [(None, False, ("w1", 1, False)), ("t-changelog", True, ("w1", 1, False))],
)
def test_a_group_of_the_same_members_and_owners_may_be_another_input(
    changelog: str | None, cooperative: bool, last: tuple[str, int, bool]
) -> None:
    """w1 is new at 100 s but not at 300 s; its copy is awaited at 105 s but not at 300 s."""
    events = (
        Event(100.0, Kind.JOIN, "w1"),
        Event(200.0, Kind.JOIN, "w2"),
        Event(300.0, Kind.LEAVE, "w2"),
    )
    base = fleet(*events, workers=3, start=1, tasks=1, records=[9.0 if changelog else 0.0])
    scenario = replace(base, groups=(TaskGroup("t", 1, changelog),))
    policy, memo = Toggle(), dict[Any, Any]()
    simulate(scenario, Arm("mine", 1, cooperative=cooperative), policy, costs=COSTS, memo=memo)
    pairs = [one for one in policy.inputs if len(one) == 2]
    assert ("w1", -1, False) in pairs[0]
    assert last in pairs[-1]
    assert len(pairs) == (3 if cooperative else 2)


@pytest.mark.parametrize(
    "joined",
    [
        {"w0": ([0], [1], []), "w2": ([1, 2], [], [])},
        {"w0": ([0], [], []), "w1": ([1], [0], []), "w2": ([2], [], [])},
    ],
    ids=["owners", "standbys"],
)
def test_a_policy_is_asked_again_if_a_worker_leaves_with_other_tasks_or_copies(
    joined: dict[str, Any],
) -> None:
    """w2 leaves twice; the second time the owners differ, or only the standbys."""
    start = {"w0": ([0], [1], []), "w1": ([1], [], []), "w2": ([2], [], [])}
    left = {"w0": ([0, 2], [1], []), "w1": ([1], [], [])}
    last = {"w0": ([0], [], []), "w1": ([1, 2], [], [])}
    policy = Script([start, left, joined, last])
    times = ((100.0, Kind.LEAVE), (200.0, Kind.JOIN), (300.0, Kind.LEAVE))
    scenario = fleet(*(Event(at, kind, "w2") for at, kind in times), workers=3, tasks=3)
    _, trace = rounds_of(scenario, policy)
    assert policy.calls == 4
    assert [one.at_s for one in trace] == [100.0, 200.0, 300.0]


def test_a_follow_up_round_of_an_earlier_round_cancels_no_round() -> None:
    """The round for w4 waits for w1; meanwhile the follow-up round of the join at 100 s is due."""
    base = {"w0": ([0], [], []), "w1": ([1], [], [])}
    policy = Script([base, {**base, "w2": ([], [0], [0])}, base])
    events = (
        Event(100.0, Kind.JOIN, "w2"),
        Event(102.0, Kind.JOIN, "w3"),
        Event(103.0, Kind.BOUNCE, "w1", 10.0),
        Event(104.0, Kind.JOIN, "w4"),
    )
    scenario = fleet(*events, workers=5, start=2, records=[100.0, 100.0])
    _, trace = rounds_of(scenario, policy, static=True, cooperative=True)
    assert [one.at_s for one in trace] == [100.0, 102.0, 113.0]


@pytest.mark.parametrize("cooperative", [True, False])
def test_the_first_worker_of_an_empty_group_waits_for_no_owner_to_let_go(
    *, cooperative: bool
) -> None:
    """The task pauses, is taken over and replays both tables after 100 s without a worker."""
    script = (Event(100.0, Kind.LEAVE, "w0"), Event(200.0, Kind.JOIN, "w1"))
    found = run(fleet(*script, start=1), cooperative=cooperative)
    assert (found.moved, found.rebalances) == (0, 1)
    assert found.unavailable_s == pytest.approx(2 * (100.0 + 0.7 + 1.0 + 40.0))
