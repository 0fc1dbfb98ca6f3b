"""Loads over time, and the rates of workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.scaler import memory as under_test
from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.memory import (
    MOST_RATES,
    MOST_SAMPLES,
    Memory,
    Sample,
    observed,
    rate_at_work,
)
from faust_assigner.scaler.settings import Settings
from tests.unit.scaler.made import group


def look(at: float, *sources: tuple[str, int | None, int], **more: object) -> Look:
    """Return a look with a partition for each (owner, committed, end)."""
    placed = {
        ("orders", n): Source(owner=owner, committed=committed, end=end)
        for n, (owner, committed, end) in enumerate(sources)
    }
    base = Look(taken_at=at, members=2, tasks=len(sources), sources=placed)
    return replace(base, **more)  # type: ignore[arg-type]


def after(*looks: Look) -> Memory:
    """Return the memory of these looks."""
    memory = Memory()
    for one in looks:
        memory = observed(memory, one, Settings())
    return memory


def test_arrivals_are_measured_from_the_ends_of_the_logs() -> None:
    """The sum covers all source partitions, from the second look on."""
    assert after(look(0, ("a", 0, 100))).samples[-1].arrival is None
    memory = after(look(0, ("a", 0, 100), ("b", 0, 50)), look(10, ("a", 0, 180), ("b", 0, 70)))
    assert memory.samples[-1].arrival == 10.0


@pytest.mark.parametrize(
    ("waiting", "processed", "rates"), [(150, 150, (15.0,)), (149, 150, ()), (150, 0, ())]
)
def test_a_rate_counts_only_of_a_worker_that_had_work_all_the_time(
    waiting: int, processed: int, rates: tuple[float, ...]
) -> None:
    """The worker processed at most the records waiting before; an idle worker has no rate."""
    memory = after(look(0, ("a", 0, waiting)), look(10, ("a", processed, 500)))
    assert memory.rates == rates


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_that_is_not_at_rest_is_not_measured(when: str) -> None:
    """Restoring or rebalancing took part of the time."""
    first, second = look(0, ("a", 0, 900)), look(10, ("a", 100, 900))
    busy = ("worker a restores state",)
    if when == "before":
        first = replace(first, busy=busy)
    else:
        second = replace(second, busy=busy)
    assert after(first, second).rates == ()


def test_a_worker_that_gave_or_got_a_partition_is_not_measured() -> None:
    """The other worker is measured."""
    memory = after(
        look(0, ("a", 0, 900), ("a", 0, 900), ("c", 0, 900)),
        look(10, ("a", 100, 900), ("b", 100, 900), ("c", 50, 900)),
    )
    assert memory.rates == (5.0,)


def test_a_topic_that_begins_anew_counts_no_negative_arrivals() -> None:
    """The topic was deleted and recreated."""
    memory = after(look(0, ("a", 900, 900)), look(10, ("a", 0, 20)))
    assert memory.samples[-1].arrival == 0.0
    assert memory.rates == ()


def test_partitions_without_a_commit_have_no_lag() -> None:
    """The group's start in the partition is unknown."""
    assert look(0, ("a", None, 900), ("b", 10, 30)).backlog == 20


def test_two_looks_at_the_same_time_are_one() -> None:
    """No rate exists over zero seconds."""
    once = after(look(0, ("a", 0, 100)))
    assert observed(once, look(0, ("a", 90, 100)), Settings()).samples == once.samples


def test_a_given_rate_is_not_believed_where_workers_are_slower() -> None:
    """The lower of the two rates counts."""
    memory = replace(Memory(), rates=(80.0, 90.0, 300.0))
    assert memory.worker_rate(Settings(worker_rate=100.0)) == 90.0
    assert memory.worker_rate(Settings(worker_rate=50.0)) == 50.0
    assert memory.worker_rate(Settings()) == 90.0
    assert Memory().worker_rate(Settings()) is None


