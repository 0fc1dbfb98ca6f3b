"""Rounds of a simulated fleet whose times and downtimes are compared as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from faust_assigner.simulation.fleet import Event, Kind
from faust_assigner.simulation.replicas import Replicas
from tests.unit.simulation.test_simulator import OURS, fleet
from tests.unit.simulation.test_steps import Script, rounds_of


def test_a_task_that_is_gained_waits_for_no_other_restore_of_its_worker() -> None:
    """w1 restores task 1 for 20 s; meanwhile it gains task 2, which has 3,000 records."""
    base = {"w0": ([0, 1, 2], [], [])}
    policy = Script(
        [
            base,
            {"w0": ([0, 2], [], []), "w1": ([1], [], [])},
            {"w0": ([0], [], []), "w1": ([1, 2], [], [])},
        ]
    )
    events = Event(100.0, Kind.JOIN, "w1"), Event(105.0, Kind.JOIN, "w2")
    scenario = fleet(*events, workers=3, start=1, tasks=3, records=[7_000.0, 20_000.0, 3_000.0])
    found, trace = rounds_of(scenario, policy, cooperative=True)
    # Each waits for two pauses, the takeover and its own replay.
    assert found.unavailable_s == pytest.approx((1.4 + 1.0 + 20.0) + (1.4 + 1.0 + 3.0))
    assert found.worst_gap_s == pytest.approx(22.4)
    assert found.restored == pytest.approx(5_000.0)  # until the last event
    assert [(one.at_s, one.moved, one.cold_moves) for one in trace] == [
        (100.0, 1, 1),
        (105.0, 1, 1),
    ]
    assert (found.moved, found.cold_moves, found.rebalances, found.idle_members) == (2, 2, 2, 1)


def test_a_round_that_moves_a_task_is_followed_although_the_same_copies_are_awaited() -> None:
    """The follow-up round of the earlier round is replaced, not dropped."""
    policy = Script(
        [
            {"w0": ([0, 1], [], [])},
            {"w0": ([0, 1], [], []), "w1": ([], [0], [0])},
            {"w0": ([0], [], []), "w1": ([], [0], [0]), "w2": ([1], [], [])},
            {"w1": ([0], [], []), "w2": ([1], [], [])},
        ]
    )
    events = Event(100.0, Kind.JOIN, "w1"), Event(102.0, Kind.JOIN, "w2")
    scenario = fleet(*events, workers=3, start=1, records=[2_000.0, 3_000.0])
    _, trace = rounds_of(scenario, policy, cooperative=True)
    assert [(one.at_s, one.moved) for one in trace] == [(100.0, 0), (102.0, 1), (107.0, 1)]


def test_a_start_of_a_running_worker_and_an_end_of_a_stopped_worker_change_nothing() -> None:
    """Neither is a round, and no session of the stopped worker begins."""
    events = (
        Event(100.0, Kind.JOIN, "w0"),
        Event(200.0, Kind.LEAVE, "w1"),
        Event(300.0, Kind.CRASH, "w1"),
        Event(310.0, Kind.LEAVE, "w1"),
    )
    found, trace = rounds_of(fleet(*events), OURS)
    assert [one.at_s for one in trace] == [200.0]
    assert found.rebalances == 1


def test_the_position_of_an_owner_is_the_end_and_that_of_a_copy_is_what_it_has() -> None:
    """Also while the owner restores; a member without files has read nothing."""
    replicas = Replicas(fleet(workers=3, tasks=3, records=[10.5, 20.0, 7.2]))
    replicas.owner = np.array([0, 0, 2])
    replicas.holds[0], replicas.holds[1] = True, [True, True, False]
    replicas.lag = np.array([[4.0, 0.0, 2.6], [3.4, 25.0, 1.0], [6.0, 6.0, 6.0]])
    assert replicas.positions().tolist() == [[11, 20, 5], [8, 0, 0], [0, 0, 8]]


def test_a_policy_without_warm_ups_is_not_asked_for_awaited_standbys() -> None:
    """Policies of other authors have no such method."""

    class Answer:
        """Both tasks belong to the first worker."""

        def actives(self, member_id: str) -> dict[str, list[int]]:
            """Return the member's tasks."""
            return {"t": [0, 1] if member_id == "w0" else []}

        def standbys(self, member_id: str) -> dict[str, list[int]]:
            """Return no standbys."""
            return {}

    policy: Any = lambda members, partitions, **_: Answer()  # noqa: E731
    found, _ = rounds_of(fleet(Event(100.0, Kind.JOIN, "w1"), start=1), policy)
    assert (found.moved, found.rebalances, found.idle_members) == (0, 1, 1)
