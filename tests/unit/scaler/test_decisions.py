"""Each decision as a whole: its size, reasons, figures, notes and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.scaler.case import GROW, HOLD, SHRINK, SLEEP, STAY, Recommendation
from faust_assigner.scaler.look import Look, Source
from faust_assigner.scaler.memory import Memory, Sample, observed
from faust_assigner.scaler.recommend import recommend
from faust_assigner.scaler.settings import Settings

NOW = 5_000.0
USEFUL = (1, 2, 3, 4, 6, 12)


def look(members: int, backlog: int = 0, **more: Any) -> Look:
    """Return a look at a group of twelve tasks with ``backlog`` records in a partition."""
    sources = {("orders", 3): Source(owner="w0", committed=10, end=10 + backlog)}
    told = {"tasks": 12, "standbys": 0, "sources": sources, "notes": ("a note",), **more}
    return Look(taken_at=NOW, members=members, **told)


def known(*loads: tuple[float, int, float], **more: Any) -> Memory:
    """Return the memory of loads (seconds ago, backlog, arrival), or of a first look."""
    samples = tuple(
        Sample(at=NOW - ago, backlog=backlog, arrival=arrival) for ago, backlog, arrival in loads
    )
    samples = samples or (Sample(at=NOW),)
    told = {"tasks": 12, "samples": samples, "last": replace(look(1), taken_at=NOW - 1), **more}
    return Memory(**told)


def found(seen: Look, memory: Memory, **settings: Any) -> Recommendation:
    """Return the recommendation."""
    return recommend(seen, Settings(**settings), memory)[0]


def told(size: int, present: int, decision: str, *reasons: str, **more: Any) -> Recommendation:
    """Return an expected recommendation over twelve tasks."""
    base = {"tasks": 12, "useful": USEFUL, "notes": ("a note",), "arrival": None, **more}
    return Recommendation(size=size, present=present, decision=decision, reasons=reasons, **base)


STEADY = ((1_000.0, 0, 100.0), (20.0, 7, 250.0), (0.0, 5, 240.0))


# -- hold -----------------------------------------------------------------------------------------


def test_a_busy_group_is_held_with_the_look_s_reasons() -> None:
    """The size stays at the last recommendation for any members; the figures are shown."""
    seen = look(3, 5, busy=("one", "two"))
    memory = known(*STEADY, size=6, rates=(80.0, 120.0))
    wanted = told(6, 6, HOLD, "one", "two", arrival=240.0, backlog=5, worker_rate=100.0)
    assert found(seen, memory) == wanted


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (3, "3 workers have joined, 4 are recommended"),
        (5, "5 workers are still there, 4 are recommended"),
    ],
)
def test_workers_that_have_not_followed_are_waited_for(members: int, reason: str) -> None:
    """The memory has the time of the divergence; the size stays."""
    made, memory = recommend(look(members), Settings(), known(size=4, changed_at=9.0))
    assert made == told(4, 4, HOLD, reason)
    assert (memory.size, memory.changed_at, memory.parted_at) == (4, 9.0, NOW)


def test_a_group_without_members_is_held_with_its_backlog() -> None:
    """The group is active, so workers start; a group that never ran gets its least size."""
    reason = "the group has no members; 1,234 records wait"
    memory = known(size=4, standbys=1)
    useful = (2, 3, 4, 6, 12)
    assert found(look(0, 1_234, standbys=None), memory) == told(
        4, 4, HOLD, reason, useful=useful, backlog=1_234
    )
    never = found(look(0, 0, tasks=0), Memory(), least=3)
    assert never == Recommendation(
        size=3,
        present=0,
        decision=HOLD,
        reasons=("the group has no members; 0 records wait",),
        notes=("a note",),
    )


def test_members_without_topics_are_held() -> None:
    """No size is useful."""
    made = found(look(4, tasks=0), Memory())
    assert made == Recommendation(
        size=4,
        present=4,
        decision=HOLD,
        reasons=("no member reports its topics",),
        notes=("a note",),
    )


# -- sleep ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "busy", "sleeps"), [(0, (), True), (1, ("stops",), True), (1, (), False)]
)
def test_a_sleeping_group_sleeps_on_while_its_worker_leaves(
    members: int, busy: tuple[str, ...], sleeps: bool
) -> None:
    """A worker at rest wakes the group."""
    made = found(look(members, busy=busy), known(size=0), least=0)
    wanted = told(0, members, SLEEP, "no records wait, and min is 0", is_active=False)
    assert (made == wanted) is sleeps
    assert (made.decision == SLEEP) is sleeps
    assert made.is_active is not sleeps


def test_a_group_that_never_had_members_sleeps_if_min_is_zero() -> None:
    """Waiting records start the least size."""
    why = "the group has no members, no records wait, and min is 0"
    assert found(look(0), known(), least=0) == told(0, 0, SLEEP, why, is_active=False)
    waits = "the group has no members; 9 records wait"
    assert found(look(0, 9), known(), least=0) == told(1, 0, HOLD, waits, backlog=9)


IDLE = ((900.0, 0, 0.0), (450.0, 0, 0.0), (0.0, 0, 0.0))


@pytest.mark.parametrize(
    ("loads", "least", "sleeps"),
    [
        (IDLE, 0, True),
        (IDLE, 1, False),
        ((*IDLE[:2], (0.0, 0, 0.1)), 0, False),
        ((*IDLE[:2], (0.0, 1, 0.0)), 0, False),
        (((900.0, 1, 0.0), *IDLE[1:]), 0, False),
        (((901.0, 1, 3.0), *IDLE[1:]), 0, True),
        (((899.0, 0, 0.0), *IDLE[1:]), 0, False),
    ],
    ids=["idle", "min 1", "an arrival", "a backlog", "old backlog", "older backlog", "too short"],
)
def test_a_group_without_work_for_the_whole_window_sleeps(
    loads: Any, least: int, sleeps: bool
) -> None:
    """The reason names the window."""
    made = found(look(4), known(*loads, size=4, changed_at=0.0), least=least, down_s=900.0)
    why = "no records arrived or waited for 900 s, and min is 0"
    wanted = told(0, 4, SLEEP, why, is_active=False, arrival=0.0)
    assert (made == wanted) is sleeps
    assert (made.decision == SLEEP) is sleeps


# -- grow -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "standbys", "size", "useful", "why"),
    [
        ({}, 2, 3, (3, 4, 6, 12), "2 standbys of each table need 3 workers"),
        ({"least": 3}, 2, 3, (3, 4, 6, 12), "3 is the smallest allowed and useful size"),
        ({"least": 5}, 1, 6, (6, 12), "6 is the smallest allowed and useful size"),
        ({"least": 4, "most": 5}, 9, 5, (5,), "9 standbys of each table need 5 workers"),
    ],
)
def test_a_group_below_the_least_useful_size_grows_at_once(
    settings: dict[str, Any], standbys: int, size: int, useful: tuple[int, ...], why: str
) -> None:
    """The reason names the standbys, or else the setting."""
    made = found(look(2, standbys=standbys), known(), **settings)
    assert made == told(size, 2, GROW, why, useful=useful)


def test_a_group_that_is_too_slow_grows_with_all_its_reasons() -> None:
    """The reasons are the load, the backlog, and the new size with its rate."""
    loads = ((30.0, 0, 500.0), (15.0, 0, 900.0), (0.0, 60_000, 380.0))
    made = found(look(4, 60_000), known(*loads, size=4), worker_rate=100.0)
    assert made == told(
        6,
        4,
        GROW,
        "380 records/s arrive; 4 workers process at most 400",
        "60,000 records wait, the limit is 11,400; they must be processed within 300 s",
        "6 workers have at most 2 tasks each and process 600 records/s",
        arrival=380.0,
        backlog=60_000,
        worker_rate=100.0,
    )


def test_the_largest_size_that_is_too_slow_says_so() -> None:
    """Each worker has one task then."""
    loads = ((30.0, 0, 1_300.0), (0.0, 0, 1_300.4))
    made = found(look(6), known(*loads, size=6), worker_rate=100.0)
    assert made == told(
        12,
        6,
        GROW,
        "1,300 records/s arrive; 6 workers process at most 600",
        "12 workers have at most 1 task each and process 1,200 records/s",
        "1,300 would be needed; no larger size is faster",
        arrival=1_300.4,
        worker_rate=100.0,
    )


@pytest.mark.parametrize(
    ("loads", "changed_at", "decision"),
    [
        (((30.0, 0, 500.0), (0.0, 0, 500.0)), None, GROW),
        (((29.0, 0, 500.0), (0.0, 0, 500.0)), None, STAY),
        (((30.0, 0, 360.0), (0.0, 0, 500.0)), None, STAY),
        (((31.0, 0, 360.0), (30.0, 0, 361.0), (0.0, 0, 500.0)), None, GROW),
        (((30.0, 0, 500.0), (15.0, 0, 360.0), (0.0, 0, 500.0)), None, STAY),
        (((90.0, 0, 500.0), (0.0, 0, 500.0)), NOW - 30.0, GROW),
        (((90.0, 0, 500.0), (0.0, 0, 500.0)), NOW - 29.0, STAY),
    ],
)
def test_each_look_of_the_window_has_to_need_more(
    loads: Any, changed_at: float | None, decision: str
) -> None:
    """The window starts at the last change of the size."""
    memory = known(*loads, size=4, changed_at=changed_at)
    made = found(look(4), memory, worker_rate=100.0, up_s=30.0)
    assert made.decision == decision


def test_a_backlog_that_does_not_shrink_grows_to_the_next_size() -> None:
    """The group grows although the rate should suffice."""
    loads = ((120.0, 9_000, 200.0), (60.0, 9_500, 200.0), (0.0, 9_000, 200.0))
    made = found(look(4, 9_000), known(*loads, size=4), worker_rate=100.0)
    assert made == told(
        6,
        4,
        GROW,
        "9,000 records wait, at least as many as 120 s ago, although the workers should be fast enough: "
        "the partitions are uneven, or the workers have become slower",
        arrival=200.0,
        backlog=9_000,
        worker_rate=100.0,
    )


# -- stay and shrink ------------------------------------------------------------------------------


def quiet(*loads: tuple[float, int, float], members: int = 4, **settings: Any) -> Recommendation:
    """Return the recommendation for a group with a window of ten minutes."""
    memory = known(*loads, size=members)
    return found(look(members), memory, **{"worker_rate": 100.0, "down_s": 600.0, **settings})


def test_the_smallest_size_stays() -> None:
    """The smallest of the permitted and useful sizes stays."""
    why = "it is the smallest allowed and useful size"
    rest = {"arrival": 1.0, "worker_rate": 100.0}
    assert quiet((600.0, 0, 1.0), members=1) == told(1, 1, STAY, why, **rest)
    least = quiet((600.0, 0, 1.0), members=4, least=4)
    assert least == told(4, 4, STAY, why, useful=(4, 6, 12), **rest)


@pytest.mark.parametrize("ago", [599.0, 0.0])
def test_a_load_is_low_for_the_whole_window_or_it_stays(ago: float) -> None:
    """The next smaller size is named."""
    why = "3 workers are considered once the load was low for 600 s"
    assert quiet((ago, 0, 1.0)) == told(4, 4, STAY, why, arrival=1.0, worker_rate=100.0)


def test_the_largest_excess_of_the_window_keeps_the_size() -> None:
    """The reason has the excess's age and limit."""
    loads = ((700.0, 99_999, 0.0), (600.0, 400, 10.0), (40.0, 2_000, 20.0), (0.0, 1, 30.0))
    why = "2,000 records waited 40 s ago, the limit is 600"
    assert quiet(*loads) == told(4, 4, STAY, why, arrival=30.0, worker_rate=100.0)


