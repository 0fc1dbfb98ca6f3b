"""The faults drawn for a soak, its counts and its comparisons, without any process."""

from __future__ import annotations

import signal
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tests.soak import outputs as outputs_module
from tests.soak import windows
from tests.soak.outputs import Outputs
from tests.soak.progress import Idleness, Progress
from tests.soak.quiesce import Balance
from tests.soak.report import Row, table
from tests.soak.schedule import (
    BROKER_DEATHS,
    DEPLOYS,
    FREEZE_S,
    GROUP_FAULTS,
    OVERLAPPING,
    WORKER_FAULTS,
    Fault,
    faults_of,
    overlapping,
)

WORKERS = ("a", "b", "c")
MANY = [faults_of(7, number, WORKERS, broker_dies=True) for number in range(1, 400)]


def test_a_seed_draws_the_same_faults_again() -> None:
    """A different seed draws different faults."""
    again = [faults_of(7, number, WORKERS, broker_dies=True) for number in range(1, 400)]
    assert again == MANY
    assert faults_of(8, 1, WORKERS, broker_dies=True) != MANY[0]


def test_every_fault_comes_alone_and_with_another() -> None:
    """Some pairs of faults overlap, and no pair hits the whole group twice."""
    kinds = {**WORKER_FAULTS, **GROUP_FAULTS, **BROKER_DEATHS}.keys()
    assert {faults[0].kind for faults in MANY if len(faults) == 1} == kinds
    pairs = [faults for faults in MANY if len(faults) == 2]
    assert {fault.kind for pair in pairs for fault in pair} == kinds
    assert any(second.at_s < first.for_s for first, second in pairs)
    assert all(first.worker or second.worker for first, second in pairs)


def test_a_process_is_frozen_for_2_to_40_seconds() -> None:
    """Short and long freezes are both drawn."""
    lasts = [fault.for_s for faults in MANY for fault in faults if fault.kind.startswith("freeze")]
    assert FREEZE_S[0] <= min(lasts) < 4
    assert 30 < max(lasts) <= FREEZE_S[1]


def test_a_broker_that_may_not_die_is_only_frozen() -> None:
    """The same holds for a run on Kafka."""
    drawn = {
        fault.kind for n in range(400) for fault in faults_of(7, n, WORKERS, broker_dies=False)
    }
    assert drawn == WORKER_FAULTS.keys() | GROUP_FAULTS.keys()


def test_events_overlap_and_nobody_has_two_at_once() -> None:
    """All kinds are drawn, and the same seed draws the same events again."""
    drawn = overlapping(3, 400, WORKERS, ("x", "y"))
    assert drawn == overlapping(3, 400, WORKERS, ("x", "y"))
    assert len(drawn) == 400
    assert all(second.at_s - first.at_s < 15.0 for first, second in pairwise(drawn))
    drawn = tuple(fault for fault in drawn if fault.kind not in DEPLOYS)
    assert {fault.kind for fault in drawn} == OVERLAPPING.keys()
    assert [fault.at_s for fault in drawn] == sorted(fault.at_s for fault in drawn)
    assert all((fault.kind == "join") == (fault.worker in ("x", "y")) for fault in drawn)
    for name in (*WORKERS, "x", "y", ""):
        own = [fault for fault in drawn if fault.worker == name]
        assert all(first.at_s + first.for_s <= second.at_s + 0.2 for first, second in pairwise(own))


