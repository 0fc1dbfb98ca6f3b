"""The fleet in virtual time: the cost of each event in hand-computed seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from faust_assigner import Member
from faust_assigner.pipeline.simulate.policies import Placement, load
from faust_assigner.simulation.fleet import (
    Arm,
    Costs,
    Event,
    Kind,
    Outcome,
    PlanLike,
    Scenario,
    TaskGroup,
    Worker,
)
from faust_assigner.simulation.simulator import PolicyError, simulate

COSTS = Costs(
    session_timeout_s=60.0, rebalance_pause_s=0.7, warm_takeover_s=1.0, replay_records_per_s=1_000.0
)
OURS = load("ours")


def fleet(
    *events: Event,
    workers: int = 2,
    start: int | None = None,
    tasks: int = 2,
    records: Sequence[float] | None = None,
) -> Scenario:
    """Return a fleet with stateful tasks without traffic, of 20,000 records each by default."""
    names = [f"w{number}" for number in range(workers)]
    return Scenario(
        0,
        0,
        "test",
        "2000-01-01",
        tuple(Worker(name) for name in names),
        tuple(names[:start]),
        (TaskGroup("t", tasks, "t-changelog"),),
        np.zeros(tasks) + 1e-9,
        np.array(records if records is not None else [20_000.0] * tasks),
        tuple(events),
    )


def run(
    scenario: Scenario, replicas: int = 0, *, static: bool = False, cooperative: bool = False
) -> Outcome:
    """Run our planner on ``scenario``."""
    arm = Arm("ours", replicas, static=static, cooperative=cooperative)
    return simulate(scenario, arm, OURS, costs=COSTS)


def test_a_crash_without_standby_costs_session_pause_takeover_and_replay() -> None:
    """One of two tasks is orphaned for 81.7 s; the survivor's own task waits for the replay."""
    outcome = run(fleet(Event(100.0, Kind.CRASH, "w1")))
    assert outcome.moved == outcome.cold_moves == 1
    assert outcome.worst_gap_s == pytest.approx(81.7)
    assert outcome.unavailable_s == pytest.approx(81.7 + 21.7)


def test_a_crash_with_a_standby_costs_session_pause_and_takeover() -> None:
    """The copy is complete: no record is replayed and no task is cold."""
    outcome = run(fleet(Event(100.0, Kind.CRASH, "w1")), replicas=1)
    assert (outcome.moved, outcome.cold_moves) == (1, 0)
    assert outcome.unavailable_s == pytest.approx(61.7 + 1.7)


def test_a_worker_that_leaves_is_missed_at_once() -> None:
    """SIGTERM sends a LeaveGroup, so no session is awaited."""
    outcome = run(fleet(Event(100.0, Kind.LEAVE, "w1")), replicas=1)
    assert outcome.worst_gap_s == pytest.approx(1.7)


def test_a_static_worker_that_leaves_for_good_is_missed_a_session_later() -> None:
    """Static members send no LeaveGroup: a scale-in has the cost of a crash."""
    outcome = run(fleet(Event(100.0, Kind.LEAVE, "w1")), replicas=1, static=True)
    assert outcome.worst_gap_s == pytest.approx(61.7)


def test_a_static_restart_within_the_session_stops_only_its_own_partitions() -> None:
    """There is no rebalance and no move: 5 s of absence, a pause and a takeover."""
    outcome = run(fleet(Event(100.0, Kind.RESTART, "w1", 5.0)), static=True)
    assert (outcome.rebalances, outcome.moved) == (0, 0)
    assert outcome.unavailable_s == pytest.approx(5.0 + 1.7)


def test_a_static_worker_that_stays_away_longer_than_its_session_is_replaced() -> None:
    """The session ends first: a rebalance removes the worker, a second adds the worker."""
    outcome = run(fleet(Event(100.0, Kind.RESTART, "w1", 90.0)), static=True)
    assert outcome.rebalances == 2


def test_a_bounce_without_static_membership_stops_the_whole_group_for_the_session() -> None:
    """The join waits for the dead member's session: w0's partition stops from 102 to 160 s too."""
    outcome = run(fleet(Event(100.0, Kind.BOUNCE, "w1", 2.0)))
    assert outcome.rebalances == 1
    assert outcome.unavailable_s == pytest.approx((60 + 1.7) + (58 + 0.7))


def test_a_rolling_restart_without_static_membership_is_two_rebalances_per_worker() -> None:
    """Each restart sends a LeaveGroup and later a JoinGroup."""
    outcome = run(
        fleet(Event(100.0, Kind.RESTART, "w0", 5.0), Event(200.0, Kind.RESTART, "w1", 5.0))
    )
    assert outcome.rebalances == 4