@pytest.mark.parametrize(
    ("peak", "why"),
    [
        (
            211.0,
            "211 records/s arrived at the peak of the last 600 s; 3 workers process 300, and their "
            "load must be 70% at most",
        ),
        (210.0, ""),
    ],
)
def test_the_peak_of_the_window_keeps_the_size(peak: float, why: str) -> None:
    """At 70% of the smaller size's rate the group shrinks."""
    made = quiet((700.0, 0, 290.0), (600.0, 0, peak), (0.0, 0, 9.0))
    rest = {"arrival": 9.0, "worker_rate": 100.0}
    shrunk = "210 records/s arrived at the peak of the last 600 s; 3 workers process 300"
    wanted = told(4, 4, STAY, why, **rest) if why else told(3, 4, SHRINK, shrunk, **rest)
    assert made == wanted


def test_a_size_without_a_measured_rate_is_tried() -> None:
    """The reason names the missing rate."""
    why = (
        "the backlog was within its limit for 600 s, and no worker was ever busy enough to measure "
        "its rate: 3 workers are tried"
    )
    made = quiet((600.0, 0, 50.0), (0.0, 0, 60.0), worker_rate=None)
    assert made == told(3, 4, SHRINK, why, arrival=60.0)


@pytest.mark.parametrize(
    ("members", "most", "size", "decision", "why"),
    [
        (
            5,
            None,
            4,
            SHRINK,
            "with 12 tasks the fullest of 5 workers has 3 tasks, as with 4: more workers than 4 process "
            "no faster",
        ),
        (
            14,
            None,
            12,
            SHRINK,
            "with 12 tasks the fullest of 14 workers has 1 task, as with 12: more workers than 12 "
            "process no faster",
        ),
        (
            13,
            None,
            13,
            STAY,
            "12 would suffice, but Kubernetes ignores a change of a tenth or less",
        ),
        (6, 5, 4, SHRINK, "max is 5"),
    ],
)
def test_a_size_that_is_not_useful(
    members: int, most: int | None, size: int, decision: str, why: str
) -> None:
    """The group moves at once to the next smaller useful size."""
    useful = USEFUL if most is None else (1, 2, 3, 4)
    made = found(look(members), known(size=members), most=most)
    assert made == told(size, members, decision, why, useful=useful)


