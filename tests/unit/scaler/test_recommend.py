"""The decision, rule by rule: a case with the rule in force and a case without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.scaler.case import GROW, HOLD, SHRINK, SLEEP, STAY, Case
from faust_assigner.scaler.change import _falls_behind, _obstacle, _why_more
from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.memory import Memory, Sample
from faust_assigner.scaler.recommend import _has_nothing_to_do, recommend
from faust_assigner.scaler.settings import Settings
from tests.unit.scaler.made import EVERY_S, group

# -- only useful sizes


@pytest.mark.parametrize(("members", "size"), [(5, 4), (7, 6), (11, 6), (14, 12), (6, 6), (3, 3)])
def test_a_size_that_is_no_faster_than_a_smaller_one_is_left(members: int, size: int) -> None:
    """With 12 tasks, 5 workers are no faster than 4; 6 and 3 are useful sizes."""
    found = group(members=members, worker_rate=100.0).ask()
    assert found.size == size
    assert found.decision == (STAY if size == members else SHRINK)


def test_over_a_day_of_loads_only_useful_sizes_are_recommended() -> None:
    """The load rises to the limit of 12 workers and falls again."""
    made = group(members=1, worker_rate=100.0, down_s=60.0)
    for load in (50, 150, 250, 350, 500, 900, 1100, 500, 300, 100, 20):
        made.arrival = float(load)
        made.pass_time(400)
    assert set(made.sizes()) == {1, 2, 3, 4, 6, 12}


@pytest.mark.parametrize(("standbys", "least"), [(0, 1), (1, 2), (2, 3)])
def test_there_is_a_worker_for_each_standby_beside_the_owner(standbys: int, least: int) -> None:
    """An idle group shrinks to a worker and its standbys, and no further."""
    made = group(members=6, standbys=standbys, down_s=60.0, worker_rate=100.0)
    made.pass_time(2000)
    assert made.sizes()[-1] == least


def test_too_few_workers_for_the_standbys_are_raised_at_once() -> None:
    """The load is still unknown; the reason names the standbys."""
    found = group(members=1, standbys=1).ask()
    assert (found.decision, found.size) == (GROW, 2)
    assert "standbys" in found.reasons[0]


@pytest.mark.parametrize(("most", "size"), [(None, 12), (12, 12), (11, 6), (6, 6), (5, 4), (1, 1)])
def test_max_is_never_passed(most: int | None, size: int) -> None:
    """The limit holds for any load; below the limit the largest useful size is chosen."""
    made = group(members=1, most=most, worker_rate=100.0, arrival=50_000.0, processed=100.0)
    made.pass_time(600)
    assert made.sizes()[-1] == size


def test_more_than_helps_is_not_asked_for_and_said() -> None:
    """With 12 tasks, 12 workers are the largest useful size."""
    made = group(members=6, worker_rate=100.0, arrival=50_000.0, processed=600.0)
    made.pass_time(600)
    grown = next(one for one in made.said if one.decision == GROW)
    assert grown.size == 12
    assert "no larger size is faster" in grown.reasons[-1]


def test_min_above_the_load_is_kept() -> None:
    """A group below ``min`` grows."""
    made = group(members=2, least=3, down_s=60.0)
    made.pass_time(600)
    assert made.sizes() == [3]


def test_a_change_that_kubernetes_passes_over_is_not_recommended() -> None:
    """With 400 tasks, sizes 20 and 21 differ by too little; a size beyond a tenth is chosen."""
    made = group(members=20, tasks=400, worker_rate=100.0, arrival=1830.0)
    found = made.pass_time(300)
    assert made.sizes() == [20, 23]
    assert found.size == 23


def test_an_idle_group_shrinks_by_more_than_kubernetes_passes_over() -> None:
    """With 400 tasks, 20 workers shrink to 17: steps to 19 and 18 are a tenth or less."""
    made = group(members=20, tasks=400, down_s=60.0, worker_rate=100.0)
    made.pass_time(100)
    assert made.sizes()[:2] == [20, 17]


def test_a_worker_too_many_that_kubernetes_would_not_stop_stays() -> None:
    """From 13 to 12 is less than a tenth: the group would never follow the answer."""
    found = group(members=13, worker_rate=100.0).ask()
    assert (found.decision, found.size) == (STAY, 13)
    assert "ignores a change" in found.reasons[0]


# -- never while the group is not at rest


@pytest.mark.parametrize("load", [10.0, 10_000.0], ids=["too many workers", "too few"])
def test_the_size_is_held_while_state_is_restored(load: float) -> None:
    """The size neither grows nor shrinks; the same looks at rest change the size."""
    why = "worker w1 restores state, 12 records remain"
    for busy in ((why,), ()):
        made = group(members=4, worker_rate=100.0, arrival=load, processed=400.0, busy=busy)
        found = made.pass_time(2000)
        assert (set(made.sizes()) == {4}) is bool(busy)
        if busy:
            assert (found.decision, found.reasons) == (HOLD, busy)


def test_a_busy_group_without_members_keeps_its_least_size() -> None:
    """There are no members to hold, and size 0 would stop the starting workers."""
    found = group(members=0, least=3, busy=("a rebalance is under way",)).ask()
    assert (found.decision, found.size) == (HOLD, 3)


def test_a_size_that_does_not_help_is_held_too() -> None:
    """With 12 tasks, 5 workers shrink to 4 at rest and stay 5 during a restore."""
    made = group(members=5, busy=("a rebalance is under way",))
    assert made.ask().size == 5
    made.busy = ()
    assert made.ask().size == 4


def test_the_size_is_held_until_the_workers_have_followed() -> None:
    """The members lag behind the recommendation; after settle_s their number is accepted."""
    made = group(
        members=2, worker_rate=100.0, arrival=350.0, processed=200.0, settle_s=120.0, follows=False
    )
    made.pass_time(90)
    assert made.said[-1].decision == HOLD
    size = made.said[-1].size
    assert size > 2
    assert "2 workers have joined" in made.said[-1].reasons[0]
    held = made.pass_time(30)
    assert (held.decision, held.size) == (HOLD, size)
    before = len(made.said)
    made.pass_time(120)
    assert any(one.decision != HOLD and one.present == 2 for one in made.said[before:])


def test_a_worker_that_died_does_not_shrink_the_group() -> None:
    """Kubernetes restarts the pod; the recommendation stays."""
    made = group(members=4, worker_rate=100.0, arrival=250.0, follows=False)
    made.pass_time(60)
    made.members = 3
    found = made.ask()
    assert (found.decision, found.size) == (HOLD, 4)


def test_the_size_is_held_however_long_a_restore_takes() -> None:
    """The settle time starts at rest, even if a worker is missing for longer than settle_s."""
    made = group(members=4, worker_rate=100.0, arrival=250.0, follows=False, settle_s=300.0)
    made.pass_time(60)
    made.members, made.busy = 3, ("worker w1 restores state",)
    assert made.pass_time(3600).size == 4
    made.busy = ()
    assert made.pass_time(270).size == 4


# -- fewer workers


def test_it_shrinks_after_the_whole_window_and_not_before() -> None:
    """A look before the window's end keeps the size."""
    made = group(members=6, worker_rate=100.0, arrival=100.0, down_s=300.0)
    made.pass_time(285)
    assert made.sizes() == [6]
    made.pass_time(30)
    assert made.sizes() == [6, 4]


