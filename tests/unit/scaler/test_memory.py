"""Loads over time, and the rates of workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.memory import MOST_RATES, MOST_SAMPLES, Memory, observed
from faust_assigner.scaler.settings import Settings
from tests.unit.scaler.made import group


def look(at: float, *sources: tuple[str, int | None, int], **more: object) -> Look:
    """One partition for each (owner, committed, end)."""
    placed = {
        ("orders", n): Source(owner=owner, committed=committed, end=end)
        for n, (owner, committed, end) in enumerate(sources)
    }
    base = Look(taken_at=at, members=2, tasks=len(sources), sources=placed)
    return replace(base, **more)  # type: ignore[arg-type]


def after(*looks: Look) -> Memory:
    """The memory of these looks."""
    memory = Memory()
    for one in looks:
        memory = observed(memory, one, Settings())
    return memory


def test_arrivals_are_measured_from_the_ends_of_the_logs() -> None:
    """Of all source partitions, from two looks on."""
    assert after(look(0, ("a", 0, 100))).samples[-1].arrival is None
    memory = after(look(0, ("a", 0, 100), ("b", 0, 50)), look(10, ("a", 0, 180), ("b", 0, 70)))
    assert memory.samples[-1].arrival == 10.0


@pytest.mark.parametrize(
    ("waiting", "processed", "rates"), [(150, 150, (15.0,)), (149, 150, ()), (150, 0, ())]
)
def test_a_rate_counts_only_of_a_worker_that_had_work_all_the_time(
    waiting: int, processed: int, rates: tuple[float, ...]
) -> None:
    """It processed no more than what already waited; a worker that stands still says nothing."""
    memory = after(look(0, ("a", 0, waiting)), look(10, ("a", processed, 500)))
    assert memory.rates == rates


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_that_is_not_at_rest_is_not_measured(when: str) -> None:
    """Part of the time went to something else."""
    first, second = look(0, ("a", 0, 900)), look(10, ("a", 100, 900))
    busy = ("worker a restores state",)
    if when == "before":
        first = replace(first, busy=busy)
    else:
        second = replace(second, busy=busy)
    assert after(first, second).rates == ()


def test_a_worker_that_gave_or_got_a_partition_is_not_measured() -> None:
    """The other worker is."""
    memory = after(
        look(0, ("a", 0, 900), ("a", 0, 900), ("c", 0, 900)),
        look(10, ("a", 100, 900), ("b", 100, 900), ("c", 50, 900)),
    )
    assert memory.rates == (5.0,)


def test_a_topic_that_begins_anew_counts_no_negative_arrivals() -> None:
    """It was deleted and created again."""
    memory = after(look(0, ("a", 900, 900)), look(10, ("a", 0, 20)))
    assert memory.samples[-1].arrival == 0.0
    assert memory.rates == ()


def test_partitions_without_a_commit_have_no_lag() -> None:
    """Nobody knows where their group begins to read."""
    assert look(0, ("a", None, 900), ("b", 10, 30)).backlog == 20


def test_two_looks_at_the_same_time_are_one() -> None:
    """A rate over no time is none."""
    once = after(look(0, ("a", 0, 100)))
    assert observed(once, look(0, ("a", 90, 100)), Settings()).samples == once.samples


def test_a_given_rate_is_not_believed_where_workers_are_slower() -> None:
    """The lower of the two counts."""
    memory = replace(Memory(), rates=(80.0, 90.0, 300.0))
    assert memory.worker_rate(Settings(worker_rate=100.0)) == 90.0
    assert memory.worker_rate(Settings(worker_rate=50.0)) == 50.0
    assert memory.worker_rate(Settings()) == 90.0
    assert Memory().worker_rate(Settings()) is None


def test_what_is_remembered_is_bounded() -> None:
    """A day of looks leaves those of the window, and one before it."""
    made = group(members=4, arrival=300.0, processed=200.0, follows=False, down_s=300.0)
    made.pass_time(86_400)
    assert len(made.memory.samples) <= (300 + 60) / 15 + 3
    assert len(made.memory.rates) <= MOST_RATES
    assert made.memory.reaches(300, made.now)
    assert MOST_SAMPLES < 10_000


def test_rare_looks_cover_the_window_too() -> None:
    """Ten minutes apart, with a window of five."""
    memory = after(look(0, ("a", 0, 0)), look(600, ("a", 0, 0)), look(1200, ("a", 0, 0)))
    kept = observed(memory, look(1800, ("a", 0, 0)), Settings(down_s=300.0))
    assert kept.covers(300, 1800)