def test_what_is_remembered_is_bounded() -> None:
    """After a day, the looks of the window and one earlier look remain."""
    made = group(members=4, arrival=300.0, processed=200.0, follows=False, down_s=300.0)
    made.pass_time(86_400)
    assert len(made.memory.samples) <= (300 + 60) / 15 + 3
    assert len(made.memory.rates) <= MOST_RATES
    assert made.memory.reaches(300, made.now)
    assert MOST_SAMPLES < 10_000


def test_rare_looks_cover_the_window_too() -> None:
    """The looks are ten minutes apart, and the window has five."""
    memory = after(look(0, ("a", 0, 0)), look(600, ("a", 0, 0)), look(1200, ("a", 0, 0)))
    kept = observed(memory, look(1800, ("a", 0, 0)), Settings(down_s=300.0))
    assert kept.covers(300, 1800)


def sample(at: float, **figures: object) -> Sample:
    """Return the load at a time; the arrival rate is known."""
    return Sample(at=at, **{"arrival": 0.0, **figures})  # type: ignore[arg-type]


def test_a_window_includes_its_first_moment_and_leaves_out_looks_without_a_rate() -> None:
    """The very first look has no arrival rate."""
    memory = Memory(samples=(Sample(at=5.0), sample(9.9), sample(10.0), sample(12.0)))
    assert [one.at for one in memory.since(10.0)] == [10.0, 12.0]
    assert [one.at for one in memory.since(0.0)] == [9.9, 10.0, 12.0]


@pytest.mark.parametrize(
    ("changed_at", "covers"), [(None, True), (40.0, True), (40.1, False), (0.0, True)]
)
def test_looks_cover_a_window_from_the_last_change_of_the_size(
    changed_at: float | None, covers: bool
) -> None:
    """The first look was at 30 s, the window starts at 40 s; the looks reach the window."""
    memory = Memory(samples=(sample(30.0), sample(100.0)), changed_at=changed_at)
    assert memory.covers(60.0, 100.0) is covers
    assert memory.reaches(60.0, 100.0)


def test_a_window_that_begins_at_the_first_look_is_covered() -> None:
    """A window with an earlier start is not covered; without a look no window is covered."""
    memory = Memory(samples=(sample(30.0), sample(100.0)))
    assert (memory.covers(70.0, 100.0), memory.reaches(70.0, 100.0)) == (True, True)
    assert (memory.covers(70.1, 100.0), memory.reaches(70.1, 100.0)) == (False, False)
    assert not Memory().reaches(0.0, 100.0)
    assert not replace(memory, changed_at=10.0).covers(70.1, 100.0), "an old change shows no look"


def test_the_rate_of_the_group_is_that_of_the_last_minute() -> None:
    """A look 60 s ago starts the minute; earlier records do not count."""
    samples = tuple(
        sample(at, processed=done) for at, done in ((0, 0), (39, 900), (40, 1000), (100, 1600))
    )
    assert Memory(samples=samples).processed_rate() == 10.0
    assert Memory(samples=samples[-1:]).processed_rate() == 0.0


def test_after_a_long_pause_of_the_looks_the_rate_is_not_known() -> None:
    """The only look of the last minute is the newest."""
    assert (
        Memory(samples=(sample(0, processed=0), sample(500, processed=900))).processed_rate() == 0.0
    )


@pytest.mark.parametrize(("size", "rate"), [(5, 30.0), (4, 30.0), (12, 10.0)])
def test_the_fullest_worker_processes_its_share_of_the_tasks(size: int, rate: float) -> None:
    """12 tasks process 120 records a second together: the fullest of 5 workers has 3 tasks."""
    samples = (sample(40, processed=0), sample(100, processed=7200))
    assert rate_at_work(Memory(samples=samples, tasks=12), size) == rate