def test_it_shrinks_by_one_useful_size_at_a_time() -> None:
    """The size falls from 12 to 1, with a window between two steps."""
    made = group(members=12, worker_rate=100.0, arrival=10.0, down_s=300.0)
    made.pass_time(5 * 300 + 200)
    assert list(made.sizes()) == [12, 6, 4, 3, 2, 1]


@pytest.mark.parametrize(("arrival", "size"), [(276.0, 4), (284.0, 6)])
def test_it_shrinks_only_where_the_smaller_size_carries_the_load(arrival: float, size: int) -> None:
    """4 workers process 400 records/s, and may be loaded to 70%: 280."""
    made = group(members=6, worker_rate=100.0, arrival=arrival, down_s=300.0)
    made.pass_time(600)
    assert made.sizes()[-1] == size


def test_one_peak_within_the_window_is_enough_to_stay() -> None:
    """The peak counts until it leaves the window."""
    made = group(members=6, worker_rate=100.0, arrival=100.0, down_s=600.0)
    made.pass_time(300)
    made.arrival = 350.0
    made.pass_time(60)
    made.arrival = 100.0
    made.pass_time(540)
    assert made.sizes() == [6]
    assert "at the peak" in made.said[-1].reasons[0]
    made.pass_time(180)
    assert made.sizes() == [6, 4]