def test_one_cold_partition_stops_the_warm_ones_beside_it() -> None:
    """Faust resumes a worker's partitions together: w0's own task waits for the replay."""
    cold = run(fleet(Event(100.0, Kind.LEAVE, "w1"), records=[20_000.0, 20_000.0]))
    nothing_to_replay = run(fleet(Event(100.0, Kind.LEAVE, "w1"), records=[20_000.0, 0.0]))
    assert cold.unavailable_s == pytest.approx(2 * 21.7)
    assert nothing_to_replay.unavailable_s == pytest.approx(2 * 1.7)


@pytest.mark.parametrize(("leaves_at", "cold", "gap"), [(105.0, 1, 1.7 + 45.0), (10_000.0, 0, 1.7)])
def test_a_standby_that_is_still_restoring_is_cold_by_what_is_missing(
    leaves_at: float, cold: int, gap: float
) -> None:
    """At 100 s the second worker has part of 50,000 records, at 1,000 a second, and takes over."""
    script = (Event(100.0, Kind.JOIN, "w1"), Event(leaves_at, Kind.LEAVE, "w0"))
    outcome = run(fleet(*script, start=1, tasks=1, records=[50_000.0]), 1)
    assert (outcome.moved, outcome.cold_moves) == (1, cold)
    assert outcome.worst_gap_s == pytest.approx(gap)


def test_a_worker_restores_its_standbys_after_its_actives() -> None:
    """Both tasks share the read speed: in 15 s a newcomer reads 15,000 records of its active."""
    script = (Event(100.0, Kind.JOIN, "w1"), Event(115.0, Kind.LEAVE, "w0"))
    assert run(fleet(*script, start=1), 1).restored == pytest.approx(15_000)


def test_files_on_disk_make_a_return_warm() -> None:
    """A returning worker reports its files and replays only the missed records."""
    script = (Event(100.0, Kind.RESTART, "w1", 5.0),)
    said = simulate(fleet(*script), Arm("ours", 0), OURS, costs=COSTS)
    assert (said.moved, said.cold_moves) == (2, 1)  # away cold, back warm


def test_a_second_stop_during_a_recovery_counts_no_second_twice() -> None:
    """Two workers leave a second apart: the third worker's partitions stop only once."""
    outcome = run(
        fleet(Event(100.0, Kind.LEAVE, "w1"), Event(101.0, Kind.LEAVE, "w2"), workers=3, tasks=3)
    )
    # 1 s of the replay was done
    assert outcome.worst_gap_s == pytest.approx(1.0 + 0.7 + 1.0 + 39.0)
    assert outcome.unavailable_s <= 3 * outcome.worst_gap_s


def test_nobody_left_counts_as_down_until_the_end() -> None:
    """The only worker crashes: its partitions stay down over the horizon."""
    outcome = run(fleet(Event(100.0, Kind.CRASH, "w0"), workers=1))
    assert outcome.unavailable_s == pytest.approx(2 * 660.0)


def test_imbalance_is_the_heaviest_member_over_the_mean() -> None:
    """Two workers have loads 3 and 1: the heavier carries 1.5 times the mean."""
    scenario = replace(fleet(Event(10.0, Kind.RESTART, "w0", 5.0)), rates=np.array([3.0, 1.0]))
    assert run(scenario, static=True).worst_load == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("rates", "worst"), [((0.3, 0.1), 1.5), ((0.0, 0.0), 1.0), ((3e9, 1e9), 1.5)]
)
def test_imbalance_has_no_unit(rates: tuple[float, float], worst: float) -> None:
    """Light traffic is as uneven as heavy traffic; without traffic all loads are even."""
    scenario = replace(fleet(Event(10.0, Kind.RESTART, "w0", 5.0)), rates=np.array(rates))
    assert run(scenario, static=True).worst_load == pytest.approx(worst)


def test_learned_weights_are_known_under_the_names_of_topics() -> None:
    """A changelog has its source's weight; without learned weights there are none."""
    scenario = fleet(tasks=2)
    assert scenario.weights == {}
    learned = replace(scenario, learned_weights=np.array([2.0, 0.5]))
    assert learned.weights == {
        (topic, number): weight
        for topic in ("t", "t-changelog")
        for number, weight in enumerate((2.0, 0.5))
    }