# -- the memory -----------------------------------------------------------------------------------


def test_the_whole_memory_after_a_change() -> None:
    """The size, its time and the look's facts change; loads and rates stay."""
    before = known(size=5, standbys=1, rates=(3.0,), parted_at=2.0, busy_at=1.0)
    seen = look(5, tasks=12, standbys=0)
    made, after = recommend(seen, Settings(), before)
    assert made.size == 4
    assert after == replace(
        before, size=4, changed_at=NOW, parted_at=None, standbys=0, tasks=12, busy_at=1.0
    )


def test_a_whole_sample_and_the_rates_of_its_workers() -> None:
    """Only partitions in both looks count; busy workers are in the order of their names."""

    def seen(at: float, **sources: tuple[str, int | None, int]) -> Look:
        placed = {
            (name, 0): Source(owner=owner, committed=committed, end=end)
            for name, (owner, committed, end) in sources.items()
        }
        return Look(taken_at=at, members=2, tasks=4, sources=placed)

    first = seen(100.0, a=("z", 0, 1_000), b=("y", 50, 500), c=("y", 0, 10), gone=("x", 0, 9_999))
    second = seen(110.0, a=("z", 300, 1_700), b=("y", 250, 480), c=("y", 4, 15), new=("x", 0, 77))
    memory = observed(observed(Memory(), first, Settings()), second, Settings())
    assert memory == Memory(
        tasks=4,
        samples=(
            Sample(at=100.0, backlog=1_000 + 450 + 10 + 9_999),
            Sample(at=110.0, arrived=705, processed=504, backlog=1_718, arrival=70.5),
        ),
        rates=(20.4, 30.0),
        last=second,
    )


def test_the_horizon_of_the_memory_keeps_one_look_before_it() -> None:
    """The horizon is the longest window plus two minutes; an earlier look covers its start."""
    settings = Settings(up_s=10.0, down_s=100.0)
    samples = tuple(Sample(at=at, arrival=1.0) for at in (4_700.0, 4_839.0, 4_840.0, 4_900.0))
    before = Memory(samples=samples, last=replace(look(1), taken_at=4_990.0))
    after = observed(before, look(1), settings)
    assert [one.at for one in after.samples] == [4_839.0, 4_840.0, 4_900.0, NOW]
    short = observed(before, look(1), Settings(up_s=10.0, down_s=10.0))
    assert [one.at for one in short.samples] == [4_840.0, 4_900.0, NOW]