def test_a_backlog_within_the_window_is_enough_to_stay() -> None:
    """Few records arrive, but more records waited than the limit permits."""
    made = group(members=6, worker_rate=100.0, arrival=10.0, down_s=300.0, target_lag=10.0)
    made.pass_time(60)
    made.end += 4000
    made.processed = 100.0
    made.pass_time(270)
    assert made.sizes() == [6]
    assert "waited" in made.said[-1].reasons[0]


def test_without_a_measured_rate_a_smaller_size_is_tried_and_said_so() -> None:
    """No worker was ever busy all the time, and no records waited."""
    made = group(members=4, arrival=100.0, down_s=300.0)
    made.pass_time(330)
    shrunk = next(one for one in made.said if one.decision == SHRINK)
    assert shrunk.size == 3
    assert "tried" in shrunk.reasons[0]


# -- more workers


@pytest.mark.parametrize(("arrival", "size"), [(355.0, 4), (365.0, 6)])
def test_it_grows_above_nine_tenths_of_what_the_workers_process(arrival: float, size: int) -> None:
    """4 workers process 400 records/s."""
    made = group(members=4, worker_rate=100.0, arrival=arrival)
    made.pass_time(300)
    assert made.sizes()[-1] == size


@pytest.mark.parametrize(
    ("spare", "arrival", "size"), [(0, 250.0, 4), (1, 250.0, 4), (1, 310.0, 6), (2, 210.0, 6)]
)
def test_spare_workers_may_be_lost(spare: int, arrival: float, size: int) -> None:
    """Without one worker 3 of 4 process 300 records/s, without two 2 of 4 process 200."""
    made = group(members=4, worker_rate=100.0, arrival=arrival, spare=spare)
    made.pass_time(300)
    assert made.sizes()[-1] == size


def test_a_group_with_a_spare_worker_does_not_shrink_below_two() -> None:
    """The rule holds for any low load."""
    made = group(members=3, worker_rate=100.0, arrival=1.0, spare=1, down_s=60.0)
    made.pass_time(900)
    assert made.sizes() == [3, 2]


@pytest.mark.parametrize(("backlog", "size"), [(8_000, 4), (65_000, 6), (125_000, 12)])
def test_a_backlog_grows_the_group_by_the_time_to_catch_up(backlog: int, size: int) -> None:
    """300 records/s arrive; catching up 65,000 within 300 s takes 517 a second: 6 workers."""
    made = group(members=4, worker_rate=100.0, arrival=300.0, processed=400.0)
    made.end = backlog
    made.pass_time(30 + 2 * EVERY_S)
    assert made.sizes()[-1] == size


def test_a_load_that_is_over_before_the_window_grows_nothing() -> None:
    """Each look of the window must ask for a larger size."""
    made = group(members=4, worker_rate=100.0, arrival=100.0, up_s=120.0)
    made.pass_time(300)
    made.arrival = 800.0
    made.pass_time(60)
    made.arrival = 100.0
    made.pass_time(120)
    assert made.sizes() == [4]
    made.arrival = 800.0
    made.pass_time(240)
    assert made.sizes()[-1] == 12


def test_the_rate_of_busy_workers_is_measured() -> None:
    """More records wait than are processed: 4 workers process 200 together, so each 50."""
    made = group(members=4, arrival=300.0, processed=200.0, follows=False)
    made.pass_time(400)
    grown = next(one for one in made.said if one.decision == GROW)
    assert grown.worker_rate == pytest.approx(50, rel=0.1)
    assert grown.size == 12


def test_a_backlog_that_does_not_shrink_grows_the_group_whatever_the_rate() -> None:
    """The given rate is too high, and changing owners prevent a measurement."""
    made = group(members=4, worker_rate=10_000.0, arrival=300.0, processed=200.0, restless=True)
    made.pass_time(30)
    assert made.sizes() == [4]
    made.pass_time(400)
    assert made.sizes()[1] == 6