def test_an_idle_group_shows_no_rate_at_work() -> None:
    """A group without workers or without known tasks has no rate either."""
    idle = (sample(40, processed=5), sample(100, processed=5))
    busy = (sample(40, processed=0), sample(100, processed=60))
    assert rate_at_work(Memory(samples=idle, tasks=12), 4) is None
    assert rate_at_work(Memory(samples=busy, tasks=12), 0) is None
    assert rate_at_work(Memory(samples=busy), 4) is None


def test_facts_that_a_look_does_not_show_are_kept() -> None:
    """During a rebalance the topics are unknown; without workers the standbys are unknown."""
    known = after(look(0, ("a", 0, 9), standbys=2, busy=("restores",)))
    hidden = observed(known, look(10, ("a", 0, 9), tasks=0, standbys=None), Settings())
    assert (hidden.tasks, hidden.standbys, hidden.busy_at) == (1, 2, 0)
    shown = observed(hidden, look(20, ("a", 0, 9), standbys=0, busy=("again",)), Settings())
    assert (shown.standbys, shown.busy_at) == (0, 20)


def test_looks_that_are_too_close_change_facts_and_no_loads() -> None:
    """Five seconds between two looks are enough."""
    first = after(look(0, ("a", 0, 100)))
    close = observed(first, look(4.9, ("a", 0, 200), busy=("restores",)), Settings())
    assert (len(close.samples), close.busy_at, close.last) == (1, 4.9, first.last)
    assert len(observed(first, look(5.0, ("a", 0, 200)), Settings()).samples) == 2


@pytest.mark.parametrize(("up_s", "down_s"), [(3_000.0, 300.0), (300.0, 3_000.0)])
def test_the_looks_of_the_longer_window_are_kept(up_s: float, down_s: float) -> None:
    """The longer of the two windows counts."""
    settings, memory = Settings(up_s=up_s, down_s=down_s), Memory()
    for at in range(0, 4_000, 20):
        memory = observed(memory, look(at, ("a", 0, at)), settings)
    assert memory.reaches(3_000.0, 3_980.0)
    assert len(memory.samples) < 170


def test_the_newest_looks_and_rates_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit holds for too frequent looks too."""
    monkeypatch.setattr(under_test, "MOST_SAMPLES", 3)
    monkeypatch.setattr(under_test, "MOST_RATES", 2)
    memory = after(*(look(10 * n, ("a", 10 * n * n, 90_000)) for n in range(6)))
    assert [one.at for one in memory.samples] == [20, 30, 40, 50]
    assert memory.rates == (7.0, 9.0)


def test_a_group_with_other_members_is_not_measured() -> None:
    """A worker joined between the looks, and had less time."""
    first = look(0, ("a", 0, 900))
    assert after(first, look(10, ("a", 100, 900), members=3)).rates == ()


def test_records_of_a_partition_without_an_owner_measure_no_worker() -> None:
    """Its offset was committed by hand."""
    assert after(look(0, ("", 0, 900)), look(10, ("", 100, 900))).rates == ()


def test_the_work_that_waited_at_the_first_look_decides_whether_a_worker_was_busy() -> None:
    """The backlog at the end may be large although the worker had waited for records."""
    assert after(look(0, ("a", 0, 50)), look(10, ("a", 100, 900))).rates == ()


def test_arrivals_of_more_than_a_minute_ago_do_not_count() -> None:
    """After a burst 10 records/s arrive; a slightly late look covers the whole minute too."""
    times = (0, 15, 30, 45, 63, 78, 93)
    looks = [look(0, ("a", 0, 0))] + [look(at, ("a", 0, 90_000 + 10 * at)) for at in times[1:]]
    rates = [round(one.arrival or 0) for one in after(*looks).samples]
    assert rates == [0, 6010, 3010, 2010, 1439, 10, 10]


def test_the_first_moments_of_a_commit_count_nothing_as_processed() -> None:
    """A partition got its first committed offset between the looks."""
    memory = after(look(0, ("a", None, 900)), look(10, ("a", 800, 900)))
    assert memory.samples[-1].processed == 0