@pytest.mark.parametrize("events", range(20, 120, 7))
def test_a_journal_of_20_events_deploys_and_rolls_back(events: int) -> None:
    """Deploy and rollback alternate, and at least three events separate two of them."""
    for seed in range(40):
        drawn = overlapping(seed, events, WORKERS, ("x", "y"))
        at = [number for number, fault in enumerate(drawn) if fault.kind in DEPLOYS]
        kinds = [drawn[number].kind for number in at]
        assert kinds == [DEPLOYS[number % 2] for number in range(max(2, events // 25))]
        assert at[0] > 0
        assert at[-1] < events - 3
        assert all(later - earlier > 3 for earlier, later in pairwise(at))


def test_a_journal_of_less_than_20_events_has_no_deploy() -> None:
    """Two deploys would take up most of the run's time."""
    drawn = {fault.kind for seed in range(40) for fault in overlapping(seed, 19, WORKERS, ("x",))}
    assert not drawn & set(DEPLOYS)


def test_progress_tells_holes_from_repeats() -> None:
    """In partition 0, offset 1 is missing and offset 2 comes twice."""
    progress = Progress(2)
    progress.take("a", [(1.0, 0, 0), (2.0, 0, 2), (3.0, 1, 0)])
    assert not progress.flows_since(2.0)
    progress.take("b", [(4.0, 0, 2)])
    assert (progress.repeats, progress.done, progress.lost([3, 1])) == (1, 3, 1)
    assert progress.flows_since(2.5)
    progress.take("a", [(5.0, 0, 1)])
    assert (progress.lost([3, 1]), progress.whole) == (0, [3, 1])


def test_a_worker_is_idle_after_the_limit_without_work_or_excuse() -> None:
    """Worker a has worked, worker b was excused recently, worker c neither."""
    progress, idleness = Progress(1), Idleness(60.0)
    idleness.excuse(WORKERS, 0.0)
    progress.take("a", [(50.0, 0, 0)])
    idleness.excuse(["b"], 55.0)
    assert idleness.idle(WORKERS, progress, 60.0) == {}
    assert idleness.idle(WORKERS, progress, 70.0) == {"c": 70.0}
    assert idleness.idle(["a"], progress, 111.0) == {"a": 61.0}


def test_outputs_that_miss_and_that_come_twice_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three orders, the second has no output and the third has two."""

    class Reader:
        def __init__(self, _: object) -> None:
            pass

        def assign(self, _: object) -> None:
            pass

    monkeypatch.setattr(outputs_module, "Consumer", Reader)
    outputs = Outputs("nowhere", "app", 1)
    for number in (2, 0, 2):
        outputs._count("anna", number)
    assert (outputs.missing({"anna": [5, 5, 5], "otto": [1]}), outputs.twice()) == (2, 1)


def test_only_a_window_in_which_the_load_paused_may_close_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """During a pause the time goes on, so the window closes before its last orders."""
    rows = {
        (0, "c", begin): [{"count": 2, "last": 1}, {"count": 1, "last": 2}] for begin in (10, 20)
    }
    monkeypatch.setattr(windows, "rows", lambda world: rows)
    load = SimpleNamespace(
        windows=dict.fromkeys(rows, (3, 2)), sent=[200], interrupted={(0, 20), (1, 10)}
    )
    world: Any = SimpleNamespace(load=load)
    closed, (wrong,) = windows.wrong_windows(world, exactly_once=True)
    assert (closed, wrong.startswith("window (0, 'c', 10) was closed with")) == (2, True)


def test_the_table_counts_each_group_once() -> None:
    """A later comparison of a group includes the earlier ones; each seed is a group of its own."""
    fault = Fault("kill", "a", 0.0, 1.0, signal.SIGKILL, 1)
    rows = [
        Row(1, 1, (fault,), rest_s=2.0, balance=Balance(10, 0, 0, 1, ()), kept=True),
        Row(1, 2, (fault,), rest_s=4.0, balance=Balance(30, 0, 0, 3, ()), kept=True),
        Row(101, 1, (fault,), balance=Balance(5, 2, 0, 0, ("2 orders lost",))),
    ]
    said = table("embedded", "at_least_once", rows, 1, 60.0)
    assert "2 of 3 rounds kept every promise, 1 failed" in said
    assert "orders 35, compared 3 times, lost 2" in said
    assert "twice 3" in said
    assert "kill                 2            3.0       4.0" in said
    assert rows[2].line().endswith("FAILED")