def test_what_waits_after_a_restore_does_not_count_as_falling_behind() -> None:
    """The backlog grew during the restore; the workers get time to catch up."""
    made = group(members=4, worker_rate=100.0, arrival=250.0, processed=0.0, busy=("restores",))
    made.pass_time(60)
    made.busy, made.processed = (), 400.0
    made.pass_time(150)
    assert made.sizes() == [4]


def test_after_a_long_restore_the_workers_get_two_minutes_before_they_count_as_too_slow() -> None:
    """The restore explains the last 120 s; a backlog long after the restore means too slow."""
    made = group(
        members=4,
        worker_rate=100.0,
        catch_up_s=3_000.0,
        arrival=250.0,
        processed=0.0,
        busy=("restores",),
        restless=True,
    )
    made.pass_time(300)
    made.busy, made.processed = (), 400.0
    made.pass_time(150)
    assert made.sizes() == [4]
    made.processed = 200.0
    made.pass_time(300)
    assert made.sizes()[1] == 6


# -- no load, no members


def test_with_min_0_an_idle_group_sleeps_and_wakes() -> None:
    """The group sleeps after the window and wakes for a record; with min 1 it never sleeps."""
    made = group(members=1, least=0, down_s=300.0)
    assert made.pass_time(285).is_active
    found = made.pass_time(30)
    assert (found.decision, found.size, found.is_active) == (SLEEP, 0, False)
    made.members = 0
    assert not made.pass_time(60).is_active
    made.end += 12
    found = made.ask()
    assert (found.size, found.is_active) == (1, True)
    always = group(members=1, least=1, down_s=300.0)
    assert always.pass_time(600).is_active


def test_an_idle_group_stays_asleep_while_its_worker_stops() -> None:
    """KEDA waits before it stops the last worker; the worker's leave wakes no group."""
    made = group(members=1, least=0, down_s=300.0, follows=False)
    made.pass_time(330)
    made.busy = ("worker w0 is stopping",)
    assert not made.pass_time(300).is_active
    made.busy = ()
    assert not made.pass_time(300).is_active


def test_a_group_that_lost_all_members_keeps_its_size() -> None:
    """All pods were restarted together; the load is unknown."""
    made = group(members=4, worker_rate=100.0, follows=False)
    made.pass_time(60)
    made.members = 0
    found = made.pass_time(600)
    assert (found.size, found.decision, found.is_active) == (4, HOLD, True)


def test_a_group_that_has_not_started_gets_its_least_size() -> None:
    """Its standbys are not known yet."""
    found = group(members=0, least=3).ask()
    assert (found.size, found.is_active) == (3, True)


def test_members_that_show_no_topics_are_left_alone() -> None:
    """Members may be of another kind, or the brokers may not answer."""
    found = group(members=4, tasks=0).ask()
    assert (found.size, found.decision) == (4, HOLD)


# -- the memory of decisions


def look(at: float, members: int, **more: object) -> Look:
    """Return a look at a group at rest without records."""
    return Look(taken_at=at, members=members, tasks=12, **more)  # type: ignore[arg-type]


def test_a_group_that_wakes_starts_from_the_workers_that_are_there() -> None:
    """The last recommendation was 0, and an operator started three workers."""
    found, memory = recommend(look(1000, 3), Settings(), Memory(size=0, changed_at=900.0))
    assert (found.present, memory.size) == (3, 3)
    assert memory.changed_at == 1000


def test_the_first_recommendation_is_no_change() -> None:
    """Earlier loads count for the first decision."""
    _, memory = recommend(look(1000, 4), Settings(), Memory())
    assert (memory.size, memory.changed_at) == (4, None)


def test_a_hold_before_any_decision_is_no_recommendation() -> None:
    """The size of a group in its first rebalance is not the size to keep."""
    _, memory = recommend(look(1000, 4, busy=("a rebalance",)), Settings(), Memory())
    assert memory.size is None
    _, later = recommend(look(1000, 4, busy=("a rebalance",)), Settings(), Memory(size=3))
    assert (later.size, later.changed_at) == (3, None)