def test_a_policy_is_told_who_is_new() -> None:
    """Members started since the last round have no claims and generation -1."""
    asked: list[dict[str, tuple[int, bool]]] = []

    def watching(
        members: Sequence[Member], partitions: Mapping[str, int], **more: object
    ) -> PlanLike:
        asked.append({m.member_id: (m.generation, bool(m.actives)) for m in members})
        return OURS(members, partitions, **more)

    join = fleet(Event(100.0, Kind.JOIN, "w1"), start=1)
    simulate(join, Arm("mine", 0), watching)
    assert asked == [{"w0": (-1, False)}, {"w0": (1, True), "w1": (-1, False)}]


def test_a_policy_that_forgets_a_task_is_refused_by_name() -> None:
    """The error names the scenario, the policy and the task."""

    def forgetful(
        members: Sequence[Member], partitions: Mapping[str, int], **_: object
    ) -> Placement:
        return Placement({members[0].member_id: {"t": [0]}}, {})

    with pytest.raises(PolicyError, match="scenario 0, policy mine: task 1 has 0 owners"):
        simulate(fleet(), Arm("mine", 0), forgetful)


def test_a_newcomer_warms_up_before_it_takes_over() -> None:
    """Two of six tasks move in a second round, after 40,000 records; each stops for 2.4 s."""
    join = fleet(Event(100.0, Kind.JOIN, "w2"), workers=3, start=2, tasks=6)
    warm, cold = run(join, cooperative=True), run(join)
    assert (warm.moved, warm.cold_moves, warm.rebalances) == (2, 0, 2)
    assert (cold.moved, cold.cold_moves, cold.rebalances) == (2, 2, 1)
    assert warm.unavailable_s == pytest.approx(2 * (2 * 0.7 + 1.0))
    assert warm.restored == 40_000


def test_a_short_log_is_taken_over_at_once() -> None:
    """Up to 100 records are read within the round, by the planner's own rule."""
    short = fleet(Event(100.0, Kind.JOIN, "w2"), workers=3, start=2, tasks=6, records=[100.0] * 6)
    assert run(short, cooperative=True).rebalances == 1
    longer = replace(short, records=np.array([101.0] * 6))
    assert run(longer, cooperative=True).rebalances == 2


def test_a_follow_up_round_waits_for_its_cool_down() -> None:
    """The copies have caught up after 0.6 s; the next round comes 5 s after the previous round."""
    join = fleet(
        Event(100.0, Kind.JOIN, "w2"),
        Event(104.0, Kind.LEAVE, "w2"),
        workers=3,
        start=2,
        tasks=6,
        records=[300.0] * 6,
    )
    assert run(join, cooperative=True).moved == 0
    later = replace(join, events=(join.events[0], Event(106.0, Kind.LEAVE, "w2")))
    assert run(later, cooperative=True).moved == 4


@pytest.mark.parametrize(
    ("event", "replicas", "stopped_s"),
    [
        (Event(100.0, Kind.CRASH, "w0"), 0, 60.0 + 0.7 + 1.0 + 20.0),
        (Event(100.0, Kind.CRASH, "w0"), 1, 60.0 + 0.7 + 1.0),
        (Event(100.0, Kind.LEAVE, "w0"), 1, 0.7 + 1.0),
        (Event(100.0, Kind.BOUNCE, "w0", 10.0), 1, 60.0 + 0.7 + 1.0),
    ],
    ids=["a crash, cold", "a crash, warm", "a leave", "a bounce"],
)
def test_a_cooperative_round_stops_only_what_moves(
    event: Event, replicas: int, stopped_s: float
) -> None:
    """The other worker's task continues; an eager round stops that task too."""
    scenario = fleet(event)
    assert run(scenario, replicas, cooperative=True).unavailable_s == pytest.approx(stopped_s)
    assert run(scenario, replicas).unavailable_s > stopped_s


def test_a_bounce_within_the_session_resumes_what_the_worker_had() -> None:
    """Under static membership there is no rebalance, and only the worker's own task stops."""
    bounce = fleet(Event(100.0, Kind.BOUNCE, "w0", 10.0))
    found = run(bounce, 1, static=True, cooperative=True)
    assert (found.rebalances, found.moved) == (0, 0)
    assert found.unavailable_s == pytest.approx(10.0 + 0.7 + 1.0)


def test_rounds_end_when_nothing_is_awaited_any_more() -> None:
    """Joins occur during warm-ups of many tasks: each round makes progress, and the rounds end."""
    events = [Event(100.0 + 3.0 * number, Kind.JOIN, f"w{number}") for number in range(2, 8)]
    found = run(fleet(*events, workers=8, start=2, tasks=64), 1, cooperative=True)
    assert found.idle_members <= 6
    assert (found.cold_moves, found.moved) == (0, 48)
    assert found.rebalances < 30