@pytest.mark.parametrize("interruption", ["busy", "followed", "all lost"])
def test_the_time_to_follow_begins_anew_after_an_interruption(interruption: str) -> None:
    """A worker is missing at 0 s and again at 200 s: at 300 s only 100 s have passed."""
    _, memory = recommend(look(0, 3), Settings(), Memory(size=4))
    assert memory.parted_at == 0
    between = {
        "busy": look(100, 3, busy=("restores",)),
        "followed": look(100, 4),
        "all lost": look(100, 0),
    }[interruption]
    for seen in (between, look(200, 3)):
        found, memory = recommend(seen, Settings(), memory)
    found, memory = recommend(look(300, 3), Settings(), memory)
    assert (found.decision, found.size, memory.parted_at) == (HOLD, 4, 200)


def test_a_size_that_is_not_followed_is_given_up_after_its_time() -> None:
    """Then the present number of workers becomes the size, and the settle time restarts."""
    memory = Memory(size=4)
    for at, present in ((0, 4), (299, 4), (300, 3)):
        found, memory = recommend(look(at, 3), Settings(settle_s=300.0), memory)
        assert found.present == present, at
    assert (memory.size, memory.parted_at, memory.changed_at) == (3, None, 300)


def case(*samples: Sample, members: int = 4, **settings: object) -> Case:
    """Return a decision for 12 tasks at 1000 s."""
    return Case(
        look=look(1000, members),
        settings=Settings(**settings),  # type: ignore[arg-type]
        memory=Memory(samples=samples, tasks=12),
        present=members,
    )


def test_the_allowed_backlog_is_for_each_worker_or_by_the_arrivals() -> None:
    """A backlog equal to the limit is permitted."""
    load = Sample(at=0, backlog=400, arrival=20.0)
    assert case(target_lag=100.0).target(load) == 400
    assert case(target_lag=100.0, members=0).target(load) == 100
    assert case(target_lag_s=20.0).target(load) == 400
    assert not case(target_lag=100.0).is_behind(load)
    assert case(target_lag=99.0).is_behind(load)


def test_a_group_without_a_measured_rate_has_one_only_while_it_is_behind() -> None:
    """An idle worker's rate is not its limit; the present workers count."""
    samples = (Sample(at=0, arrival=0.0), Sample(at=60, arrival=10.0, processed=600, backlog=5000))
    assert case(*samples).rate == pytest.approx(10 * 3 / 12)
    assert case(*samples, members=2).rate == pytest.approx(10 * 6 / 12)
    assert case(*samples[:1], replace(samples[1], backlog=0)).rate is None


def test_a_rate_at_the_limit_of_a_size_needs_no_larger_size() -> None:
    """4 workers with 100 records/s each carry at most 360, or 300 with a spare worker."""
    assert case(worker_rate=100.0).needed(Sample(at=0, arrival=360.0), 100.0) == 4
    assert case(worker_rate=100.0).needed(Sample(at=0, arrival=360.1), 100.0) == 6
    waiting = int(300 * Settings().catch_up_s)
    sizes = [
        case(worker_rate=100.0).needed(Sample(at=0, arrival=100.0, backlog=backlog), 100.0)
        for backlog in (waiting, waiting + 1)
    ]
    assert sizes == [4, 6], "4 workers process 100 arriving and 300 waiting records/s"
    assert case(worker_rate=100.0, spare=1).limit(100.0, 4) == 300
    assert case(worker_rate=100.0, spare=4).limit(100.0, 4) == 0


def waited(*backlogs: int, busy_at: float | None = None, changed_at: float | None = None) -> bool:
    """Whether a group with this backlog at 850, 880, 910, ..., 1000 s falls behind."""
    times = range(1000 - 30 * (len(backlogs) - 1), 1001, 30)
    samples = (
        Sample(at=at, backlog=backlog, arrival=1.0)
        for at, backlog in zip(times, backlogs, strict=True)
    )
    found = case(*samples)
    memory = replace(found.memory, busy_at=busy_at, changed_at=changed_at)
    return _falls_behind(replace(found, memory=memory))


def test_a_backlog_that_has_not_shrunk_for_two_minutes_falls_behind() -> None:
    """An equal backlog has not shrunk; each look of the two minutes is above the limit."""
    assert waited(99, 99, 500, 500, 500, 500)
    assert waited(99, 500, 500, 600, 700, 800)
    assert not waited(99, 500, 500, 600, 700, 499)
    assert not waited(99, 500, 500, 0, 600, 700)
    assert not waited(500, 600)


def test_a_backlog_counts_only_after_two_quiet_minutes() -> None:
    """A rebalance or a change of size within two minutes explains the backlog."""
    growing = (99, 500, 500, 600, 700, 800)
    assert waited(*growing, busy_at=880.0, changed_at=880.0)
    assert not waited(*growing, busy_at=880.1)
    assert not waited(*growing, changed_at=880.1)


def test_the_size_above_max_shrinks_because_of_max() -> None:
    """At max itself the reason is the number of tasks."""
    above = group(members=13, most=8, worker_rate=100.0).ask()
    assert (above.size, above.reasons) == (6, ("max is 8",))
    at = group(members=8, most=8, worker_rate=100.0).ask()
    assert at.size == 6
    assert "more workers than 6 process no faster" in at.reasons[0]


def test_the_look_that_was_furthest_above_its_limit_is_the_obstacle() -> None:
    """A large backlog with many arrivals was within its limit; a small backlog was not."""
    samples = (
        Sample(at=100, arrival=0.0),
        Sample(at=900, backlog=3000, arrival=100.0),
        Sample(at=980, backlog=200, arrival=1.0),
        Sample(at=1000, arrival=1.0),
    )
    assert "200 records waited 20 s ago" in _obstacle(case(*samples, down_s=600.0), 3)


def test_a_group_above_its_measured_limit_says_so_only_at_the_largest_size() -> None:
    """4 workers are too few for 5,000 records/s, but 6 is not the largest size."""
    found = case(worker_rate=100.0)
    load = Sample(at=1000, arrival=5000.0)
    assert not any("no larger size" in why for why in _why_more(found, 6, load, 100.0))
    assert any("no larger size" in why for why in _why_more(found, 12, load, 100.0))


def test_a_sleeping_group_with_waiting_records_wakes() -> None:
    """Its worker may still be stopping."""
    source = {("orders", 0): Source(owner="", committed=0, end=5)}
    seen = look(1000, 0, sources=source, busy=("worker w0 is stopping",))
    found, after = recommend(seen, Settings(least=0), Memory(size=0))
    assert (found.decision, found.size, found.is_active) == (HOLD, 1, True)
    assert (after.size, after.changed_at) == (1, 1000)


def test_a_sleeping_group_wakes_for_a_partition_that_was_never_committed() -> None:
    """Its backlog is unknown, but records have arrived; at the first query all its records count."""
    ends = ((1000, 2), (1015, 2), (1030, 3), (1045, 3))
    memory, found = Memory(size=0), []
    for at, end in ends:
        sources = {("orders", 0): Source(owner="", committed=None, end=end)}
        said, memory = recommend(look(at, 0, sources=sources), Settings(least=0), memory)
        found.append((said.decision, said.size, said.is_active))
    assert found == [(SLEEP, 0, False), (SLEEP, 0, False), (HOLD, 1, True), (HOLD, 1, True)]
    first, _ = recommend(look(at, 0, sources=sources), Settings(least=0), Memory())
    why = "the group has no members; records have arrived in partitions without a committed offset"
    assert (first.size, first.is_active, first.reasons) == (1, True, (why,))


def test_a_group_whose_size_was_changed_may_sleep_after_idle_looks() -> None:
    """Looks of any size cover the window; a backlog keeps the group awake."""
    idle = tuple(Sample(at=at, arrival=0.0) for at in range(600, 1001, 20))
    found = case(*idle, least=0, down_s=300.0)
    changed = replace(found, memory=replace(found.memory, changed_at=900.0))
    assert _has_nothing_to_do(changed)
    waiting = (*idle[:-1], replace(idle[-1], backlog=1))
    assert not _has_nothing_to_do(case(*waiting, least=0, down_s=300.0))
    assert not _has_nothing_to_do(case(*idle, least=1, down_s=300.0))
